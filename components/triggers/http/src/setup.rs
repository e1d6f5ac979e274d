//! The deployment's settings, read once per instance.
//!
//! By default every call is refused: callers need a key that verifies their tokens, or the setting `open`.

use std::cell::OnceCell;
use std::rc::Rc;
use std::time::Duration;

use http::{HeaderMap, HeaderValue};
use rollcall_api::{Access, Expect, Keys, Kind, Limits, Origins, Problem};
use rollcall_contract::guest::wit::config;
use rollcall_core::Rules;

use crate::log;

/// The settings of a trigger.
#[derive(Debug)]
pub struct Setup {
    /// How callers are identified; if `None`, every call is refused.
    access: Option<Access>,
    /// The other origins whose pages may call.
    origins: Origins,
    /// The limits of one request.
    pub(crate) limits: Limits,
    /// The times and limits that the functions use.
    pub(crate) rules: Rules,
    /// The number of shards.
    pub(crate) shards: u32,
    /// How long a stream lasts at most.
    pub(crate) stream_max: Option<Duration>,
}

impl Setup {
    /// The settings of this instance; `None` if one is invalid, which the log names.
    pub(crate) fn of_instance() -> Option<Rc<Self>> {
        thread_local! {
            static SETUP: OnceCell<Option<Rc<Setup>>> = const { OnceCell::new() };
        }
        let read = || match Self::read(&config::get) {
            Ok(setup) => Some(Rc::new(setup)),
            Err(wrong) => {
                log(format_args!("invalid settings; refusing every request: {wrong}"));
                None
            }
        };
        SETUP.with(|setup| setup.get_or_init(read).clone())
    }

    /// Reads the settings. The error names the invalid one.
    fn read(get: &impl Fn(&str) -> Option<String>) -> Result<Self, String> {
        let rules = rollcall_redis::rules(get)?;
        let options = rollcall_redis::options(get, &rules)?;
        let origins = get("origins").map_or_else(|| Ok(Origins::default()), |text| Origins::from_text(text.trim()));
        Ok(Self {
            access: access(get)?,
            origins: origins.map_err(|rule| format!("`origins` {rule}"))?,
            limits: Limits::default(),
            rules,
            shards: options.shards,
            stream_max: stream_max(get)?,
        })
    }

    /// How to identify the caller, or why this request is refused.
    pub(crate) fn access(&self, headers: &HeaderMap) -> Result<&Access, Problem> {
        let Some(access) = &self.access else {
            let detail = "callers cannot be verified: set `token_key` to the key that verifies tokens, or, for trials only, \
                          `open` to `true` to accept unverified callers";
            return Err(Problem::new(Kind::Forbidden, detail));
        };
        if let Access::Open = access {
            self.origins.check_local(headers)?;
        }
        Ok(access)
    }

    /// The origin of a request from a page, if that origin is allowed.
    pub(crate) fn origin<'h>(&self, headers: &'h HeaderMap) -> Option<&'h HeaderValue> {
        self.access.as_ref().and_then(|access| self.origins.allowed(access, headers))
    }
}

/// A key takes precedence over `open`.
fn access(get: &impl Fn(&str) -> Option<String>) -> Result<Option<Access>, String> {
    if let Some(key) = get("token_key") {
        let keys = Keys::from_text(&key).map_err(|error| format!("`token_key` is not a key: {error}"))?;
        let expect = Expect { issuer: get("token_issuer"), audience: get("token_audience") };
        return Ok(Some(Access::Keyed { keys, expect }));
    }
    match get("open").as_deref().map(str::trim) {
        None | Some("" | "false") => Ok(None),
        Some("true") => Ok(Some(Access::Open)),
        Some(_) => Err("`open` must be `true` or `false`".to_owned()),
    }
}

