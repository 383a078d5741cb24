//! `cargo xtask mutate --woven`: all mutants in one build, each tried by the tests that reach it.
//!
//! One build and one run of the tests for each mutant takes hours. Here the sources are copied to
//! `target/mutate/woven/src`, and every mutant that cargo-mutants lists is woven into them behind a
//! switch (`weave.rs`). What the compiler refuses is taken out until the rest compiles. Then each
//! test runs alone, once, and records which mutants it reaches (`trial.rs`); each mutant is tried
//! with these tests, the crate's own and the quickest first, until one fails.
//!
//! The outcomes are in `target/mutate/woven/outcomes`, a line each. `--iterate` keeps those, and
//! tries again what was missed; `--above` does so with the tests of the crates above instead, and
//! of the programs, whose processes have the mutants too.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use super::trial::{self, Programs};
use super::weave::{self, Blamed, Genre, Mutant, Place, Woven};
use crate::{process, workspace};

/// Everything is below it.
const OUTPUT: &str = "target/mutate/woven";
/// What a crate gets to ask which mutant is on; the number of mutants is added.
const SWITCH: &str = include_str!("switch.rs");
/// Whose tests are run with `--above`.
const ABOVE: &[&str] = &[
    "flatpath-messages",
    "flatpath-rpc",
    "flatpath-layers",
    "flatpath-websocket",
    "flatpath-admin",
    "flatpath-echo",
    "flatpath-files",
    "flatpath-ingest",
    "flatpath-relay",
    "flatpath-cli",
    "flatpath-e2e",
];

/// A mutant as cargo-mutants lists it.
#[derive(serde::Deserialize)]
pub(super) struct Listed {
    pub(super) name: String,
    pub(super) package: String,
    file: String,
    span: Span,
    replacement: String,
    genre: Genre,
}

#[derive(serde::Deserialize)]
struct Span {
    start: Place,
}

/// What became of a mutant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Outcome {
    Caught,
    TimedOut,
    /// No test that reaches it failed.
    Missed,
    NotReached,
    /// The compiler refuses it.
    Unviable,
    NotWoven,
}

/// By mutant: what became of it, and the test that caught it or why it was missed.
pub(super) type Outcomes = BTreeMap<String, (Outcome, String)>;

pub(super) fn run(areas: &[&str], is_above: bool, is_again: bool) -> Result<()> {
    let root = workspace::root();
    let output = root.join(OUTPUT);
    fs::create_dir_all(&output)?;
    let mut outcomes = Outcomes::new();
    if is_again || is_above {
        outcomes = read(&workspace::text(&output.join("outcomes"))?)?;
        outcomes
            .retain(|_, (outcome, _)| !matches!(outcome, Outcome::Missed | Outcome::NotReached));
    }
    let mut listed = Vec::new();
    let mut counted = Vec::new();
    for area in areas {
        let found = list(&root, area)?;
        counted.push((*area, listed.len()..listed.len() + found.len()));
        listed.extend(found);
    }
    let mut copy = Copy::new(&root, &output, &listed)?;
    let mut packages: Vec<&str> = listed.iter().map(|mutant| &*mutant.package).collect();
    packages.sort_unstable();
    packages.dedup();
    if is_above {
        packages = ABOVE.to_vec();
    }
    let mut programs = test_programs(&copy.compile(&packages, &mut outcomes)?)?;
    if is_above {
        let mut command = copy.cargo("build");
        process::run(command.args(["--workspace", "--bin", "flatpath"]))?;
        programs.flatpath = Some(copy.target.join("debug/flatpath"));
    }
    trial::run(&programs, &listed, &mut outcomes, &output)?;
    for (area, range) in counted {
        print!("{}", summary(area, &listed[range], &outcomes));
    }
    Ok(())
}

fn list(root: &Path, area: &str) -> Result<Vec<Listed>> {
    let mut command = process::cargo(&["mutants", "--list", "--json", "--file", area]);
    command.current_dir(root.join(super::crate_of(root, area)?));
    let json = process::output(&mut command).context("cargo mutants --list")?;
    Ok(serde_json::from_str(&json)?)
}

/// The copied sources with the mutants in them.
struct Copy<'a> {
    root: PathBuf,
    target: PathBuf,
    listed: &'a [Listed],
    /// By file with mutants: its text, and what is woven now.
    files: BTreeMap<&'a str, (String, Woven)>,
}

