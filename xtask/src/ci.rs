//! `cargo xtask ci [--changed] [STEP...]`: what the continuous integration checks, with one
//! command.
//!
//! Without steps: all of them, cheapest first, so that a fault which rustfmt finds does not wait
//! for the tests. The first fault ends the run. At the end a table has what each step took, also
//! after a fault.
//!
//! `.ci/run` prepares a bare machine, runs the tests, then the steps of every change and, with
//! `--changed`, those of the others whose files have changed since `.ci/full` last passed
//! (`changed.rs`). `.ci/full` runs all.

use std::fmt::{self, Write};
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::ValueEnum;
use serde_json::Value;

use crate::{dist, face, kernels, loom, process, semver};

mod changed;
mod features;

use changed::Decision;

/// What to check.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// And the steps that not every change needs, if what they cover has changed
    #[arg(long)]
    changed: bool,
    /// And those of them whose files have not changed
    #[arg(long, requires = "changed")]
    unchanged: bool,
    /// Only say which steps those are
    #[arg(long, requires = "changed")]
    list: bool,
    steps: Vec<Step>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Step {
    Format,
    Lint,
    Docs,
    /// The public items are those of `docs/face`.
    Face,
    /// What is published compiles with the other C library: its types differ in places that no
    /// test of this machine sees. Needs the target (`rustup target add`), as `.ci/run` installs it,
    /// which leaves this one to the static build of `dist`.
    Musl,
    /// What is published compiles for the other processor too. Needs its target, as above.
    Aarch64,
    /// The libraries compile without a warning with each of their features alone, and with none.
    Features,
    /// What is published could be: its packages have what a registry asks for, and build from
    /// themselves alone.
    Package,
    /// Nothing breaks programs that were written for the last release. Needs `cargo-semver-checks`.
    Semver,
    Test,
    Loom,
    /// The tests pass on Debian's kernels, old and new. Needs QEMU, and 45 minutes.
    Kernels,
    /// The Debian package, the units, the static build and the container's image do their work.
    Dist,
}

const AARCH64: &str = "aarch64-unknown-linux-gnu";
/// Its cryptography would need a C compiler for the other processor.
const CRYPTOGRAPHY: &str = "flatpath-cli";

pub(crate) fn run(options: &Options) -> Result<()> {
    let mut steps = options.steps.clone();
    if options.changed {
        for (step, decision) in changed::decisions() {
            if !options.unchanged {
                eprintln!("ci: {}: {decision}", step.name());
            }
            let runs = options.unchanged || matches!(decision, Decision::Run(_));
            if runs && !steps.contains(&step) {
                steps.push(step);
            }
        }
    } else if steps.is_empty() {
        steps = Step::value_variants().to_vec();
    }
    if options.list {
        steps.iter().for_each(|step| println!("{}", step.name()));
        return Ok(());
    }
    let (log, result) = run_each(&steps, run_step);
    print!("{}", table(&log));
    result
}

impl Step {
    fn name(self) -> String {
        let value = self.to_possible_value();
        value.map_or_else(String::new, |value| value.get_name().to_owned())
    }
}

/// A step that has ended.
struct Ended {
    step: Step,
    took: Duration,
    /// What the last column of the table says.
    result: &'static str,
}

impl fmt::Display for Ended {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        row(formatter, &self.step.name(), self.took, self.result)
    }
}

fn row(to: &mut impl Write, name: &str, took: Duration, result: &str) -> fmt::Result {
    writeln!(to, "{name:<8}{:>8.1} s  {result}", took.as_secs_f64())
}

/// Runs the steps up to the first fault, and reports each as it ends.
fn run_each(steps: &[Step], run: impl Fn(Step) -> Result<()>) -> (Vec<Ended>, Result<()>) {
    let mut log = Vec::new();
    for &step in steps {
        let start = Instant::now();
        let result = run(step);
        let ended = Ended {
            step,
            took: start.elapsed(),
            result: if result.is_ok() { "passed" } else { "failed" },
        };
        print!("ci: {ended}");
        log.push(ended);
        if result.is_err() {
            return (log, result);
        }
    }
    (log, Ok(()))
}

/// A line for each step that has ended, and their sum.
fn table(log: &[Ended]) -> String {
    let mut table: String = log.iter().map(Ended::to_string).collect();
    let sum = log.iter().map(|ended| ended.took).sum();
    row(&mut table, "all", sum, "").expect("a string takes all");
    table
}

/// Checks what is published. The rest runs where it was built.
fn check_for(target: &str, without: Option<&str>) -> Result<Command> {
    let mut command = process::cargo(&["check", "--target", target]);
    let names = published()?.into_iter();
    let names = names.filter(|name| Some(name.as_str()) != without);
    command.args(names.map(|name| format!("--package={name}")));
    Ok(command)
}

