//! `flatpath bench`: runs the program `flatpath-bench` in the place of this one.
//!
//! The measurements are a program of their own, so that the server links no plots and no other
//! servers. It is looked for in the directory of this executable, then in `PATH`. It takes over
//! this process: its arguments, its exit status and the signals it gets are those of `flatpath
//! bench`. The environment variable `FLATPATH` tells it which server to measure: this executable,
//! unless the variable is set already.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process;

use clap::{Arg, ArgMatches, Command, value_parser};

use crate::failure::Failure;

/// The program that measures.
const PROGRAM: &str = "flatpath-bench";
/// Names the server to measure; set by this command, read by [`PROGRAM`].
const SERVER: &str = "FLATPATH";

/// The command line of `bench`, none of which is read here.
pub(crate) fn command() -> Command {
    let arguments = Arg::new("arguments")
        .value_name("ARGUMENT")
        .help("What to measure, and how: see `flatpath bench --help`")
        .value_parser(value_parser!(OsString))
        .num_args(0..)
        .trailing_var_arg(true)
        .allow_hyphen_values(true);
    Command::new("bench")
        .about("Measure the old way and ours in one run, by the program flatpath-bench")
        // No package has that program: those who build it know of it.
        .hide(true)
        .disable_help_flag(true)
        .arg(arguments)
}

/// Becomes the bench. Returns only if that is not possible.
pub(crate) fn run(arguments: &ArgMatches) -> Failure {
    let own = match env::current_exe() {
        Ok(own) => own,
        Err(cause) => return Failure::Failed(format!("this program cannot find itself: {cause}")),
    };
    let Some(program) = find(&own, env::var_os("PATH").as_deref()) else {
        return Failure::Failed(not_installed(&own));
    };
    let mut command = process::Command::new(&program);
    command.args(
        arguments
            .get_many::<OsString>("arguments")
            .into_iter()
            .flatten(),
    );
    if env::var_os(SERVER).is_none() {
        command.env(SERVER, &own);
    }
    let cause = command.exec();
    Failure::Failed(format!("cannot run {}: {cause}", program.display()))
}

/// The bench in the directory of `own`, or the first one in the directories of `path`.
fn find(own: &Path, path: Option<&OsStr>) -> Option<PathBuf> {
    let beside = own.parent().map(Path::to_path_buf);
    // An empty entry of PATH means the current directory: a program there may be anyone's.
    let listed = path.map(env::split_paths).into_iter().flatten();
    let listed = listed.filter(|directory| !directory.as_os_str().is_empty());
    beside
        .into_iter()
        .chain(listed)
        .map(|directory| directory.join(PROGRAM))
        .find(|program| is_executable(program))
}

fn is_executable(program: &Path) -> bool {
    fs::metadata(program).is_ok_and(|metadata| {
        const ANY_EXECUTE: u32 = 0o111;
        metadata.is_file() && metadata.permissions().mode() & ANY_EXECUTE != 0
    })
}

fn not_installed(own: &Path) -> String {
    let directory = own.parent().unwrap_or(Path::new("."));
    let directory = directory.display();
    format!(
        "{PROGRAM}, which does the measurements, is not installed: it is neither in {directory} \
         nor in PATH. In a checkout, `cargo build --profile dist -p {PROGRAM}` builds it beside a \
         release build of flatpath, and `cargo install --path bench` installs it"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn the_bench_beside_the_executable_comes_before_those_in_path() {
        let home = tempfile::tempdir().expect("a directory");
        let at = |name: &str| home.path().join(name);
        for directory in ["own", "first", "second"] {
            fs::create_dir(at(directory)).expect("a directory");
        }
        let path = env::join_paths([at("first"), at("second")]).expect("a path");
        let found = || find(&at("own/flatpath"), Some(&path));
        assert_eq!(found(), None);
        // A file that cannot be executed is not the program.
        fs::write(at("first").join(PROGRAM), "text").expect("a file");
        assert_eq!(found(), None);
        symlink("/bin/sh", at("second").join(PROGRAM)).expect("a link");
        assert_eq!(found(), Some(at("second").join(PROGRAM)));
        symlink("/bin/sh", at("own").join(PROGRAM)).expect("a link");
        assert_eq!(found(), Some(at("own").join(PROGRAM)));
        assert_eq!(
            find(&at("own/flatpath"), None),
            Some(at("own").join(PROGRAM))
        );
    }

    #[test]
    fn a_directory_of_that_name_and_an_empty_path_are_not_the_bench() {
        let home = tempfile::tempdir().expect("a directory");
        fs::create_dir(home.path().join(PROGRAM)).expect("a directory");
        let own = home.path().join("flatpath");
        assert_eq!(find(&own, None), None);
        assert_eq!(find(&own, Some(OsStr::new(""))), None);
    }
}
