//! Deployments of the functions: in our host, on Spin, under `wasmtime serve` and in an in-process WASI host, each on a Redis.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use rollcall_servers::{Process, free_port, wait_until};
use tempfile::TempDir;

use crate::wasi::{self, Paths};
use crate::{Client, Host, Stream, TokenIssuer, root};

/// Other hosts compile the components when they start.
const START: Duration = Duration::from_secs(120);

/// Deadline for a child process to end after SIGTERM.
const END: Duration = Duration::from_secs(10);

/// Restarts a program whenever it ends, until SIGTERM.
const SUPERVISOR: &str = r#"
trap 'kill "$child"; wait "$child"; exit' TERM
while :; do "$@" & child=$!; wait "$child"; sleep 0.5; done
"#;

/// The path prefixes that each function serves.
const PATHS: &Paths = &[
    ("heartbeat", &["/v1/heartbeat", "/v1/leave", "/v1/status"]),
    ("query", &["/v1/presence", "/presence/batch", "/healthz", "/readyz", "/openapi.json"]),
    ("subscribe", &["/v1/subscribe"]),
    ("typing", &["/v1/typing"]),
    ("restriction-check", &["/v1/privacy", "/v1/contacts", "/v1/blocks", "/v1/restrictions", "/v1/policy"]),
    ("offline-sweep", &["/v1/sweep"]),
];

/// An installed Spin.
#[derive(Debug, Clone)]
pub struct Spin {
    program: PathBuf,
    /// Its version without the commit: `3.6.3`.
    version: String,
}

impl Spin {
    /// Those of `cargo xtask test --spin=PATH`, or else the one on the `PATH`, if there is one.
    pub fn all() -> Vec<Self> {
        let given = std::env::var("SPINS_UNDER_TEST").unwrap_or_default();
        let programs = given.split(':').filter(|program| !program.is_empty());
        let programs: Vec<&str> = if given.is_empty() { vec!["spin"] } else { programs.collect() };
        programs.into_iter().filter_map(Self::at).collect()
    }

    fn at(program: &str) -> Option<Self> {
        let output = Command::new(program).arg("--version").stdin(Stdio::null()).output().ok()?;
        let text = String::from_utf8_lossy(&output.stdout);
        let version = text.strip_prefix("spin ")?.split_whitespace().next()?.to_owned();
        output.status.success().then(|| Self { program: program.into(), version })
    }

    /// Its version, without the commit.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// The newest WASI that it has.
    pub fn wasi(&self) -> Wasi {
        match self.version.as_str() {
            version if version.starts_with("3.") => Wasi::V0_2,
            version if version.starts_with("4.0.") => Wasi::V0_3Rc,
            _ => Wasi::V0_3,
        }
    }
}

/// A version of WASI that the components are built for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wasi {
    /// 0.2, in every host.
    V0_2,
    /// The release candidate of 0.3.0 that Spin 4.0 has.
    V0_3Rc,
    /// 0.3.0.
    V0_3,
}

impl Wasi {
    /// The manifest of the components for Spin, of the folder with this suffix.
    fn spin_manifest(self, suffix: &str) -> PathBuf {
        let folder = match self {
            Self::V0_2 => "spin-3",
            Self::V0_3Rc => "spin-4.0",
            Self::V0_3 => "spin",
        };
        root().join("dist").join(format!("{folder}{suffix}")).join("spin.toml")
    }

    fn name(self) -> &'static str {
        match self {
            Self::V0_2 => "WASI 0.2",
            Self::V0_3Rc => "WASI 0.3-rc",
            Self::V0_3 => "WASI 0.3",
        }
    }
}

/// Settings of the service, for any deployment.
#[derive(Default)]
pub struct Settings {
    /// Settings by their names in the manifests: `interval_ms`.
    pub settings: Vec<(&'static str, String)>,
    /// Issues tokens; if `None`, requests need no token.
    pub issuer: Option<TokenIssuer>,
}

impl Settings {
    /// Beats every second. A beat lasts for three, because requests in between take time on a busy machine.
    pub fn brisk() -> Self {
        let settings = [("interval_ms", 1000), ("tolerance_ms", 2000), ("evict_after_ms", 200)];
        Self { settings: settings.map(|(name, value)| (name, value.to_string())).to_vec(), issuer: None }
    }

    /// The same, with tokens required.
    pub fn with_tokens(self) -> Self {
        Self { issuer: Some(TokenIssuer::default()), ..self }
    }

    /// All settings that a component reads, including access.
    fn all(&self) -> Vec<(&'static str, String)> {
        let access = match &self.issuer {
            Some(issuer) => ("token_key", issuer.secret()),
            None => ("open", "true".to_owned()),
        };
        self.settings.iter().cloned().chain([access]).collect()
    }

