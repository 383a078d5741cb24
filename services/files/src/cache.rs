//! Cache of one network thread: files answered without a worker, and never out of date: small ones
//! from memory, larger ones from an open file ([`crate::kept`]); and names with nothing there.
//!
//! An entry is the whole answer to a GET: its head up to `Date`, its content, the head of its 304,
//! and how it is checked ([`crate::freshness`]). That of a name with nothing there is a 404. These
//! have a part of the room of their own, as clients can make names up, and only on the root's own
//! local mount, where each turn sees what has come: none is answered by its age.
//!
//! The key is the path as the client spelled it, and the codings that the client accepts. Other
//! spellings of the same name are other entries, or none: only what was answered once is found.
//!
//! All entries are of one version of the service's home ([`crate::homes`]): with another one the
//! cache is emptied, before anything is found in it.
//!
//! Never cached: what is compressed for its answer and larger than `CACHE_COMPRESSED_BYTES_MAX`,
//! files larger than `CACHE_FILE_BYTES_MAX` that are not local, files changed a moment ago (a
//! second
//! change may leave no trace: see [`crate::identity`]), what a link led to, listings, redirects,
//! other refusals, parts.
//!
//! `quick_cache` evicts (S3-FIFO), by weight: an entry weighs the bytes it takes, a file as much as
//! the largest in memory (so a cache of 16 MiB has at most 256 open), and at least such
//! a part of `bytes_max` that there are never more than `entries_max`. Its hash function is fast
//! and seeded, not cryptographic: keys made to collide cost at most `entries_max` comparisons.
//!
//! Cost: a hit is one lookup by hash, plus the checks once per turn or a comparison of times; no
//! allocation.

use std::cell::Cell;
use std::rc::Rc;

use flatpath_http::PrebuiltHead;
use flatpath_http::header_values::AcceptEncoding;
use http::HeaderValue;
use quick_cache::{Equivalent, Weighter, unsync};

use crate::conditional::Validators;
use crate::freshness::{FreshnessCheck, Lookup, Moment, Use, Validity};
use crate::kept::{Content, Parts};
use crate::limits::{
    CACHE_ABSENT_DIVISOR, CACHE_BYTES_MAX, CACHE_ENTRIES_MAX, CACHE_TARGET_BYTES_MAX, STAT_AGE_NS,
};
use crate::root::Root;

/// The part of a worker's answer that goes to the cache of the network thread.
#[derive(Clone, Debug)]
pub(crate) struct NewEntry {
    pub(crate) target: Box<[u8]>,
    pub(crate) preference: AcceptEncoding,
    pub(crate) answer: Prebuilt,
    pub(crate) lookup: Lookup,
}

/// The answer to a GET, and what must hold for it.
#[derive(Clone, Debug)]
pub(crate) struct Prebuilt {
    /// The head of the 200, or of the 404.
    pub(crate) found: PrebuiltHead,
    pub(crate) content: Content,
    pub(crate) parts: Parts,
    /// `None`: nothing is there. Neither conditions nor ranges are looked at then (RFC 9110,
    /// 13.2.1 and 14.2).
    pub(crate) conditional: Option<Conditional>,
    pub(crate) checks: Box<[FreshnessCheck]>,
}

/// What conditions are compared with, and the answer to those that do not hold.
#[derive(Clone, Debug)]
pub(crate) struct Conditional {
    pub(crate) validators: Validators,
    /// The head of the 304.
    pub(crate) not_modified: PrebuiltHead,
}

impl Conditional {
    /// What it takes on the heap.
    fn bytes(&self) -> usize {
        let tag = self.validators.tag.as_ref();
        self.not_modified.bytes() + tag.map_or(0, HeaderValue::len)
    }
}

/// How much is kept, and for how long.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CacheLimits {
    pub(crate) entries_max: usize,
    pub(crate) bytes_max: usize,
    /// For files that a network thread does not look at.
    pub(crate) age_ns_max: u64,
}

impl Default for CacheLimits {
    fn default() -> Self {
        Self {
            entries_max: CACHE_ENTRIES_MAX,
            bytes_max: CACHE_BYTES_MAX,
            age_ns_max: STAT_AGE_NS,
        }
    }
}

#[derive(Debug)]
pub(crate) struct Cache {
    files: Entries,
    absent: Entries,
    limits: CacheLimits,
    /// Of the home that all of them are of.
    home_version: u64,
}

type Entries = unsync::Cache<Key, Rc<Entry>, ByBytes>;

/// A path and what its client accepts.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Key {
    target: Box<[u8]>,
    preference: AcceptEncoding,
}

