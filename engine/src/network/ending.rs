//! How connections end: deadlines, drain, and the removal itself.

use flatpath_driver::Driver;
use flatpath_structures::slots::Key;

use crate::connection::{Closing, Overdue};
use crate::limits::TOLD_PER_TURN_MAX;
use crate::protocol;
use crate::protocol::phase::Phase;
use crate::protocol::turn::end_ns;
use crate::server::lifecycle::ServerState;

use super::listening::shortest_of;
use super::thread::{Event, Network};
use super::timers::Chore;

impl<D: Driver> Event<'_, D> {
    fn fire(&mut self, overdue: Overdue) {
        if overdue == Overdue::Connect {
            return self.cancel_connect();
        }
        let peer_reads =
            matches!(overdue, Overdue::Send | Overdue::Look) && self.peer_reads(overdue);
        if peer_reads || overdue == Overdue::Look {
            return;
        }
        if overdue == Overdue::Phase(Phase::Idle) && !self.connection.is_sent() {
            // The client still reads the reply before: it is idle once it has all of it.
            return self.connection.touch(self.thread.now_ns());
        }
        if let Overdue::Phase(phase) = overdue {
            let is_answered = phase == Phase::Head && self.connection.was_answered_in_phase();
            let since_ns = self.connection.phase_ns();
            self.report(protocol::Event::Expired(phase));
            if self.connection.has_restarted(phase, since_ns) {
                return;
            }
            if is_answered && self.listener.hints_now() {
                let name = self.protocol().options().name;
                log::warn!(
                    "{name}: the deadline for a message has closed a connection that was answered: \
                     does the protocol call restart_phase(Phase::Idle) after a message? \
                     (reported once)"
                );
            }
        }
        if self.connection.expire() {
            self.count_expired(overdue);
        }
        match overdue {
            // The peer had its time to read the answer; what it still sends is its own affair.
            Overdue::Send | Overdue::Look | Overdue::Linger | Overdue::Connect => {
                self.connection.close(Closing::Abort);
            }
            Overdue::Stall => self.refuse(),
            // A protocol that forgets to close would be asked again and again.
            Overdue::Phase(_) => self.connection.close(Closing::AfterOutput),
        }
    }

    /// A connection's protocol begins: if the server drains, it is notified when the client's first
    /// bytes were given.
    pub(super) fn comes_late(&mut self) {
        let drains = self.thread.common.server_state() == ServerState::Draining;
        if drains && self.connection.comes_late() {
            self.thread.drain.comes_late(self.key);
        }
    }

    fn count_expired(&self, overdue: Overdue) {
        let counters = self.counters();
        let count = match overdue {
            Overdue::Send | Overdue::Look => &counters.expired_send,
            Overdue::Stall => &counters.expired_stall,
            Overdue::Linger => &counters.expired_linger,
            // Counted with what its completion says.
            Overdue::Connect => return,
            // A client that has connected and said nothing has begun no head.
            Overdue::Phase(Phase::Head) if self.connection.is_silent_before_head() => {
                &counters.expired_idle
            }
            Overdue::Phase(Phase::Idle) => &counters.expired_idle,
            Overdue::Phase(Phase::Head) => &counters.expired_head,
            Overdue::Phase(Phase::Body) => &counters.expired_body,
            Overdue::Phase(Phase::Push) => &counters.expired_push,
            Overdue::Phase(Phase::Wait | Phase::Work | Phase::Timed) => &counters.expired_wait,
            Overdue::Phase(Phase::Spliced) => &counters.expired_spliced,
        };
        count.add(1);
    }

    /// Whether a deadline for sending begins anew. None is spared while files are short of
    /// descriptors: then it may be one that means to hold them.
    fn peer_reads(&mut self, overdue: Overdue) -> bool {
        let common = &self.thread.common;
        let may_spare = common.descriptors().is_roomy();
        let delivery = self.thread.driver.delivery(self.connection.socket());
        let now_ns = common.turn.now_ns;
        self.connection
            .peer_reads(overdue, delivery, may_spare, now_ns)
    }
}

impl<D: Driver> Network<D> {
    /// Fires every deadline that has passed; arms the others anew.
    pub(super) fn fire_deadlines(&mut self) {
        let now_ns = self.thread.common.turn.now_ns;
        let expired = self.thread.timers.take_expired(now_ns);
        for &index in &expired {
            if !self.thread.timers.confirm(index) {
                continue;
            }
            let Some(key) = self.connections.key_at(index) else {
                continue;
            };
            self.on(key, |event| {
                event.connection.disarm();
                let limits = event.listener.limits();
                if let Some(overdue) = event.connection.overdue(limits, now_ns) {
                    event.fire(overdue);
                }
            });
        }
        self.thread.timers.recycle(expired, now_ns);
    }

