//! The files in `infra/` match this service: the metrics, paths, ports, flags, variables and files they name exist, and what
//! they set up works.
//!
//! `cargo xtask infra` checks their syntax with the tools of Prometheus, Kubernetes and systemd.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests stop at the first surprise"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use rollcall_servers::redis::Redis;
use rollcall_servers::{Process, free_port, wait_until};
use rollcall_tests::{Host, Stream, TokenIssuer, binary, component, eventually, root};
use serde_json::{Map, Value, json};
use yaml_rust2::{Yaml, YamlLoader};

/// Two short deadlines, and time for a busy machine.
const SOON: Duration = Duration::from_secs(15);

/// The metrics of redis_exporter that `infra/` uses; version 1.45 has them.
const EXPORTER: [&str; 6] = [
    "redis_up",
    "redis_memory_used_bytes",
    "redis_memory_max_bytes",
    "redis_evicted_keys_total",
    "redis_aof_enabled",
    "redis_commands_processed_total",
];

fn infra(path: &str) -> PathBuf {
    root().join("infra").join(path)
}

fn text(path: &str) -> String {
    std::fs::read_to_string(infra(path)).unwrap_or_else(|error| panic!("infra/{path}: {error}"))
}

/// The documents of a file.
fn documents(path: &str) -> Vec<Value> {
    let documents = YamlLoader::load_from_str(&text(path)).unwrap_or_else(|error| panic!("infra/{path}: {error}"));
    documents.iter().map(plain).collect()
}

/// The only document of a file.
fn document(path: &str) -> Value {
    let [document] = <[Value; 1]>::try_from(documents(path)).expect("one document");
    document
}

/// YAML as JSON, which is easier to traverse.
fn plain(yaml: &Yaml) -> Value {
    match yaml {
        Yaml::Real(number) => json!(number.parse::<f64>().expect("a number")),
        Yaml::Integer(number) => json!(number),
        Yaml::String(text) => json!(text),
        Yaml::Boolean(truth) => json!(truth),
        Yaml::Array(items) => items.iter().map(plain).collect(),
        Yaml::Hash(hash) => {
            let key = |yaml: &Yaml| yaml.as_str().expect("keys are text").to_owned();
            Value::Object(hash.iter().map(|(name, value)| (key(name), plain(value))).collect::<Map<_, _>>())
        }
        Yaml::Null => Value::Null,
        Yaml::Alias(_) | Yaml::BadValue => panic!("the parser resolves aliases"),
    }
}

/// All values of this key, at any depth.
fn all<'a>(value: &'a Value, key: &str) -> Vec<&'a Value> {
    let nested: Vec<&Value> = match value {
        Value::Array(items) => items.iter().collect(),
        Value::Object(object) => object.values().collect(),
        _ => Vec::new(),
    };
    value.get(key).into_iter().chain(nested.into_iter().flat_map(|value| all(value, key))).collect()
}

fn words(value: &Value, key: &str) -> Vec<String> {
    all(value, key).into_iter().filter_map(Value::as_str).map(str::to_owned).collect()
}

/// Every file in `infra/`, by its path there.
fn files() -> Vec<String> {
    fn walk(folder: &Path, found: &mut Vec<String>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                walk(&path, found);
            } else {
                found.push(path.strip_prefix(infra("")).unwrap().to_str().unwrap().to_owned());
            }
        }
    }
    let mut found = Vec::new();
    walk(&infra(""), &mut found);
    found.sort();
    found
}

fn names_in(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).filter(|word| !word.is_empty())
}

/// Every Prometheus expression of the alerts and the dashboard.
fn expressions() -> Vec<String> {
    let dashboard: Value = serde_json::from_str(&text("grafana/dashboard.json")).unwrap();
    let mut expressions = words(&document("prometheus/alerts.yml"), "expr");
    expressions.extend(words(&dashboard, "expr"));
    expressions.extend(words(&dashboard["templating"], "query"));
    assert!(expressions.len() > 50, "{expressions:?}");
    expressions
}

