//! Inputs from outside against what each protocol promises: the bodies of the fuzz targets.
//!
//! Each target is a function of bytes that panics when a promise is broken. The same functions run
//!
//! - in `cargo test`: over the committed seeds and a fixed number of mutations of them;
//! - by `cargo xtask fuzz --seconds N`: over further mutations;
//! - under libFuzzer, for hours: see README.md.
//!
//! A body is a function of its input alone: no state of one input, no clock and no order of threads
//! decides what becomes of another, so what failed once fails again.
#![forbid(unsafe_code)]

pub mod mutate;
pub mod random;
pub mod seeds;

mod simulated;
mod targets;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use random::Random;
use seeds::Seed;
pub use targets::{TARGETS, Target};

/// The target of this name.
#[must_use]
pub fn target(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|target| target.name == name)
}

/// Runs one input through a target.
///
/// # Panics
/// When a promise is broken, or there is no such target.
pub fn run(name: &str, data: &[u8]) {
    let target = target(name).unwrap_or_else(|| panic!("there is no target {name:?}"));
    (target.body)(data);
}

/// Runs one input, and prints it as a seed when it fails.
fn run_named(target: &Target, what: &str, data: &[u8]) {
    if let Err(cause) = catch_unwind(AssertUnwindSafe(|| (target.body)(data))) {
        let (text, hex) = (seeds::to_text(data), seeds::to_hex(data));
        eprintln!(
            "{}: {what} fails; as .txt:\n{text}\nas .hex:\n{hex}",
            target.name
        );
        resume_unwind(cause);
    }
}

/// Runs all seeds of a target.
///
/// # Panics
/// When a promise is broken; the input is printed as a seed.
#[must_use]
pub fn run_seeds(target: &Target) -> Vec<Seed> {
    let seeds = seeds::of(target.name);
    for seed in &seeds {
        run_named(target, &seed.name, &seed.bytes);
    }
    seeds
}

/// Runs the mutation of a number, which is the same each time.
///
/// # Panics
/// When a promise is broken; the input is printed as a seed.
pub fn run_mutation(target: &Target, seeds: &[Seed], number: u64) {
    let mut random = Random::new(number);
    let data = mutate::mutated(seeds, &mut random);
    run_named(target, &format!("mutation {number}"), &data);
}
