//! `cargo xtask drill [--quick] [--resume] [NAME...]`: weaken each ordering edge in turn; some test
//! must turn red.
//!
//! A model that checks nothing looks green for ever. Each mutation has an entry in the list beside
//! the structures (`structures/drill.toml`): its name, the file and the edge it weakens, the test
//! that must fail, and how that test runs (`loom`, `shuttle`, or plainly). The weaker ordering of
//! an edge is in the code and compiled by `--cfg drill="NAME"`; statements are changed by the
//! entry's patches in a copy of the sources. For every entry the same test first passes without the
//! mutation; then it must fail with it, or hang, which the table says.
//!
//! Every mutation brings its row of the table `docs/drill.md` up to date, so that a drill may run
//! in pieces. `--resume` leaves out what was caught already on this tree of the structures, as
//! committed; the table names the tree when all its rows are of one.
//!
//! Cost: the checker's dependencies are built once per way of running; each mutation rebuilds one
//! crate, unoptimised, in a few seconds.

pub(crate) mod list;
pub(crate) mod table;

use std::collections::HashMap;
use std::collections::hash_map::Entry::{Occupied, Vacant};
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};

use crate::process::{self, End, Show};
use crate::test_summary::{TestSummary, first_panic};
use crate::{loom, workspace};
use list::{Copied, Entry, How};

const BUILD_TIME_MAX: Duration = Duration::from_secs(15 * 60);
/// A test that runs so long hangs.
const TEST_TIME_MAX: Duration = Duration::from_secs(3 * 60);
/// And hangs because of the mutation, if it takes at most so long without.
const SOUND_TIME_MAX: Duration = Duration::from_secs(20);
/// Which mutations were caught on which tree, for `--resume`.
const DONE: &str = "target/drill.done";
/// The structures unoptimised: they are what is built anew each time, and a test runs for seconds.
/// What they stand on is optimised.
const PROFILE: &[&str] = &[
    "profile.test.opt-level=0",
    "profile.test.debug=false",
    "profile.test.incremental=false",
    "profile.test.package.\"*\".opt-level=3",
];

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Leave out the mutations that need loom
    #[arg(long)]
    quick: bool,
    /// Leave out the mutations that were caught on this tree
    #[arg(long)]
    resume: bool,
    /// Mutations; all, if none is named
    names: Vec<String>,
}

/// What became of a mutation.
#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    /// The test failed, as it must; what it said.
    Caught(String),
    /// The test passed: it does not test the edge.
    Survived,
    /// Nothing can be concluded; why.
    Undecided(String),
}

impl fmt::Display for Outcome {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // Without the list of threads that loom adds to a deadlock.
            Self::Caught(said) => {
                let said = said.split("; threads = ").next().unwrap_or(said);
                write!(out, "caught: {said}")
            }
            Self::Survived => out.write_str("SURVIVED: the test passes with the mutation"),
            Self::Undecided(why) => write!(out, "UNDECIDED: {why}"),
        }
    }
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let Options { names, quick, .. } = options;
    let all = list::listed(&workspace::root())?;
    let is_listed = |name: &&String| all.iter().any(|entry| entry.name == **name);
    if let Some(name) = names.iter().find(|name| !is_listed(name)) {
        bail!("{} names no mutation {name:?}", list::LIST);
    }
    let wanted = |entry: &&Entry| {
        (names.is_empty() || names.contains(&entry.name)) && !(*quick && entry.how == How::Loom)
    };
    let entries: Vec<&Entry> = all.iter().filter(wanted).collect();
    ensure!(!entries.is_empty(), "no mutation to try");
    let (begin, mut done) = (Instant::now(), Done::read(options.resume));
    let mut builds = Builds::default();
    let (count, mut missed) = (entries.len(), 0);
    for (nth, entry) in (1..).zip(&entries) {
        if done.names.contains(&entry.name) {
            continue;
        }
        let outcome = builds.drill(entry)?;
        println!("drill {nth}/{count}: {}: {outcome}", entry.name);
        missed += u32::from(!matches!(outcome, Outcome::Caught(_)));
        done.add(&all, entry, &outcome)?;
    }
    ensure!(missed == 0, "{missed} of {count} mutations were not caught");
    let seconds = begin.elapsed().as_secs();
    println!("drill: all {count} mutations caught, in {seconds} s");
    Ok(())
}

/// What was done so far on this tree.
struct Done {
    /// The tree of the structures; `None` if it is not committed as it is.
    tree: Option<String>,
    /// Mutations that were caught on it.
    names: Vec<String>,
}

impl Done {
    fn read(resume: bool) -> Done {
        let tree = tree();
        let text = workspace::text(&workspace::root().join(DONE)).unwrap_or_default();
        let mut lines = text.lines().map(String::from);
        let is_same = resume && tree.is_some() && lines.next() == tree;
        let names = if is_same { lines.collect() } else { Vec::new() };
        Done { tree, names }
    }

    /// Writes the outcome to the table, and to what `--resume` reads.
    fn add(&mut self, all: &[Entry], entry: &Entry, outcome: &Outcome) -> Result<()> {
        let root = workspace::root();
        if matches!(outcome, Outcome::Caught(_)) {
            self.names.push(entry.name.clone());
        }
        let known = table::recorded(&root);
        let is_all = all.iter().all(|entry| self.names.contains(&entry.name));
        let before = workspace::text(&root.join(table::TABLE)).unwrap_or_default();
        let is_in_table = |tree: &str| before.contains(&format!("{}`{tree}`", table::TREE));
        let tree = self.tree.as_deref();
        let tree = tree.filter(|tree| is_all || is_in_table(tree));
        let rows = table::with(all, (entry, outcome), &known, tree);
        let after = rows + table::notes_of(&before);
        std::fs::write(root.join(table::TABLE), after)?;
        if let Some(tree) = &self.tree {
            let done = format!("{tree}\n{}\n", self.names.join("\n"));
            std::fs::write(root.join(DONE), done)?;
        }
        Ok(())
    }
}

