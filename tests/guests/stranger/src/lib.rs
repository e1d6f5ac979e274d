//! A component that needs something no Rollcall host has: for seeing that it is refused, by name.

#[allow(missing_docs, unsafe_code, reason = "generated")]
mod bindings {
    wit_bindgen::generate!({
        inline: "
            package elsewhere:planet;
            interface weather {
                /// Asks a thing that nobody here knows.
                forecast: func() -> string;
            }
            world stranger {
                import weather;
                export ask: func() -> string;
            }
        ",
    });
    use super::Component;
    export!(Component);
}

struct Component;

impl bindings::Guest for Component {
    fn ask() -> String {
        bindings::elsewhere::planet::weather::forecast()
    }
}