/// The metrics a host exports, with the labels of each.
fn exported(host: &Host) -> BTreeMap<String, BTreeSet<String>> {
    let text = host.client("ops").get("/metrics").text;
    let mut exported: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let (sample, _) = line.rsplit_once(' ').expect("a sample and its value");
        let (name, labels) = sample.split_once('{').unwrap_or((sample, ""));
        exported.entry(name.to_owned()).or_default().extend(labels_of(labels));
    }
    exported
}

/// The label names in `route="a",le="b"}`: the text before each `=` outside of quotes.
fn labels_of(labels: &str) -> Vec<String> {
    let outside = labels.split('"').step_by(2);
    let names =
        outside.filter_map(|text| text.split_once('=').map(|(name, _)| name.trim_matches([',', ' ']).to_owned()));
    names.collect()
}

/// A host on Redis that has used every metric, and one whose function was replaced after a trap.
fn busy_hosts(redis: &Redis) -> (Host, Host) {
    let host = Host::brisk(&["--store", &redis.url(), "--evict-after", "200ms"]);
    let watcher = Stream::subscribe(&host, "alice", "users=bob&conversations=tea");
    assert_eq!(host.client("bob").beat("web").status, 200);
    assert_eq!(host.client("bob").put("/v1/typing/tea", json!({})).status, 200);
    drop(watcher);
    let hostile = format!("heartbeat={}", component("guests/hostile").display());
    let other = Host::start(&["--component", &hostile, "--workers", "1"]);
    assert_eq!(other.client("bob").beat("trap").status, 503);
    (host, other)
}

#[test]
fn watched_metrics_exist_with_their_labels() {
    let expressions = expressions();
    let watched: BTreeSet<&str> = expressions.iter().flat_map(|text| names_in(text)).collect();
    let foreign: Vec<_> =
        watched.iter().filter(|name| name.starts_with("redis_") && !EXPORTER.contains(name)).collect();
    assert!(foreign.is_empty(), "redis_exporter has no {foreign:?}");
    let redis = Redis::start().unwrap();
    let hosts = busy_hosts(&redis);
    let mut known = BTreeMap::new();
    eventually("every metric is exported", SOON, || {
        known = exported(&hosts.0);
        known.extend(exported(&hosts.1).into_iter().filter(|(name, _)| name.contains("replacements")));
        let own = watched.iter().filter(|name| name.starts_with("rollcall_"));
        let missing: Vec<_> = own.filter(|name| !known.contains_key(**name)).collect();
        if !missing.is_empty() {
            eprintln!("not exported yet: {missing:?}");
        }
        missing.is_empty()
    });
    for expression in &expressions {
        for (before, after) in expression.match_indices('{').map(|(at, _)| expression.split_at(at)) {
            let Some(name) = names_in(before).last().filter(|name| name.starts_with("rollcall_")) else { continue };
            let selector = &after[1..after.find('}').expect("a selector ends")];
            for label in labels_of(selector) {
                let label = label.trim_end_matches(['!', '~']);
                let is_real = label == "instance" || known[name].contains(label);
                assert!(is_real, "{name} has no label {label}: {expression}");
            }
        }
    }
}

#[test]
fn every_alert_is_explained() {
    let manual = std::fs::read_to_string(root().join("docs/OPERATIONS.md")).unwrap();
    let alerts = words(&document("prometheus/alerts.yml"), "alert");
    let unexplained: Vec<_> = alerts.iter().filter(|alert| !manual.contains(&format!("`{alert}`"))).collect();
    assert!(unexplained.is_empty(), "{unexplained:?}");
}

#[test]
fn every_file_parses_as_its_format() {
    let (mut yaml, mut json) = (0, 0);
    for path in files() {
        if path.ends_with(".yaml") || path.ends_with(".yml") {
            assert!(documents(&path).iter().all(Value::is_object), "infra/{path} holds objects");
            yaml += 1;
        } else if path.ends_with(".json") {
            let _: Value = serde_json::from_str(&text(&path)).unwrap_or_else(|error| panic!("infra/{path}: {error}"));
            json += 1;
        }
    }
    assert!(yaml >= 13 && json >= 1, "{yaml} and {json}");
}

