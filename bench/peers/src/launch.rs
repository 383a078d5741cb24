//! The launcher: what a child must have before its first instruction.
//!
//! `flatpath-peers launch -- PROGRAM ARGUMENTS` asks the kernel to end this process when the
//! harness dies, pins it to cores, raises the descriptor limit, and then becomes PROGRAM. Doing
//! it here, between fork and exec but in an ordinary program, needs no unsafe code and leaves no
//! moment in which a thread of the server runs on the wrong core.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use rustix::process::{
    Pid, Resource, Rlimit, Signal, getppid, getrlimit, set_parent_process_death_signal, setrlimit,
};
use rustix::thread::{CpuSet, sched_setaffinity};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule,
};

use crate::tools::Tool;

/// `prctl(PR_GET_AUXV)`: rustix asks the kernel with it for the auxiliary vector.
const PR_GET_AUXV: u64 = 0x4155_5856;

/// The arguments of the hidden `launch` command.
#[derive(clap::Args, Debug)]
pub(crate) struct Launch {
    /// The process that must stay alive for this one to live.
    #[arg(long)]
    parent: i32,
    /// The cores to run on; all of them if none is named.
    #[arg(long, value_delimiter = ',')]
    cores: Vec<usize>,
    /// Refuse the kernel's auxiliary vector: under valgrind it names a vDSO that is not mapped, and
    /// rustix falls back to the one valgrind makes.
    #[arg(long)]
    refuse_auxv: bool,
    /// The program and its arguments.
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    program: Vec<OsString>,
}

/// A command that starts the program through the launcher.
pub(crate) fn command(program: impl AsRef<OsStr>, cores: &[usize]) -> Command {
    let mut command = launcher(cores);
    command.arg("--").arg(program);
    command
}

/// A command that counts the program's instructions into `counts`, through the launcher.
pub(crate) fn counted(program: impl AsRef<OsStr>, counts: &Path, cores: &[usize]) -> Command {
    let mut command = launcher(cores);
    command.args(["--refuse-auxv", "--", Tool::Valgrind.program()]);
    command.args(["--quiet", "--tool=callgrind"]);
    command.arg(format!("--callgrind-out-file={}", counts.display()));
    command.arg(program);
    command
}

fn launcher(cores: &[usize]) -> Command {
    // Not `current_exe`: the path may meanwhile name a newer build, or nothing.
    let mut command = Command::new("/proc/self/exe");
    command
        .arg("launch")
        .arg("--parent")
        .arg(std::process::id().to_string());
    for core in cores {
        command.arg("--cores").arg(core.to_string());
    }
    command
}

/// Runs the launcher: returns only if the program could not be started.
pub(crate) fn run(launch: &Launch) -> io::Error {
    if let Err(error) = prepare(launch) {
        return error;
    }
    let [program, arguments @ ..] = &launch.program[..] else {
        return io::Error::new(io::ErrorKind::InvalidInput, "no program was named");
    };
    let error = Command::new(program).args(arguments).exec();
    io::Error::new(error.kind(), format!("{}: {error}", program.display()))
}

/// Raises the soft limit of open descriptors to the hard one and returns it.
///
/// # Errors
/// What `setrlimit` reports.
pub(crate) fn raise_descriptor_limit() -> io::Result<u64> {
    let maximum = getrlimit(Resource::Nofile).maximum;
    setrlimit(
        Resource::Nofile,
        Rlimit {
            current: maximum,
            maximum,
        },
    )?;
    Ok(maximum.unwrap_or(u64::MAX))
}

fn prepare(launch: &Launch) -> io::Result<()> {
    // SIGTERM and not SIGKILL: nginx's master must get the chance to end its worker.
    set_parent_process_death_signal(Some(Signal::TERM))?;
    // The parent may have died before that was set.
    if getppid().map_or(0, Pid::as_raw_pid) != launch.parent {
        return Err(io::Error::other("the harness is gone"));
    }
    raise_descriptor_limit()?;
    if launch.refuse_auxv {
        refuse_auxv().map_err(io::Error::other)?;
    }
    if launch.cores.is_empty() {
        return Ok(());
    }
    let mut set = CpuSet::new();
    for core in &launch.cores {
        if *core >= CpuSet::MAX_CPU {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "no such core"));
        }
        set.set(*core);
    }
    Ok(sched_setaffinity(None, &set)?)
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
