//! The programs that are served.

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

/// NULL, SET, UNSET, GETPORT, DUMP (RFC 1833 section 3).
pub(crate) const PORTMAP: Program = Program {
    number: 100_000,
    version: 2,
    procedures: 5,
};

/// All of them, on one port.
pub(crate) const OFFERED: &[Program] = &[NFS, MOUNT, PORTMAP];
