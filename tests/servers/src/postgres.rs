//! A real PostgreSQL, made by `initdb`, with its own folder and loopback port.
//!
//! It does not sync its files: tests kill the process, not the machine. PostgreSQL refuses to run as root, so under root
//! the server gets another user. It stops when it is dropped, and also when the process that started it ends in any way: a
//! server shared by all tests of a binary is never dropped. In both cases it is asked to shut down: a killed server leaves
//! a shared memory segment behind, and their number is limited.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use tempfile::TempDir;

use crate::process::{free_port, wait_until};

/// The role that owns the databases. It logs in with a password and has no special rights.
pub const ROLE: &str = "rollcall";

/// The password of [`ROLE`], with characters that a URL must escape, as real passwords have.
pub const PASSWORD: &str = "p@ss/w%rd";

/// [`PASSWORD`], escaped for a URL.
const PASSWORD_IN_URL: &str = "p%40ss%2Fw%25rd";

/// A start takes about a second; on a busy machine, several.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Where Debian and Ubuntu install each version.
const VERSIONS: &str = "/usr/lib/postgresql";

/// The users to run as under root, in order of preference. The second exists on every system.
const USERS: [&str; 2] = ["postgres", "nobody"];

/// Stops the server when its stdin closes, that is when the process that holds the other end is gone. An immediate
/// shutdown takes milliseconds and removes the pid file; the loop is bounded anyway (5 s).
const GUARD: &str = r#"
    read -r _
    file="$1/data/postmaster.pid"
    if pid=$(head -n 1 "$file" 2>/dev/null) && kill -QUIT "$pid" 2>/dev/null; then
        for _ in $(seq 100); do [ -e "$file" ] && sleep 0.05; done
    fi
    rm -rf "$1"
"#;

/// A server, running or killed.
#[derive(Debug)]
pub struct Postgres {
    process: Option<Child>,
    port: u16,
    programs: PathBuf,
    user: Option<(u32, u32)>,
    guard: Child,
    databases: AtomicU32,
    folder: TempDir,
}

/// Whether a server uses TLS.
#[derive(Debug, Clone, Copy)]
pub enum Tls<'a> {
    /// No TLS.
    Off,
    /// TLS with this certificate and key, both in PEM.
    On {
        /// The certificate.
        certificate: &'a str,
        /// Its key.
        key: &'a str,
    },
}

