//! The numbers of `cargo xtask metrics`, held by an ordinary test.
#![forbid(unsafe_code)]

use xtask::metrics::{LIMITS, Metrics};
use xtask::workspace;

#[test]
fn circles_and_lines_stay_within_their_limits() {
    let metrics = Metrics::of(&workspace::root()).expect("the workspace can be read");
    let beyond = metrics.beyond(&LIMITS);
    assert!(
        beyond.is_empty(),
        "cargo xtask metrics shows where:\n{}",
        beyond.join("\n")
    );
}
