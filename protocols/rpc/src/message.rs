//! Calls and replies (RFC 5531 section 9): the words around arguments and results.
//!
//! Not here: batching and broadcast; a call without a reply is no call to us.

use std::net::{IpAddr, SocketAddr};

use crate::auth::{self, AuthStatus, Credential, NoCaller};
use crate::limits::REPLY_HEAD_BYTES;
use crate::xdr::{Malformed, Reader, Writer};

const CALL: u32 = 0;
const REPLY: u32 = 1;
const RPC_VERSION: u32 = 2;
const ACCEPTED: u32 = 0;
const DENIED: u32 = 1;
const RPC_MISMATCH: u32 = 0;
const AUTH_ERROR: u32 = 1;

/// What the verifier says of the reply to a call that asks for TLS, where TLS begins behind that
/// reply (RFC 9289 section 4.1).
const STARTTLS: &[u8; 8] = b"STARTTLS";

/// The marker bit of the last fragment (RFC 5531 section 11).
pub(crate) const LAST_FRAGMENT: u32 = 1 << 31;

/// Who asks for what. Arguments are beside it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Call {
    /// The peer's number for this call; the reply carries it back.
    pub xid: u32,
    /// Program asked for.
    pub program: u32,
    /// Its version.
    pub version: u32,
    /// Its procedure.
    pub procedure: u32,
    /// Who the caller claims to be.
    pub credential: Credential,
    /// Where the call came from, if the engine knows. That of a datagram may be forged.
    pub peer: Option<SocketAddr>,
    /// The address of this machine that the call came to, if the engine knows.
    pub local: Option<IpAddr>,
    /// What it came by.
    pub transport: Transport,
    /// Whether it came through TLS.
    pub is_secured: bool,
}

/// What calls come by, and replies go by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
// Exhaustive: RFC 5531 section 4 has no other.
pub enum Transport {
    /// A connection: TCP, or TLS over it.
    #[default]
    Stream,
    /// UDP.
    Datagram,
}

/// How an accepted call ended (`accept_stat`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
// Exhaustive: RFC 5531 section 9 has no other.
pub enum Accepted {
    /// Results follow.
    Success,
    /// No such program here.
    ProgramUnavailable,
    /// The program is here in these versions.
    ProgramMismatch {
        /// Lowest version.
        low: u32,
        /// Highest version.
        high: u32,
    },
    /// No such procedure.
    ProcedureUnavailable,
    /// The arguments cannot be read.
    GarbageArguments,
    /// The server failed, without any word of the program for it.
    SystemError,
}

impl Accepted {
    /// `accept_stat`.
    pub(crate) fn number(self) -> u32 {
        match self {
            Accepted::Success => 0,
            Accepted::ProgramUnavailable => 1,
            Accepted::ProgramMismatch { .. } => 2,
            Accepted::ProcedureUnavailable => 3,
            Accepted::GarbageArguments => 4,
            Accepted::SystemError => 5,
        }
    }
}

/// Why a call is refused before its program is looked at (`reject_stat`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
// Exhaustive: RFC 5531 section 9 has no other.
pub enum Denied {
    /// Not RPC version 2.
    RpcMismatch,
    /// The caller is not accepted.
    Auth(AuthStatus),
}

/// Why a record is no call to be executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
// Exhaustive: a server has to answer each.
pub enum Refusal {
    /// It is no call at all, so that no reply is expected: the connection ends.
    NoCall,
    /// The call with this number is answered with a status alone.
    Accepted(u32, Accepted),
    /// The call with this number is refused.
    Denied(u32, Denied),
    /// It asks for TLS: answered with [`AuthStatus::BadCredential`] where that cannot begin
    /// (RFC 9289 section 4.1).
    AsksForTls(Probe),
}

/// A call that asks for TLS: its number, and what it asks for beside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probe {
    /// As of any call.
    pub xid: u32,
    /// The program.
    pub program: u32,
    /// Its version.
    pub version: u32,
    /// Its procedure, which has to be NULL.
    pub procedure: u32,
}

/// Reads the head of a call from the front of a record. What follows are its arguments.
///
/// # Errors
/// A [`Refusal`]; a head that cannot be read beyond its number counts as garbage arguments.
pub fn open(record: &[u8], peer: Option<SocketAddr>) -> Result<(Call, &[u8]), Refusal> {
    let mut reader = Reader::new(record);
    let (Ok(xid), Ok(CALL)) = (reader.u32(), reader.u32()) else {
        return Err(Refusal::NoCall);
    };
    match open_call(xid, &mut reader, peer) {
        Ok(Ok(call)) => Ok((call, reader.rest())),
        Ok(Err(refusal)) => Err(refusal),
        Err(Malformed) => Err(Refusal::Accepted(xid, Accepted::GarbageArguments)),
    }
}

fn open_call(
    xid: u32,
    reader: &mut Reader<'_>,
    peer: Option<SocketAddr>,
) -> Result<Result<Call, Refusal>, Malformed> {
    let denied = |why| Ok(Err(Refusal::Denied(xid, why)));
    if reader.u32()? != RPC_VERSION {
        return denied(Denied::RpcMismatch);
    }
    let (program, version, procedure) = (reader.u32()?, reader.u32()?, reader.u32()?);
    let credential = match auth::read(reader)? {
        Ok(credential) => credential,
        Err(NoCaller::Refused(status)) => return denied(Denied::Auth(status)),
        Err(NoCaller::AsksForTls) => {
            return Ok(Err(Refusal::AsksForTls(Probe {
                xid,
                program,
                version,
                procedure,
            })));
        }
    };
    Ok(Ok(Call {
        xid,
        program,
        version,
        procedure,
        credential,
        peer,
        local: None,
        transport: Transport::Stream,
        is_secured: false,
    }))
}

