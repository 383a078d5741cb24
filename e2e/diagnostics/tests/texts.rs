//! What the compiler says of each program with a mistake, as far as the words are ours.
//!
//! Compilers differ in what they add, so not the whole text is compared, as `trybuild` does: an
//! error's message, the label of its place and its notes without a place, which is what
//! `#[diagnostic::on_unimplemented]` writes. One `cargo check` compiles all programs, as modules of
//! one crate. `UPDATE_EXPECT=1` writes the texts anew.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use expect_test::expect_file;
use serde_json::Value;

/// Words of the compiler's own, in errors and in notes.
const FOREIGN: &[&str] = &["expected a", "required for", "the full", "similarly named"];

#[test]
fn each_mistake_is_explained_in_our_words() {
    let home = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut texts = texts(home);
    let mut programs = 0;
    for program in programs_in(&home.join("src")) {
        let path = program.strip_prefix(home).expect("it is in there");
        let text = texts.remove(path).unwrap_or_default();
        assert!(!text.is_empty(), "{} compiles", path.display());
        expect_file![program.with_extension("txt")].assert_eq(&text);
        programs += 1;
    }
    assert!(programs > 10, "the programs were found");
    assert_eq!(texts, BTreeMap::new(), "errors in other files");
}

/// The programs: all files but the root.
fn programs_in(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).expect("the sources can be read");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    let is_program = |path: &PathBuf| path.extension().is_some_and(|it| it == "rs");
    let mut found: Vec<PathBuf> = paths.filter(is_program).collect();
    found.retain(|path| !path.ends_with("lib.rs"));
    found.sort();
    found
}

/// The texts of the errors, by the file that they are in. The compiler orders errors of one file by
/// its own passes; here they are in the order of their lines.
fn texts(home: &Path) -> BTreeMap<PathBuf, String> {
    let mut command = Command::new(env!("CARGO"));
    command.args([
        "check",
        "--lib",
        "--features=mistakes",
        "--message-format=json",
    ]);
    let output = command.current_dir(home).stderr(Stdio::piped()).output();
    let output = output.expect("cargo runs");
    let log = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "the programs compile: {log}");
    let mut errors: Vec<(PathBuf, u64, String)> = Vec::new();
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        let value: Value = serde_json::from_str(line).expect("cargo writes JSON");
        let message = &value["message"];
        let place = list(&message["spans"]).find(|span| span["is_primary"] == true);
        let is_ours = message["level"] == "error" && !is_foreign(string(&message["message"]));
        let (Some(place), true) = (place, is_ours) else {
            continue;
        };
        let called = call(place);
        let file = Path::new(string(&called["file_name"]));
        let file = file.strip_prefix("e2e/diagnostics").unwrap_or(file);
        let line = called["line_start"].as_u64().expect("a line");
        errors.push((file.to_owned(), line, text(message, place)));
    }
    assert!(!errors.is_empty(), "no program was compiled: {log}");
    // One mistake may be reported for each bound that it breaks.
    errors.sort();
    errors.dedup();
    let mut texts: BTreeMap<PathBuf, String> = BTreeMap::new();
    for (file, line, text) in errors {
        let all = texts.entry(file).or_default();
        *all += &format!("line {line}: {text}\n");
    }
    texts
}

/// The place in the program: of what a macro expands to, the outermost call.
fn call(place: &Value) -> &Value {
    match &place["expansion"] {
        Value::Null => place,
        expansion => call(&expansion["span"]),
    }
}

/// An error in our words.
fn text(message: &Value, place: &Value) -> String {
    let mut text = format!(
        "{}\n  {}\n",
        string(&message["message"]),
        string(&place["label"])
    );
    for note in list(&message["children"]) {
        let words = string(&note["message"]);
        let is_ours = note["level"] == "note" && list(&note["spans"]).next().is_none();
        if is_ours && !is_foreign(words) {
            text += &format!("  note: {words}\n");
        }
    }
    text
}

fn is_foreign(words: &str) -> bool {
    FOREIGN.iter().any(|foreign| words.contains(foreign))
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn string(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