#[test]
fn every_requested_path_is_served() {
    let deployment = document("kubernetes/deployment.yaml");
    let app = document("spinkube/spinapp.yaml");
    let probes = [&deployment, &app].into_iter().flat_map(|manifest| all(manifest, "httpGet"));
    let mut paths: BTreeSet<String> = probes.flat_map(|probe| words(probe, "path")).collect();
    paths.extend(words(&document("prometheus/prometheus.yml"), "metrics_path"));
    paths.extend(words(&deployment, "prometheus.io/path"));
    let dockerfile = text("Dockerfile");
    paths.extend(
        dockerfile.split("http://127.0.0.1:8080").skip(1).map(|rest| rest.split('"').next().unwrap().to_owned()),
    );
    assert_eq!(paths.iter().map(String::as_str).collect::<Vec<_>>(), ["/healthz", "/metrics", "/readyz"]);
    let host = Host::start(&[]);
    for path in paths {
        assert_eq!(host.client("ops").get(&path).status, 200, "{path}");
    }
}

/// The first number in a text.
fn number(text: &str) -> u64 {
    let digits = text.trim_start_matches(|c: char| !c.is_ascii_digit());
    let digits: String = digits.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().unwrap_or_else(|_| panic!("no number in {text}"))
}

/// The first number after a word.
fn number_after(text: &str, word: &str) -> u64 {
    let (_, rest) = text.split_once(word).unwrap_or_else(|| panic!("{word} is missing"));
    number(rest)
}

#[test]
fn all_files_name_the_image_port() {
    let dockerfile = text("Dockerfile");
    let port = number_after(&dockerfile, "ROLLCALL_LISTEN=0.0.0.0:");
    assert_eq!(number_after(&dockerfile, "EXPOSE"), port);
    assert_eq!(number_after(&dockerfile, "http://127.0.0.1:"), port);
    let compose = document("compose.yaml");
    assert_eq!(compose["services"]["rollcall"]["ports"], json!([format!("127.0.0.1:{port}:{port}")]));
    let deployment = document("kubernetes/deployment.yaml");
    assert_eq!(all(&deployment, "containerPort"), [&json!(port)]);
    assert_eq!(words(&deployment, "prometheus.io/port"), [port.to_string()]);
    let policy = &documents("kubernetes/network-policy.yaml")[0];
    assert_eq!(policy["spec"]["ingress"][0]["ports"][0]["port"], json!(port));
    let prometheus = document("prometheus/prometheus.yml");
    assert_eq!(prometheus["scrape_configs"][0]["static_configs"][0]["targets"], json!([format!("rollcall:{port}")]));
}

fn rollcall(arguments: &[&str], variables: &BTreeMap<String, String>) -> Output {
    let mut command = Command::new(binary());
    command.args(arguments).env_clear().envs(variables);
    command.output().expect("the binary runs")
}

fn help(subcommand: &str) -> String {
    String::from_utf8(rollcall(&[subcommand, "--help"], &BTreeMap::new()).stdout).expect("text")
}

#[test]
fn every_variable_is_a_setting() {
    let help = help("serve");
    let mut count = 0;
    for path in files() {
        let text = text(&path);
        for name in names_in(&text).filter(|name| name.starts_with("ROLLCALL_") && *name != "ROLLCALL_") {
            assert!(help.contains(&format!("[env: {name}]")), "infra/{path}: {name} is not a setting");
            count += 1;
        }
    }
    assert!(count >= 10, "{count}");
}

/// The variables of a manifest that are settings.
fn settings(values: &Value) -> BTreeMap<String, String> {
    let values = values.as_object().expect("names and values").iter();
    let values = values.map(|(name, value)| (name.clone(), value.as_str().expect("text").to_owned()));
    values.filter(|(name, _)| name.starts_with("ROLLCALL_")).collect()
}

