//! A block of fields to a list of them (RFC 7541 sections 3 and 6).
//!
//! | first bits | what it is                                 | section |
//! |------------|--------------------------------------------|---------|
//! | `1`        | a field of a table                         | 6.1     |
//! | `01`       | a field that the table gets                | 6.2.1   |
//! | `001`      | a size of the table, before any field      | 6.3     |
//! | `0001`     | a field that no table may get, ever        | 6.2.3   |
//! | `0000`     | a field that the table does not get        | 6.2.2   |
//!
//! A list has bounds. What is beyond them is read, because the table may get it, and not kept. So
//! has what the table gets in all: an index is a byte, and what it stands for may be a table's
//! worth of text.
//!
//! A name that the block takes from the static table is not copied: the list has its number, which
//! says what it is, so it is not compared or checked again.
//!
//! A value in Huffman's code that has come before is not decoded again (`repeated`).
//!
//! Cost: one copy of each value, and of each name that is spelled out. No allocation once the
//! list's text has grown, but for the table of a client that has not heard yet that there is to be
//! none.

use super::Broken;
use super::huffman;
use super::repeated::Repeated;
use super::table::{Dynamic, ENTRY_OVERHEAD_BYTES, Entry, STATIC_ENTRIES, TABLE_BYTES_MAX};

/// Where a field's name and value are in the text of its list: one after the other, or its value
/// alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Field {
    name: Option<Entry>,
    from: u32,
    value_from: u32,
    end: u32,
}

/// Fields in their order. Used again and again.
#[derive(Debug, Default)]
pub(crate) struct FieldList {
    text: Vec<u8>,
    fields: Vec<Field>,
    /// Of all there were, as RFC 9113 section 6.5.2 counts them.
    bytes: usize,
    bytes_max: usize,
    /// How many are called `cookie`.
    cookies: usize,
    /// What lists before had.
    repeated: Repeated,
}

impl FieldList {
    /// Empties it. Its bound is in bytes, as RFC 9113 section 6.5.2 counts them.
    pub(crate) fn begin(&mut self, bytes_max: usize) {
        self.text.clear();
        self.fields.clear();
        (self.bytes, self.bytes_max, self.cookies) = (0, bytes_max, 0);
    }

    /// Whether there were more fields than it has.
    pub(crate) fn is_over(&self) -> bool {
        self.bytes > self.bytes_max
    }

    /// How many fields it has.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.fields.len()
    }

    /// Names and values.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.fields.iter().map(|field| self.at(*field))
    }

    /// The same, and which entry of the static table a name was taken from.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (Option<Entry>, &[u8], &[u8])> {
        self.fields.iter().map(|field| {
            let (name, value) = self.at(*field);
            (field.name, name, value)
        })
    }

    pub(crate) fn at(&self, field: Field) -> (&[u8], &[u8]) {
        let [from, middle, end] = [field.from, field.value_from, field.end].map(|at| at as usize);
        let name = match field.name {
            Some(entry) => entry.name().as_bytes(),
            None => &self.text[from..middle],
        };
        (name, &self.text[middle..end])
    }

    /// The bytes of all names and values.
    pub(crate) fn text_bytes(&self) -> usize {
        self.bytes - self.fields.len() * ENTRY_OVERHEAD_BYTES
    }

    /// Puts all cookies together, as one value that is beside them; `None` if there are not
    /// several. RFC 9113 8.2.3: "these MUST be concatenated into a single octet string using the
    /// two-octet delimiter of 0x3b, 0x20 (the ASCII string "; ")".
    pub(crate) fn join_cookies(&mut self) -> Option<Field> {
        if self.cookies < 2 {
            return None;
        }
        let from = self.text.len();
        for at in 0..self.fields.len() {
            let field = self.fields[at];
            if self.at(field).0 == b"cookie" {
                if self.text.len() > from {
                    self.text.extend_from_slice(b"; ");
                }
                let value = field.value_from as usize..field.end as usize;
                self.text.extend_from_within(value);
            }
        }
        let [from, end] = [from, self.text.len()].map(|at| at as u32);
        Some(Field {
            name: Some(Entry::COOKIE),
            from,
            value_from: from,
            end,
        })
    }

    /// Adds a field, if there is room.
    fn push(&mut self, entry: Option<Entry>, name: &[u8], value: &[u8]) {
        let from = self.text.len();
        self.count(name.len() + value.len());
        if !self.is_over() {
            if entry.is_none() {
                self.text.extend_from_slice(name);
            }
            let value_from = self.text.len();
            self.text.extend_from_slice(value);
            self.mark(entry, from, value_from);
        }
    }

    /// The text from here on is a field, whose value begins there; it stays if there is room.
    fn keep(&mut self, entry: Option<Entry>, from: usize, value_from: usize) {
        let name_bytes = entry.map_or(value_from - from, |entry| entry.name().len());
        self.count(name_bytes + self.text.len() - value_from);
        match self.is_over() {
            true => self.text.truncate(from),
            false => self.mark(entry, from, value_from),
        }
    }

    fn count(&mut self, bytes: usize) {
        self.bytes += bytes + ENTRY_OVERHEAD_BYTES;
    }

    fn mark(&mut self, name: Option<Entry>, from: usize, value_from: usize) {
        let is_cookie = match name {
            Some(entry) => entry == Entry::COOKIE,
            None => self.text[from..value_from] == *b"cookie",
        };
        self.cookies += usize::from(is_cookie);
        let end = self.text.len();
        let [from, value_from, end] = [from, value_from, end].map(|at| at as u32);
        self.fields.push(Field {
            name,
            from,
            value_from,
            end,
        });
    }

    /// Takes memory back that a long list took.
    pub(crate) fn trim(&mut self, kept_bytes_max: usize) {
        if self.text.capacity() > kept_bytes_max {
            self.text = Vec::new();
        }
    }
}

