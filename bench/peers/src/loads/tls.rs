//! The TLS of the harness's own clients: rustls, version 1.3 alone, and never a session again.
//!
//! A client takes the certificate of the run and no other, and verifies no signature by it: that
//! takes longer than what the server does to sign, and the clients share its cores.

use std::io;
use std::net::TcpStream;
use std::sync::Arc;

use flatpath_bench_common::http;
use flatpath_testkit::Issued;
use flatpath_testkit::clients::Connection;
use flatpath_testkit::tls::TlsClient;
use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::version::TLS13;
use rustls::{CertificateError, ClientConfig, ClientConnection, DigitallySignedStruct};
use rustls::{Error, SignatureScheme, StreamOwned};

/// Makes connections.
#[derive(Clone)]
pub(crate) struct Client {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
}

/// Takes one certificate.
#[derive(Debug)]
struct Pinned(CertificateDer<'static>);

impl Client {
    /// One for servers that show this certificate, which names these protocols (ALPN).
    ///
    /// # Errors
    /// What rustls refuses.
    pub(crate) fn new(issued: &Issued, protocols: &[&[u8]]) -> io::Result<Self> {
        let shown = CertificateDer::from_pem_slice(issued.certificate.as_bytes());
        let shown = shown.map_err(io::Error::other)?;
        let mut config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
            .with_protocol_versions(&[&TLS13])
            .map_err(io::Error::other)?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Pinned(shown)))
            .with_no_client_auth();
        config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
        config.resumption = Resumption::disabled();
        Ok(Self {
            config: Arc::new(config),
            name: ServerName::try_from("localhost").map_err(io::Error::other)?,
        })
    }

    /// A stream over a blocking socket, which shakes hands when it is first used.
    ///
    /// # Errors
    /// What rustls refuses.
    pub(crate) fn secure(
        &self,
        socket: TcpStream,
    ) -> io::Result<StreamOwned<ClientConnection, TcpStream>> {
        let begun = ClientConnection::new(Arc::clone(&self.config), self.name.clone());
        Ok(StreamOwned::new(begun.map_err(io::Error::other)?, socket))
    }

    /// A connection without a socket, whose first output is its hello.
    pub(crate) fn wire(&self) -> TlsClient {
        TlsClient::new(&self.config)
    }
}

/// Feeds a client what its connection has received, and sends what it has to say.
///
/// # Errors
/// `InvalidData` for what is not TLS, an alert, or another certificate.
pub(super) fn step(wire: &mut TlsClient, connection: &mut Connection) -> io::Result<()> {
    wire.feed(&connection.received);
    connection.received.clear();
    if let Some(cause) = wire.broken.take() {
        return Err(io::Error::new(io::ErrorKind::InvalidData, cause));
    }
    let output = wire.take();
    if !output.is_empty() {
        connection.send(output);
    }
    Ok(())
}

/// Whether a whole reply has been heard.
///
/// # Errors
/// It has another status than 200, or is none.
pub(super) fn is_answered(wire: &TlsClient) -> io::Result<bool> {
    match http::frame(&wire.heard)? {
        None => Ok(false),
        Some(framed) if framed.status == 200 => Ok(true),
        Some(framed) => Err(io::Error::other(format!("status {}", framed.status))),
    }
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        _others: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        match self.0 == *certificate {
            true => Ok(ServerCertVerified::assertion()),
            false => Err(CertificateError::UnknownIssuer.into()),
        }
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        let provider = default_provider();
        provider
            .signature_verification_algorithms
            .supported_schemes()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use rustls::crypto::ring::Ticketer;
    use rustls::pki_types::PrivateKeyDer;
    use rustls::{HandshakeKind, ServerConfig, ServerConnection};
    use std::io::{Read, Write};
    use std::net::{SocketAddr, TcpListener};
    use std::thread;

    const REPLY: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

    /// A thread per connection that answers each read with a reply.
    pub(crate) fn server(issued: &Issued) -> SocketAddr {
        let key = PrivateKeyDer::from_pem_slice(issued.key.as_bytes()).expect("a key");
        let shown = CertificateDer::from_pem_slice(issued.certificate.as_bytes());
        let mut config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_no_client_auth()
            .with_single_cert(vec![shown.expect("a certificate")], key)
            .expect("a pair");
        config.ticketer = Ticketer::new().expect("keys");
        let config = Arc::new(config);
        let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
        let address = listener.local_addr().expect("bound");
        thread::spawn(move || {
            for socket in listener.incoming() {
                let (Ok(socket), config) = (socket, Arc::clone(&config)) else {
                    return;
                };
                let tls = ServerConnection::new(config).expect("a connection");
                thread::spawn(move || {
                    let mut stream = StreamOwned::new(tls, socket);
                    let mut request = [0; 1024];
                    while let Ok(1..) = stream.read(&mut request) {
                        if stream.write_all(REPLY).is_err() {
                            return;
                        }
                    }
                });
            }
        });
        address
    }

    #[test]
    fn no_session_is_resumed() {
        let issued = Issued::for_localhost();
        let (client, address) = (Client::new(&issued, &[]).expect("made"), server(&issued));
        for _ in 0..3 {
            let socket = TcpStream::connect(address).expect("connected");
            let mut stream = client.secure(socket).expect("begun");
            stream.write_all(b"anything").expect("sent");
            let mut reply = [0; REPLY.len()];
            stream.read_exact(&mut reply).expect("answered");
            assert_eq!(reply, REPLY);
            assert_eq!(stream.conn.handshake_kind(), Some(HandshakeKind::Full));
        }
    }

    #[test]
    fn another_certificate_is_refused() {
        let (issued, other) = (Issued::for_localhost(), Issued::for_localhost());
        let (client, address) = (Client::new(&other, &[]).expect("made"), server(&issued));
        let socket = TcpStream::connect(address).expect("connected");
        let mut stream = client.secure(socket).expect("begun");
        assert!(stream.write_all(b"anything").is_err());
    }
}
