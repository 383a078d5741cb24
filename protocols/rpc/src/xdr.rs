//! XDR (RFC 4506), the part that ONC RPC needs: integers, opaque data, strings, optional values.
//!
//! [`Reader`] borrows: opaque data is a slice of the record. [`Writer`] writes into room it is
//! given and remembers when that was not enough, so that encoders need no error path.
//!
//! Invariants
//! - X1: a length is compared with its type's limit and with what is left of the record before it
//!   is used; nothing is allocated here at all.
//!
//! Not here: floating point, unions and arrays as such (they are a loop over items at the caller).
//!
//! Cost: O(1) per item, plus the copy when writing.

/// The bytes are not what the type says: too short, too long, or not one of the allowed values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

flatpath::impl_error! {
    Malformed {
        Self => "malformed XDR",
    }
}

/// Bytes that fill an item of `bytes` up to a multiple of four.
pub const fn padding(bytes: usize) -> usize {
    bytes.wrapping_neg() & 3
}

/// Takes items from the front of a slice.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Reads from the front of `bytes`.
    #[inline]
    pub fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { rest: bytes }
    }

    /// What has not been read yet.
    #[inline]
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    fn take(&mut self, bytes: usize) -> Result<&'a [u8], Malformed> {
        let (front, rest) = self.rest.split_at_checked(bytes).ok_or(Malformed)?;
        self.rest = rest;
        Ok(front)
    }

    /// An unsigned integer (RFC 4506 section 4.2).
    ///
    /// # Errors
    /// [`Malformed`] when fewer than four bytes are left; so for every method below.
    #[inline]
    pub fn u32(&mut self) -> Result<u32, Malformed> {
        let (front, rest) = self.rest.split_first_chunk::<4>().ok_or(Malformed)?;
        self.rest = rest;
        Ok(u32::from_be_bytes(*front))
    }

    /// An unsigned hyper integer (section 4.5).
    ///
    /// # Errors
    /// [`Malformed`] when fewer than eight bytes are left.
    #[inline]
    pub fn u64(&mut self) -> Result<u64, Malformed> {
        let (front, rest) = self.rest.split_first_chunk::<8>().ok_or(Malformed)?;
        self.rest = rest;
        Ok(u64::from_be_bytes(*front))
    }

    /// A boolean (section 4.4): exactly 0 or 1.
    ///
    /// # Errors
    /// [`Malformed`] for any other value.
    #[inline]
    pub fn boolean(&mut self) -> Result<bool, Malformed> {
        match self.u32()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Malformed),
        }
    }

    /// Fixed-length opaque data (section 4.9), with its padding.
    ///
    /// # Errors
    /// [`Malformed`] when the record ends before.
    #[inline]
    pub fn fixed<const BYTES: usize>(&mut self) -> Result<[u8; BYTES], Malformed> {
        let front = *self.take(BYTES)?.first_chunk::<BYTES>().ok_or(Malformed)?;
        self.take(padding(BYTES))?;
        Ok(front)
    }

    /// Variable-length opaque data or a string (sections 4.10, 4.11), borrowed from the record.
    ///
    /// # Errors
    /// [`Malformed`] when it is longer than `bytes_max` or than what is left.
    #[inline]
    pub fn opaque(&mut self, bytes_max: usize) -> Result<&'a [u8], Malformed> {
        let bytes = self.length(bytes_max)?;
        let front = self.take(bytes)?;
        self.take(padding(bytes))?;
        Ok(front)
    }

    /// A length alone, for what does not lie in this slice: checked against `bytes_max` only.
    ///
    /// # Errors
    /// [`Malformed`] when it is more than `bytes_max`.
    #[inline]
    pub fn length(&mut self, bytes_max: usize) -> Result<usize, Malformed> {
        let bytes = self.u32()? as usize;
        if bytes > bytes_max {
            Err(Malformed)
        } else {
            Ok(bytes)
        }
    }

    /// Nothing may follow.
    ///
    /// # Errors
    /// [`Malformed`] when something does.
    #[inline]
    pub fn end(&self) -> Result<(), Malformed> {
        if self.rest.is_empty() {
            Ok(())
        } else {
            Err(Malformed)
        }
    }
}

/// Puts items into room that was made before.
#[derive(Debug)]
pub struct Writer<'a> {
    room: &'a mut [u8],
    at: usize,
    overflowed: bool,
}

