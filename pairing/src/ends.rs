//! What an end of a pair has to do; the contract is in the module above.

use std::sync::Arc;

use flatpath::ConnectionHandle;
use flatpath::watch::WatchError;
use flatpath_structures::pairing::{Consumer, Producer};

/// What passes from a producer to its consumer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
// Exhaustive: a consumer that overlooks one loses what was sent.
pub enum Item<'a> {
    /// The number of signals since the last item; never zero.
    Signal(u64),
    /// The next bytes of a stream; never empty.
    Bytes(&'a [u8]),
}

/// Takes a consumer's items, on the thread of the producer. On a network thread it must not block,
/// and takes a few microseconds at most. Items of a pair come one at a time, in order.
pub type Intake = dyn Fn(Item<'_>) + Send + Sync;

/// Why an end refuses to be connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refused {
    /// What the one produces is not for the other.
    Unfit,
    /// They are connections of different network threads: see [`Spread`](flatpath::Spread).
    Elsewhere,
    /// There is no memory for it.
    NoMemory,
    /// The server that would watch the source has ended.
    ShutDown,
    /// An end of another make says no, for a reason of its own.
    Declined,
}

flatpath_structures::impl_error! {
    Refused {
        Self::Unfit => "what the one produces is not for the other",
        Self::Elsewhere => "the two connections are on different network threads",
        Self::NoMemory => "no memory to connect them",
        Self::ShutDown => "the server has ended",
        Self::Declined => "one of the two declined",
    }
}

impl From<WatchError> for Refused {
    fn from(error: WatchError) -> Refused {
        match error {
            WatchError::NoMemory => Refused::NoMemory,
            WatchError::ShutDown => Refused::ShutDown,
            _ => Refused::Declined,
        }
    }
}

/// An end that items come from. Its methods are called by the registry only; see [the crate](crate)
/// for their order.
#[diagnostic::on_unimplemented(message = "no items come from `{Self}`", label = "not a `Source`")]
pub trait Source: Send + Sync {
    /// From now on, but for what `stop` holds back, its items go to this consumer.
    ///
    /// # Errors
    /// Then nothing has changed.
    fn connect(&self, consumer: &dyn Sink) -> Result<(), Refused>;

    /// Undoes `connect`. No call of the intake begins after it, and none of another thread is under
    /// way.
    fn disconnect(&self);

    /// Holds items back.
    fn stop(&self) {}

    /// Continues after `stop`.
    fn start(&self) {}

    /// The connection that it is, if it is one.
    fn end(&self) -> Option<ConnectionHandle> {
        None
    }
}

/// An end that items go to. Its methods are called by the registry only; see [the crate](crate) for
/// their order.
#[diagnostic::on_unimplemented(message = "no items go to `{Self}`", label = "not a `Sink`")]
pub trait Sink: Send + Sync {
    /// From now on it is called by this producer.
    ///
    /// # Errors
    /// Then nothing has changed, and the producer is disconnected.
    fn connect(&self, producer: &dyn Source) -> Result<(), Refused> {
        let _ = producer;
        Ok(())
    }

    /// Undoes `connect`.
    fn disconnect(&self) {}

    /// Prepares for a change.
    fn stop(&self) {}

    /// Continues after `stop`.
    fn start(&self) {}

    /// What takes its items; `None` if it is only for connections to be joined to.
    fn intake(&self) -> Option<Arc<Intake>>;

    /// The connection that it is, if it is one.
    fn end(&self) -> Option<ConnectionHandle> {
        None
    }
}

impl Producer<dyn Sink> for dyn Source {
    type Error = Refused;

    fn add_consumer(&self, consumer: &dyn Sink) -> Result<(), Refused> {
        self.connect(consumer)
    }

    fn del_consumer(&self, _consumer: &dyn Sink) {
        self.disconnect();
    }

    fn stop(&self) {
        Source::stop(self);
    }

    fn start(&self) {
        Source::start(self);
    }
}

impl Consumer<dyn Source> for dyn Sink {
    type Error = Refused;

    fn add_producer(&self, producer: &dyn Source) -> Result<(), Refused> {
        self.connect(producer)
    }

    fn del_producer(&self, _producer: &dyn Source) {
        self.disconnect();
    }

    fn stop(&self) {
        Sink::stop(self);
    }

    fn start(&self) {
        Sink::start(self);
    }
}
