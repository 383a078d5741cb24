//! Portmapper version 2 (RFC 1833 section 3): tells that everything is on this port.
//!
//! `rpcbind` registers with the portmapper of the machine. Not here: registering others (always
//! refused), and CALLIT, which would call on behalf of a client.

use flatpath_rpc::Arguments;
use flatpath_rpc::xdr::{Malformed, Writer};

use crate::programs::{OFFERED, Program};

pub(crate) const TCP: u32 = 6;

pub(crate) fn serve(
    procedure: u32,
    mut arguments: Arguments<'_>,
    results: &mut Writer<'_>,
    port: u16,
) -> Result<(), Malformed> {
    let mut mapping = || -> Result<[u32; 4], Malformed> {
        let reader = &mut arguments.reader;
        Ok([reader.u32()?, reader.u32()?, reader.u32()?, reader.u32()?])
    };
    match procedure {
        // SET, UNSET
        1 | 2 => {
            mapping()?;
            results.boolean(false);
        }
        // GETPORT
        3 => {
            let [program, version, protocol, _] = mapping()?;
            let mut offered = OFFERED.iter();
            let known = protocol == TCP
                && offered.any(|offered| (offered.number, offered.version) == (program, version));
            results.u32(if known { u32::from(port) } else { 0 });
        }
        // DUMP
        _ => {
            for Program {
                number, version, ..
            } in OFFERED
            {
                results.boolean(true);
                for word in [*number, *version, TCP, u32::from(port)] {
                    results.u32(word);
                }
            }
            results.boolean(false);
        }
    }
    Ok(())
}
