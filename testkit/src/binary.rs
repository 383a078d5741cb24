//! Finding the programs under test.
//!
//! `flatpath` belongs to another package, so cargo does not hand its path to these tests: they
//! build it themselves, once per test process, into the directory the test itself was built into.
//! They build it with the features of the default members, as `cargo test` does: if it is fresh,
//! that costs a fraction of a second.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The `flatpath` binary: `$FLATPATH`, or the workspace's own, built if need be.
pub fn flatpath() -> &'static Path {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| std::env::var_os("FLATPATH").map_or_else(build, PathBuf::from))
}

/// Copies `flatpath`, by another process: a child that another test forks meanwhile would have the
/// copy open for writing, and what is open so cannot be run.
///
/// # Panics
/// It cannot be copied.
pub fn copy_to(program: &Path) {
    let mut copy = Command::new("cp");
    let status = copy.arg(flatpath()).arg(program).status();
    assert!(status.is_ok_and(|it| it.success()), "{}", program.display());
}

/// A program of this package (`src/bin/`), which cargo has built beside the tests.
pub fn helper(name: &str) -> PathBuf {
    let path = profile_directory().join(name);
    assert!(
        path.is_file(),
        "{} is missing: run the tests through cargo",
        path.display()
    );
    path
}

/// `target/debug` or its like: the parent of `deps`, where test binaries are.
fn profile_directory() -> PathBuf {
    let test = std::env::current_exe().expect("a test has a path");
    let directory = test.parent().expect("a file has a directory");
    match directory.file_name() {
        Some(name) if name == "deps" => directory.parent().unwrap_or(directory).to_path_buf(),
        _ => directory.to_path_buf(),
    }
}

fn build() -> PathBuf {
    let profile = profile_directory();
    let target = profile
        .parent()
        .expect("the profile's directory is in the target directory");
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(["build", "--quiet", "--bin", "flatpath"]);
    command
        .args(["--message-format", "json", "--target-dir"])
        .arg(target);
    command.current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    // What cargo tells a test about its package would have ring's build script run again, and all
    // that uses ring built anew: now, and by the next cargo without these.
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
            command.env_remove(&name);
        }
    }
    // As this program was built.
    let name = profile.file_name().unwrap_or_default();
    if name != "debug" {
        command.arg("--profile").arg(name);
    }
    let output = command.output().expect("cargo can be started");
    let text = String::from_utf8_lossy(&output.stdout);
    let mut built = text.lines().filter_map(|line| {
        let message: serde_json::Value = serde_json::from_str(line).ok()?;
        message.get("executable")?.as_str().map(PathBuf::from)
    });
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "flatpath cannot be built: {errors}\n{text}"
    );
    built.next_back().expect("cargo names the binary it built")
}
