//! Adapter: what was set, from Spin's variables, under the same names.

#[allow(missing_docs, unsafe_code, reason = "generated from wit/, where every item is documented")]
mod bindings {
    wit_bindgen::generate!({
        path: ["../../../wit", "wit"],
        inline: "
            package rollcall:adapters;
            world spin-variables {
                import fermyon:spin/variables@2.0.0;
                export rollcall:presence/config@0.1.0;
            }
        ",
        world: "rollcall:adapters/spin-variables",
        generate_all,
    });
    use super::SpinVariables;
    export!(SpinVariables);
}

use bindings::fermyon::spin::variables;

struct SpinVariables;

impl bindings::exports::rollcall::presence::config::Guest for SpinVariables {
    fn get(name: String) -> Option<String> {
        match variables::get(&name) {
            Ok(value) => Some(value).filter(|value| !value.is_empty()),
            // A component need not be given every variable.
            Err(variables::Error::Undefined(_)) => None,
            Err(error) => {
                eprintln!("the variable {name} cannot be read: {error:?}");
                None
            }
        }
    }
}
