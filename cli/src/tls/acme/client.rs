//! HTTPS to the authority: requests that block, on the thread of the orders.
//!
//! The crate of the protocol (`instant-acme`) asks for futures. Here a request is made when it is
//! asked for, so each of its futures is ready when it is polled for the first time ([`ready`]), and
//! there is no runtime. What it does not hand on is kept here: `Retry-After`, of every reply.
//!
//! Time and bytes of a request are bounded. A proxy is taken from the environment (`HTTPS_PROXY`).

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, SystemTime};

use flatpath::Bytes;
use flatpath::lock::Lock;
use flatpath::tls::provider;
use flatpath::tls::rustls::pki_types::CertificateDer;
use flatpath::tls::rustls::pki_types::pem::PemObject;
use flatpath_http::http::header::{RETRY_AFTER, USER_AGENT};
use flatpath_http::http::{HeaderValue, Request, StatusCode};
use http_body_util::BodyExt;
use instant_acme::{BodyWrapper, BytesResponse, Error, HttpClient};
use ureq::Agent;
use ureq::tls::{Certificate, RootCerts, TlsConfig};

use super::super::upstreams::machines_roots;
use super::plan::Plan;
use crate::bounded_file;

/// For a request with its reply.
const TIMEOUT: Duration = Duration::from_secs(30);

/// The longest reply: a chain of certificates.
const REPLY_BYTES_MAX: u64 = 1 << 20;

/// RFC 8555 section 6.1.
const AGENT: &str = concat!("flatpath/", env!("CARGO_PKG_VERSION"));

/// What the last reply said of its kind, if it did. Clones are the same.
#[derive(Clone, Debug, Default)]
pub(super) struct LastReply(Arc<Lock<Said>>);

#[derive(Clone, Copy, Debug, Default)]
struct Said {
    retry_after: Option<SystemTime>,
    is_limit: bool,
}

impl LastReply {
    /// The time that the authority has named.
    pub(super) fn retry_after(&self) -> Option<SystemTime> {
        self.0.lock().retry_after
    }

    /// It was 429.
    pub(super) fn is_limit(&self) -> bool {
        self.0.lock().is_limit
    }

    pub(super) fn set(&self, status: StatusCode, retry_after: Option<&HeaderValue>) {
        let text = retry_after.and_then(|value| value.to_str().ok());
        *self.0.lock() = Said {
            retry_after: text.and_then(|text| time_of(text, SystemTime::now())),
            is_limit: status == StatusCode::TOO_MANY_REQUESTS,
        };
    }

    fn clear(&self) {
        *self.0.lock() = Said::default();
    }
}

/// RFC 9110 section 10.2.3: a number of seconds, or a date.
fn time_of(text: &str, now: SystemTime) -> Option<SystemTime> {
    match text.trim().parse::<u32>() {
        Ok(seconds) => Some(now + Duration::from_secs(seconds.into())),
        Err(_) => httpdate::parse_http_date(text.trim()).ok(),
    }
}

/// The result of a future that waits for nothing.
pub(super) fn ready<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => unreachable!("a request is made when it is asked for"),
    }
}

/// The client of a plan.
pub(super) struct Client {
    agent: Agent,
    last: LastReply,
}

impl Client {
    /// Trusts the authorities of the plan, or those of the machine.
    ///
    /// # Errors
    /// A file cannot be read, or there is none.
    pub(super) fn new(plan: &Plan, last: &LastReply) -> Result<Client, String> {
        let tls = TlsConfig::builder()
            .unversioned_rustls_crypto_provider(Arc::new(provider()))
            .root_certs(RootCerts::Specific(Arc::new(roots(plan)?)));
        let config = Agent::config_builder()
            .tls_config(tls.build())
            .https_only(true)
            .http_status_as_error(false)
            .max_redirects(0)
            .timeout_global(Some(TIMEOUT));
        Ok(Client {
            agent: config.build().new_agent(),
            last: last.clone(),
        })
    }

    fn reply(&self, request: Request<BodyWrapper<Bytes>>) -> Result<BytesResponse, Error> {
        self.last.clear();
        let (mut parts, body) = request.into_parts();
        parts
            .headers
            .insert(USER_AGENT, HeaderValue::from_static(AGENT));
        let Ok(body) = ready(body.collect());
        let body = body.to_bytes();
        let reply = match body.is_empty() {
            true => self.agent.run(Request::from_parts(parts, ())),
            false => self.agent.run(Request::from_parts(parts, &body[..])),
        };
        let (parts, mut body) = reply
            .map_err(|cause| Error::Other(cause.into()))?
            .into_parts();
        self.last.set(parts.status, parts.headers.get(RETRY_AFTER));
        let body = body.with_config().limit(REPLY_BYTES_MAX).read_to_vec();
        let body = body.map_err(|cause| Error::Other(cause.into()))?;
        Ok(BytesResponse {
            parts,
            body: Box::new(Bytes::from(body)),
        })
    }
}

impl HttpClient for Client {
    fn request(
        &self,
        request: Request<BodyWrapper<Bytes>>,
    ) -> Pin<Box<dyn Future<Output = Result<BytesResponse, Error>> + Send>> {
        Box::pin(std::future::ready(self.reply(request)))
    }
}

fn roots(plan: &Plan) -> Result<Vec<Certificate<'static>>, String> {
    let found = match &plan.ca {
        Some(path) => {
            let named = |cause: String| format!("{}: {cause}", path.display());
            let text = bounded_file::read(path).map_err(|cause| named(cause.to_string()))?;
            let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
            let read = read.map_err(|cause| named(cause.to_string()))?;
            match read.is_empty() {
                true => return Err(named("there is no certificate in it (in PEM)".into())),
                false => read,
            }
        }
        None => machines_roots("--acme-ca").map_err(|cause| cause.to_string())?,
    };
    let owned = |it: &CertificateDer<'_>| Certificate::from_der(it).to_owned();
    Ok(found.iter().map(owned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_to_come_back_is_seconds_or_a_date() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777);
        for (text, seconds) in [
            ("0", Some(0)),
            (" 120", Some(120)),
            ("Sun, 06 Nov 1994 08:50:37 GMT", Some(60)),
            ("-1", None),
            ("soon", None),
            ("", None),
        ] {
            let expected = seconds.map(|it| now + Duration::from_secs(it));
            assert_eq!(time_of(text, now), expected, "{text:?}");
        }
        let last = LastReply::default();
        let value = HeaderValue::from_static("60");
        last.set(StatusCode::TOO_MANY_REQUESTS, Some(&value));
        assert!(last.is_limit() && last.retry_after().is_some());
        last.set(StatusCode::OK, None);
        assert!(!last.is_limit() && last.retry_after().is_none());
    }
}
