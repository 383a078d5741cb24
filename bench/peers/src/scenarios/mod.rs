//! The scenarios: each is a number of comparisons, whose files know neither the command line nor
//! the machine. Here is what the options make of them.

mod app;
mod builds;
mod connections;
mod large;
mod messages;
mod nfs;
mod proxy;
mod requests;
mod rules;
mod secured;

use clap::ValueEnum;
use flatpath_bench_common::tools::{self, Tool};

use crate::comparison::{Comparison, Row};
use crate::kind::{Kind, Program};
use crate::loads::calls::Workload;
use crate::options::{Options, Scenario};
use crate::server::FEW_WORKERS;

/// Descriptors for all but the clients of a relay that wait.
const SPARE_DESCRIPTORS: u64 = 500;

/// What the machine allows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Machine {
    pub(crate) cores: usize,
    pub(crate) descriptors: u64,
}

/// The comparisons that the options ask for, each with its servers; those that are short and need
/// nothing special come first. A comparison without any server is left out.
pub(crate) fn wanted(options: &Options, machine: Machine) -> Vec<Comparison> {
    let all = Scenario::value_variants().iter().copied();
    let wanted = all.filter(|scenario| options.wants(*scenario));
    let mut comparisons: Vec<_> = wanted.flat_map(|it| tables(it, options, machine)).collect();
    for comparison in &mut comparisons {
        let is_wanted = |row: &Row| row.kind.is_none_or(|kind| options.chooses(kind));
        comparison.rows.retain(is_wanted);
    }
    comparisons.retain(|comparison| !comparison.rows.is_empty());
    comparisons
}

fn tables(scenario: Scenario, options: &Options, machine: Machine) -> Vec<Comparison> {
    let clients = options.clients();
    let pairs = options.sized(10_000, 1000);
    let waiting = options.sized(100_000, 1000);
    let waiting = machine
        .descriptors
        .saturating_sub(SPARE_DESCRIPTORS)
        .min(waiting);
    match scenario {
        Scenario::Builds => builds::tables(options.instructions, options.before_peers.is_some()),
        Scenario::Files => requests::files(),
        Scenario::Alone => requests::alone(),
        Scenario::Hello => requests::hello(),
        Scenario::Pooled => requests::pooled(),
        Scenario::Rest => requests::rest(),
        Scenario::Websocket => connections::websocket(clients),
        Scenario::Sleepers => vec![connections::sleepers()],
        Scenario::Busy => requests::busy(machine.cores),
        Scenario::Operate => vec![connections::operate(clients)],
        Scenario::Idle => vec![connections::idle(clients)],
        // A quick run shows that it works.
        Scenario::App => app::tables(
            options.sized(&[None, Some(FEW_WORKERS)][..], &[None]),
            options.sized(1000, 100),
        ),
        Scenario::Sse => {
            let (every, time) = (options.event_interval(), options.event_seconds());
            vec![connections::sse(options.listeners(), every, time)]
        }
        Scenario::Https => secured::https(clients, options.sized(1000, 200)),
        Scenario::Http2 => secured::http2(clients),
        Scenario::Large => large::tables(options.common.quick),
        Scenario::Proxy => proxy::tables(),
        Scenario::Adopt => vec![builds::adopt()],
        Scenario::Rules if options.instructions => rules::by_instructions(),
        Scenario::Rules => rules::by_time(),
        Scenario::Nfs => nfs::compare(&workloads(options), options.sized(150_000, 3_000)),
        Scenario::NfsSweep => nfs::sweep(&workloads(options), &options.workers),
        Scenario::Ingest => vec![messages::ingest(options.sized(1024, 64))],
        Scenario::RelayStream => vec![messages::stream(2)],
        Scenario::RelayRate => vec![messages::busy(pairs)],
        Scenario::RelayWait => vec![messages::wait(waiting as usize)],
    }
}

fn workloads(options: &Options) -> Vec<Workload> {
    let all = Workload::value_variants().iter().copied();
    let chosen = &options.workload;
    let wanted = all.filter(|workload| match chosen.is_empty() {
        true => !workload.is_other_size(),
        false => chosen.contains(workload),
    });
    wanted.collect()
}