    /// The same as environment variables, for components that connect to this Redis.
    fn variables(&self, redis: &str) -> Vec<(String, String)> {
        let all = self.all().into_iter().chain([("redis_url", redis.to_owned())]);
        all.map(|(name, value)| (format!("ROLLCALL_{}", name.to_uppercase()), value)).collect()
    }
}

/// A running service.
pub struct Deployment {
    /// Its name in assertion texts.
    pub name: String,
    /// Whether it settles due users by itself; otherwise a test has to sweep.
    pub settles: bool,
    setup: Settings,
    /// Base URLs by path prefix.
    routes: Vec<(&'static str, String)>,
    /// Keeps the host running.
    _host: Option<Host>,
    _programs: Vec<Program>,
    wasi: Option<wasi::Wasi>,
}

/// A program that ends when this is dropped, with its child processes.
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
        Self {
            name: "our host".to_owned(),
            settles: true,
            setup,
            routes,
            _host: Some(host),
            _programs: Vec::new(),
            wasi: None,
        }
    }

    /// `spin up`, with the manifest as it is shipped.
    pub fn spin(spin: &Spin, redis_port: u16, setup: Settings) -> Self {
        Self::spin_with(spin, spin.wasi(), redis_port, setup)
    }

    /// The same with the components for this WASI.
    pub fn spin_with(spin: &Spin, wasi: Wasi, redis_port: u16, setup: Settings) -> Self {
        let deployment = Self::spin_by(Command::new(&spin.program), &wasi.spin_manifest(""), redis_port, setup);
        Self { name: format!("Spin {}, {}", spin.version, wasi.name()), ..deployment }
    }

    /// The same on Spin's own connection to Redis.
    pub fn spin_that_connects(spin: &Spin, redis_port: u16, setup: Settings) -> Self {
        let manifest = spin.wasi().spin_manifest("-redis");
        let deployment = Self::spin_by(Command::new(&spin.program), &manifest, redis_port, setup);
        Self { name: format!("Spin {}, on its own connection", spin.version), ..deployment }
    }

    /// The same, restarted whenever it ends.
    pub fn supervised_spin(spin: &Spin, redis_port: u16, setup: Settings) -> Self {
        let mut command = Command::new("sh");
        command.args(["-c", SUPERVISOR, "supervisor"]).arg(&spin.program);
        Self::spin_by(command, &spin.wasi().spin_manifest(""), redis_port, setup)
    }

    fn spin_by(mut command: Command, manifest: &Path, redis_port: u16, setup: Settings) -> Self {
        command.arg("up").arg("--from").arg(manifest).arg("--quiet");
        let variables = setup.all().into_iter().chain([("redis_port", redis_port.to_string())]);
        command.envs(variables.map(|(name, value)| (format!("SPIN_VARIABLE_{}", name.to_uppercase()), value)));
        let program = Program::start(command, on_spin);
        let routes = vec![("/", program.base())];
        Self {
            name: "Spin".to_owned(),
            settles: true,
            setup,
            routes,
            _host: None,
            _programs: vec![program],
            wasi: None,
        }
    }

    /// `wasmtime serve`, one for each function.
    pub fn wasmtime(redis: &str, setup: Settings) -> Self {
        Self::wasmtime_with("WASI 0.3", "wasi", redis, setup)
    }

    /// The same with WASI 0.2: an instance for each request.
    pub fn wasmtime_0_2(redis: &str, setup: Settings) -> Self {
        Self::wasmtime_with("WASI 0.2", "wasi-0.2", redis, setup)
    }

    fn wasmtime_with(wasi: &str, folder: &str, redis: &str, setup: Settings) -> Self {
        let (mut routes, mut programs) = (Vec::new(), Vec::new());
        for (function, paths) in PATHS {
            let mut command = Command::new(wasmtime());
            command.args(["serve", "-Wcomponent-model-async", "-Sp3,cli,inherit-network,allow-ip-name-lookup"]);
            for (name, value) in setup.variables(redis) {
                command.arg("--env").arg(format!("{name}={value}"));
            }
            let file = root().join("dist").join(folder).join(function).with_extension("wasm");
            let program = Program::start(command, |command, port, _| {
                command.args(["--addr", &format!("127.0.0.1:{port}")]).arg(file);
            });
            routes.extend(paths.iter().map(|path| (*path, program.base())));
            programs.push(program);
        }
        let name = format!("wasmtime serve, {wasi}");
        Self { name, settles: false, setup, routes, _host: None, _programs: programs, wasi: None }
    }

