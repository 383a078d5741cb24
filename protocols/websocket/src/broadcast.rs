//! One message to many sockets.
//!
//! The table has a place for each member. A send goes through all of them and puts the message into
//! the outbox of each, which has the bound, the charge and the wake (`flatpath::Outbox`); none of
//! that waits.
//!
//! | may run beside       | `send`, `join`, `sockets` | drop of a `Member` |
//! |----------------------|---------------------------|--------------------|
//! | `send`, `join`       | yes, one after the other  | the same           |
//!
//! Invariants
//! - B1: messages have one order, the same for all members: a send holds the table until it has
//!   been to each. A member gets every message that is sent while it is one, or the rule for slow
//!   ones ([`Slow`]) is applied to it.
//! - B2: a socket that is closed is no member any more after the next send, and one whose `Member`
//!   is dropped at once. So no handler needs to do anything in `closed`.
//! - B3: no code of a program runs under the lock: messages are dropped after it, and sockets have
//!   none.
//!
//! Cost of a send: a fifth of a microsecond for each member, on the thread that sends, while other
//! sends and joins wait. The bytes of a message are shared, and charged once, but for those of
//! sockets that compress: each compresses for itself.

use std::fmt;
use std::sync::Arc;

use flatpath::lock::Lock;

use crate::close::code;
use crate::message::Message;
use crate::socket::{SendError, Socket};

/// What is told a client that is closed for its slowness.
const TOO_SLOW: &str = "you do not keep up";

/// What happens to a socket that has no room for a message: as much waits for its client as may
/// ([`Limits::queued_bytes_max`](crate::Limits::queued_bytes_max)), or memory is short.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Slow {
    /// It is closed, after what waits for it, with 1013 ("try again later"). Its client knows that
    /// it has missed something, and may come back.
    #[default]
    Close,
    /// It misses the message, and does not learn of that: for messages of which the latest counts.
    Skip,
}

/// Sends messages to any number of sockets. Clones send to the same ones.
///
/// ```
/// use flatpath_http::{Request, Router};
/// use flatpath_websocket::{Broadcast, Handler, Member, Message, Socket, WebSocket};
///
/// /// One client of a chat; it is a member for as long as this is there.
/// struct Client {
///     all: Broadcast,
///     member: Option<Member>,
/// }
///
/// impl Handler for Client {
///     fn opened(&mut self, socket: &Socket) {
///         self.member = Some(self.all.join(socket));
///     }
///
///     fn message(&mut self, _: &Socket, message: Message) {
///         self.all.send(message);
///     }
/// }
///
/// let (all, sockets) = (Broadcast::new(), WebSocket::inline());
/// let join = move |request: Request| {
///     sockets.accept(&request, Client { all: all.clone(), member: None })
/// };
/// let router: Router = Router::new().get("/chat", join);
/// # let _ = router;
/// ```
#[derive(Clone, Default)]
pub struct Broadcast(Arc<Shared>);

#[derive(Default)]
struct Shared {
    table: Lock<Table>,
    slow: Slow,
}

#[derive(Default)]
struct Table {
    places: Vec<Place>,
    free: Vec<usize>,
}

struct Place {
    socket: Option<Socket>,
    /// How often the place was left.
    generation: u64,
}

impl Table {
    fn leave(&mut self, index: usize) -> Option<Socket> {
        let place = &mut self.places[index];
        let socket = place.socket.take()?;
        place.generation += 1;
        self.free.push(index);
        Some(socket)
    }
}

impl Broadcast {
    /// A broadcast without members, which closes slow ones.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A broadcast without members, with this rule for slow ones.
    #[must_use]
    pub fn with_slow(slow: Slow) -> Self {
        Self(Arc::new(Shared {
            table: Lock::default(),
            slow,
        }))
    }

    /// Makes a socket a member, for as long as the value is kept and the socket is open: it gets
    /// all messages that are sent from now on. A socket that joins twice gets each twice.
    pub fn join(&self, socket: &Socket) -> Member {
        let mut table = self.0.table.lock();
        let index = table.free.pop().unwrap_or_else(|| {
            table.places.push(Place {
                socket: None,
                generation: 0,
            });
            table.places.len() - 1
        });
        let place = &mut table.places[index];
        place.socket = Some(socket.clone());
        Member {
            generation: place.generation,
            broadcast: self.clone(),
            index,
        }
    }

