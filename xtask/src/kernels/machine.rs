//! One kernel in QEMU: boots, runs test programs, and gives back their lines.
//!
//! The programs' output comes on a port of its own, so that no message of the kernel stands in a
//! line of theirs; the kernel's go to a file beside it, and are shown when it does not come up.
//!
//! [`BESIDE`] programs run at once: while one waits, another computes. Their lines come mixed, each
//! with its program's number before it.

use std::fmt::Write;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Result, ensure};

use super::FACTOR;
use super::fetch::Kernel;
use super::image::{PORT, SCRIPT, SYSTEMD};
use super::package;
use super::programs::Program;
use crate::process::{self, Show};

/// Our own lines among those of a program: as it begins, and how long it took, with its seconds in
/// all, in itself and in the kernel. And, when all have ended, a process that they have left.
pub(super) const BEGIN: &str = "kernels: begin";
pub(super) const TOOK: &str = "kernels: took ";
const LEFT: &str = "kernels: left running: ";

/// Where each program that has ended has a file.
const ENDED: &str = "/run/kernels-ended";

/// A busy machine runs the emulated one too seldom for the kernel's checks of its clocks: it would
/// read the time from a device, in a call of the kernel, which takes three times as long.
const CLOCKS: &str = "no_timer_check tsc=reliable";
const SETTINGS: &str = "console=ttyS0 panic=-1 mitigations=off";

/// Debian's own programs: others' that this machine has may be scripts, which start many programs
/// each time.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Has Rust's runner say how long each test took, which it does only for who may use what is not
/// stable.
const TIMES: &str = "-Zunstable-options --report-time";
const UNSTABLE: &str = "RUSTC_BOOTSTRAP=1";

/// The file system of tests: a journal would be written at each sync, which takes an emulated
/// processor a third of a second. Tests that are about a file system have one of their own.
const DISK: &str = "-O ^has_journal";

/// How many programs run at once, on two processors.
const BESIDE: usize = 2;

/// The processor. It lacks what costs an emulated one more than it gains: strings that are copied
/// byte by byte (`erms`, `fsrm`), a fifth level of pages, and keys and rights of pages for which
/// all translations of addresses are forgotten at each change.
const PROCESSOR: &str = "max,erms=off,fsrm=off,la57=off,pku=off,smap=off";

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

/// Runs these tests of these programs, each program for at most `time_max`. They find the program
/// `tlshd` of another suite.
pub(super) fn run(
    kernel: &Kernel,
    programs: &[(&Program, Vec<&str>)],
    tlshd: Option<&Path>,
    time_max: Duration,
    show: Show,
) -> Result<Vec<String>> {
    let programs_max = u32::try_from(programs.len()).unwrap_or(u32::MAX);
    let time_max_all = time_max.saturating_mul(programs_max);
    let mut script = String::new();
    if let Some(tlshd) = tlshd {
        let _ = writeln!(script, "ln -s '{}' /usr/local/sbin/tlshd", tlshd.display());
    }
    script += &commands(programs, time_max);
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
    let mut script = program_function(time_max);
    let _ = writeln!(script, "program 0 / {}", package::commands(package, tests));
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
        .args(["-M", "q35", "-accel", "tcg,thread=multi", "-cpu", PROCESSOR])
        .args(["-smp", "2", "-m", "4096", "-nic", "none"])
        .args(["-display", "none", "-monitor", "none", "-no-reboot"])
        .arg("-kernel")
        .arg(&kernel.image)
        .arg("-initrd")
        .arg(&kernel.initial)
        .arg("-append")
        .arg(format!(
            "{CLOCKS} {SETTINGS} {SCRIPT}={} {first}",
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
    let began = report.lines.iter().any(|line| line.ends_with(BEGIN));
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
    for line in report.lines.iter().filter(|line| line.starts_with(LEFT)) {
        println!("{line}");
    }
    Ok(report.lines)
}

/// What runs there, as root in this machine's files.
fn commands(programs: &[(&Program, Vec<&str>)], time_max: Duration) -> String {
    let (name, factor) = FACTOR;
    let built = || crate::workspace::root().join("target/debug/flatpath");
    let server = std::env::var_os("FLATPATH").map_or_else(built, Into::into);
    let server = server.display();
    let mut script = format!(
        "export HOME=/root TMPDIR=/tmp RUST_TEST_THREADS=4 {name}={factor} {UNSTABLE}\n\
         export PATH={PATH} FLATPATH='{server}' RUST_BACKTRACE=0\n\
         hostname localhost; ulimit -n 65536\n\
         truncate -s 900M /srv/tmp; mkfs.ext4 -q {DISK} /srv/tmp\n\
         mount -o loop,barrier=0 /srv/tmp /tmp\n\
         chmod 1777 /tmp; ln -sf /proc/self/fd /dev/fd\n\
         ln -sf fd/0 /dev/stdin; ln -sf fd/1 /dev/stdout; ln -sf fd/2 /dev/stderr\n"
    );
    script += &program_function(time_max);
    let _ = writeln!(
        script,
        r#"mkdir {ENDED}; shopt -s nullglob
have_ended() {{ local all=({ENDED}/*); [ ${{#all[@]}} -ge $1 ]; }}
beside() {{
    until have_ended $(($1 + 1 - {BESIDE})); do sleep 0.3; done
    program "$@" &
}}"#
    );
    for (number, (program, tests)) in programs.iter().enumerate() {
        let directory = program.directory.display();
        let file = program.file.display();
        // The names are many, and of letters, digits, `_` and `:` alone.
        let tests = tests.join(" ");
        let _ = writeln!(
            script,
            "beside {number} '{directory}' '{file}' {TIMES} --exact {tests}"
        );
    }
    let count = programs.len();
    let _ = writeln!(
        script,
        r#"until have_ended {count}; do sleep 0.3; done
for look in 1 2 3 4 5 6 7 8 9 10; do [ "$(jobs -rp)" ] || exit 0; sleep 0.5; done
ps --ppid 2 -p 2 --deselect -o args= | sed 's/^/{LEFT}/'
sleep 1; busybox poweroff -f"#
    );
    script
}

/// A function of the shell that runs a program: its number, where, and the command. A process that
/// the program has left running keeps its output open, and so the function from ending.
fn program_function(time_max: Duration) -> String {
    let seconds = time_max.as_secs();
    // What tests say past their runner comes after its lines, which it writes in parts. A line that
    // is longer than what a pipe takes at once would be mixed with another's.
    format!(
        r#"program() {{
    local number=$1; cd "$2"; export CARGO_MANIFEST_DIR="$2"; shift 2
    local TIMEFORMAT=$'\n{TOOK}%R %U %S'
    {{
        echo '{BEGIN}'
        time timeout -k 5 {seconds} "$@" 2>/run/said-$number
        cat /run/said-$number
        test -d {ENDED} && touch {ENDED}/$number
    }} 2>&1 | stdbuf -oL cut -b -3900 | sed -u "s/^/$number: /"
}}
"#
    )
}
