//! Many connections, and what it costs to operate a server: what is not one request
//! again and again by HTTP.

use std::time::Duration;

use flatpath_bench_common::nginx::{HELLO_BODY, HELLO_PATH};
use flatpath_bench_common::report::Wanted::{AtMost, Below};
use flatpath_bench_common::servers::CPU;

use crate::comparison::{Beside, Comparison, Row, beside};
use crate::ground::{Pinning, SMALL_PATH, small_body};
use crate::kind::Kind;
use crate::loads::idle::{IDLE, Idle};
use crate::loads::operated::Operated;
use crate::loads::sleepers::{ALONE, PACED, QUICK, Sleepers};
use crate::loads::sse::{self, Sse};
use crate::loads::websocket::{self, Echoes};
use crate::loads::wrk::Request;
use crate::server::{Needs, Service};

/// One request in ten sleeps.
pub(super) fn sleepers() -> Comparison {
    const CONNECTIONS: u32 = 200;
    const WORKERS: u32 = 32;
    let about = format!("one in ten sleeps 10 ms, {CONNECTIONS} connections, {WORKERS} workers");
    let needs = Needs {
        workers: Some(WORKERS),
        ..Needs::of(Service::Http, CONNECTIONS)
    };
    let kinds = [
        Kind::HyperBlocking,
        Kind::HyperRouted,
        Kind::TinyHttp,
        Kind::FlatpathPooled,
        Kind::FlatpathRouted,
    ];
    let (ours, theirs) = ([Kind::FlatpathRouted], beside(Kind::HyperBlocking));
    Comparison::new(
        "sleepers",
        about,
        Row::of(&kinds, &needs),
        Sleepers(CONNECTIONS),
    )
    .ratios(Kind::HyperBlocking, &[QUICK])
    .note("alone: the same load without sleepers; paced: without them at the rate it had with them")
    .wants(ours, QUICK, &Beside::Own(ALONE), AtMost(2.0))
    .wants(ours, QUICK, &Beside::Own(PACED), AtMost(2.0))
    .wants(ours, QUICK, &theirs, Below(1.0))
}

/// Memory of this many connections that wait.
pub(super) fn idle(connections: u32) -> Comparison {
    let about = format!("{connections} idle keep-alive connections");
    let kinds = [
        Kind::Nginx,
        Kind::Hyper,
        Kind::HyperBlocking,
        Kind::TinyHttp,
        Kind::FlatpathInline,
        Kind::FlatpathBefore,
        Kind::Flatpath,
    ];
    let ours = [Kind::FlatpathInline, Kind::Flatpath];
    let load = Idle {
        connections,
        asked: |kind| match kind {
            Kind::Flatpath | Kind::FlatpathBefore => Request::of(SMALL_PATH, small_body()),
            _ => Request::of(HELLO_PATH, HELLO_BODY),
        },
    };
    let rows = Row::of(&kinds, &Needs::of(Service::Http, connections));
    Comparison::new("idle", about, rows, load)
        .runs(3)
        .crowd(connections)
        .wants(ours, IDLE, &Beside::Nothing, AtMost(1024.0))
}

/// What an access log, scrapes and a crowd that waits add to a request.
pub(super) fn operate(crowd: u32) -> Comparison {
    const CONNECTIONS: u32 = 50;
    let about =
        format!("a hot file, {CONNECTIONS} connections; flatpath-operated: and {crowd} that wait");
    let needs = Needs {
        pinning: Pinning::GeneratorOnOneCore,
        // With fewer than a sixteenth of its places free, a server closes idle connections.
        ..Needs::of(Service::Http, CONNECTIONS + crowd + crowd / 8)
    };
    let ours = [
        Kind::FlatpathLog,
        Kind::FlatpathLogJson,
        Kind::FlatpathScraped,
        Kind::FlatpathOperated,
    ];
    let bare = [
        Kind::Nginx,
        Kind::NginxLog,
        Kind::NginxLogBuffered,
        Kind::Flatpath,
    ];
    let load = Operated {
        connections: CONNECTIONS,
        crowd,
    };
    let rows = Row::of(&[bare, ours].concat(), &needs);
    Comparison::new("operate", about, rows, load)
        .crowd(crowd)
        .ratios(Kind::Nginx, &[CPU])
        .ratios(Kind::Flatpath, &[CPU])
        .wants(ours, CPU, &beside(Kind::Flatpath), AtMost(1.03))
}

/// Server-sent events to this many, one after each interval, for so long.
pub(super) fn sse(listeners: u32, every: Duration, time: Duration) -> Comparison {
    let about = format!("{listeners} listeners of server-sent events, one a second to all");
    let needs = Needs {
        // Far fewer threads that may block than listeners, so that none can be held by one.
        workers: Some(2),
        every,
        ..Needs::of_crowd(Service::Http, listeners)
    };
    let ours = [Kind::SseUring, Kind::SseEpoll];
    let rows = Row::of(&[Kind::SseAxum, ours[0], ours[1]], &needs);
    let load = Sse { listeners, time };
    let mut table = Comparison::new("sse", about, rows, load)
        .runs(3)
        .crowd(listeners)
        .ratios(Kind::SseAxum, &[sse::CPU_EVENT]);
    for ours in ours {
        table = table
            .wants([ours], sse::CPU_EVENT, &beside(Kind::SseAxum), AtMost(0.7))
            .wants([ours], sse::MEMORY, &Beside::Nothing, AtMost(1536.0))
            .wants([ours], sse::BESIDE, &Beside::Own(sse::ALONE), AtMost(2.0));
    }
    table
}

/// Messages over WebSockets, and this many sockets that wait.
pub(super) fn websocket(clients: u32) -> Vec<Comparison> {
    /// A line of a chat, and a page of JSON. The header of the frame is extra.
    const MESSAGES: [usize; 2] = [100, 4000];
    let theirs = Kind::SocketsTungstenite;
    let ours = [Kind::SocketsUring, Kind::SocketsEpoll];
    let kinds = [theirs, ours[0], ours[1]];
    let connections = websocket::CONNECTIONS;
    let echo = |bytes| {
        let about = format!("WebSocket echo of {bytes} bytes, {connections} connections, one core");
        let needs = Needs {
            pinning: Pinning::ServerOnOneCore,
            ..Needs::of(Service::Http, connections as u32)
        };
        Comparison::new("websocket", about, Row::of(&kinds, &needs), Echoes(bytes))
            .ratios(theirs, &[CPU])
            .wants(ours, CPU, &beside(theirs), AtMost(0.7))
    };
    let about = format!("{clients} idle WebSockets");
    let rows = Row::of(&kinds, &Needs::of_crowd(Service::Http, clients));
    let load = websocket::Idle(clients, MESSAGES[0]);
    let idle = Comparison::new("websocket-idle", about, rows, load)
        .crowd(clients)
        .wants(ours, IDLE, &Beside::Nothing, AtMost(1024.0));
    MESSAGES.into_iter().map(echo).chain([idle]).collect()
}
