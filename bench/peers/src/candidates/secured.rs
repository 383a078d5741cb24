//! hyper over tokio-rustls on one thread, which answers with the bytes of the files that the others
//! serve: no file is opened.
//!
//! Sessions are in tickets and none in a cache, as in the nginx beside it; else as the
//! documentation of both crates shows them.

use std::convert::Infallible;
use std::io;
use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::Arc;

use http::{HeaderValue, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustls::ServerConfig;
use rustls::crypto::ring::{Ticketer, default_provider};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::NoServerSessionStorage;
use tokio::net::TcpSocket;
use tokio::runtime::Builder;
use tokio::task;
use tokio_rustls::TlsAcceptor;

use super::serve::announce;
use crate::ground::{LARGE_PATH, SMALL_PATH, large_body, small_body};

/// As nginx has it: a thousand clients come at once.
const BACKLOG: u32 = 4096;

/// What it answers with.
#[derive(Clone)]
struct Files {
    small: Bytes,
    large: Bytes,
}

/// Runs until the process is ended.
///
/// # Errors
/// If certificate or key cannot be used, or the runtime or the listener cannot be made.
pub(super) fn run(certificate: &Path, key: &Path) -> io::Result<()> {
    let acceptor = TlsAcceptor::from(Arc::new(configuration(certificate, key)?));
    let files = Files {
        small: small_body().into(),
        large: large_body().into(),
    };
    let runtime = Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async move {
        let socket = TcpSocket::new_v4()?;
        socket.bind((Ipv4Addr::LOCALHOST, 0).into())?;
        let listener = socket.listen(BACKLOG)?;
        announce("https", listener.local_addr()?)?;
        loop {
            let (socket, _) = listener.accept().await?;
            socket.set_nodelay(true)?;
            let (acceptor, files) = (acceptor.clone(), files.clone());
            task::spawn(async move {
                // A client that goes away in the middle is its own affair.
                let Ok(socket) = acceptor.accept(socket).await else {
                    return;
                };
                let answer = |request| {
                    let response = files.answer(&request);
                    async move { Ok::<_, Infallible>(response) }
                };
                let is_http2 = socket.get_ref().1.alpn_protocol() == Some(b"h2");
                let socket = TokioIo::new(socket);
                if is_http2 {
                    let mut builder = http2::Builder::new(TokioExecutor::new());
                    builder.timer(TokioTimer::new());
                    let _ = builder.serve_connection(socket, service_fn(answer)).await;
                } else {
                    let mut builder = http1::Builder::new();
                    builder.timer(TokioTimer::new());
                    let _ = builder.serve_connection(socket, service_fn(answer)).await;
                }
            });
        }
    })
}

fn configuration(certificate: &Path, key: &Path) -> io::Result<ServerConfig> {
    let certificate = CertificateDer::from_pem_file(certificate).map_err(io::Error::other)?;
    let key = PrivateKeyDer::from_pem_file(key).map_err(io::Error::other)?;
    let mut config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .map_err(io::Error::other)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    config.ticketer = Ticketer::new().map_err(io::Error::other)?;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    Ok(config)
}

impl Files {
    fn answer(&self, request: &Request<Incoming>) -> Response<Full<Bytes>> {
        let (body, kind) = match request.uri().path() {
            SMALL_PATH => (self.small.clone(), "text/plain"),
            LARGE_PATH => (self.large.clone(), "application/octet-stream"),
            _ => {
                let mut response = Response::new(Full::default());
                *response.status_mut() = StatusCode::NOT_FOUND;
                return response;
            }
        };
        let mut response = Response::new(Full::new(body));
        let headers = response.headers_mut();
        headers.insert(header::SERVER, HeaderValue::from_static("hyper"));
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
        response
    }
}
