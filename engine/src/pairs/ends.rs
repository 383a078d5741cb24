//! How a pair ends: what follows for it from how both its ends stand.
//!
//! It is asked after each event of an end, which is `this`. The first row that holds decides:
//!
//! | this end                     | the other      | verdict                                      |
//! |------------------------------|----------------|----------------------------------------------|
//! | breaks off                   | any            | [`Ending::Part`]: the other is reset, as a   |
//! |                              |                | clean end would say that nothing is missing  |
//! | closes                       | any            | [`Ending::Part`]: the other closes, once it  |
//! |                              |                | has sent what it was given                   |
//! | its stream has ended         | likewise       | [`Ending::Both`]: both close so              |
//! | has sent all, but not FIN    | its stream has | [`Ending::Finish`]: FIN at the end of the    |
//! |                              | ended          | turn: the other may be over by then, and a   |
//! |                              |                | close sends it, too                          |
//! | none of these                |                | [`Ending::Continue`]                         |
//!
//! A stream *has ended* when its end has come and all before it was passed on. An end *breaks off*
//! when it is reset, or when its stream was cut off (TLS). When a record of it is not accepted, the
//! pair is over at once, and the other end is reset, too.

/// How one end of a pair stands.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Standing {
    pub(crate) closes: Option<Close>,
    pub(crate) has_ended: bool,
    /// Nothing is left to send, and FIN is not out.
    pub(crate) may_finish: bool,
}

/// How an end that closes does, from the mildest to the hardest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Close {
    AfterOutput,
    /// It breaks off.
    Reset,
}

/// What becomes of a pair.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    Continue,
    /// The end of the other's stream is passed on to this end.
    Finish,
    /// The pair is over, and the other end closes so.
    Part(Close),
    /// The pair is over, and both close after their output.
    Both,
}

impl Standing {
    /// A connection that has left the table.
    pub(crate) const GONE: Standing = Standing {
        closes: None,
        has_ended: true,
        may_finish: false,
    };
}

impl Ending {
    pub(crate) fn of(this: Standing, other: Standing) -> Ending {
        if let Some(close) = this.closes {
            Ending::Part(close)
        } else if this.has_ended && other.has_ended {
            Ending::Both
        } else if other.has_ended && this.may_finish {
            Ending::Finish
        } else {
            Ending::Continue
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_reason_decides_how_a_pair_ends() {
        let rows = [
            ((None, false, false), false, Ending::Continue),
            ((None, false, true), false, Ending::Continue),
            ((None, true, true), false, Ending::Continue),
            ((None, false, false), true, Ending::Continue),
            ((None, false, true), true, Ending::Finish),
            ((None, true, false), true, Ending::Both),
            ((None, true, true), true, Ending::Both),
        ];
        let closes = [None, Some(Close::AfterOutput), Some(Close::Reset)];
        for ((closes_not, has_ended, may_finish), other_has_ended, open) in rows {
            for close in closes {
                let this = Standing {
                    closes: close.or(closes_not),
                    has_ended,
                    may_finish,
                };
                for others in closes {
                    // How the other closes is decided in its own events.
                    let other = Standing {
                        closes: others,
                        has_ended: other_has_ended,
                        may_finish: true,
                    };
                    let expected = close.map_or(open, Ending::Part);
                    assert_eq!(Ending::of(this, other), expected, "{this:?}, {other:?}");
                }
            }
        }
    }

    #[test]
    fn what_is_left_of_a_pair_whose_other_end_is_gone_sends_all_and_fin() {
        let mut this = Standing {
            closes: None,
            has_ended: false,
            may_finish: false,
        };
        assert_eq!(Ending::of(this, Standing::GONE), Ending::Continue);
        this.may_finish = true;
        assert_eq!(Ending::of(this, Standing::GONE), Ending::Finish);
    }
}
