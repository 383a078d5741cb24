//! Portmapper version 2 (RFC 1833 section 3): tells that everything is on this port.
//!
//! `rpcbind` registers with the portmapper of the machine. Not here: registering others (always
//! refused), and CALLIT, which would call on behalf of a client.

use flatpath_rpc::xdr::Writer;
use flatpath_rpc::{Accepted, Arguments, Served};

use crate::mount;
use crate::service::{NFS_PROGRAM, NFS_VERSION};

pub(crate) const PROGRAM: u32 = 100_000;
pub(crate) const VERSION: u32 = 2;
/// NULL, SET, UNSET, GETPORT, DUMP.
pub(crate) const PROCEDURES: u32 = 5;

pub(crate) const TCP: u32 = 6;

const OFFERED: [(u32, u32); 3] = [
    (PROGRAM, VERSION),
    (mount::PROGRAM, mount::VERSION),
    (NFS_PROGRAM, NFS_VERSION),
];

pub(crate) fn serve(
    procedure: u32,
    mut arguments: Arguments<'_>,
    results: &mut Writer<'_>,
    port: u16,
) -> Served {
    let mut mapping = || -> Result<[u32; 4], flatpath_rpc::xdr::Malformed> {
        let reader = &mut arguments.reader;
        Ok([reader.u32()?, reader.u32()?, reader.u32()?, reader.u32()?])
    };
    match procedure {
        // SET, UNSET
        1 | 2 => match mapping() {
            Ok(_) => results.boolean(false),
            Err(_) => return Served::GarbageArguments,
        },
        // GETPORT
        3 => match mapping() {
            Ok([program, version, protocol, _]) => {
                let known = protocol == TCP && OFFERED.contains(&(program, version));
                results.u32(if known { u32::from(port) } else { 0 });
            }
            Err(_) => return Served::GarbageArguments,
        },
        // DUMP
        4 => {
            for (program, version) in OFFERED {
                results.boolean(true);
                for word in [program, version, TCP, u32::from(port)] {
                    results.u32(word);
                }
            }
            results.boolean(false);
        }
        _ => {
            debug_assert!(
                false,
                "{:?} is answered before",
                Accepted::ProcedureUnavailable
            );
            return Served::SystemError;
        }
    }
    Served::Results
}
