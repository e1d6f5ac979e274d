//! Spin's SQLite without asynchronous calls, which every Spin since 2.0 has.

#[allow(missing_docs, unsafe_code, reason = "generated from wit/")]
mod bindings {
    wit_bindgen::generate!({
        path: "wit",
        inline: "
            package rollcall:adapters;
            world spin-sqlite {
                import fermyon:spin/sqlite@2.0.0;
            }
        ",
        world: "rollcall:adapters/spin-sqlite",
        generate_all,
    });
}

pub(crate) use bindings::fermyon::spin::sqlite::{Connection, Error, RowResult, Value};

/// Opens the database `default`.
pub(crate) async fn open() -> Result<Connection, Error> {
    Connection::open("default")
}

/// Runs a statement. Returns all rows.
pub(crate) async fn rows(
    connection: &Connection,
    statement: &str,
    parameter: Option<Value>,
) -> Result<Vec<RowResult>, Error> {
    let parameters: Vec<Value> = parameter.into_iter().collect();
    connection.execute(statement, &parameters).map(|found| found.rows)
}
