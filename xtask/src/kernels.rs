//! `cargo xtask kernels [--only 6.1] [TEST...]`: the tests on the kernels that people run, each in
//! a virtual machine.
//!
//! Debian's kernels are fetched with apt, from where this machine fetches its packages
//! (`fetch.rs`), and booted in QEMU without KVM, so that any machine can do it (`machine.rs`). What
//! runs there are the test programs of this build, on this machine's files, below a layer in memory
//! (`image.rs`). One table has what passed on which kernel, and what did not with its reason
//! (`results.rs`).
//!
//! A processor that is emulated is about ten times slower. So tests that compute the same on each
//! kernel do not run there, the deadlines of the others stretch by [`FACTOR`], and those that take
//! too long are left out, each with its reason (`left_out.rs`).
//!
//! What it sees: what is right and what is wrong on a kernel, and the kernel's own NFS client. Not:
//! times and rates, which mean nothing there.

mod fetch;
mod image;
mod left_out;
mod machine;
mod package;
mod programs;
mod results;
mod selection;

use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};

use fetch::Kernel;
use left_out::LeftOut;
use programs::{Extent, Program};
use results::{Results, Took};

use crate::cost::processor_seconds_of_children;
use crate::process::Show;

/// By what the deadlines of tests stretch: `flatpath_testkit::deadline` reads it.
const FACTOR: (&str, &str) = ("FLATPATH_DEADLINES_FACTOR", "10");

/// The suites of Debian whose newest kernels are tested, and what each is at least.
const SUITES: &[(&str, &str)] = &[
    ("bullseye", "5.10"),
    ("bookworm", "6.1"),
    ("trixie", "6.12"),
    ("sid", "newest"),
];

/// The packages whose tests run, those whose names begin so: first what takes longest, because
/// several programs run at once.
const PACKAGES: &[(&str, &[&str])] = &[
    (MOUNTS, &["nfs::mounted::", "file_systems::"]),
    ("flatpath-sys", ALL),
    ("flatpath-driver", ALL),
    ("flatpath", ALL),
    ("flatpath-admin", ALL),
    ("flatpath-echo", ALL),
    ("flatpath-http", ALL),
    ("flatpath-websocket", ALL),
    ("flatpath-files", ALL),
    ("flatpath-ingest", ALL),
    ("flatpath-nfs", ALL),
    ("flatpath-relay", ALL),
];
const ALL: &[&str] = &[""];
const MOUNTS: &str = "flatpath-e2e";

/// What makes TLS handshakes for the kernel's NFS client: the suite, the package, and the program
/// in it. Debian 12 has none.
const TLSHD: (&str, &str, &str) = ("trixie", "ktls-utils", "usr/sbin/tlshd");

/// What of Debian must be installed, by a program of each package.
const NEEDS: &[(&str, &str)] = &[
    ("apt-get", "apt"),
    ("busybox", "busybox-static"),
    ("cpio", "cpio"),
    ("dpkg-deb", "dpkg"),
    ("depmod", "kmod"),
    ("mkfs.ext4", "e2fsprogs"),
    ("qemu-system-x86_64", "qemu-system-x86"),
    ("xz", "xz-utils"),
];

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Only this kernel: 5.10, 6.1, 6.12 or newest; can be given several times
    #[arg(long, value_name = "VERSION")]
    only: Vec<String>,
    /// Fetch the kernels anew, for what Debian has mended meanwhile
    #[arg(long)]
    fetch: bool,
    /// Show what the programs print
    #[arg(long)]
    show: bool,
    /// Build all of the workspace's tests, also if packages are named: where they are built, that
    /// is faster
    #[arg(long)]
    workspace: bool,
    /// Run only this program of the table, as `flatpath-http it`; can be given several times
    #[arg(long, value_name = "NAME")]
    program: Vec<String>,
    /// How long one program may run on one kernel
    #[arg(long, value_name = "SECONDS", default_value_t = 1200)]
    seconds: u64,
    /// Packages, which alone are built, and parts of names of tests
    tests: Vec<String>,
}

