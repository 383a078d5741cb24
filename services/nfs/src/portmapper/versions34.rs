//! Versions 3 and 4 (RFC 1833 section 2): universal addresses by the names of transports.
//!
//! GETADDR and GETVERSADDR are for the transport that the call came by: the name in their arguments
//! is ignored, as section 2.2.1 has it. GETADDR names another version of the program where there is
//! not the one asked for, so that the program itself can tell which it has; GETVERSADDR does not.

use std::net::SocketAddr;
use std::time::{SystemTime, UNIX_EPOCH};

use flatpath_rpc::xdr::{Malformed, Reader, Writer};
use flatpath_rpc::{Call, Transport};

use super::offered::{Entry, Offered, Wanted};
use super::universal::{self, netid};
use super::{
    DUMP, GETADDR, GETADDRLIST, GETTIME, GETVERSADDR, SET, TADDR2UADDR, UADDR2TADDR, UNSET,
};
use crate::limits::PORTMAP_STRING_BYTES_MAX;

/// Who has registered what is listed.
const OWNER: &[u8] = b"flatpath";

/// Kinds of transports (`nc_semantics`): without connections, and with orderly release.
const TPI_CLTS: u32 = 1;
const TPI_COTS_ORD: u32 = 3;

/// Reads `rpcb`: of its five items the program and its version count.
fn rpcb(reader: &mut Reader<'_>) -> Result<(u32, u32), Malformed> {
    let asked = (reader.u32()?, reader.u32()?);
    // The transport, the address and the owner.
    for _ in 0..3 {
        reader.opaque(PORTMAP_STRING_BYTES_MAX)?;
    }
    Ok(asked)
}

fn write_address(results: &mut Writer<'_>, address: Option<SocketAddr>) {
    let text = address.map(universal::text).unwrap_or_default();
    results.opaque(text.as_bytes());
}

/// `rpcb_entry`.
fn write_entry(results: &mut Writer<'_>, entry: &Entry, address: SocketAddr) {
    write_address(results, Some(address));
    results.opaque(netid(entry.transport, address).as_bytes());
    let (semantics, protocol) = match entry.transport {
        Transport::Stream => (TPI_COTS_ORD, "tcp"),
        Transport::Datagram => (TPI_CLTS, "udp"),
    };
    results.u32(semantics);
    let family = if address.is_ipv4() { "inet" } else { "inet6" };
    results.opaque(family.as_bytes());
    results.opaque(protocol.as_bytes());
}

/// Seconds since 1970; RFC 1833 has 32 bits for them.
fn seconds() -> u32 {
    let passed = SystemTime::now().duration_since(UNIX_EPOCH);
    passed.map_or(0, |passed| passed.as_secs() as u32)
}

pub(super) fn answer(
    offered: &Offered,
    call: &Call,
    mut arguments: Reader<'_>,
    results: &mut Writer<'_>,
) -> Result<(), Malformed> {
    let reader = &mut arguments;
    let table = offered.table();
    match call.procedure {
        SET | UNSET => {
            rpcb(reader)?;
            results.boolean(false);
        }
        GETADDR | GETVERSADDR => {
            let (program, version) = rpcb(reader)?;
            let wanted = match call.procedure {
                GETADDR => Wanted::Rather(version),
                _ => Wanted::Exactly(version),
            };
            let found = table.find(call, program, wanted, call.transport);
            write_address(results, found.map(|entry| entry.address_for(call)));
        }
        DUMP => {
            for entry in &table.entries {
                results.boolean(true);
                results.u32(entry.program);
                results.u32(entry.version);
                results.opaque(netid(entry.transport, entry.bound).as_bytes());
                write_address(results, Some(entry.bound));
                results.opaque(OWNER);
            }
            results.boolean(false);
        }
        GETTIME => results.u32(seconds()),
        UADDR2TADDR => {
            let address = universal::parse(reader.opaque(PORTMAP_STRING_BYTES_MAX)?);
            let bytes = address.map(universal::to_transport).unwrap_or_default();
            // Lengths of addresses.
            results.u32(bytes.len() as u32);
            results.opaque(&bytes);
        }
        TADDR2UADDR => {
            let _length_max = reader.u32()?;
            let bytes = reader.opaque(PORTMAP_STRING_BYTES_MAX)?;
            write_address(results, universal::from_transport(bytes));
        }
        GETADDRLIST => {
            let asked = rpcb(reader)?;
            let all = table.reached(call);
            for entry in all.filter(|entry| (entry.program, entry.version) == asked) {
                results.boolean(true);
                write_entry(results, entry, entry.address_for(call));
            }
            results.boolean(false);
        }
        // `route` lets no other pass.
        _ => return Err(Malformed),
    }
    Ok(())
}
