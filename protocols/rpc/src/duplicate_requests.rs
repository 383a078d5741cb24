//! Replies to calls that must not be executed twice: a bounded duplicate request cache.
//!
//! A client that lost its connection sends its calls again. A repeated REMOVE must be answered with
//! the first one's success and not with "no such file". A call is known by where it comes from, its
//! number, what it asks for, who asks, and a keyed checksum of its arguments: another principal
//! never gets a reply that was not made for it, and a number used again for something else is a new
//! call, also when it is a WRITE of other data to the same place: `digest` says how much of the
//! data of a long one counts.
//!
//! Two programs on one machine may still send calls that are alike in all that, one after the other
//! or at the same time. So a reply is for the connection and the port of the call it was made for,
//! for [`CACHED_REPLY_AGE_NS_MAX`], and for another port only if that connection broke
//! ([`Origin`]), for [`CACHED_REPLY_MOVED_NS_MAX`]. Any other call is executed.
//!
//! A call that is repeated at once may overtake the news that its connection broke; while that is
//! unclear, the caller is to ask again ([`Lookup::Unclear`]).
//!
//! Time is the caller's: nanoseconds of one clock.
//!
//! | may run beside | look_up | finish or drop of a ticket |
//! |----------------|-------|----------------------------|
//! | look_up        | yes   | yes                        |
//! | finish, drop   | yes   | yes                        |
//!
//! Invariants
//! - D1: every key in `order` is in `entries` and the other way round; there are at most
//!   `entries_max` of them, whatever peers send.
//! - D2: a call that is being executed is never forgotten; only finished ones make room.
//! - D3: what is in `twins` has, or had, an entry of another client under its key in `entries`;
//!   there are at most [`CACHED_TWINS_MAX`].
//!
//! Cost: one checksum (see `digest`) and one lock of one of sixteen shards.

use std::collections::hash_map::RandomState;
use std::collections::{HashMap, VecDeque};
use std::hash::BuildHasher;
use std::sync::Arc;

use bytes::Bytes;
use flatpath::lock::{Guard, Lock};
use siphasher::sip128::SipHasher13;

use crate::auth::Credential;
use crate::digest::{Digest, WORDS};
use crate::limits::{
    CACHED_REPLY_AGE_NS_MAX, CACHED_REPLY_BYTES_MAX, CACHED_REPLY_MOVED_NS_MAX, CACHED_TWINS_MAX,
};
use crate::message::Call;
use crate::origin::Origin;
use crate::record::Arguments;

const SHARDS: usize = 16;

/// Steps taken over calls in execution when looking for one to forget.
const SKIPS_MAX: usize = 64;

/// Names a call; see the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct RequestKey(u128);

/// What is known about a call that is about to be executed.
pub(crate) enum Lookup {
    /// Nothing: execute it and finish the ticket. Without a ticket there is no room to remember.
    New(Option<Ticket>),
    /// Another connection of the same machine has sent the same, and is open; or it was this
    /// client's last one, and the call is still being executed. Ask again a little later.
    Unclear,
    /// It is being executed: say nothing, its reply is on its way.
    InProgress,
    /// It was executed: this was the reply, without marker.
    Done(Bytes),
}

enum State {
    InProgress,
    Done(Bytes),
}

struct Entry {
    state: State,
    origin: Arc<Origin>,
    begun_ns: u64,
    /// Distinguishes entries of one key.
    serial: u64,
}

#[derive(Default)]
struct Shard {
    entries: HashMap<RequestKey, Entry>,
    /// Oldest first.
    order: VecDeque<RequestKey>,
    /// What had to leave `entries` for a call that is like it, of another client.
    twins: VecDeque<(RequestKey, Entry)>,
    serial: u64,
}

struct Inner {
    shards: Box<[Lock<Shard>]>,
    entries_max: usize,
    secret: (u64, u64),
    /// More secret, for long arguments.
    words: Box<[u64; WORDS]>,
}

/// See the module.
#[derive(Clone)]
pub(crate) struct DuplicateRequestCache(Arc<Inner>);

/// The right and duty to say how a call ended. Dropped without a word (a panic), the call is
/// forgotten and may be executed again.
pub(crate) struct Ticket {
    inner: Arc<Inner>,
    key: RequestKey,
    serial: u64,
    finished: bool,
}

impl DuplicateRequestCache {
    /// Remembers at most `entries_max` calls.
    pub(crate) fn new(entries_max: usize) -> DuplicateRequestCache {
        let random = RandomState::new();
        DuplicateRequestCache(Arc::new(Inner {
            shards: (0..SHARDS).map(|_| Lock::default()).collect(),
            entries_max: entries_max.div_ceil(SHARDS),
            secret: (random.hash_one(1_u8), random.hash_one(2_u8)),
            words: Box::new(std::array::from_fn(|at| random.hash_one(at))),
        }))
    }

    /// What a call has in common with no other, but with the same one from another port. Keyed with
    /// a secret of this process, so that no client can make two calls that share one.
    pub(crate) fn key(&self, call: &Call, arguments: &Arguments<'_>) -> RequestKey {
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
        RequestKey(digest.finish())
    }

