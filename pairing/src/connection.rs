//! A TCP connection as an end: spliced to another one, or its bytes go to a callback.

use std::sync::Arc;

use flatpath::lock::{Guard, Lock};
use flatpath::{ConnectionHandle, Io, Phase, Received, Stall};

use crate::ends::{Intake, Item, Refused, Sink, Source};
use crate::gate::{Gate, Passed};

/// A TCP connection as an end of a pair.
///
/// A protocol keeps one in the session of a connection, together with its
/// [`Pairing`](crate::Pairing), and asks it in two places: [`ConnectionEnd::meet`] after
/// registering, and [`ConnectionEnd::pass`] with input. It does nothing when the connection is
/// gone, because the session's end ends the registration.
///
/// Connections are consumers of connections only: what else is produced has no place in a stream.
#[derive(Debug)]
pub struct ConnectionEnd {
    end: ConnectionHandle,
    partner: Lock<Option<ConnectionHandle>>,
    gate: Gate,
}

impl ConnectionEnd {
    /// The connection that a protocol is called for.
    pub fn new(io: &Io<'_>) -> ConnectionEnd {
        ConnectionEnd {
            end: io.handle(),
            partner: Lock::new(None),
            gate: Gate::default(),
        }
    }

    fn place(&self) -> Guard<'_, Option<ConnectionHandle>> {
        self.partner.lock()
    }

    /// The connection that it is connected to, if it is.
    pub fn partner(&self) -> Option<ConnectionHandle> {
        self.place().clone()
    }

    /// Right after registering: asks the engine to join the two if the other side is a connection
    /// and there; else the connection waits ([`Phase::Wait`]).
    pub fn meet(&self, io: &mut Io<'_>) {
        match self.partner() {
            Some(partner) => io.splice(&partner),
            None => io.phase(Phase::Wait),
        }
    }

    /// Hands input to the consumer's callback. While there is none, the input waits.
    pub fn pass(&self, io: &mut Io<'_>, input: &[u8]) -> Received {
        if input.is_empty() {
            return Received::Consumed;
        }
        match self.gate.pass(Item::Bytes(input)) {
            Passed::Taken => {
                // From now on its silence counts, as that of any connection.
                io.restart_phase(Phase::Idle);
                Received::Consumed
            }
            Passed::Held | Passed::Unconnected => Received::Blocked {
                consumed: 0,
                on: Stall::Outside,
            },
        }
    }

    /// Only connections of one network thread can be joined.
    fn join_with(&self, other: ConnectionHandle) -> Result<(), Refused> {
        if !other.is_same_thread(&self.end) {
            return Err(Refused::Elsewhere);
        }
        *self.place() = Some(other);
        Ok(())
    }
}

impl Source for ConnectionEnd {
    fn connect(&self, consumer: &dyn Sink) -> Result<(), Refused> {
        if let Some(other) = consumer.end() {
            return self.join_with(other);
        }
        self.gate.connect(consumer.intake().ok_or(Refused::Unfit)?);
        Ok(())
    }

    fn disconnect(&self) {
        *self.place() = None;
        self.gate.disconnect();
    }

    fn stop(&self) {
        self.gate.stop();
    }

    fn start(&self) {
        self.gate.start();
        // What waited for a consumer, or was held, is offered again.
        if self.gate.is_connected() {
            self.end.wake();
        }
    }

    fn end(&self) -> Option<ConnectionHandle> {
        Some(self.end.clone())
    }
}

impl Sink for ConnectionEnd {
    fn connect(&self, producer: &dyn Source) -> Result<(), Refused> {
        self.join_with(producer.end().ok_or(Refused::Unfit)?)
    }

    fn disconnect(&self) {
        *self.place() = None;
    }

    fn intake(&self) -> Option<Arc<Intake>> {
        None
    }

    fn end(&self) -> Option<ConnectionHandle> {
        Some(self.end.clone())
    }
}
