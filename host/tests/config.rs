//! Configuration: precedence of sources, error messages, and the generated example file.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that finds nothing should fail loudly")]

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use clap::{CommandFactory, Parser};
use rollcall_api::{Access, Keys, Limits, Scope, verify};
use rollcall_core::{Rules, Span};
use rollcall_host::cli::{Cli, Command};
use rollcall_host::config::{Config, ConfigError, FUNCTIONS, Loaded, SETTINGS, StoreUrl, example};

const SECRET: &str = "0123456789abcdef0123456789abcdef";

/// A directory of one test, removed after it.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("rollcall-config-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn file(&self, name: &str, text: &str) -> String {
        let path = self.0.join(name);
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Loads as `rollcall serve` would, from a file, variables and flags.
fn load(file: Option<&str>, variables: &[(&str, &str)], flags: &[&str]) -> Result<Loaded, ConfigError> {
    let scratch = Scratch::new();
    let mut arguments = vec!["rollcall".to_owned(), "serve".to_owned()];
    if let Some(text) = file {
        arguments.extend(["--config".to_owned(), scratch.file("rollcall.toml", text)]);
    }
    arguments.extend(flags.iter().map(|flag| (*flag).to_owned()));
    let Some(Command::Serve { settings }) = Cli::try_parse_from(arguments).unwrap().command else { unreachable!() };
    let variables: Vec<(OsString, OsString)> =
        variables.iter().map(|(name, value)| (name.into(), value.into())).collect();
    Loaded::read(&settings.0, &variables)
}

fn config(file: &str) -> Config {
    load(Some(file), &[], &[]).unwrap().config
}

/// The message of a refusal, without the scratch directory in it.
fn refusal(file: Option<&str>, variables: &[(&str, &str)], flags: &[&str]) -> String {
    let message = load(file, variables, flags).unwrap_err().to_string();
    match message.find("rollcall-config-").and_then(|at| Some((at, message.get(at..)?.find('/')? + at))) {
        Some((at, slash)) => {
            let before = message.get(..at).unwrap().rfind(std::env::temp_dir().to_str().unwrap()).unwrap();
            format!("{}{}", message.get(..before).unwrap(), message.get(slash + 1..).unwrap())
        }
        None => message,
    }
}

fn interval(file: Option<&str>, variables: &[(&str, &str)], flags: &[&str]) -> Span {
    load(file, variables, flags).unwrap().config.interval
}

#[test]
fn defaults_apply_without_settings() {
    let config = load(None, &[], &[]).unwrap().config;
    assert_eq!(config, Config::default());
    assert_eq!(config.listen.to_string(), "127.0.0.1:8080");
    assert_eq!(config.store, StoreUrl::Memory);
    assert_eq!(config.data, Some("./rollcall-data".into()));
    assert_eq!((config.shards, config.workers, config.max_connections), (256, 0, 20_000));
    assert_eq!(config.drain, Duration::from_secs(10));
    assert_eq!(config.rules(), Rules::STANDARD);
    assert_eq!(config.limits(), Limits::default());
    assert_eq!(config.log.as_str(), "info");
}

#[test]
fn flag_overrides_variable_overrides_file() {
    let file = Some("interval = \"10s\"");
    let variable = [("ROLLCALL_INTERVAL", "11s")];
    let flag = ["--interval", "12s"];
    assert_eq!(interval(None, &[], &[]), Span::seconds(30));
    assert_eq!(interval(file, &[], &[]), Span::seconds(10));
    assert_eq!(interval(file, &variable, &[]), Span::seconds(11));
    assert_eq!(interval(file, &variable, &flag), Span::seconds(12));
    assert_eq!(interval(file, &[], &flag), Span::seconds(12));
}

#[test]
fn flag_overrides_config_variable() {
    let scratch = Scratch::new();
    let path = scratch.file("by-variable.toml", "shards = 2");
    let variables = [("ROLLCALL_CONFIG", path.as_str())];
    assert_eq!(load(None, &variables, &[]).unwrap().config.shards, 2);
    assert_eq!(load(Some("shards = 3"), &variables, &[]).unwrap().config.shards, 3);
}

