//! WebSockets on streams of HTTP/2 (RFC 8441) over TLS, through real sockets: the client of the
//! `h2` crate has two of them and a page on one connection, and the access log has a line for each.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use flatpath::access_log::LogFormat;
use flatpath::tls::TlsConfig;
use flatpath::{Bytes, Server};
use flatpath_files::Files;
use flatpath_http::{Http, Request, Router, routing};
use flatpath_testkit::deadline::patience;
use flatpath_testkit::{Driver, Issued, Site, each_driver};
use flatpath_websocket::{Message, Socket, WebSocket};
use h2::client::SendRequest;
use h2::ext::Protocol;
use h2::{RecvStream, SendStream};
use http::{Method, StatusCode};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use crate::log_lines::Lines;
use crate::websocket_frames::{close, frame, frames};
use flatpath_e2e::choice;

each_driver!(sockets_and_a_page_share_a_connection);

const PAGE_BYTES: usize = 100_000;

/// A message.
const LONG_BYTES: usize = 50_000;

/// A client that speaks what TLS has chosen, by ALPN: HTTP/2.
async fn connect(address: SocketAddr, certificate: &str) -> SendRequest<Bytes> {
    let mut roots = RootCertStore::empty();
    let certificate = CertificateDer::from_pem_slice(certificate.as_bytes()).expect("PEM");
    roots.add(certificate).expect("a certificate");
    let config = ClientConfig::builder().with_root_certificates(roots);
    let mut config = config.with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let socket = TcpStream::connect(address).await.expect("it accepts");
    let name = ServerName::try_from("localhost").expect("a name");
    let connector = TlsConnector::from(Arc::new(config));
    let stream = connector.connect(name, socket).await.expect("a handshake");
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    // A page that nobody reads yet leaves room for the sockets.
    let mut builder = h2::client::Builder::new();
    builder.initial_connection_window_size(4 * PAGE_BYTES as u32);
    let (send, connection) = builder.handshake(stream).await.expect("HTTP/2");
    tokio::spawn(connection);
    // The server's settings come after its handshake.
    while !send.is_extended_connect_protocol_enabled() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    send
}

/// A WebSocket on a stream.
struct Tunnel {
    say: SendStream<Bytes>,
    hear: RecvStream,
    heard: Vec<u8>,
}

impl Tunnel {
    async fn open(send: &mut SendRequest<Bytes>) -> Tunnel {
        let request = http::Request::builder()
            .method(Method::CONNECT)
            .uri("https://localhost/chat")
            .header("sec-websocket-version", "13")
            .extension(Protocol::from_static("websocket"));
        let request = request.body(()).expect("a request");
        let (response, say) = send.send_request(request, false).expect("room for it");
        let response = response.await.expect("a reply");
        assert_eq!(response.status(), StatusCode::OK);
        Tunnel {
            say,
            hear: response.into_body(),
            heard: Vec::new(),
        }
    }

    fn say(&mut self, frame: Vec<u8>) {
        self.say.send_data(frame.into(), false).expect("it is open");
    }

    /// The next frame; `None` when the stream has ended.
    async fn hear(&mut self) -> Option<(u8, Vec<u8>)> {
        loop {
            let (mut heard, rest) = frames(&self.heard);
            if !heard.is_empty() {
                assert_eq!(
                    (heard.len(), rest.len()),
                    (1, 0),
                    "one is asked for at a time"
                );
                self.heard.clear();
                return heard.pop();
            }
            let data = self.hear.data().await?.expect("it goes on");
            self.heard.extend(&data);
            let flow = self.hear.flow_control();
            flow.release_capacity(data.len()).expect("it has come");
        }
    }
}

/// A tunnel to what is none, and one of a protocol that the route does not speak: any 2xx would be
/// an open tunnel (RFC 9110 section 9.3.6).
async fn is_refused(send: &mut SendRequest<Bytes>, path: &str, protocol: &'static str) {
    let request = http::Request::builder()
        .method(Method::CONNECT)
        .uri(format!("https://localhost{path}"))
        .header("sec-websocket-version", "13")
        .extension(Protocol::from_static(protocol));
    let request = request.body(()).expect("a request");
    let (response, _say) = send.send_request(request, false).expect("room for it");
    let status = response.await.expect("a reply").status();
    assert!(!status.is_success(), "{path}, {protocol}: {status}");
}

