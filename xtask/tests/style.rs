//! The rules of the house, as an ordinary test: `cargo test` tells what CI would.
#![forbid(unsafe_code)]

use xtask::{style, workspace};

#[test]
fn the_workspace_keeps_the_rules_of_the_house() {
    let faults = style::check(&workspace::root()).expect("the workspace can be read");
    let report: Vec<String> = faults.iter().map(ToString::to_string).collect();
    assert!(
        report.is_empty(),
        "{} faults:\n{}",
        report.len(),
        report.join("\n")
    );
}

#[test]
fn the_checker_reads_every_crate_of_the_workspace() {
    let files = workspace::files(&workspace::root(), |path| path.ends_with("src/lib.rs"));
    let files = files.expect("the workspace can be read");
    for directory in [
        "structures",
        "driver",
        "engine",
        "protocols/http",
        "services/files",
        "e2e",
    ] {
        let root = std::path::Path::new(directory).join("src/lib.rs");
        assert!(files.contains(&root), "{} was not seen", root.display());
    }
}
