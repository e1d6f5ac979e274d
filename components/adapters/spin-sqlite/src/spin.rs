//! Spin's SQLite, asynchronous.

pub(crate) use spin_sdk::sqlite::{Connection, Error, RowResult, Value};

/// Opens the database `default`.
pub(crate) async fn open() -> Result<Connection, Error> {
    Connection::open_default().await
}

/// Runs a statement. Returns all rows.
pub(crate) async fn rows(
    connection: &Connection,
    statement: &str,
    parameter: Option<Value>,
) -> Result<Vec<RowResult>, Error> {
    connection.execute(statement, parameter).await?.collect().await
}
