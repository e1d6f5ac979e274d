//! An ordinary HTTP client, as a user of the API would have one.

use std::time::Duration;

use serde_json::Value;
use ureq::Agent;

/// A client of one service, asking as one user.
#[derive(Clone)]
pub struct Client {
    agent: Agent,
    /// Base URLs by path prefix.
    routes: Vec<(&'static str, String)>,
    header: (String, String),
}

/// A response.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// The status.
    pub status: u16,
    /// The body, as JSON; null if it is not.
    pub json: Value,
    /// The body, as text.
    pub text: String,
    /// The headers, by lower-case name.
    pub headers: Vec<(String, String)>,
}

impl Answer {
    /// A header.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
    }
}

impl Client {
    /// A client that names its user in a header, without a token.
    pub fn named(base: &str, user: &str) -> Self {
        Self::with_header(base, "Rollcall-User", user)
    }

    /// A client that sends a token.
    pub fn with_token(base: &str, token: &str) -> Self {
        Self::with_header(base, "Authorization", &format!("Bearer {token}"))
    }

    /// A client that sends this header.
    pub fn with_header(base: &str, name: &str, value: &str) -> Self {
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .timeout_global(Some(Duration::from_secs(20)))
            .allow_non_standard_methods(true)
            .build();
        let agent = Agent::new_with_config(config);
        Self { agent, routes: vec![("/", base.to_owned())], header: (name.to_owned(), value.to_owned()) }
    }

    /// The same client for a service whose paths have different base URLs.
    pub(crate) fn routed(self, routes: &[(&'static str, String)]) -> Self {
        Self { routes: routes.to_vec(), ..self }
    }

    /// The same connection pool, asking as another user.
    pub fn as_user(&self, user: &str) -> Self {
        Self { header: ("Rollcall-User".to_owned(), user.to_owned()), ..self.clone() }
    }

    /// Sends GET.
    pub fn get(&self, path: &str) -> Answer {
        self.send("GET", path, None)
    }

    /// Sends POST with JSON.
    pub fn post(&self, path: &str, body: Value) -> Answer {
        self.send("POST", path, Some(body.to_string().as_bytes()))
    }

    /// Sends PUT with JSON.
    pub fn put(&self, path: &str, body: Value) -> Answer {
        self.send("PUT", path, Some(body.to_string().as_bytes()))
    }

    /// Sends any request; panics if the host does not answer.
    pub fn send(&self, method: &str, path: &str, body: Option<&[u8]>) -> Answer {
        self.try_send(method, path, body).unwrap_or_else(|error| panic!("{method} {path}: {error}"))
    }

    /// Sends any request to a host that may be down.
    pub fn try_send(&self, method: &str, path: &str, body: Option<&[u8]>) -> Result<Answer, String> {
        let base = base_of(&self.routes, path).ok_or_else(|| format!("no route for {path}"))?;
        let request = ureq::http::Request::builder()
            .method(method)
            .uri(format!("{base}{path}"))
            .header(&self.header.0, &self.header.1);
        let response = match body {
            Some(bytes) => {
                let request = request.header("Content-Type", "application/json").body(bytes.to_vec());
                self.agent.run(request.expect("a request"))
            }
            None => self.agent.run(request.body(()).expect("a request")),
        };
        let mut response = response.map_err(|error| error.to_string())?;
        let headers = response.headers();
        let headers = headers.iter().map(|(n, v)| (n.to_string(), v.to_str().unwrap_or_default().to_owned())).collect();
        let text = response.body_mut().read_to_string().map_err(|error| error.to_string())?;
        let json = serde_json::from_str(&text).unwrap_or(Value::Null);
        Ok(Answer { status: response.status().as_u16(), json, text, headers })
    }

    /// One beat of a device.
    pub fn beat(&self, device: &str) -> Answer {
        self.post("/v1/heartbeat", serde_json::json!({ "device": device }))
    }

    /// The presence of another user, as this user sees it.
    pub fn presence(&self, user: &str) -> Value {
        let answer = self.get(&format!("/v1/presence/{user}"));
        assert_eq!(answer.status, 200, "{}", answer.text);
        answer.json
    }

    /// The state in it; `null` if it is hidden.
    pub fn state(&self, user: &str) -> String {
        self.presence(user)["state"].as_str().unwrap_or("null").to_owned()
    }
}

/// The base URL of the longest matching prefix.
pub(crate) fn base_of<'a>(routes: &'a [(&'static str, String)], path: &str) -> Option<&'a str> {
    let fitting = routes.iter().filter(|(beginning, _)| path.starts_with(beginning));
    fitting.max_by_key(|(beginning, _)| beginning.len()).map(|(_, base)| base.as_str())
}
