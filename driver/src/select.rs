//! Which driver to use, and why: decided once per process, before any thread starts.

use std::fmt;

use crate::config::DriverConfig;
use crate::probe;
use crate::refusal::Refusal;

/// The operator's choice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum DriverChoice {
    /// io_uring where it works, epoll where it is refused.
    #[default]
    Auto,
    /// io_uring or nothing.
    Uring,
    /// epoll.
    Epoll,
}

/// The driver to use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selection {
    uring: bool,
    reason: String,
    refusal: Option<Refusal>,
}

impl Selection {
    /// `uring` or `epoll`, as [`Driver::kind`](crate::Driver::kind).
    pub fn name(&self) -> &'static str {
        if self.uring { "uring" } else { "epoll" }
    }

    /// True for io_uring.
    pub fn is_uring(&self) -> bool {
        self.uring
    }

    /// Why, in words.
    pub fn reason(&self) -> &str {
        &self.reason
    }

    /// Why io_uring is refused, if it is. When its cause is a resource
    /// ([`Cause::is_resource`](crate::Cause::is_resource)), the operator should be warned.
    pub fn refusal(&self) -> Option<&Refusal> {
        self.refusal.as_ref()
    }
}

impl fmt::Display for Selection {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.name(), self.reason)
    }
}

/// Tries what the choice needs on throw-away rings of the configured size, and decides. Takes about
/// a millisecond.
///
/// # Errors
/// [`DriverChoice::Uring`] and it is refused; or, with any choice, a configuration that cannot be.
pub fn select(choice: DriverChoice, config: &DriverConfig) -> Result<Selection, Refusal> {
    crate::uring::setup::check(config)?;
    let (reason, refusal) = match choice {
        DriverChoice::Epoll => ("it was asked for".to_owned(), None),
        DriverChoice::Auto | DriverChoice::Uring => match probe::require(config) {
            Ok(()) => {
                return Ok(Selection {
                    uring: true,
                    reason: "everything it needs was tried and works".to_owned(),
                    refusal: None,
                });
            }
            Err(refusal) if choice == DriverChoice::Uring => return Err(refusal),
            Err(refusal) => (
                format!("io_uring does not work here: {refusal}"),
                Some(refusal),
            ),
        },
    };
    Ok(Selection {
        uring: false,
        reason,
        refusal,
    })
}
