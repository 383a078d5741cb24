//! The program `flatpath`: all of it is in the library beside it, so that the last thing that is
//! built is this call.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    flatpath_cli::main()
}
