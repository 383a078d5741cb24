//! One kernel in QEMU: boots, runs test programs, and gives back their lines.
//!
//! The programs' output comes on a port of its own, so that no message of the kernel stands in a
//! line of theirs; the kernel's go to a file beside it, and are shown when it does not come up.

use std::fmt::Write;
use std::process::Command;
use std::time::Duration;

use anyhow::{Result, ensure};

use super::FACTOR;
use super::fetch::Kernel;
use super::image::{PORT, SCRIPT, SYSTEMD};
use super::package;
use super::programs::Program;
use crate::process::{self, Show};

/// What stands before our own lines.
pub(super) const BEGIN: &str = "kernels: begin ";
pub(super) const END: &str = "kernels: end ";

/// How long it takes to boot, and to end.
const BOOT_TIME_MAX: Duration = Duration::from_secs(180);

/// The first process there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum First {
    /// A shell, which runs the script and ends the machine.
    Shell,
    /// systemd, with a unit that does.
    Systemd,
}

/// Runs these tests of these programs, each program for at most `time_max`.
pub(super) fn run(
    kernel: &Kernel,
    programs: &[(&Program, Vec<&str>)],
    time_max: Duration,
    show: Show,
) -> Result<Vec<String>> {
    let programs_max = u32::try_from(programs.len()).unwrap_or(u32::MAX);
    let time_max_all = time_max.saturating_mul(programs_max);
    let script = commands(programs, time_max);
    boot(kernel, First::Shell, &script, time_max_all, show)
}

/// Tries the package, for at most `time_max`.
pub(super) fn run_package(
    kernel: &Kernel,
    package: &Program,
    tests: &[&str],
    time_max: Duration,
    show: Show,
) -> Result<Vec<String>> {
    let commands = package::commands(package, tests);
    let seconds = time_max.as_secs();
    let script =
        format!("echo '{BEGIN}0'\ntimeout -k 5 {seconds} {commands}\necho \"\n{END}$?\"\n");
    boot(kernel, First::Systemd, &script, time_max, show)
}

/// Boots, runs the script, and ends; its lines.
fn boot(
    kernel: &Kernel,
    first: First,
    script_text: &str,
    time_max: Duration,
    show: Show,
) -> Result<Vec<String>> {
    let place = tempfile::Builder::new()
        .prefix("flatpath-kernels-")
        .tempdir_in("/var/tmp")?;
    let (script, console) = (place.path().join("script"), place.path().join("console"));
    std::fs::write(&script, script_text)?;
    let first = match first {
        First::Shell => "",
        First::Systemd => SYSTEMD,
    };
    let mut command = Command::new("qemu-system-x86_64");
    command
        .args(["-M", "q35", "-accel", "tcg,thread=multi", "-cpu", "max"])
        .args(["-smp", "2", "-m", "4096", "-nic", "none"])
        .args(["-display", "none", "-monitor", "none", "-no-reboot"])
        .arg("-kernel")
        .arg(&kernel.image)
        .arg("-initrd")
        .arg(&kernel.initial)
        .arg("-append")
        // A busy machine runs the emulated one too seldom for the kernel's check of its timer.
        .arg(format!(
            "console=ttyS0 panic=-1 mitigations=off no_timer_check {SCRIPT}={} {first}",
            script.display()
        ))
        .arg("-serial")
        .arg(format!("file:{}", console.display()))
        .args([
            "-device",
            "virtio-serial",
            "-chardev",
            "file,id=lines,path=/dev/stdout",
        ])
        .args([
            "-device",
            &format!("virtserialport,chardev=lines,name={PORT}"),
        ])
        .arg("-virtfs")
        .arg("local,path=/,mount_tag=host,security_model=none,readonly=on,multidevs=remap");
    let report = process::watch(&command, BOOT_TIME_MAX + time_max, show)?;
    let began = report.lines.iter().any(|line| line.starts_with(BEGIN));
    if !began {
        let said = std::fs::read_to_string(&console).unwrap_or_default();
        let last: Vec<&str> = said.lines().rev().take(30).collect();
        for line in report
            .lines
            .iter()
            .map(String::as_str)
            .chain(last.into_iter().rev())
        {
            println!("{line}");
        }
    }
    ensure!(began, "{} does not run our script", kernel.release);
    Ok(report.lines)
}

/// What runs there, as root in this machine's files.
fn commands(programs: &[(&Program, Vec<&str>)], time_max: Duration) -> String {
    let (name, factor) = FACTOR;
    let path = std::env::var("PATH").unwrap_or_default();
    let built = || crate::workspace::root().join("target/debug/flatpath");
    let server = std::env::var_os("FLATPATH").map_or_else(built, Into::into);
    let server = server.display();
    let mut script = format!(
        "export HOME=/root TMPDIR=/tmp RUST_TEST_THREADS=4 {name}={factor}\n\
         export PATH='{path}:/usr/sbin:/sbin' FLATPATH='{server}' RUST_BACKTRACE=0\n\
         hostname localhost; ulimit -n 65536\n\
         truncate -s 900M /srv/tmp; mkfs.ext4 -q /srv/tmp; mount -o loop /srv/tmp /tmp\n\
         chmod 1777 /tmp; ln -sf /proc/self/fd /dev/fd\n\
         ln -sf fd/0 /dev/stdin; ln -sf fd/1 /dev/stdout; ln -sf fd/2 /dev/stderr\n"
    );
    for (number, (program, tests)) in programs.iter().enumerate() {
        let directory = program.directory.display();
        let file = program.file.display();
        // What tests say past their runner comes after its lines, which it writes in parts.
        // The names are many, and of letters, digits, `_` and `:` alone.
        let tests = tests.join(" ");
        let seconds = time_max.as_secs();
        let _ = write!(
            script,
            "echo '{BEGIN}{number}'; cd '{directory}'\n\
             CARGO_MANIFEST_DIR='{directory}' timeout -k 5 {seconds} '{file}' --exact {tests} \
             2>/run/said; ended=$?\n\
             echo; cat /run/said; echo \"\n{END}$ended\"\n"
        );
    }
    script
}
