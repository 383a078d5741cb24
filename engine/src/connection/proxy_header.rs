//! The header of the PROXY protocol, versions 1 and 2: where a client comes from, in the words of
//! the load balancer before us.
//!
//! Sections are those of <https://www.haproxy.org/download/2.6/doc/proxy-protocol.txt>. A parser of
//! bytes: no connection, no state. Which peers may send a header is set with
//! [`Server::behind_proxy`](crate::Server::behind_proxy).
//!
//! - What cannot become a header any more is refused at its first wrong byte (section 2.1: "as soon
//!   as possible").
//! - Nothing is guessed: input without a header is refused (section 2).
//! - Without an address of a client the connection's own counts: LOCAL, UNKNOWN, UNSPEC, and the
//!   valid families without an internet address (sections 2.1 and 2.2).
//! - Of the additional fields (TLVs) only the checksum is read, and it must be right (section
//!   2.2.3). They must be whole.
//!
//! Cost: O(bytes), once for a connection, and again for each piece of a header that comes in
//! pieces; no allocation.

use std::net::{AddrParseError, IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Longest header that is accepted, in bytes: 16 of its beginning, 36 of addresses, and additional
/// fields. The largest of these in use is a client's certificate; without it they stay below 1 KiB.
pub const HEADER_BYTES_MAX: usize = 16 * 1024;

/// Longest line of version 1 with its end, in bytes (section 2.1).
const LINE_BYTES_MAX: usize = 107;

const LINE_BEGINS: &[u8] = b"PROXY ";

/// The first 12 bytes of version 2 (section 2.2).
const SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";

/// Signature, command, family and length.
const FIXED_BYTES: usize = 16;

const TYPE_CRC32C: u8 = 0x03;

/// A whole header at the front of the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Where the client comes from. `None`: the connection is the balancer's own, or the balancer
    /// does not know; its own address counts.
    pub client: Option<SocketAddr>,
    /// Length of the header in bytes. What follows is the client's.
    pub bytes: usize,
}

/// Why there is no header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HeaderError {
    /// The first bytes are those of something else: it may be a client that came past the balancer.
    Absent,
    /// Version or command, family, addresses or additional fields are not as the protocol has them.
    Malformed(&'static str),
    /// It is longer than [`HEADER_BYTES_MAX`], or a line of version 1 than 107 bytes.
    TooLong,
}

flatpath_structures::impl_error! {
    HeaderError {
        Self::Absent => "it begins with something else",
        Self::Malformed(what) => "its {what} is wrong",
        Self::TooLong => "it is too long",
    }
}

/// Reads the header at the front of `input`; `None` when it may be the beginning of one.
///
/// # Errors
/// The input neither is nor will be a header that is accepted.
pub fn parse(input: &[u8]) -> Result<Option<Header>, HeaderError> {
    if begins(input, SIGNATURE) {
        return binary(input);
    }
    match begins(input, LINE_BEGINS) {
        true => line(input),
        false => Err(HeaderError::Absent),
    }
}

/// True when `input` has `words` at its front, or is the beginning of them.
fn begins(input: &[u8], words: &[u8]) -> bool {
    let length = input.len().min(words.len());
    input[..length] == words[..length]
}

/// Version 1 (section 2.1).
fn line(input: &[u8]) -> Result<Option<Header>, HeaderError> {
    let window = &input[..input.len().min(LINE_BYTES_MAX)];
    let Some(end) = window.iter().position(|byte| *byte == b'\n') else {
        return match window.len() {
            LINE_BYTES_MAX => Err(HeaderError::TooLong),
            _ => Ok(None),
        };
    };
    let line = window[..end].strip_suffix(b"\r");
    let line = line.ok_or(HeaderError::Malformed("line end"))?;
    let client = if begins(&line[LINE_BEGINS.len()..], b"UNKNOWN") {
        unknown(&line[LINE_BEGINS.len()..])?
    } else {
        let line = std::str::from_utf8(line).map_err(|_| HeaderError::Malformed("line"))?;
        Some(addresses(line)?)
    };
    Ok(Some(Header {
        client,
        bytes: end + 1,
    }))
}

/// "The receiver must ignore anything presented before the CRLF", after the word.
fn unknown(words: &[u8]) -> Result<Option<SocketAddr>, HeaderError> {
    match words.strip_prefix(b"UNKNOWN") {
        Some([] | [b' ', ..]) => Ok(None),
        _ => Err(HeaderError::Malformed("family")),
    }
}

/// The client of a line of version 1. All six words are checked; the first address is the client's.
fn addresses(line: &str) -> Result<SocketAddr, HeaderError> {
    let mut words = line.split(' ').skip(1);
    let mut word = || words.next().unwrap_or_default();
    let address: fn(&str) -> Result<IpAddr, AddrParseError> = match word() {
        "TCP4" => |word| word.parse().map(IpAddr::V4),
        "TCP6" => |word| word.parse().map(IpAddr::V6),
        _ => return Err(HeaderError::Malformed("family")),
    };
    let address = |word| address(word).map_err(|_| HeaderError::Malformed("address"));
    let (client, _destination) = (address(word())?, address(word())?);
    let (client_port, _destination_port) = (port(word())?, port(word())?);
    match words.next() {
        None => Ok((client, client_port).into()),
        Some(_) => Err(HeaderError::Malformed("line")),
    }
}