/// The same, borrowed.
#[derive(Hash)]
struct KeyRef<'a> {
    target: &'a [u8],
    preference: AcceptEncoding,
}

impl Equivalent<Key> for KeyRef<'_> {
    fn equivalent(&self, key: &Key) -> bool {
        self.preference == key.preference && *self.target == *key.target
    }
}

#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) answer: Prebuilt,
    validity: Cell<Validity>,
}

#[derive(Clone, Debug)]
struct ByBytes {
    bytes_min: u64,
}

impl Weighter<Key, Rc<Entry>> for ByBytes {
    fn weight(&self, key: &Key, entry: &Rc<Entry>) -> u64 {
        let answer = &entry.answer;
        let paths: usize = answer.checks.iter().map(FreshnessCheck::path_bytes).sum();
        let conditional = answer.conditional.as_ref().map_or(0, Conditional::bytes);
        let lists = answer.found.bytes() + conditional + answer.content.weight() + paths;
        let fixed = size_of::<Entry>() + size_of::<(Key, Rc<Entry>)>();
        let bytes = fixed + size_of_val(&*answer.checks) + key.target.len() + lists;
        self.bytes_min.max(bytes as u64)
    }
}

impl Cache {
    pub(crate) fn new(limits: CacheLimits) -> Self {
        let entries = |divisor: usize| {
            let (entries_max, bytes_max) = (limits.entries_max, limits.bytes_max as u64);
            let by_bytes = ByBytes {
                bytes_min: bytes_max.div_ceil(entries_max.max(1) as u64),
            };
            let bytes_max = bytes_max / divisor as u64;
            unsync::Cache::with_weighter(entries_max / divisor, bytes_max, by_bytes)
        };
        Self {
            files: entries(1),
            absent: entries(CACHE_ABSENT_DIVISOR),
            limits,
            home_version: 0,
        }
    }

    /// The version of the home that its entries are of; 0 for none.
    #[inline]
    pub(crate) fn home_version(&self) -> u64 {
        self.home_version
    }

    /// Forgets all, and is of this version from now on.
    pub(crate) fn move_to(&mut self, home_version: u64) {
        self.files.clear();
        self.absent.clear();
        self.home_version = home_version;
    }

    /// The answer for a path and a preference, if it is right at this moment. `at_root` says what
    /// holds of the root, and false without one; it is asked once in a turn.
    pub(crate) fn find(
        &mut self,
        at_root: impl FnOnce(&dyn Fn(&Root) -> bool) -> bool,
        moment: Moment,
        target: &[u8],
        preference: AcceptEncoding,
    ) -> Option<Rc<Entry>> {
        let key = KeyRef { target, preference };
        let entry = self.files.get(&key).or_else(|| self.absent.get(&key));
        let entry = Rc::clone(entry?);
        let confirmed = |root: &Root| entry.answer.checks.iter().all(|it| it.confirms(root));
        let hold = || at_root(&confirmed);
        let mut validity = entry.validity.get();
        let outcome = validity.ask(moment, self.limits.age_ns_max, hold);
        entry.validity.set(validity);
        match outcome {
            Use::Answer => Some(entry),
            Use::Renew => None,
            Use::Drop => {
                self.of(&entry.answer).remove(&key);
                None
            }
        }
    }

    /// The entries that an answer is of.
    fn of(&mut self, answer: &Prebuilt) -> &mut Entries {
        match answer.conditional {
            Some(_) => &mut self.files,
            None => &mut self.absent,
        }
    }

