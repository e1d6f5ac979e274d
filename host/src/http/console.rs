//! The console: web pages inside the binary. This file maps paths to files and sets what a browser may do with them.
//!
//! Every page has a content security policy: nothing is loaded from elsewhere, and inline scripts and styles are allowed by
//! their digests. Files in `/assets/` are named after their content, so a browser caches them for good; the others are
//! revalidated by ETag.
//!
//! Deliberately absent: compression (a proxy does that, and on loopback it costs more than it saves), ranges, and a
//! directory to serve instead: what is served was built and tested with this binary.

use std::collections::HashMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::header::{
    ACCESS_CONTROL_ALLOW_ORIGIN, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, IF_NONE_MATCH,
    REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use rollcall_api::{Kind, Problem, Reply};
use sha2::{Digest, Sha256};

/// A file of the console: its path on the server, and its content.
pub type File = (&'static str, &'static [u8]);

/// Served if the console was not built.
const NOT_BUILT: &str = "\
Rollcall is running, and this program was built without its console.

`cargo xtask build` builds both, and `cargo xtask serve` runs them.
The API is described in /openapi.json.
";

/// The path of files that are named after their content.
const ASSETS: &str = "/assets/";

/// The client, which pages of any origin may load.
const CLIENT: &str = "/client.js";

/// A year, which is the maximum.
const CACHE_FOR_GOOD: &str = "public, max-age=31536000, immutable";

/// Cached, and revalidated before use.
const REVALIDATE: &str = "no-cache";

/// All pages, ready to be sent.
#[derive(Debug, Default)]
pub(crate) struct Console(HashMap<&'static str, Page>);

#[derive(Debug)]
struct Page {
    path: &'static str,
    status: StatusCode,
    headers: HeaderMap,
    bytes: &'static [u8],
}

impl Console {
    /// A console of these files. Without a first page, `/` explains how to build it.
    pub(crate) fn new(files: &[File]) -> Self {
        let mut pages: HashMap<_, _> = files.iter().map(|file| (file.0, Page::of(file))).collect();
        pages.entry("/").or_insert_with(Page::not_built);
        Self(pages)
    }

    /// The response, if the path is the console's, and the path's template for the metrics.
    pub(crate) fn answer(&self, method: &Method, path: &str, headers: &HeaderMap) -> Option<(&'static str, Reply)> {
        let page = self.0.get(path)?;
        let template = if page.path.starts_with(ASSETS) { "/assets/{file}" } else { page.path };
        let reply = match *method {
            Method::GET | Method::HEAD => page.reply(headers),
            _ => {
                let problem = Problem::new(Kind::WrongMethod, "this path takes GET, HEAD");
                Problem { allow: Some("GET, HEAD".to_owned()), ..problem }.into_reply()
            }
        };
        Some((template, reply))
    }
}

impl Page {
    fn of(&(path, bytes): &File) -> Self {
        let tag: String = Sha256::digest(bytes).iter().take(16).map(|byte| format!("{byte:02x}")).collect();
        let kept = if path.starts_with(ASSETS) { CACHE_FOR_GOOD } else { REVALIDATE };
        let mut headers = basic_headers(format(path), &policy(path, bytes), kept);
        headers.extend(HeaderValue::try_from(format!("\"{tag}\"")).map(|tag| (ETAG, tag)));
        if path == CLIENT {
            headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"));
        }
        Self { path, status: StatusCode::OK, headers, bytes }
    }

    fn not_built() -> Self {
        let headers = basic_headers("text/plain; charset=utf-8", "default-src 'none'", "no-store");
        Self { path: "/", status: StatusCode::NOT_FOUND, headers, bytes: NOT_BUILT.as_bytes() }
    }

    fn reply(&self, request: &HeaderMap) -> Reply {
        let is_cached = self.is_cached_by(request);
        let mut reply = Reply::new(if is_cached { Vec::new() } else { self.bytes.to_vec() });
        *reply.status_mut() = if is_cached { StatusCode::NOT_MODIFIED } else { self.status };
        reply.headers_mut().clone_from(&self.headers);
        reply
    }

    /// Whether the browser has this version.
    fn is_cached_by(&self, headers: &HeaderMap) -> bool {
        let Some(tag) = self.headers.get(ETAG).and_then(|tag| tag.to_str().ok()) else { return false };
        let known = headers.get_all(IF_NONE_MATCH).iter().filter_map(|tags| tags.to_str().ok());
        let mut known = known.flat_map(|tags| tags.split(',')).map(str::trim);
        known.any(|known| known == "*" || known.strip_prefix("W/").unwrap_or(known) == tag)
    }
}

/// The headers of every page.
fn basic_headers(format: &'static str, policy: &str, kept: &'static str) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(format));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static(kept));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    // The policy consists of constants and digests, which are valid in a header.
    headers.extend(HeaderValue::try_from(policy).map(|policy| (CONTENT_SECURITY_POLICY, policy)));
    headers
}