async fn talk(address: SocketAddr, certificate: String) {
    let mut send = connect(address, &certificate).await;
    // The second time the network thread has the file.
    for path in ["/page", "/now", "/files/file", "/files/file"] {
        is_refused(&mut send, path, "websocket").await;
    }
    is_refused(&mut send, "/chat", "connect-udp").await;
    let (mut one, mut other) = (Tunnel::open(&mut send).await, Tunnel::open(&mut send).await);
    let page = http::Request::get("https://localhost/page").body(());
    let (page, _) = send
        .send_request(page.expect("a request"), true)
        .expect("room for it");
    let long = vec![7; LONG_BYTES];
    for (tunnel, kind, said) in [(&mut one, 0x81, &b"hello"[..]), (&mut other, 0x82, &long)] {
        tunnel.say(frame(kind, said));
        assert_eq!(tunnel.hear().await, Some((kind, said.to_vec())));
        tunnel.say(frame(0x89, b"there?"));
        assert_eq!(tunnel.hear().await, Some((0x8A, b"there?".to_vec())));
    }
    one.say(close(1000));
    assert_eq!(
        one.hear().await,
        Some((0x88, 1000_u16.to_be_bytes().to_vec()))
    );
    assert_eq!(one.hear().await, None, "and its stream");
    let mut body = page.await.expect("a reply").into_body();
    let mut bytes = 0;
    while let Some(data) = body.data().await {
        let data = data.expect("it goes on");
        bytes += data.len();
        let flow = body.flow_control();
        flow.release_capacity(data.len()).expect("it has come");
    }
    assert_eq!(bytes, PAGE_BYTES);
    other.say(frame(0x81, b"still"));
    assert_eq!(other.hear().await, Some((0x81, b"still".to_vec())));
    other.say(close(1000));
    assert_eq!(
        other.hear().await,
        Some((0x88, 1000_u16.to_be_bytes().to_vec()))
    );
    assert_eq!(other.hear().await, None);
}

fn sockets_and_a_page_share_a_connection(driver: Driver) {
    let echo = |socket: &Socket, message: Message| {
        let _ = socket.send(message);
    };
    let websocket = WebSocket::pooled().deflate(None);
    let accept = move |request: Request| websocket.accept(&request, echo);
    let page = || vec![b'x'; PAGE_BYTES];
    let site = Site::new().with("file", "what is in it");
    let files = Files::open(site.path()).expect("a directory");
    let router = Router::new()
        .get("/chat", accept)
        .get("/page", page)
        .route("/now", routing::get(|| "now").inline())
        .nest_service("/files", files);
    let http = Http::service(router);
    let issued = Issued::for_localhost();
    let tls = TlsConfig::from_pem(issued.certificate.as_bytes(), issued.key.as_bytes());
    let lines = Lines::default();
    let running = Server::new()
        .driver(choice(driver))
        .access_log(LogFormat::Json, Arc::new(lines.clone()))
        .listen("127.0.0.1:0", http)
        .with_tls(&tls.expect("a certificate and its key"))
        .start()
        .expect("started");
    let address = running.addresses()[0].address;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    let talked = talk(address, issued.certificate);
    runtime
        .block_on(async { tokio::time::timeout(patience(), talked).await })
        .expect("it comes to its end");
    drop(runtime);
    running.handle().drain();
    running.wait().expect("it ends");
    let mut lines = lines.all();
    lines.retain(|line| line["status"] == 200);
    lines.sort_by_key(|line| line["bytes"].as_u64());
    // The socket that says little: two answers and the end, each with a head of two bytes.
    let few = 2 + 5 + 2 + 6 + 2 + 2;
    let more = 4 + LONG_BYTES + 2 + 6 + 2 + 5 + 2 + 2;
    let expected = [("/chat", few), ("/chat", more), ("/page", PAGE_BYTES)];
    assert_eq!(lines.len(), expected.len(), "{lines:#?}");
    for (line, (target, bytes)) in lines.iter().zip(expected) {
        assert_eq!(line["version"], "HTTP/2.0", "{line}");
        assert_eq!(
            (&line["target"], &line["status"]),
            (&target.into(), &200.into()),
            "{line}"
        );
        assert_eq!(
            (&line["bytes"], &line["aborted"]),
            (&bytes.into(), &false.into()),
            "{line}"
        );
        assert_eq!(line["tls"]["version"], "1.3", "{line}");
    }
}
