//! The `flatpath` command to measure: a given one, or this workspace's own, freshly built.
//!
//! It is always built, never merely found: a stale binary measures yesterday's code.

use std::env;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const WORKSPACE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// The path of the command.
///
/// # Errors
/// If the given one is not there, or building fails.
pub(crate) fn locate(given: Option<&Path>) -> io::Result<PathBuf> {
    match given {
        Some(path) => path.canonicalize().map_err(|error| {
            io::Error::new(
                error.kind(),
                format!("--server-binary {}: {error}", path.display()),
            )
        }),
        None => build(),
    }
}

fn build() -> io::Result<PathBuf> {
    eprintln!("building the flatpath command");
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args([
            "build",
            "--release",
            "--package",
            "flatpath-cli",
            "--bin",
            "flatpath",
        ])
        .arg("--message-format=json-render-diagnostics")
        .current_dir(WORKSPACE)
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| io::Error::new(error.kind(), format!("cargo build: {error}")))?;
    if !output.status.success() {
        let advice = "the flatpath command does not build; --server-binary names another one";
        return Err(io::Error::other(advice));
    }
    executable(&String::from_utf8_lossy(&output.stdout))
        .ok_or_else(|| io::Error::other("cargo build named no executable"))
}

/// Cargo writes one JSON object per line and names the executable of each binary.
fn executable(messages: &str) -> Option<PathBuf> {
    messages.lines().rev().find_map(|line| {
        let message: serde_json::Value = serde_json::from_str(line).ok()?;
        (message["target"]["name"] == "flatpath").then_some(())?;
        message["executable"].as_str().map(PathBuf::from)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_executable_is_the_one_of_the_binary_target() {
        let messages = r#"{"target":{"name":"flatpath"},"executable":null}
{"target":{"name":"flatpath"},"executable":"/t/release/flatpath"}
{"target":{"name":"other"},"executable":"/t/release/other"}
{"reason":"build-finished","success":true}
"#;
        assert_eq!(
            executable(messages),
            Some(PathBuf::from("/t/release/flatpath"))
        );
        assert_eq!(executable("not json\n"), None);
    }

    #[test]
    fn a_given_command_must_exist() {
        let error = locate(Some(Path::new("/no/such/flatpath"))).expect_err("absent");
        assert!(
            error
                .to_string()
                .starts_with("--server-binary /no/such/flatpath:"),
            "{error}"
        );
    }
}
