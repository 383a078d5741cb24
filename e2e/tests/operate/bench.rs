//! `flatpath bench` finds the program that measures and becomes it.
//!
//! `/bin/sh` runs in place of it: it prints its arguments and its environment, and exits
//! with the status that its script sets.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use flatpath_testkit::binary;

use crate::command::run;

/// A `flatpath` in a directory of its own, so that nothing else stands beside it.
fn installed_at(directory: &Path) -> Command {
    let program = directory.join("flatpath");
    let built = binary::flatpath();
    // A link where the file system allows it: the file is large.
    if fs::hard_link(built, &program).is_err() {
        binary::copy_to(&program);
    }
    let mut command = Command::new(program);
    command.env_remove("FLATPATH").env("PATH", "/no/such/path");
    command.arg("bench");
    command
}

#[test]
fn a_bench_that_is_not_installed_is_named_with_the_command_that_installs_it() {
    for argument in ["wheel", "--help"] {
        let home = tempfile::tempdir().expect("a directory");
        let ended = run(installed_at(home.path()).arg(argument));
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(1), ""));
        for part in [
            "flatpath-bench",
            "not installed",
            home.path().to_str().expect("text"),
            "cargo build --profile dist -p flatpath-bench",
        ] {
            assert!(ended.stderr.contains(part), "{part}: {}", ended.stderr);
        }
    }
}

#[test]
fn the_bench_beside_the_command_gets_the_arguments_and_gives_the_status() {
    let home = tempfile::tempdir().expect("a directory");
    symlink("/bin/sh", home.path().join("flatpath-bench")).expect("a link");
    let script = "echo \"$FLATPATH|$1|$2\"; echo words >&2; exit 7";
    let arguments = ["-c", script, "name", "--quick", "two words"];
    let ended = run(installed_at(home.path()).args(arguments));
    assert_eq!(ended.code, Some(7), "{}", ended.stderr);
    let server = home.path().join("flatpath");
    let expected = format!("{}|--quick|two words\n", server.display());
    assert_eq!(ended.stdout, expected);
    assert_eq!(ended.stderr, "words\n");
}

#[test]
fn a_bench_in_the_path_measures_the_server_that_the_environment_names() {
    let home = tempfile::tempdir().expect("a directory");
    let elsewhere = tempfile::tempdir().expect("a directory");
    symlink("/bin/sh", elsewhere.path().join("flatpath-bench")).expect("a link");
    let mut command = installed_at(home.path());
    command
        .env("PATH", elsewhere.path())
        .env("FLATPATH", "/another/flatpath")
        .args(["-c", "echo \"$FLATPATH\""]);
    let ended = run(&mut command);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert_eq!(ended.stdout, "/another/flatpath\n");
}

#[test]
fn a_signal_that_ends_the_bench_ends_the_command() {
    let home = tempfile::tempdir().expect("a directory");
    symlink("/bin/sh", home.path().join("flatpath-bench")).expect("a link");
    let ended = run(installed_at(home.path()).args(["-c", "kill -KILL $$"]));
    assert_eq!(ended.code, None);
}
