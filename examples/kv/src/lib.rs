//! A key-value store: messages with a length of four bytes in front, big endian, both ways.
//!
//! | request        | reply                               | answered on        |
//! |----------------|-------------------------------------|--------------------|
//! | `g KEY`        | `+VALUE`, or `-no such key`         | the network thread |
//! | `s KEY\nVALUE` | `+`                                 | the network thread |
//! | `l PREFIX`     | `+` and all such keys, a line each  | a worker           |
//! | `q`            | `+`, then the end                   | the network thread |
//! | anything else  | `-` and what is wrong, then the end | the network thread |
//!
//! A list may be long, and takes a while to make: so a worker makes it, and other clients do not
//! wait for it. One client has up to [`LISTS_MAX`] made at a time, and its replies keep their
//! order.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::ops::Bound;

use bytes::Bytes;
use flatpath::framing::{Framed, Handler, Input, LengthPrefix, Next, Place, Reply};
use flatpath::lock::Lock;
use flatpath::{Io, NoRoom};

/// The longest request, in bytes.
pub const REQUEST_BYTES_MAX: usize = 16 * 1024;

/// Lists of one client that are made at a time.
pub const LISTS_MAX: u32 = 4;

/// Keys of a list that are looked up under one lock: a few microseconds.
const KEYS_PER_LOCK: usize = 256;

/// The longest list, in bytes: it is made before memory is asked for.
const LIST_BYTES_MAX: usize = 16 << 20;

/// One store.
#[derive(Debug, Default)]
pub struct Store(Lock<BTreeMap<String, Bytes>>);

impl Store {
    /// What requests look like.
    #[must_use]
    pub fn framing() -> LengthPrefix {
        LengthPrefix::u32(REQUEST_BYTES_MAX)
    }

    /// The protocol of this store.
    #[must_use]
    pub fn protocol(self) -> Framed<LengthPrefix, Store> {
        Framed::new("kv", Store::framing(), self).at_work_max(LISTS_MAX)
    }

    /// All keys that begin with `prefix`, a line each, as far as a list may be long.
    fn list(&self, prefix: &str) -> Result<Vec<u8>, &'static str> {
        let (mut list, mut after) = (Vec::new(), Bound::Included(prefix.to_owned()));
        loop {
            // Others may use the store between two looks.
            let entries = self.0.lock();
            let keys = entries.range((after, Bound::Unbounded)).map(|(key, _)| key);
            let keys = keys.take_while(|key| key.starts_with(prefix));
            let mut last = None;
            for key in keys.take(KEYS_PER_LOCK) {
                list.extend_from_slice(key.as_bytes());
                list.push(b'\n');
                last = Some(key);
            }
            match last {
                None => return Ok(list),
                Some(_) if list.len() > LIST_BYTES_MAX => return Err("too many keys"),
                Some(last) => after = Bound::Excluded(last.clone()),
            }
        }
    }
}

fn write(io: &mut Io<'_>, kind: u8, words: &[u8]) -> Result<(), NoRoom> {
    io.write(&head(kind, words.len()))?;
    io.write(words)
}

/// What is before the words of a reply: the length of all after it, and the kind.
fn head(kind: u8, words_bytes: usize) -> [u8; 5] {
    let length = u32::try_from(1 + words_bytes).expect("values and lists are short");
    let [a, b, c, d] = length.to_be_bytes();
    [a, b, c, d, kind]
}

impl Handler for Store {
    type Session = ();
    type Work = ();

    fn place(&self, (): &(), request: &[u8]) -> Place<()> {
        match request.starts_with(b"l ") {
            true => Place::Worker(()),
            false => Place::Here,
        }
    }

    fn message(&self, (): &mut (), io: &mut Io<'_>, request: &[u8]) -> Result<Next, NoRoom> {
        let Ok(request) = std::str::from_utf8(request) else {
            write(io, b'-', b"keys and values are UTF-8")?;
            return Ok(Next::Close);
        };
        match request.split_once(' ') {
            Some(("g", key)) => {
                let value = self.0.lock().get(key).cloned();
                match value {
                    Some(value) => {
                        io.write(&head(b'+', value.len()))?;
                        // Without a copy, if it is long.
                        io.write_shared(value)?;
                    }
                    None => write(io, b'-', b"no such key")?,
                }
            }
            Some(("s", entry)) if entry.contains('\n') => {
                write(io, b'+', b"")?;
                let (key, value) = entry.split_once('\n').unwrap_or_default();
                let value = Bytes::copy_from_slice(value.as_bytes());
                self.0.lock().insert(key.to_owned(), value);
            }
            None if request == "q" => {
                write(io, b'+', b"")?;
                return Ok(Next::Close);
            }
            _ => {
                write(io, b'-', b"a request is g, s, l or q")?;
                return Ok(Next::Close);
            }
        }
        Ok(Next::Message)
    }

    fn work(&self, (): &mut (), input: &mut Input, reply: &mut Reply) -> Next {
        let (kind, words) = match std::str::from_utf8(&input.message()[2..]) {
            Ok(prefix) => match self.list(prefix) {
                Ok(list) => (b'+', list),
                Err(why) => (b'-', why.into()),
            },
            Err(_) => (b'-', b"keys and values are UTF-8".to_vec()),
        };
        reply.write(&head(kind, words.len()));
        reply.write_shared(words.into());
        Next::Message
    }
}
