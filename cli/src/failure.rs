//! Why a command ended, and with which code.

use std::process::ExitCode;

/// A failure, with its cause and, where there is one, the remedy.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The command was given what cannot be meant. Code 2.
    WrongUse(String),
    /// It was given what can be meant, and it did not work out. Code 1.
    Failed(String),
    /// It worked out, and found that this machine does not offer what is asked for. Code 3.
    Mismatch(String),
}

flatpath::impl_error! {
    Failure {
        Self::WrongUse(why) | Self::Failed(why) | Self::Mismatch(why) => "{why}",
    }
}

impl Failure {
    pub(crate) fn exit_code(&self) -> ExitCode {
        match self {
            Self::WrongUse(_) => ExitCode::from(2),
            Self::Failed(_) => ExitCode::from(1),
            Self::Mismatch(_) => ExitCode::from(3),
        }
    }
}
