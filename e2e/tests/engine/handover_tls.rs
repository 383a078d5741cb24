//! Servers relieve each other under clients that come anew with TLS: each resumes a session, and
//! its upload leaves with the end of its handshake, or right behind it, while the server is at work
//! on that. No handshake is begun twice, and no request is lost.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use flatpath_testkit::deadline::long_patience;
use flatpath_testkit::tls::rustls::{ClientConfig, HandshakeKind, StreamOwned};
use flatpath_testkit::tls::{VERSIONS, client_config, client_of};
use flatpath_testkit::{Driver, Issued, Launch, Server, Site, binary, each_driver};

use crate::handover_crowd::{CLIENTS, relieve_under_crowd};

each_driver!(no_handshake_is_begun_anew);

/// More than a server keeps of the input of a connection whose handshake is with a worker.
const BODY_BYTES_MAX: usize = 300_000;

fn start(driver: Driver, site: &Site, files: &Site, path: &Path) -> Server {
    let launch = Launch::new(binary::flatpath().to_path_buf());
    let launch = launch.with(["serve", "--driver", driver.name(), "--writable"]);
    let launch = launch.with(["--https", "127.0.0.1:0", "--handover"]);
    let launch = launch.with([path]).with(["--tls-cert"]);
    let launch = launch.with([files.at("site.crt")]).with(["--tls-key"]);
    let launch = launch.with([files.at("site.key")]);
    launch.directory(site.path()).start()
}

/// One upload on a connection of its own; whether its session was resumed.
fn upload(
    address: SocketAddr,
    config: &Arc<ClientConfig>,
    name: usize,
    bytes: usize,
) -> Result<bool, String> {
    let stream = TcpStream::connect(address).map_err(|error| format!("connect: {error}"))?;
    let patience = Some(long_patience());
    stream.set_read_timeout(patience).expect("a deadline");
    stream.set_write_timeout(patience).expect("a deadline");
    let mut connection = client_of(config);
    // All of it may wait for the end of the handshake.
    connection.set_buffer_limit(None);
    let head = format!(
        "PUT /up-{name} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\
         Content-Length: {bytes}\r\n\r\n"
    );
    let mut request = head.into_bytes();
    request.resize(request.len() + bytes, b'u');
    let is_behind = name.is_multiple_of(2);
    if !is_behind {
        connection.writer().write_all(&request).expect("in memory");
    }
    let mut stream = StreamOwned::new(connection, stream);
    let mut reply = Vec::new();
    let mut exchange = || {
        while stream.conn.is_handshaking() {
            stream.conn.complete_io(&mut stream.sock)?;
        }
        if is_behind {
            stream.write_all(&request)?;
        }
        stream.flush()?;
        stream.read_to_end(&mut reply)
    };
    let sent = exchange();
    let said = String::from_utf8_lossy(&reply);
    sent.map_err(|error| format!("{bytes} bytes: {error}, after {said:?}"))?;
    let is_stored = said.starts_with("HTTP/1.1 20");
    let kind = stream.conn.handshake_kind();
    is_stored
        .then_some(kind == Some(HandshakeKind::Resumed))
        .ok_or_else(|| format!("{bytes} bytes: {said:?}"))
}

fn no_handshake_is_begun_anew(driver: Driver) {
    let (site, files, run) = (Site::new(), Site::new(), Site::new());
    let issued = Issued::for_localhost();
    files.write("site.crt", &issued.certificate);
    files.write("site.key", &issued.key);
    let path = run.at("next");
    let resumed = AtomicUsize::new(0);
    // What resumes a session is the client's, for all its connections.
    let versions = &VERSIONS[1..];
    let config = || Arc::new(client_config(&issued.certificate, None, versions));
    let configs: [_; CLIENTS] = std::array::from_fn(|_| config());
    let start = || start(driver, &site, &files, &path);
    relieve_under_crowd("https", start, |address, number, random| {
        let bytes = random.usize(1..BODY_BYTES_MAX);
        let is_resumed = upload(address, &configs[number], number, bytes)?;
        resumed.fetch_add(usize::from(is_resumed), Ordering::Relaxed);
        Ok(())
    });
    assert_ne!(resumed.into_inner(), 0);
}
