//! `cargo xtask cost [WHAT...]`: what the library costs a program, with and without its features.
//!
//! A program that greets its clients (`cost/hello.rs`) is built from nothing, once for each row of
//! the table: with the defaults of `flatpath-http`, without each of them, and with each of the
//! other features of the two crates in addition. The same service with axum on tokio
//! (`cost/axum.rs`) stands beside it. All have cargo's own profile `release`, and the versions of
//! the workspace's `Cargo.lock`.
//!
//! Processor time is that of cargo and all that it runs, as the kernel counts it: other work on
//! the machine matters little for it, so the rows compare where wall clocks do not. Each build
//! takes about half a minute of it; `--rounds` repeats the whole table and shows medians.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};

use crate::{ci, process, workspace};

#[derive(clap::Args)]
pub(crate) struct Options {
    /// How often each row is built
    #[arg(long, default_value_t = 1)]
    rounds: usize,
    /// Only the rows whose names contain one of these words [default: all]
    what: Vec<String>,
}

/// The crates whose features are rows, and where they are.
const HTTP: (&str, &str) = ("flatpath-http", "protocols/http");
const ENGINE: (&str, &str) = ("flatpath", "engine");
/// Not for programs: what the test kit is built on.
const NOT_FOR_PROGRAMS: &str = "simulation";

/// Ticks of a second in `/proc` (proc_pid_stat(5): USER_HZ, which is 100 on every Linux).
const TICKS_PER_SECOND: f64 = 100.0;

/// A program to build.
#[derive(Debug, PartialEq, Eq)]
struct Row {
    name: String,
    dependencies: String,
    program: &'static str,
}

/// What one build took, and made.
#[derive(Clone, Copy, Debug)]
struct Cost {
    processor_seconds: f64,
    stripped_bytes: u64,
    /// Packages of others that are compiled.
    foreign_crates: usize,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let (http, engine) = (features(HTTP.0)?, features(ENGINE.0)?);
    let mut rows = rows(&http, &engine);
    let is_wanted = |row: &Row| {
        options
            .what
            .iter()
            .any(|word| row.name.contains(word.as_str()))
    };
    rows.retain(|row| options.what.is_empty() || is_wanted(row));
    ensure!(
        !rows.is_empty() && options.rounds > 0,
        "there is nothing to build"
    );
    let mut costs = vec![Vec::new(); rows.len()];
    for _ in 0..options.rounds {
        for (row, costs) in rows.iter().zip(&mut costs) {
            costs.push(build(row)?);
        }
    }
    print!("{}", table(&rows, &costs));
    Ok(())
}

/// A crate's features, and which of them are on by default.
struct Features {
    default: BTreeSet<String>,
    others: BTreeSet<String>,
}

fn features(name: &str) -> Result<Features> {
    let manifest = ci::manifest_of(name)?;
    let features = &manifest["features"];
    let default = features["default"].as_array().context("no defaults")?;
    let default = default
        .iter()
        .filter_map(|name| Some(name.as_str()?.to_owned()));
    let default: BTreeSet<String> = default.collect();
    let all = features.as_object().context("no features")?.keys().cloned();
    let others = all.filter(|name| name != "default" && !default.contains(name));
    let others = others.filter(|name| name != NOT_FOR_PROGRAMS).collect();
    Ok(Features { default, others })
}

fn rows(http: &Features, engine: &Features) -> Vec<Row> {
    let mut rows = vec![
        Row {
            name: "axum and tokio".to_owned(),
            dependencies: "axum = \"0.8\"\n\
                tokio = { version = \"1\", features = [\"full\"] }\n"
                .to_owned(),
            program: include_str!("cost/axum.rs"),
        },
        of_ours("the defaults".to_owned(), &http.default, &BTreeSet::new()),
    ];
    for left_out in &http.default {
        let mut rest = http.default.clone();
        rest.remove(left_out);
        rows.push(of_ours(
            format!("without {left_out}"),
            &rest,
            &BTreeSet::new(),
        ));
    }
    for feature in &http.others {
        let mut more = http.default.clone();
        more.insert(feature.clone());
        rows.push(of_ours(format!("with {feature}"), &more, &BTreeSet::new()));
    }
    let known = |name: &String| http.default.contains(name) || http.others.contains(name);
    for feature in engine.others.iter().filter(|name| !known(name)) {
        let of_engine = BTreeSet::from([feature.clone()]);
        rows.push(of_ours(
            format!("with {feature}"),
            &http.default,
            &of_engine,
        ));
    }
    rows
}