    /// Keeps an answer, in place of the one for the same request if there is one. `now_ns` is the
    /// time of the turn. One of another version of the home is not kept (HM1, what was found under
    /// a version is cached under no other one).
    pub(crate) fn insert(&mut self, new: NewEntry, now_ns: u64) {
        let is_of_home = new.lookup.began.home_version == self.home_version;
        let is_wanted = self.limits.entries_max > 0 && self.limits.bytes_max > 0 && is_of_home;
        if !is_wanted || new.target.len() > CACHE_TARGET_BYTES_MAX {
            return;
        }
        let key = Key {
            target: new.target,
            preference: new.preference,
        };
        let entry = Entry {
            answer: new.answer,
            validity: Cell::new(new.lookup.validity(now_ns)),
        };
        self.of(&entry.answer).insert(key, Rc::new(entry));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conditional::Modified;
    use crate::freshness::{LookupStart, Observation};
    use crate::limits::STAT_AGE_REFRESH_DIVISOR;
    use crate::siblings::Forms;
    use crate::stat::Locality;
    use bytes::Bytes;
    use http::{HeaderMap, StatusCode};
    use std::collections::HashMap;
    use std::fs;
    use std::time::Instant;

    const AGE_NS_MAX: u64 = 1_000_000_000_000;

    struct Bench {
        _folder: tempfile::TempDir,
        root: Root,
        cache: Cache,
        locality: Locality,
        now_ns: u64,
        home_version: u64,
        writes: u64,
    }

    fn head(status: StatusCode) -> PrebuiltHead {
        PrebuiltHead::new(status, &HeaderMap::new(), None)
    }

    /// A cache over a root with one file, whose state every entry is about.
    fn bench(entries_max: usize, bytes_max: usize) -> Bench {
        let folder = tempfile::tempdir().expect("tempdir");
        fs::write(folder.path().join("file"), "content").expect("write");
        let root = Root::open(folder.path()).expect("open");
        let cache = Cache::new(CacheLimits {
            entries_max,
            bytes_max,
            age_ns_max: AGE_NS_MAX,
        });
        Bench {
            _folder: folder,
            root,
            cache,
            locality: Locality::Local,
            // Later than a test takes, as ages are counted back from it.
            now_ns: 10 * AGE_NS_MAX,
            home_version: 0,
            writes: 0,
        }
    }

    impl Bench {
        fn insert(&mut self, target: &str, body: &str) {
            let found = self.root.find(b"file").expect("found");
            let observations = [Observation::File(b"file".to_vec(), found.identity)];
            let new = NewEntry {
                target: target.as_bytes().into(),
                preference: AcceptEncoding::PLAIN,
                answer: Prebuilt {
                    found: head(StatusCode::OK),
                    content: Content::Bytes(Bytes::copy_from_slice(body.as_bytes())),
                    parts: Parts::All,
                    conditional: Some(Conditional {
                        validators: Validators {
                            tag: None,
                            modified: Modified::Unknown,
                        },
                        not_modified: head(StatusCode::NOT_MODIFIED),
                    }),
                    checks: FreshnessCheck::of_observations(&self.root, &observations)
                        .expect("they hold"),
                },
                lookup: Lookup {
                    began: LookupStart {
                        at: Instant::now(),
                        home_version: self.home_version,
                        writes: 0,
                    },
                    locality: self.locality,
                },
            };
            self.cache.insert(new, self.now_ns);
            self.assert_sound();
        }

        fn moment(&self, turn_number: u64) -> Moment {
            Moment {
                turn_number,
                now_ns: self.now_ns,
                writes: self.writes,
            }
        }

        fn body(&mut self, turn_number: u64, target: &str) -> Option<Bytes> {
            let moment = self.moment(turn_number);
            let target = target.as_bytes();
            let root = &self.root;
            let at_root = |holds: &dyn Fn(&Root) -> bool| holds(root);
            let entry = self
                .cache
                .find(at_root, moment, target, AcceptEncoding::PLAIN);
            let body = entry.and_then(|entry| match &entry.answer.content {
                Content::Bytes(bytes) => Some(bytes.clone()),
                Content::File { .. } => None,
            });
            self.assert_sound();
            body
        }

        fn assert_sound(&self) {
            let Cache { files, limits, .. } = &self.cache;
            assert!(files.weight() <= limits.bytes_max as u64);
            assert!(files.len() <= limits.entries_max);
        }
    }

    #[test]
    fn what_was_put_in_is_found_under_its_target_and_preference_only() {
        let mut bench = bench(10, 1 << 20);
        bench.insert("/file", "content");
        assert_eq!(bench.body(1, "/file").as_deref(), Some(&b"content"[..]));
        assert_eq!(bench.body(1, "/File"), None);
        let brotli = Forms::default().accepted([&b"br"[..]].into_iter());
        let moment = bench.moment(1);
        assert!(
            bench
                .cache
                .find(|holds| holds(&bench.root), moment, b"/file", brotli)
                .is_none()
        );
    }

    #[test]
    fn an_entry_whose_file_changed_is_dropped_in_the_next_turn() {
        let mut bench = bench(10, 1 << 20);
        bench.insert("/file", "content");
        assert!(bench.body(1, "/file").is_some());
        fs::write(bench._folder.path().join("file"), "other content").expect("write");
        // Requests of turn 1 had all arrived before the file was looked at.
        assert!(bench.body(1, "/file").is_some());
        assert_eq!(bench.body(2, "/file"), None);
        assert!(bench.cache.files.is_empty());
    }

    #[test]
    fn a_remote_file_is_not_looked_at_within_its_age_but_renewed_by_one_request() {
        let mut bench = bench(10, 1 << 20);
        bench.locality = Locality::Remote;
        bench.insert("/file", "content");
        fs::remove_file(bench._folder.path().join("file")).expect("remove");
        assert!(bench.body(1, "/file").is_some(), "it would have noticed");
        bench.now_ns += AGE_NS_MAX / STAT_AGE_REFRESH_DIVISOR;
        assert!(bench.body(2, "/file").is_none(), "one looks again");
        assert!(bench.body(2, "/file").is_some(), "the others are answered");
        bench.now_ns += AGE_NS_MAX / STAT_AGE_REFRESH_DIVISOR - 1;
        assert!(bench.body(3, "/file").is_none(), "too old");
        assert!(bench.cache.files.is_empty());
    }

    #[test]
    fn a_remote_file_is_asked_for_again_after_a_write_through_the_service() {
        let mut bench = bench(10, 1 << 20);
        bench.locality = Locality::Remote;
        bench.insert("/file", "content");
        assert!(bench.body(1, "/file").is_some());
        bench.writes += 1;
        assert!(bench.body(2, "/file").is_none());
    }

    #[test]
    fn another_home_ends_what_was_found_before_also_if_it_came_later() {
        for locality in [Locality::Local, Locality::Remote] {
            let mut bench = bench(10, 1 << 20);
            bench.locality = locality;
            bench.insert("/file", "content");
            assert!(bench.body(1, "/file").is_some());
            bench.cache.move_to(1);
            assert!(bench.body(2, "/file").is_none());
            bench.insert("/file", "of the home before");
            assert!(bench.body(2, "/file").is_none());
            bench.home_version = 1;
            bench.insert("/file", "content");
            assert!(bench.body(2, "/file").is_some());
        }
    }

    #[test]
    fn a_new_answer_takes_the_place_of_the_old_one() {
        let mut bench = bench(10, 1 << 20);
        bench.insert("/file", "old");
        bench.insert("/other", "other");
        bench.insert("/file", "new");
        assert_eq!(bench.body(1, "/file").as_deref(), Some(&b"new"[..]));
        assert_eq!(bench.cache.files.len(), 2);
    }

    #[test]
    fn entries_that_are_used_outlive_those_that_are_not() {
        let mut bench = bench(4, 1 << 20);
        for name in ["/a", "/b", "/c", "/d"] {
            bench.insert(name, "x");
        }
        for step in 0..40 {
            assert!(bench.body(step + 1, "/a").is_some(), "step {step}");
            bench.insert(&format!("/new-{step}"), "x");
        }
    }

    #[test]
    fn bytes_are_bounded_too_and_what_exceeds_them_alone_is_not_kept() {
        let one = 2_000;
        let mut bench = bench(1_000, 3 * one);
        for name in 0..50 {
            bench.insert(&format!("/{name}"), &"x".repeat(1_000));
        }
        assert!(bench.cache.files.len() >= 2);
        bench.insert("/large", &"x".repeat(4 * one));
        assert_eq!(bench.body(1, "/large"), None);
        assert!(
            !bench.cache.files.is_empty(),
            "it did not push out the others"
        );
    }

    #[test]
    fn a_cache_without_room_keeps_nothing() {
        for (entries_max, bytes_max) in [(0, 1 << 20), (10, 0)] {
            let mut bench = bench(entries_max, bytes_max);
            bench.insert("/file", "content");
            assert_eq!(bench.body(1, "/file"), None);
        }
    }

    #[test]
    fn long_targets_are_not_kept() {
        let mut bench = bench(10, 1 << 20);
        let long = format!("/{}", "x".repeat(CACHE_TARGET_BYTES_MAX));
        bench.insert(&long, "content");
        assert_eq!(bench.body(1, &long), None);
        bench.insert(&long[..CACHE_TARGET_BYTES_MAX], "content");
        assert!(bench.body(1, &long[..CACHE_TARGET_BYTES_MAX]).is_some());
    }

    #[test]
    fn model_what_is_found_is_what_was_put_in_last() {
        let mut bench = bench(8, 20_000);
        let mut oracle = HashMap::new();
        let mut random = fastrand::Rng::with_seed(7);
        for turn in 1..3_000 {
            let name = format!("/{}", random.u8(..24));
            if random.u8(..4) == 0 {
                let body = "x".repeat(random.usize(..4_000));
                bench.insert(&name, &body);
                oracle.insert(name, body);
            } else if let Some(found) = bench.body(turn, &name) {
                assert_eq!(found, oracle[&name].as_bytes());
            }
        }
        assert_eq!(bench.cache.files.len().min(2), 2, "something was kept");
    }
}
