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
/// The driver that was chosen is refused, or not in this build
/// ([`Cause::NotBuilt`](crate::Cause::NotBuilt)), with [`DriverChoice::Auto`] all of them; or, with
/// any choice, a configuration that cannot be.
pub fn select(choice: DriverChoice, config: &DriverConfig) -> Result<Selection, Refusal> {
    config.check()?;
    decide(choice, || probe::require(config), has_epoll())
}

/// Decides, by what was chosen and which drivers can be used; io_uring is asked only if it matters.
fn decide(
    choice: DriverChoice,
    uring: impl FnOnce() -> Result<(), Refusal>,
    epoll: Result<(), Refusal>,
) -> Result<Selection, Refusal> {
    let (reason, refusal) = match choice {
        DriverChoice::Epoll => ("it was asked for".to_owned(), None),
        DriverChoice::Auto | DriverChoice::Uring => match uring() {
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
    match epoll {
        Ok(()) => Ok(Selection {
            uring: false,
            reason,
            refusal,
        }),
        // Where there is nothing else to use, what is wrong with io_uring is the reason.
        Err(not_built) => Err(refusal.unwrap_or(not_built)),
    }
}

#[cfg(feature = "epoll")]
fn has_epoll() -> Result<(), Refusal> {
    Ok(())
}

#[cfg(not(feature = "epoll"))]
fn has_epoll() -> Result<(), Refusal> {
    Err(Refusal::not_built("epoll"))
}

#[cfg(test)]
mod tests {
    use rustix::io::Errno;

    use super::*;
    use crate::refusal::Cause;

    fn not_built(driver: &'static str) -> Result<(), Refusal> {
        Err(Refusal::not_built(driver))
    }

    fn refused() -> Result<(), Refusal> {
        Err(Refusal::of("setting up a ring", Errno::PERM))
    }

    #[test]
    fn a_build_with_one_driver_uses_it_without_being_asked() {
        let alone = decide(DriverChoice::Auto, || Ok(()), not_built("epoll"));
        assert_eq!(alone.expect("io_uring").name(), "uring");
        let alone = decide(DriverChoice::Auto, || not_built("uring"), Ok(())).expect("epoll");
        assert_eq!(alone.name(), "epoll");
        assert!(alone.reason().contains("built without it"), "{alone}");
    }

    #[test]
    fn a_driver_that_is_asked_for_and_not_built_is_refused_by_its_name() {
        let epoll = decide(DriverChoice::Epoll, || Ok(()), not_built("epoll"));
        let uring = decide(DriverChoice::Uring, || not_built("uring"), Ok(()));
        for (name, answer) in [("epoll", epoll), ("uring", uring)] {
            let refusal = answer.expect_err("it is not there");
            assert_eq!((refusal.step, refusal.cause), (name, Cause::NotBuilt));
        }
    }

    #[test]
    fn without_epoll_the_reason_is_what_the_kernel_said_of_io_uring() {
        let answer = decide(DriverChoice::Auto, refused, not_built("epoll"));
        assert_eq!(answer.expect_err("neither").cause, Cause::Forbidden);
        let answer = decide(
            DriverChoice::Auto,
            || not_built("uring"),
            not_built("epoll"),
        );
        assert_eq!(answer.expect_err("neither").step, "uring");
    }

    #[test]
    fn io_uring_is_not_tried_where_epoll_was_asked_for() {
        let untried = || panic!("it was tried");
        let epoll = decide(DriverChoice::Epoll, untried, Ok(())).expect("epoll");
        assert_eq!((epoll.name(), epoll.refusal()), ("epoll", None));
    }
}
