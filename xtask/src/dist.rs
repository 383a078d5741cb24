//! `cargo xtask dist [WHAT...]`: the packages, in `target/packages`.
//!
//! A Debian package (by cargo-deb, from what cli/Cargo.toml says), the command as one static file,
//! and an image of a container around that file (by podman). `dist/` holds what goes in beside the
//! command. [`check()`] makes them from debug builds and tries them, as CI does.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use flatpath_testkit::tools;

use crate::{process, workspace};

mod check;

pub(crate) use check::check;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum What {
    /// A Debian package: flatpath.deb
    Deb,
    /// The command as one static file: flatpath
    Static,
    /// An image of that file for podman or docker: flatpath.tar
    Image,
}

#[derive(Args, Debug)]
pub(crate) struct Options {
    /// What to make [default: all of it]
    what: Vec<What>,
    /// From a debug build, which is made sooner
    #[arg(long)]
    debug: bool,
}

/// What is installed names lines in its backtraces; a build in a checkout is there sooner without.
const DEBUG: &str = "CARGO_PROFILE_DIST_DEBUG";

/// How to build.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Profile {
    Debug,
    Release,
}

impl Profile {
    /// As cargo names it in options and in the path of what it makes.
    fn names(self) -> (&'static str, &'static str) {
        match self {
            Profile::Debug => ("dev", "debug"),
            Profile::Release => ("dist", "dist"),
        }
    }
}

impl What {
    /// What makes it, and how that is installed.
    fn tool(self) -> &'static str {
        match self {
            What::Deb => "cargo-deb (cargo install cargo-deb)",
            What::Static => "the standard library of its target (rustup target add)",
            What::Image => "podman (apt install podman)",
        }
    }
}

/// Makes the packages.
///
/// # Errors
/// Also for a package whose tool is missing, which is named; the others are made.
pub(crate) fn run(options: &Options) -> Result<()> {
    let all = What::value_variants();
    let what = if options.what.is_empty() {
        all
    } else {
        &options.what
    };
    let profile = if options.debug {
        Profile::Debug
    } else {
        Profile::Release
    };
    let mut missing = Vec::new();
    for what in what {
        let made = match what {
            What::Deb => deb(profile)?,
            What::Static => Some(static_command(profile)?),
            What::Image => image(profile)?,
        };
        match made {
            Some(made) => println!("made {}", made.display()),
            None => missing.push(format!("{what:?} needs {}", what.tool())),
        }
    }
    anyhow::ensure!(missing.is_empty(), "not made: {}", missing.join("; "));
    Ok(())
}

/// `target/packages`, where all of it goes.
fn directory() -> Result<PathBuf> {
    let directory = workspace::root().join("target/packages");
    fs::create_dir_all(&directory).with_context(|| directory.display().to_string())?;
    Ok(directory)
}

/// The Debian package; `None` after a line that cargo-deb is missing.
pub(crate) fn deb(profile: Profile) -> Result<Option<PathBuf>> {
    if tools::find("cargo-deb").is_none() {
        return Ok(None);
    }
    let directory = directory()?;
    let build = match profile {
        Profile::Release => ["--package", "flatpath-cli"],
        // With the features of the whole workspace, as `cargo test` has built the dependencies.
        Profile::Debug => ["--bin", "flatpath"],
    };
    let is_tried_only = profile == Profile::Debug;
    let (profile, _) = profile.names();
    let mut pages = process::cargo(&["run", "--profile", profile]);
    pages.args(build);
    pages.args(["--features", "flatpath-cli/full,flatpath-cli/generate"]);
    pages.args(["--", "generate"]);
    process::run(pages.arg(&directory).env(DEBUG, "line-tables-only"))?;
    let made = directory.join("flatpath.deb");
    // The manual pages were made by the same build.
    let mut package = process::cargo(&["deb", "--package", "flatpath-cli", "--no-build"]);
    package.args(["--profile", profile, "--output"]).arg(&made);
    if is_tried_only {
        package.arg("--fast");
    }
    process::run(&mut package)?;
    Ok(Some(made))
}

fn static_command(profile: Profile) -> Result<PathBuf> {
    let target = format!("{}-unknown-linux-musl", std::env::consts::ARCH);
    let (profile, folder) = profile.names();
    let mut build = process::cargo(&["build", "--package", "flatpath-cli", "--target", &target]);
    build.args(["--features", "full"]);
    // A debug build is only tested. With optimisation it would take three times as long.
    build.env("CARGO_PROFILE_DEV_OPT_LEVEL", "0");
    build.env(DEBUG, "line-tables-only");
    process::run(build.args(["--profile", profile]))?;
    let built = workspace::root().join("target").join(target).join(folder);
    let made = directory()?.join("flatpath");
    fs::copy(built.join("flatpath"), &made)?;
    Ok(made)
}

fn image(profile: Profile) -> Result<Option<PathBuf>> {
    let Some(podman) = tools::find("podman") else {
        return Ok(None);
    };
    let made = static_command(profile)?.with_file_name("flatpath.tar");
    build_image(
        &podman,
        made.with_file_name("flatpath")
            .parent()
            .context("a directory")?,
    )?;
    if made.exists() {
        fs::remove_file(&made)?;
    }
    let mut save = Command::new(&podman);
    process::run(
        save.args(["save", "--quiet", "--output"])
            .arg(&made)
            .arg(IMAGE),
    )?;
    Ok(Some(made))
}

/// The name of the image on this machine.
const IMAGE: &str = "localhost/flatpath";

/// Makes [`IMAGE`] of the static file in `directory`.
fn build_image(podman: &Path, directory: &Path) -> Result<()> {
    let recipe = workspace::root().join("dist/container/Containerfile");
    let mut build = Command::new(podman);
    build.args(["build", "--quiet", "--tag", IMAGE, "--file"]);
    process::run(build.arg(recipe).arg(directory))
}
