//! Hot small files of one network thread: answered without a worker, and never out of date.
//!
//! An entry is the whole answer to a GET: its head up to `Date`, its body, the head of its 304, and
//! its witnesses. Before an entry is used for the first time in a turn, its witnesses are asked.
//! Whatever is answered during a turn was received before the turn began, so no answer is older
//! than its request; and a file that many clients ask for in one turn is looked at once.
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
//! Cost: a hit is one lookup by hash, plus the witnesses once per turn; no allocation.

use std::collections::HashMap;
use std::rc::Rc;

use bytes::Bytes;

use crate::conditional::Validators;
use crate::encoding::Preference;
use crate::limits::{HOT_BYTES_MAX, HOT_ENTRIES_MAX, HOT_TARGET_BYTES_MAX};
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
}

/// How much is kept.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HotLimits {
    pub(crate) entries_max: usize,
    pub(crate) bytes_max: usize,
}

impl Default for HotLimits {
    fn default() -> Self {
        Self {
            entries_max: HOT_ENTRIES_MAX,
            bytes_max: HOT_BYTES_MAX,
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
    /// The turn in which the witnesses were asked last. Turns count from 1.
    confirmed: u64,
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

    /// The answer for a path and a preference, if it is right in this turn.
    pub(crate) fn find(
        &mut self,
        root: &Root,
        turn_number: u64,
        target: &[u8],
        preference: Preference,
    ) -> Option<&Entry> {
        let index = *self.maps.get(preference.class())?.get(target)?;
        let entry = &mut self.entries[index];
        if entry.confirmed != turn_number {
            if !entry.witnesses.iter().all(|witness| witness.confirms(root)) {
                self.remove(index);
                return None;
            }
            entry.confirmed = turn_number;
        }
        entry.chance = Chance::Used;
        Some(&self.entries[index])
    }

    /// Keeps an answer, in place of the one for the same request if there is one.
    pub(crate) fn insert(&mut self, note: Note) {
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
            confirmed: 0,
            chance: Chance::Spent,
        });
    }

    /// Drops one entry. There is one.
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
    use crate::witness::Claim;
    use std::fs;

    struct Bench {
        _folder: tempfile::TempDir,
        root: Root,
        hot: Hot,
    }

    /// A cache over a root with one file, whose state every note is about.
    fn bench(entries_max: usize, bytes_max: usize) -> Bench {
        let folder = tempfile::tempdir().expect("tempdir");
        fs::write(folder.path().join("file"), "content").expect("write");
        let root = Root::open(folder.path()).expect("open");
        let hot = Hot::new(HotLimits {
            entries_max,
            bytes_max,
        });
        Bench {
            _folder: folder,
            root,
            hot,
        }
    }

    impl Bench {
        fn insert(&mut self, target: &str, body: &str) {
            let found = self.root.find(b"file").expect("found");
            let claims = [Claim::File(b"file".to_vec(), found.identity)];
            self.hot.insert(Note {
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
            });
            self.assert_sound();
        }

        fn body(&mut self, turn_number: u64, target: &str) -> Option<Bytes> {
            let target = target.as_bytes();
            let entry = self
                .hot
                .find(&self.root, turn_number, target, Preference::PLAIN);
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
        assert!(bench.hot.find(&bench.root, 1, b"/file", brotli).is_none());
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
