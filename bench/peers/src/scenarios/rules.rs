//! Files as an administrator serves them: compressed, behind a password, with redirects, of several
//! sites; and NFS with the groups of this machine. Beside nginx by CPU time, and beside ours
//! without, by instructions.
//!
//! A table compares rows: a server with settings of its own, by a name of its own. The first row
//! that a target names is what the others are divided by. nginx' gzip is at level 6, as ours, and
//! its redirects are relative, as ours; its hashes of passwords are the same file.

use std::fmt::{self, Write as _};
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use flate2::Compression;
use flate2::write::GzEncoder;
use flatpath_bench_common::http;
use flatpath_bench_common::report::{BenchReport, Wanted};
use flatpath_bench_common::servers::{CPU, Metric, interleave};
use flatpath_bench_common::wrk::{Lifetime, Scheme};
use flatpath_testkit::nfs;
use tempfile::TempDir;

use super::builds::{CONNECTIONS_MAX, INSTRUCTIONS, WARM_UP, counted, timed};
use super::rounds::{self, Rounds, Way};
use crate::kind::Kind;
use crate::options::Scenario;
use crate::server::{NFS, Server, Setup};
use crate::session::{PAGES, Pinning, SMALL_PATH, Session, Target, small_body};

pub(super) const KINDS: [Kind; 2] = [Kind::Nginx, Kind::Flatpath];

const CONNECTIONS: u32 = 50;
/// About what a core serves in a second.
const REQUESTS: u64 = 50_000;
const RULES: usize = 1000;
/// The file that is compressed once and kept, and its bytes.
const PAGE: &str = "/page.txt";
const PAGE_BYTES: usize = 32 << 10;
/// One that is longer than any that ours keeps.
const LONG: &str = "/long.txt";
const LONG_BYTES: usize = 2 << 20;
const OLD: &str = "/old/500";
const ABSENT: &str = "/absent";
const HIDDEN: &str = "/.hidden";
/// Small enough for one reply.
const LIST_BYTES: u32 = 32 << 10;

const GZIP: &str = "Accept-Encoding: gzip";
/// `ada` and `secret`.
const ADA: &str = "Authorization: Basic YWRhOnNlY3JldA==";
/// As `openssl passwd -6` makes it: 5,000 rounds.
const USERS: &str = "ada:$6$flatpathpeers$9QO635fo8BEpgBebJyP1qADQbkW4Skp697pv39H3zN65ZH2pEeU\
    nmYj2RMhBX1/TA96bMR4rBmZv0rKujgJZH.\n";

/// A server with settings of its own.
#[derive(Clone, Debug)]
struct Row {
    name: &'static str,
    kind: Kind,
    /// Lines of nginx' `server` block, or of our configuration.
    settings: String,
    arguments: Vec<String>,
    /// Files were compressed before.
    is_static: bool,
    path: &'static str,
}

impl fmt::Display for Row {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.name)
    }
}