    /// A WASI host in this process, which also reports failures inside.
    pub fn wasi(redis: &str, setup: Settings) -> Self {
        Self::in_process("WASI 0.3", "wasi", redis, setup)
    }

    /// The same with WASI 0.2: an instance for each request.
    pub fn wasi_0_2(redis: &str, setup: Settings) -> Self {
        Self::in_process("WASI 0.2", "wasi-0.2", redis, setup)
    }

    fn in_process(name: &str, folder: &'static str, redis: &str, setup: Settings) -> Self {
        let wasi = wasi::Wasi::start(folder, PATHS, setup.variables(redis));
        let routes = vec![("/", wasi.base())];
        let name = name.to_owned();
        Self { name, settles: false, setup, routes, _host: None, _programs: Vec::new(), wasi: Some(wasi) }
    }

    /// The baseline component on Spin, for this WASI: it asks Redis for one key.
    pub fn baseline(spin: &Spin, wasi: Wasi, redis_port: u16) -> Self {
        let component =
            crate::component(if wasi == Wasi::V0_2 { "baselines/wasi-0.2/baseline" } else { "baselines/baseline" });
        let folder = tempfile::Builder::new().prefix("rollcall-baseline-").tempdir().expect("a folder");
        let manifest = folder.path().join("spin.toml");
        let url = format!("redis://127.0.0.1:{redis_port}");
        let text = format!(
            "spin_manifest_version = 2\n[application]\nname = \"baseline\"\n[[trigger.http]]\nroute = \"/...\"\n\
             component = \"baseline\"\n[component.baseline]\nsource = {component:?}\n\
             allowed_outbound_hosts = [{url:?}]\n[component.baseline.variables]\nredis_url = {url:?}\n"
        );
        std::fs::write(&manifest, text).expect("a manifest");
        let mut command = Command::new(&spin.program);
        command.arg("up").arg("--from").arg(&manifest).arg("--quiet");
        let program = Program::start(command, on_spin);
        let routes = vec![("/", program.base())];
        let setup = Settings::default();
        let name = format!("one GET on Spin {}, {}", spin.version, wasi.name());
        Self { name, settles: false, setup, routes, _host: None, _programs: vec![program], wasi: None }
    }

    /// Failed instances and unanswered requests, where the deployment reports them.
    pub fn failures(&self) -> Vec<String> {
        self.wasi.as_ref().map(wasi::Wasi::failures).unwrap_or_default()
    }

    /// Whether `wasmtime` is built or installed.
    pub fn has_wasmtime() -> bool {
        runs(wasmtime())
    }

    /// The address that serves a path, as host and port.
    pub fn address(&self, path: &str) -> &str {
        let base = crate::client::base_of(&self.routes, path).expect("a route");
        base.trim_start_matches("http://")
    }

    /// A client asking as this user, with a token if one is needed.
    pub fn client(&self, user: &str) -> Client {
        self.client_with(user, &[])
    }

    /// The same with these scopes.
    pub fn client_with(&self, user: &str, scopes: &[&str]) -> Client {
        match &self.setup.issuer {
            Some(issuer) => Client::with_token("", &issuer.token(user, scopes)).routed(&self.routes),
            None => self.named(user),
        }
    }

    /// A client that names its user in a header, without a token.
    pub fn named(&self, user: &str) -> Client {
        Client::named("", user).routed(&self.routes)
    }

    /// Subscribes as this user, with a query such as `users=bob,carol`.
    pub fn subscribe(&self, user: &str, query: &str) -> Stream {
        self.subscribe_from(user, query, None)
    }

    /// The same, resuming from an event id.
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
        let folder = tempfile::Builder::new().prefix("rollcall-deployment-").tempdir().expect("a folder");
        let port = free_port().expect("a free port");
        on(&mut command, port, folder.path());
        // As in production: with it, wasmtime walks the stack whenever it suspends a fiber.
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
        // Spin's triggers are child processes, which only Spin itself can end.
        if self.process.signal("TERM").is_ok() {
            let _ = wait_until("a program to end", END, || Ok(!self.listens()));
        }
    }
}

/// The address and the state directory of Spin.
fn on_spin(command: &mut Command, port: u16, folder: &Path) {
    command.args(["--listen", &format!("127.0.0.1:{port}"), "--state-dir"]).arg(folder);
}

/// The program that `cargo xtask test --wasmtime` built, or else one on the `PATH`.
fn wasmtime() -> PathBuf {
    let built = crate::binary().with_file_name("wasmtime");
    if built.exists() { built } else { PathBuf::from("wasmtime") }
}

/// Whether a program runs.
fn runs(program: impl AsRef<OsStr>) -> bool {
    let mut command = Command::new(program);
    command.arg("--help").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}
