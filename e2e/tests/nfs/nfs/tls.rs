//! NFS over TLS (RFC 9289): a client that probes, makes the handshake and calls; and clients
//! without TLS, with an unknown certificate, and with calls in the clear after the probe.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

use flatpath_testkit::nfs::{
    AUTH_TLS, BAD_CREDENTIAL, Connection, Datagrams, STARTTLS, TOO_WEAK, getattr, lookup, mount,
    mount_null, null, read, write,
};
use flatpath_testkit::tls::rustls::{ClientConfig, ClientConnection, ProtocolVersion, StreamOwned};
use flatpath_testkit::{Authority, Driver, Issued, Server, Site, each_driver, tls};

use crate::nfs::serve;

each_driver!(
    calls_go_through_tls_after_a_probe,
    long_reads_and_writes_go_through_tls,
    without_tls_nothing_is_served_where_it_is_required,
    what_is_sent_in_the_clear_behind_the_probe_does_not_count,
    a_probe_has_its_place,
    a_certificate_names_the_only_clients,
    a_server_without_tls_says_so,
    a_client_that_has_only_tls_1_2_is_refused_and_web_browsers_with_it_are_not,
);

type Secured = Connection<StreamOwned<ClientConnection, TcpStream>>;

/// A server, its directory and its certificate.
struct Place {
    server: Server,
    certificate: String,
    _files: Site,
    _state: Site,
    site: Site,
}

impl Place {
    fn new(driver: Driver, more: &[&str]) -> Place {
        let Issued { certificate, key } = Issued::for_localhost();
        let files = Site::new().with("crt", &certificate).with("key", key);
        let (site, state) = (Site::new().with("file", "content"), Site::new());
        let at = |name: &str| files.at(name).display().to_string();
        let (crt, key) = (at("crt"), at("key"));
        let options = ["--tls-cert", &crt, "--tls-key", &key, "--nfs-tls"];
        let server = serve(driver, &site, &state, &[&options, more].concat());
        Place {
            server,
            certificate,
            _files: files,
            _state: state,
            site,
        }
    }

    fn connect(&self) -> Connection {
        Connection::open(self.server.address("nfs"))
    }

    fn config(&self, own: Option<&Issued>) -> Arc<ClientConfig> {
        let mut config = tls::client_config(&self.certificate, own, &tls::VERSIONS);
        config.alpn_protocols = vec![b"sunrpc".to_vec()];
        Arc::new(config)
    }

    /// Asks for TLS, and makes the handshake.
    fn secured(&self, own: Option<&Issued>) -> std::io::Result<Secured> {
        let mut plain = self.connect();
        assert_eq!(plain.probe().expect("a reply"), STARTTLS);
        handshake(&self.config(own), plain.stream)
    }

    fn end(self) {
        self.server.end();
    }
}

fn handshake(config: &Arc<ClientConfig>, stream: TcpStream) -> std::io::Result<Secured> {
    tls::handshake(config, stream).map(Connection::of)
}

fn calls_go_through_tls_after_a_probe(driver: Driver) {
    for how in ["required", "offered"] {
        let place = Place::new(driver, &[how]);
        let mut client = place.secured(None).expect("a handshake");
        assert_eq!(client.stream.conn.alpn_protocol(), Some(&b"sunrpc"[..]));
        assert_eq!(client.call(&null()).results, b"");
        let root = client.root();
        let file = client.lookup(&root, "file");
        assert_eq!(client.read(&file, 100), b"content");
        let made = client.create(&root, "made");
        assert_eq!(client.status(&write(&made, 0, b"words", 2)), 0);
        assert_eq!(
            std::fs::read(place.site.at("made")).expect("made"),
            b"words"
        );
        drop(client);
        place.end();
    }
}

