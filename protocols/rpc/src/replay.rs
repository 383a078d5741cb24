//! Replies to calls that must not be executed twice: a bounded duplicate-request cache.
//!
//! A client that lost its connection sends its calls again. A repeated REMOVE must be answered with
//! the first one's success and not with "no such file". A call is known by where it comes from, its
//! number, what it asks for, who asks, and a keyed checksum of all its arguments: another principal
//! never gets a reply that was not made for it, and a number used again for something else is a new
//! call, also when it is a WRITE of other data to the same place.
//!
//! | may run beside | begin | finish or drop of a ticket |
//! |----------------|-------|----------------------------|
//! | begin          | yes   | yes                        |
//! | finish, drop   | yes   | yes                        |
//!
//! Invariants
//! - D1: every key in `order` is in `entries` and the other way round; there are at most
//!   `entries_max` of them, whatever peers send.
//! - D2: a call that is being executed is never forgotten; only finished ones make room.
//!
//! Cost: one checksum (see `digest`) and one lock of one of sixteen shards.

use std::collections::hash_map::{Entry, RandomState};
use std::collections::{HashMap, VecDeque};
use std::hash::BuildHasher;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use siphasher::sip128::SipHasher13;

use crate::auth::Credential;
use crate::digest::{Digest, WORDS};
use crate::limits::REPLAY_BYTES_MAX;
use crate::message::Call;
use crate::record::Arguments;

const SHARDS: usize = 16;

/// Steps taken over calls in execution when looking for one to forget.
const SKIPS_MAX: usize = 64;

/// Names a call; see the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ReplayKey(u128);

/// What is known about a call that is about to be executed.
pub enum Begin {
    /// Nothing: execute it and finish the ticket. Without a ticket there is no room to remember.
    New(Option<Ticket>),
    /// It is being executed: say nothing, its reply is on its way.
    InProgress,
    /// It was executed: this was the reply, without marker.
    Done(Bytes),
}

#[derive(Clone, Debug)]
enum State {
    InProgress,
    Done(Bytes),
}

#[derive(Default)]
struct Shard {
    entries: HashMap<ReplayKey, State>,
    /// Oldest first.
    order: VecDeque<ReplayKey>,
}

struct Inner {
    shards: Box<[Mutex<Shard>]>,
    entries_max: usize,
    secret: (u64, u64),
    /// More secret, for long arguments.
    words: Box<[u64; WORDS]>,
}

/// See the module.
#[derive(Clone)]
pub struct Replays(Arc<Inner>);

/// The right and duty to say how a call ended. Dropped without a word (a panic), the call is
/// forgotten and may be executed again.
pub struct Ticket {
    inner: Arc<Inner>,
    key: ReplayKey,
    finished: bool,
}

impl Replays {
    /// Remembers at most `entries_max` calls.
    pub fn new(entries_max: usize) -> Replays {
        let random = RandomState::new();
        Replays(Arc::new(Inner {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            entries_max: entries_max.div_ceil(SHARDS),
            secret: (random.hash_one(1_u8), random.hash_one(2_u8)),
            words: Box::new(std::array::from_fn(|at| random.hash_one(at))),
        }))
    }

    /// The name of a call. Keyed with a secret of this process, so that nobody can make two calls
    /// that share one.
    pub fn key(&self, call: &Call, arguments: &Arguments<'_>) -> ReplayKey {
        let (first, second) = self.0.secret;
        let mut hasher = SipHasher13::new_with_keys(first, second);
        let mut feed = |bytes: &[u8]| std::hash::Hasher::write(&mut hasher, bytes);
        match call.peer.map(|peer| peer.ip()) {
            None => feed(&[0]),
            Some(std::net::IpAddr::V4(address)) => feed(&address.octets()),
            Some(std::net::IpAddr::V6(address)) => feed(&address.octets()),
        }
        for word in [call.xid, call.program, call.version, call.procedure] {
            feed(&word.to_be_bytes());
        }
        if let Credential::System {
            user,
            group,
            groups,
        } = &call.credential
        {
            for word in [user, group].into_iter().chain(groups.as_slice()) {
                feed(&word.to_be_bytes());
            }
        }
        let mut digest = Digest::new(hasher, &self.0.words);
        for slice in arguments.slices() {
            digest.feed(slice);
        }
        ReplayKey(digest.finish())
    }

    /// Looks a call up and, when it is new, remembers that it is being executed.
    pub fn begin(&self, key: ReplayKey) -> Begin {
        let mut shard = self.0.shard(key);
        match shard.entries.get(&key) {
            Some(State::InProgress) => return Begin::InProgress,
            Some(State::Done(reply)) => return Begin::Done(reply.clone()),
            None => {}
        }
        if shard.entries.len() >= self.0.entries_max && !shard.forget_oldest() {
            return Begin::New(None);
        }
        shard.entries.insert(key, State::InProgress);
        shard.order.push_back(key);
        Begin::New(Some(Ticket {
            inner: Arc::clone(&self.0),
            key,
            finished: false,
        }))
    }

    /// Calls remembered, executed or not.
    pub fn len(&self) -> usize {
        self.0
            .shards
            .iter()
            .map(|shard| lock(shard).entries.len())
            .sum()
    }

    /// True when no call is remembered.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Inner {
    fn shard(&self, key: ReplayKey) -> MutexGuard<'_, Shard> {
        lock(&self.shards[usize::from(key.0.to_le_bytes()[0]) % SHARDS])
    }
}

