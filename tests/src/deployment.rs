//! The places where the functions are deployed: our host, Spin, `wasmtime serve` and another host of WASI, each on a Redis.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use rollcall_servers::{Process, free_port, wait_until};
use tempfile::TempDir;

use crate::wasi::{Paths, Wasi};
use crate::{Client, Host, Stream, TokenIssuer, root};

/// The components are compiled when a program starts that has none of its own compiled ahead.
const START: Duration = Duration::from_secs(120);

/// A child of a process that was told to end is given so long.
const END: Duration = Duration::from_secs(10);

/// Runs a program again whenever it ends, until it is told to end itself.
const SUPERVISOR: &str = r#"
trap 'kill "$child"; wait "$child"; exit' TERM
while :; do "$@" & child=$!; wait "$child"; sleep 0.5; done
"#;

/// Which paths each function answers for.
const PATHS: &Paths = &[
    ("heartbeat", &["/v1/heartbeat", "/v1/leave", "/v1/status"]),
    ("query", &["/v1/presence", "/presence/batch", "/healthz", "/readyz", "/openapi.json"]),
    ("subscribe", &["/v1/subscribe"]),
    ("typing", &["/v1/typing"]),
    ("restriction-check", &["/v1/privacy", "/v1/contacts", "/v1/blocks", "/v1/restrictions", "/v1/policy"]),
    ("offline-sweep", &["/v1/sweep"]),
];

/// How the service is set up, wherever it is.
#[derive(Default)]
pub struct Settings {
    /// Settings by the names that the manifests have for them: `interval_ms`.
    pub settings: Vec<(&'static str, String)>,
    /// Whoever signs tokens; none: everybody is believed.
    pub issuer: Option<TokenIssuer>,
}

impl Settings {
    /// Beats every second. A beat lasts for three, because what is asked of a busy machine in between takes its time.
    pub fn brisk() -> Self {
        let settings = [("interval_ms", 1000), ("tolerance_ms", 2000), ("evict_after_ms", 200)];
        Self { settings: settings.map(|(name, value)| (name, value.to_string())).to_vec(), issuer: None }
    }

    /// The same, where only tokens are believed.
    pub fn with_tokens(self) -> Self {
        Self { issuer: Some(TokenIssuer::default()), ..self }
    }

    /// All settings that a component reads, with those of access.
    fn all(&self) -> Vec<(&'static str, String)> {
        let access = match &self.issuer {
            Some(issuer) => ("token_key", issuer.secret()),
            None => ("open", "true".to_owned()),
        };
        self.settings.iter().cloned().chain([access]).collect()
    }

    /// The same as variables of an environment, for components that connect to this Redis.
    fn variables(&self, redis: &str) -> Vec<(String, String)> {
        let all = self.all().into_iter().chain([("redis_url", redis.to_owned())]);
        all.map(|(name, value)| (format!("ROLLCALL_{}", name.to_uppercase()), value)).collect()
    }
}

/// A running service.
pub struct Deployment {
    /// What it is called when something is wrong with it.
    pub name: &'static str,
    /// Whether it notices by itself that somebody is gone; else somebody has to sweep.
    pub notices: bool,
    setup: Settings,
    /// Where each path is answered, by its beginning.
    routes: Vec<(&'static str, String)>,
    /// What runs for as long as this value is there.
    _host: Option<Host>,
    _programs: Vec<Program>,
    wasi: Option<Wasi>,
}

/// A program that ends with this value, with the processes that it started.
struct Program {
    process: Process,
    port: u16,
    _folder: TempDir,
}

impl Deployment {
    /// Our host.
    pub fn host(redis: &str, setup: Settings) -> Self {
        let mut arguments = vec!["--store".to_owned(), redis.to_owned()];
        for (name, value) in &setup.settings {
            let flag = name.trim_end_matches("_ms").replace('_', "-");
            let unit = if name.ends_with("_ms") { "ms" } else { "" };
            arguments.extend([format!("--{flag}"), format!("{value}{unit}")]);
        }
        arguments.extend(setup.issuer.iter().flat_map(|issuer| ["--token-key".to_owned(), issuer.key()]));
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let host = Host::start(&arguments);
        let routes = vec![("/", host.base().to_owned())];
        Self { name: "our host", notices: true, setup, routes, _host: Some(host), _programs: Vec::new(), wasi: None }
    }