    /// Sends a message to all members; how many have taken it. Does not wait for a client, so it
    /// may be called on any thread.
    pub fn send(&self, message: impl Into<Message>) -> usize {
        let message = message.into();
        let (mut taken, mut closed) = (0, Vec::new());
        let mut table = self.0.table.lock();
        for index in 0..table.places.len() {
            let Some(socket) = &table.places[index].socket else {
                continue;
            };
            match socket.try_send(message.clone()) {
                Ok(()) => {
                    taken += 1;
                    continue;
                }
                Err(SendError::Full(_)) if self.0.slow == Slow::Skip => continue,
                Err(SendError::Full(_)) => socket.close(code::TRY_AGAIN_LATER, TOO_SLOW),
                Err(SendError::Closed(_)) => {}
            }
            closed.extend(table.leave(index));
        }
        drop(table);
        drop((closed, message));
        taken
    }

    /// How many sockets are members; some may have closed since the last send.
    #[must_use]
    pub fn sockets(&self) -> usize {
        let table = self.0.table.lock();
        table.places.len() - table.free.len()
    }
}

impl fmt::Debug for Broadcast {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut fields = formatter.debug_struct("Broadcast");
        fields.field("sockets", &self.sockets());
        fields.field("slow", &self.0.slow);
        fields.finish()
    }
}

/// A socket's membership of a [`Broadcast`]: it ends when this is dropped. Keep it in the handler
/// of the socket, with which it goes.
#[must_use = "dropped, the socket is no member any more"]
pub struct Member {
    broadcast: Broadcast,
    index: usize,
    generation: u64,
}

impl Drop for Member {
    fn drop(&mut self) {
        let mut table = self.broadcast.0.table.lock();
        // The place may be another's by now.
        let is_ours = table.places[self.index].generation == self.generation;
        let socket = is_ours.then(|| table.leave(self.index));
        drop(table);
        drop(socket);
    }
}

impl fmt::Debug for Member {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Member").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::close::Close;
    use crate::codec::Codec;

    fn socket(queued_bytes_max: usize) -> Socket {
        Socket::new(queued_bytes_max, None, Codec::default())
    }

    #[test]
    fn members_get_messages_until_they_leave() {
        let all = Broadcast::new();
        let (one, other) = (socket(1000), socket(1000));
        let first = all.join(&one);
        assert_eq!(all.send("a"), 1);
        let second = all.join(&other);
        assert_eq!(all.send("bc"), 2);
        drop(first);
        assert_eq!((all.send("d"), all.sockets()), (1, 1));
        // A head of two bytes for each.
        assert_eq!((one.queued_bytes(), other.queued_bytes()), (7, 7));
        drop(second);
        assert_eq!((all.send("e"), all.sockets()), (0, 0));
    }

    #[test]
    fn a_closed_socket_is_no_member_and_its_place_is_not_given_up_twice() {
        let all = Broadcast::new();
        let (gone, new) = (socket(1000), socket(1000));
        let old = all.join(&gone);
        gone.end(Close::new(code::NORMAL, ""));
        assert_eq!((all.send("a"), all.sockets()), (0, 0));
        let member = all.join(&new);
        drop(old);
        assert_eq!((all.send("b"), all.sockets()), (1, 1));
        drop(member);
        assert_eq!(all.sockets(), 0);
    }

    #[test]
    fn a_slow_socket_is_closed_or_misses_messages() {
        let all = Broadcast::new();
        let slow = socket(1);
        let member = all.join(&slow);
        assert_eq!((all.send("a"), all.send("b")), (1, 0));
        assert!(slow.is_closed());
        assert_eq!(all.sockets(), 0);
        drop(member);

        let all = Broadcast::with_slow(Slow::Skip);
        let slow = socket(1);
        let _member = all.join(&slow);
        assert_eq!((all.send("a"), all.send("b")), (1, 0));
        assert!(!slow.is_closed());
        assert_eq!(all.sockets(), 1);
    }
}
