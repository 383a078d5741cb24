//! Attaching: one packet each way over a Unix socket of type SEQPACKET, little endian.
//!
//! Hello, 16 bytes, from the consumer: magic u32, version u16, zero u16, token u64. A token other
//! than 0 asks for the messages of the one producer that names the same, 0 for a share of the
//! others'.
//!
//! Welcome, 40 bytes and 8 for each region, from the server:
//!
//! | at   | type | what                                                     |
//! |------|------|----------------------------------------------------------|
//! | 0    | u32  | magic                                                    |
//! | 4    | u16  | version                                                  |
//! | 6    | u16  | status: 0 welcome; else nothing follows that counts      |
//! | 8    | u32  | entries of each ring, a power of two                     |
//! | 12   | u32  | regions                                                  |
//! | 16   | u32  | longest message in bytes                                 |
//! | 20   | u32  | number of the consumer                                   |
//! | 24   | u32  | bytes of a page: no fragment is longer                   |
//! | 28   |      | zero                                                     |
//! | 40   | u64… | bytes of each region                                     |
//!
//! With it come descriptors, in this order: the regions, the descriptor ring, the return ring, the
//! read end of the descriptor doorbell, the write end of the return doorbell. The end of
//! the socket on either side is the end of the attachment. A server that stops sends
//! [`FAREWELL`] on it before: without one it was killed, or it has detached this consumer.
//!
//! A server that hands over to another process sends [`MOVED`]: new producers are that one's, so
//! the consumer attaches to it, at the same path. This attachment stays, for what the first server
//! has still to deliver, until [`FAREWELL`]. Nothing else is sent.

use crate::layout::ENTRIES_MAX;

/// First word of both packets: "FPMC".
pub const MAGIC: u32 = u32::from_le_bytes(*b"FPMC");
/// The version described here.
pub const VERSION: u16 = 1;
/// Bytes of a hello.
pub const HELLO_BYTES: usize = 16;
/// Bytes of a welcome without regions.
pub const WELCOME_BYTES: usize = 40;
/// Most regions: one for each network thread of the server.
pub const REGIONS_MAX: usize = 64;
/// The server's last packet: it stops in order, and no message is missing.
pub const FAREWELL: [u8; 4] = *b"FPMF";
/// The server's packet when another process has taken over the socket at the path, and serves:
/// attach there as well. This attachment lasts until its own end.
pub const MOVED: [u8; 4] = *b"FPMM";
/// Descriptors of a welcome in addition to the regions'.
pub const DESCRIPTORS_BESIDE: usize = 4;
/// Most descriptors of a welcome.
pub const DESCRIPTORS_MAX: usize = REGIONS_MAX + DESCRIPTORS_BESIDE;

/// The server's answer to a hello.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
// Exhaustive: fixed by the version of the protocol.
pub enum Status {
    /// Attached.
    Welcome = 0,
    /// The server does not speak this version.
    WrongVersion = 1,
    /// As many consumers are attached as may be.
    Full = 2,
    /// The server could not make what is shared.
    Failed = 3,
    /// Another consumer has named this token.
    Taken = 4,
}

flatpath_structures::impl_error! {
    Status {
        Self::Welcome => "attached",
        Self::WrongVersion => "the server does not speak version {VERSION}",
        Self::Full => "the server has as many consumers as it may have",
        Self::Failed => "the server could not make what is shared",
        Self::Taken => "another consumer has this token",
    }
}

/// Why a packet was not understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
// Exhaustive: a packet of a version has no other fault.
pub enum Misunderstanding {
    /// Not a packet of this protocol, or cut off.
    Malformed,
    /// Another version.
    Version(u16),
    /// The server refused.
    Refused(Status),
}

flatpath_structures::impl_error! {
    Misunderstanding {
        Self::Malformed => "not a packet of this protocol",
        Self::Version(theirs) => "version {theirs} is spoken there, {VERSION} here",
        Self::Refused(status) => "{status}",
    }
}

/// The consumer's packet; a token of 0 is none.
pub fn hello(token: u64) -> [u8; HELLO_BYTES] {
    let mut packet = [0; HELLO_BYTES];
    packet[..4].copy_from_slice(&MAGIC.to_le_bytes());
    packet[4..6].copy_from_slice(&VERSION.to_le_bytes());
    packet[8..].copy_from_slice(&token.to_le_bytes());
    packet
}

/// Reads a hello: its token.
///
/// # Errors
/// [`Misunderstanding`], never `Refused`.
pub fn read_hello(packet: &[u8]) -> Result<u64, Misunderstanding> {
    if packet.len() != HELLO_BYTES || word32(packet, 0) != MAGIC {
        return Err(Misunderstanding::Malformed);
    }
    match word16(packet, 4) {
        VERSION => Ok(u64::from_le_bytes(field(packet, 8))),
        other => Err(Misunderstanding::Version(other)),
    }
}

/// The server's packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Welcome {
    /// Entries of each ring, a power of two of at most [`ENTRIES_MAX`].
    pub entries: u32,
    /// The longest message in bytes.
    pub message_bytes_max: u32,
    /// Number of the consumer, unique while the server runs.
    pub consumer: u32,
    /// The longest fragment in bytes.
    pub page_bytes: u32,
    /// Bytes of each region.
    pub regions: Vec<u64>,
}

