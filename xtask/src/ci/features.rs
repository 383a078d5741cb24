//! The step `features` of `cargo xtask ci`: each library compiles with none of its features, and
//! with each of them alone.
//!
//! Features are additive, so a program may have any set of them; what one needs of another, it
//! asks for. In the workspace all are on at once, and nothing else would show what is missing, or
//! unused, without the others. Only the named crate is checked, by clippy, whose results the other
//! steps share; a warning is a fault.

use anyhow::Result;

use super::{libraries, manifest_of};
use crate::process;

/// The features of one check: none, or one.
type Alone = Option<String>;

pub(super) fn run() -> Result<()> {
    for name in libraries()? {
        for feature in sets(&names(&name)?) {
            let mut command = process::cargo(&["clippy", "--quiet", "--lib"]);
            command.args(["--package", &name, "--no-default-features"]);
            command.args(feature.map(|feature| format!("--features={feature}")));
            process::run(command.args(["--", "-D", "warnings"]))?;
        }
    }
    Ok(())
}

/// The features of a crate that a program may ask for: the set of the defaults is none, nor are
/// those that are parts of others, whose names begin with an underscore.
fn names(package: &str) -> Result<Vec<String>> {
    let manifest = manifest_of(package)?;
    let features = manifest["features"].as_object();
    let names = features.into_iter().flat_map(|all| all.keys());
    let is_asked_for = |name: &&String| *name != "default" && !name.starts_with('_');
    Ok(names.filter(is_asked_for).cloned().collect())
}

/// What is checked of a crate with these features; a crate without any is checked with every
/// change.
fn sets(features: &[String]) -> Vec<Alone> {
    if features.is_empty() {
        return Vec::new();
    }
    let alone = features.iter().cloned().map(Some);
    std::iter::once(None).chain(alone).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crate_with_features_is_checked_with_none_and_with_each_alone() {
        let features = ["a".to_owned(), "b".to_owned()];
        assert_eq!(sets(&features), [None, Some("a".into()), Some("b".into())]);
        assert_eq!(sets(&[]), []);
    }

    #[test]
    fn the_drivers_are_features_of_the_engine_and_of_its_http() {
        for package in ["flatpath", "flatpath-driver", "flatpath-http"] {
            let names = names(package).unwrap();
            for driver in ["epoll", "uring"] {
                assert!(
                    names.iter().any(|name| name == driver),
                    "{driver} of {package}"
                );
            }
            assert!(!names.contains(&"default".to_owned()));
        }
    }
}