/// All kernels and tests, with the kernels of today.
pub(crate) fn check() -> Result<()> {
    run(&Options {
        only: Vec::new(),
        fetch: true,
        show: false,
        workspace: true,
        program: Vec::new(),
        seconds: 1200,
        tests: Vec::new(),
    })
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let missing = missing();
    if !missing.is_empty() {
        println!(
            "kernels: not run: programs are missing; to get them:\napt-get install {}",
            missing.join(" ")
        );
        return Ok(());
    }
    ensure!(
        is_root(),
        "the files of this machine are shown to the kernels as they are: run it as root"
    );
    let suites = suites(&options.only)?;
    let left_out = LeftOut::read()?;
    let (names, filters): (Vec<&str>, Vec<&str>) =
        options.tests.iter().map(String::as_str).partition(|word| {
            *word == package::NAME || PACKAGES.iter().any(|(name, _)| name == word)
        });
    let extent = match names.is_empty() || options.workspace {
        true => Extent::Workspace,
        false => Extent::Packages,
    };
    // It takes minutes to make.
    let selects = !options.tests.is_empty() || !options.program.is_empty();
    let with_package = !selects || names.contains(&package::NAME);
    let mut programs = built(&names, extent, with_package)?;
    left_out.check(&programs)?;
    programs.iter_mut().for_each(|it| it.select(&filters));
    let is_wanted = |it: &Program| options.program.is_empty() || options.program.contains(&it.name);
    programs.retain(|program| !program.tests.is_empty() && is_wanted(program));
    ensure!(
        !programs.is_empty(),
        "no test of {:?} is named {:?}",
        options.program,
        options.tests
    );
    let mut all = Vec::new();
    for (suite, version) in suites {
        let kernel = fetch::kernel(suite, version, options.fetch)?;
        all.push(on(&kernel, &programs, &left_out, options)?);
    }
    print!("{}", results::report(&all));
    let failed: usize = all.iter().map(Results::failed).sum();
    ensure!(failed == 0, "{failed} tests fail on these kernels");
    Ok(())
}

/// The programs of these packages, of all if none is named: with the features that `cargo test` of
/// the workspace gives them, however much is built.
fn built(names: &[&str], extent: Extent, with_package: bool) -> Result<Vec<Program>> {
    let is_wanted = |name: &str| names.is_empty() || names.contains(&name);
    let packages = PACKAGES.iter().filter(|(name, _)| is_wanted(name));
    let packages: Vec<_> = packages.copied().collect();
    let mut programs = match packages.is_empty() {
        true => Vec::new(),
        false => programs::build(&packages, extent)?,
    };
    if with_package {
        programs.extend(package::program()?);
    }
    Ok(programs)
}

/// Runs what is not left out on one kernel.
fn on(
    kernel: &Kernel,
    programs: &[Program],
    left_out: &LeftOut,
    options: &Options,
) -> Result<Results> {
    let (began, used_before) = (Instant::now(), processor_seconds_of_children()?);
    let mut results = Results::new(&kernel.version, &kernel.release);
    let mut wanted = Vec::new();
    for program in programs {
        let divided = left_out.divide(program, &kernel.version);
        results.leave_out(program, &divided);
        if !divided.runs.is_empty() {
            wanted.push((program, divided.runs));
        }
    }
    println!("kernels: {} boots", kernel.release);
    let show = match options.show {
        true => Show::Lines,
        false => Show::Nothing,
    };
    let time_max = Duration::from_secs(options.seconds);
    let (package, wanted): (Vec<_>, Vec<_>) = wanted
        .into_iter()
        .partition(|(program, _)| program.package == package::NAME);
    if !wanted.is_empty() {
        let mounts = wanted.iter().any(|(it, _)| it.package == MOUNTS);
        let tlshd = mounts.then(|| {
            let (suite, package, program) = TLSHD;
            fetch::program(suite, package, program, options.fetch)
        });
        let tlshd = tlshd.transpose()?;
        let lines = machine::run(kernel, &wanted, tlshd.as_deref(), time_max, show)?;
        results.read(&wanted, &lines);
    }
    if let Some((program, tests)) = package.first() {
        let lines = machine::run_package(kernel, program, tests, time_max, show)?;
        results.read(&package, &lines);
    }
    results.took = Took {
        all: began.elapsed().as_secs_f64(),
        computed: processor_seconds_of_children()? - used_before,
    };
    print!("{results}");
    Ok(results)
}

fn suites(only: &[String]) -> Result<Vec<(&'static str, &'static str)>> {
    let known = || SUITES.iter().map(|(_, version)| *version);
    if let Some(unknown) = only.iter().find(|only| !known().any(|it| it == *only)) {
        let known: Vec<_> = known().collect();
        bail!(
            "there is no kernel {unknown}; there are {}",
            known.join(", ")
        );
    }
    let wanted = SUITES
        .iter()
        .filter(|(_, version)| only.is_empty() || only.iter().any(|it| it == version));
    Ok(wanted.copied().collect())
}

/// The packages that must be installed first.
fn missing() -> Vec<&'static str> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut places: Vec<_> = std::env::split_paths(&path).collect();
    places.extend(["/usr/sbin", "/sbin"].map(Into::into));
    let is_there = |program: &str| places.iter().any(|place| place.join(program).is_file());
    let missing = NEEDS.iter().filter(|(program, _)| !is_there(program));
    missing.map(|(_, package)| *package).collect()
}

fn is_root() -> bool {
    crate::process::output(std::process::Command::new("id").arg("-u")).as_deref() == Some("0")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_that_is_not_there_is_refused_with_those_that_are() {
        let only = |version: &str| suites(&[version.to_owned()]);
        assert_eq!(only("6.1").unwrap(), [("bookworm", "6.1")]);
        assert_eq!(suites(&[]).unwrap().len(), SUITES.len());
        let error = only("6.2").unwrap_err().to_string();
        assert!(error.contains("5.10, 6.1, 6.12, newest"), "{error}");
    }
}
