//! Adapter: the deployment's settings, from Spin variables of the same names.

use rollcall_contract::guest::exports::config::config as export;

#[allow(missing_docs, unsafe_code, reason = "generated from wit/")]
mod bindings {
    wit_bindgen::generate!({
        path: "wit",
        inline: "
            package rollcall:adapters;
            world spin-variables {
                import fermyon:spin/variables@2.0.0;
            }
        ",
        world: "rollcall:adapters/spin-variables",
        generate_all,
    });
    use super::SpinVariables;
    rollcall_contract::guest::exports::config::export_config!(SpinVariables);
}

use bindings::fermyon::spin::variables;

struct SpinVariables;

impl export::Guest for SpinVariables {
    fn get(name: String) -> Option<String> {
        match variables::get(&name) {
            Ok(value) => Some(value).filter(|value| !value.is_empty()),
            // A component need not be given every variable.
            Err(variables::Error::Undefined(_)) => None,
            Err(error) => {
                eprintln!("cannot read the Spin variable; treating it as unset: name={name} error={error:?}");
                None
            }
        }
    }
}
