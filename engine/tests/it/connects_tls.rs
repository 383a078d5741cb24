//! TLS to servers that this one connects to.

use std::io::{Read, Write};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use flatpath::simulation::{Answer, Client, Conditions, Faults, SimulatedServer};
use flatpath::tls::rustls::pki_types::pem::PemObject;
use flatpath::tls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use flatpath::tls::rustls::server::WebPkiClientVerifier;
use flatpath::tls::rustls::{
    ClientConfig, RootCertStore, ServerConfig, ServerConnection, SupportedProtocolVersion,
};
use flatpath::{Connect, Server};
use flatpath_driver::simulation::{ClientState, each_seed};
use flatpath_testkit::authority::Authority;
use flatpath_testkit::tls::VERSIONS;
use flatpath_testkit::{Issued, tls};

use crate::connects::{Calls, Heard, TURNS_MAX, far_address, turns};
use crate::lines::{Lines, on_both};
use crate::tls_client::{identity, server_config};

/// Far beyond what anything here takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// Of each version, without a session of before.
fn config(version: usize) -> Arc<ClientConfig> {
    made(VERSIONS[version], None)
}

/// The same one in each call: it remembers sessions, so it is for one test.
fn kept_config(version: usize) -> Arc<ClientConfig> {
    static CONFIGS: OnceLock<Vec<Arc<ClientConfig>>> = OnceLock::new();
    let configs = CONFIGS.get_or_init(|| [0, 1].map(config).to_vec());
    Arc::clone(&configs[version])
}

fn made(version: &'static SupportedProtocolVersion, own: Option<&Issued>) -> Arc<ClientConfig> {
    let mut config = tls::client_config(&identity().certificate, own, &[version]);
    config.alpn_protocols = [&b"h2"[..], b"http/1.1", b"lines"]
        .map(<[u8]>::to_vec)
        .to_vec();
    Arc::new(config)
}

fn localhost() -> ServerName<'static> {
    ServerName::try_from("localhost").expect("a name")
}

fn with_12(wish: Connect) -> Connect {
    wish.tls(config(0), localhost())
}

fn with_13(wish: Connect) -> Connect {
    wish.tls(config(1), localhost())
}

const BOTH: [fn(Connect) -> Connect; 2] = [with_12, with_13];

/// Another server with TLS, without a socket.
struct Far {
    tls: ServerConnection,
    client: Client,
    heard: Vec<u8>,
}

fn far_config(clients: Option<&Authority>) -> Arc<ServerConfig> {
    let Issued { certificate, key } = identity();
    let chain = CertificateDer::from_pem_slice(certificate.as_bytes()).expect("in PEM");
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).expect("in PEM");
    let provider = Arc::new(flatpath::tls::provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider));
    let builder = builder
        .with_safe_default_protocol_versions()
        .expect("known");
    let builder = match clients {
        None => builder.with_no_client_auth(),
        Some(authority) => {
            let mut roots = RootCertStore::empty();
            let root = authority.certificate();
            let root = CertificateDer::from_pem_slice(root.as_bytes()).expect("in PEM");
            roots.add(root).expect("a root");
            let verifier =
                WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
            builder.with_client_cert_verifier(verifier.expect("a verifier"))
        }
    };
    let mut config = builder.with_single_cert(vec![chain], key).expect("a pair");
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Arc::new(config)
}

impl Far {
    fn new(client: Client, config: &Arc<ServerConfig>) -> Far {
        Far {
            tls: ServerConnection::new(Arc::clone(config)).expect("a configuration"),
            client,
            heard: Vec::new(),
        }
    }

    fn step(&mut self) {
        let read = self.client.read();
        let mut bytes = &read[..];
        while !bytes.is_empty() {
            self.tls.read_tls(&mut bytes).expect("of memory");
            if self.tls.process_new_packets().is_err() {
                break;
            }
            // An end is no concern of this test's.
            let _ = self.tls.reader().read_to_end(&mut self.heard);
        }
        let mut records = Vec::new();
        while self.tls.wants_write() {
            self.tls.write_tls(&mut records).expect("into memory");
        }
        if !records.is_empty() {
            self.client.write(&records);
        }
    }
}

/// A server that opens one connection, and the far end of that.
struct Opened {
    server: SimulatedServer,
    heard: Heard,
    client: Client,
    far: flatpath::simulation::Upstream,
}

