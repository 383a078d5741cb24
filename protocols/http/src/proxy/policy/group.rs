//! The servers of one upstream: which has a request, who waits, what is freed.
//!
//! Which servers may have a request, in this order:
//! 1. those that are no backup and are not out, with room;
//! 2. where all of these are out, the backups that are not, with room;
//! 3. where all of both are out, those that are no backup, as if they were well: a proxy that knows
//!    no server that is well knows less than its servers (never all are left out).
//!
//! Invariants
//! - UG1: a server has at most `in_flight_max` requests out.
//! - UG2: as long as one waits that could have a server, none that comes later has one: it joins
//!   the queue, and [`Group::next_grant`] serves that in its order.
//! - UG3: each grant is given back once, with what came of it ([`Group::done`]).
//!
//! Cost: O(servers) for a grant, O(1) for the rest.

use std::time::Duration;

use super::choice::{Balance, Candidate, Choice};
use super::health::{AfterFailure, Health, HealthTerms};
use super::retry::Budget;
use super::waiting::{Ticket, Waiting};

/// What a server is to its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ServerTerms {
    pub(crate) weight: u32,
    pub(crate) is_backup: bool,
    pub(crate) in_flight_max: u32,
}

#[derive(Debug)]
struct Server {
    terms: ServerTerms,
    in_flight: u32,
    health: Health,
}

/// What a request gets.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Grant {
    /// This server.
    Server(usize),
    /// A place in the queue.
    Wait(Ticket),
    /// Nothing: as many wait as may.
    Full,
}

/// What has come of a request that had a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The server has answered, well enough to have more.
    Answered,
    /// It has failed.
    Failed,
    /// Neither: its client is gone, say.
    Unknown,
}

/// What a choice goes by.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Wish {
    /// Of a hashed choice.
    pub(crate) key: Option<u64>,
    /// The server of the attempt before: another one, if there is another.
    pub(crate) avoid: Option<usize>,
}

/// See the module. `W` is who waits.
#[derive(Debug)]
pub(crate) struct Group<W> {
    servers: Vec<Server>,
    choice: Choice,
    health: HealthTerms,
    waiting: Waiting<(W, Wish)>,
    pub(crate) budget: Budget,
    /// Recycled.
    candidates: Vec<Candidate>,
}

impl<W> Group<W> {
    pub(crate) fn new(
        servers: impl IntoIterator<Item = ServerTerms>,
        (balance, seed): (Balance, u64),
        health: HealthTerms,
        waiting_max: usize,
    ) -> Self {
        let servers: Vec<_> = servers
            .into_iter()
            .map(|terms| Server {
                terms,
                in_flight: 0,
                health: Health::default(),
            })
            .collect();
        Self {
            choice: Choice::new(balance, servers.len(), seed),
            candidates: Vec::with_capacity(servers.len()),
            servers,
            health,
            waiting: Waiting::new(waiting_max),
            budget: Budget::default(),
        }
    }

    /// A server for a request, or a place in the queue.
    pub(crate) fn ask(&mut self, wish: Wish, now: Duration, who: impl FnOnce() -> W) -> Grant {
        if self.waiting.count() == 0
            && let Some(server) = self.pick(wish, now)
        {
            return Grant::Server(server);
        }
        match self.waiting.join((who(), wish)) {
            Some(ticket) => Grant::Wait(ticket),
            None => Grant::Full,
        }
    }

    /// The next of those that wait, if there is a server for it. To be called until there is none,
    /// whenever something was freed or one has joined the queue.
    pub(crate) fn next_grant(&mut self, now: Duration) -> Option<(W, usize)> {
        let wish = self.waiting.first()?.1;
        let server = self.pick(wish, now)?;
        match self.waiting.next() {
            Some((who, _)) => Some((who, server)),
            None => {
                self.servers[server].in_flight -= 1;
                None
            }
        }
    }

    /// How many wait.
    pub(crate) fn waiting_count(&self) -> usize {
        self.waiting.count()
    }

    /// One that waits has left.
    pub(crate) fn leave(&mut self, ticket: Ticket) -> Option<W> {
        self.waiting.leave(ticket).map(|(who, _)| who)
    }