/// Writes the head of an accepted reply after the room for its marker.
pub(crate) fn write_accepted(writer: &mut Writer<'_>, xid: u32, status: Accepted) {
    write_head(writer, xid, &[], status);
}

/// Writes a whole reply after the room for its marker: TLS begins behind it.
pub(crate) fn write_starttls(writer: &mut Writer<'_>, xid: u32) {
    write_head(writer, xid, STARTTLS, Accepted::Success);
}

/// The same with the body of a verifier, whose flavor is AUTH_NONE.
fn write_head(writer: &mut Writer<'_>, xid: u32, verifier: &[u8], status: Accepted) {
    writer.u32(0);
    writer.u32(xid);
    writer.u32(REPLY);
    writer.u32(ACCEPTED);
    writer.u32(0);
    writer.opaque(verifier);
    writer.u32(status.number());
    if let Accepted::ProgramMismatch { low, high } = status {
        writer.u32(low);
        writer.u32(high);
    }
    debug_assert!(
        writer.written() >= REPLY_HEAD_BYTES,
        "the head has its stated length"
    );
}

/// Writes a whole refusal after the room for its marker.
pub(crate) fn write_denied(writer: &mut Writer<'_>, xid: u32, why: Denied) {
    writer.u32(0);
    writer.u32(xid);
    writer.u32(REPLY);
    writer.u32(DENIED);
    match why {
        Denied::RpcMismatch => {
            writer.u32(RPC_MISMATCH);
            writer.u32(RPC_VERSION);
            writer.u32(RPC_VERSION);
        }
        Denied::Auth(status) => {
            writer.u32(AUTH_ERROR);
            writer.u32(status as u32);
        }
    }
}

/// The marker of a reply of `bytes` bytes, marker included: one last fragment.
///
/// # Panics
/// A reply is bounded far below 2 GiB.
pub(crate) fn marker(bytes: usize) -> [u8; 4] {
    let length = u32::try_from(bytes - 4).expect("a reply is bounded");
    assert!(length < LAST_FRAGMENT, "a reply is bounded");
    (length | LAST_FRAGMENT).to_be_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_be_bytes()).collect()
    }

    #[test]
    fn a_call_is_opened_with_its_arguments() {
        let record = head(&[7, 0, 2, 100_003, 3, 1, 0, 0, 0, 0, 0xabcd]);
        let (call, arguments) = open(&record, None).expect("a call");
        assert_eq!(
            (call.xid, call.program, call.version, call.procedure),
            (7, 100_003, 3, 1)
        );
        assert_eq!(arguments, &0xabcd_u32.to_be_bytes());
    }

    #[test]
    fn a_reply_or_a_stump_is_no_call() {
        assert_eq!(open(&head(&[7, 1, 0]), None), Err(Refusal::NoCall));
        assert_eq!(open(&head(&[7]), None), Err(Refusal::NoCall));
        assert_eq!(open(&[], None), Err(Refusal::NoCall));
    }

    #[test]
    fn another_rpc_version_is_denied_with_our_range() {
        let record = head(&[7, 0, 3]);
        let why = Denied::RpcMismatch;
        assert_eq!(open(&record, None), Err(Refusal::Denied(7, why)));
        let mut room = [0; 64];
        let mut writer = Writer::new(&mut room);
        write_denied(&mut writer, 7, why);
        let written = writer.written();
        assert_eq!(room[4..written], head(&[7, 1, 1, 0, 2, 2]));
    }

    #[test]
    fn a_cut_head_is_garbage_with_its_number() {
        let record = head(&[7, 0, 2, 100_003, 3, 1, 0, 0, 0, 0]);
        for end in (8..record.len()).step_by(4) {
            assert_eq!(
                open(&record[..end], None),
                Err(Refusal::Accepted(7, Accepted::GarbageArguments)),
                "cut at {end}"
            );
        }
    }

    #[test]
    fn every_accept_status_has_its_number() {
        let cases = [
            (Accepted::Success, vec![0]),
            (Accepted::ProgramUnavailable, vec![1]),
            (Accepted::ProgramMismatch { low: 2, high: 3 }, vec![2, 2, 3]),
            (Accepted::ProcedureUnavailable, vec![3]),
            (Accepted::GarbageArguments, vec![4]),
            (Accepted::SystemError, vec![5]),
        ];
        for (status, tail) in cases {
            let mut room = [0; 64];
            let mut writer = Writer::new(&mut room);
            write_accepted(&mut writer, 9, status);
            let written = writer.written();
            let mut expected = head(&[9, 1, 0, 0, 0]);
            expected.extend(head(&tail));
            assert_eq!(room[4..written], expected, "{status:?}");
        }
    }

    #[test]
    fn a_call_that_asks_for_tls_is_none() {
        let record = head(&[7, 0, 2, 100_003, 3, 0, 7, 0, 0, 0]);
        let probe = Probe {
            xid: 7,
            program: 100_003,
            version: 3,
            procedure: 0,
        };
        assert_eq!(open(&record, None), Err(Refusal::AsksForTls(probe)));
        let mut room = [0; 64];
        let mut writer = Writer::new(&mut room);
        write_starttls(&mut writer, 7);
        let written = writer.written();
        let (begin, end) = (head(&[7, 1, 0, 0, 8]), head(&[0]));
        assert_eq!(room[4..written], [&begin[..], b"STARTTLS", &end].concat());
    }

    #[test]
    fn a_marker_names_one_last_fragment() {
        assert_eq!(marker(28), [0x80, 0, 0, 24]);
    }
}
