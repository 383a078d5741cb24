//! Hot small files of one network thread: answered without a worker, and not out of date.
//!
//! An entry is the whole answer to a GET: its head up to `Date`, its body, the head of its 304, and
//! how it is checked ([`crate::freshness`]).
//!
//! The key is the path as the client spelled it, and what codings it takes. Other spellings of the
//! same name are other entries, or none: only what was answered once can be found.
//!
//! What is never kept: files larger than `HOT_FILE_BYTES_MAX`, files changed a moment ago (a second
//! change may leave no trace: see [`crate::identity`]), what a link led to, listings, redirects,
//! refusals, parts.
//!
//! Room is made by second chance ("clock"): a hand goes round the entries; one that was used since
//! it came by last is spared, once. After `LOOKS_MAX` spared ones the next goes in any case, so
//! that one insertion never walks the whole cache.
//!
//! Cost: a hit is one lookup by hash, plus the witnesses once per turn or a comparison of times; no
//! allocation.

use std::collections::HashMap;
use std::rc::Rc;

use bytes::Bytes;

use crate::conditional::Validators;
use crate::encoding::Preference;
use crate::freshness::{Check, Looked, Moment, Use};
use crate::limits::{HOT_BYTES_MAX, HOT_ENTRIES_MAX, HOT_TARGET_BYTES_MAX, STAT_AGE_NS};
use crate::root::Root;
use crate::witness::Witness;

/// Entries spared in a row.
const LOOKS_MAX: usize = 8;

/// What a worker gives to the network thread along with its answer.
#[derive(Clone, Debug)]
pub(crate) struct Note {
    pub(crate) target: Box<[u8]>,
    pub(crate) class: usize,
    /// The head of the 200.
    pub(crate) found: Box<[u8]>,
    /// The head of the 304.
    pub(crate) not_modified: Box<[u8]>,
    pub(crate) body: Bytes,
    pub(crate) validators: Validators,
    pub(crate) witnesses: Box<[Witness]>,
    pub(crate) looked: Looked,
}

/// How much is kept, and for how long.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HotLimits {
    pub(crate) entries_max: usize,
    pub(crate) bytes_max: usize,
    /// For files that a network thread does not look at.
    pub(crate) age_ns_max: u64,
}

impl Default for HotLimits {
    fn default() -> Self {
        Self {
            entries_max: HOT_ENTRIES_MAX,
            bytes_max: HOT_BYTES_MAX,
            age_ns_max: STAT_AGE_NS,
        }
    }
}

/// The cache.
///
/// Invariants
/// - H1: `maps[entry.class][entry.target]` is the index of `entry`; the maps hold nothing else.
/// - H2: `bytes` is the sum of the entries' costs, and at most `bytes_max`.
#[derive(Debug)]
pub(crate) struct Hot {
    entries: Vec<Entry>,
    /// One map per class of preference, so that a lookup needs no key built for it.
    maps: Box<[HashMap<Rc<[u8]>, usize>]>,
    hand: usize,
    bytes: usize,
    limits: HotLimits,
}

/// One answer.
#[derive(Debug)]
pub(crate) struct Entry {
    target: Rc<[u8]>,
    class: usize,
    pub(crate) found: Box<[u8]>,
    pub(crate) not_modified: Box<[u8]>,
    pub(crate) body: Bytes,
    pub(crate) validators: Validators,
    witnesses: Box<[Witness]>,
    check: Check,
    chance: Chance,
}

/// Whether an entry was used since the hand came by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Chance {
    Used,
    Spent,
}

impl Hot {
    pub(crate) fn new(limits: HotLimits) -> Self {
        let maps = (0..Preference::CLASSES).map(|_| HashMap::new()).collect();
        Self {
            entries: Vec::new(),
            maps,
            hand: 0,
            bytes: 0,
            limits,
        }
    }

    /// The answer for a path and a preference, if it is right at this moment.
    pub(crate) fn find(
        &mut self,
        root: &Root,
        moment: Moment,
        target: &[u8],
        preference: Preference,
    ) -> Option<&Entry> {
        let index = *self.maps.get(preference.class())?.get(target)?;
        let Entry {
            check, witnesses, ..
        } = &mut self.entries[index];
        let hold = || witnesses.iter().all(|witness| witness.confirms(root));
        match check.ask(moment, self.limits.age_ns_max, hold) {
            Use::Answer => {
                let entry = &mut self.entries[index];
                entry.chance = Chance::Used;
                Some(entry)
            }
            Use::Renew => None,
            Use::Drop => {
                self.remove(index);
                None
            }
        }
    }

