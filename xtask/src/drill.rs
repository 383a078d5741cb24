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
//! Every mutation brings the table `docs/drill.md` up to date: its row, and the rest as they were,
//! so that one may run in pieces. A row whose entry changed is dropped; what follows the table
//! under a heading of its own stays. `--resume` leaves out what was caught already on this tree of
//! the structures, as committed; the table names the tree when all its rows are of one.
//!
//! Cost: the checker's dependencies are built once per way of running; each mutation rebuilds one
//! crate, unoptimised, in a few seconds.

mod patches;

use std::collections::HashMap;
use std::collections::hash_map::Entry::{Occupied, Vacant};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use toml::{Table, Value};

use crate::process::{self, End, Show};
use crate::tally::{Tally, first_panic};
use crate::{Error, loom, workspace};

use patches::Copied;
pub use patches::Patch;

/// For the help text.
pub const SUMMARY: &str =
    "weaken each ordering in turn: a test must fail (--quick: without loom; --resume)";

/// Where the list is.
const LIST: &str = "structures/drill.toml";
const TABLE: &str = "docs/drill.md";
const BUILD_TIME_MAX: Duration = Duration::from_secs(15 * 60);
/// A test that runs so long hangs.
const TEST_TIME_MAX: Duration = Duration::from_secs(3 * 60);
/// And hangs because of the mutation, if it takes at most so long without.
const SOUND_TIME_MAX: Duration = Duration::from_secs(20);
/// Which mutations were caught on which tree, for `--resume`.
const DONE: &str = "target/drill.done";
/// The line of the table that names the tree.
const TREE: &str = "All rows are of one tree of the structures (`git rev-parse HEAD:structures`): ";
/// The structures unoptimised: they are what is built anew each time, and a test runs for seconds.
/// What they stand on is optimised.
const PROFILE: &[&str] = &[
    "profile.test.opt-level=0",
    "profile.test.debug=false",
    "profile.test.incremental=false",
    "profile.test.package.\"*\".opt-level=3",
];

/// One mutation, as listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The list it stands in.
    pub list: String,
    /// The value of `--cfg drill`, unless there are patches.
    pub name: String,
    /// The file it changes.
    pub file: String,
    /// The edge it weakens.
    pub edge: String,
    /// The test that must fail: a filter for the test binary.
    pub test: String,
    /// `loom`, `shuttle`, or anything else for an ordinary build.
    pub how: String,
    /// What it changes in a copy of the file; none for the weaker ordering of an edge.
    pub patches: Vec<Patch>,
}

impl Entry {
    /// The model checker whose `cfg` the build needs.
    fn checker(&self) -> Option<&'static str> {
        ["loom", "shuttle"]
            .into_iter()
            .find(|checker| self.how == *checker)
    }
}

/// Every listed mutation, in the order of the list.
///
/// # Errors
/// A list that cannot be parsed, or an entry without a part.
pub fn listed(root: &Path) -> Result<Vec<Entry>, Error> {
    parse(LIST, &workspace::text(&root.join(LIST))?)
}

