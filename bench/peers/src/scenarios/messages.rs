//! What is no HTTP: large messages to other processes, and relays.
//!
//! Messages: ours beside tokio servers that copy the payload into the consumer's shared memory or
//! read straight into it. The relay beside others:
//!
//! | scenario | what is measured                                        | others                 |
//! |----------|---------------------------------------------------------|------------------------|
//! | stream   | CPU time of the relay per GiB of one large stream       | Python, socat, haproxy |
//! | rate     | CPU time of a pair while the relay is always busy       | Python, a bare server  |
//! | wait     | memory of the relay for each client that waits          | Python                 |

use flatpath_bench_common::report::Wanted::{AtLeast, AtMost};
use flatpath_bench_common::servers::Metric;

use crate::comparison::{Beside, Comparison, Row, beside};
use crate::kind::Kind;
use crate::loads::ingest::{BOTH, CPU, FLOWS, MESSAGE_BYTES, Messages, RATE};
use crate::loads::relay::{BYTES, MICROS, Relayed, SECONDS};
use crate::server::{Needs, Service};

const OURS: [Kind; 2] = [Kind::FlatpathUring, Kind::FlatpathEpoll];

/// This many messages of each producer.
pub(super) fn ingest(messages: u32) -> Comparison {
    let about = format!("{FLOWS} x {messages} messages of {MESSAGE_BYTES} bytes");
    let others = [
        Kind::TokioCopying,
        Kind::TokioCopyingTwo,
        Kind::TokioStraight,
    ];
    let needs = Needs {
        connections: None,
        arguments: vec![format!("--ingest-consumers={FLOWS}")],
        // Pages for large messages.
        unless_told: &["--ingest-page=1M", "--ingest-memory=1G"],
        ..Needs::of(Service::Ingest, 0)
    };
    let rows = Row::of(&[&OURS[..], &others].concat(), &needs);
    let mut table = Comparison::new("ingest", about, rows, Messages(messages));
    table = table.ratios(others[0], &[CPU, BOTH, RATE]);
    for ours in OURS {
        for other in others {
            table = table.wants([ours], CPU, &beside(other), AtMost(0.7)).wants(
                [ours],
                RATE,
                &beside(other),
                AtLeast(1.0),
            );
        }
    }
    table
}

/// One stream of this many GiB.
pub(super) fn stream(gibibytes: usize) -> Comparison {
    let others = [Kind::Python, Kind::Socat, Kind::Haproxy];
    let about = format!("one stream of {gibibytes} GiB");
    let mut table = relay(about, &others, Relayed::Stream(gibibytes), SECONDS);
    for ours in OURS {
        for (other, most) in others.into_iter().zip([0.6, 1.0, 1.0]) {
            table = table.wants([ours], SECONDS, &beside(other), AtMost(most));
        }
    }
    table
}

/// This many pairs while the relay is always busy.
pub(super) fn busy(pairs: usize) -> Comparison {
    let about = format!("{pairs} pairs come and go, the relay always busy");
    let others = [Kind::Python, Kind::Bare];
    relay(about, &others, Relayed::Busy(pairs), MICROS).wants(
        OURS,
        MICROS,
        &beside(Kind::Python),
        AtMost(0.1),
    )
}

/// This many clients wait.
pub(super) fn wait(count: usize) -> Comparison {
    let about = format!("{count} clients wait");
    relay(about, &[Kind::Python], Relayed::Wait(count), BYTES).wants(
        OURS,
        BYTES,
        &Beside::Nothing,
        AtMost(1024.0),
    )
}

fn relay(about: String, others: &[Kind], load: Relayed, shown: Metric) -> Comparison {
    let needs = Needs {
        connections: None,
        arguments: vec!["--relay-waiting=1000000".into()],
        ..Needs::of(Service::Relay, 0)
    };
    let rows = Row::of(&[&OURS[..], others].concat(), &needs);
    Comparison::new("relay", about, rows, load)
        .runs(3)
        .ratios(OURS[0], &[shown])
}
