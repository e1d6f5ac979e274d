//! Spin's Redis without asynchronous calls, which every Spin since 2.0 has.

#[allow(missing_docs, unsafe_code, reason = "generated from wit/")]
mod bindings {
    wit_bindgen::generate!({
        path: "wit",
        inline: "
            package rollcall:adapters;
            world spin-redis {
                import fermyon:spin/redis@2.0.0;
            }
        ",
        world: "rollcall:adapters/spin-redis",
        generate_all,
    });
}

pub(crate) use bindings::fermyon::spin::redis::{Connection as SpinConnection, Error, RedisParameter, RedisResult};

pub(crate) async fn open(url: &str) -> Result<SpinConnection, Error> {
    SpinConnection::open(url)
}

pub(crate) async fn execute(
    connection: &SpinConnection,
    command: String,
    arguments: Vec<RedisParameter>,
) -> Result<Vec<RedisResult>, Error> {
    connection.execute(&command, &arguments)
}