impl<'a> Copy<'a> {
    fn new(root: &Path, output: &Path, listed: &'a [Listed]) -> Result<Self> {
        let copied = output.join("src");
        let mut switch = SWITCH.to_string();
        write!(switch, "\nconst COUNT: usize = {};\n", listed.len())?;
        let mut files = BTreeMap::new();
        for file in workspace::files(root, |_| true)? {
            let mut bytes = fs::read(root.join(&file))?;
            let name = file.to_str().context("a path is UTF-8")?;
            let is_root = |mutant: &Listed| {
                let source = mutant.file.split_once("/src/").map(|(before, _)| before);
                source.is_some_and(|before| name == format!("{before}/src/lib.rs"))
            };
            if listed.iter().any(is_root) {
                bytes.extend(b"\nmod woven;\n");
                replace(
                    &copied.join(&file).with_file_name("woven.rs"),
                    switch.as_bytes(),
                )?;
            }
            if let Some(mutant) = listed.iter().find(|mutant| mutant.file == name) {
                let text = String::from_utf8(bytes)?;
                files.insert(&*mutant.file, (text, Woven::default()));
                continue;
            }
            replace(&copied.join(&file), &bytes)?;
            fs::set_permissions(
                copied.join(&file),
                fs::metadata(root.join(&file))?.permissions(),
            )?;
        }
        Ok(Self {
            root: copied,
            target: output.join("target"),
            listed,
            files,
        })
    }

    /// Weaves in what has no outcome yet, and takes out what the compiler refuses: most of it
    /// without making code, which is quicker. Then builds the tests of `packages`.
    fn compile(&mut self, packages: &[&str], outcomes: &mut Outcomes) -> Result<Vec<Value>> {
        let mut actions = &["check", "build"][..];
        loop {
            self.weave(outcomes)?;
            let mut command = self.cargo(actions[0]);
            command
                .args(["--keep-going", "--lib", "--tests", "--all-features"])
                .args(packages.iter().flat_map(|package| ["--package", package]));
            let messages = messages(&mut command)?;
            let (blamed, unknown) = self.blamed(&messages);
            println!("mutate: {} mutants do not compile", blamed.len());
            if blamed.is_empty() {
                ensure!(
                    unknown.is_empty(),
                    "not about a mutant: {}",
                    unknown.join("\n")
                );
                actions = &actions[1..];
            }
            if actions.is_empty() {
                return Ok(messages);
            }
            for (id, outcome) in blamed {
                let name = self.listed[id].name.clone();
                outcomes.insert(name, (outcome, "does not compile".to_string()));
            }
        }
    }

    /// Whom the errors are about, and those that are about no mutant.
    fn blamed<'m>(&self, messages: &'m [Value]) -> (HashMap<usize, Outcome>, Vec<&'m str>) {
        let mut blamed = HashMap::new();
        let mut unknown = Vec::new();
        for message in messages.iter().map(|message| &message["message"]) {
            let has_spans = message["spans"]
                .as_array()
                .is_some_and(|spans| !spans.is_empty());
            if message["level"] != "error" || !has_spans {
                continue;
            }
            match self.blame(message) {
                Some(Blamed::Change(id)) => drop(blamed.insert(id, Outcome::Unviable)),
                Some(Blamed::Weaving(ids)) => {
                    for id in ids {
                        blamed.entry(id).or_insert(Outcome::NotWoven);
                    }
                }
                None => unknown.extend(message["rendered"].as_str()),
            }
        }
        (blamed, unknown)
    }

    fn weave(&mut self, outcomes: &mut Outcomes) -> Result<()> {
        for (name, (text, woven)) in &mut self.files {
            let mutants = self.listed.iter().enumerate().filter(|(_, mutant)| {
                let is_out = outcomes.get(&mutant.name).is_some_and(|(outcome, _)| {
                    matches!(outcome, Outcome::Unviable | Outcome::NotWoven)
                });
                mutant.file == **name && !is_out
            });
            let mutants = mutants.map(|(id, mutant)| Mutant {
                id,
                genre: mutant.genre,
                start: mutant.span.start,
                replacement: &mutant.replacement,
            });
            let mutants: Vec<Mutant> = mutants.collect();
            *woven = weave::weave(text, &mutants).with_context(|| (*name).to_string())?;
            for mutant in &mutants {
                let outcome = if woven.refused.contains(&mutant.id) {
                    (Outcome::Unviable, "`||` beside `let`".to_string())
                } else if !woven.changed.iter().any(|(id, _)| *id == mutant.id) {
                    (Outcome::NotWoven, "has no place for a switch".to_string())
                } else {
                    continue;
                };
                outcomes.insert(self.listed[mutant.id].name.clone(), outcome);
            }
            replace(&self.root.join(name), woven.text.as_bytes())?;
        }
        Ok(())
    }

    fn blame(&self, message: &Value) -> Option<Blamed> {
        let mut spans: Vec<&Value> = message["spans"].as_array()?.iter().collect();
        let notes = message["children"].as_array()?.iter();
        spans.sort_by_key(|span| span["is_primary"] != true);
        spans.extend(notes.filter_map(|note| note["spans"].as_array()).flatten());
        let (_, woven) = self.files.get(spans.first()?["file_name"].as_str()?)?;
        let here = spans
            .iter()
            .filter(|span| span["file_name"] == spans[0]["file_name"]);
        let named = here.filter_map(|span| {
            let at = |name: &str| usize::try_from(span[name].as_u64()?).ok();
            Some(at("byte_start")?..at("byte_end")?)
        });
        woven.blame(&named.collect::<Vec<_>>())
    }

    fn cargo(&self, action: &str) -> Command {
        let mut command = process::cargo(&[action]);
        command
            .current_dir(&self.root)
            .arg("--target-dir")
            .arg(&self.target);
        command
    }
}

