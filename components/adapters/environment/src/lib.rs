//! Adapter: the deployment's settings, from environment variables. `interval_ms` is `ROLLCALL_INTERVAL_MS`.

use rollcall_contract::guest::exports::config::config as export;

struct Environment;

#[allow(unsafe_code, reason = "generated from wit/")]
mod exports {
    use super::Environment;
    rollcall_contract::guest::exports::config::export_config!(Environment);
}

impl export::Guest for Environment {
    fn get(name: String) -> Option<String> {
        let name = format!("ROLLCALL_{}", name.to_ascii_uppercase());
        std::env::var(name).ok().filter(|value| !value.is_empty())
    }
}
