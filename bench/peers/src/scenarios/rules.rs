//! Files as an administrator serves them: compressed, behind a password, with redirects, of several
//! sites; and NFS with the groups of this machine. Beside nginx by CPU time, and beside ours
//! without, by instructions.
//!
//! A table compares rows: a server with settings of its own, by a name of its own. The first row
//! that a target names is what the others are divided by. nginx' gzip is at level 6, as ours, and
//! its redirects are relative, as ours; its hashes of passwords are the same file.

use std::fmt::Write as _;

use flatpath_bench_common::report::Wanted::AtMost;
use flatpath_bench_common::servers::CPU;

use super::builds::{CONNECTIONS_MAX, counted, figure};
use crate::comparison::{Comparison, Load, Row, beside};
use crate::ground::{Documents, HIDDEN_PATH, LONG_PATH, PAGE_PATH, Pinning, SMALL_PATH};
use crate::kind::Kind;
use crate::loads::fixed::{Asked, Fixed, INSTRUCTIONS};
use crate::loads::wrk::{Expected, Request, Wrk};
use crate::server::{Needs, Service};

const CONNECTIONS: u32 = 50;
/// About what a core serves in a second.
const REQUESTS: u64 = 50_000;
const RULES: usize = 1000;
const OLD: &str = "/old/500";
const GZIP: &str = "Accept-Encoding: gzip";
/// `ada` and `secret`.
const ADA: &str = "Authorization: Basic YWRhOnNlY3JldA==";
/// A site for every host.
const SITE: &str = "[[site]]\ndir = \"{place}/rules\"\n";
/// Sites with names, of which one has the host of the requests.
const NAMED: &str = "[[site]]\ndir = \"{place}/rules\"\nnames = \"localhost\"\n";
const HEADER: &str = "[[site.header]]\npath = \"/*\"\nset = { X-Rule = \"1\" }\n";
const REDIRECT: &str = "[[site.redirect]]\nfrom = \"/old/500\"\nto = \"/new/500\"\n";
const PASSWORD: &str = "auth-file = \"{place}/users\"\n";

/// CPU time beside nginx.
pub(super) fn by_time() -> Vec<Comparison> {
    let gzip = "gzip on;\ngzip_comp_level 6;\ngzip_types text/plain;\n";
    let basic = "auth_basic \"files\";\nauth_basic_user_file \"{place}/users\";\n";
    let (mut ours_moved, mut nginx_moved) =
        (SITE.to_owned(), "absolute_redirect off;\n".to_owned());
    for number in 0..RULES {
        let (from, to) = (format!("/old/{number}"), format!("/new/{number}"));
        let _ = writeln!(
            ours_moved,
            "[[site.redirect]]\nfrom = \"{from}\"\nto = \"{to}\""
        );
        let _ = writeln!(nginx_moved, "location = {from} {{ return 301 {to}; }}");
    }
    let mut before = nginx("gzip_static on;\n");
    before.name = "nginx gzip_static".into();
    before.needs.documents = Documents::Compressed;
    let compressed = "content-encoding: gzip";
    vec![
        beside_nginx(
            "a page with gzip, compressed before or kept",
            asked(PAGE_PATH, GZIP, 200, compressed),
            vec![
                nginx(gzip),
                before,
                with(ours("flatpath", SITE), "--compress=gzip"),
            ],
            0.7,
        ),
        beside_nginx(
            "2 MiB of text with gzip, compressed each time",
            asked(LONG_PATH, GZIP, 200, compressed),
            vec![nginx(gzip), with(ours("flatpath", SITE), "--compress=gzip")],
            1.0,
        ),
        beside_nginx(
            "a small file behind a password",
            asked(SMALL_PATH, ADA, 200, ""),
            vec![nginx(basic), ours("flatpath", &format!("{SITE}{PASSWORD}"))],
            0.7,
        ),
        beside_nginx(
            "a redirect, one of 1,000",
            asked(OLD, "", 301, ""),
            vec![nginx(&nginx_moved), ours("flatpath", &ours_moved)],
            1.0,
        ),
        beside_nginx(
            "a small file beside 1,000 redirects",
            asked(SMALL_PATH, "", 200, ""),
            vec![nginx(&nginx_moved), ours("flatpath", &ours_moved)],
            0.65,
        ),
        refusals(false),
    ]
}