    /// Keeps an answer, in place of the one for the same request if there is one. `now_ns` is the
    /// time of the turn.
    pub(crate) fn insert(&mut self, note: Note, now_ns: u64) {
        let Some(known) = self.maps.get(note.class) else {
            return;
        };
        if let Some(index) = known.get(&*note.target) {
            self.remove(*index);
        }
        let cost = cost(&note);
        if note.target.len() > HOT_TARGET_BYTES_MAX
            || cost > self.limits.bytes_max
            || self.limits.entries_max == 0
        {
            return;
        }
        while self.bytes + cost > self.limits.bytes_max
            || self.entries.len() >= self.limits.entries_max
        {
            self.evict();
        }
        let check = note.looked.check(now_ns);
        let target: Rc<[u8]> = note.target.into();
        self.maps[note.class].insert(Rc::clone(&target), self.entries.len());
        self.bytes += cost;
        self.entries.push(Entry {
            target,
            class: note.class,
            found: note.found,
            not_modified: note.not_modified,
            body: note.body,
            validators: note.validators,
            witnesses: note.witnesses,
            check,
            chance: Chance::Spent,
        });
    }

    /// Drops one entry. There is one. Its pages are memory alone: no descriptor is closed here.
    fn evict(&mut self) {
        for _ in 0..LOOKS_MAX {
            self.hand = if self.hand < self.entries.len() {
                self.hand
            } else {
                0
            };
            let entry = &mut self.entries[self.hand];
            if entry.chance == Chance::Spent {
                break;
            }
            entry.chance = Chance::Spent;
            self.hand += 1;
        }
        let index = if self.hand < self.entries.len() {
            self.hand
        } else {
            0
        };
        self.remove(index);
    }

    /// Drops the entry at `index`; the last one takes its place.
    fn remove(&mut self, index: usize) {
        let entry = self.entries.swap_remove(index);
        self.maps[entry.class].remove(&entry.target);
        self.bytes -= entry.cost();
        if let Some(moved) = self.entries.get(index)
            && let Some(place) = self.maps[moved.class].get_mut(&moved.target)
        {
            *place = index;
        }
    }
}

impl Entry {
    fn cost(&self) -> usize {
        cost_of(
            &self.target,
            &self.found,
            &self.not_modified,
            &self.body,
            &self.witnesses,
        )
    }
}

fn cost(note: &Note) -> usize {
    cost_of(
        &note.target,
        &note.found,
        &note.not_modified,
        &note.body,
        &note.witnesses,
    )
}

