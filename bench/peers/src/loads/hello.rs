//! What hello world costs with each library: its crates, the time to build it, its size.
//!
//! Hello world with ours and with axum, as their documents have it: a package of its own outside of
//! this workspace, in the release profile with cargo's defaults, and each build from an empty
//! target folder. Both have the versions of this workspace's lock file. Crates are fetched before.

use std::fs;
use std::io;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use flatpath_bench_common::servers::{Metric, Run};
use flatpath_bench_common::usage;
use flatpath_testkit::Child;
use flatpath_testkit::child::command;
use tempfile::TempDir;

use crate::comparison::{Load, Row, Turn};
use crate::ground::Ground;
use crate::ground::LOCK_FILE;

pub(crate) const CRATES: Metric = Metric::median("crates");
pub(crate) const WALL: Metric = Metric::median("build s");
pub(crate) const CPU: Metric = Metric::median("CPU s");
pub(crate) const SIZE: Metric = Metric::median("stripped KiB");

/// How long a build or a download may take.
const PATIENCE: Duration = Duration::from_secs(3600);

const OURS: &str = r#"use flatpath::Server;
use flatpath_http::{Http, Router};

fn main() -> Result<(), flatpath::Error> {
    let router = Router::new().get("/", || "hello, world\n");
    Server::new().listen("127.0.0.1:8080", Http::service(router)).run()
}
"#;

const AXUMS: &str = r#"use axum::{Router, routing::get};
use tokio::net::TcpListener;

#[tokio::main]
async fn main() -> std::io::Result<()> {
    let router = Router::new().route("/", get(|| async { "hello, world\n" }));
    axum::serve(TcpListener::bind("127.0.0.1:8080").await?, router).await
}
"#;

const AXUMS_CRATES: &str = r#"axum = "0.8"
tokio = { version = "1", features = ["macros", "net", "rt-multi-thread"] }
"#;

/// What hello world is written with.
#[derive(Clone, Copy)]
pub(crate) enum Library {
    Flatpath,
    Axum,
}

impl Library {
    pub(crate) const ALL: [Self; 2] = [Self::Flatpath, Self::Axum];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Flatpath => "flatpath",
            Self::Axum => "axum",
        }
    }

    fn program(self) -> &'static str {
        match self {
            Self::Flatpath => OURS,
            Self::Axum => AXUMS,
        }
    }

    fn manifest(self) -> String {
        // What stands for versions of published crates.
        let ours = |name, path| {
            let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
            format!("{name} = {{ path = \"{root}/{path}\" }}\n")
        };
        let dependencies = match self {
            Self::Flatpath => ours("flatpath", "engine") + &ours("flatpath-http", "protocols/http"),
            Self::Axum => AXUMS_CRATES.to_owned(),
        };
        format!(
            "[package]\nname = \"hello\"\nedition = \"2024\"\n\n\
             [dependencies]\n{dependencies}\n[workspace]\n"
        )
    }
}

/// Hello world in the library that the row is named after.
pub(crate) struct HelloWorld;

impl Load for HelloWorld {
    fn start<'a>(&'a self, _ground: &'a Ground, row: &'a Row) -> io::Result<Turn<'a>> {
        let library = Library::ALL.into_iter().find(|it| it.name() == row.name);
        let library = library.ok_or_else(|| io::Error::other("no library"))?;
        let package = Package::new(library)?;
        Ok(Box::new(move || package.build()))
    }
}

/// Hello world in a folder of its own.
struct Package {
    folder: TempDir,
    crates: usize,
}

impl Package {
    fn new(library: Library) -> io::Result<Self> {
        let folder = TempDir::new()?;
        let path = folder.path();
        fs::create_dir(path.join("src"))?;
        fs::write(path.join("src/main.rs"), library.program())?;
        fs::write(path.join("Cargo.toml"), library.manifest())?;
        fs::write(path.join("Cargo.lock"), LOCK_FILE)?;
        finish(&mut cargo(path, &["fetch"]))?;
        let tree = ["tree", "--edges", "normal", "--prefix", "none"];
        let tree = finish(&mut cargo(path, &tree))?;
        let crates = crates(&tree);
        Ok(Self { folder, crates })
    }

    fn build(&self) -> io::Result<Run> {
        let path = self.folder.path();
        let target = TempDir::new()?;
        let mut build = cargo(path, &["build", "--release", "--offline", "--target-dir"]);
        build.arg(target.path());
        let before = usage::ended_children()?;
        let begun = Instant::now();
        finish(&mut build)?;
        let wall = begun.elapsed();
        let used = usage::ended_children()?.since(before);
        let stripped = path.join("stripped");
        let mut strip = command("strip", &[]);
        strip.arg("-o").arg(&stripped);
        finish(strip.arg(target.path().join("release/hello")))?;
        let bytes = fs::metadata(&stripped)?.len();
        Ok(vec![
            (CRATES, self.crates as f64),
            (WALL, wall.as_secs_f64()),
            (CPU, used.as_secs_f64()),
            (SIZE, bytes as f64 / 1024.0),
        ])
    }
}

/// Different crates of a program, as `cargo tree` lists them, without its own, which is the first.
fn crates(tree: &str) -> usize {
    // `log v0.4.35 (*)`, `serde_derive v1.0.229 (proc-macro)`: the first two words.
    let name_and_version = |line: &str| {
        let mut words = line.split(' ');
        Some((words.next()?.to_owned(), words.next()?.to_owned()))
    };
    let crates = tree.lines().skip(1).filter_map(name_and_version);
    let mut crates: Vec<_> = crates.collect();
    crates.sort_unstable();
    crates.dedup();
    crates.len()
}

/// cargo as a user has it: settings of this run are not theirs.
fn cargo(folder: &Path, arguments: &[&str]) -> Command {
    let mut cargo = command("cargo", &[]);
    cargo.args(arguments).current_dir(folder);
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        let is_of_build = [
            "CARGO_PROFILE_",
            "CARGO_BUILD_",
            "CARGO_INCREMENTAL",
            "RUSTFLAGS",
        ];
        let is_of_package = ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_ENCODED_"];
        let mut of_this_run = is_of_build.iter().chain(&is_of_package);
        if of_this_run.any(|prefix| text.starts_with(prefix)) {
            cargo.env_remove(&name);
        }
    }
    cargo
}

fn finish(command: &mut Command) -> io::Result<String> {
    Child::start(command)?.finish(PATIENCE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crates_count_once_and_versions_of_one_apart() {
        let tree = "hello v0.0.0 (/tmp/hello)\nlog v0.4.35\nbytes v1.12.1\nlog v0.4.35 (*)\n\
                    syn v2.0.1\nsyn v3.0.9\nserde_derive v1.0.2 (proc-macro)\n\
                    serde_derive v1.0.2 (proc-macro) (*)\nours v0.1.0 (/somewhere)\n\
                    ours v0.1.0 (/somewhere) (*)\n";
        assert_eq!(crates(tree), 6);
    }

    #[test]
    fn the_programs_are_those_that_the_manifests_have_crates_for() {
        for library in Library::ALL {
            let manifest = library.manifest();
            for line in library.program().lines() {
                let used = line
                    .strip_prefix("use ")
                    .and_then(|rest| rest.split("::").next());
                let used = used.filter(|name| *name != "std");
                let is_there =
                    |name: &str| manifest.contains(&format!("\n{} = ", name.replace('_', "-")));
                assert!(used.is_none_or(is_there), "{line}: {manifest}");
            }
        }
    }
}