fn of_ours(name: String, http: &BTreeSet<String>, engine: &BTreeSet<String>) -> Row {
    let dependency = |(name, home): (&str, &str), features: &BTreeSet<String>| {
        let path = workspace::root().join(home);
        let features: Vec<&String> = features.iter().collect();
        format!(
            "{name} = {{ path = {path:?}, default-features = false, features = {features:?} }}\n"
        )
    };
    Row {
        name,
        dependencies: dependency(ENGINE, engine) + &dependency(HTTP, http),
        program: include_str!("cost/hello.rs"),
    }
}

/// Builds a row's program from nothing, in a package and a workspace of its own.
fn build(row: &Row) -> Result<Cost> {
    let home = workspace::root().join("target/cost");
    let (package, made) = (home.join("program"), home.join("made"));
    for directory in [&package, &made] {
        if directory.exists() {
            fs::remove_dir_all(directory)?;
        }
    }
    fs::create_dir_all(package.join("src"))?;
    let manifest = package.join("Cargo.toml");
    fs::write(
        &manifest,
        format!(
            "[package]\nname = \"program\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\n\
             [workspace]\n\n[dependencies]\n{}",
            row.dependencies
        ),
    )?;
    fs::write(package.join("src/main.rs"), row.program)?;
    fs::copy(
        workspace::root().join("Cargo.lock"),
        package.join("Cargo.lock"),
    )?;
    let cargo = |arguments: &[&str]| {
        let mut command = process::cargo(arguments);
        command.arg("--manifest-path").arg(&manifest);
        command.env("CARGO_TARGET_DIR", &made);
        command.env("CARGO_PROFILE_RELEASE_STRIP", "symbols");
        for name in ["CARGO_INCREMENTAL", "RUSTFLAGS", "CARGO_BUILD_RUSTFLAGS"] {
            command.env_remove(name);
        }
        command
    };
    println!("{}:", row.name);
    // What it needs is there before the time counts.
    process::run(&mut cargo(&["fetch", "--quiet"]))?;
    let tree = ["tree", "--offline", "--edges=normal,build", "--prefix=none"];
    let tree = process::output(&mut cargo(&tree)).context("cargo tree fails")?;
    let before = processor_seconds_of_children()?;
    process::run(&mut cargo(&["build", "--quiet", "--release", "--offline"]))?;
    let cost = Cost {
        processor_seconds: processor_seconds_of_children()? - before,
        stripped_bytes: fs::metadata(made.join("release/program"))?.len(),
        foreign_crates: foreign_crates(&tree),
    };
    fs::remove_dir_all(&made)?;
    Ok(cost)
}

/// The packages in the text of `cargo tree` that are not in a directory of ours.
fn foreign_crates(tree: &str) -> usize {
    let lines = tree.lines().map(|line| line.trim_end_matches(" (*)"));
    let foreign = lines.filter(|line| !line.is_empty() && !line.contains(" (/"));
    foreign.collect::<BTreeSet<_>>().len()
}

/// What this process's children, and theirs, have used of the processors until now, if they have
/// ended.
pub(crate) fn processor_seconds_of_children() -> Result<f64> {
    let text = workspace::text(&PathBuf::from("/proc/self/stat"))?;
    ticks_of_children(&text).map(|ticks| ticks as f64 / TICKS_PER_SECOND)
}

/// `cutime` and `cstime`, fields 16 and 17 of proc_pid_stat(5).
fn ticks_of_children(stat: &str) -> Result<u64> {
    // The second field, a name in parentheses, may have anything in it.
    let (_, rest) = stat.rsplit_once(')').context("no name")?;
    let fields = rest.split_whitespace().skip(13).take(2);
    let ticks: Vec<u64> = fields.map(str::parse).collect::<Result<_, _>>()?;
    ensure!(ticks.len() == 2, "no times of children");
    Ok(ticks.iter().sum())
}