#[test]
fn missing_file_error_names_its_source() {
    let message = refusal(None, &[("ROLLCALL_CONFIG", "/nowhere/rollcall.toml")], &[]);
    assert!(
        message.starts_with("cannot read the config file /nowhere/rollcall.toml (environment ROLLCALL_CONFIG): "),
        "{message}"
    );
}

#[test]
fn preset_sets_times_that_are_not_given() {
    assert_eq!(config("preset = \"brisk\"").rules(), Rules::BRISK);
    assert_eq!(config("preset = \"lenient\"").rules(), Rules::LENIENT);
    let mixed = load(Some("interval = \"20s\""), &[], &["--preset", "brisk"]).unwrap().config;
    assert_eq!(mixed.rules(), Rules { interval: Span::seconds(20), ..Rules::BRISK });
}

#[test]
fn unknown_key_suggests_nearest() {
    assert_eq!(
        refusal(Some("# times\n\nintervall = \"30s\"\n"), &[], &[]),
        "rollcall.toml:3: there is no setting `intervall`; did you mean `interval`?"
    );
    assert_eq!(
        refusal(Some("idle-after = \"30s\""), &[], &[]),
        "rollcall.toml:1: there is no setting `idle-after`; did you mean `idle_after`?"
    );
    assert_eq!(
        refusal(Some("[unheard_of_things]\nx = 1"), &[], &[]),
        "rollcall.toml:1: there is no setting `unheard_of_things`; `rollcall config --example` lists all settings"
    );
}

#[test]
fn unknown_variable_suggests_nearest() {
    assert_eq!(
        refusal(None, &[("ROLLCALL_LISTN", "x")], &[]),
        "environment: there is no setting `ROLLCALL_LISTN`; did you mean `ROLLCALL_LISTEN`?"
    );
    let message = refusal(None, &[("ROLLCALL_PORT", "8080")], &[]);
    assert!(message.contains("`ROLLCALL_PORT`"), "{message}");
}

#[test]
fn unrelated_variables_are_ignored() {
    let others = [
        ("PATH", "/bin"),
        ("ROLLCALL_TOKEN", "eyJ"),
        ("ROLLCALL_COMPONENTS", "target/components"),
        ("ROLLCALL_CONSOLE", "target/console"),
        ("ROLLCALL_BIN", "target/debug/rollcall"),
        ("ROLLCALL_SIM_SEED", "7"),
        // What Kubernetes puts into a pod beside services called rollcall and rollcall-redis.
        ("ROLLCALL_SERVICE_HOST", "10.0.0.1"),
        ("ROLLCALL_SERVICE_PORT", "80"),
        ("ROLLCALL_SERVICE_PORT_HTTP", "80"),
        ("ROLLCALL_PORT", "tcp://10.0.0.1:80"),
        ("ROLLCALL_PORT_80_TCP", "tcp://10.0.0.1:80"),
        ("ROLLCALL_PORT_80_TCP_ADDR", "10.0.0.1"),
        ("ROLLCALL_REDIS_PORT_6379_TCP_PROTO", "tcp"),
    ];
    assert_eq!(load(None, &others, &[]).unwrap().config, Config::default());
}

#[test]
fn unknown_flag_suggests_nearest() {
    let error = Cli::try_parse_from(["rollcall", "serve", "--intervall", "3s"]).unwrap_err().to_string();
    assert!(error.contains("--intervall") && error.contains("'--interval'"), "{error}");
}

#[test]
fn bad_value_error_names_setting_and_source() {
    let rule = "is not a whole number with a unit, such as `1500ms`, `30s`, `5m` or `1h`";
    let file = Some("shards = 4\ninterval = 30\n");
    assert_eq!(refusal(file, &[], &[]), format!("`interval`: `30` (rollcall.toml:2) {rule}"));
    let variable = [("ROLLCALL_INTERVAL", "1.5s")];
    assert_eq!(refusal(None, &variable, &[]), format!("`interval`: `1.5s` (environment ROLLCALL_INTERVAL) {rule}"));
    let flag = ["--idle-after", "soon"];
    assert_eq!(refusal(None, &[], &flag), format!("`idle_after`: `soon` (flag --idle-after) {rule}"));
}

