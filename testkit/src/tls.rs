//! Clients with TLS: how they are configured, their handshake, and one that has no socket.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

pub use rustls;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::version::{TLS12, TLS13};
use rustls::{
    ClientConfig, ClientConnection, RootCertStore, StreamOwned, SupportedProtocolVersion,
};

use crate::Issued;

pub const VERSIONS: [&SupportedProtocolVersion; 2] = [&TLS12, &TLS13];

/// What a client is configured with that trusts `certificate`, in PEM, for `localhost`, and shows
/// `own`. A clone of the result knows the same sessions.
///
/// # Panics
/// When one of them is not what it should be.
#[must_use]
pub fn client_config(
    certificate: &str,
    own: Option<&Issued>,
    versions: &[&'static SupportedProtocolVersion],
) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    roots.add(certificate_of(certificate)).expect("a root");
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_protocol_versions(versions)
        .expect("known")
        .with_root_certificates(roots);
    let Some(own) = own else {
        return config.with_no_client_auth();
    };
    let key = PrivateKeyDer::from_pem_slice(own.key.as_bytes()).expect("in PEM");
    let chain = vec![certificate_of(&own.certificate)];
    config.with_client_auth_cert(chain, key).expect("a pair")
}

fn certificate_of(pem: &str) -> CertificateDer<'static> {
    CertificateDer::from_pem_slice(pem.as_bytes()).expect("in PEM")
}

/// A client's connection, with nothing said yet.
///
/// # Panics
/// When it is no configuration of a client's.
#[must_use]
pub fn client_of(config: &Arc<ClientConfig>) -> ClientConnection {
    let name = ServerName::try_from("localhost").expect("a name");
    ClientConnection::new(Arc::clone(config), name).expect("a configuration")
}

/// Makes the handshake over a socket.
///
/// # Errors
/// What the socket or rustls reports.
pub fn handshake(
    config: &Arc<ClientConfig>,
    stream: TcpStream,
) -> io::Result<StreamOwned<ClientConnection, TcpStream>> {
    let mut stream = StreamOwned::new(client_of(config), stream);
    while stream.conn.is_handshaking() {
        stream.conn.complete_io(&mut stream.sock)?;
    }
    Ok(stream)
}

/// The records that a client has to send.
///
/// # Panics
/// Never: memory takes all.
#[must_use]
pub fn records_of(tls: &mut ClientConnection) -> Vec<u8> {
    let mut records = Vec::new();
    while tls.wants_write() {
        tls.write_tls(&mut records).expect("into memory");
    }
    records
}

/// A client that has no socket: what it is sent is fed to it, and what it says is taken.
pub struct TlsClient {
    pub tls: ClientConnection,
    /// What the server has said.
    pub heard: Vec<u8>,
    /// Why nothing more can be heard.
    pub broken: Option<String>,
}

impl TlsClient {
    #[must_use]
    pub fn new(config: &Arc<ClientConfig>) -> TlsClient {
        TlsClient {
            tls: client_of(config),
            heard: Vec::new(),
            broken: None,
        }
    }

    /// Says something, once the handshake is complete.
    ///
    /// # Panics
    /// When it is too much to be kept.
    pub fn say(&mut self, words: &[u8]) {
        self.tls.writer().write_all(words).expect("kept in memory");
    }

    /// The bytes to send.
    pub fn take(&mut self) -> Vec<u8> {
        records_of(&mut self.tls)
    }

    /// The bytes that have come.
    ///
    /// # Panics
    /// Never: memory gives all.
    pub fn feed(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() && self.broken.is_none() {
            if self.tls.read_tls(&mut bytes).expect("of memory") == 0 {
                break;
            }
            if let Err(cause) = self.tls.process_new_packets() {
                self.broken = Some(cause.to_string());
            }
            let mut words = Vec::new();
            // An end without close_notify is told of here, and is looked at elsewhere.
            let _ = self.tls.reader().read_to_end(&mut words);
            self.heard.append(&mut words);
        }
    }

    /// The server has said that it sends no more.
    pub fn was_told_of_the_end(&mut self) -> bool {
        let state = self.tls.process_new_packets();
        state.is_ok_and(|state| state.peer_has_closed())
    }
}