/// Digits alone, without zeros in front.
fn port(word: &str) -> Result<u16, HeaderError> {
    let is_number = word.bytes().all(|byte| byte.is_ascii_digit());
    let is_short = word == "0" || !word.starts_with('0');
    let number = (is_number && is_short).then(|| word.parse().ok());
    number.flatten().ok_or(HeaderError::Malformed("port"))
}

/// Version 2 (section 2.2).
fn binary(input: &[u8]) -> Result<Option<Header>, HeaderError> {
    let command = input.get(SIGNATURE.len());
    // Each of these bytes is judged as soon as it is there.
    let is_local = match command.map(|byte| (byte >> 4, byte & 0xf)) {
        None => return Ok(None),
        Some((2, 0)) => true,
        Some((2, 1)) => false,
        Some((2, _)) => return Err(HeaderError::Malformed("command")),
        Some(_) => return Err(HeaderError::Malformed("version")),
    };
    let Some(&family) = input.get(SIGNATURE.len() + 1) else {
        return Ok(None);
    };
    let address_bytes = match (is_local, family >> 4, family & 0xf) {
        (true, ..) => 0,
        (_, 0, 0..=2) => 0,
        (_, 1, 0..=2) => 12,
        (_, 2, 0..=2) => 36,
        (_, 3, 0..=2) => 216,
        _ => return Err(HeaderError::Malformed("family")),
    };
    let Some(length) = input.get(SIGNATURE.len() + 2..FIXED_BYTES) else {
        return Ok(None);
    };
    let bytes = FIXED_BYTES + usize::from(u16::from_be_bytes([length[0], length[1]]));
    if bytes > HEADER_BYTES_MAX {
        return Err(HeaderError::TooLong);
    }
    if bytes < FIXED_BYTES + address_bytes {
        return Err(HeaderError::Malformed("length"));
    }
    let Some(header) = input.get(..bytes) else {
        return Ok(None);
    };
    let mut client = None;
    if !is_local {
        let (addresses, _) = header[FIXED_BYTES..].split_at(address_bytes);
        let has_port = family & 0xf != 0;
        client = source(addresses).filter(|_| has_port);
        // Where no address is known, "the receiver should ignore address information", and only
        // the sender knows where that ends.
        if family >> 4 != 0 {
            check_fields(header, FIXED_BYTES + address_bytes)?;
        }
    }
    Ok(Some(Header { client, bytes }))
}

/// The first of two internet addresses in network byte order.
fn source(addresses: &[u8]) -> Option<SocketAddr> {
    match addresses.len() {
        12 => {
            let (address, ports) = (addresses.first_chunk::<4>()?, addresses.get(8..10)?);
            let port = u16::from_be_bytes([ports[0], ports[1]]);
            Some((Ipv4Addr::from(*address), port).into())
        }
        36 => {
            let (address, ports) = (addresses.first_chunk::<16>()?, addresses.get(32..34)?);
            let port = u16::from_be_bytes([ports[0], ports[1]]);
            Some((Ipv6Addr::from(*address), port).into())
        }
        _ => None,
    }
}

/// Whether the fields from `at` on are whole, and the checksum right if one is among them.
fn check_fields(header: &[u8], mut at: usize) -> Result<(), HeaderError> {
    const TYPE_AND_LENGTH: usize = 3;
    while at < header.len() {
        let Some([kind, high, low]) = header.get(at..at + TYPE_AND_LENGTH) else {
            return Err(HeaderError::Malformed("field"));
        };
        let value_at = at + TYPE_AND_LENGTH;
        at = value_at + usize::from(u16::from_be_bytes([*high, *low]));
        let value = header.get(value_at..at);
        let value = value.ok_or(HeaderError::Malformed("field"))?;
        if *kind == TYPE_CRC32C {
            let sum = <[u8; 4]>::try_from(value).map_err(|_| HeaderError::Malformed("field"))?;
            let parts = [&header[..value_at], &[0; 4], &header[at..]];
            if crc32c(&parts) != u32::from_be_bytes(sum) {
                return Err(HeaderError::Malformed("checksum"));
            }
        }
    }
    Ok(())
}

/// RFC 4960, Appendix B, over the parts one after the other.
fn crc32c(parts: &[&[u8]]) -> u32 {
    const POLYNOMIAL_REFLECTED: u32 = 0x82f6_3b78;
    let mut sum = u32::MAX;
    for byte in parts.iter().copied().flatten() {
        sum ^= u32::from(*byte);
        for _ in 0..8 {
            let is_odd = sum & 1 == 1;
            sum >>= 1;
            if is_odd {
                sum ^= POLYNOMIAL_REFLECTED;
            }
        }
    }
    !sum
}

#[cfg(test)]
mod tests;
