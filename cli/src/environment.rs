//! Every option of `serve` may come from the environment: `FLATPATH_` and its name in capitals,
//! `FLATPATH_MAX_CONNECTIONS` for `--max-connections`. The command line replaces it, and it
//! replaces the configuration file.

use clap::error::{ContextKind, ContextValue};
use clap::{Arg, ArgAction, Command, Error};

use crate::units::similar;

const PREFIX: &str = "FLATPATH_";

/// From this similarity on a variable counts as a misspelling of another one.
const SIMILAR: f64 = 0.85;

/// The command line with its environment.
pub(crate) fn added_to(command: Command) -> Command {
    command
        .mut_args(with_variable)
        .mut_subcommand("serve", |serve| serve.mut_args(with_variable))
}

fn with_variable(argument: Arg) -> Arg {
    if !has_variable(&argument) {
        return argument;
    }
    let name = variable(&argument);
    // An empty one is as good as none: that is how it is unset in files of systemd and containers.
    if std::env::var_os(&name).is_none_or(|value| value.is_empty()) {
        return argument;
    }
    argument.env(name).hide_env(true)
}

fn has_variable(argument: &Arg) -> bool {
    matches!(argument.get_action(), ArgAction::Set | ArgAction::Append)
}

fn variable(argument: &Arg) -> String {
    format!("{PREFIX}{}", argument.get_id().as_str().to_uppercase())
}

/// The variables of the options of a command.
fn variables(command: &Command) -> Vec<String> {
    let arguments = command.get_arguments();
    arguments
        .filter(|it| has_variable(it))
        .map(variable)
        .collect()
}

/// The variable with the wrong value, if the value is not from the command line.
pub(crate) fn hint(error: &Error) -> Option<String> {
    let text = |kind| match error.get(kind)? {
        ContextValue::String(text) => Some(text),
        _ => None,
    };
    let (shown, value) = (
        text(ContextKind::InvalidArg)?,
        text(ContextKind::InvalidValue)?,
    );
    let mut serve = crate::serve::command();
    // Before that, arguments cannot be shown.
    serve.build();
    let argument = serve.get_arguments().find(|it| it.to_string() == *shown)?;
    let flag = format!("--{}", argument.get_long()?);
    let mut words = std::env::args_os();
    if words.any(|word| word.to_string_lossy().split('=').next() == Some(&*flag)) {
        return None;
    }
    let name = variable(argument);
    let is_there = std::env::var(&name).is_ok_and(|it| it.contains(value));
    is_there.then(|| format!("the value is that of the environment variable {name}"))
}

/// Warns of each variable whose name is similar to that of an option. Other names with the prefix
/// are valid: Kubernetes sets some for a service with the name `flatpath`.
pub(crate) fn warn_of_misspelt(serve: &Command) {
    let known = variables(serve);
    for (name, _) in std::env::vars_os() {
        if let Some(meant) = misspelt(&name.to_string_lossy(), &known) {
            log::warn!("{} has no effect: did you mean {meant}?", name.display());
        }
    }
}

/// The known variable that was probably meant, if this one is not known.
fn misspelt(name: &str, known: &[String]) -> Option<String> {
    let rest = name.strip_prefix(PREFIX)?;
    let is_known = known.iter().any(|it| it == name);
    let rests = known.iter().map(|it| it[PREFIX.len()..].to_owned());
    let meant = (!is_known).then(|| similar(rest, rests, SIMILAR))??;
    Some(format!("{PREFIX}{meant}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_variable_is_told_from_the_variables_of_others() {
        let known = variables(&crate::serve::command());
        let meant = |name: &str| misspelt(name, &known);
        for (name, setting) in [
            ("FLATPATH_WRITEABLE", "FLATPATH_WRITABLE"),
            ("FLATPATH_MEM0RY", "FLATPATH_MEMORY"),
            ("FLATPATH_MAX_CONNECTION", "FLATPATH_MAX_CONNECTIONS"),
        ] {
            assert_eq!(meant(name).as_deref(), Some(setting));
        }
        for name in [
            "FLATPATH_MEMORY",
            "MEM0RY",
            "FLATPATH_",
            // Of Kubernetes, for a service of this name.
            "FLATPATH_SERVICE_HOST",
            "FLATPATH_SERVICE_PORT",
            "FLATPATH_SERVICE_PORT_HTTP",
            "FLATPATH_SERVICE_PORT_NFS",
            "FLATPATH_SERVICE_PORT_ADMIN",
            "FLATPATH_PORT",
            "FLATPATH_PORT_8080_TCP",
            "FLATPATH_PORT_8080_TCP_ADDR",
            "FLATPATH_PORT_8080_TCP_PORT",
            "FLATPATH_PORT_8080_TCP_PROTO",
        ] {
            assert_eq!(meant(name), None, "{name}");
        }
    }
}