/// Platforms that cut a response after some time do so without a word; a stream that ends before can say when to reconnect.
fn stream_max(get: &impl Fn(&str) -> Option<String>) -> Result<Option<Duration>, String> {
    match get("stream_max_ms").as_deref().map_or(Ok(0), |text| text.trim().parse::<u32>()) {
        Ok(0) => Ok(None),
        Ok(ms) if ms >= 1000 => Ok(Some(Duration::from_millis(ms.into()))),
        Ok(_) | Err(_) => Err("`stream_max_ms` must be 0 for no limit, or at least 1000".to_owned()),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that finds nothing should fail loudly")]
pub(crate) mod tests {
    use http::header::{HOST, ORIGIN};

    use super::*;

    const SECRET: &str = "0123456789abcdef0123456789abcdef";

    /// The setup with these settings.
    pub(crate) fn with(settings: &[(&str, &str)]) -> Result<Setup, String> {
        let get = |name: &str| settings.iter().find(|(known, _)| *known == name).map(|(_, text)| (*text).to_owned());
        Setup::read(&get)
    }

    fn headers(lines: &[(http::HeaderName, &'static str)]) -> HeaderMap {
        lines.iter().map(|(name, value)| (name.clone(), HeaderValue::from_static(value))).collect()
    }

    #[test]
    fn unconfigured_trigger_refuses_all_callers() {
        for settings in [&[][..], &[("open", "false")], &[("token_issuer", "me")]] {
            let setup = with(settings).unwrap();
            let problem = setup.access(&HeaderMap::new()).unwrap_err();
            assert_eq!(problem.status(), 403);
            assert!(problem.detail.contains("`token_key`") && problem.detail.contains("`open`"), "{problem}");
            assert_eq!(setup.origin(&headers(&[(ORIGIN, "http://localhost:1")])), None);
        }
    }

    #[test]
    fn open_trigger_serves_only_this_machine() {
        let setup = with(&[("open", "true")]).unwrap();
        assert!(matches!(setup.access(&headers(&[(HOST, "127.0.0.1:3000")])), Ok(Access::Open)));
        assert_eq!(setup.access(&headers(&[(HOST, "rollcall.example")])).unwrap_err().status(), 403);
        let page = headers(&[(HOST, "localhost:3000"), (ORIGIN, "https://evil.example")]);
        assert_eq!(setup.access(&page).unwrap_err().status(), 403);
    }

    #[test]
    fn key_overrides_open_and_sets_expected_claims() {
        let setup = with(&[("token_key", SECRET), ("open", "true"), ("token_audience", "chat")]).unwrap();
        let elsewhere = headers(&[(HOST, "rollcall.example")]);
        let Ok(Access::Keyed { expect, .. }) = setup.access(&elsewhere) else { unreachable!("a key was set") };
        assert_eq!((expect.issuer.as_deref(), expect.audience.as_deref()), (None, Some("chat")));
    }

    #[test]
    fn origins_setting_lists_allowed_pages() {
        let setup = with(&[("token_key", SECRET), ("origins", " https://a.example, https://b.example ")]).unwrap();
        assert!(setup.origin(&headers(&[(ORIGIN, "https://b.example")])).is_some());
        assert!(setup.origin(&headers(&[(ORIGIN, "https://c.example")])).is_none());
    }

    #[test]
    fn streams_have_a_limit_only_if_set() {
        assert_eq!(with(&[]).unwrap().stream_max, None);
        assert_eq!(with(&[("stream_max_ms", "0")]).unwrap().stream_max, None);
        assert_eq!(with(&[("stream_max_ms", "25000")]).unwrap().stream_max, Some(Duration::from_secs(25)));
    }

    #[test]
    fn invalid_setting_is_named_without_key_text() {
        for (name, text) in [
            ("token_key", "short"),
            ("open", "yes"),
            ("origins", "b.example"),
            ("interval_ms", "x"),
            ("shards", "0"),
            ("stream_max_ms", "20"),
        ] {
            let wrong = with(&[(name, text)]).unwrap_err();
            assert!(wrong.contains(&format!("`{name}`")), "{wrong}");
        }
        assert!(!with(&[("token_key", "hush")]).unwrap_err().contains("hush"));
    }
}