impl Postgres {
    /// The server that all tests of this process share. The first call starts it.
    pub fn shared() -> Result<&'static Self> {
        static SHARED: OnceLock<Result<Postgres>> = OnceLock::new();
        SHARED.get_or_init(Self::start).as_ref().map_err(|error| anyhow::anyhow!("{error:#}"))
    }

    /// Starts a server without TLS.
    pub fn start() -> Result<Self> {
        Self::start_with(Tls::Off)
    }

    /// Starts a server, with or without TLS.
    pub fn start_with(tls: Tls<'_>) -> Result<Self> {
        let programs = programs()?;
        let folder = tempfile::Builder::new().prefix("rollcall-postgres-").tempdir()?;
        let user = user_for(folder.path())?;
        let guard = guard(folder.path())?;
        let databases = AtomicU32::new(0);
        let mut server = Self { process: None, port: 0, programs, user, guard, databases, folder };
        server.make_cluster()?;
        server.configure(tls)?;
        server.port = free_port()?;
        server.start_again()?;
        let role = format!("CREATE ROLE {ROLE} LOGIN PASSWORD '{PASSWORD}'");
        server.sql("postgres", &role)?;
        Ok(server)
    }

    /// The port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Creates a database for a test, owned by [`ROLE`]. Returns its name.
    pub fn database(&self) -> Result<String> {
        let name = format!("test_{}", self.databases.fetch_add(1, Ordering::SeqCst));
        self.sql("postgres", &format!("CREATE DATABASE {name} OWNER {ROLE}"))?;
        Ok(name)
    }

    /// The URL of a database for [`ROLE`].
    pub fn url(&self, database: &str) -> String {
        self.url_for(ROLE, PASSWORD_IN_URL, database)
    }

    /// The URL of a database for another role; the password must be escaped.
    pub fn url_for(&self, role: &str, password: &str, database: &str) -> String {
        format!("postgres://{role}:{password}@127.0.0.1:{}/{database}", self.port)
    }

    /// Runs SQL as the superuser, who needs no password. Returns the rows, one per line, with `|` between values.
    pub fn sql(&self, database: &str, sql: &str) -> Result<String> {
        let mut psql = Command::new(self.programs.join("psql"));
        psql.args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-U", "postgres", "-d", database, "-c", sql]);
        psql.arg("-h").arg(self.folder.path()).arg("-p").arg(self.port.to_string());
        let output = finish(&mut psql)?;
        Ok(output.trim_end().to_owned())
    }

    /// Kills the server at once, like a crash, and its sessions, which would otherwise answer for a while.
    pub fn kill(&mut self) {
        let _ = self.signal_all("KILL");
        if let Some(mut process) = self.process.take() {
            // Both fail only if it has ended already.
            let _ = process.kill();
            let _ = process.wait();
        }
    }

    /// Pauses the server: it keeps its connections and does not answer.
    pub fn freeze(&self) -> Result<()> {
        self.signal_all("STOP")
    }

    /// Resumes a frozen server.
    pub fn thaw(&self) -> Result<()> {
        self.signal_all("CONT")
    }

    /// Starts the server again after [`Self::kill`], on the same port and with its data.
    pub fn start_again(&mut self) -> Result<()> {
        ensure!(self.process.is_none(), "PostgreSQL is already running");
        let deadline = Instant::now() + TIMEOUT;
        loop {
            match self.launch(deadline) {
                // Sessions of the killed server take a moment to end; until then it refuses to start.
                Err(error) if error.to_string().contains("is still in use") && Instant::now() < deadline => {}
                launched => return launched,
            }
        }
    }

    fn launch(&mut self, deadline: Instant) -> Result<()> {
        let path = self.folder.path().join("log");
        // A new log: the last run's output says nothing about this one.
        let log = fs::File::create(&path)?;
        let mut postgres = self.command("postgres");
        postgres.arg("-D").arg(self.data()).arg("-p").arg(self.port.to_string());
        let mut process = postgres.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).spawn()?;
        let status = self.data().join("postmaster.pid");
        // The last line of the pid file is the startup status.
        let ready = wait_until("PostgreSQL to start", deadline.saturating_duration_since(Instant::now()), || {
            if let Some(ended) = process.try_wait()? {
                bail!("PostgreSQL ended with {ended}:\n{}", fs::read_to_string(&path)?);
            }
            let text = fs::read_to_string(&status).unwrap_or_default();
            let own = text.lines().next() == Some(&process.id().to_string());
            Ok(own && text.lines().any(|line| line.trim_end() == "ready"))
        });
        // Stored before the check: a server that is not ready in time must be killed too.
        self.process = Some(process);
        ready.inspect_err(|_| self.kill())
    }

    fn make_cluster(&self) -> Result<()> {
        let mut initdb = self.command("initdb");
        initdb.arg("-D").arg(self.data()).args(["-U", "postgres", "--no-sync", "--encoding=UTF8", "--locale=C"]);
        initdb.args(["--auth-local=trust", "--auth-host=scram-sha-256"]);
        finish(&mut initdb).map(drop)
    }

    fn configure(&self, tls: Tls<'_>) -> Result<()> {
        let folder = self.folder.path();
        let mut settings = format!(
            "listen_addresses = '127.0.0.1'\nunix_socket_directories = '{}'\nfsync = off\nfull_page_writes = off\n\
             max_connections = 100\nautovacuum = off\n",
            folder.display()
        );
        if let Tls::On { certificate, key } = tls {
            self.write("server.crt", certificate)?;
            self.write("server.key", key)?;
            settings += &format!(
                "ssl = on\nssl_cert_file = '{0}/server.crt'\nssl_key_file = '{0}/server.key'\n",
                folder.display()
            );
        }
        let file = self.data().join("postgresql.conf");
        fs::File::options()
            .append(true)
            .open(file)?
            .write_all(settings.as_bytes())
            .context("cannot configure the server")
    }

    /// Writes a file that only the server may read: it refuses a key that is readable by others.
    fn write(&self, name: &str, text: &str) -> Result<()> {
        let path = self.folder.path().join(name);
        fs::write(&path, text)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600))?;
        if let Some((user, group)) = self.user {
            chown(&path, Some(user), Some(group))?;
        }
        Ok(())
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// One of the server's programs, run as the server's user and in its folder, because it may not have access to ours.
    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(self.programs.join(program));
        command.current_dir(self.folder.path()).env("LC_ALL", "C").process_group(0);
        if let Some((user, group)) = self.user {
            command.uid(user).gid(group);
        }
        command
    }

    /// Sends a signal to the server and its sessions, which are child processes.
    fn signal_all(&self, name: &str) -> Result<()> {
        let process = self.process.as_ref().context("PostgreSQL is not running")?;
        let children = fs::read_to_string(format!("/proc/{0}/task/{0}/children", process.id()))?;
        let ids = std::iter::once(process.id().to_string()).chain(children.split_whitespace().map(str::to_owned));
        finish(Command::new("kill").arg(format!("-{name}")).args(ids)).map(drop)
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        // A frozen server would not handle the signal.
        let _ = self.thaw();
        let _ = self.signal_all("QUIT");
        if let Some(process) = &mut self.process {
            let _ = wait_until("PostgreSQL to end", Duration::from_secs(5), || Ok(process.try_wait()?.is_some()));
        }
        self.kill();
        // A leftover pid file names a process that is gone; its id may be reused by now.
        let _ = fs::remove_file(self.data().join("postmaster.pid"));
        drop(self.guard.stdin.take());
        let _ = self.guard.wait();
    }
}

