//! When a worker may answer a call: the limits that it enters before, over streams and over
//! datagrams.

use flatpath::blocking::{BlockingLimit, Entry, Permit};

use crate::message::Call;
use crate::programs::Programs;
use crate::record::Arguments;

/// What a call on a worker has come to.
#[derive(Debug)]
pub(crate) enum Admission {
    /// It is answered, inside its limit if it has one.
    Inside { _permit: Option<Permit> },
    /// Its job comes again: until then it has no effect.
    Parked,
    /// Its limit is full, and nothing in it moves: it is answered that there is no room.
    Refused,
}

impl Admission {
    /// Prepares a call where it needs that, and enters its limit; `enter` asks a limit for the job
    /// of this worker.
    pub(crate) fn of(
        programs: &impl Programs,
        call: &Call,
        arguments: Arguments<'_>,
        mut enter: impl FnMut(BlockingLimit) -> Entry,
    ) -> Self {
        let preparation = programs.preparation(call, arguments);
        // Its place is left before another limit is entered: one that hangs takes none of the
        // other's places.
        match preparation.map(&mut enter) {
            None | Some(Entry::Refused) => {}
            Some(Entry::Entered(_inside)) => programs.prepare(call),
            Some(Entry::Parked) => return Self::Parked,
        }
        match programs.limit(call, arguments).map(enter) {
            None => Self::Inside { _permit: None },
            Some(Entry::Entered(permit)) => Self::Inside {
                _permit: Some(permit),
            },
            Some(Entry::Parked) => Self::Parked,
            Some(Entry::Refused) => Self::Refused,
        }
    }
}
