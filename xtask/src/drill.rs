//! `cargo xtask drill [--quick] [--resume] [NAME...]`: weaken each ordering edge in turn; some test
//! must turn red.
//!
//! A model that checks nothing looks green for ever. Each mutation has an entry in the list of its
//! crate (`structures/drill.toml`, `engine/drill.toml`, ...): its name, the file and the edge it
//! weakens, the test that must fail, and how that test runs (`loom`, `shuttle`, or plainly). The
//! weaker ordering of an edge is in the code and compiled by `--cfg drill="NAME"`; statements are
//! changed by the entry's patches in a copy of the sources. For every entry the same test first
//! passes without the mutation; then it must fail with it, or hang, which the table says.
//!
//! Every mutation brings its row of the table `docs/drill.md` up to date, so that a drill may run
//! in pieces. `--resume` leaves out what was caught already on this tree of the crate, as
//! committed; the table names the structures' tree when all their rows are of one.
//!
//! Cost: all is built in the copy, whose dependencies are built once per way of running; each
//! mutation rebuilds one crate, unoptimised.

pub(crate) mod list;
pub(crate) mod table;

use std::collections::HashMap;
use std::collections::hash_map::Entry::{Occupied, Vacant};
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::process::{self, End, Show};
use crate::test_summary::{TestSummary, first_panic};
use crate::{loom, workspace};
use list::{Copied, Entry, How};