fn long_reads_and_writes_go_through_tls(driver: Driver) {
    const BYTES: usize = 1 << 20;
    let place = Place::new(driver, &["required"]);
    let mut client = place.secured(None).expect("a handshake");
    let root = client.root();
    let file = client.create(&root, "long");
    let mut contents = Vec::new();
    for part in 0..4_u64 {
        let data = flatpath_testkit::noise(part, BYTES);
        let at = part * BYTES as u64;
        assert_eq!(client.status(&write(&file, at, &data, 0)), 0);
        contents.extend(data);
    }
    let on_disk = std::fs::read(place.site.at("long")).expect("written");
    assert!(on_disk == contents, "{} bytes", on_disk.len());
    for part in 0..4 {
        let at = part * BYTES;
        let data = client.call(&read(&file, at as u64, BYTES as u32)).data();
        assert!(data == contents[at..at + BYTES], "part {part}");
    }
    // All at once: their replies come in any order.
    let calls = (0..16_u32).map(|xid| read(&file, u64::from(xid) << 16, 1 << 16).record(xid));
    client.send(&calls.collect::<Vec<_>>().concat());
    for _ in 0..16 {
        let reply = client.reply();
        let at = (reply.xid as usize) << 16;
        assert!(
            reply.data() == contents[at..at + (1 << 16)],
            "{}",
            reply.xid
        );
    }
    drop(client);
    place.end();
}

fn without_tls_nothing_is_served_where_it_is_required(driver: Driver) {
    let portmapper = ["required", "--nfs-portmapper", "127.0.0.1:0"];
    let place = Place::new(driver, &portmapper);
    let mut plain = place.connect();
    // What mount(8) asks before it begins: as it does in the clear, over TCP and UDP.
    assert_eq!(plain.call(&null()).results, b"");
    assert_eq!(plain.call(&mount_null()).results, b"");
    let handle = plain.root();
    let datagrams = Datagrams::open(place.server.address("nfs-udp"));
    let mounted = datagrams.exchange(&mount("/").record(9)[4..]);
    let told = mounted.windows(handle.len()).any(|it| it == handle);
    assert!(told, "the same handle over UDP");
    // That is good for nothing.
    let calls = [
        getattr(&handle),
        read(&handle, 0, 1),
        lookup(&handle, "file"),
        write(&handle, 0, b"x", 2),
    ];
    for (xid, call) in (1..).zip(calls) {
        plain.send(&call.record(xid));
        let reply = plain.message().expect("a reply");
        assert_eq!(&reply[4..], TOO_WEAK, "procedure {}", call.procedure);
    }
    // It may still begin.
    assert_eq!(plain.probe().expect("a reply"), STARTTLS);
    let mut client = handshake(&place.config(None), plain.stream).expect("a handshake");
    let root = client.root();
    assert_eq!(client.status(&getattr(&root)), 0);
    drop(client);
    place.end();
    let place = Place::new(driver, &["offered"]);
    let mut plain = place.connect();
    let root = plain.root();
    assert_eq!(plain.status(&getattr(&root)), 0);
    drop(plain);
    place.end();
}

/// An attacker on the path injects calls between a client's probe and its handshake: they are never
/// answered, neither in the clear nor as calls of the client that TLS then has.
fn what_is_sent_in_the_clear_behind_the_probe_does_not_count(driver: Driver) {
    let place = Place::new(driver, &["offered"]);
    let probe = null().record_with(&AUTH_TLS, 1);
    let call = null().record(2);
    // In one piece, and cut anywhere.
    let both = [&probe[..], &call].concat();
    for cut in [both.len(), probe.len() + 4, 20] {
        let mut plain = place.connect();
        plain.send(&both[..cut]);
        if cut < both.len() {
            plain.send(&both[cut..]);
        }
        let mut said = Vec::new();
        let ended = plain.stream.read_to_end(&mut said);
        // A reset is an end as well.
        let in_time = ended.map_or_else(|error| error.kind() != ErrorKind::WouldBlock, |_| true);
        assert!(in_time, "cut at {cut}: nothing happens");
        assert_eq!(said, b"", "cut at {cut}: something was answered");
    }
    let mut plain = place.connect();
    assert_eq!(plain.probe().expect("a reply"), STARTTLS);
    plain.send(&call);
    match plain.message() {
        Ok(said) => panic!("a call in the clear was answered: {said:?}"),
        Err(error) => assert_ne!(error.kind(), ErrorKind::WouldBlock, "nothing happens"),
    }
    // It lingers for as long as its client is there.
    drop(plain);
    place.end();
}

