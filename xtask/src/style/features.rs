//! Rule `features`: what `cargo test` builds the server from is what a build without tests makes.
//!
//! Cargo builds a crate once, with every feature that any crate in the build enables. One that only
//! `[dev-dependencies]` enable is on in `cargo test` alone. The tests start the server, which is
//! built without it: the crate and all above it would be compiled a second time, on every machine.
//! So an ordinary dependency of some crate asks for it as well. The same holds for the crates of
//! others below it, not for those that only tests have.
//!
//! A crate that is its own dev-dependency, so that its tests are of every feature, has another name
//! there: for cargo, `--features flatpath-cli/full` is about a dependency of that name, if there is
//! one, and the command would be built without.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result};

use super::Fault;
use crate::{process, workspace};

/// Where it is put right: nothing that is published depends on this crate.
const HOME: &str = "e2e/Cargo.toml";

/// The features of each crate, by its name and version.
type Features = BTreeMap<String, BTreeSet<String>>;

pub(super) fn check(faults: &mut Vec<Fault>) -> Result<()> {
    let (server, tests) = (features("normal,build")?, features("normal,build,dev")?);
    anyhow::ensure!(!server.is_empty(), "cargo tree names no crate");
    compare(&server, &tests, faults);
    let root = workspace::root();
    for path in workspace::files(&root, |path| path.ends_with("Cargo.toml"))? {
        let text = workspace::text(&root.join(&path))?;
        if let Some(message) = named_as_itself(&text)? {
            let path = path.display().to_string();
            faults.push(Fault::new(&path, 1, "features", &message));
        }
    }
    Ok(())
}

/// What is wrong with the manifest of a package that is its own dev-dependency by its own name.
fn named_as_itself(manifest: &str) -> Result<Option<String>> {
    let manifest: toml::Table = manifest.parse()?;
    let package = manifest.get("package").and_then(|it| it.get("name"));
    let name = package.and_then(toml::Value::as_str).unwrap_or_default();
    let dependencies = manifest.get("dev-dependencies");
    let found = dependencies.and_then(|it| it.get(name)).is_some();
    Ok(found.then(|| {
        format!(
            "`--features {name}/…` would change the dev-dependency and not the package: \
             itself = {{ package = \"{name}\", path = \".\", … }}"
        )
    }))
}

fn compare(server: &Features, tests: &Features, faults: &mut Vec<Fault>) {
    for (name, features) in server {
        for feature in tests.get(name).into_iter().flatten() {
            if !features.contains(feature) {
                let message = format!(
                    "`{feature}` of {name} is on in tests alone, which builds the server twice: \
                     ask for it in an ordinary dependency here"
                );
                faults.push(Fault::new(HOME, 1, "features", &message));
            }
        }
    }
}

/// What cargo builds the default members with, if it follows these kinds of dependencies.
fn features(kinds: &str) -> Result<Features> {
    let mut command = process::cargo(&["tree", "--prefix", "none", "--locked"]);
    command.args(["--format", "{p}|{f}", "--edges", kinds]);
    let text = process::output(&mut command).context("cargo tree fails")?;
    Ok(parse(&text))
}

/// Reads lines such as `flatpath v0.1.0 (/home/flatpath/engine)|simulation,tls (*)`.
fn parse(tree: &str) -> Features {
    let mut all = Features::new();
    for line in tree.lines() {
        let Some((package, features)) = line.split_once('|') else {
            continue;
        };
        let name = package.split(" (").next().unwrap_or(package).to_owned();
        let features = features.trim_end_matches(" (*)").split(',');
        let features = features.filter(|feature| !feature.is_empty());
        let known = all.entry(name).or_default();
        known.extend(features.map(str::to_owned));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    const SERVER: &str = "flatpath v0.1.0 (/root/engine)|tls\n\
        flatpath-http v0.1.0 (/root/protocols/http)|json (*)\n\
        serde v1.0.0|derive\n\
        flatpath-sys v0.1.0 (/root/sys)|\n";

    fn faults(tests: &str) -> Vec<String> {
        let mut faults = Vec::new();
        compare(&parse(SERVER), &parse(tests), &mut faults);
        faults.iter().map(|fault| fault.message.clone()).collect()
    }

    #[test]
    fn a_feature_of_tests_alone_is_a_fault() {
        let tests = SERVER.replace("json", "cookies,json");
        let found = faults(&tests);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(
            found[0].starts_with("`cookies` of flatpath-http v0.1.0 is"),
            "{found:?}"
        );
        assert_eq!(faults(&SERVER.replace("sys)|", "sys)|tests")).len(), 1);
    }

    #[test]
    fn so_is_one_of_a_crate_of_others() {
        let found = faults(&SERVER.replace("derive", "derive,std"));
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(
            found[0].starts_with("`std` of serde v1.0.0 is"),
            "{found:?}"
        );
    }

    #[test]
    fn the_same_features_and_crates_of_tests_are_none() {
        assert_eq!(faults(SERVER), Vec::<String>::new());
        let more = format!("{SERVER}flatpath-drill v0.1.0 (/root/drill)|all\nserde v2.0.0|std\n");
        assert_eq!(faults(&more), Vec::<String>::new());
    }

    #[test]
    fn a_crate_is_its_own_dependency_by_another_name() {
        let manifest = |key: &str| {
            format!("[package]\nname = \"a\"\n[dev-dependencies]\n{key} = {{ path = \".\" }}\n")
        };
        let wrong = |key| named_as_itself(&manifest(key)).expect("a manifest");
        assert!(wrong("a").is_some_and(|it| it.contains("`--features a/…`")));
        assert_eq!(wrong("itself"), None);
        assert_eq!(named_as_itself("[workspace]\n").expect("one, too"), None);
    }

    #[test]
    fn a_crate_that_is_printed_twice_has_the_features_of_both_lines() {
        let twice = "a v1 (/a)|x\na v1 (/a)|y (*)\n";
        let both = BTreeSet::from(["x".to_owned(), "y".to_owned()]);
        assert_eq!(parse(twice), Features::from([("a v1".to_owned(), both)]));
    }
}