/// The content security policy: a page may load from and call this server only.
fn policy(path: &str, bytes: &[u8]) -> String {
    let text = if format(path).starts_with("text/html") { std::str::from_utf8(bytes).unwrap_or_default() } else { "" };
    let (scripts, styles) = (digests(text, "script"), digests(text, "style"));
    format!(
        "default-src 'none'; script-src 'self'{scripts}; style-src 'self'{styles}; img-src 'self'; font-src 'self'; \
         connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
}

/// The digests of the inline content of these elements, each with a space before it.
fn digests(html: &str, element: &str) -> String {
    let (opening, closing) = (format!("<{element}"), format!("</{element}>"));
    let within = html.split(&opening).skip(1).filter_map(|rest| {
        let (_, rest) = rest.split_once('>')?;
        rest.split_once(&closing).map(|(within, _)| within)
    });
    let written = within.filter(|within| !within.is_empty());
    written.map(|within| format!(" 'sha256-{}'", STANDARD.encode(Sha256::digest(within)))).collect()
}

/// The content type of a file, by its extension.
fn format(path: &str) -> &'static str {
    match path.rsplit('.').next() {
        _ if path == "/" => "text/html; charset=utf-8",
        Some("html") => "text/html; charset=utf-8",
        Some("js") => "text/javascript; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("json" | "map") => "application/json",
        Some("svg") => "image/svg+xml",
        Some("png") => "image/png",
        Some("ico") => "image/x-icon",
        Some("woff2") => "font/woff2",
        Some("txt") => "text/plain; charset=utf-8",
        _ => "application/octet-stream",
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test that cannot go on has failed")]
mod tests {
    use http::header::ALLOW;

    use super::*;

    const FILES: &[File] = &[
        ("/", b"<html><script type=\"module\" src=\"/assets/a.js\"></script></html>"),
        ("/assets/a.js", b"let a"),
        ("/assets/a.css", b"a {}"),
        ("/client.js", b"export {}"),
        ("/example.html", b"<style>p {}</style><script type=\"module\">let b</script><script src=\"x.js\"></script>"),
    ];

    const STRICT: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; font-src 'self'; \
                          connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

    fn word(text: &str) -> HeaderValue {
        text.parse().unwrap()
    }

    fn get(console: &Console, path: &str) -> (&'static str, Reply) {
        console.answer(&Method::GET, path, &HeaderMap::new()).unwrap()
    }

    #[test]
    fn every_page_has_the_strict_policy() {
        let console = Console::new(FILES);
        for ((path, bytes), (template, format)) in FILES.iter().zip([
            ("/", "text/html; charset=utf-8"),
            ("/assets/{file}", "text/javascript; charset=utf-8"),
            ("/assets/{file}", "text/css; charset=utf-8"),
            ("/client.js", "text/javascript; charset=utf-8"),
            ("/example.html", "text/html; charset=utf-8"),
        ]) {
            let (label, reply) = get(&console, path);
            assert_eq!((reply.status(), label, reply.body().as_slice()), (StatusCode::OK, template, *bytes));
            let headers = reply.headers();
            assert_eq!(headers[CONTENT_TYPE], format);
            assert_eq!(
                (&headers[X_CONTENT_TYPE_OPTIONS], &headers[REFERRER_POLICY]),
                (&word("nosniff"), &word("no-referrer"))
            );
            let kept = if path.starts_with(ASSETS) { CACHE_FOR_GOOD } else { REVALIDATE };
            assert_eq!(headers[CACHE_CONTROL], kept, "{path}");
            assert_eq!(headers.contains_key(ACCESS_CONTROL_ALLOW_ORIGIN), *path == CLIENT, "{path}");
            if *path != "/example.html" {
                assert_eq!(headers[CONTENT_SECURITY_POLICY], STRICT, "{path}");
            }
        }
        for nothing in ["/assets/", "/assets/b.js", "/assets/../client.js", "/index.html", "/v1/stats", ""] {
            assert!(console.answer(&Method::GET, nothing, &HeaderMap::new()).is_none(), "{nothing}");
        }
    }

    #[test]
    fn inline_content_is_allowed_by_digest() {
        let (_, reply) = get(&Console::new(FILES), "/example.html");
        let policy = reply.headers()[CONTENT_SECURITY_POLICY].to_str().unwrap();
        // Computed with `openssl dgst -sha256`.
        let script = "script-src 'self' 'sha256-gZ7YtBHYJlXDIlfAddq5Sw/QYJv5E8tJmDWivVTn/60='; ";
        let style = "style-src 'self' 'sha256-SNJDlN1Iy2mnt7DOjQIyDb2LQE6O5PQiSZomcdzawQ4='; ";
        assert!(policy.contains(script) && policy.contains(style), "{policy}");
    }

    #[test]
    fn cached_page_is_not_sent_again() {
        let console = Console::new(FILES);
        let tag = get(&console, "/client.js").1.headers()[ETAG].clone();
        let weak = HeaderValue::try_from(format!("\"other\", W/{}", tag.to_str().unwrap())).unwrap();
        for (known, status) in [(tag.clone(), 304), (weak, 304), (word("*"), 304), (word("\"x\""), 200)] {
            let asked = [(IF_NONE_MATCH, known)].into_iter().collect();
            let (_, reply) = console.answer(&Method::GET, "/client.js", &asked).unwrap();
            assert_eq!((reply.status().as_u16(), reply.body().is_empty()), (status, status == 304));
            assert_eq!(reply.headers()[ETAG], tag);
        }
        let other = Console::new(&[("/client.js", b"export { a }")]);
        assert_ne!(get(&other, "/client.js").1.headers()[ETAG], tag, "another file has another tag");
    }

    #[test]
    fn post_to_a_page_is_refused() {
        let (_, reply) = Console::new(FILES).answer(&Method::POST, "/", &HeaderMap::new()).unwrap();
        assert_eq!((reply.status().as_u16(), &reply.headers()[ALLOW]), (405, &word("GET, HEAD")));
    }

    #[test]
    fn missing_console_explains_how_to_build() {
        let console = Console::new(&[]);
        let (template, reply) = get(&console, "/");
        assert_eq!((template, reply.status()), ("/", StatusCode::NOT_FOUND));
        assert!(std::str::from_utf8(reply.body()).unwrap().contains("cargo xtask build"));
        assert_eq!(reply.headers()[CACHE_CONTROL], "no-store", "the next start may have it");
        assert!(console.answer(&Method::GET, "/client.js", &HeaderMap::new()).is_none());
    }
}
