//! A connection that this server opens, until it stands.
//!
//! | what            | until the connect is over | afterwards, if that succeeded |
//! |-----------------|---------------------------|-------------------------------|
//! | writing         | `Connecting`              | `Idle`                        |
//! | reading         | `Stalled`, for a step     | `Open`                        |
//! | its deadline    | that of the connect       | that of its phase             |
//!
//! So it neither receives nor sends, nor rests, and its protocol is not called. The deadline of the
//! connect lies where a send's clock is, as there is no send; once it has passed it is `u64::MAX`.
//!
//! One with TLS begins with a protocol of the engine, which makes the handshake, and has its own
//! protocol and session aside ([`Securing`]) until that is complete, or the connection gone.

use flatpath_driver::Socket;
use flatpath_structures::slots::Key;

use crate::admission::addresses::Cells;
use crate::memory::pages::PageKind;
use crate::protocol::connect::ConnectError;
use crate::protocol::phase::{Phase, Stall};

use super::Connection;
use super::state::{Marks, Reading, Securing, Writing};

impl Connection {
    /// One that is to be opened, without a socket, with a session of the successor with this
    /// number. The connect is over at `ends_ns`. It counts for no address.
    pub(crate) fn to_open(
        listener: u16,
        session: (u16, Key),
        (now_ns, ends_ns): (u64, u64),
    ) -> Connection {
        let socket = Socket::unopened();
        let mut connection = Connection::new(socket, listener, session, PageKind::COMMON, now_ns);
        connection.marks.set(Marks::OPENED, true);
        connection.marks.set(Marks::OPENING, true);
        connection.writing = Writing::Connecting;
        connection.clocks.send_ns = ends_ns;
        connection.reading = Reading::Stalled(Stall::Step);
        connection.phase = Phase::Wait;
        connection.holding.cells = Cells::NONE;
        connection
    }

    /// Notes that the connect is outstanding on this socket; its number.
    pub(crate) fn begin_connect(&mut self, socket: Socket) -> u8 {
        self.socket = socket;
        self.send_operation = self.send_operation.wrapping_add(1);
        self.send_operation
    }

    /// The connect is over, and has succeeded; when its time would have been over. True: the
    /// connection stands, without TLS.
    pub(crate) fn connect_succeeded(&mut self) -> (u64, bool) {
        self.take_stall();
        let ends_ns = std::mem::take(&mut self.clocks.send_ns);
        let is_plain = self
            .rare
            .as_ref()
            .is_none_or(|rare| rare.securing.is_none());
        (ends_ns, is_plain)
    }

    /// It stands: its protocol is called from now on.
    pub(crate) fn stands(&mut self, now_ns: u64) {
        self.marks.set(Marks::OPENING, false);
        self.start_phase(Phase::Wait, now_ns);
    }

    /// It never will: its protocol has been told.
    pub(crate) fn never_stands(&mut self) {
        self.marks.set(Marks::OPENING, false);
    }

    /// Its own protocol and session, which are called once its TLS stands.
    pub(crate) fn secures(&mut self, next: (u16, Key)) {
        let failed = None;
        self.rare().securing = Some(Box::new(Securing { next, failed }));
    }

    /// Its TLS could not be agreed on.
    #[cfg(feature = "tls")]
    pub(crate) fn securing_failed(&mut self, error: ConnectError) {
        if let Some(securing) = self.rare().securing.as_mut() {
            securing.failed = Some(error);
        }
    }

    /// The handshake is over, either way: whose connection it is from now on, and what has failed.
    pub(crate) fn end_securing(&mut self) -> Option<((u16, Key), Option<ConnectError>)> {
        let securing = self.rare.as_mut()?.securing.take()?;
        Some((securing.next, securing.failed))
    }

    /// Whether a deadline has passed.
    pub(crate) fn has_expired(&self) -> bool {
        self.marks.has(Marks::EXPIRED)
    }

    /// It was opened by this server, or is to be.
    pub(crate) fn is_opened(&self) -> bool {
        self.marks.has(Marks::OPENED)
    }

    /// Its protocol has not been called: it does not stand yet.
    pub(crate) fn is_opening(&self) -> bool {
        self.marks.has(Marks::OPENING)
    }

    /// What is outstanding is its connect, no send.
    pub(crate) fn is_connecting(&self) -> bool {
        self.writing == Writing::Connecting
    }

    /// The socket of one that is being opened, if it has one.
    pub(crate) fn opened_socket(&self) -> Option<Socket> {
        Some(self.socket).filter(|socket| *socket != Socket::unopened())
    }

    /// The number of the connect that is to be cancelled, if one is under way and was not.
    pub(crate) fn cancel_connect(&mut self) -> Option<u8> {
        let is_waiting = self.writing == Writing::Connecting && self.clocks.send_ns < u64::MAX;
        is_waiting.then(|| {
            self.clocks.send_ns = u64::MAX;
            self.send_operation
        })
    }
}

#[cfg(test)]
mod tests {
    use crate::connection::{Closing, Overdue};
    use crate::limits::Limits;

    use super::*;

    fn to_open() -> Connection {
        let session = Key {
            index: 0,
            generation: 1,
        };
        Connection::to_open(0, (1, session), (10, 50))
    }

    #[test]
    fn while_it_is_opened_it_receives_and_sends_nothing_and_does_not_rest() {
        let mut connection = to_open();
        assert_eq!(connection.opened_socket(), None);
        let socket = Socket::simulated(7);
        let number = connection.begin_connect(socket);
        assert_eq!(connection.send_operation(), number);
        assert_eq!(connection.opened_socket(), Some(socket));
        assert!(connection.is_opening() && connection.is_opened());
        assert!(connection.is_sending() && !connection.may_send());
        assert!(!connection.wants_input() && connection.rests().is_none());
        assert_eq!(connection.cancel_send(), None, "it is no send");
        connection.send_ended();
        assert_eq!(connection.connect_succeeded(), (50, true));
        connection.stands(20);
        assert!(!connection.is_opening() && connection.is_opened());
        assert!(connection.may_send() && connection.wants_input());
        assert!(connection.rests().is_none(), "an answer is awaited");
        assert_eq!(
            (connection.phase(), connection.phase_ns()),
            (Phase::Wait, 20)
        );
    }

    #[test]
    fn its_deadline_is_that_of_the_connect_until_it_is_cancelled_once() {
        let limits = Limits::default();
        let mut connection = to_open();
        let number = connection.begin_connect(Socket::simulated(7));
        assert_eq!(connection.deadline_ns(&limits), 50);
        assert_eq!(connection.overdue(&limits, 49), None);
        assert_eq!(connection.overdue(&limits, 50), Some(Overdue::Connect));
        assert_eq!(connection.cancel_connect(), Some(number));
        assert_eq!(connection.cancel_connect(), None);
        assert_eq!(connection.deadline_ns(&limits), u64::MAX);
    }

    #[test]
    fn a_send_of_one_that_stands_is_no_connect() {
        let mut connection = to_open();
        connection.begin_connect(Socket::simulated(7));
        connection.send_ended();
        connection.connect_succeeded();
        connection.stands(20);
        connection.begin_send(30);
        assert_eq!(connection.cancel_connect(), None);
        connection.close(Closing::Abort);
        assert!(connection.cancel_send().is_some());
    }
}