/// The tools without which these cannot be measured.
pub(crate) fn tools(comparisons: &[Comparison]) -> Vec<Tool> {
    let kinds = || {
        comparisons
            .iter()
            .flat_map(|it| &it.rows)
            .filter_map(|row| row.kind)
    };
    let starts = |kind: Kind| match kind.program() {
        Program::Nginx(..) => vec![tools::NGINX],
        Program::Configured(tool, _) => vec![tool],
        Program::Ganesha => vec![tools::GANESHA, tools::RPCBIND],
        Program::Socat => vec![tools::SOCAT],
        Program::Haproxy => vec![tools::HAPROXY],
        _ => Vec::new(),
    };
    let drive = comparisons.iter().flat_map(|it| it.load.tools());
    let mut needed: Vec<Tool> = Vec::new();
    for tool in drive.copied().chain(kinds().flat_map(starts)) {
        if !needed.contains(&tool) {
            needed.push(tool);
        }
    }
    needed
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::comparison::Beside;
    use crate::options::Arguments;
    use clap::Parser;
    use std::collections::BTreeSet;

    /// All that is measured without another build.
    const NAMED: [&str; 2] = [
        "--only",
        "files,alone,hello,pooled,rest,websocket,sleepers,busy,operate,idle,app,sse,\
         https,http2,large,proxy,adopt,rules,nfs,nfs-sweep,ingest,relay-stream,relay-rate,\
         relay-wait",
    ];

    fn of(arguments: &[&str]) -> Vec<Comparison> {
        let all = std::iter::once("flatpath-peers").chain(arguments.iter().copied());
        let options = Arguments::try_parse_from(all).expect("parsed").options;
        let machine = Machine {
            cores: 4,
            descriptors: 20_000,
        };
        wanted(&options, machine)
    }

    fn all() -> Vec<Vec<Comparison>> {
        let before = ["--before", "flatpath", "--before-peers", "flatpath-peers"];
        let instructions = ["--only", "rules", "--instructions"];
        vec![
            of(&NAMED),
            of(&instructions),
            of(&before),
            of(&[&before[..], &["--only", "builds", "--instructions"]].concat()),
        ]
    }

    #[test]
    fn only_what_is_needed_must_be_installed() {
        use tools::{GANESHA, H2O, NGINX, RPCBIND, STRACE, VALGRIND, WRK};
        let tools = |arguments: &[&str]| tools(&of(arguments));
        assert_eq!(tools(&[]), [WRK, NGINX, H2O]);
        assert_eq!(tools(&["--only", "sleepers"]), []);
        assert_eq!(tools(&["--only", "idle"]), [NGINX]);
        assert_eq!(tools(&["--only", "nfs"]), [GANESHA, RPCBIND]);
        let hyper = ["--only", "hello", "--servers", "hyper"];
        assert_eq!(tools(&hyper), [WRK]);
        assert_eq!(tools(&["--only", "rules"]), [WRK, NGINX]);
        let counted = ["--only", "rules", "--instructions", "--servers", "flatpath"];
        assert_eq!(tools(&counted), [STRACE, VALGRIND]);
    }

    #[test]
    fn every_server_takes_part_somewhere() {
        let rows = all().into_iter().flatten().flat_map(|it| it.rows);
        let started: Vec<_> = rows.filter_map(|row| row.kind).collect();
        for kind in Kind::value_variants() {
            assert!(started.contains(kind), "{kind} takes part nowhere");
        }
    }

    #[test]
    fn only_chosen_servers_take_part_and_no_table_is_empty() {
        let [busy] = &of(&["--only", "busy", "--servers", "pooled-epoll"])[..] else {
            panic!("a table without servers");
        };
        let names: Vec<_> = busy.rows.iter().map(|row| &*row.name).collect();
        assert_eq!(names, ["pooled-epoll"]);
        // Rows that are no servers of their own are always there.
        let sweep = [
            "--only",
            "nfs-sweep",
            "--servers",
            "bare",
            "--workers",
            "2,4",
        ];
        let sweep = of(&[&sweep[..], &["--workload", "alone"]].concat());
        assert_eq!((sweep.len(), sweep[0].rows.len()), (1, 2));
    }

    #[test]
    fn instructions_are_counted_once_and_with_epoll() {
        let counted = |it: &Comparison| it.load.tools().contains(&tools::VALGRIND);
        let tables = all().into_iter().flatten().filter(counted);
        let tables: Vec<_> = tables.collect();
        // Of rules, and of two builds.
        assert_eq!(tables.len(), 6 + 14);
        for Comparison {
            about, rows, runs, ..
        } in tables
        {
            let epoll = rows.iter().all(|row| row.needs.driver == Some("epoll"));
            assert!(epoll && runs == 1, "{about}");
        }
    }

    #[test]
    fn no_two_tables_or_rows_have_the_same_name() {
        for comparisons in all() {
            let names = comparisons.iter().map(|it| (it.bench, &it.about));
            let names: BTreeSet<_> = names.collect();
            assert_eq!(names.len(), comparisons.len(), "{names:?}");
            for Comparison { about, rows, .. } in &comparisons {
                let names: BTreeSet<_> = rows.iter().map(|row| &row.name).collect();
                assert_eq!(names.len(), rows.len(), "{about}");
            }
        }
    }

    #[test]
    fn every_target_and_ratio_is_about_rows_of_its_table() {
        for comparison in all().into_iter().flatten() {
            let about = &comparison.about;
            let mut named: Vec<&str> = comparison.ratios.iter().map(|it| &*it.1).collect();
            for wish in &comparison.wishes {
                named.push(&wish.row);
                match &wish.beside {
                    Beside::Row(other) | Beside::Paired(other) => named.push(other),
                    Beside::Best(others) => named.extend(others.iter().map(String::as_str)),
                    Beside::Nothing | Beside::Own(_) => {}
                }
            }
            for name in named {
                let is_row = comparison.rows.iter().any(|row| row.name == name);
                assert!(is_row, "{about}: {name}");
            }
        }
    }
}
