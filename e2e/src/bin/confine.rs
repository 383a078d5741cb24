//! Runs a program with less than the machine offers: `confine [OPTION...] -- PROGRAM
//! [ARGUMENT...]`.
//!
//! `--refuse-uring ERROR` has the kernel answer `io_uring_setup` with that error, as a container's
//! seccomp filter, a sysctl or an old kernel would. `--descriptors N` lowers the limit on open
//! descriptors, `--file-size BYTES` that on the length of files. `--group PATH` enters a control
//! group. All hold for the program and its
//! children; the program replaces this process.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use rustix::io::Errno;
use rustix::process::{Resource, Rlimit};
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter};

/// The same number on every architecture that has it.
const IO_URING_SETUP: i64 = 425;

/// The errors with which io_uring is known to be refused.
const ERRORS: &[(&str, Errno)] = &[
    ("ENOSYS", Errno::NOSYS),
    ("EPERM", Errno::PERM),
    ("ENOMEM", Errno::NOMEM),
    ("EOPNOTSUPP", Errno::OPNOTSUPP),
    ("EACCES", Errno::ACCESS),
    ("EMFILE", Errno::MFILE),
];

fn main() -> ExitCode {
    match confined(std::env::args_os().skip(1)) {
        Ok(mut command) => {
            let error = command.exec();
            eprintln!("confine: {:?}: {error}", command.get_program());
        }
        Err(why) => eprintln!("confine: {why}"),
    }
    ExitCode::from(2)
}

/// Applies the options to this process and returns the command to become.
fn confined(mut arguments: impl Iterator<Item = OsString>) -> Result<Command, String> {
    loop {
        let option = arguments.next().ok_or("no program")?;
        let option = option.to_str().ok_or("an option that is not text")?;
        if option == "--" {
            break;
        }
        let value = arguments
            .next()
            .ok_or_else(|| format!("{option} wants a value"))?;
        let value = value.to_str().ok_or("a value that is not text")?;
        match option {
            "--refuse-uring" => refuse_uring(value)?,
            "--descriptors" => limit(Resource::Nofile, value)?,
            "--group" => enter(value)?,
            "--file-size" => limit(Resource::Fsize, value)?,
            other => return Err(format!("there is no option {other}")),
        }
    }
    let mut command = Command::new(arguments.next().ok_or("no program")?);
    command.args(arguments);
    Ok(command)
}

fn refuse_uring(name: &str) -> Result<(), String> {
    let error = ERRORS.iter().find(|(known, _)| *known == name);
    let (_, error) = error.ok_or_else(|| format!("there is no error {name}"))?;
    let number = u32::try_from(error.raw_os_error()).map_err(|error| error.to_string())?;
    let whole = |error: seccompiler::BackendError| error.to_string();
    let architecture = std::env::consts::ARCH.try_into().map_err(whole)?;
    // A system call without conditions matches whatever its arguments are.
    let rules = BTreeMap::from([(IO_URING_SETUP, Vec::new())]);
    let (otherwise, refusal) = (SeccompAction::Allow, SeccompAction::Errno(number));
    let filter = SeccompFilter::new(rules, otherwise, refusal, architecture).map_err(whole)?;
    let program: BpfProgram = filter.try_into().map_err(whole)?;
    seccompiler::apply_filter(&program).map_err(|error| error.to_string())
}

fn enter(group: &str) -> Result<(), String> {
    let members = format!("{group}/cgroup.procs");
    std::fs::write(&members, std::process::id().to_string())
        .map_err(|error| format!("{members}: {error}"))
}

fn limit(resource: Resource, count: &str) -> Result<(), String> {
    let count = count
        .parse()
        .map_err(|_| format!("not a number: {count}"))?;
    // The soft and the hard limit: the program must not raise it again.
    let limit = Rlimit {
        current: Some(count),
        maximum: Some(count),
    };
    rustix::process::setrlimit(resource, limit).map_err(|error| error.to_string())
}
