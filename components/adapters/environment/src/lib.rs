//! Adapter: what was set, from the environment. `interval_ms` is the variable `ROLLCALL_INTERVAL_MS`.

#[allow(missing_docs, unsafe_code, reason = "generated from wit/, where every item is documented")]
mod bindings {
    wit_bindgen::generate!({
        path: "../../../wit",
        inline: "
            package rollcall:adapters;
            world environment {
                export rollcall:presence/config@0.1.0;
            }
        ",
        world: "rollcall:adapters/environment",
    });
    use super::Environment;
    export!(Environment);
}

struct Environment;

impl bindings::exports::rollcall::presence::config::Guest for Environment {
    fn get(name: String) -> Option<String> {
        let name = format!("ROLLCALL_{}", name.to_ascii_uppercase());
        std::env::var(name).ok().filter(|value| !value.is_empty())
    }
}
