//! How long idle processors of a virtual machine poll before they halt, set for a run.
//!
//! The setting is the machine's (`guest_halt_poll_ns`, see [`flatpath_driver::idle`]), so it is
//! put back however the run ends: a process that measures nothing holds what was set before, runs
//! this program again with the same arguments, and writes the old value once that has ended, be it
//! by its report, an error, a panic or a signal. Only SIGKILL of that process leaves the setting.

use std::io;
use std::process::ExitCode;

use flatpath_driver::idle::HALT_POLL;
use flatpath_testkit::{child, supervised};

use crate::report::BenchReport;

/// Tells the program that another one puts the setting back.
const WITHIN: &str = "FLATPATH_BENCH_HALT_POLL";

/// The setting of the machine while this lives.
struct Kept {
    file: String,
    value: String,
}

impl Kept {
    fn of(file: &str) -> io::Result<Self> {
        let value = std::fs::read_to_string(file).map_err(|cause| refused(file, &cause))?;
        // What needs root is found before anything is measured.
        write(file, &value)?;
        let file = file.to_owned();
        Ok(Self { file, value })
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        if let Err(error) = write(&self.file, &self.value) {
            eprintln!("{error}; it was {}", self.value.trim());
        }
    }
}

/// Runs this program again where `settings` names any: how it ended. `None`: this is that run.
///
/// # Errors
/// The machine has no such setting, or this is not root; signals cannot be handled.
pub fn enter(settings: &[u32]) -> io::Result<Option<ExitCode>> {
    if settings.is_empty() || std::env::var_os(WITHIN).is_some() {
        return Ok(None);
    }
    let _kept = Kept::of(HALT_POLL)?;
    let mut command = child::command(std::env::current_exe()?, &[]);
    command.args(std::env::args_os().skip(1)).env(WITHIN, "1");
    let status = supervised::run(&mut command)?;
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    Ok(Some(ExitCode::from(code.unwrap_or(1))))
}

/// Measures under each of the settings in turn, or once as the machine is where there are none.
/// Each report says under which.
///
/// # Errors
/// That of `measure`, or the setting is refused.
pub fn under_each(
    settings: &[u32],
    mut measure: impl FnMut() -> io::Result<Vec<BenchReport>>,
) -> io::Result<Vec<BenchReport>> {
    if settings.is_empty() {
        return measure();
    }
    let mut all = Vec::new();
    for setting in settings {
        write(HALT_POLL, &setting.to_string())?;
        let mut reports = measure()?;
        for report in &mut reports {
            report.name_setting(&format!("guest_halt_poll_ns {setting}"));
        }
        all.append(&mut reports);
    }
    Ok(all)
}

fn write(file: &str, value: &str) -> io::Result<()> {
    std::fs::write(file, value.trim()).map_err(|cause| refused(file, &cause))
}

fn refused(file: &str, cause: &io::Error) -> io::Error {
    let why = match cause.kind() {
        io::ErrorKind::PermissionDenied => ", which takes root",
        io::ErrorKind::NotFound => ", which kernels of virtual machines have (haltpoll)",
        _ => "",
    };
    let message = format!("--halt-poll sets {file}{why}: {cause}");
    io::Error::new(cause.kind(), message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_set_is_put_back_also_by_a_panic() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("guest_halt_poll_ns");
        std::fs::write(&file, "7\n").expect("written");
        let path = file.to_str().expect("a name").to_owned();
        let outcome = std::thread::spawn(move || {
            let _kept = Kept::of(&path).expect("readable");
            write(&path, "200000").expect("writable");
            std::panic::resume_unwind(Box::new("on purpose"));
        })
        .join();
        assert!(outcome.is_err());
        assert_eq!(std::fs::read_to_string(&file).expect("there"), "7");
    }

    #[test]
    fn a_machine_without_the_setting_says_so() {
        let error = Kept::of("/no/such/setting").err().expect("not there");
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        assert!(error.to_string().contains("--halt-poll"), "{error}");
        assert!(enter(&[]).expect("nothing to do").is_none());
    }
}
