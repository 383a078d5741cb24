//! Claims to a place: what is closed or ended for a newcomer, or refused, step by step.
//!
//! A claim goes through its rules in order. Each step is one verdict; the caller carries it out and
//! asks again ([`Admission::next_step`]), until the claim is met or refused.
//!
//! | a claim of                        | share | places | listener | address | files |
//! |-----------------------------------|-------|--------|----------|---------|-------|
//! | a newcomer                        | 1     | 2      | 3        | 4       |       |
//! | one whose PROXY header is to come |       | 1      | 2        |         |       |
//! | a client that a header has named  |       |        |          | 1       |       |
//! | one that this server opens        |       | 1      |          |         |       |
//! | files, to descriptors             |       |        |          |         | 1     |
//!
//! | rule     | holds where                                | then                                |
//! |----------|--------------------------------------------|-------------------------------------|
//! | share    | places are short, and its address has more | one of its address that rests is    |
//! |          | than its share of them                     | closed; without one, it is refused  |
//! | places   | places are short, and one has rested long  | that is closed                      |
//! |          | there is no place                          | the longest-lived of an address     |
//! |          |                                            | with more than its share is ended;  |
//! |          |                                            | without one, one that has rested at |
//! |          |                                            | all is closed; without one, it is   |
//! |          |                                            | refused                             |
//! | listener | its listener has more than it may          | one of its listener that rests is   |
//! |          |                                            | closed; without one, it is refused  |
//! | address  | its address has more than the limit        | one of its address that rests is    |
//! |          |                                            | closed; without one, it is refused  |
//! | files    | more connections than places beside files  | one that has rested long is closed; |
//! |          |                                            | without one, the longest-lived is   |
//! |          |                                            | ended; without one, the next file   |
//! |          |                                            | is refused                          |
//!
//! Where no rule can hold, none is asked.
//!
//! Under the first rule each newcomer's address is asked for from half of the places in use on;
//! those that were there before are asked for little by little ([`Admission::asks_addresses`]).
//!
//! Invariants
//! - CL1: what a verdict closes or refuses is counted as leaving when the verdict is given.
//! - CL2: a claim ends after `EVICTIONS_PER_ACCEPT_MAX` steps for places, or `SHED_PER_TURN_MAX`
//!   for files, and a few more.

use crate::limits::{EVICTIONS_PER_ACCEPT_MAX, PAYER_STEPS_MAX, SHED_PER_TURN_MAX, SPARED_NS};
use crate::observe::episode::Price;
use crate::protocol::phase::Phase;

use super::addresses::AddressId;
use super::{Admission, Bound, Load, NO_LISTENER, Rests, Room};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rule {
    Share,
    Places,
    Listener,
    Address,
    Files,
    /// The claim is met.
    Met,
}

/// Which connections pay for a newcomer: those of its address, or of its listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Payers {
    Address(AddressId),
    Listener(u16),
}

/// What wants a place, and how far it has come.
#[derive(Debug)]
pub(crate) struct Claim {
    /// The connection, and the number of its listener.
    index: u32,
    listener: u16,
    /// The most connections of an address; 0 for no limit.
    per_address_max: usize,
    rule: Rule,
    /// How many connections were closed or ended for places.
    closed: usize,
    /// No long-lived one could be ended when it was tried last.
    none_ended: bool,
}

/// What is to be done for a claim next.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// The address of this connection is asked for ([`Admission::learn`]).
    Learn(u32),
    /// This connection rests, and is closed.
    Close(u32),
    /// The longest-lived connection of an address with more than its share is ended, if there is
    /// one; [`Claim::ended`] has the answer.
    EndLongestLived,
    /// This connection is refused.
    Refuse(Refusal),
    /// Nothing: the claim is met, or nothing more can be done for it.
    Done,
}

/// A connection that is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) index: u32,
    /// It may linger, so that its client can read why.
    pub(crate) lingers: bool,
    pub(crate) cause: Cause,
}

/// What a connection is refused for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// There is no place for it.
    Room,
    /// Its address has as many as it may.
    Address,
}

impl Claim {
    /// Of a connection that was accepted, and is counted already.
    pub(crate) fn newcomer(index: u32, listener: u16, per_address_max: usize) -> Claim {
        Claim {
            index,
            listener,
            per_address_max,
            rule: Rule::Share,
            closed: 0,
            none_ended: false,
        }
    }

