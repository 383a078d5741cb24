//! How a connection is ended for others, or for lack of room: with its protocol's refusal where
//! that can be sent.
//!
//! | the connection                 | is refused, for lack of room | is ended, for what it holds |
//! |--------------------------------|------------------------------|-----------------------------|
//! | is spliced to another one      | reset: a clean end would say | reset                       |
//! |                                | that nothing is missing      |                             |
//! | has a job out, or output that  | closed after its output:     | reset: what it holds is     |
//! | is not sent                    | words would be taken for a   | what its peer does not read |
//! |                                | part of the reply            |                             |
//! | is closing already             | in words                     | reset                       |
//! | none of these                  | in words                     | in words                    |

/// Why a connection is ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    /// It found no room for too long.
    NoRoom,
    /// Others need what it holds.
    Holds,
}

/// A connection that is to be ended.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Facts {
    pub(crate) is_spliced: bool,
    /// It has a job out, or output that is not sent.
    pub(crate) is_replying: bool,
    pub(crate) is_closing: bool,
}

/// How it is ended.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Parting {
    /// By a reset.
    Reset,
    /// After its output, without words.
    AfterOutput,
    /// With its protocol's refusal.
    InWords,
}

impl Parting {
    pub(crate) fn of(reason: Reason, facts: Facts) -> Parting {
        match (reason, facts) {
            (_, it) if it.is_spliced => Parting::Reset,
            (Reason::NoRoom, it) if it.is_replying => Parting::AfterOutput,
            (Reason::Holds, it) if it.is_replying || it.is_closing => Parting::Reset,
            _ => Parting::InWords,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_said_where_nothing_else_is_on_its_way() {
        use Parting::{AfterOutput, InWords, Reset};
        let rows = [
            ((false, false, false), InWords, InWords),
            ((false, false, true), InWords, Reset),
            ((false, true, false), AfterOutput, Reset),
            ((false, true, true), AfterOutput, Reset),
            ((true, false, false), Reset, Reset),
            ((true, true, true), Reset, Reset),
        ];
        for ((is_spliced, is_replying, is_closing), no_room, holds) in rows {
            let facts = Facts {
                is_spliced,
                is_replying,
                is_closing,
            };
            assert_eq!(Parting::of(Reason::NoRoom, facts), no_room, "{facts:?}");
            assert_eq!(Parting::of(Reason::Holds, facts), holds, "{facts:?}");
        }
    }
}