/// Bytes that an entry takes, its place in a map included.
fn cost_of(
    target: &[u8],
    found: &[u8],
    not_modified: &[u8],
    body: &[u8],
    witnesses: &[Witness],
) -> usize {
    let paths: usize = witnesses.iter().map(Witness::path_bytes).sum();
    let lists = target.len() + found.len() + not_modified.len() + body.len() + paths;
    let fixed = size_of::<Entry>() + size_of::<(Rc<[u8]>, usize)>();
    fixed + size_of_val(witnesses) + lists
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conditional::Modified;
    use crate::freshness::Began;
    use crate::limits::STAT_AGE_REFRESH_DIVISOR;
    use crate::look::Locality;
    use crate::witness::Claim;
    use std::fs;
    use std::time::Instant;

    const AGE_NS_MAX: u64 = 1_000_000_000_000;

    struct Bench {
        _folder: tempfile::TempDir,
        root: Root,
        hot: Hot,
        locality: Locality,
        now_ns: u64,
        mounts_version: u64,
        writes: u64,
    }

    /// A cache over a root with one file, whose state every note is about.
    fn bench(entries_max: usize, bytes_max: usize) -> Bench {
        let folder = tempfile::tempdir().expect("tempdir");
        fs::write(folder.path().join("file"), "content").expect("write");
        let root = Root::open(folder.path()).expect("open");
        let hot = Hot::new(HotLimits {
            entries_max,
            bytes_max,
            age_ns_max: AGE_NS_MAX,
        });
        Bench {
            _folder: folder,
            root,
            hot,
            locality: Locality::Local,
            // Later than a test takes, as ages are counted back from it.
            now_ns: 10 * AGE_NS_MAX,
            mounts_version: 0,
            writes: 0,
        }
    }

    impl Bench {
        fn insert(&mut self, target: &str, body: &str) {
            let found = self.root.find(b"file").expect("found");
            let claims = [Claim::File(b"file".to_vec(), found.identity)];
            let note = Note {
                target: target.as_bytes().into(),
                class: Preference::PLAIN.class(),
                found: (*b"head").into(),
                not_modified: (*b"not modified").into(),
                body: Bytes::copy_from_slice(body.as_bytes()),
                validators: Validators {
                    tag: None,
                    modified: Modified::Unknown,
                },
                witnesses: Witness::of_claims(&self.root, &claims).expect("they hold"),
                looked: Looked {
                    began: Began {
                        at: Instant::now(),
                        mounts_version: 0,
                        writes: 0,
                    },
                    locality: self.locality,
                },
            };
            self.hot.insert(note, self.now_ns);
            self.assert_sound();
        }

        fn moment(&self, turn_number: u64) -> Moment {
            Moment {
                turn_number,
                now_ns: self.now_ns,
                mounts_version: self.mounts_version,
                writes: self.writes,
            }
        }

        fn body(&mut self, turn_number: u64, target: &str) -> Option<Bytes> {
            let moment = self.moment(turn_number);
            let target = target.as_bytes();
            let entry = self.hot.find(&self.root, moment, target, Preference::PLAIN);
            let body = entry.map(|entry| entry.body.clone());
            self.assert_sound();
            body
        }

        fn assert_sound(&self) {
            let hot = &self.hot;
            for (index, entry) in hot.entries.iter().enumerate() {
                assert_eq!(hot.maps[entry.class].get(&entry.target), Some(&index), "H1");
            }
            let mapped: usize = hot.maps.iter().map(HashMap::len).sum();
            assert_eq!(mapped, hot.entries.len(), "H1");
            let bytes: usize = hot.entries.iter().map(Entry::cost).sum();
            assert_eq!(hot.bytes, bytes, "H2");
            assert!(hot.bytes <= hot.limits.bytes_max, "H2");
            assert!(hot.entries.len() <= hot.limits.entries_max);
        }
    }

    #[test]
    fn what_was_put_in_is_found_under_its_target_and_class_only() {
        let mut bench = bench(10, 1 << 20);
        bench.insert("/file", "content");
        assert_eq!(bench.body(1, "/file").as_deref(), Some(&b"content"[..]));
        assert_eq!(bench.body(1, "/File"), None);
        let brotli = Preference::parse([&b"br"[..]].into_iter());
        assert!(
            bench
                .hot
                .find(&bench.root, bench.moment(1), b"/file", brotli)
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
        assert!(bench.hot.entries.is_empty());
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
        assert!(bench.hot.entries.is_empty());
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
    fn a_new_mount_below_the_directory_ends_what_was_found_before() {
        let mut bench = bench(10, 1 << 20);
        bench.insert("/file", "content");
        assert!(bench.body(1, "/file").is_some());
        bench.mounts_version += 1;
        assert!(bench.body(2, "/file").is_none());
    }

    #[test]
    fn a_new_answer_takes_the_place_of_the_old_one() {
        let mut bench = bench(10, 1 << 20);
        bench.insert("/file", "old");
        bench.insert("/other", "other");
        bench.insert("/file", "new");
        assert_eq!(bench.body(1, "/file").as_deref(), Some(&b"new"[..]));
        assert_eq!(bench.hot.entries.len(), 2);
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
        assert!(bench.hot.entries.len() >= 2);
        bench.insert("/large", &"x".repeat(4 * one));
        assert_eq!(bench.body(1, "/large"), None);
        assert!(
            !bench.hot.entries.is_empty(),
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
        let long = format!("/{}", "x".repeat(HOT_TARGET_BYTES_MAX));
        bench.insert(&long, "content");
        assert_eq!(bench.body(1, &long), None);
        bench.insert(&long[..HOT_TARGET_BYTES_MAX], "content");
        assert!(bench.body(1, &long[..HOT_TARGET_BYTES_MAX]).is_some());
    }

    #[test]
    fn model_what_is_found_is_what_was_put_in_last() {
        let mut bench = bench(8, 20_000);
        let mut oracle = HashMap::new();
        let mut seed = 7_u64;
        for turn in 1..3_000 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let name = format!("/{}", (seed >> 33) % 24);
            if seed >> 62 == 0 {
                let body = "x".repeat((seed >> 40) as usize % 4_000);
                bench.insert(&name, &body);
                oracle.insert(name, body);
            } else if let Some(found) = bench.body(turn, &name) {
                assert_eq!(found, oracle[&name].as_bytes());
            }
        }
        assert_eq!(bench.hot.entries.len().min(2), 2, "something was kept");
    }
}
