//! Each request has an instance and a connection of its own.

use spin_sdk::http::{IntoResponse, Request, Response};
use spin_sdk::http_component;
use spin_sdk::redis::Connection;

#[http_component]
fn get(_: Request) -> impl IntoResponse {
    let (status, text) = match ask() {
        Ok(text) => (200, text),
        Err(error) => (503, error),
    };
    Response::builder().status(status).header("content-length", text.len().to_string()).body(text).build()
}

fn ask() -> Result<String, String> {
    let url = spin_sdk::variables::get("redis_url").map_err(|error| error.to_string())?;
    let connection = Connection::open(&url).map_err(|error| error.to_string())?;
    let value = connection.get("baseline").map_err(|error| error.to_string())?;
    Ok(format!("{} bytes", value.unwrap_or_default().len()))
}