    /// Of a client, whose PROXY header was read: its connection has a place.
    pub(crate) fn client(index: u32, listener: u16, per_address_max: usize) -> Claim {
        Claim {
            rule: Rule::Address,
            ..Claim::newcomer(index, listener, per_address_max)
        }
    }

    /// Of a connection that this server opens, and that is counted already. It belongs to no
    /// listener and no address.
    pub(crate) fn opened(index: u32) -> Claim {
        Claim {
            rule: Rule::Places,
            ..Claim::newcomer(index, NO_LISTENER, 0)
        }
    }

    /// Of files, to the descriptors of connections that rest.
    pub(crate) fn files() -> Claim {
        Claim {
            rule: Rule::Files,
            ..Claim::newcomer(u32::MAX, 0, 0)
        }
    }

    /// Whether a long-lived connection was ended for it ([`Step::EndLongestLived`]).
    pub(crate) fn ended(&mut self, is_ended: bool) {
        self.closed += usize::from(is_ended);
        self.none_ended = !is_ended;
    }

    /// The rule is met.
    fn advance(&mut self) {
        self.rule = match self.rule {
            Rule::Share => Rule::Places,
            Rule::Places => Rule::Listener,
            Rule::Listener => Rule::Address,
            Rule::Address | Rule::Files | Rule::Met => Rule::Met,
        };
    }
}

impl Admission {
    /// What is to be done next for a claim, as full as the thread is now.
    pub(crate) fn next_step(&mut self, claim: &mut Claim, load: Load, rests: impl Rests) -> Step {
        match self.is_unopposed(claim, load) {
            true => Step::Done,
            false => self.by_rules(claim, load, rests),
        }
    }

    /// The common case: half of the places are free, so none is short, and neither the listener nor
    /// the address of the claim has reached a limit. No rule would hold.
    #[inline]
    fn is_unopposed(&self, claim: &Claim, load: Load) -> bool {
        let is_limited = claim.per_address_max > 0 || claim.rule == Rule::Files;
        !is_limited && !self.is_half_full(load) && self.listener_exceeds(claim.listener).is_none()
    }

    fn by_rules(&mut self, claim: &mut Claim, load: Load, mut rests: impl Rests) -> Step {
        loop {
            let rule = claim.rule;
            let step = match rule {
                Rule::Share => self.by_share(claim, load, &mut rests),
                Rule::Places => self.by_places(claim, load, &mut rests),
                Rule::Listener => self.by_listener(claim, load, &mut rests),
                Rule::Address => self.by_address(claim, load, &mut rests),
                Rule::Files => self.by_files(claim, load, &mut rests),
                Rule::Met => Some(Step::Done),
            };
            match step {
                Some(step) => return step,
                None => claim.advance(),
            }
        }
    }

    fn by_share(&mut self, claim: &mut Claim, load: Load, rests: &mut impl Rests) -> Option<Step> {
        let address = self.address(claim.index);
        if address == AddressId::UNNAMED || !self.is_half_full(load) {
            return None;
        }
        if address == AddressId::UNKNOWN {
            return Some(Step::Learn(claim.index));
        }
        if !self.is_short(load) || !self.exceeds_share(address, load) {
            return None;
        }
        let own = self.connections_of(address);
        let max = load.max;
        let limit = || format!("one has {own} of {max} on this network thread, its share");
        Some(self.pay(claim, (Payers::Address(address), &limit), load, rests))
    }

    fn by_places(&mut self, claim: &mut Claim, load: Load, rests: &mut impl Rests) -> Option<Step> {
        let may_close = claim.closed < EVICTIONS_PER_ACCEPT_MAX;
        let room = match may_close {
            true => self.room(load, &mut *rests),
            false => Room::Enough,
        };
        match room {
            Room::Close(index) => return Some(self.close_for(claim, index, load)),
            Room::Short if !claim.none_ended => return Some(Step::EndLongestLived),
            Room::Short => {
                if let Some(index) = self.longest_resting(load.now_ns, 0, rests) {
                    return Some(self.close_for(claim, index, load));
                }
            }
            Room::Enough => {}
        }
        if !self.is_beyond(load) || claim.closed > 0 {
            return None;
        }
        self.note_places(load, Price::Refused);
        Some(self.reject(claim, Cause::Room))
    }

    fn by_listener(
        &mut self,
        claim: &mut Claim,
        load: Load,
        rests: &mut impl Rests,
    ) -> Option<Step> {
        let max = self.listener_exceeds(claim.listener)?;
        let name = self.listeners[usize::from(claim.listener)].name;
        let limit = || format!("{name} has {max} on this network thread");
        let payers = Payers::Listener(claim.listener);
        Some(self.pay(claim, (payers, &limit), load, rests))
    }