/// The folder of PostgreSQL's programs, of the newest version installed.
fn programs() -> Result<PathBuf> {
    let complete = |folder: &PathBuf| ["initdb", "postgres", "psql"].iter().all(|name| folder.join(name).is_file());
    let versions =
        fs::read_dir(VERSIONS).into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path().join("bin")));
    let version = |folder: &PathBuf| {
        let name = folder.parent().and_then(Path::file_name).and_then(|name| name.to_str());
        name.and_then(|name| name.parse::<u32>().ok())
    };
    let newest = versions.filter(complete).max_by_key(version);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = newest.or_else(|| std::env::split_paths(&path).find(complete));
    found.with_context(|| {
        format!("PostgreSQL is missing: no `initdb` in {VERSIONS}/*/bin, nor on PATH; `cargo xtask test` installs it")
    })
}

/// The user to run the server as, if we are root. Gives that user the folder.
fn user_for(folder: &Path) -> Result<Option<(u32, u32)>> {
    // We just made the folder, so its owner is our user.
    if fs::metadata(folder)?.uid() != 0 {
        return Ok(None);
    }
    let passwd = fs::read_to_string("/etc/passwd").context("cannot find a user for PostgreSQL")?;
    let Some((user, group)) = USERS.iter().find_map(|name| ids_of(name, &passwd)) else {
        bail!("PostgreSQL does not run as root, and none of the users {} exists", USERS.join(", "));
    };
    chown(folder, Some(user), Some(group))?;
    Ok(Some((user, group)))
}

fn ids_of(name: &str, passwd: &str) -> Option<(u32, u32)> {
    let fields = passwd.lines().map(|line| line.split(':').collect::<Vec<_>>());
    fields
        .filter(|fields| fields.first() == Some(&name))
        .find_map(|fields| Some((fields.get(2)?.parse().ok()?, fields.get(3)?.parse().ok()?)))
}

/// Starts the guard in its own process group: Ctrl-C on the tests must not end it before it cleans up.
fn guard(folder: &Path) -> Result<Child> {
    let mut shell = Command::new("sh");
    shell.args(["-c", GUARD, "guard"]).arg(folder).process_group(0);
    shell.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    shell.spawn().context("cannot start the guard of PostgreSQL")
}

/// Runs a program to its end, with a timeout. Its failure is an error. Its output must fit into a pipe (64 KB).
fn finish(command: &mut Command) -> Result<String> {
    let program = command.get_program().display().to_string();
    let command = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().with_context(|| format!("cannot start {program}"))?;
    let ended = wait_until(&format!("{program} to end"), TIMEOUT, || Ok(child.try_wait()?.is_some()));
    if ended.is_err() {
        let _ = child.kill();
    }
    let output = child.wait_with_output()?;
    ended?;
    ensure!(output.status.success(), "{program} failed:\n{}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_parsed_from_the_named_line() {
        let passwd =
            "root:x:0:0:root:/:/bin/sh\npostgres2:x:7:8::/:\npostgres:x:101:104:,,,:/var/lib/postgresql:/bin/bash\n";
        assert_eq!(ids_of("postgres", passwd), Some((101, 104)));
        assert_eq!(ids_of("nobody", passwd), None);
    }

    #[test]
    fn killed_postgres_restarts_and_cleans_up() -> Result<()> {
        let mut server = Postgres::start()?;
        let database = server.database()?;
        server.sql(&database, "CREATE TABLE kept (x int); INSERT INTO kept VALUES (7)")?;
        server.kill();
        assert!(server.sql(&database, "SELECT 1").is_err());
        server.start_again()?;
        assert_eq!(server.sql(&database, "SELECT x FROM kept")?, "7");
        let folder = server.folder.path().to_owned();
        drop(server);
        assert!(!folder.exists());
        Ok(())
    }
}
