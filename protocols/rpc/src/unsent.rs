//! How much of a connection's replies may be on its way at once.
//!
//! Other names: the reply room that the kernel's server reserves before it takes a call from a
//! transport (`svc_xprt_has_something_to_do` in net/sunrpc/svc_xprt.c). Without it a client that
//! asks for much and reads nothing would have everything that it asked for read into memory.

use flatpath::{Io, Stall};

/// What a call has to wait for whose reply may have `bytes`, while calls with workers may answer
/// `promised_bytes`. Nothing, when nothing is on its way: a reply is sent, however long it is.
pub(crate) fn wait_for(io: &Io<'_>, promised_bytes: usize, bytes: usize) -> Option<Stall> {
    let unsent_bytes = io.queued_bytes() + promised_bytes;
    let fits = unsent_bytes == 0 || unsent_bytes + bytes <= io.limits().unsent_bytes_max();
    match (fits, io.jobs_out()) {
        (true, _) => None,
        (false, 0) => Some(Stall::Output),
        (false, _) => Some(Stall::Pipeline),
    }
}