    /// When the state of the server ends by itself.
    fn state_ends_ns(&self) -> Option<u64> {
        let limits = self.thread.common.limits();
        let began_ns = self.thread.drain.began_ns();
        match self.thread.common.server_state() {
            ServerState::Leaving => Some(end_ns(began_ns, limits.drain_delay)),
            ServerState::Draining => Some(end_ns(began_ns, limits.drain_timeout)),
            ServerState::Running | ServerState::Forced => None,
        }
    }

    /// Follows the server from running to leaving to draining to forced.
    pub(super) fn follow_state(&mut self) {
        self.advance_state();
        let ends_ns = self.state_ends_ns();
        self.thread.timers.set(Chore::State, ends_ns);
    }

    fn advance_state(&mut self) {
        let (now_ns, ends_ns) = (self.thread.now_ns(), self.state_ends_ns());
        let common = &mut self.thread.common;
        let before = common.server_state();
        let mut server_state = common.state_of_server();
        if ends_ns.is_some_and(|ends_ns| now_ns >= ends_ns) {
            server_state = server_state.max(match before {
                ServerState::Leaving => ServerState::Draining,
                _ => ServerState::Forced,
            });
        }
        if server_state <= before {
            return;
        }
        common.follow(server_state);
        self.thread.drain.state_began(now_ns);
        if server_state == ServerState::Leaving {
            return;
        }
        if before < ServerState::Draining {
            common.advance_server();
            self.shorten_idle_timeouts();
            self.thread
                .common
                .bound_shortest(shortest_of(&self.listeners));
            // The wheel may hold the times of before.
            self.thread.common.admission.begin_relimit();
            self.stop_listening();
        }
        let keys = self.connections.iter().map(|(key, _)| key);
        if server_state < ServerState::Forced {
            self.thread.drain.begin(keys);
            return;
        }
        self.thread.drain.force();
        let keys: Vec<Key> = keys.collect();
        if !keys.is_empty() {
            log::warn!("drain forced: {} connections cut off", keys.len());
        }
        for key in keys {
            self.on(key, |event| event.connection.close(Closing::Abort));
        }
    }

    /// Notifies the protocols of some of the connections that were open when the drain began. If
    /// each of them says goodbye, the buffers of these are back before the next ones take some.
    pub(super) fn notify_drain(&mut self) {
        for _ in 0..TOLD_PER_TURN_MAX {
            let Some(key) = self.thread.drain.next_open() else {
                break;
            };
            if self.is_fresh(key) {
                self.comes_late(key);
                continue;
            }
            self.on(key, |event| {
                event.report(protocol::Event::Draining);
            });
        }
    }

    /// See [`Event::comes_late`].
    pub(super) fn comes_late(&mut self, key: Key) {
        if let Some(mut event) = self.event(key) {
            event.comes_late();
        }
    }

    /// Whether a client has just connected and its first bytes may be on their way, or its protocol
    /// is notified of the drain late anyway, or a connection does not stand yet.
    fn is_fresh(&self, key: Key) -> bool {
        let connection = self.connections.get(key);
        connection.is_some_and(|one| {
            let is_silent = !one.has_received();
            one.is_late()
                || one.is_opening()
                || is_silent && self.thread.now_ns() < self.late_ends_ns(one.phase_ns())
        })
    }

    /// Notifies the protocols of connections that came just before the drain or during it: when
    /// what the client sent first has been given, so that it is served, or when the client has
    /// been silent for as long as one of an idle connection may be.
    pub(super) fn notify_late(&mut self) {
        let now_ns = self.thread.now_ns();
        let mut late = self.thread.drain.take_late();
        late.retain(|&key| {
            let Some(connection) = self.connections.get(key) else {
                return false;
            };
            if connection.is_opening() {
                return true;
            }
            let is_due = match connection.has_received() {
                true => connection.has_given_all(),
                false => now_ns >= self.late_ends_ns(connection.phase_ns()),
            };
            if is_due {
                self.on(key, |event| {
                    event.connection.is_told();
                    event.report(protocol::Event::Draining);
                });
            }
            !is_due
        });
        // Some may have begun another protocol meanwhile.
        self.thread.drain.put_late(late);
        let due_ns = self.late_due_ns();
        self.thread.timers.set(Chore::LateNotices, due_ns);
    }

    fn late_ends_ns(&self, since_ns: u64) -> u64 {
        end_ns(since_ns, self.thread.common.limits().drain_idle_timeout)
    }

    /// When the first of them will have been silent for that long.
    fn late_due_ns(&self) -> Option<u64> {
        let late = self.thread.drain.late().iter();
        let open = late.filter_map(|key| self.connections.get(*key));
        let silent = open.filter(|one| !one.has_received() && !one.is_opening());
        silent.map(|one| self.late_ends_ns(one.phase_ns())).min()
    }
}
