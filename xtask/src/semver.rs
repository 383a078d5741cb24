//! The step `semver` of `cargo xtask ci`: what `cargo-semver-checks` finds to break programs that
//! were written for the last release.
//!
//! The last release is the last tag `vX.Y.Z` before the commit. Before the first there is nothing
//! to compare with, and the step says so. The tool takes minutes to build, so it is not installed
//! in CI: whoever makes a release has it.

use std::process::Command;

use anyhow::Result;

use crate::{ci, process, workspace};

pub(crate) fn run() -> Result<()> {
    let Some(release) = last_release(&mut git()) else {
        println!("not run: semver: no tag `vX.Y.Z` names a release to compare with");
        return Ok(());
    };
    if process::output(&mut process::cargo(&["semver-checks", "--version"])).is_none() {
        println!("not run: semver: `cargo install cargo-semver-checks --locked` has the tool");
        return Ok(());
    }
    let mut command = process::cargo(&["semver-checks", "--baseline-rev", &release]);
    command.args(
        ci::libraries()?
            .iter()
            .map(|name| format!("--package={name}")),
    );
    process::run(&mut command)
}

fn git() -> Command {
    let mut command = Command::new("git");
    command.arg("-C").arg(workspace::root());
    command
}

/// The tag of the last release, if there is one.
fn last_release(git: &mut Command) -> Option<String> {
    git.args(["describe", "--tags", "--abbrev=0", "--match", "v[0-9]*"]);
    process::output(git)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_tag_of_a_version_is_the_last_release() {
        let home = tempfile::tempdir().expect("a directory");
        let git = || {
            let mut command = Command::new("git");
            command.arg("-C").arg(home.path());
            command.args([
                "-c",
                "user.name=a",
                "-c",
                "user.email=a@b",
                "-c",
                "commit.gpgsign=false",
            ]);
            command
        };
        let run = |arguments: &[&str]| {
            let status = git().args(arguments).status().expect("git runs");
            assert!(status.success(), "{arguments:?}");
        };
        let commit = || run(&["commit", "--quiet", "--allow-empty", "--message", "a"]);
        run(&["init", "--quiet"]);
        commit();
        run(&["tag", "nightly"]);
        assert_eq!(last_release(&mut git()), None, "that tag is no version");
        run(&["tag", "v0.1.0"]);
        commit();
        run(&["tag", "v0.2.0"]);
        commit();
        assert_eq!(last_release(&mut git()).as_deref(), Some("v0.2.0"));
    }
}
