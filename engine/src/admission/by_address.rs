//! What is shared out by address: one list of everything that one client could use up.
//!
//! For each of them one promise holds: an address may have all that no other wants, and a newcomer
//! whose address has little is served within a bound, however long the first one keeps what it has.
//! How depends on whether what is held can be taken back: a stream can be ended, a handler that
//! waits cannot. A new bound that clients can fill belongs here; `e2e/tests/engine/by_address.rs`
//! tries every entry.
//!
//! Does not: count anything. The counts are in `address_limit.rs`, `admission.rs`, `turns.rs` and,
//! for uploads, in the service for files.

/// Something of which an address may have all that no other wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ByAddress {
    /// Places for connections.
    Connections,
    /// Places for jobs, which wait for a worker or run.
    Jobs,
    /// Workers, which handlers keep.
    Workers,
    /// Places for jobs that last as long as their client takes: streams, uploads, sockets.
    Lasting,
    /// Memory for buffers.
    Memory,
    /// Descriptors of files.
    Files,
    /// Datagrams at work.
    Datagrams,
    /// Archives that are made.
    Archives,
    /// Unfinished resumable uploads.
    Uploads,
    /// Bytes of unfinished resumable uploads.
    UploadBytes,
    /// Bodies that are compressed while they are sent.
    Compressed,
}

/// What makes room for a newcomer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Remedy {
    /// What has lasted longest for an address with more than its share is ended.
    Ends,
    /// It cannot be taken back: an address with more than its share leaves a part.
    Leaves,
    /// The newcomer is served without it.
    DoesWithout,
}

impl ByAddress {
    /// Each of them.
    pub const ALL: [ByAddress; 11] = [
        ByAddress::Connections,
        ByAddress::Jobs,
        ByAddress::Workers,
        ByAddress::Lasting,
        ByAddress::Memory,
        ByAddress::Files,
        ByAddress::Datagrams,
        ByAddress::Archives,
        ByAddress::Uploads,
        ByAddress::UploadBytes,
        ByAddress::Compressed,
    ];

    /// What the log calls it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            ByAddress::Connections => "connections",
            ByAddress::Jobs => "places for jobs",
            ByAddress::Workers => "workers",
            ByAddress::Lasting => "jobs that last",
            ByAddress::Memory => "memory for buffers",
            ByAddress::Files => "descriptors of files",
            ByAddress::Datagrams => "datagrams at work",
            ByAddress::Archives => "archives",
            ByAddress::Uploads => "unfinished uploads",
            ByAddress::UploadBytes => "bytes of unfinished uploads",
            ByAddress::Compressed => "bodies that are compressed",
        }
    }

    /// What makes room for a newcomer.
    #[must_use]
    pub fn remedy(self) -> Remedy {
        match self {
            ByAddress::Connections
            | ByAddress::Lasting
            | ByAddress::Memory
            | ByAddress::Files
            | ByAddress::Archives
            | ByAddress::Uploads => Remedy::Ends,
            ByAddress::Jobs
            | ByAddress::Workers
            | ByAddress::Datagrams
            | ByAddress::UploadBytes => Remedy::Leaves,
            ByAddress::Compressed => Remedy::DoesWithout,
        }
    }
}
