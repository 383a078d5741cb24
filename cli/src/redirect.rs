//! `--http-redirect`: sends clients of plain HTTP to the same place with TLS.
//!
//! Every request gets 308, with its host and target, so that method and body stay the same. Nothing
//! of it is read but the head. Which hosts it is for is decided before, by the hosts of the
//! listener that it leads to.

use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use flatpath::{Turn, WorkerScope};
use flatpath_http::http::StatusCode;
use flatpath_http::{
    Disposition, Head, IntoResponse, Redirect as To, Reply, Request, Response, Service, TargetForm,
};

/// The port of `https:` that an address leaves out.
const USUAL: u16 = 443;

/// The service. Clones are the same.
#[derive(Clone, Debug, Default)]
pub(crate) struct Redirect {
    /// Of the listener with TLS; 0 until it is bound.
    port: Arc<AtomicU16>,
}

impl Redirect {
    /// Where clients are sent, once it is known.
    pub(crate) fn set_port(&self, port: u16) {
        // ORDER: Relaxed: the number alone counts.
        self.port.store(port, Ordering::Relaxed);
    }

    fn answer(&self, authority: &str, path: &str, query: Option<&str>) -> Response {
        let host = host_of(authority);
        if host.is_empty() {
            return (StatusCode::BAD_REQUEST, "the request names no host\n").into_response();
        }
        // ORDER: Relaxed: see above.
        let port = self.port.load(Ordering::Relaxed);
        if port == 0 {
            return StatusCode::SERVICE_UNAVAILABLE.into_response();
        }
        let mut location = format!("https://{host}");
        if port != USUAL {
            let _ = write!(location, ":{port}");
        }
        location += path;
        if let Some(query) = query {
            let _ = write!(location, "?{query}");
        }
        To::permanent(location).into_response()
    }
}

/// Without the port.
fn host_of(authority: &str) -> &str {
    match authority.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
        _ => authority,
    }
}

impl Service for Redirect {
    type ThreadState = ();

    fn thread_state(&self) {}

    fn plans_inline(&self) -> bool {
        true
    }

    fn inline(
        &self,
        (): &mut (),
        _: Turn,
        head: &Head<'_>,
        reply: &mut Reply<'_>,
    ) -> Disposition<'_> {
        let path = match head.form() {
            // The server as a whole (RFC 9112 section 3.2.4).
            TargetForm::Asterisk => "",
            _ => head.path(),
        };
        reply.response(self.answer(head.authority(), path, head.query()))
    }

    fn pooled(&self, _: &mut Request, _: &mut WorkerScope<'_>) -> Response {
        unreachable!("every request is answered inline")
    }
}

#[cfg(test)]
mod tests {
    use flatpath_http::http::header;

    use super::*;

    #[test]
    fn host_and_target_stay_the_same() {
        let redirect = Redirect::default();
        let status = |authority| redirect.answer(authority, "/", None).status().as_u16();
        assert_eq!((status("a.example"), status("")), (503, 400));
        for (port, authority, query, location) in [
            (443, "a.example", None, "https://a.example/b"),
            (443, "a.example:80", Some("c=d"), "https://a.example/b?c=d"),
            (8443, "a.example:8080", None, "https://a.example:8443/b"),
            (8443, "[::1]:8080", None, "https://[::1]:8443/b"),
            (443, "[::1]", None, "https://[::1]/b"),
        ] {
            redirect.set_port(port);
            let response = redirect.answer(authority, "/b", query);
            assert_eq!(response.status().as_u16(), 308);
            assert_eq!(response.headers()[header::LOCATION], location);
        }
    }
}