/// What is asked of the rows of a table.
#[derive(Clone, Copy, Debug)]
enum Load {
    /// By wrk, with this header; the status of the reply.
    Http(&'static str, u16),
    /// By a fixed number of requests, also where they are refused.
    Counted(&'static str, u16),
    /// The same by HEAD: also of files that are too long to be kept.
    Head(u16),
    GetAttr,
    ReadDirPlus,
}

struct Case {
    name: &'static str,
    load: Load,
    rows: Vec<Row>,
    /// Of a row beside another one, the most.
    targets: Vec<(&'static str, &'static str, f64)>,
}

/// Files, and what tells who may.
struct Place {
    directory: TempDir,
}

fn row(name: &'static str, kind: Kind, settings: impl Into<String>) -> Row {
    Row {
        name,
        kind,
        settings: settings.into(),
        arguments: Vec::new(),
        is_static: false,
        path: SMALL_PATH,
    }
}

fn ours(name: &'static str, settings: impl Into<String>) -> Row {
    row(name, Kind::Flatpath, settings)
}

impl Row {
    fn at(self, path: &'static str) -> Self {
        Self { path, ..self }
    }

    fn with(mut self, argument: &str) -> Self {
        self.arguments.push(argument.into());
        self
    }
}

/// Runs the tables that the options ask for.
pub(super) fn run(session: &Session) -> io::Result<Vec<BenchReport>> {
    let place = Place::make()?;
    let cases = match session.options.instructions {
        true => place.by_instructions(),
        false => place.by_time(),
    };
    let run = |case: &Case| case.run(session, &place);
    cases.iter().map(run).collect()
}

impl Place {
    fn make() -> io::Result<Self> {
        let place = Self {
            directory: tempfile::tempdir()?,
        };
        for (directory, is_static) in [("plain", false), ("static", true)] {
            let directory = place.at(directory);
            fs::create_dir(&directory)?;
            let files = [
                (SMALL_PATH, small_body()),
                (PAGE, text(PAGE_BYTES)),
                (LONG, text(LONG_BYTES)),
                (HIDDEN, small_body()),
            ];
            for (name, content) in files {
                write_old(&directory.join(&name[1..]), &content)?;
            }
            write_old(&directory.join(PAGES), &small_body())?;
            if is_static {
                let mut encoder = GzEncoder::new(Vec::new(), Compression::new(6));
                encoder.write_all(&text(PAGE_BYTES))?;
                let path = directory.join(format!("{}.gz", &PAGE[1..]));
                write_old(&path, &encoder.finish()?)?;
            }
        }
        fs::write(place.at("users"), USERS)?;
        Ok(place)
    }

    fn at(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// A site for every host, with these lines.
    fn site(&self, lines: &str) -> String {
        format!("[[site]]\ndir = {:?}\n{lines}", self.at("plain"))
    }

    /// Sites with names, of which one has the host of the requests.
    fn named(&self, count: usize) -> String {
        let site = |number| {
            let name = match number {
                0 => "localhost".to_owned(),
                number => format!("{number}.example"),
            };
            self.site(&format!("names = \"{name}\"\n"))
        };
        (0..count).map(site).collect()
    }

    fn by_time(&self) -> Vec<Case> {
        let gzip = "gzip on;\ngzip_comp_level 6;\ngzip_types text/plain;\n";
        let mut redirects = (String::new(), String::from("absolute_redirect off;\n"));
        for number in 0..RULES {
            let (ours, nginx) = &mut redirects;
            let (from, to) = (format!("/old/{number}"), format!("/new/{number}"));
            let _ = writeln!(ours, "[[site.redirect]]\nfrom = \"{from}\"\nto = \"{to}\"");
            let _ = writeln!(nginx, "location = {from} {{ return 301 {to}; }}");
        }
        let users = self.at("users").display().to_string();
        let nginx = |settings: &str| row("nginx", Kind::Nginx, settings);
        let compressing = || ours("flatpath", self.site("")).with("--compress=gzip");
        let basic = format!("auth_basic \"files\";\nauth_basic_user_file \"{users}\";\n");
        let rules = || ours("flatpath", self.site(&redirects.0));
        let case = |name, load, rows, targets| Case {
            name,
            load,
            rows,
            targets,
        };
        let beside_nginx = |most| vec![("flatpath", "nginx", most)];
        vec![
            case(
                "a page with gzip, compressed before or kept",
                Load::Http(GZIP, 200),
                vec![
                    nginx(gzip).at(PAGE),
                    Row {
                        is_static: true,
                        ..row("nginx gzip_static", Kind::Nginx, "gzip_static on;\n").at(PAGE)
                    },
                    compressing().at(PAGE),
                ],
                beside_nginx(0.7),
            ),
            case(
                "2 MiB of text with gzip, compressed each time",
                Load::Http(GZIP, 200),
                vec![nginx(gzip).at(LONG), compressing().at(LONG)],
                beside_nginx(1.0),
            ),
            case(
                "a small file behind a password",
                Load::Http(ADA, 200),
                vec![
                    nginx(&basic),
                    ours("flatpath", self.site(&format!("auth-file = {users:?}\n"))),
                ],
                beside_nginx(0.7),
            ),
            case(
                "a redirect, one of 1,000",
                Load::Http("", 301),
                vec![nginx(&redirects.1).at(OLD), rules().at(OLD)],
                beside_nginx(1.0),
            ),
            case(
                "a small file beside 1,000 redirects",
                Load::Http("", 200),
                vec![nginx(&redirects.1), rules()],
                beside_nginx(0.65),
            ),
            self.refusals(),
        ]
    }

    /// What is denied beside what is not there.
    fn refusals(&self) -> Case {
        Case {
            name: "refused beside not found",
            load: Load::Counted("", 404),
            rows: vec![
                ours("404", self.site("")).at(ABSENT),
                ours("hidden name, 404", self.site("")).at(HIDDEN),
                ours("denied, 403", self.site("deny = \"127.0.0.0/8\"\n")),
            ],
            targets: vec![
                ("hidden name, 404", "404", 1.0),
                ("denied, 403", "404", 1.0),
            ],
        }
    }

    fn by_instructions(&self) -> Vec<Case> {
        let header = "[[site.header]]\npath = \"/*\"\nset = { X-Rule = \"1\" }\n";
        let users = format!("auth-file = {:?}\n", self.at("users"));
        let with = |name, lines: &str| ours(name, format!("{}{lines}", self.named(1)));
        let hot = Case {
            name: "hot file",
            load: Load::Counted("", 200),
            rows: vec![
                ours("directory", format!("dir = {:?}\n", self.at("plain"))),
                ours("one site", self.named(1)),
                ours("three sites", self.named(3)),
                with("header rule", header),
            ],
            targets: vec![
                ("three sites", "one site", 1.01),
                ("header rule", "one site", 1.01),
            ],
        };
        let password = Case {
            name: "hot file behind a password",
            load: Load::Counted(ADA, 200),
            rows: vec![with("none asked for", ""), with("password", &users)],
            targets: Vec::new(),
        };
        let redirect = "[[site.redirect]]\nfrom = \"/old/500\"\nto = \"/new/500\"\n";
        // Longer than a file that is kept: rules are applied each time.
        let rule = Case {
            name: "a file that is not kept",
            load: Load::Head(200),
            rows: vec![
                with("no rule", "").at(LONG),
                with("header rule", header).at(LONG),
                with("redirect rule", redirect).at(LONG),
                with("redirected, 301", redirect).at(OLD),
            ],
            targets: Vec::new(),
        };
        let groups = |name, load| Case {
            name,
            load,
            rows: vec![
                ours("without", ""),
                ours("--manage-gids", "").with("--manage-gids"),
            ],
            targets: vec![("--manage-gids", "without", 1.02)],
        };
        vec![
            hot,
            password,
            rule,
            self.refusals(),
            groups("NFS GETATTR", Load::GetAttr),
            groups("NFS READDIRPLUS", Load::ReadDirPlus),
        ]
    }
}

impl Load {
    fn is_nfs(self) -> bool {
        matches!(self, Self::GetAttr | Self::ReadDirPlus)
    }

    /// The requests of one path.
    fn rounds(self, address: SocketAddr, path: &str) -> io::Result<Rounds> {
        let request = match self {
            Self::Http(header, _) | Self::Counted(header, _) => request("GET", path, header),
            Self::Head(_) => request("HEAD", path, ""),
            Self::GetAttr => rounds::nfs_call(address, |_, file| nfs::getattr(file))?,
            Self::ReadDirPlus => rounds::nfs_call(address, |root, _| {
                nfs::readdirplus(root, (0, 0), LIST_BYTES)
            })?,
        };
        Ok(Rounds {
            address,
            request,
            connections: if self.is_nfs() { 1 } else { CONNECTIONS },
            outstanding: 1,
            way: Way::Kept,
        })
    }
}

impl Case {
    fn run(&self, session: &Session, place: &Place) -> io::Result<BenchReport> {
        let chosen = session.options.choose(&KINDS);
        let rows = self.rows.iter().filter(|row| chosen.contains(&row.kind));
        let rows: Vec<&Row> = rows.collect();
        let start = |row: &Row| {
            let server = Server::start(row.kind, &self.setup(session, place, row)?)?;
            let bytes = self.check(server.address, row)?;
            Ok((server, bytes))
        };
        let turn = |row: &Row, (server, bytes): &mut (Server, usize)| {
            self.measure(session, place, row, (server, *bytes))
        };
        let runs = session.options.runs(Scenario::Rules);
        let mut table = interleave(self.name, runs, &rows, start, turn)?;
        let metric = self.metric(session);
        if let Some((_, reference, _)) = self.targets.first() {
            table = table.with_ratio(metric, *reference);
        }
        let mut report = BenchReport::of_servers("rules", self.name, table);
        for (row, reference, most) in &self.targets {
            let reference = Some((reference as &dyn fmt::Display, metric));
            report.target_of((*row, metric), reference, Wanted::AtMost(*most));
        }
        Ok(report)
    }

    fn metric(&self, session: &Session) -> Metric {
        match session.options.instructions {
            true => INSTRUCTIONS,
            false => CPU,
        }
    }

    fn setup<'a>(
        &self,
        session: &'a Session,
        place: &Place,
        row: &'a Row,
    ) -> io::Result<Setup<'a>> {
        let mut setup = session.setup(Pinning::GeneratorOnOneCore, None, CONNECTIONS);
        setup.documents = place.at(if row.is_static { "static" } else { "plain" });
        setup.connections = CONNECTIONS_MAX;
        setup.arguments = &row.arguments;
        if session.options.instructions {
            setup.driver = "epoll";
        }
        if self.load.is_nfs() {
            setup.service = NFS;
        } else if row.kind == Kind::Nginx {
            setup.nginx = &row.settings;
        } else {
            let file = place.at(&format!("{}, {}.toml", self.name, row.name));
            fs::write(&file, &row.settings)?;
            setup.config = Some(file);
        }
        Ok(setup)
    }

    fn measure(
        &self,
        session: &Session,
        place: &Place,
        row: &Row,
        (server, bytes): (&Server, usize),
    ) -> io::Result<flatpath_bench_common::servers::Run> {
        if session.options.instructions {
            let rounds = self.load.rounds(server.address, row.path)?;
            return counted(row.kind, server, &self.setup(session, place, row)?, &rounds);
        }
        match self.load {
            Load::Http(header, _) => {
                let headers = match header {
                    "" => Vec::new(),
                    header => vec![header.to_owned()],
                };
                let target = Target {
                    scheme: Scheme::Http,
                    path: row.path,
                    json: None,
                    headers: &headers,
                    connections: CONNECTIONS,
                    lifetime: Lifetime::KeepAlive,
                    pinning: Pinning::GeneratorOnOneCore,
                };
                session.load(server, &target, bytes)
            }
            load => {
                let requests = REQUESTS * u64::from(session.options.seconds());
                timed(server, &load.rounds(server.address, row.path)?, requests)
            }
        }
    }

    /// Asks often enough that caches are filled, and compares the status: the bytes of a reply.
    fn check(&self, address: SocketAddr, row: &Row) -> io::Result<usize> {
        let (method, header, status) = match self.load {
            Load::Http(header, status) | Load::Counted(header, status) => ("GET", header, status),
            Load::Head(status) => ("HEAD", "", status),
            load => return load.rounds(address, row.path)?.run(WARM_UP).map(|_| 0),
        };
        // The name of a row says where it has another one.
        let status = match row.name.rsplit_once(", ") {
            Some((_, own)) => own.parse().unwrap_or(status),
            None => status,
        };
        let line = if header.is_empty() { "" } else { "\r\n" };
        let header = format!("{header}{line}Connection: close");
        let mut reply = Vec::new();
        for _ in 0..3 {
            reply.clear();
            let mut socket = http::connect(address)?;
            socket.write_all(&request(method, row.path, &header))?;
            socket.read_to_end(&mut reply)?;
            let line = format!("HTTP/1.1 {status} ");
            if !reply.starts_with(line.as_bytes()) {
                let found = String::from_utf8_lossy(&reply[..reply.len().min(200)]).into_owned();
                return Err(io::Error::other(format!("not {status} but {found}")));
            }
        }
        Ok(reply.len())
    }
}

/// A request with one more header, if any.
fn request(method: &str, path: &str, header: &str) -> Vec<u8> {
    let end = if header.is_empty() { "" } else { "\r\n" };
    format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\n{header}{end}\r\n").into_bytes()
}

/// Text that compresses like text.
fn text(bytes: usize) -> Vec<u8> {
    let lines = (0..).flat_map(|number: u32| {
        let other = number.wrapping_mul(0x9e37_79b1);
        format!("line {number} of a text, beside {other}\n").into_bytes()
    });
    lines.take(bytes).collect()
}

/// A file that has not changed for a while.
fn write_old(path: &Path, content: &[u8]) -> io::Result<()> {
    fs::write(path, content)?;
    let hour = Duration::from_secs(3600);
    let file = File::options().write(true).open(path)?;
    file.set_modified(SystemTime::now() - hour)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn targets_are_about_rows_of_their_table_and_names_are_unique() {
        let place = Place::make().expect("a place");
        for cases in [place.by_time(), place.by_instructions()] {
            let names: BTreeSet<_> = cases.iter().map(|case| case.name).collect();
            assert_eq!(names.len(), cases.len(), "{names:?}");
            for case in cases {
                let rows: BTreeSet<_> = case.rows.iter().map(|row| row.name).collect();
                assert_eq!(rows.len(), case.rows.len(), "{}", case.name);
                for (row, reference, _) in &case.targets {
                    assert!(
                        rows.contains(row) && rows.contains(reference),
                        "{}",
                        case.name
                    );
                }
            }
        }
    }
}