#[test]
fn bad_values_of_every_kind_are_refused() {
    let refused = [
        ("listen = \"localhost\"", "`listen`: `localhost` (rollcall.toml:1) is not an IP address with a port"),
        ("listen = 8080", "`listen`: `8080` (rollcall.toml:1) is not a string"),
        ("store = \"disk\"", "`store`: `disk` (rollcall.toml:1) is not a store; use `memory`, `redis://…`"),
        ("archive = \"tape\"", "`archive`: `tape` (rollcall.toml:1) is not an archive; use `with-store`"),
        (
            "expiry_detection = \"none\"",
            "`expiry_detection`: `none` (rollcall.toml:1) is none of `both`, `notifications`, `sweep`",
        ),
        ("data = \"\"", "`data`: `` (rollcall.toml:1) is empty"),
        ("token_key = \"\"", "`token_key`: `` (rollcall.toml:1) is empty"),
        ("shards = 0", "`shards`: `0` (rollcall.toml:1) is not between 1 and 16384"),
        ("shards = -1", "`shards`: `-1` (rollcall.toml:1) is not a whole number"),
        ("shards = \"256\"", "`shards`: `256` (rollcall.toml:1) is not a whole number"),
        ("workers = 65", "`workers`: `65` (rollcall.toml:1) is not between 0 and 64"),
        ("preset = \"slow\"", "`preset`: `slow` (rollcall.toml:1) is none of `standard`, `lenient`, `brisk`"),
        ("interval = \"99ms\"", "`interval`: `99ms` (rollcall.toml:1) is not between 100 ms and 24 h"),
        ("grace = \"25h\"", "`grace`: `25h` (rollcall.toml:1) is not between 0 ms and 24 h"),
        ("drain = \"2h\"", "`drain`: `2h` (rollcall.toml:1) is not between 0s and 1h"),
        ("watch_limit = 1025", "`watch_limit`: `1025` (rollcall.toml:1) is not between 1 and 1024"),
        ("query_ids = 2000", "`query_ids`: `2000` (rollcall.toml:1) is not between 1 and 1024"),
        ("log = \"rollcall=loud\"", "`log`: `rollcall=loud` (rollcall.toml:1) is not a log filter"),
        ("log_format = \"xml\"", "`log_format`: `xml` (rollcall.toml:1) is none of `text`, `json`"),
        ("component = \"a.wasm\"", "`component`: `a.wasm` (rollcall.toml:1) is not a table"),
        ("interval", "rollcall.toml:1: is not TOML: "),
    ];
    for (file, message) in refused {
        let said = refusal(Some(file), &[], &[]);
        assert!(said.starts_with(message), "{file}: {said}");
    }
}

#[test]
fn password_of_a_store_is_never_shown() {
    let loaded = load(None, &[("ROLLCALL_STORE", "redis://me:secret@host:6379")], &[]).unwrap();
    let StoreUrl::Redis(url) = &loaded.config.store else { panic!("{:?}", loaded.config.store) };
    assert_eq!(url.reveal(), "redis://me:secret@host:6379");
    assert!(loaded.to_toml().contains("store = \"redis://…@host:6379\""), "{}", loaded.to_toml());
    for bad in ["redis://me:secret@host:port", "redis+cluster://me:secret@host/1", "http://me:secret@host"] {
        let message = refusal(None, &[], &["--store", bad]);
        assert!(message.contains("is not a store: ") && !message.contains("secret"), "{message}");
    }
    let message = refusal(Some("store = \"redis://me:secret@host\" x"), &[], &[]);
    assert!(!message.contains("secret"), "{message}");
}

#[test]
fn durations_are_whole_numbers_with_a_unit() {
    let idle = |text: &str| load(None, &[], &["--idle-after", text]).map(|loaded| loaded.config.idle_after.0).ok();
    for (text, ms) in [("1500ms", 1500), ("30s", 30_000), ("5m", 300_000), ("1h", 3_600_000), ("0030s", 30_000)] {
        assert_eq!(idle(text), Some(ms), "{text}");
    }
    for text in ["", "30", "s", "30 s", "+30s", "1.5s", "30S", "1h30m", "30d", "99999999999999999999s"] {
        assert_eq!(idle(text), None, "{text}");
    }
    assert_eq!(idle("18446744073709551615h"), None);
}

#[test]
fn numbers_may_have_underscores() {
    assert_eq!(config("max_connections = 10_000").max_connections, 10_000);
    let loaded = load(None, &[("ROLLCALL_MAX_CONNECTIONS", "10_000")], &[]).unwrap();
    assert_eq!(loaded.config.max_connections, 10_000);
}