    /// A request that had this server has it no more.
    pub(crate) fn done(&mut self, server: usize, outcome: Outcome, now: Duration) -> AfterFailure {
        let server = &mut self.servers[server];
        debug_assert!(server.in_flight > 0, "UG3");
        server.in_flight = server.in_flight.saturating_sub(1);
        match outcome {
            Outcome::Failed => server.health.failed(now, &self.health),
            Outcome::Answered => {
                server.health.succeeded(now);
                AfterFailure::AsBefore
            }
            Outcome::Unknown => AfterFailure::AsBefore,
        }
    }

    /// A request that was to have this server does not wait any more.
    pub(crate) fn give_back(&mut self, server: usize) {
        let in_flight = &mut self.servers[server].in_flight;
        *in_flight = in_flight.saturating_sub(1);
    }

    fn pick(&mut self, wish: Wish, now: Duration) -> Option<usize> {
        let tiers = [(false, false), (true, false), (false, true)];
        for (is_backup, even_out) in tiers {
            let of_tier = |server: &Server| {
                server.terms.is_backup == is_backup && (even_out || !server.health.is_out(now))
            };
            if !self.servers.iter().any(of_tier) {
                continue;
            }
            let health = &self.health;
            let usable = self.servers.iter().enumerate().filter(|(_, server)| {
                of_tier(server) && server.in_flight < server.terms.in_flight_max
            });
            self.candidates.clear();
            self.candidates
                .extend(usable.map(|(index, server)| Candidate {
                    index,
                    weight: server.health.weight(server.terms.weight, now, health),
                    in_flight: server.in_flight,
                }));
            if self.candidates.len() > 1 {
                self.candidates.retain(|it| Some(it.index) != wish.avoid);
            }
            let server = self.choice.of(&self.candidates, wish.key)?;
            self.servers[server].in_flight += 1;
            return Some(server);
        }
        // All are backups, and all of them are out.
        let usable = self.servers.iter().enumerate();
        let usable = usable.filter(|(_, it)| it.in_flight < it.terms.in_flight_max);
        let (server, _) = usable.min_by_key(|(_, it)| it.in_flight)?;
        self.servers[server].in_flight += 1;
        Some(server)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEALTH: HealthTerms = HealthTerms {
        failures_max: 1,
        pause: Duration::from_secs(10),
        pause_max: Duration::from_secs(60),
        slow_start: Duration::ZERO,
    };

    const NOW: Duration = Duration::from_secs(100);

    fn server(in_flight_max: u32, is_backup: bool) -> ServerTerms {
        ServerTerms {
            weight: 1,
            is_backup,
            in_flight_max,
        }
    }

    fn group(servers: &[ServerTerms], waiting_max: usize) -> Group<u32> {
        let servers = servers.iter().copied();
        Group::new(servers, (Balance::LeastOfTwo, 1), HEALTH, waiting_max)
    }

    fn ask(group: &mut Group<u32>, who: u32) -> Grant {
        group.ask(Wish::default(), NOW, || who)
    }

    fn fail(group: &mut Group<u32>, server: usize) {
        let _after = group.done(server, Outcome::Failed, NOW);
    }

    #[test]
    fn a_backup_has_requests_only_where_all_others_are_out() {
        let mut group = group(&[server(9, false), server(9, true)], 0);
        assert_eq!(ask(&mut group, 0), Grant::Server(0));
        fail(&mut group, 0);
        assert_eq!(ask(&mut group, 0), Grant::Server(1));
        fail(&mut group, 1);
        assert_eq!(ask(&mut group, 0), Grant::Server(0), "never all are out");
    }

    #[test]
    fn backups_alone_are_used_even_if_they_are_out() {
        let mut group = group(&[server(9, true)], 0);
        for _ in 0..3 {
            assert_eq!(ask(&mut group, 0), Grant::Server(0));
            fail(&mut group, 0);
        }
    }

    #[test]
    fn a_full_server_is_no_reason_for_a_backup() {
        let mut group = group(&[server(1, false), server(9, true)], 1);
        assert_eq!(ask(&mut group, 0), Grant::Server(0));
        assert!(matches!(ask(&mut group, 1), Grant::Wait(_)));
        assert_eq!(ask(&mut group, 2), Grant::Full);
    }

    #[test]
    fn those_that_wait_are_served_in_their_order_before_those_that_come() {
        let mut group = group(&[server(2, false)], 9);
        for who in 0..2 {
            assert_eq!(ask(&mut group, who), Grant::Server(0));
        }
        let tickets: Vec<_> = (2..5).map(|who| ask(&mut group, who)).collect();
        assert_eq!(group.next_grant(NOW), None, "UG1");
        let _after = group.done(0, Outcome::Answered, NOW);
        assert!(matches!(ask(&mut group, 5), Grant::Wait(_)), "UG2");
        assert_eq!(group.next_grant(NOW), Some((2, 0)));
        assert_eq!(group.next_grant(NOW), None, "UG1");
        if let Grant::Wait(ticket) = tickets[1] {
            assert_eq!(group.leave(ticket), Some(3));
        }
        let _after = group.done(0, Outcome::Unknown, NOW);
        assert_eq!(group.next_grant(NOW), Some((4, 0)));
    }

    #[test]
    fn ten_thousand_that_wait_have_their_turn_in_their_order() {
        const WAITING: u32 = 10_000;
        let mut group = group(&[server(1, false)], WAITING as usize);
        assert_eq!(ask(&mut group, 0), Grant::Server(0));
        let tickets: Vec<_> = (1..=WAITING).map(|who| ask(&mut group, who)).collect();
        assert_eq!(ask(&mut group, 0), Grant::Full);
        for (ticket, who) in tickets.into_iter().zip(1..).step_by(3) {
            if let Grant::Wait(ticket) = ticket {
                assert_eq!(group.leave(ticket), Some(who), "who leaves");
            }
        }
        for who in (1..=WAITING).filter(|who| who % 3 != 1) {
            let _after = group.done(0, Outcome::Answered, NOW);
            assert_eq!(group.next_grant(NOW), Some((who, 0)));
        }
        assert_eq!(group.waiting_count(), 0);
    }

    #[test]
    fn the_next_attempt_has_another_server_if_there_is_one() {
        let mut pair = group(&[server(99, false); 2], 0);
        for _ in 0..20 {
            let wish = Wish {
                avoid: Some(1),
                ..Wish::default()
            };
            assert_eq!(pair.ask(wish, NOW, || 0), Grant::Server(0));
        }
        let mut one = group(&[server(9, false)], 0);
        let wish = Wish {
            avoid: Some(0),
            ..Wish::default()
        };
        assert_eq!(one.ask(wish, NOW, || 0), Grant::Server(0));
    }

    #[test]
    fn what_waits_has_its_wish_when_its_turn_comes() {
        let mut pair = group(&[server(1, false); 2], 9);
        let wish = Wish {
            avoid: Some(1),
            ..Wish::default()
        };
        assert_eq!(pair.ask(wish, NOW, || 0), Grant::Server(0));
        assert_eq!(ask(&mut pair, 1), Grant::Server(1));
        assert!(matches!(pair.ask(wish, NOW, || 2), Grant::Wait(_)));
        let _both = (
            pair.done(0, Outcome::Answered, NOW),
            pair.done(1, Outcome::Answered, NOW),
        );
        assert_eq!(pair.next_grant(NOW), Some((2, 0)));
    }

    #[test]
    fn a_server_that_is_out_is_in_again_after_its_pause() {
        let mut group = group(&[server(99, false); 2], 0);
        let Grant::Server(first) = ask(&mut group, 0) else {
            panic!("there is room");
        };
        fail(&mut group, first);
        for _ in 0..10 {
            assert_eq!(ask(&mut group, 0), Grant::Server(1 - first));
        }
        let later = NOW + Duration::from_secs(10);
        let grants: Vec<_> = (0..10)
            .map(|_| group.ask(Wish::default(), later, || 0))
            .collect();
        assert!(grants.contains(&Grant::Server(first)), "{grants:?}");
    }
}
