//! `cargo xtask face`: the public items of each published crate, as committed text.
//!
//! `docs/face/CRATE.txt` has a line per item. The command compares it with what rustdoc finds now,
//! with all features, and fails where they differ; `--update` writes it anew. So a change of what
//! users see is read in the diff of its commit.
//!
//! rustdoc's JSON is not stable: `public-api` reads one format, and another compiler may write
//! another. Then the command names the two and compares nothing, which in CI is a failure: take the
//! version of `public-api` for that compiler. The JSON also needs a nightly toolchain or
//! `RUSTC_BOOTSTRAP`, which only rustdoc gets: build scripts look at it, and would build again what
//! depends on them.

use std::collections::HashSet;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail, ensure};
use public_api::PublicApi;
use serde_json::Value;

use crate::{ci, process, workspace};

const TEXTS: &str = "docs/face";
/// Runs rustdoc with what is unstable.
const RUSTDOC: &str = "#!/bin/sh\nRUSTC_BOOTSTRAP=1 exec rustdoc \"$@\"\n";
/// The format of rustdoc's JSON that our version of `public-api` reads.
const FORMAT: u64 = 57;
/// Lines of a difference that are shown.
const LINES_MAX: usize = 40;

#[derive(Default, clap::Args)]
pub(crate) struct Options {
    /// Write the texts anew
    #[arg(long)]
    update: bool,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let libraries = ci::libraries()?;
    let documents = document(&libraries)?;
    let home = workspace::root().join(TEXTS);
    let mut differences = String::new();
    for name in &libraries {
        let json = documents.join(format!("{}.json", name.replace('-', "_")));
        if let Some(found) = other_format(&json)? {
            let message = format!(
                "not run: face: this rustdoc writes JSON {found}, and our public-api reads {FORMAT}"
            );
            ensure!(std::env::var_os("CI").is_none(), message);
            println!("{message}");
            return Ok(());
        }
        let text = text(&json)?;
        let path = home.join(format!("{name}.txt"));
        if options.update {
            fs::create_dir_all(&home)?;
            fs::write(&path, text)?;
        } else {
            let before = fs::read_to_string(&path).unwrap_or_default();
            differences += &difference(name, &before, &text);
        }
    }
    if differences.is_empty() {
        return no_stranger(&home, &libraries);
    }
    bail!(
        "the public items are others than {TEXTS} has:\n{differences}if they are meant to be: \
         `cargo xtask face --update`, and CHANGELOG.md"
    )
}

/// Has rustdoc describe the crates; the directory of its JSON.
fn document(libraries: &[String]) -> Result<PathBuf> {
    let target = workspace::root().join("target");
    let rustdoc = target.join("face/rustdoc");
    fs::create_dir_all(target.join("face"))?;
    fs::write(&rustdoc, RUSTDOC)?;
    fs::set_permissions(&rustdoc, Permissions::from_mode(0o755))?;
    let mut command = process::cargo(&["doc", "--quiet", "--lib", "--no-deps", "--all-features"]);
    command.arg("--target-dir").arg(&target);
    command.args(libraries.iter().map(|name| format!("--package={name}")));
    command.env("RUSTDOC", &rustdoc);
    // What documents say is the step `docs`.
    command.env(
        "RUSTDOCFLAGS",
        "-Z unstable-options --output-format=json --cap-lints=allow",
    );
    process::run(&mut command)?;
    Ok(target.join("doc"))
}

/// The format of the JSON, if it is not ours.
fn other_format(json: &Path) -> Result<Option<u64>> {
    let value: Value = serde_json::from_str(&workspace::text(json)?)?;
    let found = value["format_version"].as_u64().context("no format")?;
    Ok((found != FORMAT).then_some(found))
}

/// One item per line. What a derive or the compiler adds to each type is left out.
fn text(json: &Path) -> Result<String> {
    let items: PublicApi = public_api::Builder::from_rustdoc_json(json)
        .omit_blanket_impls(true)
        .omit_auto_trait_impls(true)
        .omit_auto_derived_impls(true)
        .build()?;
    Ok(items.to_string())
}

/// What is gone and what is new, or nothing.
fn difference(name: &str, before: &str, now: &str) -> String {
    let only_in = |text: &str, other: &str, sign: &str| -> Vec<String> {
        let others: HashSet<&str> = other.lines().collect();
        let lines = text.lines().filter(|line| !others.contains(line));
        lines.map(|line| format!("{sign} {line}\n")).collect()
    };
    let mut lines = only_in(before, now, "-");
    lines.extend(only_in(now, before, "+"));
    if lines.is_empty() && before != now {
        lines.push("  the same lines in another order\n".to_owned());
    }
    if lines.is_empty() {
        return String::new();
    }
    let more = lines.len().saturating_sub(LINES_MAX);
    let shown: String = lines.into_iter().take(LINES_MAX).collect();
    let rest = if more > 0 {
        format!("  and {more} more\n")
    } else {
        String::new()
    };
    format!("{name}\n{shown}{rest}")
}

/// Finds a text of a crate that is no longer published.
fn no_stranger(home: &Path, libraries: &[String]) -> Result<()> {
    for entry in fs::read_dir(home)? {
        let path = entry?.path();
        let stem = path
            .file_stem()
            .and_then(|stem| stem.to_str())
            .unwrap_or_default();
        let is_known = libraries.iter().any(|name| name == stem);
        ensure!(is_known, "{} is of no published crate", path.display());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_names_what_is_gone_and_what_is_new() {
        assert_eq!(difference("a", "x\ny\n", "x\ny\n"), "");
        assert_eq!(difference("a", "x\ny\n", "y\nz\n"), "a\n- x\n+ z\n");
        let order = "a\n  the same lines in another order\n";
        assert_eq!(difference("a", "x\ny\n", "y\nx\n"), order);
        let many: String = (0..LINES_MAX + 2)
            .map(|number| format!("{number}\n"))
            .collect();
        assert!(difference("a", "", &many).ends_with("+ 39\n  and 2 more\n"));
    }

    #[test]
    fn every_library_that_is_published_has_its_text() {
        let libraries = ci::libraries().expect("cargo reads the manifests");
        assert!(libraries.len() > 15 && !libraries.contains(&"flatpath-cli".to_owned()));
        for name in &libraries {
            let path = workspace::root().join(TEXTS).join(format!("{name}.txt"));
            let text = workspace::text(&path).expect("`cargo xtask face --update` has written it");
            let root = name.replace('-', "_");
            assert!(text.starts_with(&format!("pub mod {root}\n")), "{name}");
        }
    }
}
