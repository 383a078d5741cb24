//! Replies to calls that must not be executed twice: a bounded duplicate request cache.
//!
//! A client that lost its connection sends its calls again. A repeated REMOVE must be answered with
//! the first one's success and not with "no such file". A call is known by where it comes from, its
//! number, what it asks for, who asks, and a keyed checksum of all its arguments: another principal
//! never gets a reply that was not made for it, and a number used again for something else is a new
//! call, also when it is a WRITE of other data to the same place.
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
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
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
    /// client's last one, and the call is still being executed. Ask again a little later, and in
    /// the end [`look_up_anew`](DuplicateRequestCache::look_up_anew).
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
    /// Tells entries of one key apart.
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
    shards: Box<[Mutex<Shard>]>,
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
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
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
    /// remembers that it is being executed.
    pub(crate) fn look_up(&self, key: RequestKey, origin: &Arc<Origin>, now_ns: u64) -> Lookup {
        let mut shard = self.0.shard(key);
        if let Some(known) = shard.find(key, origin, now_ns) {
            return known;
        }
        if shard.is_unclear(key, now_ns) {
            return Lookup::Unclear;
        }
        self.insert(shard, key, origin, now_ns)
    }

    /// The same, and what is unclear is another program's call, or in progress.
    pub(crate) fn look_up_anew(
        &self,
        key: RequestKey,
        origin: &Arc<Origin>,
        now_ns: u64,
    ) -> Lookup {
        let mut shard = self.0.shard(key);
        match shard.find(key, origin, now_ns) {
            Some(Lookup::Unclear) => return Lookup::InProgress,
            Some(known) => return known,
            None => {}
        }
        self.insert(shard, key, origin, now_ns)
    }

    fn insert(
        &self,
        mut shard: MutexGuard<'_, Shard>,
        key: RequestKey,
        origin: &Arc<Origin>,
        now_ns: u64,
    ) -> Lookup {
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
        shard.entries.insert(key, entry);
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
        let shards = self.0.shards.iter().map(lock);
        shards
            .map(|shard| shard.entries.len() + shard.twins.len())
            .sum()
    }
}

impl Inner {
    fn shard(&self, key: RequestKey) -> MutexGuard<'_, Shard> {
        lock(&self.shards[usize::from(key.0.to_le_bytes()[0]) % SHARDS])
    }
}