fn a_probe_has_its_place(driver: Driver) {
    let place = Place::new(driver, &["offered"]);
    // Not NULL; of a program that is not here; with a credential that says something.
    let mut plain = place.connect();
    plain.send(&getattr(b"handle").record_with(&AUTH_TLS, 1));
    assert_eq!(plain.message().expect("a reply")[4..], *BAD_CREDENTIAL);
    plain.send(&null().record_with(&[7, 4, 0, 0, 0], 2));
    assert_eq!(plain.message().expect("a reply")[4..], *BAD_CREDENTIAL);
    assert_eq!(plain.call(&null()).results, b"");
    // MOUNT is as good as NFS.
    plain.send(&mount_null().record_with(&AUTH_TLS, 3));
    assert_eq!(plain.message().expect("a reply")[4..], *STARTTLS);
    let mut client = handshake(&place.config(None), plain.stream).expect("a handshake");
    // Twice is once too often.
    assert_eq!(client.probe().expect("a reply"), BAD_CREDENTIAL);
    let root = client.root();
    assert_eq!(client.status(&getattr(&root)), 0);
    drop(client);
    place.end();
}

fn a_certificate_names_the_only_clients(driver: Driver) {
    let (ours, other) = (Authority::new("ours"), Authority::new("other"));
    let files = Site::new().with("ca", ours.certificate());
    let ca = files.at("ca").display().to_string();
    let place = Place::new(driver, &["required", "--tls-client-ca", &ca]);
    let good = ours.issue("good", 1, 2999);
    let mut client = place.secured(Some(&good)).expect("a handshake");
    let root = client.root();
    assert_eq!(client.status(&getattr(&root)), 0);
    drop(client);
    for (name, own) in [
        ("none", None),
        ("foreign", Some(other.issue("foreign", 1, 2999))),
        ("expired", Some(ours.issue("expired", 2, 2001))),
    ] {
        // With TLS 1.3 the client's handshake ends before the server has looked at it.
        let refused = place.secured(own.as_ref()).and_then(|mut client| {
            client.try_call(&null())?;
            client.stream.flush()
        });
        refused.expect_err(name);
    }
    place.end();
}

fn a_server_without_tls_says_so(driver: Driver) {
    let (site, state) = (Site::new(), Site::new());
    let server = serve(driver, &site, &state, &[]);
    let mut plain = Connection::open(server.address("nfs"));
    assert_eq!(plain.probe().expect("a reply"), BAD_CREDENTIAL);
    assert_eq!(plain.call(&null()).results, b"");
    drop(plain);
    server.end();
}

/// RFC 9289 section 5: "TLS version 1.3 or later". HTTPS of the same server, with the same
/// certificate, takes both.
fn a_client_that_has_only_tls_1_2_is_refused_and_web_browsers_with_it_are_not(driver: Driver) {
    for how in ["required", "offered"] {
        let place = Place::new(driver, &[how, "--https", "127.0.0.1:0"]);
        let only = |version| {
            let config = tls::client_config(&place.certificate, None, &[version]);
            Arc::new(config)
        };
        let (old, new) = (only(tls::VERSIONS[0]), only(tls::VERSIONS[1]));
        let mut plain = place.connect();
        assert_eq!(plain.probe().expect("a reply"), STARTTLS);
        let refused = handshake(&old, plain.stream).map(|_| ());
        let refused = refused.expect_err("TLS 1.2").to_string();
        assert!(refused.contains("ProtocolVersion"), "{refused}");
        for config in [new, place.config(None)] {
            let mut plain = place.connect();
            assert_eq!(plain.probe().expect("a reply"), STARTTLS);
            let client = handshake(&config, plain.stream).expect("TLS 1.3");
            let version = client.stream.conn.protocol_version();
            assert_eq!(version, Some(ProtocolVersion::TLSv1_3), "{how}");
        }
        let web = TcpStream::connect(place.server.address("https")).expect("it listens");
        tls::handshake(&old, web).expect("HTTPS takes TLS 1.2");
        place.end();
    }
}