/// See the module.
pub(crate) struct Decoder {
    table: Option<Box<Dynamic>>,
    /// What the client has said last, at most what it may say.
    size_max: usize,
    /// The client knows that there is no table.
    is_told: bool,
    /// What the client may still put in a table.
    table_bytes_left: usize,
}

/// What a client may put in its table until it knows that there is none, as the table counts it:
/// the heads of a hundred requests that it sends at once, of 10 KiB each.
pub(crate) const TABLE_BYTES_IN_ALL: usize = 1024 * 1024;

impl Default for Decoder {
    /// For a client that knows nothing yet.
    fn default() -> Decoder {
        Decoder {
            table: None,
            size_max: TABLE_BYTES_MAX,
            is_told: false,
            table_bytes_left: TABLE_BYTES_IN_ALL,
        }
    }
}

impl Decoder {
    /// The client has acknowledged that there is to be no table, so it uses none from here on (RFC
    /// 7541 section 4.2).
    pub(crate) fn told(&mut self) {
        (self.table, self.size_max, self.is_told) = (None, 0, true);
    }

    /// Whether a block may have a table made.
    pub(crate) fn may_take_table(&self) -> bool {
        self.table.is_none() && !self.is_told
    }

    /// Whether there is a table.
    pub(crate) fn has_table(&self) -> bool {
        self.table.is_some()
    }

    /// Adds the fields of a whole block to a list.
    pub(crate) fn decode(&mut self, block: &[u8], list: &mut FieldList) -> Result<(), Broken> {
        let (mut input, mut has_fields) = (block, false);
        while let [first, ..] = *input {
            match first {
                0x80.. => {
                    let index = integer(&mut input, 7)?;
                    let entry = Entry::of(index);
                    let (name, value) = match entry {
                        Some(entry) => (entry.name().as_bytes(), entry.value().as_bytes()),
                        None => self.dynamic(index)?,
                    };
                    list.push(entry, name, value);
                }
                0x20..=0x3f => {
                    let size = integer(&mut input, 5)?;
                    self.resize(size, has_fields)?;
                    continue;
                }
                _ => self.literal(first, &mut input, list)?,
            }
            has_fields = true;
        }
        Ok(())
    }

    /// RFC 7541 4.2: "This dynamic table size update MUST occur at the beginning of the first
    /// header block". 6.3: "The new maximum size MUST be lower than or equal to the limit
    /// determined by the protocol using HPACK."
    fn resize(&mut self, size: usize, has_fields: bool) -> Result<(), Broken> {
        let limit = if self.is_told { 0 } else { TABLE_BYTES_MAX };
        if has_fields || size > limit {
            return Err(Broken);
        }
        self.size_max = size;
        if let Some(table) = &mut self.table {
            table.shrink_to(size);
        }
        Ok(())
    }