#[test]
fn every_variable_value_is_accepted() {
    let compose = document("compose.yaml");
    let config = document("kubernetes/configmap.yaml");
    for settings in [settings(&compose["services"]["rollcall"]["environment"]), settings(&config["data"])] {
        assert!(settings.len() >= 4, "{settings:?}");
        let output = rollcall(&["config"], &settings);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn every_flag_belongs_to_its_command() {
    let (serve, token) = (help("serve"), help("token"));
    let mut count = 0;
    for path in files() {
        for line in text(&path).lines() {
            for (command, help) in [("rollcall serve ", &serve), ("rollcall token ", &token)] {
                let arguments = line.split_once(command).map(|(_, arguments)| arguments).unwrap_or_default();
                for flag in arguments.split([' ', '`', '\'']).filter(|word| word.starts_with("--")) {
                    assert!(
                        help.split_whitespace().any(|word| word == flag),
                        "infra/{path}: unknown flag {flag}: {line}"
                    );
                    count += 1;
                }
            }
        }
    }
    assert!(count >= 5, "{count}");
}

#[test]
fn every_mounted_or_read_file_exists() {
    let compose = document("compose.yaml");
    let sources = compose["services"].as_object().unwrap().values().filter_map(|service| service["volumes"].as_array());
    let sources: Vec<_> = sources.flatten().filter_map(|volume| volume.as_str()?.split(':').next()).collect();
    let volumes = compose["volumes"].as_object().unwrap();
    for source in &sources {
        let is_there = volumes.contains_key(*source) || source.starts_with("./") && infra(source).exists();
        assert!(is_there, "compose.yaml mounts {source}");
    }
    assert!(sources.len() >= 9, "{sources:?}");
    let build = &compose["services"]["rollcall"]["build"];
    let context = infra(build["context"].as_str().unwrap());
    assert!(context.join(build["dockerfile"].as_str().unwrap()).exists());
    for rules in document("prometheus/prometheus.yml")["rule_files"].as_array().unwrap() {
        assert!(infra("prometheus").join(rules.as_str().unwrap()).exists(), "{rules}");
    }
    for script in ["../spin.toml", "rollcall.toml", "../docs/OPERATIONS.md"] {
        assert!(infra(script).exists(), "{script} is installed with the units, but missing");
    }
}

#[test]
fn grafana_finds_dashboard_and_data_source() {
    let providers = document("grafana/provisioning/dashboards/rollcall.yaml");
    let folder = providers["providers"][0]["options"]["path"].as_str().unwrap().to_owned();
    let mount = format!("./grafana/dashboard.json:{folder}/dashboard.json:ro");
    let compose = document("compose.yaml");
    assert!(compose["services"]["grafana"]["volumes"].as_array().unwrap().contains(&json!(mount)), "{mount}");
    let source = &document("grafana/provisioning/datasources/prometheus.yaml")["datasources"][0];
    assert_eq!(source["url"], "http://prometheus:9090");
    let dashboard: Value = serde_json::from_str(&text("grafana/dashboard.json")).unwrap();
    assert!(
        all(&dashboard, "datasource").iter().all(|used| used["uid"] == source["uid"]),
        "a panel uses another data source"
    );
    let ids: Vec<_> = dashboard["panels"].as_array().unwrap().iter().map(|panel| panel["id"].as_u64()).collect();
    assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), ids.len(), "two panels share an id");
}

/// Every Kubernetes object.
fn objects() -> Vec<Value> {
    let manifests = files().into_iter().filter(|path| path.starts_with("kubernetes/") || path.starts_with("spinkube/"));
    manifests.flat_map(|path| documents(&path)).collect()
}