/// The test programs that cargo says it has built.
fn test_programs(messages: &[Value]) -> Result<Programs> {
    let mut programs = Programs::default();
    let built = messages
        .iter()
        .filter(|message| message["profile"]["test"] == true);
    for message in built {
        let path = |name: &str| message[name].as_str().map(PathBuf::from);
        let Some(program) = path("executable") else {
            continue;
        };
        let manifest = path("manifest_path").context("a program has a manifest")?;
        let package: toml::Table = workspace::text(&manifest)?.parse()?;
        let package = package["package"]["name"]
            .as_str()
            .context("a package has a name")?;
        let directory = manifest.parent().context("a file has a directory")?;
        programs
            .tests
            .push((package.to_string(), directory.to_path_buf(), program));
    }
    ensure!(!programs.tests.is_empty(), "no test program was built");
    programs.tests.sort_unstable();
    Ok(programs)
}

/// What cargo says in JSON. That it fails is told by its messages.
fn messages(command: &mut Command) -> Result<Vec<Value>> {
    let shown = command
        .arg("--message-format=json")
        .stderr(Stdio::inherit());
    let output = shown.output()?;
    let lines = String::from_utf8(output.stdout)?;
    let messages = lines
        .lines()
        .map(serde_json::from_str)
        .collect::<Result<Vec<_>, _>>()?;
    if messages.is_empty() {
        bail!("{command:?} ended with {}", output.status);
    }
    Ok(messages)
}

/// Writes a file that is another one now: cargo builds again what was written.
fn replace(path: &Path, bytes: &[u8]) -> Result<()> {
    if fs::read(path).is_ok_and(|old| old == bytes) {
        return Ok(());
    }
    fs::create_dir_all(path.parent().context("a file has a directory")?)?;
    fs::write(path, bytes).with_context(|| path.display().to_string())
}

const OUTCOMES: &[(Outcome, &str)] = &[
    (Outcome::Caught, "caught"),
    (Outcome::TimedOut, "timed out"),
    (Outcome::Missed, "missed"),
    (Outcome::NotReached, "not reached"),
    (Outcome::Unviable, "unviable"),
    (Outcome::NotWoven, "not woven"),
];

fn word(outcome: Outcome) -> &'static str {
    let found = OUTCOMES.iter().find(|(other, _)| *other == outcome);
    found.map_or("", |(_, word)| word)
}

/// A line for an outcome, as [`read`] reads it.
pub(super) fn line(mutant: &str, (outcome, why): &(Outcome, String)) -> String {
    format!("{}\t{mutant}\t{why}\n", word(*outcome))
}

fn read(text: &str) -> Result<Outcomes> {
    let outcome = |line: &str| {
        let mut parts = line.split('\t');
        let (word, mutant, why) = (parts.next()?, parts.next()?, parts.next()?);
        let (outcome, _) = OUTCOMES.iter().find(|(_, other)| *other == word)?;
        Some((mutant.to_string(), (*outcome, why.to_string())))
    };
    let outcomes = text
        .lines()
        .map(|line| outcome(line).with_context(|| line.to_string()));
    outcomes.collect()
}

/// The counts of an area, and what survived there.
fn summary(area: &str, listed: &[Listed], outcomes: &Outcomes) -> String {
    let mut counts: BTreeMap<Outcome, usize> = BTreeMap::new();
    let mut survived = String::new();
    for mutant in listed {
        let Some(found) = outcomes.get(&mutant.name) else {
            continue;
        };
        *counts.entry(found.0).or_default() += 1;
        if matches!(
            found.0,
            Outcome::Missed | Outcome::NotReached | Outcome::NotWoven
        ) {
            survived += &line(&mutant.name, found);
        }
    }
    let counts = counts
        .iter()
        .map(|(outcome, count)| format!(", {count} {}", word(*outcome)));
    let counts: String = counts.collect();
    format!(
        "mutate: {area}: {} mutants{counts}\n{survived}",
        listed.len()
    )
}