#[test]
fn none_clears_a_setting() {
    let given = "data = \"x\"\ntoken_issuer = \"me\"\ncomponent = { query = \"a\" }";
    let none = ["--data", "none", "--token-issuer", "none", "--component", "none"];
    let config = load(Some(given), &[], &none).unwrap().config;
    assert_eq!((config.data, config.token_issuer, config.component.0.len()), (None, None, 0));
}

#[test]
fn components_are_given_by_function_in_every_form() {
    let file = Some("[component]\nheartbeat = \"./a.wasm\"\nquery = \"./b.wasm\"");
    let variables = [("ROLLCALL_COMPONENT", "heartbeat=./a.wasm,query=./b.wasm")];
    let flags = ["--component", "heartbeat=./a.wasm", "--component", "query=./b.wasm"];
    let given = [load(file, &[], &[]), load(None, &variables, &[]), load(None, &[], &flags)];
    for component in given.map(|loaded| loaded.unwrap().config.component) {
        assert_eq!(component.get("heartbeat").map(PathBuf::as_path), Some(Path::new("./a.wasm")));
        assert_eq!(component.get("query").map(PathBuf::as_path), Some(Path::new("./b.wasm")));
        assert_eq!(component.get("offline-sweep"), None);
    }
    let message = refusal(None, &[], &["--component", "heartbeet=./a.wasm"]);
    assert!(message.contains("no `heartbeet`") && message.contains("did you mean `heartbeat`?"), "{message}");
    assert!(refusal(None, &[], &["--component", "query"]).contains("is not of the form NAME=FILE"));
    let twice = ["--component", "query=a", "--component", "query=b"];
    assert!(refusal(None, &[], &twice).ends_with("names `query` twice"));
    assert!(FUNCTIONS.is_sorted());
}

#[test]
fn example_file_parses_to_defaults() {
    assert_eq!(config(&example()), Config::default());
    let uncommented: String = example()
        .lines()
        .filter_map(|line| line.strip_prefix("# "))
        .filter(|line| SETTINGS.iter().any(|setting| line.starts_with(&format!("{} = ", setting.name))))
        .map(|line| format!("{line}\n"))
        .collect();
    assert_eq!(uncommented.lines().count(), SETTINGS.len());
    assert_eq!(config(&uncommented), Config::default());
}

#[test]
fn repository_example_is_current() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../infra/rollcall.toml");
    let kept = fs::read_to_string(path).unwrap();
    assert_eq!(kept, example(), "write it again: `rollcall config --example > infra/rollcall.toml`");
}

#[test]
fn effective_configuration_names_sources() {
    let file = Some("grace = \"20s\"\ncomponent = { query = \"./my query.wasm\" }");
    let loaded = load(file, &[("ROLLCALL_SHARDS", "8")], &["--preset", "brisk"]).unwrap();
    let text = loaded.to_toml();
    let has = |line: &str| assert!(text.lines().any(|found| found == line), "{line}\n{text}");
    has("listen = \"127.0.0.1:8080\"  # default");
    has("shards = 8  # environment ROLLCALL_SHARDS");
    has("preset = \"brisk\"  # flag --preset");
    has("interval = \"15s\"  # preset");
    has("tolerance = \"15s\"  # default");
    assert!(text.contains("grace = \"20s\"  # ") && text.contains("rollcall.toml:1\n"), "{text}");
    assert_eq!(config(&text), loaded.config);
}

#[test]
fn without_a_key_only_loopback_is_served() {
    for listen in ["127.0.0.1:80", "127.9.9.9:80", "[::1]:80", "[::ffff:127.0.0.1]:80"] {
        let config = load(None, &[], &["--listen", listen]).unwrap().config;
        assert!(matches!(config.access(), Ok(Access::Open)), "{listen}");
    }
    for listen in ["0.0.0.0:80", "[::]:80", "10.0.0.1:80", "[::ffff:10.0.0.1]:80"] {
        let message = load(None, &[], &["--listen", listen]).unwrap().config.access().unwrap_err().to_string();
        assert!(message.contains("is not loopback") && message.contains("--token-key"), "{message}");
    }
}