#[test]
fn kubernetes_references_resolve() {
    let objects = objects();
    let labels = |object: &Value| object["spec"]["template"]["metadata"]["labels"].clone();
    let pods: Vec<Value> = objects.iter().map(labels).filter(Value::is_object).collect();
    let is = |kind: &str, name: &Value| objects.iter().any(|o| o["kind"] == kind && o["metadata"]["name"] == *name);
    for object in &objects {
        let (kind, spec) = (object["kind"].as_str().unwrap(), &object["spec"]);
        let selectors = [&spec["selector"]["matchLabels"], &spec["podSelector"]["matchLabels"]];
        let selectors = selectors.into_iter().chain((kind == "Service").then_some(&spec["selector"]));
        for selector in selectors.filter(|selector| selector.is_object()) {
            assert!(pods.contains(selector), "{kind}: no pod has the labels {selector}");
        }
        let volumes: Vec<_> = all(object, "volumes").into_iter().flat_map(|list| list.as_array().unwrap()).collect();
        let claims: Vec<_> =
            all(object, "volumeClaimTemplates").into_iter().flat_map(|list| list.as_array().unwrap()).collect();
        for mount in all(object, "volumeMounts").into_iter().flat_map(|list| list.as_array().unwrap()) {
            let is_there = volumes.iter().any(|volume| volume["name"] == mount["name"])
                || claims.iter().any(|claim| claim["metadata"]["name"] == mount["name"]);
            assert!(is_there, "{kind}: no volume {}", mount["name"]);
        }
        for config in [all(object, "configMapRef"), all(object, "configMap")].concat() {
            assert!(is("ConfigMap", &config["name"]), "no ConfigMap {config}");
        }
        // Secrets are created by hand; a comment shows the command.
        for secret in words(object, "secretName") {
            let how = format!("kubectl create secret generic {secret} --from-file=");
            assert!(files().iter().any(|path| text(path).contains(&how)), "no comment shows how to create {secret}");
        }
    }
    let services = ["redis://rollcall-redis:6379", "http://rollcall-spin/v1/sweep"];
    let text: String = files().iter().map(|path| text(path)).collect();
    assert!(services.iter().all(|url| text.contains(url)));
    assert!(is("Service", &json!("rollcall-redis")) && is("SpinApp", &json!("rollcall-spin")));
}

#[test]
fn stop_timeouts_exceed_the_drain() {
    let compose = document("compose.yaml");
    let host = &compose["services"]["rollcall"];
    let seconds = |value: &Value| number(value.as_str().unwrap());
    assert!(seconds(&host["stop_grace_period"]) >= seconds(&host["environment"]["ROLLCALL_DRAIN"]) + 5);
    let pod = &document("kubernetes/deployment.yaml")["spec"]["template"]["spec"];
    let before = &pod["containers"][0]["lifecycle"]["preStop"]["exec"]["command"];
    assert_eq!(before[0], "sleep");
    let drain = seconds(&document("kubernetes/configmap.yaml")["data"]["ROLLCALL_DRAIN"]);
    assert!(pod["terminationGracePeriodSeconds"].as_u64().unwrap() >= seconds(&before[1]) + drain + 5);
    let example = text("rollcall.toml");
    assert!(
        number_after(&text("systemd/rollcall.service"), "TimeoutStopSec=") >= number_after(&example, "# drain = ") + 5
    );
}

/// The directives of a Redis configuration, without comments.
fn directives(text: &str) -> Vec<String> {
    let lines = text.lines().map(str::trim);
    lines.filter(|line| !line.is_empty() && !line.starts_with('#')).map(str::to_owned).collect()
}

#[test]
fn kubernetes_redis_matches_shipped_configuration() {
    let manifest = &documents("kubernetes/redis.yaml")[0];
    assert_eq!(directives(manifest["data"]["redis.conf"].as_str().unwrap()), directives(&text("redis.conf")));
}