    /// A field that is spelled out, at least its value.
    fn literal(
        &mut self,
        first: u8,
        input: &mut &[u8],
        list: &mut FieldList,
    ) -> Result<(), Broken> {
        let is_added = first & 0x40 != 0 && !self.is_told;
        let from = list.text.len();
        let index = integer(input, if first & 0x40 != 0 { 6 } else { 4 })?;
        let entry = Entry::of(index);
        match (entry, index) {
            (Some(entry), _) if is_added => {
                list.text.extend_from_slice(entry.name().as_bytes());
            }
            (Some(_), _) => {}
            (None, 0) => string(input, &mut list.text)?,
            (None, index) => {
                let (name, _) = self.dynamic(index)?;
                // What is in neither is not copied.
                if is_added || !list.is_over() {
                    list.text.extend_from_slice(name);
                }
            }
        }
        let value_from = list.text.len();
        match (spelled(input)?, entry) {
            // What no table may get is not kept either.
            ((value, true), Some(entry)) if first & 0xf0 != NEVER_ADDED => {
                list.repeated.decode(entry, value, &mut list.text)?;
            }
            ((value, is_huffman), _) => put(value, is_huffman, &mut list.text)?,
        }
        if is_added {
            let bytes = list.text.len() - from + ENTRY_OVERHEAD_BYTES;
            let left = self.table_bytes_left.checked_sub(bytes);
            self.table_bytes_left = left.ok_or(Broken)?;
            let (name, value) = list.text[from..].split_at(value_from - from);
            let table = self.table.get_or_insert_with(Dynamic::new);
            table.insert(name, value, self.size_max);
        }
        list.keep(entry, from, value_from);
        Ok(())
    }

    /// The entry of an index that is none of the static table: name and value. RFC 7541 2.3.3:
    /// "Indices strictly greater than the sum of the lengths of both tables MUST be treated as a
    /// decoding error." 6.1: "The index value of 0 is not used."
    fn dynamic(&self, index: usize) -> Result<(&[u8], &[u8]), Broken> {
        let index = index.checked_sub(STATIC_ENTRIES + 1).ok_or(Broken)?;
        let table = self.table.as_ref().ok_or(Broken)?;
        table.entry(index).ok_or(Broken)
    }
}

/// The largest number that anything here can mean.
const INTEGER_MAX: usize = 1 << 24;

/// A number in the low bits of a byte and, where they are all ones, in those after it (RFC 7541
/// section 5.1): "Integer encodings that exceed implementation limits -- in value or octet length
/// -- MUST be treated as decoding errors."
fn integer(input: &mut &[u8], prefix_bits: u32) -> Result<usize, Broken> {
    let (first, mut rest) = input.split_first().ok_or(Broken)?;
    let mask = (1usize << prefix_bits) - 1;
    let mut value = usize::from(*first) & mask;
    if value == mask {
        let mut shift = 0;
        loop {
            let (byte, after) = rest.split_first().ok_or(Broken)?;
            rest = after;
            value += usize::from(byte & 0x7f) << shift;
            if value > INTEGER_MAX || shift > 21 {
                return Err(Broken);
            }
            if byte & 0x80 == 0 {
                break;
            }
            shift += 7;
        }
    }
    *input = rest;
    Ok(value)
}

/// The first bits of a field that no table may get (RFC 7541 section 6.2.3).
const NEVER_ADDED: u8 = 0x10;

/// A string (RFC 7541 section 5.2) as it is spelled, and whether that is Huffman's code.
fn spelled<'i>(input: &mut &'i [u8]) -> Result<(&'i [u8], bool), Broken> {
    let is_huffman = input.first().is_some_and(|first| first & 0x80 != 0);
    let length = integer(input, 7)?;
    let (text, rest) = input.split_at_checked(length).ok_or(Broken)?;
    *input = rest;
    Ok((text, is_huffman))
}

/// Appends what it says.
fn put(text: &[u8], is_huffman: bool, out: &mut Vec<u8>) -> Result<(), Broken> {
    match is_huffman {
        true => huffman::decode(text, out)?,
        false => out.extend_from_slice(text),
    }
    Ok(())
}

/// A string, appended.
fn string(input: &mut &[u8], out: &mut Vec<u8>) -> Result<(), Broken> {
    let (text, is_huffman) = spelled(input)?;
    put(text, is_huffman, out)
}
