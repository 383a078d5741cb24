//! What is next of a connection's input: the inbox says it (`inbox.rs`), once the connection takes
//! any.
//!
//! | the connection                                            | what is next               |
//! |-----------------------------------------------------------|----------------------------|
//! | takes no more input, and something waits                  | [`Next::Drop`]             |
//! | the same, and a reply waited for room, which is there     | an empty chunk             |
//! | is stalled, or is to become another                       | nothing                    |
//! | waits for the end of the turn, and something has come     | nothing                    |
//! | any other, where something may be given                   | what the inbox says        |
//! | holds nothing, and the stream has ended, not reported     | [`Next::End`]              |
//!
//! Invariant: a connection that ends, is stalled or is to become another gives its protocol
//! nothing, but for the reply that waited.
//!
//! Cost: the common case asks for none of this: [`Connection::takes_at_once`].

use super::Connection;
use super::inbox::{Chunk, Form, Inbox, Next, Reason};
use super::state::{Closing, Stream};

impl Connection {
    /// True when the protocol may be given input, now or when a stall is over.
    #[inline]
    pub(crate) fn may_take_input(&self) -> bool {
        self.closing == Closing::No
    }

    /// True when the protocol may be given input now.
    #[inline]
    pub(crate) fn takes_input(&self) -> bool {
        self.may_take_input() && self.stalled().is_none()
    }

    /// The common case: what arrives is given where it lies, if it is short.
    #[inline]
    pub(crate) fn takes_at_once(&self) -> bool {
        let is_next = self.inbox.holds_nothing() && !self.waits.awaits_turn();
        is_next && !self.is_indirect() && !self.is_bulk() && self.takes_input()
    }

    /// True when the protocol was given all that arrived.
    pub(crate) fn has_given_all(&self) -> bool {
        self.inbox.holds_nothing() && self.stalled().is_none() && !self.waits.awaits_turn()
    }

    /// Of what the protocol that begins is to be told nothing has come yet but what the one before
    /// it has left.
    pub(crate) fn begin_stream(&mut self) {
        if self.stream == Stream::Live && self.inbox.is_empty() {
            self.stream = Stream::Silent;
        }
    }

    #[inline]
    pub(crate) fn inbox(&self) -> &Inbox {
        &self.inbox
    }

    #[inline]
    pub(crate) fn inbox_mut(&mut self) -> &mut Inbox {
        &mut self.inbox
    }

    /// What the pages bring that come now.
    pub(crate) fn form(&self) -> Form {
        match self.is_secured() {
            true => Form::Records,
            false => Form::Plain,
        }
    }

    /// Common pages that it holds while it is stalled.
    pub(crate) fn pages_stalled(&self) -> usize {
        // What waits for the end of the turn is read soon, whatever there is room for.
        match self.stalled() {
            Some(_) => self.inbox.common_pages(),
            None => 0,
        }
    }

    /// What is to be done next about the input. See the module.
    pub(crate) fn next_input(&mut self, reason: Reason) -> Next {
        if !self.may_take_input() {
            let replies = matches!(reason, Reason::Again { for_room: true }) && !self.is_closing();
            return match self.inbox.is_empty() {
                false => Next::Drop,
                true if replies => Next::Chunk(Chunk::Empty),
                true => self.next_end(),
            };
        }
        let is_later = matches!(reason, Reason::Arrival(_)) && self.waits.awaits_turn();
        let waits = is_later || self.stalled().is_some() || self.is_becoming();
        match waits {
            true => self.next_end(),
            false => match self.inbox.next(reason) {
                Next::Nothing => self.next_end(),
                next => next,
            },
        }
    }

    /// The end of the stream, when all before it was given. Its receiver is known only when the
    /// connection is what it is to become.
    fn next_end(&mut self) -> Next {
        let is_due = self.end_is_due() && self.inbox.holds_nothing() && !self.is_becoming();
        if is_due && self.is_closing() {
            self.end_reported();
        }
        match is_due && !self.is_closing() && self.stalled().is_none() {
            true => Next::End,
            false => Next::Nothing,
        }
    }
}

#[cfg(test)]
mod tests {
    use flatpath_driver::simulation::{Faults, Simulation};
    use flatpath_driver::{Driver, DriverConfig, Filling, Piece, RegionConfig};

    use crate::memory::pools::Pools;
    use crate::network::waits::Wait;
    use crate::protocol::hand_over::Becomes;
    use crate::protocol::phase::Stall;

    use super::super::tests::connection;
    use super::*;

