//! Version 2 (RFC 1833 section 3): ports by the number of an IP protocol.

use flatpath_rpc::xdr::{Malformed, Reader, Writer};
use flatpath_rpc::{Call, Transport};

use super::offered::{Offered, Wanted};
use super::{DUMP, GETADDR as GETPORT};

pub(crate) const TCP: u32 = 6;
const UDP: u32 = 17;

/// Reads `mapping`: program, version, protocol, port.
fn mapping(reader: &mut Reader<'_>) -> Result<[u32; 4], Malformed> {
    Ok([reader.u32()?, reader.u32()?, reader.u32()?, reader.u32()?])
}

fn number(transport: Transport) -> u32 {
    match transport {
        Transport::Stream => TCP,
        Transport::Datagram => UDP,
    }
}

pub(super) fn answer(
    offered: &Offered,
    call: &Call,
    mut arguments: Reader<'_>,
    results: &mut Writer<'_>,
) -> Result<(), Malformed> {
    let table = offered.table();
    match call.procedure {
        DUMP => {
            for entry in table.reached(call) {
                results.boolean(true);
                let (protocol, port) = (number(entry.transport), entry.bound.port());
                for word in [entry.program, entry.version, protocol, u32::from(port)] {
                    results.u32(word);
                }
            }
            results.boolean(false);
        }
        GETPORT => {
            let [program, version, protocol, _] = mapping(&mut arguments)?;
            let transport = match protocol {
                TCP => Some(Transport::Stream),
                UDP => Some(Transport::Datagram),
                _ => None,
            };
            let wanted = Wanted::Rather(version);
            let found = transport.and_then(|by| table.find(call, program, wanted, by));
            results.u32(found.map_or(0, |entry| entry.bound.port().into()));
        }
        // SET, UNSET
        _ => {
            mapping(&mut arguments)?;
            results.boolean(false);
        }
    }
    Ok(())
}