/// The rows in Markdown, with medians of their rounds; the second column of each pair says what a
/// row has more than the defaults.
fn table(rows: &[Row], costs: &[Vec<Cost>]) -> String {
    let medians: Vec<Cost> = costs.iter().map(|costs| median(costs)).collect();
    let base = rows.iter().position(|row| row.name == "the defaults");
    let base = base.map(|place| medians[place]);
    let mut text = "| built | processor time, s | beside the defaults | stripped, bytes | \
         beside the defaults | crates of others |\n|---|---|---|---|---|---|\n"
        .to_owned();
    for (row, cost) in rows.iter().zip(&medians) {
        let ratio = |of: fn(&Cost) -> f64| match &base {
            Some(base) => format!("{:.2} x", of(cost) / of(base)),
            None => String::new(),
        };
        let _ = writeln!(
            text,
            "| {} | {:.1} | {} | {} | {} | {} |",
            row.name,
            cost.processor_seconds,
            ratio(|cost| cost.processor_seconds),
            thousands(cost.stripped_bytes),
            ratio(|cost| cost.stripped_bytes as f64),
            cost.foreign_crates,
        );
    }
    text
}

fn median(costs: &[Cost]) -> Cost {
    let mut sorted = costs.to_vec();
    sorted.sort_by(|one, other| one.processor_seconds.total_cmp(&other.processor_seconds));
    sorted[sorted.len() / 2]
}

/// `1234567` as `1,234,567`.
fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn each_default_is_left_out_once_and_each_other_feature_added_once() {
        let http = Features {
            default: set(&["epoll", "uring"]),
            others: set(&["http2", "tls"]),
        };
        let engine = Features {
            default: set(&["epoll", "uring"]),
            others: set(&["datagrams", "tls"]),
        };
        let rows = rows(&http, &engine);
        let names: Vec<&str> = rows.iter().map(|row| row.name.as_str()).collect();
        let expected = [
            "axum and tokio",
            "the defaults",
            "without epoll",
            "without uring",
            "with http2",
            "with tls",
            "with datagrams",
        ];
        assert_eq!(names, expected);
        let without = &rows[2].dependencies;
        assert!(without.contains(r#"features = ["uring"]"#), "{without}");
        let datagrams = &rows[6].dependencies;
        assert!(
            datagrams.contains(r#"features = ["datagrams"]"#),
            "{datagrams}"
        );
        assert!(
            datagrams.contains(r#"features = ["epoll", "uring"]"#),
            "{datagrams}"
        );
    }

    #[test]
    fn the_features_of_the_library_are_read_from_its_manifests() {
        let http = features(HTTP.0).unwrap();
        assert!(http.default.contains("uring") && http.others.contains("http2"));
        assert!(
            !features(ENGINE.0)
                .unwrap()
                .others
                .contains(NOT_FOR_PROGRAMS)
        );
    }

    #[test]
    fn the_times_of_children_stand_behind_any_name() {
        let stat = "7 (a) b (c) R 1 2 3 4 5 6 7 8 9 10 11 12 130 7 20 0 1";
        assert_eq!(ticks_of_children(stat).unwrap(), 137);
        assert!(ticks_of_children("7 (a) R 1 2").is_err());
    }

    #[test]
    fn packages_of_a_directory_are_not_those_of_others() {
        let tree = "program v0.0.0 (/t/program)\nbytes v1.0.0\nflatpath v0.1.0 (/t/engine) (*)\n\
            log v0.4.0\nbytes v1.0.0 (*)\n";
        assert_eq!(foreign_crates(tree), 2);
    }

    #[test]
    fn a_row_shows_its_median_beside_that_of_the_defaults() {
        let cost = |processor_seconds, stripped_bytes| Cost {
            processor_seconds,
            stripped_bytes,
            foreign_crates: 3,
        };
        let rows = rows(
            &Features {
                default: set(&[]),
                others: set(&[]),
            },
            &Features {
                default: set(&[]),
                others: set(&[]),
            },
        );
        let costs = [
            vec![cost(30.0, 1_500_000), cost(10.0, 1), cost(20.0, 1_500_000)],
            vec![cost(40.0, 1_000_000)],
        ];
        let table = table(&rows, &costs);
        assert!(
            table.contains("| axum and tokio | 20.0 | 0.50 x | 1,500,000 | 1.50 x | 3 |\n"),
            "{table}"
        );
    }
}