    #[test]
    fn input_is_taken_at_once_unless_something_is_before_it() {
        let before: [fn(&mut Connection); 4] = [
            Connection::begin_bulk,
            |connection| connection.waits.insert(Wait::BulkInput),
            |connection| connection.becomes(Becomes::ReceiveOnly),
            |connection| {
                connection.stall(Stall::Jobs, 1);
            },
        ];
        for (number, change) in before.into_iter().enumerate() {
            let mut connection = connection(0);
            assert!(connection.takes_at_once());
            change(&mut connection);
            assert!(!connection.takes_at_once(), "change {number}");
        }
    }

    /// What is next, in a word.
    fn next(connection: &mut Connection, reason: Reason) -> &'static str {
        match connection.next_input(reason) {
            Next::Nothing => "nothing",
            Next::Chunk(Chunk::Empty) => "empty",
            Next::Chunk(_) => "chunk",
            Next::Records(..) => "records",
            Next::Later => "later",
            Next::Drop => "drop",
            Next::End => "end",
        }
    }

    #[test]
    fn a_connection_is_asked_before_its_inbox() {
        type Change = fn(&mut Connection);
        let again = Reason::Again { for_room: true };
        // What happened, why one looks: what is next, without a remainder and with one.
        let rows: [(Change, Reason, &str, &str); 12] = [
            (|_| {}, Reason::Turn, "nothing", "nothing"),
            (|_| {}, again, "empty", "chunk"),
            (|it| it.end_came(), Reason::Turn, "end", "end"),
            (|it| it.end_came(), again, "empty", "chunk"),
            (|it| it.close(Closing::Input), again, "empty", "drop"),
            (
                |it| it.close(Closing::Input),
                Reason::Turn,
                "nothing",
                "drop",
            ),
            (|it| it.close(Closing::Abort), again, "nothing", "drop"),
            (
                |it| it.becomes(Becomes::ReceiveOnly),
                again,
                "nothing",
                "nothing",
            ),
            (
                |it| {
                    it.stall(Stall::Jobs, 1);
                    it.end_came();
                },
                again,
                "nothing",
                "nothing",
            ),
            (
                |it| {
                    it.becomes(Becomes::ReceiveOnly);
                    it.end_came();
                },
                Reason::Turn,
                "nothing",
                "nothing",
            ),
            (
                |it| {
                    it.waits.insert(Wait::Input);
                    it.end_came();
                },
                Reason::Arrival(1),
                "end",
                "end",
            ),
            (|it| it.waits.insert(Wait::Input), again, "empty", "chunk"),
        ];
        let pools = Pools::new(1 << 20, 1, 4);
        for (number, (change, reason, without, with)) in rows.into_iter().enumerate() {
            for (has_remainder, expected) in [(false, without), (true, with)] {
                let mut connection = connection(0);
                if has_remainder {
                    let mut buffer = pools.handle(0, 0).take(8).expect("a buffer");
                    buffer.append(b"left");
                    connection.inbox_mut().put_remainder(buffer);
                }
                change(&mut connection);
                let found = next(&mut connection, reason);
                assert_eq!(found, expected, "row {number}, {has_remainder}");
            }
        }
    }

    /// A page that no socket filled.
    fn page() -> Piece {
        let config = DriverConfig {
            regions: vec![RegionConfig {
                filling: Filling::Written,
                ..RegionConfig::default()
            }],
            ..DriverConfig::default()
        };
        let (mut driver, _world) = Simulation::new(1, &config, Faults::none());
        driver.take_page(1, 8).expect("all pages are free")
    }

    #[test]
    fn what_is_held_waits_for_the_turn_and_comes_before_the_end_of_the_stream() {
        let mut connection = connection(0);
        let inbox = connection.inbox_mut();
        inbox.put_back(Chunk::Page(page(), 3), Form::Plain);
        connection.end_came();
        assert!(!connection.takes_at_once(), "another is before it");
        assert!(connection.has_more() && !connection.has_given_all());
        connection.waits.insert(Wait::BulkInput);
        assert_eq!(next(&mut connection, Reason::Arrival(9)), "nothing");
        connection.waits.remove(Wait::BulkInput);
        connection.stall(Stall::Jobs, 1);
        assert_eq!(next(&mut connection, Reason::Turn), "nothing");
        assert_eq!(connection.pages_stalled(), 0, "it is a listener's own");
        connection.take_stall();
        assert_eq!(next(&mut connection, Reason::Arrival(4)), "later");
        assert_eq!(next(&mut connection, Reason::Arrival(5)), "chunk");
        assert_eq!(next(&mut connection, Reason::Arrival(0)), "end");
    }

    #[test]
    fn the_end_of_a_stream_is_not_said_to_one_that_is_over() {
        let mut connection = connection(0);
        connection.end_came();
        connection.close(Closing::Lingering);
        assert_eq!(next(&mut connection, Reason::Turn), "nothing");
        assert!(connection.end_is_reported(), "it is noted");
    }
}
