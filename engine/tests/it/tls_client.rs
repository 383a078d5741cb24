//! A client with TLS of a server in simulation.

use std::sync::{Arc, OnceLock};

use flatpath::Limits;
use flatpath::simulation::{Conditions, SimulatedServer};
use flatpath::tls::TlsConfig;
use flatpath_driver::simulation::Client;
use flatpath_testkit::Issued;
use flatpath_testkit::tls;
use flatpath_testkit::tls::rustls::{ClientConfig, SupportedProtocolVersion};
pub(crate) use flatpath_testkit::tls::{TlsClient, VERSIONS};

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
    Arc::new(tls::client_config(
        &identity().certificate,
        None,
        &[version],
    ))
}

/// Of clients that show this certificate.
pub(crate) fn client_config_of(
    version: &'static SupportedProtocolVersion,
    issued: &Issued,
) -> Arc<ClientConfig> {
    Arc::new(tls::client_config(
        &identity().certificate,
        Some(issued),
        &[version],
    ))
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