const BUILD_TIME_MAX: Duration = Duration::from_secs(15 * 60);
/// A test that runs so long hangs.
const TEST_TIME_MAX: Duration = Duration::from_secs(3 * 60);
/// And hangs because of the mutation, if it takes at most so long without.
const SOUND_TIME_MAX: Duration = Duration::from_secs(20);
/// Which mutations were caught, each with the tree of its crate, for `--resume`.
const DONE: &str = "target/drill.done";
/// What a checker's test stands on is optimised: it runs for seconds.
const CHECKER_PROFILE: &str = "profile.test.package.\"*\".opt-level=3";
const STRUCTURES: &str = "structures";

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
        bail!("no drill.toml names a mutation {name:?}");
    }
    let wanted = |entry: &&Entry| {
        (names.is_empty() || names.contains(&entry.name)) && !(*quick && entry.how == How::Loom)
    };
    let entries: Vec<&Entry> = all.iter().filter(wanted).collect();
    ensure!(!entries.is_empty(), "no mutation to try");
    let (begin, mut done) = (Instant::now(), Done::read());
    let mut builds = Builds::default();
    let (count, mut missed) = (entries.len(), 0);
    for (nth, entry) in (1..).zip(&entries) {
        if options.resume && done.has(entry) {
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

/// What was caught so far.
struct Done {
    /// Mutations that were caught, with the tree of their crate.
    caught: HashMap<String, String>,
    /// The tree of each crate's directory; `None` if it is not committed as it is.
    trees: HashMap<String, Option<String>>,
}

impl Done {
    fn read() -> Done {
        let text = workspace::text(&workspace::root().join(DONE)).unwrap_or_default();
        let lines = text.lines().filter_map(|line| line.split_once(' '));
        let caught = lines.map(|(name, tree)| (name.into(), tree.into()));
        Done {
            caught: caught.collect(),
            trees: HashMap::new(),
        }
    }

    /// The tree of a crate's directory, if all of it is committed.
    fn tree(&mut self, directory: &str) -> Option<String> {
        let known = self.trees.entry(directory.into());
        known.or_insert_with(|| tree(directory)).clone()
    }

    /// Whether a mutation was caught on its crate as it is.
    fn has(&mut self, entry: &Entry) -> bool {
        let tree = self.tree(&entry.directory);
        tree.is_some() && self.caught.get(&entry.name) == tree.as_ref()
    }

    /// Writes the outcome to the table, and to what `--resume` reads.
    fn add(&mut self, all: &[Entry], entry: &Entry, outcome: &Outcome) -> Result<()> {
        let root = workspace::root();
        self.caught.remove(&entry.name);
        if let Some(tree) = self.tree(&entry.directory)
            && matches!(outcome, Outcome::Caught(_))
        {
            self.caught.insert(entry.name.clone(), tree);
        }
        let known = table::recorded(&root);
        let mut structures = all.iter().filter(|entry| entry.directory == STRUCTURES);
        let is_all = structures.all(|entry| self.has(entry));
        let before = workspace::text(&root.join(table::TABLE)).unwrap_or_default();
        let is_in_table = |tree: &String| before.contains(&format!("{}`{tree}`", table::TREE));
        let tree = self.tree(STRUCTURES);
        let tree = tree.filter(|tree| is_all || is_in_table(tree));
        let rows = table::with(all, (entry, outcome), &known, tree.as_deref());
        let after = rows + table::notes_of(&before);
        std::fs::write(root.join(table::TABLE), after)?;
        let mut lines: Vec<_> = self.caught.iter().collect();
        lines.sort();
        let lines = lines.iter().map(|(name, tree)| format!("{name} {tree}\n"));
        std::fs::write(root.join(DONE), lines.collect::<String>())?;
        Ok(())
    }
}

/// Git's name for what is in a crate's directory, if all of it is committed.
fn tree(directory: &str) -> Option<String> {
    let git = |arguments: &[&str]| {
        let mut command = Command::new("git");
        process::output(command.args(arguments).current_dir(workspace::root()))
    };
    let changed = git(&["status", "--porcelain", "--", directory])?;
    changed
        .is_empty()
        .then(|| git(&["rev-parse", &format!("HEAD:{directory}")]))?
}

/// The test binaries of the unmutated code, and whether each test passes with them.
#[derive(Default)]
struct Builds {
    binaries: HashMap<Binary, PathBuf>,
    sound: HashMap<(Binary, String), Result<Duration, String>>,
    /// The sources that are built, once one is to be.
    copied: Option<Copied>,
}

/// One test binary: how it is built, the crate's directory, and its name if it is of `tests/`.
type Binary = (How, String, Option<String>);

fn binary_of(entry: &Entry) -> Binary {
    (entry.how, entry.directory.clone(), entry.binary.clone())
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
        let copied = self.copied()?;
        if entry.patches.is_empty() {
            return build(&copied.root, entry, Some(&entry.name));
        }
        copied.with(entry, || build(&copied.root, entry, None))
    }

    fn copied(&mut self) -> Result<&Copied> {
        if self.copied.is_none() {
            self.copied = Some(Copied::make()?);
        }
        self.copied.as_ref().context("it was made")
    }

    /// A red test proves nothing if it is red without the mutation too.
    fn passes_unmutated(&mut self, entry: &Entry) -> Result<Result<Duration, String>> {
        let key = (binary_of(entry), entry.test.clone());
        let sources = self.copied()?.root.clone();
        if let Some(known) = self.sound.get(&key) {
            return Ok(known.clone());
        }
        // The mutated build writes to the same place: keep a copy of the sound one.
        let binary = match self.binaries.entry(binary_of(entry)) {
            Occupied(known) => known.into_mut(),
            Vacant(unknown) => {
                let binary = build(&sources, entry, None)?;
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

/// Builds the test binary of `entry` in `sources`. Only the last crate sees the `cfg` of an edge,
/// so that its dependencies are built once.
fn build(sources: &Path, entry: &Entry, edge: Option<&str>) -> Result<PathBuf> {
    let target = format!("target/drill-{}", entry.how.name());
    let mut command = process::cargo(&["rustc", "--all-features"]);
    match &entry.binary {
        Some(name) => command.args(["--test", name]),
        None => command.arg("--lib"),
    };
    command
        .args(["--profile", "test", "--message-format", "json"])
        .arg("--target-dir")
        .arg(workspace::root().join(target))
        .current_dir(sources.join(&entry.directory));
    if entry.how != How::Test {
        command.args(["--config", CHECKER_PROFILE]);
    }
    for setting in workspace::unoptimised()? {
        command.args(["--config", &setting]);
    }
    configure(&mut command, entry.how);
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
        .current_dir(workspace::root().join(&entry.directory));
    configure(&mut command, entry.how);
    process::watch(&command, TEST_TIME_MAX, Show::Nothing)
}

fn configure(command: &mut Command, how: How) {
    if how != How::Test {
        loom::configure(command, how.name());
    }
}
