//! Whether two connections become a pair. The first row that holds decides:
//!
//! | the connection, or the other one | verdict                           |
//! |----------------------------------|-----------------------------------|
//! | belongs to another thread        | refused: [`Unfit::OtherThread`]   |
//! | is the same connection           | refused: [`Unfit::Itself`]        |
//! | is gone                          | refused: [`Unfit::Gone`]          |
//! | is an end of a pair              | refused: [`Unfit::Spliced`]       |
//! | is being ended                   | refused: [`Unfit::Ends`]          |
//! | none of these                    | they are spliced                  |
//!
//! One that is refused stays as it is, and its protocol decides what becomes of it.

/// A connection that is to be spliced.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Candidate {
    pub(crate) is_spliced: bool,
    pub(crate) is_closing: bool,
}

/// What becomes of a wish to be spliced.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Joining {
    Splice,
    Refuse(Unfit),
}

/// Why two connections are not spliced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unfit {
    OtherThread,
    Itself,
    Gone,
    Spliced,
    Ends,
}

impl Joining {
    /// Of a connection and the `other` that it names; `None`: it is gone.
    pub(crate) fn of(is_same_thread: bool, is_same: bool, ends: [Option<Candidate>; 2]) -> Joining {
        let unfit = match ends {
            _ if !is_same_thread => Unfit::OtherThread,
            _ if is_same => Unfit::Itself,
            [Some(one), Some(other)] if one.is_spliced || other.is_spliced => Unfit::Spliced,
            [Some(one), Some(other)] if one.is_closing || other.is_closing => Unfit::Ends,
            [Some(_), Some(_)] => return Joining::Splice,
            [_, None] | [None, _] => Unfit::Gone,
        };
        Joining::Refuse(unfit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_are_spliced_that_are_here_single_and_whole() {
        let good = Some(Candidate::default());
        let spliced = Some(Candidate {
            is_spliced: true,
            ..Candidate::default()
        });
        let closing = Some(Candidate {
            is_closing: true,
            ..Candidate::default()
        });
        assert_eq!(Joining::of(true, false, [good, good]), Joining::Splice);
        for (bad, unfit) in [
            (None, Unfit::Gone),
            (spliced, Unfit::Spliced),
            (closing, Unfit::Ends),
        ] {
            for ends in [[good, bad], [bad, good], [bad, bad]] {
                let refused = Joining::Refuse(unfit);
                assert_eq!(Joining::of(true, false, ends), refused, "{ends:?}");
            }
        }
        let itself = Joining::of(true, true, [good, good]);
        assert_eq!(itself, Joining::Refuse(Unfit::Itself));
        for is_same in [false, true] {
            // The place of another thread's connection may be any connection's here.
            let elsewhere = Joining::of(false, is_same, [good, good]);
            assert_eq!(elsewhere, Joining::Refuse(Unfit::OtherThread));
        }
    }
}