/// Every array of tables in the file is a list of mutations, whatever it is called.
fn parse(list: &str, text: &str) -> Result<Vec<Entry>, Error> {
    let broken = |why: String| Error::Failed(format!("{list}: {why}"));
    let table: Table = text.parse().map_err(|error| broken(format!("{error}")))?;
    let items = table.values().filter_map(Value::as_array).flatten();
    let part = |item: &Value, name: &str| {
        let text = item.get(name).and_then(Value::as_str).map(String::from);
        text.ok_or_else(|| broken(format!("an entry has no {name}: {item}")))
    };
    items
        .map(|item| {
            Ok(Entry {
                list: list.into(),
                name: part(item, "name")?,
                file: part(item, "file")?,
                edge: part(item, "edge")?,
                test: part(item, "test")?,
                how: part(item, "how")?,
                patches: Patch::all_of(item).map_err(broken)?,
            })
        })
        .collect()
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

/// Drills the named mutations, those without loom (`--quick`), or all.
///
/// # Errors
/// A mutation survived or stayed undecided, or a name is in no list.
pub fn run(arguments: &[String]) -> Result<(), Error> {
    let has = |flag: &str| arguments.iter().any(|argument| argument == flag);
    let (quick, resume) = (has("--quick"), has("--resume"));
    let is_name = |argument: &&String| !matches!(argument.as_str(), "--quick" | "--resume");
    let names: Vec<&String> = arguments.iter().filter(is_name).collect();
    let all = listed(&workspace::root())?;
    if let Some(name) = names
        .iter()
        .find(|name| !all.iter().any(|entry| entry.name == ***name))
    {
        return Err(Error::Usage(format!("no list names the mutation {name:?}")));
    }
    let wanted = |entry: &&Entry| {
        (names.is_empty() || names.contains(&&entry.name)) && !(quick && entry.how == "loom")
    };
    let entries: Vec<&Entry> = all.iter().filter(wanted).collect();
    if entries.is_empty() {
        return Err(Error::Failed("the lists name no mutation to try".into()));
    }
    let (begin, mut done) = (Instant::now(), Done::read(resume));
    let mut builds = Builds::default();
    let mut missed = 0;
    for (nth, entry) in (1..).zip(&entries) {
        if done.names.contains(&entry.name) {
            continue;
        }
        let outcome = builds.drill(entry)?;
        let said = in_words(&outcome);
        println!("drill {nth}/{}: {}: {said}", entries.len(), entry.name);
        missed += u32::from(!matches!(outcome, Outcome::Caught(_)));
        done.add(&all, entry, &outcome)?;
    }
    let (count, seconds) = (entries.len(), begin.elapsed().as_secs());
    if missed == 0 {
        println!("drill: all {count} mutations caught, in {seconds} s");
        return Ok(());
    }
    Err(Error::Failed(format!(
        "{missed} of {count} mutations were not caught"
    )))
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
    fn add(&mut self, all: &[Entry], entry: &Entry, outcome: &Outcome) -> Result<(), Error> {
        let root = workspace::root();
        if matches!(outcome, Outcome::Caught(_)) {
            self.names.push(entry.name.clone());
        }
        let known = recorded(&root);
        let is_all = all.iter().all(|entry| self.names.contains(&entry.name));
        let before = workspace::text(&root.join(TABLE)).unwrap_or_default();
        let tree = self.tree.as_deref();
        let tree = tree.filter(|tree| is_all || before.contains(&format!("{TREE}`{tree}`")));
        let table = table_of(all, (entry, outcome), &known, tree);
        std::fs::write(root.join(TABLE), table + notes_of(&before))?;
        if let Some(tree) = &self.tree {
            std::fs::write(
                root.join(DONE),
                format!("{tree}\n{}\n", self.names.join("\n")),
            )?;
        }
        Ok(())
    }
}

/// Git's name for what is in the structures' directory, if all of it is committed.
fn tree() -> Option<String> {
    let git = |arguments: &[&str]| {
        let output = Command::new("git")
            .args(arguments)
            .current_dir(workspace::root())
            .output();
        let output = output.ok().filter(|output| output.status.success())?;
        Some(String::from_utf8_lossy(&output.stdout).trim().to_string())
    };
    let changed = git(&["status", "--porcelain", "--", "structures"])?;
    changed
        .is_empty()
        .then(|| git(&["rev-parse", "HEAD:structures"]))?
}

/// The test binaries of the unmutated code, and whether each test passes with them.
#[derive(Default)]
struct Builds {
    binaries: HashMap<Option<&'static str>, PathBuf>,
    sound: HashMap<(Option<&'static str>, String), Result<Duration, String>>,
    /// The sources in which statements are changed, once one is to be.
    copied: Option<Copied>,
}

impl Builds {
    fn drill(&mut self, entry: &Entry) -> Result<Outcome, Error> {
        let time = match self.passes_unmutated(entry)? {
            Ok(time) => time,
            Err(why) => return Ok(Outcome::Undecided(format!("without the mutation: {why}"))),
        };
        let binary = self.mutated(entry)?;
        let report = run_test(&binary, entry)?;
        // Each mutation has its own; the sound one was copied.
        std::fs::remove_file(&binary)?;
        let tally = Tally::of(&report.lines);
        Ok(match report.end {
            End::TimedOut if time <= SOUND_TIME_MAX => Outcome::Caught(format!(
                "it hangs: stopped after {TEST_TIME_MAX:?}, and without the mutation it ends"
            )),
            End::TimedOut => Outcome::Undecided(format!("the test hung for {TEST_TIME_MAX:?}")),
            End::Exited(status) if status.success() && tally.ran() > 0 => Outcome::Survived,
            End::Exited(status) if status.success() => Outcome::Undecided("no test ran".into()),
            End::Exited(status) => {
                Outcome::Caught(first_panic(&report.lines).unwrap_or_else(|| status.to_string()))
            }
        })
    }

    /// The test binary of the mutated code.
    fn mutated(&mut self, entry: &Entry) -> Result<PathBuf, Error> {
        if entry.patches.is_empty() {
            return build(&workspace::root(), entry.checker(), Some(&entry.name));
        }
        let copied = match self.copied.take() {
            Some(copied) => copied,
            None => Copied::make()?,
        };
        let copied = self.copied.insert(copied);
        copied.with(entry, || build(copied.root(), entry.checker(), None))
    }

    /// A red test proves nothing if it is red without the mutation too.
    fn passes_unmutated(&mut self, entry: &Entry) -> Result<Result<Duration, String>, Error> {
        let checker = entry.checker();
        let key = (checker, entry.test.clone());
        if let Some(known) = self.sound.get(&key) {
            return Ok(known.clone());
        }
        // The mutated build writes to the same place: keep a copy of the sound one.
        let binary = match self.binaries.entry(checker) {
            Occupied(known) => known.into_mut(),
            Vacant(unknown) => {
                let binary = build(&workspace::root(), checker, None)?;
                let kept = binary.with_extension("sound");
                std::fs::copy(&binary, &kept)?;
                unknown.insert(kept)
            }
        };
        let begin = Instant::now();
        let report = run_test(binary, entry)?;
        let outcome = match (report.succeeded(), Tally::of(&report.lines).ran()) {
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
fn build(sources: &Path, checker: Option<&str>, edge: Option<&str>) -> Result<PathBuf, Error> {
    let target = format!("target/drill-{}", checker.unwrap_or("plain"));
    let mut command = process::cargo(&["rustc", "--package", "flatpath-structures", "--lib"]);
    command
        .args(["--profile", "test", "--message-format", "json"])
        .arg("--target-dir")
        .arg(workspace::root().join(target))
        .current_dir(sources);
    for setting in PROFILE {
        command.args(["--config", setting]);
    }
    if let Some(checker) = checker {
        loom::configure(&mut command, checker);
    }
    if let Some(name) = edge {
        command.args(["--", "--cfg", &format!("drill=\"{name}\"")]);
    }
    let report = process::watch(&mut command, BUILD_TIME_MAX, Show::Nothing)?;
    let built = report.lines.iter().rev().find_map(|line| {
        let message: serde_json::Value = serde_json::from_str(line).ok()?;
        message.get("executable")?.as_str().map(PathBuf::from)
    });
    match built {
        Some(binary) if report.succeeded() => Ok(binary),
        _ => {
            let output = report.lines.join("\n");
            Err(Error::Failed(format!(
                "`{}`:\n{output}",
                process::line_of(&command)
            )))
        }
    }
}

fn run_test(binary: &Path, entry: &Entry) -> Result<process::Report, Error> {
    let mut command = Command::new(binary);
    command
        .arg(&entry.test)
        .current_dir(workspace::root().join("structures"));
    if let Some(checker) = entry.checker() {
        loom::configure(&mut command, checker);
    }
    process::watch(&mut command, TEST_TIME_MAX, Show::Nothing)
}

fn in_words(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Caught(said) => format!("caught: {}", shortened(said)),
        Outcome::Survived => "SURVIVED: the test passes with the mutation".into(),
        Outcome::Undecided(why) => format!("UNDECIDED: {why}"),
    }
}

/// What the table says already: the line of each mutation, by its name.
#[must_use]
pub fn recorded(root: &Path) -> HashMap<String, String> {
    let text = workspace::text(&root.join(TABLE)).unwrap_or_default();
    let rows = text.lines().filter_map(|line| {
        let name = line.strip_prefix("| `")?.split('`').next()?;
        Some((name.to_string(), line.to_string()))
    });
    rows.collect()
}

/// The table for the documentation: no times, so that it changes only when a result does.
fn table_of(
    all: &[Entry],
    (tried, outcome): (&Entry, &Outcome),
    known: &HashMap<String, String>,
    tree: Option<&str>,
) -> String {
    let mut text = String::from(
        "# Mutation drill\n\n\
         Each line weakens one ordering edge, or one step that a proof rests on, and names the\n\
         test that turns red. Written by `cargo xtask drill`; a mutation that no test catches\n\
         fails that command, and `cargo test` fails when a mutation has no line here.\n\n",
    );
    if let Some(tree) = tree {
        let _ = writeln!(text, "{TREE}`{tree}`.\n");
    }
    text.push_str("| mutation | edge | test | how | outcome |\n|---|---|---|---|---|\n");
    for entry in all {
        let start = row_of(entry);
        let line = if entry == tried {
            Some(format!("{start} {} |", as_cell(&in_words(outcome))))
        } else {
            known.get(&entry.name).cloned()
        };
        if let Some(line) = line.filter(|line| line.starts_with(&start)) {
            let _ = writeln!(text, "{line}");
        }
    }
    text
}

/// What is written by hand after the table, from its first heading on.
fn notes_of(text: &str) -> &str {
    text.find("\n## ").map_or("", |at| &text[at..])
}

/// The line of a mutation, up to its outcome.
#[must_use]
pub fn row_of(entry: &Entry) -> String {
    let Entry {
        name,
        file,
        edge,
        test,
        how,
        ..
    } = entry;
    let (edge, test) = (as_cell(edge), as_cell(test));
    format!("| `{name}` in `{file}` | {edge} | `{test}` | {how} |")
}

/// Whether a line of the table is that of this entry, and says that the mutation was caught.
#[must_use]
pub fn is_caught(entry: &Entry, line: &str) -> bool {
    let outcome = line.strip_prefix(&row_of(entry));
    outcome.is_some_and(|outcome| outcome.starts_with(" caught: "))
}

fn as_cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}

/// What a test said, without the list of threads that loom adds to a deadlock.
fn shortened(said: &str) -> String {
    let end = said.find("; threads = ").unwrap_or(said.len());
    said[..end].to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = "[[drill]]\nname = \"stack-tag\"\nfile = \"stack.rs\"\nedge = \"E2\"\n\
                        test = \"loom_pop\"\nhow = \"loom\"\n";

    #[test]
    fn a_list_is_read_whatever_its_array_is_called() {
        for name in ["drill", "mutation"] {
            let entries =
                parse("a.toml", &LIST.replace("[[drill]]", &format!("[[{name}]]"))).unwrap();
            assert_eq!(entries.len(), 1);
            assert_eq!(entries[0].name, "stack-tag");
            assert_eq!(entries[0].checker(), Some("loom"));
        }
    }

    #[test]
    fn an_entry_without_a_test_is_refused() {
        let outcome = parse("a.toml", &LIST.replace("test = \"loom_pop\"\n", ""));
        assert!(matches!(outcome, Err(Error::Failed(why)) if why.contains("test")));
    }

    #[test]
    fn the_table_keeps_the_rows_of_what_was_not_tried() {
        let entries = parse("a.toml", &LIST.repeat(2).replacen("stack-tag", "queue", 1)).unwrap();
        let caught = Outcome::Caught("slot 1 | twice; threads = [..]".into());
        let first = table_of(
            &entries,
            (&entries[0], &caught),
            &HashMap::new(),
            Some("abc"),
        );
        let row = "| `queue` in `stack.rs` | E2 | `loom_pop` | loom | caught: slot 1 \\| twice |";
        assert!(first.lines().any(|line| line == row), "{first}");
        assert!(first.contains("HEAD:structures`): `abc`."), "{first}");
        let known = HashMap::from([("queue".to_string(), row.to_string())]);
        let second = table_of(&entries, (&entries[1], &Outcome::Survived), &known, None);
        assert!(second.lines().any(|line| line == row), "{second}");
        assert!(second.contains("| `stack-tag` in"), "{second}");
        assert!(is_caught(&entries[0], row));
        assert!(!is_caught(&entries[1], second.lines().last().unwrap()));
    }

    #[test]
    fn notes_below_the_table_are_kept() {
        let notes = "\n## Beside it\n\n| no | row |\n";
        assert_eq!(notes_of(&format!("# Drill\n\n| a | row |\n{notes}")), notes);
        assert_eq!(notes_of("# Drill\n\n| a | row |\n"), "");
    }

    #[test]
    fn the_row_of_an_entry_that_changed_is_dropped() {
        let entries = parse("a.toml", &LIST.repeat(2).replacen("stack-tag", "queue", 1)).unwrap();
        let stale = "| `stack-tag` in `stack.rs` | E1 | `loom_pop` | loom | caught: x |";
        let known = HashMap::from([("stack-tag".to_string(), stale.to_string())]);
        let table = table_of(&entries, (&entries[0], &Outcome::Survived), &known, None);
        assert!(!table.contains("stack-tag"));
    }
}