fn lock(shard: &Mutex<Shard>) -> MutexGuard<'_, Shard> {
    // Nothing that could panic runs under the lock.
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shard {
    /// Forgets the oldest finished call; false when none is found in a bounded search.
    fn forget_oldest(&mut self) -> bool {
        for _ in 0..self.order.len().min(SKIPS_MAX) {
            let Some(key) = self.order.pop_front() else {
                return false;
            };
            if let Entry::Occupied(entry) = self.entries.entry(key)
                && matches!(entry.get(), State::InProgress)
            {
                self.order.push_back(key);
                continue;
            }
            self.entries.remove(&key);
            return true;
        }
        false
    }
}

impl Ticket {
    /// Remembers the reply, given without its marker. One that is too long is not kept: the call
    /// is forgotten.
    pub fn finish(mut self, reply: &[u8]) {
        if reply.len() <= REPLAY_BYTES_MAX {
            let state = State::Done(Bytes::copy_from_slice(reply));
            self.inner.shard(self.key).entries.insert(self.key, state);
            self.finished = true;
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if !self.finished {
            let mut shard = self.inner.shard(self.key);
            shard.entries.remove(&self.key);
            shard.order.retain(|key| *key != self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::Groups;

    fn call(xid: u32, user: u32) -> Call {
        let credential = Credential::System {
            user,
            group: 1,
            groups: Groups::new([1, 2]),
        };
        let peer = Some("127.0.0.1:700".parse().expect("an address"));
        Call {
            xid,
            program: 100_003,
            version: 3,
            procedure: 12,
            credential,
            peer,
        }
    }

    fn ticket(replays: &Replays, key: ReplayKey) -> Ticket {
        match replays.begin(key) {
            Begin::New(Some(ticket)) => ticket,
            _ => panic!("a new call with room has a ticket"),
        }
    }

    #[test]
    fn a_repeated_call_gets_the_first_reply() {
        let replays = Replays::new(64);
        let key = replays.key(&call(1, 1000), &Arguments::new(b"name"));
        let first = ticket(&replays, key);
        assert!(matches!(replays.begin(key), Begin::InProgress));
        first.finish(b"reply");
        assert!(matches!(replays.begin(key), Begin::Done(reply) if reply == b"reply"[..]));
    }

    #[test]
    fn whatever_differs_makes_another_call() {
        let replays = Replays::new(64);
        let arguments = Arguments::new(b"name");
        let key = replays.key(&call(1, 1000), &arguments);
        assert_eq!(key, replays.key(&call(1, 1000), &arguments));
        assert_ne!(key, replays.key(&call(2, 1000), &arguments), "number");
        assert_ne!(key, replays.key(&call(1, 1001), &arguments), "principal");
        assert_ne!(
            key,
            replays.key(&call(1, 1000), &Arguments::new(b"other")),
            "arguments"
        );
        let mut other = call(1, 1000);
        other.procedure = 13;
        assert_ne!(key, replays.key(&other, &arguments), "procedure");
        other = call(1, 1000);
        other.peer = Some("127.0.0.2:700".parse().expect("an address"));
        assert_ne!(key, replays.key(&other, &arguments), "client");
        other.peer = Some("127.0.0.1:900".parse().expect("an address"));
        assert_eq!(
            key,
            replays.key(&other, &arguments),
            "a new connection is the same client"
        );
    }

    #[test]
    fn a_write_that_differs_in_any_one_bit_is_another_call() {
        let replays = Replays::new(64);
        let mut data = vec![7; 70_000];
        let key = replays.key(&call(1, 1), &Arguments::new(&data));
        for at in (0..data.len()).step_by(331).chain([data.len() - 1]) {
            data[at] ^= 1 << (at % 8);
            let other = replays.key(&call(1, 1), &Arguments::new(&data));
            assert_ne!(key, other, "byte {at}");
            data[at] ^= 1 << (at % 8);
        }
        assert_eq!(key, replays.key(&call(1, 1), &Arguments::new(&data)));
        assert_ne!(key, replays.key(&call(1, 1), &Arguments::new(&data[1..])));
    }

    #[test]
    fn a_ticket_that_is_dropped_forgets_its_call() {
        let replays = Replays::new(64);
        let key = replays.key(&call(1, 1), &Arguments::new(b""));
        drop(ticket(&replays, key));
        assert!(replays.is_empty());
        ticket(&replays, key).finish(&[0; REPLAY_BYTES_MAX + 1]);
        assert!(replays.is_empty(), "a reply beyond the bound is not kept");
    }

    #[test]
    fn a_full_cache_forgets_the_oldest_finished_call_and_never_one_in_progress() {
        let replays = Replays::new(SHARDS);
        let mut open = Vec::new();
        for xid in 0..1000 {
            let key = replays.key(&call(xid, 1), &Arguments::new(b""));
            if let Begin::New(Some(ticket)) = replays.begin(key) {
                open.push((key, ticket));
            }
        }
        assert_eq!(
            open.len(),
            SHARDS,
            "one per shard, the others found no room"
        );
        for (key, _) in &open {
            assert!(matches!(replays.begin(*key), Begin::InProgress));
        }
        for (_, ticket) in open {
            ticket.finish(b"done");
        }
        for xid in 1000..5000 {
            let key = replays.key(&call(xid, 1), &Arguments::new(b""));
            ticket(&replays, key).finish(b"done");
            assert!(replays.len() <= SHARDS);
        }
    }
}
