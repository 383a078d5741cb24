//! Files that are not small: whole and in part, in the clear, over TLS and by HTTP/2, from the
//! disk, stored, and downloads that no client reads.
//!
//! nginx, lighttpd and h2o are tuned for them; large.md names each setting.

use flatpath_bench_common::report::Wanted::{AtLeast, AtMost};
use flatpath_bench_common::servers::CPU;

use crate::comparison::{Beside, Comparison, Row, beside};
use crate::ground::Documents;
use crate::kind::Kind;
use crate::loads::large::{Large, MEMORY, MIB_PER_SECOND, Over, Unread};
use crate::loads::put::{self, Put};
use crate::server::{Needs, Service};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
/// From here on ours keeps no file in memory.
const ABOVE_KEPT: u64 = 64 * KIB + 1;
/// Clients at a time, as browsers and mirrors have a few, and of files that take seconds.
const CLIENTS: u32 = 8;
const CLIENTS_OF_LONG: u32 = 2;
const LONG: u64 = 256 * MIB;
/// Of a file of 1 MiB, in its middle: where, and how many bytes.
const PART: (u64, u64) = (MIB / 2, 1000);
const THEIRS: [Kind; 3] = [Kind::NginxLarge, Kind::Lighttpd, Kind::H2o];
const OURS: [Kind; 2] = [Kind::FlatpathUring, Kind::FlatpathEpoll];

/// How much is done.
struct Amounts {
    whole: &'static [u64],
    secured: &'static [u64],
    alone: &'static [u64],
    cold: u64,
    unread: &'static [u32],
    put_mib: u64,
}

const FULL: Amounts = Amounts {
    whole: &[
        16 * KIB,
        64 * KIB,
        100 * KIB,
        256 * KIB,
        MIB,
        8 * MIB,
        32 * MIB,
        256 * MIB,
        1024 * MIB,
    ],
    secured: &[64 * KIB, MIB, 32 * MIB],
    alone: &[32 * MIB, 1024 * MIB],
    cold: 32 * MIB,
    unread: &[2_000, 10_000],
    put_mib: 256,
};

/// Shows that it works.
const QUICK: Amounts = Amounts {
    whole: &[16 * KIB, 100 * KIB],
    secured: &[100 * KIB],
    alone: &[MIB],
    cold: MIB,
    unread: &[50],
    put_mib: 8,
};

/// Of what a quick run does, or a full one.
pub(super) fn tables(is_quick: bool) -> Vec<Comparison> {
    let amounts = if is_quick { QUICK } else { FULL };
    let whole = |bytes: u64| Large {
        bytes,
        part: None,
        clients: if bytes < LONG {
            CLIENTS
        } else {
            CLIENTS_OF_LONG
        },
        over: Over::Http1,
        cold: false,
    };
    let mut tables = Vec::new();
    for bytes in amounts.whole {
        let most = match *bytes {
            MIB.. => 1.0,
            ABOVE_KEPT.. => 0.85,
            _ => 0.75,
        };
        let load = whole(*bytes);
        let about = format!("whole file of {}, {} clients", length(*bytes), load.clients);
        let table = asked(about, Service::Http, load);
        tables.push(table.wants(OURS, CPU, &best(), AtMost(most)));
    }
    let about = format!("{} bytes in the middle of 1 MiB, {CLIENTS} clients", PART.1);
    let part = Large {
        part: Some(PART),
        ..whole(MIB)
    };
    tables.push(asked(about, Service::Http, part).wants(OURS, CPU, &best(), AtMost(0.7)));
    for (over, most) in [(Over::Http1, 0.7), (Over::Http2, 0.8)] {
        for bytes in amounts.secured {
            let how = match over {
                Over::Http1 => "over TLS",
                Over::Http2 => "by HTTP/2 over TLS",
            };
            let about = format!("whole file of {} {how}, {CLIENTS} clients", length(*bytes));
            let load = Large {
                over,
                ..whole(*bytes)
            };
            let table = asked(about, Service::Https, load);
            tables.push(table.wants(OURS, CPU, &best(), AtMost(most)));
        }
    }
    for bytes in amounts.alone {
        let about = format!("whole file of {}, one client", length(*bytes));
        let load = Large {
            clients: 1,
            ..whole(*bytes)
        };
        tables.push(as_fast_as_nginx(asked(about, Service::Http, load)));
    }
    let about = format!(
        "whole file of {} from the disk, one client",
        length(amounts.cold)
    );
    let load = Large {
        clients: 1,
        cold: true,
        ..whole(amounts.cold)
    };
    tables.push(as_fast_as_nginx(asked(about, Service::Http, load)));
    tables.push(stored(amounts.put_mib));
    tables.extend(amounts.unread.iter().map(|clients| unread(*clients)));
    tables
}

fn as_fast_as_nginx(table: Comparison) -> Comparison {
    let nginx = beside(Kind::NginxLarge);
    table.wants(OURS, MIB_PER_SECOND, &nginx, AtLeast(1.0))
}

fn asked(about: String, service: Service, load: Large) -> Comparison {
    let needs = Needs {
        documents: Documents::Large,
        ..Needs::of(service, load.clients)
    };
    let rows = Row::of(&[&THEIRS[..], &OURS].concat(), &needs);
    Comparison::new("large", about, rows, load).ratios(Kind::NginxLarge, &[CPU, MIB_PER_SECOND])
}

/// A file of this many MiB is stored.
fn stored(mib: u64) -> Comparison {
    let needs = Needs {
        arguments: vec!["--writable".into()],
        ..Needs::of(Service::Http, 1)
    };
    let rows = Row::of(&[Kind::NginxLarge, OURS[0], OURS[1]], &needs);
    let nginx = Kind::NginxLarge;
    Comparison::new(
        "large-put",
        format!("PUT of {mib} MiB, tuned for large files"),
        rows,
        Put(mib),
    )
    .ratios(nginx, &[put::CPU])
    .wants(OURS, put::CPU, &beside(nginx), AtMost(0.9))
}

/// This many downloads that no client reads.
fn unread(clients: u32) -> Comparison {
    let bytes = 32 * MIB;
    let about = format!(
        "{clients} downloads of {} that no client reads",
        length(bytes)
    );
    let needs = Needs {
        documents: Documents::Large,
        ..Needs::of_crowd(Service::Http, clients)
    };
    let rows = Row::of(&[&THEIRS[..], &OURS].concat(), &needs);
    Comparison::new("large-unread", about, rows, Unread { bytes, clients })
        .runs(3)
        .crowd(clients)
        .ratios(Kind::NginxLarge, &[MEMORY])
        .wants(OURS, MEMORY, &Beside::Nothing, AtMost(3.0 * 1024.0))
}

/// What a target of CPU time refers to.
fn best() -> Beside {
    Beside::Best(THEIRS.iter().map(ToString::to_string).collect())
}

fn length(bytes: u64) -> String {
    match bytes {
        ..MIB => format!("{} KiB", bytes / KIB),
        _ => format!("{} MiB", bytes / MIB),
    }
}
