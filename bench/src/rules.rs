//! `bench rules`: what a rule of a site adds to a request that is not answered from the cache.
//!
//! Before: the same service without the rule. Both get the head of a request, and give the bytes of
//! the reply, on one thread and without a server. The file is longer than any that is kept, and is
//! asked for by HEAD, so that it is looked up and its rules are applied each time.

use std::fs;
use std::hint::black_box;
use std::io;
use std::path::Path;
use std::time::Duration;

use flatpath::memory::Pool;
use flatpath_files::limits::COMPRESS_WHOLE_BYTES_MAX;
use flatpath_files::{Files, HeaderChange, RuleError, Rules};
use flatpath_http::http::StatusCode;
use flatpath_http::{Service, Turn, testing};
use flatpath_structures::pool::{PoolConfig, Zero};

use crate::Stage;
use flatpath_bench_common::measure::{Turn as Measured, hammer};
use flatpath_bench_common::report::{BenchReport, Role, Table, Wanted};

const FILE: &str = "/long.bin";
const RULES: usize = 1000;
const BEFORE: &str = "without";
const OURS: &str = "ours";
/// What the issues allow, in nanoseconds.
const RULE_NS_MAX: f64 = 200.0;
const TURN: Turn = Turn::new(1, Duration::ZERO, Duration::from_secs(784_200_000));

/// A row: rules without the one in question and with it, and what is asked for.
struct Load {
    name: &'static str,
    without: fn(Rules) -> Result<Rules, RuleError>,
    with: fn(Rules) -> Result<Rules, RuleError>,
    path: &'static str,
}

const LOADS: [Load; 3] = [
    Load {
        name: "a header",
        without: Ok,
        with: header,
        path: FILE,
    },
    Load {
        name: "1,000 redirects of other paths",
        without: Ok,
        with: redirects,
        path: FILE,
    },
    Load {
        name: "a redirect, alone and of 1,000",
        without: redirect,
        with: redirects,
        path: "/old/500",
    },
];

fn header(rules: Rules) -> Result<Rules, RuleError> {
    rules.headers("/*".parse()?, [HeaderChange::set("X-Rule", "1")?])
}

fn redirect(rules: Rules) -> Result<Rules, RuleError> {
    let from = "/old/500".parse()?;
    rules.redirect(from, "/new/500", StatusCode::MOVED_PERMANENTLY)
}

fn redirects(rules: Rules) -> Result<Rules, RuleError> {
    (0..RULES).try_fold(rules, |rules, number| {
        let (from, to) = (format!("/old/{number}"), format!("/new/{number}"));
        rules.redirect(from.parse()?, &to, StatusCode::MOVED_PERMANENTLY)
    })
}

/// Nanoseconds of a request to a directory with these rules.
fn request(directory: &Path, rules: &Rules, path: &str, slice: Duration) -> f64 {
    let input = format!("HEAD {path} HTTP/1.1\r\nHost: h\r\n\r\n");
    hammer(1, slice, |_| {
        let files = Files::open(directory).expect("a directory");
        let files = files.rules(rules.clone());
        let mut thread = files.thread_state();
        let pool = Pool::new(PoolConfig {
            classes: vec![4 << 10, 64 << 10],
            budget_bytes: 1 << 20,
            zero: Zero::Never,
        });
        let input = input.clone();
        move || {
            let pool = (&pool).into();
            let reply = testing::prompt(&files, &mut thread, TURN, input.as_bytes(), pool);
            assert!(black_box(reply).expect("valid").is_some(), "it is tried");
        }
    })
}

pub(crate) fn run(stage: &mut Stage, report: &mut BenchReport) -> io::Result<()> {
    let directory = tempfile::tempdir()?;
    let file = fs::File::create(directory.path().join(&FILE[1..]))?;
    file.set_len(COMPRESS_WHOLE_BYTES_MAX + 1)?;
    let columns = [(BEFORE, Role::Baseline), (OURS, Role::Ours)];
    let mut table = Table::new("a request", "ns", &["rule"], columns);
    let (rounds, slice) = (stage.profile.rounds(), stage.profile.slice(1));
    for load in &LOADS {
        let rules = [load.without, load.with].map(|rules| rules(Rules::new()));
        let turn = |rules: &Result<Rules, RuleError>| -> io::Result<Measured<'_>> {
            let rules = rules.clone().map_err(io::Error::other)?;
            let directory = directory.path();
            Ok(Box::new(move || {
                request(directory, &rules, load.path, slice)
            }))
        };
        let mut turns = [turn(&rules[0])?, turn(&rules[1])?];
        let figures = stage.row(&format!("rules: {}", load.name), rounds, &mut turns);
        let more = figures[1].value - figures[0].value;
        table.push(&[&load.name], figures);
        let wanted = Wanted::AtMost(RULE_NS_MAX);
        report.target(format!("{}, more", load.name), "ns", wanted, Some(more));
    }
    report.tables.push(table);
    Ok(())
}
