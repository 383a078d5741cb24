//! Every option of `serve` may come from the environment: `FLATPATH_` and its name in capitals,
//! `FLATPATH_MAX_CONNECTIONS` for `--max-connections`. The command line replaces it, and it
//! replaces the configuration file.

use clap::{Arg, ArgAction, Command};

const PREFIX: &str = "FLATPATH_";

/// The command line with its environment.
pub(crate) fn added_to(command: Command) -> Command {
    command
        .mut_args(with_variable)
        .mut_subcommand("serve", |serve| serve.mut_args(with_variable))
}

fn with_variable(argument: Arg) -> Arg {
    if !matches!(argument.get_action(), ArgAction::Set | ArgAction::Append) {
        return argument;
    }
    let name = variable(&argument);
    // An empty one is as good as none: that is how it is unset in files of systemd and containers.
    if std::env::var_os(&name).is_none_or(|value| value.is_empty()) {
        return argument;
    }
    argument.env(name).hide_env(true)
}

fn variable(argument: &Arg) -> String {
    format!("{PREFIX}{}", argument.get_id().as_str().to_uppercase())
}
