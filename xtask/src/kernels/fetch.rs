//! Debian's kernels, by apt from where this machine has its own packages, with apt's checks of
//! signatures.
//!
//! apt runs on lists of its own, in our directory: this machine's are read once, for the address of
//! Debian, and none is changed. Of a kernel, what boots it is kept: its image and an initial file
//! system, some 30 MB.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::image;
use crate::process;

/// What Debian's own keys are in; which of them signs a suite is apt's matter.
const KEYS: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// Where packages have the libraries and the loader of this processor.
const LIBRARIES: &str = "usr/lib/x86_64-linux-gnu";

/// A kernel that can be booted.
#[derive(Debug)]
pub(super) struct Kernel {
    /// As `--only` names it.
    pub(super) version: String,
    /// As `uname -r` does.
    pub(super) release: String,
    pub(super) image: PathBuf,
    pub(super) initial: PathBuf,
}

/// Where kernels are kept: in the user's cache.
fn cache() -> Result<PathBuf> {
    let given = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = given.or_else(|| Some(std::env::home_dir()?.join(".cache")));
    Ok(cache.context("no home")?.join("flatpath-kernels"))
}

/// The newest kernel of a suite, fetched unless it is here with all modules.
pub(super) fn kernel(suite: &str, version: &str, anew: bool) -> Result<Kernel> {
    let cache = cache()?;
    let at = cache.join(suite);
    if anew || !image::is_current(&at) {
        let made = cache.join(format!("{suite}.new"));
        fetch(suite, &cache, &made).with_context(|| format!("the kernel of {suite}"))?;
        let _ = fs::remove_dir_all(&at);
        fs::rename(&made, &at)?;
    }
    let release = fs::read_to_string(at.join("release"))?;
    let begins = version == "newest" || release.starts_with(&format!("{version}."));
    ensure!(begins, "the kernel of {suite} is {release}, not {version}");
    Ok(Kernel {
        version: version.to_owned(),
        release,
        image: at.join("image"),
        // Of this program as well: what is in it may have changed.
        initial: image::initial(&at)?,
    })
}

fn fetch(suite: &str, cache: &Path, made: &Path) -> Result<()> {
    println!("kernels: fetches that of {suite}");
    let apt = Apt::new(suite, cache, made)?;
    let image = newest(&apt.run("apt-cache", &["pkgnames", "linux-image-"])?);
    let image = image.context("no image of a kernel")?;
    let files = made.join("files");
    apt.unpack(&apt.files_of(&image)?, &files)?;
    image::keep(&files, made)?;
    fs::remove_dir_all(&apt.0)?;
    fs::remove_dir_all(&files)?;
    Ok(())
}

/// A script that runs a program of a suite's package with that suite's libraries; they are fetched
/// unless they are here. `program` is where the package has it, below its root.
pub(super) fn program(suite: &str, package: &str, program: &str, anew: bool) -> Result<PathBuf> {
    let cache = cache()?;
    let at = cache.join(package);
    let script = at.join("run");
    if !anew && script.is_file() {
        return Ok(script);
    }
    println!("kernels: fetches {package} of {suite}");
    let made = cache.join(format!("{package}.new"));
    let apt = Apt::new(suite, &cache, &made)?;
    // Nothing is installed there, so it names all that the package needs.
    let shown = apt.run("apt-get", &["install", "--simulate", "-qq", package])?;
    let packages = shown.lines().filter_map(|line| {
        let rest = line.strip_prefix("Inst ")?;
        rest.split(' ').next().map(String::from)
    });
    apt.unpack(&packages.collect::<Vec<_>>(), &made.join("files"))?;
    fs::remove_dir_all(&apt.0)?;
    let text = format!(
        "#!/bin/sh\nfiles='{}'\nlibraries=\"$files/{LIBRARIES}\"\n\
         exec \"$libraries/ld-linux-x86-64.so.2\" --library-path \"$libraries\" \
         \"$files/{program}\" \"$@\"\n",
        at.join("files").display()
    );
    fs::write(made.join("run"), text)?;
    fs::set_permissions(made.join("run"), fs::Permissions::from_mode(0o755))?;
    let _ = fs::remove_dir_all(&at);
    fs::rename(&made, &at)?;
    Ok(script)
}

/// From where this machine has Debian's packages.
fn debian() -> Result<String> {
    let mut command = Command::new("apt-get");
    command.args(["indextargets", "--format", "$(REPO_URI) $(ORIGIN)/$(LABEL)"]);
    let targets = process::output(command.arg("Created-By: Packages")).unwrap_or_default();
    let mut lines = targets.lines().filter_map(|line| line.split_once(' '));
    let debian = lines.find(|(_, whose)| *whose == "Debian/Debian");
    let (address, _) = debian.context("apt has no list of Debian's packages: apt-get update")?;
    Ok(address.to_owned())
}

