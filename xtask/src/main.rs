//! `cargo xtask NAME`: see `lib.rs` for the commands.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use xtask::{COMMANDS, Error};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let Some((name, rest)) = arguments.split_first() else {
        eprint!("{}", usage());
        return ExitCode::from(2);
    };
    if matches!(name.as_str(), "help" | "--help" | "-h") {
        print!("{}", usage());
        return ExitCode::SUCCESS;
    }
    let Some(command) = COMMANDS.iter().find(|command| command.name == name) else {
        eprint!("xtask: there is no command {name:?}\n{}", usage());
        return ExitCode::from(2);
    };
    match (command.run)(rest) {
        Ok(()) => ExitCode::SUCCESS,
        Err(Error::Failed(why)) => {
            eprintln!("xtask {name}: {why}");
            ExitCode::from(1)
        }
        Err(Error::Usage(why)) => {
            eprintln!("xtask {name}: {why}");
            ExitCode::from(2)
        }
    }
}

fn usage() -> String {
    let mut text = String::from("use: cargo xtask COMMAND [ARGUMENT...]\n\n");
    for command in COMMANDS {
        text.push_str(&format!("  {:8} {}\n", command.name, command.summary));
    }
    text
}