/// Instructions of ours, beside ours without a rule.
pub(super) fn by_instructions() -> Vec<Comparison> {
    let site = |name, lines: &str| ours(name, &format!("{NAMED}{lines}"));
    let other = |number| NAMED.replace("localhost", &format!("{number}.example"));
    let three = format!("{NAMED}{}{}", other(1), other(2));
    let (hot, long) = (
        get(SMALL_PATH, "", 200),
        Asked::Http("HEAD", LONG_PATH, "", 200),
    );
    let groups = |name, asked| {
        let plain = row("without", Kind::Flatpath, Service::Nfs, "");
        let manages = row("--manage-gids", Kind::Flatpath, Service::Nfs, "");
        let rows = vec![plain, with(manages, "--manage-gids")];
        let mut load = fixed(asked, true);
        load.connections = 1;
        at_most(compared(name, rows, load), "--manage-gids", "without", 1.02)
    };
    let sites = vec![
        ours("directory", "dir = \"{place}/rules\"\n"),
        site("one site", ""),
        ours("three sites", &three),
        site("header rule", HEADER),
    ];
    let hot_files = compared("hot file", sites, fixed(hot, true));
    let hot_files = at_most(hot_files, "three sites", "one site", 1.01);
    let passwords = vec![site("none asked for", ""), site("password", PASSWORD)];
    // Longer than a file that is kept: rules are applied each time.
    let rules = vec![
        site("no rule", ""),
        site("header rule", HEADER),
        site("redirect rule", REDIRECT),
        site("redirected, 301", REDIRECT),
    ];
    let moved = ("redirected, 301", Asked::Http("HEAD", OLD, "", 301));
    let long = Fixed {
        others: vec![moved],
        ..fixed(long, true)
    };
    let tables = vec![
        at_most(hot_files, "header rule", "one site", 1.01),
        compared(
            "hot file behind a password",
            passwords,
            fixed(get(SMALL_PATH, ADA, 200), true),
        ),
        compared("a file that is not kept", rules, long),
        refusals(true),
        groups("NFS GETATTR", Asked::GetAttr),
        groups("NFS READDIRPLUS", Asked::ReadDirPlus),
    ];
    tables.into_iter().map(counted).collect()
}

/// What is denied beside what is not there.
fn refusals(by_instructions: bool) -> Comparison {
    let (hidden, denied) = ("hidden name, 404", "denied, 403");
    let rows = vec![
        ours("404", SITE),
        ours(hidden, SITE),
        ours(denied, &format!("{SITE}deny = \"127.0.0.0/8\"\n")),
    ];
    let load = Fixed {
        others: vec![
            (hidden, get(HIDDEN_PATH, "", 404)),
            (denied, get(SMALL_PATH, "", 403)),
        ],
        ..fixed(get("/absent", "", 404), by_instructions)
    };
    let table = compared("refused beside not found", rows, load);
    let metric = if by_instructions { INSTRUCTIONS } else { CPU };
    table
        .ratios("404", &[metric])
        .wants([hidden, denied], metric, &beside("404"), AtMost(1.0))
}

/// The row is to reach this many of the other's instructions; the first to is shown as a ratio.
fn at_most(table: Comparison, row: &str, to: &str, most: f64) -> Comparison {
    let shown: &[_] = if table.ratios.is_empty() {
        &[INSTRUCTIONS]
    } else {
        &[]
    };
    let table = table.ratios(to, shown);
    table.wants([row], INSTRUCTIONS, &beside(to), AtMost(most))
}

fn beside_nginx(name: &'static str, request: Request, rows: Vec<Row>, most: f64) -> Comparison {
    compared(name, rows, Wrk::kept(request, CONNECTIONS))
        .ratios("nginx", &[CPU])
        .wants(["flatpath"], CPU, &beside("nginx"), AtMost(most))
}

fn compared(name: &'static str, rows: Vec<Row>, load: impl Load + 'static) -> Comparison {
    Comparison::new("rules", name, rows, load)
}

/// What wrk asks for, with a line of the head if it is not empty.
fn asked(path: &'static str, line: &str, status: u16, words: &'static str) -> Request {
    let lines = [line].into_iter().filter(|line| !line.is_empty());
    Request {
        path,
        before: path,
        json: None,
        headers: lines.map(str::to_owned).collect(),
        expected: Expected::Head(status, words),
    }
}

const fn get(path: &'static str, line: &'static str, status: u16) -> Asked {
    Asked::Http("GET", path, line, status)
}

/// A fixed number of requests, also where they are refused.
fn fixed(asked: Asked, by_instructions: bool) -> Fixed {
    Fixed {
        asked,
        others: Vec::new(),
        connections: CONNECTIONS,
        outstanding: 1,
        figure: figure(by_instructions, REQUESTS).0,
    }
}

fn row(name: &str, kind: Kind, service: Service, settings: &str) -> Row {
    let needs = Needs {
        pinning: Pinning::GeneratorOnOneCore,
        connections: Some(CONNECTIONS_MAX),
        documents: Documents::Rules,
        settings: settings.to_owned(),
        ..Needs::of(service, CONNECTIONS)
    };
    Row::named(name, Some(kind), needs)
}

fn ours(name: &str, settings: &str) -> Row {
    row(name, Kind::Flatpath, Service::Http, settings)
}

fn nginx(settings: &str) -> Row {
    row("nginx", Kind::Nginx, Service::Http, settings)
}

fn with(mut row: Row, argument: &str) -> Row {
    row.needs.arguments.push(argument.into());
    row
}