/// Git's name for what is in the structures' directory, if all of it is committed.
fn tree() -> Option<String> {
    let git = |arguments: &[&str]| {
        let mut command = Command::new("git");
        process::output(command.args(arguments).current_dir(workspace::root()))
    };
    let changed = git(&["status", "--porcelain", "--", "structures"])?;
    changed
        .is_empty()
        .then(|| git(&["rev-parse", "HEAD:structures"]))?
}

/// The test binaries of the unmutated code, and whether each test passes with them.
#[derive(Default)]
struct Builds {
    binaries: HashMap<How, PathBuf>,
    sound: HashMap<(How, String), Result<Duration, String>>,
    /// The sources in which statements are changed, once one is to be.
    copied: Option<Copied>,
}

impl Builds {
    fn drill(&mut self, entry: &Entry) -> Result<Outcome> {
        let time = match self.passes_unmutated(entry)? {
            Ok(time) => time,
            Err(why) => return Ok(Outcome::Undecided(format!("without the mutation: {why}"))),
        };
        let binary = self.mutated(entry)?;
        let report = run_test(&binary, entry)?;
        // Each mutation has its own; the sound one was copied.
        std::fs::remove_file(&binary)?;
        let ran = TestSummary::of(&report.lines).ran();
        Ok(match report.end {
            End::TimedOut if time <= SOUND_TIME_MAX => Outcome::Caught(format!(
                "it hangs: stopped after {TEST_TIME_MAX:?}, and without the mutation it ends"
            )),
            End::TimedOut => Outcome::Undecided(format!("the test hung for {TEST_TIME_MAX:?}")),
            End::Exited(status) if status.success() && ran > 0 => Outcome::Survived,
            End::Exited(status) if status.success() => Outcome::Undecided("no test ran".into()),
            End::Exited(status) => {
                Outcome::Caught(first_panic(&report.lines).unwrap_or_else(|| status.to_string()))
            }
        })
    }

    /// The test binary of the mutated code.
    fn mutated(&mut self, entry: &Entry) -> Result<PathBuf> {
        if entry.patches.is_empty() {
            return build(&workspace::root(), entry.how, Some(&entry.name));
        }
        if self.copied.is_none() {
            self.copied = Some(Copied::make()?);
        }
        let copied = self.copied.as_ref().expect("it was made");
        copied.with(entry, || build(&copied.root, entry.how, None))
    }

    /// A red test proves nothing if it is red without the mutation too.
    fn passes_unmutated(&mut self, entry: &Entry) -> Result<Result<Duration, String>> {
        let key = (entry.how, entry.test.clone());
        if let Some(known) = self.sound.get(&key) {
            return Ok(known.clone());
        }
        // The mutated build writes to the same place: keep a copy of the sound one.
        let binary = match self.binaries.entry(entry.how) {
            Occupied(known) => known.into_mut(),
            Vacant(unknown) => {
                let binary = build(&workspace::root(), entry.how, None)?;
                let kept = binary.with_extension("sound");
                std::fs::copy(&binary, &kept)?;
                unknown.insert(kept)
            }
        };
        let begin = Instant::now();
        let report = run_test(binary, entry)?;
        let outcome = match (report.succeeded(), TestSummary::of(&report.lines).ran()) {
            (true, 0) => Err(format!("no test is named {:?}", entry.test)),
            (true, _) => Ok(begin.elapsed()),
            (false, _) => {
                Err(first_panic(&report.lines).unwrap_or_else(|| format!("{:?}", report.end)))
            }
        };
        self.sound.insert(key, outcome.clone());
        Ok(outcome)
    }
}

/// Builds the unit tests of the structures in `sources` and returns the test binary. Only the last
/// crate sees the `cfg` of an edge, so that its dependencies are built once.
fn build(sources: &Path, how: How, edge: Option<&str>) -> Result<PathBuf> {
    let target = format!("target/drill-{}", how.name());
    let mut command = process::cargo(&["rustc", "--package", "flatpath-structures", "--lib"]);
    command
        .args(["--profile", "test", "--message-format", "json"])
        .arg("--target-dir")
        .arg(workspace::root().join(target))
        .current_dir(sources);
    for setting in PROFILE {
        command.args(["--config", setting]);
    }
    configure(&mut command, how);
    if let Some(name) = edge {
        command.args(["--", "--cfg", &format!("drill=\"{name}\"")]);
    }
    let report = process::watch(&command, BUILD_TIME_MAX, Show::Nothing)?;
    let built = report.lines.iter().rev().find_map(|line| {
        let message: serde_json::Value = serde_json::from_str(line).ok()?;
        message.get("executable")?.as_str().map(PathBuf::from)
    });
    match built {
        Some(binary) if report.succeeded() => Ok(binary),
        _ => bail!("{command:?}:\n{}", report.lines.join("\n")),
    }
}

fn run_test(binary: &Path, entry: &Entry) -> Result<process::Report> {
    let mut command = Command::new(binary);
    command
        .arg(&entry.test)
        .current_dir(workspace::root().join("structures"));
    configure(&mut command, entry.how);
    process::watch(&command, TEST_TIME_MAX, Show::Nothing)
}

fn configure(command: &mut Command, how: How) {
    if how != How::Test {
        loom::configure(command, how.name());
    }
}
