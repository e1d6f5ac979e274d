//! The instance serves many requests and keeps its connection.

use std::cell::RefCell;
use std::rc::Rc;

use spin_sdk::http::{IntoResponse, Request, Response};
use spin_sdk::http_service;
use spin_sdk::redis::Connection;

thread_local! {
    static CONNECTION: RefCell<Option<Rc<Connection>>> = const { RefCell::new(None) };
}

#[http_service]
async fn get(_: Request) -> impl IntoResponse {
    let (status, text) = match ask().await {
        Ok(text) => (200, text),
        Err(error) => (503, error),
    };
    Response::builder().status(status).header("content-length", text.len()).body(text)
}

async fn ask() -> Result<String, String> {
    let value = connection().await?.get("baseline").await.map_err(|error| error.to_string())?;
    Ok(format!("{} bytes", value.unwrap_or_default().len()))
}

async fn connection() -> Result<Rc<Connection>, String> {
    if let Some(kept) = CONNECTION.with_borrow(Clone::clone) {
        return Ok(kept);
    }
    let url = spin_sdk::variables::get("redis_url").await.map_err(|error| error.to_string())?;
    let connection = Rc::new(Connection::open(url).await.map_err(|error| error.to_string())?);
    CONNECTION.set(Some(Rc::clone(&connection)));
    Ok(connection)
}
