//! Pairing: joins an event's producer with its consumer when both name the same key.
//!
//! Other names: Linux `irqbypass`. Two parties that do not know each other register under one key;
//! as soon as both are there they are connected and need no middleman. One producer and one
//! consumer per key. The registry moves no events; it introduces.
//!
//! | may run beside | register                     | end of a registration | callbacks |
//! |----------------|------------------------------|-----------------------|-----------|
//! | same key       | yes: one wins a side         | yes: waits            | no        |
//! | another key    | yes                          | yes                   | yes       |
//!
//! Callbacks run without any lock. While they run for a pair its entry is busy: a thread that ends
//! one of its two registrations waits until they are done. Callbacks may register and end under
//! other keys, if pairs do not wait for each other in a circle. To end the registration for which
//! they run would wait for ever; that panics.
//!
//! Invariants
//! - R1: a key has an entry exactly while a side is registered under it or about to be. An entry
//!   has each side at most once, and an object is in at most one entry.
//! - R2: both sides are registered under a key exactly if they are connected. Registering succeeds
//!   as a whole or leaves nothing behind.
//! - R3: a [`Registration`] owns the side, and alone takes it out, once. So the end of one that
//!   lost does not evict the one that won, nor does the end of one that has ended
//!   already because a callback of its end panicked.
//! - R4: objects outlive their registration and its callbacks: the entry owns a reference.
//! - R5: `start` follows every `stop`, also when connecting fails or panics.
//!
//! Ordering: entries are read under their shard's lock only; nothing here is lock-free. The lock is
//! a word that is spun on.
//! - RE1 object: the end of a registration (Release) -> the swap that claims the object for another
//!   one (Acquire); of several swaps at once one wins.
//!
//! Cost: registering and ending are O(1): one lock of a shard, a hash and a short probe; the same
//! again, and the callbacks, if there is a peer. 256 shards of open addressing, each on cache lines
//! of its own: 32 KiB for an empty registry, 32 bytes per slot, filled to between an eighth and
//! three quarters. The hash is keyed at random, so that a peer that chooses the keys cannot easily
//! aim at one shard; it is not a cryptographic one.

use crate::sync::{Arc, AtomicBool, Ordering, Padded, edge};
use shard::{Party, Shard};
use std::fmt;
use std::ops::Deref;

pub use introduce::{Consumer, Producer};

mod introduce;
mod shard;

/// More than four times the processors of a large machine. Few under the model checkers, which pay
/// for each.
const SHARDS: usize = match () {
    () if cfg!(any(loom, shuttle)) => 2,
    () if cfg!(miri) => 8,
    () => 256,
};

const CLAIM: Ordering = edge!("pairing_claim_acquire", Acquire, Relaxed);
const RELEASE: Ordering = edge!("pairing_release", Release, Relaxed);

/// The name of a pair. Two keys are the same if their words are. Give each kind of event a type of
/// its own, and a key to one event at a time: any two sides with the same word become a pair.
pub trait PairingKey: Copy {
    /// The key as a word. 0 is the empty key, under which no side can register.
    fn word(self) -> u64;
}

/// An object that can be registered, once at a time.
#[derive(Debug)]
pub struct Endpoint<T: ?Sized> {
    is_registered: AtomicBool,
    object: T,
}

impl<T> Endpoint<T> {
    /// Wraps an object so that it can be registered.
    pub fn new(object: T) -> Endpoint<T> {
        Endpoint {
            is_registered: AtomicBool::new(false),
            object,
        }
    }
}

impl<T: Default> Default for Endpoint<T> {
    fn default() -> Endpoint<T> {
        Endpoint::new(T::default())
    }
}

impl<T: ?Sized> Endpoint<T> {
    /// Whether the object is registered, or just about to be: a hint, if other threads register it.
    pub fn is_registered(&self) -> bool {
        self.is_registered.load(Ordering::Relaxed)
    }

    /// Whether the caller may register it. Of several at once one may.
    fn claim(&self) -> bool {
        // ORDER: RE1. Acquire: what was done under the registration before has ended.
        !self.is_registered.swap(true, CLAIM)
    }

    fn release(&self) {
        // ORDER: RE1: releases what was done under the registration.
        self.is_registered.store(false, RELEASE);
    }
}

impl<T: ?Sized> Deref for Endpoint<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.object
    }
}

/// Why an object was not registered. Nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
// Exhaustive: a caller has to answer each.
pub enum RegisterError<E> {
    /// Its word is 0.
    EmptyKey,
    /// Another object is registered on this side of the key.
    Taken,
    RegisteredTwice,
    Full,
    NoMemory,
    /// The peer was there, and one of the two refused.
    Connect(E),
}

