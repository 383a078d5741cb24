//! Rule `absent`: crates that the command does not link, whatever its features.
//!
//! The server's side of HTTP/2 is our own, and so is the loop around it. The crate `h2`, the
//! runtime that it runs on and what these two bring would be a second implementation of both in the
//! same program. Tests, benches and examples may depend on them.
//!
//! What counts is the tree of `flatpath-cli` with all features, on this machine's target, without
//! what only builds or tests it.

use anyhow::{Context, Result};

use super::Fault;
use crate::process;

/// A crate, and those of others that may bring it.
type Absent = (&'static str, &'static [&'static str]);

const ABSENT: &[Absent] = &[
    ("h2", &[]),
    // For a timer that nothing asks for: the command polls what the crate does without a runtime.
    ("tokio", &["instant-acme"]),
    ("tokio-util", &[]),
    ("slab", &[]),
    ("fnv", &[]),
    ("tracing", &[]),
    // The directory of an archive.
    ("indexmap", &["zip"]),
];

/// The file that names the command's dependencies.
const MANIFEST: &str = "cli/Cargo.toml";

pub(super) fn check(faults: &mut Vec<Fault>) -> Result<()> {
    check_tree(&tree()?, faults);
    Ok(())
}

/// A line for each crate below another, as `2http v1.4.0`, in which the number is its depth. What
/// is below a crate stands where that is named first.
fn tree() -> Result<String> {
    let mut command = process::cargo(&["tree", "--package", "flatpath-cli", "--all-features"]);
    command.args(["--edges", "normal", "--prefix", "depth"]);
    process::output(&mut command).context("cargo tree fails")
}

fn check_tree(tree: &str, faults: &mut Vec<Fault>) {
    let mut above: Vec<&str> = Vec::new();
    for line in tree.lines() {
        let Some(begin) = line.find(|it: char| !it.is_ascii_digit()) else {
            continue;
        };
        let (depth, rest) = line.split_at(begin);
        let name = rest.split(' ').next().unwrap_or(rest);
        above.truncate(depth.parse().unwrap_or(0));
        let by = above.last().copied().unwrap_or_default();
        let absent = ABSENT.iter().find(|(absent, _)| *absent == name);
        if absent.is_some_and(|(_, bringers)| !bringers.contains(&by)) {
            let message = format!("the command must not link {name}, which {by} brings");
            faults.push(Fault::new(MANIFEST, 1, "absent", &message));
        }
        above.push(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(tree: &str) -> Vec<String> {
        let mut faults = Vec::new();
        check_tree(tree, &mut faults);
        faults.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn what_the_command_does_not_link_is_a_fault_wherever_it_stands() {
        let tree = "0flatpath-cli v0.1.0 (/w/cli)\n1a v1.0.0\n2tokio v1.47.0\n3bytes v1.0.0\n\
                    1h2 v0.4.0";
        let found = [
            "cli/Cargo.toml:1: [absent] the command must not link tokio, which a brings",
            "cli/Cargo.toml:1: [absent] the command must not link h2, which flatpath-cli brings",
        ];
        assert_eq!(faults(tree), found);
        let others = "0flatpath-cli v0.1.0\n1tokio-rustls v0.26.0\n1h2spec v1.0.0 (*)";
        assert_eq!(faults(others), Vec::<String>::new());
    }

    #[test]
    fn what_one_crate_may_bring_is_a_fault_below_another() {
        let tree = |by: &str| format!("0flatpath-cli v0.1.0\n1{by} v1.0.0\n2indexmap v2.0.0");
        assert_eq!(faults(&tree("zip")), Vec::<String>::new());
        assert_eq!(faults(&tree("zipper")).len(), 1);
    }

    #[test]
    fn the_tree_of_the_command_is_read() {
        let tree = tree().expect("cargo tree");
        for line in ["0flatpath-cli v", "1flatpath-http v", "zip v", "indexmap v"] {
            assert!(tree.contains(line), "{line} is not in it:\n{tree}");
        }
    }
}
