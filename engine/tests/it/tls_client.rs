//! A client with TLS that has no socket: what it is sent is fed to it, and what it says is taken;
//! and such a client of a server in simulation.

use std::io::{Read, Write};
use std::sync::{Arc, OnceLock};

use flatpath::Limits;
use flatpath::simulation::{Conditions, SimulatedServer};
use flatpath::tls::rustls::client::WantsClientCert;
use flatpath::tls::rustls::pki_types::pem::PemObject;
use flatpath::tls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use flatpath::tls::rustls::version::{TLS12, TLS13};
use flatpath::tls::rustls::{
    ClientConfig, ClientConnection, ConfigBuilder, RootCertStore, SupportedProtocolVersion,
};
use flatpath::tls::{TlsConfig, provider};
use flatpath_driver::simulation::Client;
use flatpath_testkit::Issued;

use crate::lines::Lines;

pub(crate) const TURNS_MAX: usize = 100_000;

/// The server's certificate, one for all tests.
pub(crate) fn identity() -> &'static Issued {
    static IDENTITY: OnceLock<Issued> = OnceLock::new();
    IDENTITY.get_or_init(Issued::for_localhost)
}

/// A server's configuration with that identity.
pub(crate) fn server_config() -> TlsConfig {
    let Issued { certificate, key } = identity();
    TlsConfig::from_pem(certificate.as_bytes(), key.as_bytes()).expect("a pair")
}

/// What clients of one version are configured with; a clone knows the same sessions.
pub(crate) fn client_config(version: &'static SupportedProtocolVersion) -> Arc<ClientConfig> {
    Arc::new(verifying(version).with_no_client_auth())
}

/// Of clients that show this certificate.
pub(crate) fn client_config_of(
    version: &'static SupportedProtocolVersion,
    issued: &Issued,
) -> Arc<ClientConfig> {
    let certificate = CertificateDer::from_pem_slice(issued.certificate.as_bytes());
    let key = PrivateKeyDer::from_pem_slice(issued.key.as_bytes()).expect("in PEM");
    let chain = vec![certificate.expect("in PEM")];
    let config = verifying(version).with_client_auth_cert(chain, key);
    Arc::new(config.expect("a pair"))
}

fn verifying(
    version: &'static SupportedProtocolVersion,
) -> ConfigBuilder<ClientConfig, WantsClientCert> {
    let certificate = CertificateDer::from_pem_slice(identity().certificate.as_bytes());
    let mut roots = RootCertStore::empty();
    roots.add(certificate.expect("in PEM")).expect("a root");
    ClientConfig::builder_with_provider(Arc::new(provider()))
        .with_protocol_versions(&[version])
        .expect("known")
        .with_root_certificates(roots)
}

pub(crate) const VERSIONS: [&SupportedProtocolVersion; 2] = [&TLS12, &TLS13];

/// See the module.
pub(crate) struct TlsClient {
    pub(crate) tls: ClientConnection,
    /// What the server has said.
    pub(crate) heard: Vec<u8>,
    /// Why nothing more can be heard.
    pub(crate) broken: Option<String>,
}

impl TlsClient {
    pub(crate) fn new(config: &Arc<ClientConfig>) -> TlsClient {
        let name = ServerName::try_from("localhost").expect("a name");
        TlsClient {
            tls: ClientConnection::new(Arc::clone(config), name).expect("a configuration"),
            heard: Vec::new(),
            broken: None,
        }
    }

    /// Says something, once the handshake is complete.
    pub(crate) fn say(&mut self, words: &[u8]) {
        self.tls.writer().write_all(words).expect("kept in memory");
    }

    /// The bytes to send.
    pub(crate) fn take(&mut self) -> Vec<u8> {
        let mut out = Vec::new();
        while self.tls.wants_write() {
            self.tls.write_tls(&mut out).expect("into memory");
        }
        out
    }

    /// The bytes that have come.
    pub(crate) fn feed(&mut self, mut bytes: &[u8]) {
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
    pub(crate) fn was_told_of_the_end(&mut self) -> bool {
        let state = self.tls.process_new_packets();
        state.is_ok_and(|state| state.peer_has_closed())
    }
}

/// A client of a server in simulation.
pub(crate) struct End {
    pub(crate) client: Client,
    pub(crate) tls: TlsClient,
}

impl End {
    pub(crate) fn new(server: &SimulatedServer, version: usize) -> End {
        End::with(server, &client_config(VERSIONS[version]))
    }

    pub(crate) fn with(server: &SimulatedServer, config: &Arc<ClientConfig>) -> End {
        End {
            client: server.connect(),
            tls: TlsClient::new(config),
        }
    }

    /// Lets it talk until neither side has anything to say.
    pub(crate) fn talk(&mut self, server: &mut SimulatedServer) {
        for _ in 0..60 {
            let said = self.tls.take();
            if !said.is_empty() {
                self.client.write(&said);
            }
            server.turn();
            self.tls.feed(&self.client.read());
        }
    }

    pub(crate) fn hears(&mut self, server: &mut SimulatedServer) -> String {
        self.talk(server);
        String::from_utf8(std::mem::take(&mut self.tls.heard)).expect("text")
    }
}

pub(crate) fn tls_conditions(limits: Limits, tls: TlsConfig) -> Conditions {
    Conditions {
        limits,
        tls: Some(tls),
        ..Conditions::calm(1)
    }
}

/// A server with TLS, and a client of it.
pub(crate) struct Pair {
    pub(crate) server: SimulatedServer,
    pub(crate) end: End,
}

impl Pair {
    pub(crate) fn new(version: usize, limits: Limits) -> Pair {
        let conditions = tls_conditions(limits, server_config());
        let server = SimulatedServer::new(conditions, Lines);
        let end = End::new(&server, version);
        Pair { server, end }
    }

    pub(crate) fn talk(&mut self) {
        self.end.talk(&mut self.server);
    }

    pub(crate) fn shaken(version: usize) -> Pair {
        let mut pair = Pair::new(version, Limits::default());
        pair.talk();
        assert!(!pair.end.tls.tls.is_handshaking());
        pair
    }

    pub(crate) fn hears(&mut self) -> String {
        self.end.hears(&mut self.server)
    }

    pub(crate) fn finish(mut self) {
        self.end.client.abort();
        self.server.drain();
        self.server.end(TURNS_MAX);
    }
}