/// The newest plain kernel among the names of packages.
fn newest(names: &str) -> Option<String> {
    let images = names.lines().filter(|name| {
        let rest = name.strip_prefix("linux-image-");
        let number = rest.and_then(|rest| rest.strip_suffix("-amd64"));
        number.is_some_and(|number| {
            number.starts_with(|it: char| it.is_ascii_digit())
                && !["cloud", "rt"].iter().any(|kind| number.ends_with(kind))
        })
    });
    images.max_by_key(|name| numbers(name)).map(String::from)
}

/// The numbers in a name, by which versions compare.
fn numbers(name: &str) -> Vec<u32> {
    let digits = name.split(|it: char| !it.is_ascii_digit());
    digits.filter_map(|digits| digits.parse().ok()).collect()
}

/// apt, with lists, cache and downloads below this directory.
struct Apt(PathBuf);

impl Apt {
    /// Below `made`, which is emptied, with the lists of this suite.
    fn new(suite: &str, cache: &Path, made: &Path) -> Result<Apt> {
        let _ = fs::remove_dir_all(made);
        let lists = made.join("apt");
        for part in ["lists/partial", "cache/archives/partial", "packages"] {
            fs::create_dir_all(lists.join(part))?;
        }
        ensure!(cache.is_dir(), "{} is no directory", cache.display());
        let source = format!("deb [signed-by={KEYS}] {} {suite} main\n", debian()?);
        fs::write(lists.join("sources"), source)?;
        let apt = Apt(lists);
        apt.run("apt-get", &["update", "-qq"])?;
        Ok(apt)
    }

    /// Unpacks these packages into a directory.
    fn unpack(&self, packages: &[String], to: &Path) -> Result<()> {
        let packages: Vec<&str> = packages.iter().map(String::as_str).collect();
        self.run("apt-get", &[&["download", "-qq"], &packages[..]].concat())?;
        for package in fs::read_dir(self.0.join("packages"))? {
            let mut command = Command::new("dpkg-deb");
            command.arg("-x").arg(package?.path()).arg(to);
            run(&mut command)?;
        }
        Ok(())
    }

    /// What it prints.
    fn run(&self, program: &str, arguments: &[&str]) -> Result<String> {
        let at = |name: &str| self.0.join(name).display().to_string();
        let mut command = Command::new(program);
        command.current_dir(self.0.join("packages"));
        for (option, value) in [
            ("Dir::Etc::SourceList", at("sources")),
            ("Dir::Etc::SourceParts", "-".into()),
            ("Dir::Etc::PreferencesParts", "-".into()),
            ("Dir::State::Lists", at("lists")),
            ("Dir::State::Status", "/dev/null".into()),
            ("Dir::Cache", at("cache")),
            ("APT::Architecture", "amd64".into()),
            ("APT::Architectures", "amd64".into()),
            ("APT::Install-Recommends", "false".into()),
            // Directories of root's, which it cannot enter.
            ("APT::Sandbox::User", "root".into()),
            ("Acquire::Languages", "none".into()),
            // That of a suite which is no longer made has passed.
            ("Acquire::Check-Valid-Until", "false".into()),
        ] {
            command.arg("-o").arg(format!("{option}={value}"));
        }
        run(command.args(arguments))
    }

    /// The package, and those beside it that have its files.
    fn files_of(&self, image: &str) -> Result<Vec<String>> {
        let shown = self.run("apt-cache", &["depends", image])?;
        let parts = shown.lines().filter_map(|line| {
            let name = line.trim().strip_prefix("Depends: ")?;
            let is_part = ["linux-base-", "linux-binary-", "linux-modules-"];
            is_part
                .iter()
                .any(|it| name.starts_with(it))
                .then_some(name)
        });
        let all = std::iter::once(image).chain(parts);
        Ok(all.map(String::from).collect())
    }
}

/// Runs a program to its end; what it prints.
///
/// # Errors
/// It cannot be started, or fails: with what it said.
pub(super) fn run(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("{command:?}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure!(
        output.status.success(),
        "{command:?}: {}\n{said}",
        output.status
    );
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_plain_kernel_is_found_by_its_numbers() {
        let names = "linux-image-amd64\nlinux-image-6.1.0-9-amd64\nlinux-image-6.1.0-37-amd64\n\
                     linux-image-6.1.0-38-cloud-amd64\nlinux-image-6.1.0-38-rt-amd64\n\
                     linux-image-6.1.0-39-amd64-unsigned\nlinux-image-6.1.0-39-amd64-dbg\n";
        assert_eq!(newest(names).as_deref(), Some("linux-image-6.1.0-37-amd64"));
        let sid = "linux-image-7.2.10+deb14-amd64\nlinux-image-7.2.9+deb14-amd64\n";
        assert_eq!(
            newest(sid).as_deref(),
            Some("linux-image-7.2.10+deb14-amd64")
        );
        assert_eq!(newest("linux-image-amd64\n"), None);
    }
}
