//! TLS: what a request, a handshake and an idle connection cost, and how long clients wait while
//! others shake hands. HTTP/2, over TLS and without it: the same of requests alone and among others
//! of their connection.
//!
//! Every server has the same certificate and key, takes TLS 1.2 and 1.3, has tickets and no cache
//! of sessions. Among OpenSSL 3.0 and rustls all choose TLS 1.3, X25519 and AES-256-GCM. nginx
//! serves HTTP/2 alone where it has no TLS; ours finds out what a client speaks.

use flatpath_bench_common::report::Wanted::AtMost;
use flatpath_bench_common::servers::{CPU, RATE};

use crate::comparison::{Beside, Comparison, Load, Row, beside};
use crate::ground::{LARGE_PATH, SMALL_PATH, large_body, small_body};
use crate::kind::Kind;
use crate::loads::handshakes::Handshakes;
use crate::loads::idle::{IDLE, Idle};
use crate::loads::storm::{ALONE, BESIDE, HANDSHAKES, Storms};
use crate::loads::streams::{Asked, Streams, Waiting};
use crate::loads::wrk::{Request, Wrk};
use crate::server::{Needs, Service};

const CONNECTIONS: u32 = 50;
/// Clients beside a storm.
const CALM: u32 = 50;
/// `--memory` of ours for HTTP/2: MiB, and connections for each MiB more. With the default it would
/// end some of ten thousand.
const MEMORY_MIB: u32 = 256;
const CONNECTIONS_PER_MIB: u32 = 8;

const OURS: [Kind; 2] = [Kind::FlatpathUring, Kind::FlatpathEpoll];

/// HTTP/1.1 over TLS, with this many connections that wait, and newcomers at once.
pub(super) fn https(clients: u32, newcomers: u32) -> Vec<Comparison> {
    let small = || Request::of(SMALL_PATH, small_body());
    let large = Request::of(LARGE_PATH, large_body());
    let mut tables: Vec<_> = [
        ("small file", small(), 50, 0.7),
        ("small file", small(), 200, 0.7),
        ("file of 1 MiB", large, 50, 1.0),
    ]
    .into_iter()
    .map(|(what, request, connections, most)| {
        let about = format!("{what} over TLS, keep-alive, {connections} connections");
        let load = Wrk::kept(request, connections);
        beside_nginx(https_of("https", about, connections, load), most)
    })
    .collect();
    let about = format!("small file over TLS, a full handshake each, {CONNECTIONS} connections");
    let load = Handshakes(CONNECTIONS);
    let handshakes = https_of("https-handshakes", about, CONNECTIONS, load)
        .note("the load is not wrk, which resumes sessions; its clients never do, and use TLS 1.3");
    tables.push(beside_nginx(handshakes, 0.9));
    let idle = Idle {
        connections: clients,
        asked: |_| Request::of(SMALL_PATH, small_body()),
    };
    let about = format!("{clients} idle connections over TLS 1.3");
    tables.push(
        https_of("https-idle", about, clients + clients / 8, idle)
            .crowd(clients)
            .ratios(Kind::Nginx, &[IDLE])
            .ratios(Kind::HttpsHyper, &[IDLE])
            .wants(OURS, IDLE, &Beside::Nothing, AtMost(2048.0)),
    );
    let about = format!("{CALM} calm clients over TLS, and {newcomers} handshakes at once");
    let storms = Storms {
        calm: CALM,
        newcomers,
    };
    // Those of a thousand that are gone may still be closing when the next ones come.
    tables.push(
        https_of("https-storm", about, CALM + 4 * newcomers, storms)
            .ratios(Kind::Nginx, &[BESIDE, HANDSHAKES])
            .wants(OURS, BESIDE, &Beside::Own(ALONE), AtMost(2.0)),
    );
    tables
}

fn https_of(
    bench: &'static str,
    about: String,
    connections: u32,
    load: impl Load + 'static,
) -> Comparison {
    let kinds = [Kind::Nginx, Kind::HttpsHyper, OURS[0], OURS[1]];
    let rows = Row::of(&kinds, &Needs::of(Service::Https, connections));
    Comparison::new(bench, about, rows, load)
}

fn beside_nginx(table: Comparison, most: f64) -> Comparison {
    table
        .ratios(Kind::Nginx, &[CPU, RATE])
        .wants(OURS, CPU, &beside(Kind::Nginx), AtMost(most))
}

/// HTTP/2, with this many connections that wait.
pub(super) fn http2(clients: u32) -> Vec<Comparison> {
    let theirs = [Kind::Http2Nginx, Kind::Lighttpd, Kind::H2o];
    let plain = [&theirs[..], &OURS].concat();
    let secured = [&plain[..], &[Kind::HttpsHyper]].concat();
    let (https, http) = (Service::Https, Service::Http);
    let mut tables = http2_by("HTTP/2 over TLS", https, &secured, &plain, clients);
    tables.extend(http2_by(
        "HTTP/2 without TLS",
        http,
        &plain,
        &plain,
        clients,
    ));
    tables
}

fn http2_by(
    over: &str,
    service: Service,
    kinds: &[Kind],
    with_paths: &[Kind],
    clients: u32,
) -> Vec<Comparison> {
    let ours = OURS;
    let rows = |kinds: &[Kind], connections| {
        let needs = Needs {
            memory: Some(MEMORY_MIB + connections / CONNECTIONS_PER_MIB),
            ..Needs::of(service, connections)
        };
        Row::of(kinds, &needs)
    };
    let (nginx, h2o) = (Kind::Http2Nginx, Kind::H2o);
    let idle_bytes_max = match service {
        Service::Https => 3_000.0,
        _ => 1_300.0,
    };
    let requests = |(asked, streams, most)| {
        let (what, kinds) = match asked {
            Asked::Small => ("small file", kinds),
            // hyper's program answers whatever the path is.
            Asked::Absent => ("404", with_paths),
        };
        let about = format!(
            "{what} by {over}, {CONNECTIONS} connections with {streams} requests at a time"
        );
        let load = Streams {
            connections: CONNECTIONS,
            streams,
            asked,
        };
        Comparison::new("http2", about, rows(kinds, CONNECTIONS), load)
            .ratios(h2o, &[CPU, RATE])
            .ratios(nginx, &[CPU, RATE])
            .wants(ours, CPU, &beside(h2o), AtMost(most))
    };
    let about = format!("{clients} idle connections of {over}");
    let idle = Comparison::new(
        "http2-idle",
        about,
        rows(kinds, clients + clients / 8),
        Waiting(clients),
    );
    let idle = idle.crowd(clients).ratios(nginx, &[IDLE]).wants(
        ours,
        IDLE,
        &Beside::Nothing,
        AtMost(idle_bytes_max),
    );
    let asked = [
        (Asked::Small, 1, 0.65),
        (Asked::Small, 32, 0.6),
        (Asked::Absent, 32, 0.6),
    ];
    let mut tables: Vec<_> = asked.into_iter().map(requests).collect();
    tables.push(idle);
    tables
}
