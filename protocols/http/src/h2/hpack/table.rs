//! The tables of HPACK (RFC 7541 section 2.3): the static one, and the dynamic one that a client
//! has until it has heard that it is to have none.
//!
//! The dynamic table is one piece of memory, which is taken with the first entry, never grows, and
//! is freed as a whole.
//!
//! Cost: an entry is a copy of its bytes; to make room moves what is left, at most
//! `TABLE_BYTES_MAX`.

use std::collections::VecDeque;
use std::num::NonZeroU8;

/// What a client's table has before it hears of our settings (RFC 9113 section 6.5.2).
pub(crate) const TABLE_BYTES_MAX: usize = 4096;

/// What each entry counts beside its bytes (RFC 7541 section 4.1).
pub(crate) const ENTRY_OVERHEAD_BYTES: usize = 32;

/// RFC 7541 appendix A, from index 1 on.
static STATIC: [(&str, &str); 61] = [
    (":authority", ""),
    (":method", "GET"),
    (":method", "POST"),
    (":path", "/"),
    (":path", "/index.html"),
    (":scheme", "http"),
    (":scheme", "https"),
    (":status", "200"),
    (":status", "204"),
    (":status", "206"),
    (":status", "304"),
    (":status", "400"),
    (":status", "404"),
    (":status", "500"),
    ("accept-charset", ""),
    ("accept-encoding", "gzip, deflate"),
    ("accept-language", ""),
    ("accept-ranges", ""),
    ("accept", ""),
    ("access-control-allow-origin", ""),
    ("age", ""),
    ("allow", ""),
    ("authorization", ""),
    ("cache-control", ""),
    ("content-disposition", ""),
    ("content-encoding", ""),
    ("content-language", ""),
    ("content-length", ""),
    ("content-location", ""),
    ("content-range", ""),
    ("content-type", ""),
    ("cookie", ""),
    ("date", ""),
    ("etag", ""),
    ("expect", ""),
    ("expires", ""),
    ("from", ""),
    ("host", ""),
    ("if-match", ""),
    ("if-modified-since", ""),
    ("if-none-match", ""),
    ("if-range", ""),
    ("if-unmodified-since", ""),
    ("last-modified", ""),
    ("link", ""),
    ("location", ""),
    ("max-forwards", ""),
    ("proxy-authenticate", ""),
    ("proxy-authorization", ""),
    ("range", ""),
    ("referer", ""),
    ("refresh", ""),
    ("retry-after", ""),
    ("server", ""),
    ("set-cookie", ""),
    ("strict-transport-security", ""),
    ("transfer-encoding", ""),
    ("user-agent", ""),
    ("vary", ""),
    ("via", ""),
    ("www-authenticate", ""),
];

/// The index of an entry of the static table, where it stands for its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry(NonZeroU8);

impl Entry {
    pub(crate) const COOKIE: Entry = Entry::numbered(32);

    const fn numbered(index: u8) -> Entry {
        match NonZeroU8::new(index) {
            Some(index) => Entry(index),
            None => panic!("entries begin with 1"),
        }
    }

    /// `None`: the index is none of the static table.
    pub(super) fn of(index: usize) -> Option<Entry> {
        let index = u8::try_from(index).ok().and_then(NonZeroU8::new)?;
        (usize::from(index.get()) <= STATIC_ENTRIES).then_some(Entry(index))
    }

    /// Its index, from 1 on.
    pub(crate) fn index(self) -> u8 {
        self.0.get()
    }

    pub(crate) fn name(self) -> &'static str {
        STATIC[usize::from(self.0.get()) - 1].0
    }

    pub(super) fn value(self) -> &'static str {
        STATIC[usize::from(self.0.get()) - 1].1
    }
}

/// How many static entries there are.
pub(super) const STATIC_ENTRIES: usize = STATIC.len();

/// The index of the first entry with this name, in small letters.
pub(super) fn index_of(name: &[u8]) -> Option<usize> {
    // The first letter leaves a few: names are in order of the alphabet from 15 on.
    let from = match *name.first()? {
        b':' => 1,
        letter @ b'a'..=b'z' => usize::from(LETTERS[usize::from(letter - b'a')]),
        _ => return None,
    };
    let rest = STATIC.get(from.checked_sub(1)?..)?;
    let same = rest
        .iter()
        .take_while(|(other, _)| other.as_bytes().first() == name.first());
    let at = same
        .clone()
        .position(|(other, _)| other.as_bytes() == name)?;
    Some(from + at)
}

/// Of each letter the index of the first name that begins with it; 0 if there is none.
static LETTERS: [u8; 26] = letters();

const fn letters() -> [u8; 26] {
    let mut letters = [0; 26];
    let mut at = STATIC.len();
    while at > 0 {
        let letter = STATIC[at - 1].0.as_bytes()[0];
        if letter != b':' {
            letters[(letter - b'a') as usize] = at as u8;
        }
        at -= 1;
    }
    letters
}