fn lock(shard: &Mutex<Shard>) -> MutexGuard<'_, Shard> {
    // Nothing that could panic runs under the lock.
    shard.lock().unwrap_or_else(PoisonError::into_inner)
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
    fn find(&mut self, key: RequestKey, origin: &Arc<Origin>, now_ns: u64) -> Option<Lookup> {
        let first = self.entries.get_mut(&key);
        if let Some(known) = first.and_then(|entry| entry.answer(origin, now_ns)) {
            return Some(known);
        }
        let mut twins = self.twins.iter_mut().filter(|(other, _)| *other == key);
        twins.find_map(|(_, entry)| entry.answer(origin, now_ns))
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

    fn entry(&mut self, key: RequestKey, serial: u64) -> Option<&mut Entry> {
        let first = self.entries.get_mut(&key);
        let twins = self.twins.iter_mut();
        let twins = twins
            .filter(|(other, _)| *other == key)
            .map(|twin| &mut twin.1);
        first
            .into_iter()
            .chain(twins)
            .find(|entry| entry.serial == serial)
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
            if let Some(entry) = self.inner.shard(self.key).entry(self.key, self.serial) {
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

    fn origin(port: u16) -> Arc<Origin> {
        Origin::new(Some(([127, 0, 0, 1], port).into()))
    }

    fn ticket(duplicates: &DuplicateRequestCache, key: RequestKey) -> Ticket {
        match duplicates.look_up(key, &origin(700), 0) {
            Lookup::New(Some(ticket)) => ticket,
            _ => panic!("a new call with room has a ticket"),
        }
    }

    #[test]
    fn a_repeated_call_gets_the_first_reply() {
        let duplicates = DuplicateRequestCache::new(64);
        let key = duplicates.key(&call(1, 1000), &Arguments::new(b"name"));
        let first = ticket(&duplicates, key);
        assert!(matches!(
            duplicates.look_up_anew(key, &origin(700), 0),
            Lookup::InProgress
        ));
        first.finish(b"reply");
        let again = duplicates.look_up(key, &origin(700), 0);
        assert!(matches!(again, Lookup::Done(reply) if reply == b"reply"[..]));
    }

    #[test]
    fn whatever_differs_makes_another_call() {
        let duplicates = DuplicateRequestCache::new(64);
        let arguments = Arguments::new(b"name");
        let key = duplicates.key(&call(1, 1000), &arguments);
        assert_eq!(key, duplicates.key(&call(1, 1000), &arguments));
        assert_ne!(key, duplicates.key(&call(2, 1000), &arguments), "number");
        assert_ne!(key, duplicates.key(&call(1, 1001), &arguments), "principal");
        assert_ne!(
            key,
            duplicates.key(&call(1, 1000), &Arguments::new(b"other")),
            "arguments"
        );
        let mut other = call(1, 1000);
        other.procedure = 13;
        assert_ne!(key, duplicates.key(&other, &arguments), "procedure");
        other = call(1, 1000);
        other.peer = Some("127.0.0.2:700".parse().expect("an address"));
        assert_ne!(key, duplicates.key(&other, &arguments), "client");
        other.peer = Some("127.0.0.1:900".parse().expect("an address"));
        assert_eq!(
            key,
            duplicates.key(&other, &arguments),
            "a new connection is the same client"
        );
    }

    #[test]
    fn a_write_that_differs_in_any_one_bit_is_another_call() {
        let duplicates = DuplicateRequestCache::new(64);
        let mut data = vec![7; 70_000];
        let key = duplicates.key(&call(1, 1), &Arguments::new(&data));
        for at in (0..data.len()).step_by(331).chain([data.len() - 1]) {
            data[at] ^= 1 << (at % 8);
            let other = duplicates.key(&call(1, 1), &Arguments::new(&data));
            assert_ne!(key, other, "byte {at}");
            data[at] ^= 1 << (at % 8);
        }
        assert_eq!(key, duplicates.key(&call(1, 1), &Arguments::new(&data)));
        assert_ne!(
            key,
            duplicates.key(&call(1, 1), &Arguments::new(&data[1..]))
        );
    }

    #[test]
    fn a_ticket_that_is_dropped_forgets_its_call() {
        let duplicates = DuplicateRequestCache::new(64);
        let key = duplicates.key(&call(1, 1), &Arguments::new(b""));
        drop(ticket(&duplicates, key));
        assert!(duplicates.len() == 0);
        ticket(&duplicates, key).finish(&[0; CACHED_REPLY_BYTES_MAX + 1]);
        assert!(
            duplicates.len() == 0,
            "a reply beyond the bound is not kept"
        );
    }

    #[test]
    fn a_full_cache_forgets_the_oldest_finished_call_and_never_one_in_progress() {
        let duplicates = DuplicateRequestCache::new(SHARDS);
        let mut open = Vec::new();
        for xid in 0..1000 {
            let key = duplicates.key(&call(xid, 1), &Arguments::new(b""));
            if let Lookup::New(Some(ticket)) = duplicates.look_up(key, &origin(700), 0) {
                open.push((key, ticket));
            }
        }
        assert_eq!(
            open.len(),
            SHARDS,
            "one per shard, the others found no room"
        );
        for (key, _) in &open {
            assert!(matches!(
                duplicates.look_up_anew(*key, &origin(700), 0),
                Lookup::InProgress
            ));
        }
        for (_, ticket) in open {
            ticket.finish(b"done");
        }
        for xid in 1000..5000 {
            let key = duplicates.key(&call(xid, 1), &Arguments::new(b""));
            ticket(&duplicates, key).finish(b"done");
            assert!(duplicates.len() <= SHARDS);
        }
    }

    /// A call of `from` was executed; whether the one like it of `to` gets its reply.
    fn answered(from: &Arc<Origin>, to: &Arc<Origin>, after_ns: u64) -> bool {
        let duplicates = DuplicateRequestCache::new(64);
        let key = duplicates.key(&call(1, 1), &Arguments::new(b""));
        match duplicates.look_up(key, from, 7) {
            Lookup::New(Some(ticket)) => ticket.finish(b"reply"),
            _ => panic!("a new call with room has a ticket"),
        }
        matches!(duplicates.look_up(key, to, 7 + after_ns), Lookup::Done(_))
    }

    #[test]
    fn another_connection_is_answered_only_after_the_first_one_broke() {
        let (first, second) = (origin(700), origin(701));
        assert!(!answered(&first, &second, 0), "it is open: another program");
        first.close();
        assert!(answered(&first, &second, 0), "it broke");
        assert!(answered(&first, &second, CACHED_REPLY_MOVED_NS_MAX));
        assert!(!answered(&first, &second, CACHED_REPLY_MOVED_NS_MAX + 1));
        let first = origin(700);
        first.mark_answered();
        first.close();
        assert!(!answered(&first, &second, 0), "it had its replies");
        assert!(answered(&first, &origin(700), 0), "the same port");
        let (unknown, other) = (Origin::new(None), Origin::new(None));
        assert!(!answered(&unknown, &other, 0), "nobody is like nobody");
        assert!(answered(&unknown, &unknown, 0));
    }

    #[test]
    fn no_reply_is_given_after_its_time() {
        let first = origin(700);
        assert!(answered(&first, &first, CACHED_REPLY_AGE_NS_MAX));
        assert!(!answered(&first, &first, CACHED_REPLY_AGE_NS_MAX + 1));
    }

    #[test]
    fn a_reply_that_moved_stays_with_the_connection_it_moved_to() {
        let duplicates = DuplicateRequestCache::new(64);
        let key = duplicates.key(&call(1, 1), &Arguments::new(b""));
        let (first, second, third) = (origin(700), origin(701), origin(702));
        let Lookup::New(Some(made)) = duplicates.look_up(key, &first, 0) else {
            panic!("it is new");
        };
        first.close();
        let again = duplicates.look_up(key, &second, 0);
        assert!(matches!(again, Lookup::Unclear), "soon there is a reply");
        let again = duplicates.look_up_anew(key, &second, 0);
        assert!(matches!(again, Lookup::InProgress), "it runs for long");
        made.finish(b"reply");
        assert!(matches!(
            duplicates.look_up(key, &second, 0),
            Lookup::Done(_)
        ));
        assert!(matches!(
            duplicates.look_up(key, &third, 0),
            Lookup::Unclear
        ));
        let anew = duplicates.look_up_anew(key, &third, 0);
        assert!(matches!(anew, Lookup::New(Some(_))));
    }

    #[test]
    fn clients_with_the_same_calls_at_once_each_get_their_own_reply() {
        let duplicates = DuplicateRequestCache::new(64);
        let key = duplicates.key(&call(1, 1), &Arguments::new(b""));
        let origins: Vec<_> = (0..3 * CACHED_TWINS_MAX as u16)
            .map(|at| origin(700 + at))
            .collect();
        let mut tickets = Vec::new();
        for origin in &origins {
            let Lookup::New(ticket) = duplicates.look_up_anew(key, origin, 0) else {
                panic!("another client's call is not this one's");
            };
            tickets.push(ticket);
        }
        let kept = tickets.iter().filter(|ticket| ticket.is_some()).count();
        assert_eq!(kept, CACHED_TWINS_MAX + 1, "the others found no room");
        assert_eq!(duplicates.len(), kept);
        for (number, ticket) in tickets.into_iter().enumerate().rev() {
            if let Some(ticket) = ticket.filter(|_| number != 3) {
                ticket.finish(&[u8::try_from(number).expect("small")]);
            }
        }
        for (number, origin) in origins.iter().enumerate().take(kept) {
            match duplicates.look_up_anew(key, origin, 0) {
                Lookup::Done(reply) => assert_eq!(usize::from(reply[0]), number),
                Lookup::New(_) => assert_eq!(number, 3, "that one was dropped"),
                Lookup::InProgress | Lookup::Unclear => panic!("all have ended"),
            }
        }
        for shard in &duplicates.0.shards {
            let shard = lock(shard);
            assert_eq!(shard.order.len(), shard.entries.len());
        }
    }
}
