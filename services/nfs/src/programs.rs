//! The programs that are served, and which of their calls need TLS where that is required.

use flatpath_rpc::Call;

/// A program of ONC RPC in the version that is offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Program {
    pub(crate) number: u32,
    pub(crate) version: u32,
    /// Procedures of that version, NULL included.
    pub(crate) procedures: u32,
}

/// NULL to COMMIT (RFC 1813 section 3.3).
pub(crate) const NFS: Program = Program {
    number: 100_003,
    version: 3,
    procedures: 22,
};

/// NULL, MNT, DUMP, UMNT, UMNTALL, EXPORT (RFC 1813 appendix I).
pub(crate) const MOUNT: Program = Program {
    number: 100_005,
    version: 3,
    procedures: 6,
};

/// The procedure of MOUNT whose results begin with a status.
pub(crate) const MNT: u32 = 1;

/// The procedure of MOUNT that lists exports.
pub(crate) const EXPORT: u32 = 5;

/// Whether a call needs TLS where that is required: calls of NFS do. NULL, MOUNT and the portmapper
/// give access to nothing: a handle is good for nothing but calls of NFS. mount(8) of Linux and
/// rpcinfo ask them in the clear, also for a mount with TLS, and mountd and rpcbind answer.
pub(crate) fn needs_tls(call: &Call) -> bool {
    call.program == NFS.number && call.procedure != 0
}

/// The version of the portmapper in which servers register: NULL, SET, UNSET, GETPORT, DUMP, CALLIT
/// (RFC 1833 section 3).
pub(crate) const PORTMAP: Program = Program {
    number: 100_000,
    version: 2,
    procedures: 6,
};

/// Its versions, each with its procedures: version 3 has NULL to TADDR2UADDR, version 4
/// GETVERSADDR, INDIRECT, GETADDRLIST and GETSTAT in addition (RFC 1833 section 2).
pub(crate) const PORTMAP_PROCEDURES: [(u32, u32); 3] = [(2, PORTMAP.procedures), (3, 9), (4, 13)];
