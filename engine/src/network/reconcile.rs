//! Carries out what the calls to a protocol wished: output, stalls, receive, end, deadline.
//!
//! Every event of a connection ends here, once (N1). The order matters: output first, because an
//! empty queue ends stalls; receiving next, because it decides whether a socket can be closed; the
//! deadline last, because everything before may move it.

use flatpath_driver::{Driver, Operation, OperationMode};

use crate::connection::{Closing, NextReceive, Receive};
use crate::network::waits::{Wait, wait_for};
use crate::protocol;
use crate::protocol::hand_over::{Becomes, HandOver};
use crate::protocol::phase::{EndedBy, Phase, Stall};
use crate::tls::Established;

use super::thread::Event;
use super::user_data::{KIND_RECEIVE, KIND_SEND, user_data};

/// What becomes of a connection after an event.
#[must_use = "a connection that is gone leaves the tables"]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Stays,
    /// Its socket is closed and nothing of it is outstanding.
    Gone,
    /// It wants to be spliced to another one.
    Splices,
}

/// Calls back into the protocol within one event; what is left waits for the next turn.
const ROUNDS_MAX: u32 = 16;

impl<D: Driver> Event<'_, D> {
    /// Most events have a reply to send and are done: the rest is asked for and done elsewhere.
    pub(super) fn reconcile(&mut self) -> Fate {
        self.reconcile_output();
        if self.connection.has_more() && self.reconcile_more() == Fate::Splices {
            return Fate::Splices;
        }
        if self.has_new_holdings() {
            self.charge_buffers();
        }
        if !self.connection.receives_as_wanted() {
            self.reconcile_receive();
        }
        if self.connection.is_closing() && self.reconcile_end() == Fate::Gone {
            return Fate::Gone;
        }
        self.reconcile_hurry();
        self.reconcile_deadline();
        if let Some(phase) = self.connection.may_rest_anew() {
            self.thread.common.admission.rests(self.key.index, phase);
        }
        Fate::Stays
    }

    /// What few connections have: a wish to become another, users that hold fragments, pages that
    /// wait, a body that may come in pipes.
    fn reconcile_more(&mut self) -> Fate {
        self.connection.take_back();
        if self.connection.is_becoming() && !self.becomes() {
            self.thread.waits.hurry();
            return Fate::Splices;
        }
        self.check_quota();
        self.charge_pages();
        self.receive_piped();
        Fate::Stays
    }

    /// What the connection is to become beside what it is. False: spliced to another one.
    #[cold]
    fn becomes(&mut self) -> bool {
        match self.connection.take_becoming() {
            Some(Becomes::Successors(wish)) => {
                self.hand_over(wish);
                // Wishes from now on are for the next event: two protocols may hand over to each
                // other without end.
                self.wait(Wait::Again);
            }
            Some(Becomes::StartsTls) => {
                self.begin_handshake();
                self.wait(Wait::Again);
            }
            Some(Becomes::Secured(established)) => {
                self.begin_secured(*established);
                self.wait(Wait::Again);
            }
            Some(Becomes::ReceiveOnly) => {
                self.end_output();
                self.reconcile_output();
            }
            // Its client's address may have to give up another connection, so it happens after this
            // event. Till then it takes no input.
            Some(Becomes::Introduced) if !self.connection.is_closing() => {
                self.connection.becomes(Becomes::Introduced);
                self.wait(Wait::Introduction);
            }
            Some(splices @ Becomes::Spliced(_)) => {
                self.connection.becomes(splices);
                return false;
            }
            None | Some(Becomes::Introduced) => {}
        }
        true
    }

    /// FIN, while input continues.
    fn end_output(&mut self) {
        let connection = &mut *self.connection;
        if let Some(secured) = connection.secured() {
            // The records say it: close_notify.
            return secured.end_output();
        }
        if !connection.is_closing() && connection.finish() {
            self.thread.driver.shutdown_write(connection.socket());
        }
    }

    /// Another protocol takes the connection over (`protocol/successor.rs`).
    fn hand_over(&mut self, wish: HandOver) {
        if self.connection.is_closing() {
            return;
        }
        if self.connection.jobs_out() > 0 {
            log::error!("a job was dispatched after its connection was handed over");
            return self.connection.close(Closing::Abort);
        }
        let Some((successor, session)) = self.thread.successors.open(wish) else {
            return self.connection.close(Closing::Abort);
        };
        self.end_session();
        let now_ns = self.thread.now_ns();
        self.connection.change_protocol(successor, session, now_ns);
        self.begin_protocol();
    }

    /// The protocol that has taken the connection over is called for the first time.
    fn begin_protocol(&mut self) {
        self.report(protocol::Event::Connected);
        self.comes_late();
        self.read_left();
    }

    /// The protocol has agreed with its client to begin TLS. Input that is there already was sent
    /// in the clear, by any machine on the way: it must not count as the client's
    /// (CVE-2011-0411), and it is no handshake either, which waits for the protocol's reply.
    fn begin_handshake(&mut self) {
        if self.connection.is_closing() {
            return;
        }
        if !self.connection.inbox().is_empty() {
            self.counters().tls_none.add(1);
            log::debug!("TLS: something was sent in the clear where a handshake was to begin");
            return self.connection.close(Closing::Abort);
        }
        let number = self.listener.start_tls();
        if number == 0 || !self.change_to_own(number) {
            return self.connection.close(Closing::Abort);
        }
        self.begin_protocol();
    }

    /// A handshake is complete: the connection becomes one of its listener's protocol.
    #[cfg_attr(
        not(feature = "tls"),
        expect(
            unreachable_code,
            reason = "there is no value of the types of TLS then"
        )
    )]
    fn begin_secured(&mut self, established: Established) {
        if self.connection.is_closing() {
            return;
        }
        let (records, came, terms) = established.take();
        let left = self.connection.inbox_mut().take_remainder();
        let is_opened = self.change_to_opened();
        if !is_opened && !self.change_to_listeners() {
            return self.connection.close(Closing::Abort);
        }
        self.connection.secure(records, terms);
        if !self.keep_first(came, left) {
            return self.connection.close(Closing::Abort);
        }
        if self.connection.inbox().has_remainder() {
            self.connection.note_received();
        }
        match is_opened {
            true => self.stands(),
            false => self.begin_line(),
        }
        self.report(protocol::Event::Secured);
        self.begin_protocol();
    }

    /// Gives a protocol that has taken a connection over what the one before it has left.
    pub(super) fn read_left(&mut self) {
        let connection = &mut *self.connection;
        if connection.takes_input() && !connection.is_becoming() {
            // As if the input had waited for the reply before it.
            connection.stall(Stall::Step, self.thread.common.turn.now_ns);
            self.resume_in_turn();
        }
    }

    /// Sends, and lets the protocol continue where output has run low, for as long as that helps.
    pub(super) fn reconcile_output(&mut self) {
        for _ in 0..ROUNDS_MAX {
            if !self.connection.is_indirect() {
                self.start_send();
            } else if self.connection.is_becoming() {
                // Its peer's words go first, or it is another protocol's turn.
                return;
            } else {
                self.start_sealed_send();
            }
            if !self.connection.has_wishes() || !self.carry_out_wishes() {
                return;
            }
        }
        self.wait(Wait::Again);
    }

    /// True: look again.
    fn carry_out_wishes(&mut self) -> bool {
        if self.connection.is_closing() {
            self.connection.take_stall();
        }
        if !self.connection.may_take_input() {
            self.clear_inbox();
        }
        // Resume a blocked writer before offering more input, so replies stay in order.
        if self.connection.notifies_output_low() && self.report_output_low() {
            return true;
        }
        match self.connection.stalled() {
            None => false,
            Some(_) if !self.connection.may_take_input() => false,
            Some(stall) => self.try_stalled(stall),
        }
    }

    /// Waits for what the input waits for, or gives it again if that is over. True: it was.
    fn try_stalled(&mut self, stall: Stall) -> bool {
        match stall.ended_by() {
            EndedBy::Room(room) => {
                self.wait(wait_for(room));
                false
            }
            EndedBy::Share => {
                let resumes = self.may_resume();
                if resumes {
                    self.resume();
                } else {
                    self.wait(Wait::Share);
                }
                resumes
            }
            EndedBy::Output if self.connection.output_is_low() => self.resume_in_turn(),
            EndedBy::Turn => {
                self.await_turn();
                false
            }
            EndedBy::Output | EndedBy::Job | EndedBy::Wake => false,
        }
    }

    fn report_output_low(&mut self) -> bool {
        let connection = &mut *self.connection;
        // While memory runs short more is made only when less is queued: what is on its way out to
        // slow readers would take all of it otherwise.
        let low_bytes = match connection.stalled() {
            // It holds its share, or its address or listener does: no more than it must.
            Some(Stall::Share) => 0,
            _ => {
                let fair_bytes = self.thread.common.pools().fair_bytes();
                connection.output_bytes_low().min(fair_bytes)
            }
        };
        let due = connection.closing() != Closing::Abort
            && connection.output().queued_bytes() <= low_bytes;
        if due {
            connection.output_low_reported();
            self.report(protocol::Event::OutputLow);
        }
        due
    }

    /// A connection whose users hold too much receives nothing until they have given back half.
    pub(super) fn check_quota(&mut self) {
        if self.connection.heed_quota(self.listener.pages_max()) {
            self.counters().pages_stalls.add(1);
        }
    }

    /// Arms a receive, or cancels the one that is out if it is not to go on as it does.
    fn reconcile_receive(&mut self) {
        let wanted = self.connection.wants_input();
        if self.may_arm(wanted) {
            self.arm_receive();
        }
    }

    /// Cancels the receive if the connection is not to receive as it does. True: one is to be
    /// armed.
    pub(super) fn may_arm(&mut self, wanted: bool) -> bool {
        if self.connection.starves_in_vain(wanted) {
            self.thread.end_starving(self.connection, self.key.index);
        }
        match self.connection.next_receive(wanted) {
            NextReceive::Stays => {}
            NextReceive::Arm => return true,
            NextReceive::AwaitsTurn => self.wait(Wait::BulkReceive),
            NextReceive::Cancel => self.cancel_receive(),
        }
        false
    }

    pub(super) fn arm_receive(&mut self) {
        let is_multishot = self.connection.may_receive_many();
        let user_data = self.begin_receive(match is_multishot {
            true => Receive::Many,
            false => Receive::Once,
        });
        let mode = match is_multishot {
            true => OperationMode::Multishot,
            false => OperationMode::Single,
        };
        let connection = &*self.connection;
        let (socket, pages) = (connection.socket(), connection.pages());
        let driver = &mut self.thread.driver;
        if pages.shares() {
            driver.receive_sharing(socket, user_data, pages.region_id());
        } else {
            driver.receive(socket, user_data, mode, pages.region_id());
        }
    }

    /// Notes that a receive is outstanding; its number.
    pub(super) fn begin_receive(&mut self, receive: Receive) -> u64 {
        let operation = self.connection.begin_receive(receive);
        user_data(KIND_RECEIVE, operation, self.key)
    }

    pub(super) fn cancel_receive(&mut self) {
        let connection = &mut *self.connection;
        let user_data = user_data(KIND_RECEIVE, connection.cancel_receive(), self.key);
        let operation = Operation::Receive(connection.socket());
        self.thread.driver.cancel(operation, user_data);
    }

    /// Ends the connection as far as its state allows.
    pub(super) fn reconcile_end(&mut self) -> Fate {
        let connection = &mut *self.connection;
        let received_off = !connection.is_receiving();
        match connection.closing() {
            Closing::No | Closing::Input => {}
            Closing::AfterOutput => {
                if connection.is_sent() && received_off {
                    self.thread.driver.close(connection.socket());
                    return Fate::Gone;
                }
            }
            Closing::Lingering => return self.linger(),
            Closing::Abort => {
                if let Some(number) = connection.cancel_send() {
                    let user_data = user_data(KIND_SEND, number, self.key);
                    let operation = Operation::Send(connection.socket());
                    self.thread.driver.cancel(operation, user_data);
                }
                self.cancel_connect();
                let connection = &mut *self.connection;
                if !connection.is_sending() && received_off {
                    self.thread.driver.abort(connection.socket());
                    return Fate::Gone;
                }
            }
        }
        Fate::Stays
    }

    /// FIN once all is sent, then reading on until the peer closes.
    fn linger(&mut self) -> Fate {
        let connection = &mut *self.connection;
        if !connection.is_sent() {
            return Fate::Stays;
        }
        if connection.has_ended() {
            if !connection.is_receiving() {
                self.thread.driver.close(connection.socket());
                return Fate::Gone;
            }
        } else if connection.drop_input(self.thread.common.turn.now_ns) {
            if connection.finish() {
                self.thread.driver.shutdown_write(connection.socket());
            }
            // From now on its place is another's that needs it.
            self.thread
                .common
                .admission
                .rests(self.key.index, Phase::Idle);
            self.reconcile_receive();
        }
        Fate::Stays
    }

    /// Puts the connection's earliest deadline in the wheel. A later one than the wheel holds is
    /// left: the wheel fires early and the deadline is armed anew, which costs one visit per
    /// time-out instead of two list moves per request.
    pub(super) fn reconcile_deadline(&mut self) {
        let (connection, now_ns) = (&mut *self.connection, self.thread.now_ns());
        if connection.has_new_deadline(now_ns, self.thread.common.shortest_ns()) {
            self.arm_deadline();
        }
    }

    /// Arms the earliest deadline, unless the wheel fires before it.
    pub(super) fn arm_deadline(&mut self) {
        if let Some(deadline_ns) = self.connection.arm(self.listener.limits()) {
            self.thread.timers.arm(self.key.index, deadline_ns);
        }
    }
}