impl Opened {
    fn new(conditions: Conditions, wish: fn(Connect) -> Connect) -> Opened {
        let (calls, heard) = Calls::new(far_address(), wish);
        let server = SimulatedServer::new(conditions, calls);
        let far = server.world().upstream(far_address(), Answer::Accepts);
        let client = server.connect();
        client.write(b"c");
        Opened {
            server,
            heard,
            client,
            far,
        }
    }

    fn peer(&mut self) -> Client {
        for _ in 0..TURNS_MAX {
            if let Some(peer) = self.far.accept() {
                return peer;
            }
            self.server.turn();
        }
        panic!("nothing was opened");
    }

    fn until(&mut self, words: &str, mut step: impl FnMut()) {
        for _ in 0..TURNS_MAX {
            if self.heard.lock().iter().any(|heard| heard == words) {
                return;
            }
            step();
            self.server.turn();
        }
        panic!("never heard {words:?}: {:?}", self.heard.lock());
    }

    fn finish(mut self) {
        drop(self.client);
        self.server.force();
        self.server.end(TURNS_MAX);
    }
}

const CONNECTED: &str = "connected 192.0.2.1:80";

#[test]
fn sim_bytes_go_both_ways_and_a_session_is_resumed() {
    each_seed(40, |seed| {
        let version = (seed % 2) as usize;
        let faults = Faults::mixed(seed).without_losses();
        let conditions = || Conditions {
            faults: faults.clone(),
            ..Conditions::calm(seed)
        };
        let config = far_config(None);
        for is_second in [false, true] {
            let kept: [fn(Connect) -> Connect; 2] = [
                |wish| wish.tls(kept_config(0), localhost()),
                |wish| wish.tls(kept_config(1), localhost()),
            ];
            let mut opened = Opened::new(conditions(), kept[version]);
            let mut far = Far::new(opened.peer(), &config);
            opened.until("secured", || far.step());
            far.tls.writer().write_all(b"told").expect("kept");
            opened.until("told", || far.step());
            // Both are said once there is a connection, and neither waits for the other.
            for _ in 0..TURNS_MAX {
                if far.heard == b"ping\n" {
                    break;
                }
                opened.server.turn();
                far.step();
            }
            assert_eq!(far.heard, b"ping\n", "seed {seed}");
            let heard = opened.heard.lock().clone();
            let name = ["1.2", "1.3"][version];
            let resumed = if is_second { " resumed" } else { "" };
            let connected = format!("{CONNECTED} {name} http/1.1{resumed}");
            assert_eq!(heard, ["secured", &connected, "told"], "seed {seed}");
            assert_eq!(opened.server.statistics().connections_opened, 1);
            opened.finish();
        }
    });
}

#[test]
fn sim_a_server_is_shown_this_ones_certificate() {
    let authority = Authority::new("clients");
    let issued = authority.issue("flatpath", 7, 2090);
    static OWN: OnceLock<Issued> = OnceLock::new();
    OWN.get_or_init(|| issued);
    let wish: fn(Connect) -> Connect = |wish| {
        let own = OWN.get();
        wish.tls(made(VERSIONS[1], own), localhost())
    };
    let config = far_config(Some(&authority));
    let mut opened = Opened::new(Conditions::calm(1), wish);
    let mut far = Far::new(opened.peer(), &config);
    opened.until("secured", || far.step());
    turns(&mut opened.server, 10);
    far.step();
    assert!(far.tls.peer_certificates().is_some());
    opened.finish();
    // Without one, the server ends the handshake; in TLS 1.3 this side is done by then.
    let mut opened = Opened::new(Conditions::calm(1), with_12);
    let mut far = Far::new(opened.peer(), &config);
    let words = "TLS failed: the server has ended the handshake \
                 (received fatal alert: CertificateRequired)";
    opened.until(words, || far.step());
    opened.finish();
}

#[test]
fn sim_a_server_that_is_another_is_not_talked_to() {
    let wishes: [fn(Connect) -> Connect; 2] = [
        |wish| {
            let other = ServerName::try_from("another.example").expect("a name");
            wish.tls(config(1), other)
        },
        |wish| {
            let stranger = Issued::for_localhost();
            let config = tls::client_config(&stranger.certificate, None, &[VERSIONS[1]]);
            wish.tls(Arc::new(config), localhost())
        },
    ];
    for wish in wishes {
        let mut opened = Opened::new(Conditions::calm(1), wish);
        let mut far = Far::new(opened.peer(), &far_config(None));
        for _ in 0..TURNS_MAX {
            if !opened.heard.lock().is_empty() {
                break;
            }
            far.step();
            opened.server.turn();
        }
        turns(&mut opened.server, 10);
        let heard = opened.heard.lock().clone();
        assert_eq!(heard.len(), 2, "{heard:?}");
        let words = "TLS failed: the server's certificate does not hold (";
        assert!(
            heard[0].starts_with(words) && heard[1] == "closed",
            "{heard:?}"
        );
        assert_eq!(opened.server.statistics().connect_tls, 1);
        assert!(far.heard.is_empty(), "nothing was said");
        opened.finish();
    }
}