    /// `spin up`, with the manifest as it is shipped.
    pub fn spin(redis_port: u16, setup: Settings) -> Self {
        Self::spin_by(Command::new("spin"), &root().join("spin.toml"), redis_port, setup)
    }

    /// The same on Spin's own connection to Redis, by the changes that the manifest asks for.
    pub fn spin_that_connects(redis_port: u16, setup: Settings) -> Self {
        let shipped = std::fs::read_to_string(root().join("spin.toml")).expect("a manifest");
        let dist = root().join("dist");
        let manifest = shipped
            .replace("tcp://{{ redis_addresses }}", "redis://{{ redis_host }}")
            .replace("\"dist/spin/", &format!("\"{}/spin-redis/", dist.display()))
            .replace("spin-redis/redis-expiry", "spin/redis-expiry");
        let folder = tempfile::Builder::new().prefix("rollcall-spin-").tempdir().expect("a folder");
        let path = folder.path().join("spin.toml");
        std::fs::write(&path, manifest).expect("a manifest");
        let place = Self::spin_by(Command::new("spin"), &path, redis_port, setup);
        Self { name: "Spin, on its own connection", ..place }
    }

    /// The same, started again whenever it ends.
    pub fn supervised_spin(redis_port: u16, setup: Settings) -> Self {
        let mut command = Command::new("sh");
        command.args(["-c", SUPERVISOR, "supervisor", "spin"]);
        Self::spin_by(command, &root().join("spin.toml"), redis_port, setup)
    }

    fn spin_by(mut command: Command, manifest: &Path, redis_port: u16, setup: Settings) -> Self {
        command.arg("up").arg("--from").arg(manifest).arg("--quiet");
        let variables = setup.all().into_iter().chain([("redis_port", redis_port.to_string())]);
        command.envs(variables.map(|(name, value)| (format!("SPIN_VARIABLE_{}", name.to_uppercase()), value)));
        let program = Program::start(command, on_spin);
        let routes = vec![("/", program.base())];
        Self { name: "Spin", notices: true, setup, routes, _host: None, _programs: vec![program], wasi: None }
    }

    /// `wasmtime serve`, one for each function.
    pub fn wasmtime(redis: &str, setup: Settings) -> Self {
        let (mut routes, mut programs) = (Vec::new(), Vec::new());
        for (function, paths) in PATHS {
            let mut command = Command::new(wasmtime());
            command.args(["serve", "-Wcomponent-model-async", "-Sp3,cli,inherit-network,allow-ip-name-lookup"]);
            for (name, value) in setup.variables(redis) {
                command.arg("--env").arg(format!("{name}={value}"));
            }
            let file = root().join("dist/wasi").join(function).with_extension("wasm");
            let program = Program::start(command, |command, port, _| {
                command.args(["--addr", &format!("127.0.0.1:{port}")]).arg(file);
            });
            routes.extend(paths.iter().map(|path| (*path, program.base())));
            programs.push(program);
        }
        Self { name: "wasmtime serve", notices: false, setup, routes, _host: None, _programs: programs, wasi: None }
    }

    /// A host of WASI in this process, which tells what went wrong inside.
    pub fn wasi(redis: &str, setup: Settings) -> Self {
        let wasi = Wasi::start(PATHS, setup.variables(redis));
        let routes = vec![("/", wasi.base())];
        Self { name: "WASI", notices: false, setup, routes, _host: None, _programs: Vec::new(), wasi: Some(wasi) }
    }

    /// A component that asks Redis for one key, on Spin.
    pub fn yardstick(redis_port: u16, component: &Path) -> Self {
        let folder = tempfile::Builder::new().prefix("rollcall-yardstick-").tempdir().expect("a folder");
        let manifest = folder.path().join("spin.toml");
        let url = format!("redis://127.0.0.1:{redis_port}");
        let text = format!(
            "spin_manifest_version = 2\n[application]\nname = \"yardstick\"\n[[trigger.http]]\nroute = \"/...\"\n\
             component = \"yardstick\"\n[component.yardstick]\nsource = {component:?}\n\
             allowed_outbound_hosts = [{url:?}]\n[component.yardstick.variables]\nredis_url = {url:?}\n"
        );
        std::fs::write(&manifest, text).expect("a manifest");
        let mut command = Command::new("spin");
        command.arg("up").arg("--from").arg(&manifest).arg("--quiet");
        let program = Program::start(command, on_spin);
        let routes = vec![("/", program.base())];
        let setup = Settings::default();
        Self {
            name: "one GET on Spin",
            notices: false,
            setup,
            routes,
            _host: None,
            _programs: vec![program],
            wasi: None,
        }
    }