#[test]
fn shipped_redis_setup_causes_no_warnings() {
    let folder = tempfile::tempdir().unwrap();
    let port = free_port().unwrap().to_string();
    let mut command = Command::new("redis-server");
    command.arg(infra("redis.conf")).args(["--port", &port, "--bind", "127.0.0.1", "--dir"]).arg(folder.path());
    let mut server = Process::start(&mut command, &folder.path().join("redis.log")).unwrap();
    let ask = |words: &[&str]| {
        let output = Command::new("redis-cli").args(["-p", &port]).args(words).output().expect("redis-cli runs");
        String::from_utf8(output.stdout).expect("text").trim().to_owned()
    };
    wait_until("Redis answers", SOON, || {
        server.must_run()?;
        Ok(ask(&["PING"]) == "PONG")
    })
    .unwrap();
    let host = Host::start(&["--store", &format!("redis://127.0.0.1:{port}"), "--log", "warn"]);
    assert_eq!(host.client("bob").beat("web").json["state"], "online");
    assert_eq!(host.log(), "", "no warnings");
    for (name, value) in
        [("maxmemory-policy", "noeviction"), ("appendonly", "yes"), ("save", ""), ("notify-keyspace-events", "xE")]
    {
        assert_eq!(ask(&["CONFIG", "GET", name]), format!("{name}\n{value}").trim(), "{name}");
    }
    host.stop();
    server.kill();
}

#[test]
fn spin_variables_match_its_manifest() {
    let manifest = std::fs::read_to_string(root().join("spin.toml")).unwrap();
    let (_, variables) = manifest.split_once("[variables]\n").expect("a manifest with variables");
    let variables = variables.split("\n[").next().unwrap();
    let is_variable = |name: &str| variables.lines().any(|line| line.starts_with(&format!("{name} = ")));
    let app = document("spinkube/spinapp.yaml");
    for variable in app["spec"]["variables"].as_array().unwrap() {
        assert!(is_variable(variable["name"].as_str().unwrap()), "{variable}");
    }
    let unit = text("systemd/rollcall-spin.service");
    let given = unit.split("--variable ").skip(1).map(|rest| rest.split('=').next().unwrap().to_owned());
    let set = names_in(&unit).filter_map(|word| word.strip_prefix("SPIN_VARIABLE_")).map(str::to_lowercase);
    let names: Vec<_> = given.chain(set).collect();
    assert!(names.len() >= 3 && names.iter().all(|name| is_variable(name)), "{names:?}");
}

/// The shell command of the unit, as systemd passes it to the shell, with this address.
fn sweep_of_the_unit(url: &str) -> String {
    let unit = text("systemd/rollcall-sweep.service");
    let line =
        unit.lines().find_map(|line| line.strip_prefix("ExecStart=/bin/sh -c '")).expect("the unit starts a shell");
    line.trim_end_matches('\'').replace("%%", "%").replace("http://127.0.0.1:3000/v1/sweep", url)
}

/// The script of the job, with this address, called once instead of for most of a minute.
fn sweep_of_the_job(url: &str, token: &Path) -> String {
    let job = document("spinkube/sweep.yaml");
    let command = all(&job, "command")[0];
    assert_eq!((&command[0], &command[1]), (&json!("sh"), &json!("-c")));
    let script = command[2].as_str().expect("a script").replace("+ 50))", "+ 0))");
    script.replace("$SWEEP_URL", url).replace("/run/secrets/rollcall/sweep.token", token.to_str().unwrap())
}

#[test]
fn sweep_caller_needs_token_with_scope() {
    let issuer = TokenIssuer::default();
    let host = Host::start(&["--token-key", &issuer.key()]);
    let folder = tempfile::tempdir().unwrap();
    let token = folder.path().join("sweep.token");
    let url = format!("{}/v1/sweep", host.base());
    let scripts = [sweep_of_the_unit(&url), sweep_of_the_job(&url, &token)];
    for (scopes, is_allowed) in [(&["service"][..], true), (&[], false)] {
        std::fs::write(&token, issuer.token("sweep", scopes)).unwrap();
        for script in &scripts {
            let mut shell = Command::new("sh");
            let status = shell.args(["-c", script]).env("CREDENTIALS_DIRECTORY", folder.path()).status();
            assert_eq!(status.expect("a shell").success(), is_allowed, "with {scopes:?}: {script}");
        }
    }
    assert!(host.metric("rollcall_http_requests_total{route=\"/v1/sweep\",status=\"200\"}") >= 2.0);
}
