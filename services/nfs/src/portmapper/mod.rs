//! The portmapper: rpcbind versions 2, 3 and 4 (RFC 1833), program 100000.
//!
//! It tells clients where NFS and MOUNT are: at port 111 for those that have no option for ports
//! ([`Portmapper`], over TCP and UDP), and at the port of NFS itself. Both read one table
//! ([`Offered`]). `version2` and `versions34` have the procedures, `universal` the addresses.
//!
//! | procedure                           | answer                                                |
//! |-------------------------------------|-------------------------------------------------------|
//! | NULL, GETPORT, GETADDR, GETVERSADDR | by the table                                          |
//! | DUMP, GETADDRLIST                   | likewise, by a worker: they may be long               |
//! | GETTIME, UADDR2TADDR, TADDR2UADDR   | as RFC 1833 says                                      |
//! | SET, UNSET                          | false: no other server registers here                 |
//! | CALLIT, BCAST                       | none, as to every call of theirs that fails           |
//! | INDIRECT                            | PROC_UNAVAIL, as this procedure is to tell of errors  |
//! | GETSTAT                             | PROC_UNAVAIL: it would tell everyone who asks for what|
//!
//! CALLIT, BCAST and INDIRECT would call another program in the name of this machine, for anyone:
//! an open relay, which no client of NFS needs.
//!
//! Not here: registering with the rpcbind of the machine, which is what `rpcbind` does.

mod offered;
mod universal;
mod version2;
mod versions34;

use flatpath::Subnet;
use flatpath::memory::PoolHandle;
use flatpath_rpc::limits::REPLY_BYTES_MIN;
use flatpath_rpc::xdr::{Malformed, Writer};
use flatpath_rpc::{
    Accepted, Arguments, AuthStatus, Call, CallOutcome, Programs, Reply, Route, Rpc,
};

use crate::limits::PORTMAP_LIST_BYTES_MAX;
use crate::programs::{PORTMAP, PORTMAP_PROCEDURES};
pub use offered::{Offer, Offered};
pub(crate) use version2::TCP;

const VERSION_2: u32 = 2;

/// Procedures that all three versions have.
pub(crate) const SET: u32 = 1;
pub(crate) const UNSET: u32 = 2;
/// GETPORT of version 2.
pub(crate) const GETADDR: u32 = 3;
const DUMP: u32 = 4;
/// BCAST of version 4.
const CALLIT: u32 = 5;
/// From version 3 on.
const GETTIME: u32 = 6;
const UADDR2TADDR: u32 = 7;
const TADDR2UADDR: u32 = 8;
/// Of version 4.
const GETVERSADDR: u32 = 9;
const INDIRECT: u32 = 10;
const GETADDRLIST: u32 = 11;
const GETSTAT: u32 = 12;

/// A portmapper at an address of its own, usually port 111.
///
/// ```no_run
/// use flatpath::Server;
/// use flatpath_nfs::{Nfs, Offer, Options, Portmapper};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let nfs = Nfs::open(Options::new("/srv/www"))?;
/// let offered = nfs.offered();
/// let portmapper = Portmapper::new(&offered).protocol();
/// let datagrams = portmapper.datagrams();
/// let running = Server::new()
///     .listen("0.0.0.0:2049", nfs.protocol())
///     .listen("0.0.0.0:111", portmapper)
///     .listen_datagrams("0.0.0.0:111", datagrams)
///     .start()?;
/// for (offer, listener) in [(Offer::Nfs, 0), (Offer::Portmapper, 1)] {
///     let at = running.listeners()[listener].address.internet();
///     offered.announce(offer, at.expect("it is TCP"));
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Portmapper {
    offered: Offered,
    allowed: Vec<Subnet>,
}

impl Portmapper {
    /// For all clients that can reach it.
    pub fn new(offered: &Offered) -> Portmapper {
        Portmapper {
            offered: offered.clone(),
            allowed: Vec::new(),
        }
    }

    /// What it lists.
    pub(crate) fn offered(&self) -> &Offered {
        &self.offered
    }

    /// Only for clients of these networks; empty: for all. The address of a datagram may be forged:
    /// then the reply goes to a client of these networks that has not asked.
    pub fn allowed(self, allowed: Vec<Subnet>) -> Portmapper {
        Portmapper { allowed, ..self }
    }

    /// As a protocol of the engine, with little memory: its calls are short.
    pub fn protocol(self) -> Rpc<Portmapper> {
        Rpc::new(self).bounded(Portmapper::page_bytes(), 1)
    }

    /// Bytes of a page of its region, of which each network thread has
    /// [`PAGES_PER_LISTENER`](flatpath_rpc::limits::PAGES_PER_LISTENER).
    pub fn page_bytes() -> u32 {
        u32::try_from(rustix::param::page_size()).unwrap_or(u32::MAX)
    }

    /// Unknown counts as not allowed.
    fn admits(&self, call: &Call) -> bool {
        let listed = |address| self.allowed.iter().any(|it| it.contains(address));
        self.allowed.is_empty() || call.peer.is_some_and(|peer| listed(peer.ip()))
    }
}

impl Programs for Portmapper {
    fn name(&self) -> &'static str {
        "portmapper"
    }

    fn route(&self, call: &Call) -> Route {
        if call.program != PORTMAP.number {
            return Route::Unavailable(Accepted::ProgramUnavailable);
        }
        let of_version = PORTMAP_PROCEDURES.iter();
        let mut of_version = of_version.filter(|(version, _)| *version == call.version);
        let Some((_, procedures)) = of_version.next() else {
            let [(low, _), _, (high, _)] = PORTMAP_PROCEDURES;
            return Route::Unavailable(Accepted::ProgramMismatch { low, high });
        };
        match call.procedure {
            none if none >= *procedures => Route::Unavailable(Accepted::ProcedureUnavailable),
            INDIRECT | GETSTAT => Route::Unavailable(Accepted::ProcedureUnavailable),
            _ if !self.admits(call) => Route::Refused(AuthStatus::TooWeak),
            CALLIT => Route::Silent,
            DUMP | GETADDRLIST => Route::Pooled,
            _ => Route::Inline,
        }
    }

    fn reply_bytes_max(&self, _: &Call, _: Arguments<'_>) -> usize {
        REPLY_BYTES_MIN + PORTMAP_LIST_BYTES_MAX
    }

    fn inline(
        &self,
        call: &Call,
        arguments: Arguments<'_>,
        results: &mut Writer<'_>,
    ) -> CallOutcome {
        let answered = match (call.procedure, call.version) {
            // NULL
            (0, _) => Ok(()),
            (_, VERSION_2) => version2::answer(&self.offered, call, arguments.reader, results),
            _ => versions34::answer(&self.offered, call, arguments.reader, results),
        };
        match answered {
            Ok(()) => CallOutcome::Results,
            Err(Malformed) => CallOutcome::GarbageArguments,
        }
    }

    fn pooled(
        &self,
        call: &Call,
        arguments: Arguments<'_>,
        reply: &mut Reply,
        pool: PoolHandle<'_>,
    ) -> CallOutcome {
        let mut outcome = CallOutcome::SystemError;
        let written = reply.write(PORTMAP_LIST_BYTES_MAX, pool, |results| {
            outcome = self.inline(call, arguments, results);
        });
        match written {
            Ok(()) => outcome,
            Err(_) => CallOutcome::SystemError,
        }
    }
}

#[cfg(test)]
mod tests;