    /// Instances that ended in an error and requests that were not answered, where a place can tell.
    pub fn failures(&self) -> Vec<String> {
        self.wasi.as_ref().map(Wasi::failures).unwrap_or_default()
    }

    /// Whether there is a Spin on this machine.
    pub fn has_spin() -> bool {
        runs("spin")
    }

    /// Whether there is a `wasmtime` on this machine.
    pub fn has_wasmtime() -> bool {
        runs(wasmtime())
    }

    /// Who answers for a path, as host and port.
    pub fn address(&self, path: &str) -> &str {
        let base = crate::client::base_of(&self.routes, path).expect("somebody answers for it");
        base.trim_start_matches("http://")
    }

    /// A client asking as this person, with a token if one is needed.
    pub fn client(&self, user: &str) -> Client {
        self.client_with(user, &[])
    }

    /// A client that may do all that these scopes allow.
    pub fn client_with(&self, user: &str, scopes: &[&str]) -> Client {
        match &self.setup.issuer {
            Some(issuer) => Client::with_token("", &issuer.token(user, scopes)).routed(&self.routes),
            None => self.named(user),
        }
    }

    /// A client that names itself by word, whether that is believed or not.
    pub fn named(&self, user: &str) -> Client {
        Client::named("", user).routed(&self.routes)
    }

    /// Subscribes as this person: `users=bob,carol`.
    pub fn subscribe(&self, user: &str, query: &str) -> Stream {
        self.subscribe_from(user, query, None)
    }

    /// The same, from where an earlier stream was left.
    pub fn subscribe_from(&self, user: &str, query: &str, last_id: Option<&str>) -> Stream {
        let path = format!("/v1/subscribe?{query}");
        let token = self.setup.issuer.as_ref().map(|issuer| format!("Bearer {}", issuer.token(user, &[])));
        let mut headers = match &token {
            Some(token) => vec![("Authorization", token.as_str())],
            None => vec![("Rollcall-User", user)],
        };
        headers.extend(last_id.map(|id| ("Last-Event-ID", id)));
        let stream = Stream::get(self.address(&path), &path, &headers);
        stream.unwrap_or_else(|answer| panic!("{}: {user} may not subscribe: {answer:?}", self.name))
    }
}

impl Program {
    /// Starts it on a free port, and waits until it listens there.
    fn start(mut command: Command, on: impl FnOnce(&mut Command, u16, &Path)) -> Self {
        let folder = tempfile::Builder::new().prefix("rollcall-place-").tempdir().expect("a folder");
        let port = free_port().expect("a free port");
        on(&mut command, port, folder.path());
        // As services run: with it, wasmtime walks the stack whenever it puts a fiber away, and measures itself.
        command.env_remove("RUST_BACKTRACE");
        let process = Process::start(&mut command, &folder.path().join("program.log")).expect("the program starts");
        let mut program = Self { process, port, _folder: folder };
        let listens = wait_until("a program to listen", START, || {
            program.process.must_run()?;
            Ok(program.listens())
        });
        listens.unwrap_or_else(|error| panic!("{error:#}\n{}", program.process.log()));
        program
    }

    fn base(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    fn listens(&self) -> bool {
        std::net::TcpStream::connect(("127.0.0.1", self.port)).is_ok()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // Spin's triggers are processes of their own, which only Spin itself can end.
        if self.process.signal("TERM").is_ok() {
            let _ = wait_until("a program to end", END, || Ok(!self.listens()));
        }
    }
}

/// Where Spin listens, and where it keeps what it writes.
fn on_spin(command: &mut Command, port: u16, folder: &Path) {
    command.args(["--listen", &format!("127.0.0.1:{port}"), "--state-dir"]).arg(folder);
}

/// The program, as `cargo xtask test --wasmtime` has built it, or else one on the `PATH`.
fn wasmtime() -> PathBuf {
    let built = crate::binary().with_file_name("wasmtime");
    if built.exists() { built } else { PathBuf::from("wasmtime") }
}

/// Whether a program is there and says which it is.
fn runs(program: impl AsRef<OsStr>) -> bool {
    let mut command = Command::new(program);
    command.arg("--help").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}