fn run_step(step: Step) -> Result<()> {
    let musl = format!("{}-unknown-linux-musl", std::env::consts::ARCH);
    let mut command = match step {
        Step::Format => process::cargo(&["fmt", "--all", "--", "--check"]),
        Step::Lint => {
            let mut command = process::cargo(&["clippy", "--workspace", "--all-targets"]);
            command.args(["--", "-D", "warnings"]);
            command
        }
        Step::Docs => {
            let mut command = process::cargo(&["doc", "--workspace", "--no-deps"]);
            command.env("RUSTDOCFLAGS", "-D warnings");
            command
        }
        Step::Face => return face::run(&face::Options::default()),
        Step::Musl => check_for(&musl, None)?,
        Step::Aarch64 => check_for(AARCH64, Some(CRYPTOGRAPHY))?,
        Step::Features => return features::run(),
        Step::Package => {
            forget_unpacked()?;
            // In the order of a release: each crate after those that it depends on.
            let mut command = process::cargo(&["publish", "--workspace", "--dry-run", "--quiet"]);
            // Outside of the workspace cargo's own profile holds; nobody debugs these builds.
            command.env("CARGO_PROFILE_DEV_DEBUG", "0");
            command
        }
        Step::Semver => return semver::run(),
        Step::Test => process::cargo(&["test"]),
        Step::Dist => return dist::check(),
        Step::Kernels => return kernels::check(),
        Step::Loom => return loom::run("loom", &["loom_"], &[]),
    };
    process::run(&mut command)
}

/// Removes what earlier runs unpacked of our packages. Cargo keeps it in its home by version, and
/// would build today's crates with yesterday's of the same version.
fn forget_unpacked() -> Result<()> {
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(std::env::home_dir()?.join(".cargo")));
    let Ok(sources) = fs::read_dir(home.context("no home")?.join("registry/src")) else {
        return Ok(());
    };
    for source in sources {
        let source = source?;
        // A registry with a host is named by it; that of a workspace's packages has none.
        if source.file_name().as_encoded_bytes().starts_with(b"-") {
            fs::remove_dir_all(source.path())
                .with_context(|| format!("cannot remove {}", source.path().display()))?;
        }
    }
    Ok(())
}

/// The names of the crates that are not kept from a registry.
fn published() -> Result<Vec<String>> {
    let packages = published_manifests()?;
    let names = packages.iter().map(|package| package["name"].as_str());
    Ok(names.flatten().map(String::from).collect())
}

/// The published crates that others build on: a library beside a program is the program's own.
pub(crate) fn libraries() -> Result<Vec<String>> {
    let is_library = |package: &&Value| {
        let targets = package["targets"].as_array();
        let has = |kind| targets.is_some_and(|all| all.iter().any(|it| it["kind"][0] == kind));
        has("lib") && !has("bin")
    };
    let packages = published_manifests()?;
    let names = packages
        .iter()
        .filter(is_library)
        .map(|package| &package["name"]);
    names
        .map(|name| Ok(name.as_str().context("a name")?.to_owned()))
        .collect()
}

/// What cargo reads from the manifest of this published crate.
pub(crate) fn manifest_of(name: &str) -> Result<Value> {
    let mut packages = published_manifests()?.into_iter();
    let package = packages.find(|package| package["name"] == name);
    package.with_context(|| format!("no published crate {name}"))
}