impl Welcome {
    /// The packet.
    ///
    /// # Panics
    /// When there are more than [`REGIONS_MAX`] regions, which no reader takes.
    pub fn packet(&self) -> Vec<u8> {
        assert!(
            self.regions.len() <= REGIONS_MAX,
            "a welcome has at most REGIONS_MAX regions"
        );
        let regions = self.regions.len() as u32;
        let mut packet = head(Status::Welcome);
        for word in [
            self.entries,
            regions,
            self.message_bytes_max,
            self.consumer,
            self.page_bytes,
        ] {
            packet.extend(word.to_le_bytes());
        }
        packet.resize(WELCOME_BYTES, 0);
        for bytes in &self.regions {
            packet.extend(bytes.to_le_bytes());
        }
        packet
    }

    /// Reads a welcome.
    ///
    /// # Errors
    /// [`Misunderstanding`], also when the server refuses.
    pub fn read(packet: &[u8]) -> Result<Welcome, Misunderstanding> {
        let malformed = Misunderstanding::Malformed;
        if packet.len() < WELCOME_BYTES || word32(packet, 0) != MAGIC {
            return Err(malformed);
        }
        match (word16(packet, 6), word16(packet, 4)) {
            (0, VERSION) => {}
            (0 | 1, version) => return Err(Misunderstanding::Version(version)),
            (2, _) => return Err(Misunderstanding::Refused(Status::Full)),
            (4, _) => return Err(Misunderstanding::Refused(Status::Taken)),
            _ => return Err(Misunderstanding::Refused(Status::Failed)),
        }
        let (entries, count) = (word32(packet, 8), word32(packet, 12) as usize);
        let sane = entries.is_power_of_two() && entries <= ENTRIES_MAX;
        if !sane || count > REGIONS_MAX || packet.len() != WELCOME_BYTES + 8 * count {
            return Err(malformed);
        }
        let (regions, _) = packet[WELCOME_BYTES..].as_chunks::<8>();
        Ok(Welcome {
            entries,
            message_bytes_max: word32(packet, 16),
            consumer: word32(packet, 20),
            page_bytes: word32(packet, 24),
            regions: regions.iter().copied().map(u64::from_le_bytes).collect(),
        })
    }
}

/// The server's packet when there is no welcome.
pub fn refusal(status: Status) -> Vec<u8> {
    let mut packet = head(status);
    packet.resize(WELCOME_BYTES, 0);
    packet
}

fn head(status: Status) -> Vec<u8> {
    let mut packet = Vec::with_capacity(WELCOME_BYTES + 8);
    packet.extend(MAGIC.to_le_bytes());
    packet.extend(VERSION.to_le_bytes());
    packet.extend((status as u16).to_le_bytes());
    packet
}

fn word32(packet: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(field(packet, at))
}

fn word16(packet: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(field(packet, at))
}

/// A field of a packet whose length was checked.
fn field<const BYTES: usize>(packet: &[u8], at: usize) -> [u8; BYTES] {
    std::array::from_fn(|byte| packet[at + byte])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn welcome() -> Welcome {
        Welcome {
            entries: 1024,
            message_bytes_max: 16 << 20,
            consumer: 3,
            page_bytes: 65_536,
            regions: vec![1 << 28, 1 << 30],
        }
    }

    #[test]
    fn packets_come_back_as_they_were() {
        for token in [0, 1, u64::MAX] {
            assert_eq!(read_hello(&hello(token)), Ok(token));
        }
        assert_eq!(Welcome::read(&welcome().packet()), Ok(welcome()));
    }

    #[test]
    fn a_packet_that_is_cut_off_or_padded_is_malformed() {
        let (hello, welcome) = (hello(7), welcome().packet());
        for length in 0..hello.len() {
            assert_eq!(
                read_hello(&hello[..length]),
                Err(Misunderstanding::Malformed)
            );
        }
        for length in 0..welcome.len() {
            let read = Welcome::read(&welcome[..length]);
            assert_eq!(read, Err(Misunderstanding::Malformed), "{length}");
        }
        let padded = [welcome.as_slice(), &[0]].concat();
        assert_eq!(Welcome::read(&padded), Err(Misunderstanding::Malformed));
    }

    #[test]
    fn every_flipped_bit_of_the_head_is_noticed_or_harmless() {
        let packet = welcome().packet();
        for bit in 0..packet.len() * 8 {
            let mut flipped = packet.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            if let Ok(read) = Welcome::read(&flipped) {
                assert!(read.entries.is_power_of_two() && read.entries <= ENTRIES_MAX);
                assert_eq!(read.regions.len(), 2);
                assert!(bit >= 64, "magic, version and status are compared");
            }
        }
    }

    #[test]
    fn a_refusal_says_why() {
        let read = |status| Welcome::read(&refusal(status));
        let full = Misunderstanding::Refused(Status::Full);
        assert_eq!(read(Status::Full), Err(full));
        let taken = Misunderstanding::Refused(Status::Taken);
        assert_eq!(read(Status::Taken), Err(taken));
        let version = Misunderstanding::Version(VERSION);
        assert_eq!(read(Status::WrongVersion), Err(version));
        let failed = Misunderstanding::Refused(Status::Failed);
        assert_eq!(read(Status::Failed), Err(failed));
    }
}
