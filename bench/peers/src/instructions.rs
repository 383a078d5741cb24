//! Counts the user-space instructions of a server, by callgrind.

use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::{fs, io};

use flatpath_bench_common::tools::VALGRIND;
use flatpath_testkit::child;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule,
};

/// `prctl(PR_GET_AUXV)`: rustix asks the kernel with it for the auxiliary vector.
const PR_GET_AUXV: u64 = 0x4155_5856;

/// The arguments of the hidden `launch` command.
#[derive(clap::Args, Debug)]
pub(crate) struct Launch {
    /// The program and its arguments.
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    program: Vec<OsString>,
}

/// This program, even when its file was replaced meanwhile. The path is that of this process, and
/// `/proc/self` would be the one of a wrapper.
pub(crate) fn this_program() -> String {
    format!("/proc/{}/exe", std::process::id())
}

/// A command that counts the program's instructions into `counts`.
pub(crate) fn counted(program: impl AsRef<OsStr>, counts: &Path, cores: &[usize]) -> Command {
    let mut command = child::command(this_program(), cores);
    command.args(["launch", "--", VALGRIND.program]);
    command.args(["--quiet", "--tool=callgrind"]);
    command.arg(format!("--callgrind-out-file={}", counts.display()));
    command.arg(program);
    command
}

/// Becomes the program, without the kernel's auxiliary vector: under valgrind it names a vDSO that
/// is not mapped, and rustix falls back to the one valgrind makes. Returns only on failure.
pub(crate) fn run(launch: &Launch) -> io::Error {
    if let Err(error) = refuse_auxv() {
        return io::Error::other(error);
    }
    let [program, arguments @ ..] = &launch.program[..] else {
        return io::Error::new(io::ErrorKind::InvalidInput, "no program was named");
    };
    let error = Command::new(program).args(arguments).exec();
    io::Error::new(error.kind(), format!("{}: {error}", program.display()))
}

/// The sum of all instructions in a file of callgrind.
pub(crate) fn total(counts: &Path) -> io::Result<f64> {
    let total = summary(&fs::read_to_string(counts)?);
    total.ok_or_else(|| io::Error::other("callgrind counted nothing"))
}

/// `summary: 1234`
fn summary(text: &str) -> Option<f64> {
    let mut lines = text.lines();
    let line = lines.find_map(|line| line.strip_prefix("summary: "))?;
    line.trim().parse().ok()
}

/// A filter of system calls that this process and what it becomes cannot take off again.
fn refuse_auxv() -> Result<(), seccompiler::Error> {
    let asks = SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, PR_GET_AUXV)?;
    let rule = SeccompRule::new(vec![asks])?;
    let refused = SeccompAction::Errno(libc::EINVAL.unsigned_abs());
    let filter = SeccompFilter::new(
        [(libc::SYS_prctl, vec![rule])].into(),
        SeccompAction::Allow,
        refused,
        std::env::consts::ARCH.try_into()?,
    )?;
    let program: BpfProgram = filter.try_into()?;
    seccompiler::apply_filter(&program)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sum_of_callgrind_is_found() {
        let text = "version: 1\nevents: Ir\nsummary: 123456\n\nfn=main\n0 1\n";
        assert_eq!(summary(text), Some(123_456.0));
        assert_eq!(summary("version: 1\n"), None);
    }
}
