//! A reverse proxy: what passing a request on costs it, over kept connections, with a new one of
//! the client's each time, over TLS in front, and with a longer reply.
//!
//! All have one thread and idle connections for the whole load. The part of the server that is
//! asked is not counted.

use flatpath_bench_common::report::Wanted::AtMost;
use flatpath_bench_common::servers::{CPU, P99, RATE};
use flatpath_bench_common::wrk::Lifetime;

use crate::comparison::{Comparison, Row, beside};
use crate::ground::{LARGE_PATH, SMALL_PATH, large_body, small_body};
use crate::kind::Kind;
use crate::loads::proxied::Proxied;
use crate::loads::wrk::{Request, Wrk};
use crate::server::{Needs, Service};

const CONNECTIONS: u32 = 50;
const OURS: [Kind; 2] = [Kind::ProxyUring, Kind::ProxyEpoll];

pub(super) fn tables() -> Vec<Comparison> {
    let small = || Request::of(SMALL_PATH, small_body());
    let large = || Request::of(LARGE_PATH, large_body());
    let kept = Lifetime::KeepAlive;
    [
        ("small reply, keep-alive", Service::Http, small(), kept, 0.6),
        (
            "small reply, a connection each",
            Service::Http,
            small(),
            Lifetime::Close,
            0.7,
        ),
        (
            "small reply over TLS, keep-alive",
            Service::Https,
            small(),
            kept,
            0.6,
        ),
        (
            "reply of 1 MiB, keep-alive",
            Service::Http,
            large(),
            kept,
            0.5,
        ),
    ]
    .into_iter()
    .map(|(about, service, request, lifetime, most)| {
        let kinds = [&[Kind::ProxyNginx, Kind::ProxyHaproxy][..], &OURS].concat();
        let rows = Row::of(&kinds, &Needs::of(service, 2 * CONNECTIONS));
        let load = Wrk {
            request,
            connections: CONNECTIONS,
            lifetime,
        };
        let about = format!("{about}, {CONNECTIONS} connections");
        let nginx = beside(Kind::ProxyNginx);
        Comparison::new("proxy", about, rows, Proxied::new(load))
            .ratios(Kind::ProxyNginx, &[CPU, RATE, P99])
            .ratios(Kind::ProxyHaproxy, &[CPU])
            .wants(OURS, CPU, &nginx, AtMost(most))
            .wants(OURS, CPU, &beside(Kind::ProxyHaproxy), AtMost(0.8))
            .wants(OURS, P99, &nginx, AtMost(1.0))
    })
    .collect()
}