crate::impl_error! {
    RegisterError<E> {
        Self::EmptyKey => "the key is empty",
        Self::Taken => "the key is taken",
        Self::RegisteredTwice => "the object is registered already",
        Self::Full => "the registry is full",
        Self::NoMemory => "no memory for the registry",
        Self::Connect(cause) => "connecting failed: {cause}",
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Producer,
    Consumer,
}

/// Producers and consumers by key. See the module's header.
///
/// ```
/// use flatpath_structures::pairing::{Consumer, Endpoint, PairingKey, Producer, Registry};
/// use std::sync::Arc;
///
/// #[derive(Clone, Copy)]
/// struct Event(u64);
/// impl PairingKey for Event {
///     fn word(self) -> u64 {
///         self.0
///     }
/// }
///
/// struct Device(&'static str);
/// struct Guest(&'static str);
/// impl Producer<Guest> for Device {
///     type Error = std::convert::Infallible;
///     fn add_consumer(&self, guest: &Guest) -> Result<(), Self::Error> {
///         println!("{} feeds {} directly", self.0, guest.0);
///         Ok(())
///     }
/// }
/// impl Consumer<Device> for Guest {
///     type Error = std::convert::Infallible;
/// }
///
/// let registry = Registry::new(1_000);
/// let device = Arc::new(Endpoint::new(Device("disk")));
/// let guest = Arc::new(Endpoint::new(Guest("guest")));
/// let produced = Registry::register_producer(&registry, Event(7), device).expect("free");
/// let consumed = Registry::register_consumer(&registry, Event(7), guest).expect("free");
/// assert!(registry.is_connected(Event(7)));
/// drop(produced);
/// assert!(!registry.is_connected(Event(7)) && registry.len() == 1);
/// drop(consumed);
/// ```
pub struct Registry<K, P: ?Sized, C: ?Sized> {
    shards: Box<[Padded<Shard<P, C>>; SHARDS]>,
    hash: Hash,
    entries_per_shard_max: usize,
    /// Keys are looked at, not kept.
    key: std::marker::PhantomData<fn(K)>,
}

impl<K, P, C> Registry<K, P, C>
where
    K: PairingKey,
    P: Producer<C> + ?Sized,
    C: Consumer<P, Error = P::Error> + ?Sized,
{
    /// An empty registry for about `entries_max` keys. The bound is kept by each shard for itself,
    /// with some room for chance: that many fit almost certainly, and a few thousand more may.
    pub fn new(entries_max: u32) -> Registry<K, P, C> {
        Registry {
            shards: Box::new([(); SHARDS].map(|()| Padded(Shard::new()))),
            hash: Hash::new(),
            entries_per_shard_max: entries_per_shard_max(entries_max),
            key: std::marker::PhantomData,
        }
    }

    /// Registers a producer, and connects it if the key has a consumer. `registry` is a
    /// reference or an [`Arc`]: the registration keeps it.
    ///
    /// # Errors
    /// [`RegisterError`]. Then the consumer, if there is one, stays registered and unconnected.
    pub fn register_producer<R: Deref<Target = Self>>(
        registry: R,
        key: K,
        producer: Arc<Endpoint<P>>,
    ) -> Result<Registration<R>, RegisterError<P::Error>> {
        registry.register(key.word(), Party::Producer(producer))?;
        Ok(Registration {
            registry,
            word: key.word(),
            side: Side::Producer,
        })
    }

    /// Registers a consumer, and connects it if the key has a producer. `registry` is a
    /// reference or an [`Arc`]: the registration keeps it.
    ///
    /// # Errors
    /// [`RegisterError`]. Then the producer, if there is one, stays registered and unconnected.
    pub fn register_consumer<R: Deref<Target = Self>>(
        registry: R,
        key: K,
        consumer: Arc<Endpoint<C>>,
    ) -> Result<Registration<R>, RegisterError<P::Error>> {
        registry.register(key.word(), Party::Consumer(consumer))?;
        Ok(Registration {
            registry,
            word: key.word(),
            side: Side::Consumer,
        })
    }

    /// Whether both sides of `key` are registered and connected at this moment.
    pub fn is_connected(&self, key: K) -> bool {
        let spot = self.hash.spot(key.word());
        spot.word != 0 && self.shard(spot).is_connected(spot)
    }

    /// From now on the registry gets no memory, or gets it again: what an allocator without memory
    /// would do. For tests and simulations.
    pub fn starve(&self, is_out_of_memory: bool) {
        for shard in self.shards.iter() {
            shard.starve(is_out_of_memory);
        }
    }

    /// Keys with at least one side registered, roughly. Looks at all shards; for display.
    pub fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.len()).sum()
    }

    /// Keys with both sides registered and connected, roughly. Looks at all shards; for display.
    pub fn pairs(&self) -> usize {
        self.shards.iter().map(|shard| shard.pairs()).sum()
    }

    /// Pairs that were connected since the start. Looks at all shards; for display.
    pub fn matched(&self) -> u64 {
        self.shards.iter().map(|shard| shard.matched()).sum()
    }

    /// Whether nothing is registered, roughly.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    #[inline]
    fn register(&self, word: u64, party: Party<P, C>) -> Result<(), RegisterError<P::Error>> {
        if word == 0 {
            return Err(RegisterError::EmptyKey);
        }
        if !party.claim() {
            return Err(RegisterError::RegisteredTwice);
        }
        let spot = self.hash.spot(word);
        let shard = self.shard(spot);
        shard.register(&self.hash, self.entries_per_shard_max, spot, party)
    }

    #[inline]
    fn shard(&self, spot: Spot) -> &Shard<P, C> {
        &self.shards[spot.shard()]
    }
}