#[test]
fn key_allows_any_address() {
    let scratch = Scratch::new();
    let key = scratch.file("token.key", &format!("{SECRET}\n"));
    let flags = ["--listen", "0.0.0.0:80", "--token-key", &key, "--token-issuer", "me", "--token-audience", "us"];
    let Ok(Access::Keyed { expect, .. }) = load(None, &[], &flags).unwrap().config.access() else {
        panic!("not keyed")
    };
    assert_eq!((expect.issuer.as_deref(), expect.audience.as_deref()), (Some("me"), Some("us")));
}

#[test]
fn unusable_key_names_its_file() {
    let scratch = Scratch::new();
    let access = |path: &str| load(None, &[], &["--token-key", path]).unwrap().config.access().unwrap_err().to_string();
    let short = scratch.file("short.key", "secret");
    let message = access(&short);
    assert!(message.starts_with(&format!("`token_key`: {short}: the secret has 6 bytes")), "{message}");
    assert!(access("/nowhere/token.key").starts_with("`token_key`: cannot read /nowhere/token.key: "));
}

#[test]
fn token_claims_require_a_key() {
    for (flag, name) in [("--token-issuer", "`token_issuer`"), ("--token-audience", "`token_audience`")] {
        let message = load(None, &[], &[flag, "me"]).unwrap().config.access().unwrap_err().to_string();
        assert!(message.starts_with(name) && message.contains("`token_key`"), "{message}");
    }
}

#[test]
fn minted_token_is_accepted() {
    let scratch = Scratch::new();
    let key = scratch.file("token.key", SECRET);
    let arguments = [
        "rollcall",
        "token",
        "--user",
        "alice",
        "--scope",
        "service",
        "--ttl",
        "90s",
        "--key",
        &key,
        "--token-issuer",
        "me",
    ];
    let Some(Command::Token(args)) = Cli::try_parse_from(arguments).unwrap().command else { unreachable!() };
    let config = Loaded::read(&args.settings.0, &[]).unwrap().config;
    let token = args.mint(&config, 1000).unwrap();
    let keys = Keys::from_text(SECRET).unwrap();
    let caller = verify(&keys, &config.expect(), &token, 1089).unwrap();
    assert_eq!(caller.user.as_str(), "alice");
    assert!(caller.scopes.has(Scope::Service) && !caller.scopes.has(Scope::Admin));
    assert!(verify(&keys, &config.expect(), &token, 1100).is_err());
}

#[test]
fn given_key_overrides_token_key() {
    let scratch = Scratch::new();
    let key = scratch.file("token.key", SECRET);
    let mint = |flags: &[&str]| {
        let arguments = [&["rollcall", "token", "--user", "alice"], flags].concat();
        let Some(Command::Token(args)) = Cli::try_parse_from(arguments).unwrap().command else { unreachable!() };
        args.mint(&Loaded::read(&args.settings.0, &[]).unwrap().config, 1000).map_err(|fault| fault.to_string())
    };
    assert!(mint(&["--token-key", &key]).is_ok());
    assert!(mint(&[]).unwrap_err().contains("--key FILE"));
    assert!(mint(&["--key", "/nowhere/x"]).unwrap_err().starts_with("cannot read the key /nowhere/x: "));
    let public = scratch.file("public.pem", "-----BEGIN PUBLIC KEY-----\n-----END PUBLIC KEY-----");
    assert!(mint(&["--key", &public]).unwrap_err().contains("signing needs a secret or a private key"));
}

#[test]
fn token_arguments_are_checked() {
    for arguments in [["--user", ""], ["--scope", "root"], ["--ttl", "0s"], ["--ttl", "1"]] {
        let all = [["rollcall", "token"].as_slice(), &["--user", "alice", "--key", "k"], &arguments].concat();
        assert!(Cli::try_parse_from(all).is_err(), "{arguments:?}");
    }
}

#[test]
fn help_lists_every_setting() {
    Cli::command().debug_assert();
    let mut command = Cli::command();
    let help = command.find_subcommand_mut("serve").unwrap().render_long_help().to_string();
    for setting in SETTINGS {
        assert!(help.contains(&format!("--{}", setting.flag())), "{}", setting.name);
        assert!(help.contains(&setting.variable()), "{}", setting.name);
        assert!(help.contains(&format!("{}:", setting.group.name())), "{:?}", setting.group);
    }
}