    fn by_address(
        &mut self,
        claim: &mut Claim,
        load: Load,
        rests: &mut impl Rests,
    ) -> Option<Step> {
        let (max, address) = (claim.per_address_max, self.address(claim.index));
        if max == 0 || address == AddressId::UNNAMED {
            return None;
        }
        if address == AddressId::UNKNOWN {
            return Some(Step::Learn(claim.index));
        }
        if self.connections_of(address) <= max {
            return None;
        }
        let limit = || format!("one has {max} on this network thread");
        Some(self.pay(claim, (Payers::Address(address), &limit), load, rests))
    }

    fn by_files(&mut self, claim: &mut Claim, load: Load, rests: &mut impl Rests) -> Option<Step> {
        if claim.closed == SHED_PER_TURN_MAX || !self.is_beyond(load) {
            return None;
        }
        // What rests only for now keeps its place.
        if let Some(index) = self.longest_resting(load.now_ns, SPARED_NS, rests) {
            return Some(self.close_for(claim, index, load));
        }
        (!claim.none_ended).then_some(Step::EndLongestLived)
    }

    /// The payers close one of theirs that rests for their newcomer, which is refused if none does.
    fn pay(
        &mut self,
        claim: &mut Claim,
        (payers, limit): (Payers, &dyn Fn() -> String),
        load: Load,
        rests: &mut impl Rests,
    ) -> Step {
        let (bound, cause) = match payers {
            Payers::Address(_) => (Bound::Addresses, Cause::Address),
            Payers::Listener(_) => (Bound::Listeners, Cause::Room),
        };
        let payer = self.payer(payers, claim.index, load.now_ns, rests);
        let price = match payer {
            Some(_) => Price::Closed,
            None => Price::Refused,
        };
        self.note(bound, load.now_ns, price, limit);
        match payer {
            Some(index) => {
                claim.advance();
                self.leaves(index);
                Step::Close(index)
            }
            None => self.reject(claim, cause),
        }
    }

    /// The connection of the payers to close for one of theirs, `newcomer`: the one that has been
    /// idle longest, or the oldest head that has had some time. `None`: none of those looked at
    /// rests.
    pub(super) fn payer(
        &mut self,
        payers: Payers,
        newcomer: u32,
        now_ns: u64,
        mut rests: impl Rests,
    ) -> Option<u32> {
        let mut oldest: Option<(bool, u64, u32)> = None;
        let mut at = match payers {
            Payers::Address(id) => self.addresses.first(id),
            Payers::Listener(number) => self.listeners[usize::from(number)].list.first(),
        };
        for _ in 0..PAYER_STEPS_MAX {
            let Some(index) = at.filter(|index| *index != newcomer) else {
                break;
            };
            // The next newcomer looks at others first.
            match payers {
                Payers::Address(id) => {
                    at = self.addresses.after(index);
                    self.addresses.move_back(id, index);
                }
                Payers::Listener(number) => {
                    at = self.listener_links.after(index);
                    let list = &mut self.listeners[usize::from(number)].list;
                    self.listener_links.move_back(list, index);
                }
            }
            if let Some((phase, since_ns)) = rests(index) {
                let is_head = phase != Phase::Idle;
                if !is_head || now_ns >= since_ns.saturating_add(SPARED_NS) {
                    oldest = oldest.into_iter().chain([(is_head, since_ns, index)]).min();
                }
            }
        }
        oldest.map(|(_, _, index)| index)
    }

    /// Closes a resting connection for a place.
    fn close_for(&mut self, claim: &mut Claim, index: u32, load: Load) -> Step {
        claim.closed += 1;
        claim.none_ended = false;
        self.leaves(index);
        self.note_places(load, Price::Closed);
        Step::Close(index)
    }

    fn reject(&mut self, claim: &mut Claim, cause: Cause) -> Step {
        claim.rule = Rule::Met;
        let (index, lingers) = (claim.index, self.may_linger());
        self.refuse(index);
        Step::Refuse(Refusal {
            index,
            lingers,
            cause,
        })
    }

    fn note_places(&mut self, load: Load, price: Price) {
        let (counted, max) = (self.counted(load), load.max);
        let limit = || format!("{counted} of {max} on this network thread");
        self.note(Bound::Places, load.now_ns, price, &limit);
    }
}

#[cfg(test)]
mod tests;
