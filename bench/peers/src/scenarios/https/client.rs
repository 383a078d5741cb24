//! The TLS of the harness's own clients: rustls, version 1.3 alone, and never a session again.
//!
//! A client takes the certificate of the run and no other, and verifies no signature by it: that
//! takes longer than what the server does to sign, and the clients share its cores.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::ring::default_provider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::version::TLS13;
use rustls::{CertificateError, ClientConfig, ClientConnection, DigitallySignedStruct};
use rustls::{Error, SignatureScheme, StreamOwned};

use crate::certificate::Pair;

/// Makes connections.
#[derive(Clone)]
pub(in crate::scenarios) struct Client {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
}

/// One connection without its socket: bytes go in and come out.
pub(in crate::scenarios) struct Wire {
    tls: ClientConnection,
    /// What was received and decrypted, since its owner cleared it.
    pub(in crate::scenarios) plain: Vec<u8>,
}

/// Takes one certificate.
#[derive(Debug)]
struct Pinned(CertificateDer<'static>);

impl Client {
    /// One for servers that show this certificate, which names these protocols (ALPN).
    ///
    /// # Errors
    /// What rustls refuses.
    pub(in crate::scenarios) fn new(pair: &Pair, protocols: &[&[u8]]) -> io::Result<Self> {
        let mut config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
            .with_protocol_versions(&[&TLS13])
            .map_err(io::Error::other)?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Pinned(pair.der.clone())))
            .with_no_client_auth();
        config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
        config.resumption = Resumption::disabled();
        Ok(Self {
            config: Arc::new(config),
            name: ServerName::try_from("localhost").map_err(io::Error::other)?,
        })
    }

    fn begin(&self) -> io::Result<ClientConnection> {
        let begun = ClientConnection::new(Arc::clone(&self.config), self.name.clone());
        begun.map_err(io::Error::other)
    }

    /// A stream over a blocking socket, which shakes hands when it is first used.
    ///
    /// # Errors
    /// What rustls refuses.
    pub(in crate::scenarios) fn secure(
        &self,
        socket: TcpStream,
    ) -> io::Result<StreamOwned<ClientConnection, TcpStream>> {
        Ok(StreamOwned::new(self.begin()?, socket))
    }

    /// A connection whose first output is its hello.
    ///
    /// # Errors
    /// What rustls refuses.
    pub(in crate::scenarios) fn wire(&self) -> io::Result<Wire> {
        Ok(Wire {
            tls: self.begin()?,
            plain: Vec::new(),
        })
    }
}

impl Wire {
    /// Takes what was received, all of it.
    ///
    /// # Errors
    /// `InvalidData` for what is not TLS, an alert, or another certificate.
    pub(in crate::scenarios) fn take(&mut self, received: &mut Vec<u8>) -> io::Result<()> {
        let mut rest = &received[..];
        while !rest.is_empty() {
            self.tls.read_tls(&mut rest)?;
            let state = self.tls.process_new_packets().map_err(invalid)?;
            let (begin, bytes) = (self.plain.len(), state.plaintext_bytes_to_read());
            self.plain.resize(begin + bytes, 0);
            self.tls.reader().read_exact(&mut self.plain[begin..])?;
        }
        received.clear();
        Ok(())
    }

    /// What has to be sent now.
    ///
    /// # Errors
    /// None: memory takes all.
    pub(in crate::scenarios) fn output(&mut self) -> io::Result<Vec<u8>> {
        let mut output = Vec::new();
        while self.tls.wants_write() {
            self.tls.write_tls(&mut output)?;
        }
        Ok(output)
    }

    /// Puts a request into the output, to be sent as soon as the handshake allows it.
    ///
    /// # Errors
    /// None: it is short enough to be kept.
    pub(in crate::scenarios) fn ask(&mut self, request: &[u8]) -> io::Result<()> {
        self.tls.writer().write_all(request)
    }

    /// Whether the handshake is complete.
    pub(in crate::scenarios) fn is_established(&self) -> bool {
        !self.tls.is_handshaking()
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

fn invalid(error: Error) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

#[cfg(test)]
pub(in crate::scenarios) mod tests {
    use super::*;
    use rustls::crypto::ring::Ticketer;
    use rustls::pki_types::PrivateKeyDer;
    use rustls::pki_types::pem::PemObject;
    use rustls::{HandshakeKind, ServerConfig, ServerConnection};
    use std::net::{SocketAddr, TcpListener};
    use std::thread;

    const REPLY: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

    /// A thread per connection that answers each read with a reply.
    pub(in super::super) fn server(pair: &Pair) -> SocketAddr {
        let key = PrivateKeyDer::from_pem_file(&pair.key).expect("a key");
        let mut config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_no_client_auth()
            .with_single_cert(vec![pair.der.clone()], key)
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
        let pair = Pair::make().expect("made");
        let (client, address) = (Client::new(&pair, &[]).expect("made"), server(&pair));
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
        let (pair, other) = [Pair::make(), Pair::make()]
            .map(|it| it.expect("made"))
            .into();
        let (client, address) = (Client::new(&other, &[]).expect("made"), server(&pair));
        let socket = TcpStream::connect(address).expect("connected");
        let mut stream = client.secure(socket).expect("begun");
        assert!(stream.write_all(b"anything").is_err());
    }

    #[test]
    fn bytes_may_come_in_any_pieces() {
        let pair = Pair::make().expect("made");
        let (client, address) = (Client::new(&pair, &[]).expect("made"), server(&pair));
        let mut socket = TcpStream::connect(address).expect("connected");
        let mut wire = client.wire().expect("begun");
        wire.ask(b"anything").expect("kept");
        assert!(!wire.is_established());
        while wire.plain.len() < REPLY.len() {
            socket
                .write_all(&wire.output().expect("bytes"))
                .expect("sent");
            let mut bytes = [0; 7];
            let count = socket.read(&mut bytes).expect("answered");
            wire.take(&mut bytes[..count].to_vec()).expect("valid");
        }
        assert!(wire.is_established());
        assert_eq!(wire.plain, REPLY);
    }
}