/// What cargo reads from the manifests of published crates.
fn published_manifests() -> Result<Vec<Value>> {
    let mut command = process::cargo(&["metadata", "--no-deps", "--format-version", "1"]);
    let text = process::output(&mut command).context("cargo metadata fails")?;
    let metadata: Value = serde_json::from_str(&text)?;
    let packages = metadata["packages"].as_array().context("no packages")?;
    let is_published = |package: &&Value| package["publish"].is_null();
    Ok(packages.iter().filter(is_published).cloned().collect())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use anyhow::ensure;

    use super::*;

    #[test]
    fn the_table_has_each_step_up_to_the_one_that_failed() {
        let steps = [Step::Format, Step::Lint, Step::Docs];
        let (log, result) = run_each(&steps, |step| {
            ensure!(!matches!(step, Step::Lint), "a fault");
            Ok(())
        });
        assert_eq!(result.unwrap_err().to_string(), "a fault");
        let table = table(&log);
        let words = table.lines().map(|line| {
            let mut words = line.split_whitespace();
            let name = words.next().expect("a name");
            (name, words.nth(2).unwrap_or_default())
        });
        let words: Vec<_> = words.collect();
        assert_eq!(
            words,
            [("format", "passed"), ("lint", "failed"), ("all", "")]
        );
        assert!(run_each(&steps, |_| Ok(())).1.is_ok());
    }

    #[test]
    fn the_last_line_of_the_table_is_the_sum() {
        let ended = |step, seconds| Ended {
            step,
            took: Duration::from_secs_f64(seconds),
            result: "passed",
        };
        let table = table(&[ended(Step::Lint, 61.25), ended(Step::Package, 700.5)]);
        assert_eq!(
            table,
            "lint        61.2 s  passed\npackage    700.5 s  passed\nall        761.8 s  \n"
        );
    }

    #[test]
    fn the_library_is_published_and_the_tools_are_not() {
        let names = published().unwrap();
        let has = |name: &str| names.iter().any(|published| published == name);
        assert!(has("flatpath") && has("flatpath-cli"));
        assert!(!has("xtask") && !has("flatpath-bench"));
    }

    #[test]
    fn to_install_the_command_nothing_of_the_bench_is_built() {
        let mut command = process::cargo(&["tree", "--package", "flatpath-cli"]);
        command.args(["--edges", "normal,build", "--prefix", "none", "--locked"]);
        let tree = process::output(&mut command).unwrap();
        let name = |line: &str| line.split(' ').take(2).collect::<Vec<_>>().join(" ");
        let crates: BTreeSet<String> = tree.lines().map(name).collect();
        assert!(crates.len() > 14, "{tree}");
        for foreign in [
            "flatpath-bench",
            "mio",
            "tokio",
            "h2",
            "hyper",
            "rayon",
            "dashmap",
        ] {
            let is_foreign = |name: &&String| name.starts_with(foreign);
            assert_eq!(crates.iter().find(is_foreign), None);
        }
    }

    /// Beside its directories a package has what cargo and its readers look for, the text of both
    /// licences, and no file that only our tools read, as the lists of the drill.
    #[test]
    fn a_package_has_its_licences_and_no_file_of_our_tools() {
        const WANTED: &[&str] = &[
            "Cargo.",
            ".cargo_vcs_info.json",
            "README.md",
            "LICENSE",
            "build.rs",
        ];
        for name in published().unwrap() {
            let mut command = process::cargo(&["package", "--list", "--allow-dirty", "--offline"]);
            let list = process::output(command.args(["--package", &name])).unwrap();
            assert!(list.lines().any(|file| file.starts_with("src/")), "{name}");
            let beside = list.lines().filter(|file| !file.contains('/'));
            let is_wanted = |file: &&str| WANTED.iter().any(|wanted| file.starts_with(wanted));
            let foreign: Vec<_> = beside.filter(|file| !is_wanted(file)).collect();
            assert_eq!(foreign, [""; 0], "files of the package {name}");
            for licence in ["LICENSE-APACHE", "LICENSE-MIT"] {
                assert!(
                    list.lines().any(|file| file == licence),
                    "{licence} of {name}"
                );
            }
        }
    }

    #[test]
    fn a_registry_can_tell_a_stranger_what_each_published_crate_is_for() {
        for package in published_manifests().unwrap() {
            let name = package["name"].as_str().unwrap();
            let list = |field: &str| package[field].as_array().map_or(0, Vec::len);
            assert!(matches!(list("keywords"), 1..=5), "keywords of {name}");
            assert!(matches!(list("categories"), 1..=5), "categories of {name}");
            let text = |field: &str| package[field].as_str().unwrap_or_default();
            assert!(text("description").len() > 30, "description of {name}");
            assert!(
                text("repository").starts_with("https"),
                "repository of {name}"
            );
            assert_eq!(text("license"), "MIT OR Apache-2.0", "{name}");
            assert!(!text("rust_version").is_empty(), "rust-version of {name}");
            // docs.rs shows every feature, and builds for Linux alone.
            let shown = &package["metadata"]["docs"]["rs"];
            let has_features = package["features"]
                .as_object()
                .is_some_and(|all| !all.is_empty());
            assert!(!has_features || shown["all-features"] == true, "{name}");
            assert_eq!(shown["targets"][0], "x86_64-unknown-linux-gnu", "{name}");
            let manifest = Path::new(text("manifest_path"));
            let readme = manifest.with_file_name(text("readme"));
            assert!(readme.is_file(), "readme of {name}: {}", readme.display());
            let page = fs::read_to_string(manifest.with_file_name("src/lib.rs"));
            let has_example = |page: &String| page.lines().any(|line| line == "//! ```");
            // The command and its part are no libraries for others.
            let is_program = name.starts_with("flatpath-cli");
            assert!(
                is_program || page.as_ref().is_ok_and(has_example),
                "the page of {name} shows no example"
            );
        }
    }
}
