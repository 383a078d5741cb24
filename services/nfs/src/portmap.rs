//! Portmapper version 2 (RFC 1833 section 3): tells that everything is on this port.
//!
//! `rpcbind` registers with the portmapper of the machine. Not here: registering others (always
//! refused), and CALLIT, which would call on behalf of a client.

use flatpath_rpc::xdr::Writer;
use flatpath_rpc::{Accepted, Arguments, CallOutcome};

use crate::programs::{OFFERED, Program};

pub(crate) const TCP: u32 = 6;

pub(crate) fn serve(
    procedure: u32,
    mut arguments: Arguments<'_>,
    results: &mut Writer<'_>,
    port: u16,
) -> CallOutcome {
    let mut mapping = || -> Result<[u32; 4], flatpath_rpc::xdr::Malformed> {
        let reader = &mut arguments.reader;
        Ok([reader.u32()?, reader.u32()?, reader.u32()?, reader.u32()?])
    };
    match procedure {
        // SET, UNSET
        1 | 2 => match mapping() {
            Ok(_) => results.boolean(false),
            Err(_) => return CallOutcome::GarbageArguments,
        },
        // GETPORT
        3 => match mapping() {
            Ok([program, version, protocol, _]) => {
                let mut offered = OFFERED.iter();
                let known = protocol == TCP
                    && offered
                        .any(|offered| (offered.number, offered.version) == (program, version));
                results.u32(if known { u32::from(port) } else { 0 });
            }
            Err(_) => return CallOutcome::GarbageArguments,
        },
        // DUMP
        4 => {
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
        _ => {
            debug_assert!(
                false,
                "{:?} is answered before",
                Accepted::ProcedureUnavailable
            );
            return CallOutcome::SystemError;
        }
    }
    CallOutcome::Results
}
