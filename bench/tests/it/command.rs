//! The program `flatpath-bench` as `flatpath bench` runs it: help, wrong use, and a server that is
//! not there.

use std::process::{Command, Output};

fn run(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_flatpath-bench"))
        .args(arguments)
        .env_remove("FLATPATH")
        .output()
        .expect("it runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn the_help_is_that_of_the_users_command() {
    let output = run(&["--help"]);
    assert_eq!(output.status.code(), Some(0));
    let help = text(&output.stdout);
    for part in ["Usage: flatpath bench", "--quick", "neighbours", "--server"] {
        assert!(help.contains(part), "{part}: {help}");
    }
}

#[test]
fn wrong_use_is_code_two() {
    for arguments in [&[][..], &["no-such-bench"], &["wheel", "--no-such-flag"]] {
        let output = run(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(output.stdout.is_empty() && !output.stderr.is_empty());
    }
}

#[test]
fn a_server_that_is_not_there_is_named_before_anything_is_measured() {
    let output = run(&["wheel", "neighbours", "--server", "/no/such/server"]);
    assert_eq!(output.status.code(), Some(2));
    let errors = text(&output.stderr);
    assert!(errors.contains("/no/such/server"), "{errors}");
    assert!(errors.contains("-p flatpath-cli"), "{errors}");
    assert!(output.stdout.is_empty());
}