    /// Looks up a call that came on the connection `origin` at `now_ns` and, when it is new,
    /// remembers that it is being executed. Asked for the last time, what is unclear is another
    /// program's call, or in progress.
    pub(crate) fn look_up(
        &self,
        key: RequestKey,
        origin: &Arc<Origin>,
        now_ns: u64,
        is_last: bool,
    ) -> Lookup {
        let mut shard = self.0.shard(key);
        match shard.find(key, origin, now_ns) {
            Some(Lookup::Unclear) if is_last => return Lookup::InProgress,
            Some(known) => return known,
            None if !is_last && shard.is_unclear(key, now_ns) => return Lookup::Unclear,
            None => {}
        }
        if !shard.make_room(key, now_ns, self.0.entries_max) {
            return Lookup::New(None);
        }
        shard.serial += 1;
        let serial = shard.serial;
        let entry = Entry {
            state: State::InProgress,
            origin: Arc::clone(origin),
            begun_ns: now_ns,
            serial,
        };
        shard.entries.insert(key, entry); // OURS: a reply's bytes.
        shard.order.push_back(key);
        Lookup::New(Some(Ticket {
            inner: Arc::clone(&self.0),
            key,
            serial,
            finished: false,
        }))
    }

    /// Calls remembered, executed or not.
    #[cfg(test)]
    fn len(&self) -> usize {
        let shards = self.0.shards.iter().map(Lock::lock);
        shards
            .map(|shard| shard.entries.len() + shard.twins.len())
            .sum()
    }
}

impl Inner {
    fn shard(&self, key: RequestKey) -> Guard<'_, Shard> {
        self.shards[usize::from(key.0.to_le_bytes()[0]) % SHARDS].lock()
    }
}

impl Entry {
    fn is_done(&self) -> bool {
        matches!(self.state, State::Done(_))
    }

    fn is_over(&self, now_ns: u64) -> bool {
        self.is_done() && now_ns.saturating_sub(self.begun_ns) > CACHED_REPLY_AGE_NS_MAX
    }

    /// The answer to an equal call of `origin`; `None`: it is a call of its own.
    fn answer(&mut self, origin: &Arc<Origin>, now_ns: u64) -> Option<Lookup> {
        let young = now_ns.saturating_sub(self.begun_ns) <= CACHED_REPLY_MOVED_NS_MAX;
        let moved = || self.origin.is_broken() && (young || !self.is_done());
        if self.is_over(now_ns) || !(self.origin.is_same_client(origin) || moved()) {
            return None;
        }
        Some(match &self.state {
            State::InProgress if Arc::ptr_eq(&self.origin, origin) => Lookup::InProgress,
            // Its reply will go nowhere: soon there may be one to repeat.
            State::InProgress => Lookup::Unclear,
            State::Done(reply) => {
                // From now on it belongs to the connection on which the client is now.
                self.origin = Arc::clone(origin);
                Lookup::Done(reply.clone())
            }
        })
    }

    /// Its client may still repeat it.
    fn is_wanted(&self, now_ns: u64) -> bool {
        !self.is_done() || (self.origin.is_open() && !self.is_over(now_ns))
    }
}

impl Shard {
    /// Every call of this key, the latest first.
    fn calls(&mut self, key: RequestKey) -> impl Iterator<Item = &mut Entry> {
        let twins = self.twins.iter_mut();
        let twins = twins.filter(move |(other, _)| *other == key);
        let first = self.entries.get_mut(&key);
        first.into_iter().chain(twins.map(|(_, entry)| entry))
    }

    fn find(&mut self, key: RequestKey, origin: &Arc<Origin>, now_ns: u64) -> Option<Lookup> {
        let mut calls = self.calls(key);
        calls.find_map(|entry| entry.answer(origin, now_ns))
    }

    /// True when the call may be another connection's that is about to end.
    fn is_unclear(&self, key: RequestKey, now_ns: u64) -> bool {
        let first = self.entries.get(&key);
        first.is_some_and(|entry| entry.origin.is_open() && !entry.is_over(now_ns))
    }

    /// Makes room for a call that is not known under `key`; false when there is none.
    fn make_room(&mut self, key: RequestKey, now_ns: u64, entries_max: usize) -> bool {
        if let Some(other) = self.entries.get(&key) {
            if other.is_wanted(now_ns) && !self.make_room_for_twin() {
                return false;
            }
            self.order.retain(|known| *known != key);
            if let Some(other) = self.entries.remove(&key)
                && other.is_wanted(now_ns)
            {
                self.twins.push_back((key, other));
            }
        }
        self.entries.len() < entries_max || self.forget_oldest()
    }

    fn make_room_for_twin(&mut self) -> bool {
        if self.twins.len() < CACHED_TWINS_MAX {
            return true;
        }
        let done = self.twins.iter().position(|(_, entry)| entry.is_done());
        done.and_then(|at| self.twins.remove(at)).is_some()
    }

    fn remove(&mut self, key: RequestKey, serial: u64) {
        if self
            .entries
            .get(&key)
            .is_some_and(|entry| entry.serial == serial)
        {
            self.entries.remove(&key);
            self.order.retain(|known| *known != key);
        } else {
            self.twins.retain(|(_, entry)| entry.serial != serial);
        }
    }

    /// Forgets the oldest finished call; false when none is found in a bounded search.
    fn forget_oldest(&mut self) -> bool {
        for _ in 0..self.order.len().min(SKIPS_MAX) {
            let Some(key) = self.order.pop_front() else {
                return false;
            };
            if self.entries.get(&key).is_some_and(|entry| !entry.is_done()) {
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
    pub(crate) fn finish(mut self, reply: &[u8]) {
        if reply.len() <= CACHED_REPLY_BYTES_MAX {
            let reply = Bytes::copy_from_slice(reply);
            let mut shard = self.inner.shard(self.key);
            let mut calls = shard.calls(self.key);
            if let Some(entry) = calls.find(|entry| entry.serial == self.serial) {
                entry.state = State::Done(reply);
            }
            self.finished = true;
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if !self.finished {
            self.inner.shard(self.key).remove(self.key, self.serial);
        }
    }
}

#[cfg(test)]
mod tests;