/// Entries of the client's, the newest first.
#[derive(Default)]
pub(super) struct Dynamic {
    /// Names and values, the oldest first.
    text: Vec<u8>,
    /// Lengths of names and values, the newest first.
    entries: VecDeque<(u16, u16)>,
}

/// Entries that there can be.
const ENTRIES_MAX: usize = TABLE_BYTES_MAX / ENTRY_OVERHEAD_BYTES;

/// What a table takes as soon as there is one.
pub(crate) const TABLE_HELD_BYTES: usize =
    TABLE_BYTES_MAX + ENTRIES_MAX * size_of::<(u16, u16)>() + size_of::<Dynamic>();

impl Dynamic {
    pub(super) fn new() -> Box<Dynamic> {
        Box::new(Dynamic {
            text: Vec::with_capacity(TABLE_BYTES_MAX),
            entries: VecDeque::with_capacity(ENTRIES_MAX),
        })
    }

    fn size(&self) -> usize {
        self.text.len() + self.entries.len() * ENTRY_OVERHEAD_BYTES
    }

    /// The entry of an index from 0 on: name and value.
    pub(super) fn entry(&self, index: usize) -> Option<(&[u8], &[u8])> {
        let (name, value) = *self.entries.get(index)?;
        let bytes = |(name, value): &(u16, u16)| usize::from(*name) + usize::from(*value);
        let newer: usize = self.entries.iter().take(index).map(bytes).sum();
        let end = self.text.len() - newer;
        let value_from = end - usize::from(value);
        let name_from = value_from - usize::from(name);
        Some((
            &self.text[name_from..value_from],
            &self.text[value_from..end],
        ))
    }

    /// Drops the oldest until no more than so much is left (RFC 7541 section 4.3).
    pub(super) fn shrink_to(&mut self, size_max: usize) {
        let mut gone = 0;
        while self.size() - gone > size_max
            && let Some((name, value)) = self.entries.pop_back()
        {
            gone += usize::from(name) + usize::from(value);
        }
        self.text.drain(..gone);
    }

    /// Adds an entry; one that is larger than the table empties it (RFC 7541 section 4.4).
    pub(super) fn insert(&mut self, name: &[u8], value: &[u8], size_max: usize) {
        let size = name.len() + value.len() + ENTRY_OVERHEAD_BYTES;
        self.shrink_to(size_max.saturating_sub(size));
        if size <= size_max {
            self.text.extend_from_slice(name);
            self.text.extend_from_slice(value);
            // Both are less than the table.
            self.entries
                .push_front((name.len() as u16, value.len() as u16));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_static_name_is_found_at_its_first_index() {
        for (at, (name, _)) in STATIC.iter().enumerate() {
            let index = index_of(name.as_bytes()).expect("a static name");
            assert_eq!(Entry::of(index).map(Entry::name), Some(*name));
            assert!(index <= at + 1);
            assert_eq!(index_of(&[name.as_bytes(), b"x"].concat()), None);
        }
        for name in ["", "x-powered-by", "zebra", "Date", "contenu"] {
            assert_eq!(index_of(name.as_bytes()), None, "{name}");
        }
        assert_eq!((Entry::of(0), Entry::of(62)), (None, None));
    }

    #[test]
    fn the_newest_entry_is_the_first_and_the_oldest_goes() {
        let mut table = Dynamic::new();
        for at in 0..200 {
            let name = format!("name-{at}");
            table.insert(name.as_bytes(), b"value", TABLE_BYTES_MAX);
            let newest = table.entry(0).expect("there is one");
            assert_eq!(newest, (name.as_bytes(), &b"value"[..]));
            assert!(table.size() <= TABLE_BYTES_MAX);
            if at > 0 {
                let before = format!("name-{}", at - 1);
                assert_eq!(
                    table.entry(1).map(|it| it.0.to_vec()),
                    Some(before.into_bytes())
                );
            }
        }
        let kept = (0..).take_while(|at| table.entry(*at).is_some()).count();
        assert_eq!(kept, TABLE_BYTES_MAX / (8 + 5 + ENTRY_OVERHEAD_BYTES));
        table.shrink_to(50);
        assert!(table.entry(0).is_some() && table.entry(1).is_none());
        table.insert(&[b'x'; 5000], b"", TABLE_BYTES_MAX);
        assert!(table.entry(0).is_none(), "it has no room beside nothing");
    }

    /// So what is charged is what is held.
    #[test]
    fn a_table_never_grows() {
        let mut table = Dynamic::new();
        let held = (table.text.capacity(), table.entries.capacity());
        for length in (0..300).chain([4000, 0, 4096]) {
            (0..50).for_each(|_| table.insert(b"", &vec![b'v'; length], TABLE_BYTES_MAX));
        }
        assert_eq!((table.text.capacity(), table.entries.capacity()), held);
    }
}