impl<K, P: ?Sized, C: ?Sized> fmt::Debug for Registry<K, P, C> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Registry")
            .field("entries_per_shard_max", &self.entries_per_shard_max)
            .finish_non_exhaustive()
    }
}

/// A [`Registration`]'s view of its registry. Only registries have it.
pub trait Registered: sealed::Sealed {}

impl<K, P, C> Registered for Registry<K, P, C>
where
    K: PairingKey,
    P: Producer<C> + ?Sized,
    C: Consumer<P, Error = P::Error> + ?Sized,
{
}

mod sealed {
    /// Ends a registration, whatever the types of its registry are; `word` is 0 as soon as the
    /// side goes.
    pub trait Sealed {
        fn end(&self, word: &mut u64, which: Which);
    }

    /// A side, for the trait above, which is public in name only.
    #[derive(Clone, Copy, Debug)]
    pub struct Which(pub(super) super::Side);
}

impl<K, P, C> sealed::Sealed for Registry<K, P, C>
where
    K: PairingKey,
    P: Producer<C> + ?Sized,
    C: Consumer<P, Error = P::Error> + ?Sized,
{
    fn end(&self, word: &mut u64, which: sealed::Which) {
        let spot = self.hash.spot(*word);
        self.shard(spot).end(&self.hash, spot, which.0, word);
    }
}

/// Holds a side of a key. Its end, by [`Registration::end`] or by dropping it, disconnects the
/// pair, waits for callbacks that run for it on other threads, and frees the side.
#[must_use = "the registration ends when this is dropped"]
pub struct Registration<R>
where
    R: Deref,
    R::Target: Registered,
{
    registry: R,
    /// 0 once it has ended.
    word: u64,
    side: Side,
}

impl<R> Registration<R>
where
    R: Deref,
    R::Target: Registered,
{
    /// Ends the registration. Returns whether it had not ended yet: the second time does nothing.
    ///
    /// # Panics
    /// If called from a callback of this very pair, which would wait for itself: nothing has ended
    /// then. If a callback panics: the registration has ended all the same, and the peer stays.
    pub fn end(&mut self) -> bool {
        let had_not_ended = self.word != 0;
        if had_not_ended {
            sealed::Sealed::end(&*self.registry, &mut self.word, sealed::Which(self.side));
        }
        had_not_ended
    }
}

impl<R> Drop for Registration<R>
where
    R: Deref,
    R::Target: Registered,
{
    fn drop(&mut self) {
        self.end();
    }
}

impl<R> fmt::Debug for Registration<R>
where
    R: Deref,
    R::Target: Registered,
{
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Registration")
            .field("word", &self.word)
            .field("side", &self.side)
            .finish_non_exhaustive()
    }
}

/// A hash keyed at random: two multiplications, each folded. One is not enough: for one key of the
/// hash in two hundred, words at equal distances, as numbers and addresses are, crowd in a few
/// shards.
#[derive(Debug)]
struct Hash {
    keys: [u64; 2],
}

impl Hash {
    fn new() -> Hash {
        // The models want the same run each time.
        #[cfg(any(loom, shuttle))]
        let keys = [0x243f_6a88_85a3_08d3, 0x1319_8a2e_0370_7345];
        #[cfg(not(any(loom, shuttle)))]
        let keys = [(); 2].map(|()| {
            use std::hash::{BuildHasher, RandomState};
            RandomState::new().hash_one(0_u8)
        });
        Hash { keys }
    }

    #[inline]
    fn spot(&self, word: u64) -> Spot {
        let once = folded(word ^ self.keys[0], self.keys[1] | 1);
        Spot {
            word,
            hash: folded(once ^ self.keys[1], self.keys[0] | 1),
        }
    }
}

/// Both halves of a product, one over the other.
#[inline]
fn folded(left: u64, right: u64) -> u64 {
    let product = u128::from(left) * u128::from(right);
    product as u64 ^ (product >> 64) as u64
}

/// Keys that a shard takes, if all shards together are to take `entries_max`: eight standard
/// deviations more than its share, and something for the small ones.
fn entries_per_shard_max(entries_max: u32) -> usize {
    let share = (entries_max as usize).div_ceil(SHARDS);
    share + 8 * share.isqrt() + 16
}

/// A key's word and its hash, which says where to look for it.
#[derive(Clone, Copy)]
struct Spot {
    word: u64,
    hash: u64,
}

impl Spot {
    /// The number of its shard. The lower bits choose the slot in the shard.
    #[inline]
    fn shard(self) -> usize {
        (self.hash >> (u64::BITS - SHARDS.ilog2())) as usize % SHARDS
    }
}

#[cfg(test)]
mod tests;