#[test]
fn sim_what_is_no_tls_or_ends_or_says_nothing_is_told_apart() {
    type Act = fn(&Client);
    let cases: [(Act, &str); 4] = [
        (
            |peer| peer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n"),
            "TLS failed: the server does not speak TLS (the server does not speak TLS)",
        ),
        (
            |peer| peer.shutdown_write(),
            "TLS failed: the connection has ended within the handshake",
        ),
        (
            |peer| peer.abort(),
            "TLS failed: the connection has ended within the handshake",
        ),
        (|_| {}, "TLS failed: nothing came back in time"),
    ];
    for (act, words) in cases {
        let mut opened = Opened::new(Conditions::calm(1), with_13);
        let peer = opened.peer();
        turns(&mut opened.server, 10);
        act(&peer);
        turns(&mut opened.server, 10);
        opened.server.advance(Duration::from_secs(10));
        turns(&mut opened.server, 20);
        assert_eq!(*opened.heard.lock(), [words, "closed"]);
        opened.finish();
    }
}

#[test]
fn sim_force_ends_a_handshake() {
    let mut opened = Opened::new(Conditions::calm(1), with_13);
    let peer = opened.peer();
    turns(&mut opened.server, 10);
    opened.server.force();
    opened.server.end(TURNS_MAX);
    let words = "TLS failed: this server is being ended";
    assert_eq!(*opened.heard.lock(), [words, "closed"]);
    assert_ne!(peer.state(), ClientState::Open);
}

#[test]
fn sim_a_server_that_is_not_there_has_no_handshake() {
    let (calls, heard) = Calls::new(far_address(), with_13);
    let mut server = SimulatedServer::new(Conditions::calm(1), calls);
    let client = server.connect();
    client.write(b"c");
    turns(&mut server, 10);
    let words = "connecting failed: no process listens there";
    assert_eq!(*heard.lock(), [words, "closed"]);
    drop(client);
    server.force();
    server.end(TURNS_MAX);
}

/// Whatever goes wrong: one beginning and one end.
#[test]
fn sim_faults_leave_nothing() {
    each_seed(100, |seed| {
        let conditions = Conditions {
            faults: Faults::mixed(seed),
            ..Conditions::calm(seed)
        };
        let mut opened = Opened::new(conditions, BOTH[(seed % 2) as usize]);
        let config = far_config(None);
        let mut far = None;
        for _ in 0..150 {
            opened.server.turn();
            let accept = || opened.far.accept().map(|peer| Far::new(peer, &config));
            far = far.or_else(accept);
            far.iter_mut().for_each(Far::step);
        }
        opened.server.force();
        opened.server.end(TURNS_MAX);
        let heard = opened.heard.lock();
        let first = |words: &&String| !matches!(words.as_str(), "secured" | "closed" | "ended");
        let closed = heard.iter().filter(|words| *words == "closed").count();
        let begun = heard.iter().filter(first).count();
        // What never was wished, as its client's connection was lost, is neither.
        assert_eq!(begun, closed, "seed {seed}: {heard:?}");
    });
}

#[test]
fn a_server_is_talked_to_on_real_sockets() {
    on_both(|choice| {
        let far = Server::new().driver(choice).listen("127.0.0.1:0", Lines);
        let far = far.with_tls(&server_config()).start().expect("started");
        for wish in BOTH {
            let (calls, heard) = Calls::new(far.addresses()[0].address, wish);
            let front = Server::new().driver(choice).listen("127.0.0.1:0", calls);
            let front = front.start().expect("started");
            let address = front.addresses()[0].address;
            let mut client = std::net::TcpStream::connect(address).expect("connected");
            client.write_all(b"c").expect("written");
            let deadline = Instant::now() + PATIENCE;
            while heard.lock().len() < 3 {
                assert!(Instant::now() < deadline, "{:?}", heard.lock());
                std::thread::sleep(Duration::from_millis(1));
            }
            let heard = heard.lock().clone();
            assert_eq!((&*heard[0], &*heard[2]), ("secured", "pong\n"), "{heard:?}");
        }
    });
}