impl<'a> Writer<'a> {
    /// Writes from the front of `room`.
    #[inline]
    pub fn new(room: &'a mut [u8]) -> Writer<'a> {
        Writer {
            room,
            at: 0,
            overflowed: false,
        }
    }

    /// Bytes written.
    #[inline]
    pub fn written(&self) -> usize {
        self.at
    }

    /// Bytes that still fit.
    #[inline]
    pub fn left(&self) -> usize {
        self.room.len() - self.at
    }

    /// True when something did not fit; what was written is then worth nothing.
    #[inline]
    pub fn overflowed(&self) -> bool {
        self.overflowed
    }

    /// Bytes as they are, without length or padding.
    #[inline]
    pub fn raw(&mut self, bytes: &[u8]) {
        match self.room[self.at..].get_mut(..bytes.len()) {
            Some(room) => {
                room.copy_from_slice(bytes);
                self.at += bytes.len();
            }
            None => self.overflowed = true,
        }
    }

    /// An unsigned integer.
    #[inline]
    pub fn u32(&mut self, value: u32) {
        self.raw(&value.to_be_bytes());
    }

    /// An unsigned hyper integer.
    #[inline]
    pub fn u64(&mut self, value: u64) {
        self.raw(&value.to_be_bytes());
    }

    /// A boolean.
    #[inline]
    pub fn boolean(&mut self, value: bool) {
        self.u32(u32::from(value));
    }

    /// Fixed-length opaque data with its padding.
    #[inline]
    pub fn fixed(&mut self, bytes: &[u8]) {
        self.raw(bytes);
        self.raw(&[0; 3][..padding(bytes.len())]);
    }

    /// Variable-length opaque data or a string. Longer than 4 GiB counts as overflow.
    #[inline]
    pub fn opaque(&mut self, bytes: &[u8]) {
        match u32::try_from(bytes.len()) {
            Ok(length) => {
                self.u32(length);
                self.fixed(bytes);
            }
            Err(_) => self.overflowed = true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_come_back_as_they_were_written() {
        let mut room = [0xff; 64];
        let mut writer = Writer::new(&mut room);
        writer.u32(7);
        writer.u64(1 << 40);
        writer.boolean(true);
        writer.fixed(b"abcde");
        writer.opaque(b"xyz");
        assert!(!writer.overflowed());
        let written = writer.written();
        assert_eq!(written, 4 + 8 + 4 + 8 + 4 + 4);
        let mut reader = Reader::new(&room[..written]);
        assert_eq!(reader.u32(), Ok(7));
        assert_eq!(reader.u64(), Ok(1 << 40));
        assert_eq!(reader.boolean(), Ok(true));
        assert_eq!(reader.fixed::<5>(), Ok(*b"abcde"));
        assert_eq!(reader.opaque(3), Ok(&b"xyz"[..]));
        assert_eq!(reader.end(), Ok(()));
    }

    #[test]
    fn padding_fills_up_to_four_and_is_zero() {
        for bytes in 0..9 {
            assert_eq!((bytes + padding(bytes)) % 4, 0);
            assert!(padding(bytes) < 4);
        }
        let mut room = [0xff; 8];
        Writer::new(&mut room).opaque(b"a");
        assert_eq!(room, [0, 0, 0, 1, b'a', 0, 0, 0]);
    }

    #[test]
    fn a_length_beyond_the_limit_or_the_record_is_refused() {
        let bytes = [0, 0, 0, 5, 1, 2, 3, 4, 5, 0, 0, 0];
        assert_eq!(Reader::new(&bytes).opaque(4), Err(Malformed));
        assert_eq!(Reader::new(&bytes).opaque(5), Ok(&bytes[4..9]));
        assert_eq!(
            Reader::new(&bytes[..11]).opaque(5),
            Err(Malformed),
            "padding is missing"
        );
        assert_eq!(Reader::new(&[0xff; 4]).opaque(usize::MAX), Err(Malformed));
        assert_eq!(Reader::new(&[0xff; 7]).opaque(usize::MAX), Err(Malformed));
    }

    #[test]
    fn a_boolean_is_nothing_but_zero_or_one() {
        assert_eq!(Reader::new(&[0, 0, 0, 2]).boolean(), Err(Malformed));
        assert_eq!(Reader::new(&[1, 0, 0, 0]).boolean(), Err(Malformed));
    }

    #[test]
    fn every_prefix_of_every_item_is_refused() {
        let bytes = [0; 16];
        for end in 0..4 {
            assert_eq!(Reader::new(&bytes[..end]).u32(), Err(Malformed));
        }
        for end in 0..8 {
            assert_eq!(Reader::new(&bytes[..end]).u64(), Err(Malformed));
            assert_eq!(Reader::new(&bytes[..end]).fixed::<5>(), Err(Malformed));
        }
    }

    #[test]
    fn a_writer_without_room_says_so_and_writes_nothing_beyond() {
        let mut room = [0; 6];
        let mut writer = Writer::new(&mut room[..5]);
        writer.u32(1);
        writer.u32(2);
        assert!(writer.overflowed());
        assert_eq!(writer.written(), 4);
        assert_eq!(room, [0, 0, 0, 1, 0, 0]);
    }
}
