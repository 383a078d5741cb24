//! What a program is to the listener that it serves: where its calls are answered, and how.

use std::sync::Arc;

use flatpath::blocking::BlockingLimit;
use flatpath::descriptors::DescriptorBudget;
use flatpath::memory::PoolHandle;
use flatpath::prompt::PromptRight;

use crate::auth::AuthStatus;
use crate::limits::REPLY_BYTES_MIN;
use crate::message::{Accepted, Call};
use crate::record::Arguments;
use crate::reply::Reply;
use crate::xdr::Writer;

/// Where a call is to be answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Route {
    /// On the network thread: no blocking, a few microseconds, results within
    /// [`INLINE_REPLY_BYTES_MAX`](crate::limits::INLINE_REPLY_BYTES_MAX).
    Inline,
    /// Tried on the network thread, and on a worker if something would have to wait there;
    /// executing it twice does no harm. A long reply is not tried.
    Prompt,
    /// On a worker; executing it twice does no harm.
    Pooled,
    /// On a worker; a repeated call gets the reply of the first one.
    Once,
    /// Nowhere, and there is no reply: the procedure is silent about errors.
    Silent,
    /// Nowhere: the status says why.
    Unavailable(Accepted),
    /// Nowhere: the caller is not accepted.
    Refused(AuthStatus),
}

impl Route {
    /// Whether the network thread is done with the call.
    pub(crate) fn ends_here(self) -> bool {
        matches!(self, Route::Inline | Route::Silent)
    }
}

/// How a program served a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CallOutcome {
    /// Results were written.
    Results,
    /// The arguments cannot be read.
    GarbageArguments,
    /// There is no word of the program for what went wrong.
    SystemError,
}

impl CallOutcome {
    pub(crate) fn failure(self) -> Option<Accepted> {
        match self {
            CallOutcome::Results => None,
            CallOutcome::GarbageArguments => Some(Accepted::GarbageArguments),
            CallOutcome::SystemError => Some(Accepted::SystemError),
        }
    }
}

/// What a try has found when it gives up, in the program's own terms, for the worker that answers
/// the call. The default is nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Found(pub u64);

/// The programs behind a listener.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a set of RPC programs",
    label = "does not implement `Programs`"
)]
pub trait Programs: Send + Sync + 'static {
    /// The word in `listening NAME ADDR` and in logs.
    fn name(&self) -> &'static str;

    /// The server starts; see [`Protocol::starts`](flatpath::Protocol::starts).
    fn starts(&self, descriptors: &DescriptorBudget) {
        let _ = descriptors;
    }

    /// Where `call` is to be answered. On the network thread; must not block.
    fn route(&self, call: &Call) -> Route;

    /// How long the reply to a call for a worker may become, in bytes; what is not known to be long
    /// is [`REPLY_BYTES_MIN`]. A connection's calls wait when their replies might be more than it
    /// may have on its way. On the network thread; must not block.
    fn reply_bytes_max(&self, call: &Call, arguments: Arguments<'_>) -> usize {
        let _ = (call, arguments);
        REPLY_BYTES_MIN
    }

    /// Answers a call routed [`Route::Inline`]. On the network thread; must not block.
    fn inline(
        &self,
        call: &Call,
        arguments: Arguments<'_>,
        results: &mut Writer<'_>,
    ) -> CallOutcome;

    /// Whether a call routed [`Route::Prompt`] may be tried, which calls for the same place lose
    /// when they wait; `None`: it is not. On the network thread; must not block.
    fn prompt_right(&self, call: &Call, arguments: Arguments<'_>) -> Option<Arc<PromptRight>> {
        let _ = (call, arguments);
        None
    }

    /// Answers a call routed [`Route::Prompt`] without waiting for anything, or does not: then what
    /// was written to the reply is dropped. On the network thread; see [`flatpath::prompt`].
    ///
    /// # Errors
    /// The call is for a worker, with what was found.
    fn prompt(
        &self,
        call: &Call,
        arguments: Arguments<'_>,
        reply: &mut Reply,
        pool: PoolHandle<'_>,
    ) -> Result<CallOutcome, Found> {
        let _ = (call, arguments, reply, pool);
        Err(Found::default())
    }

    /// Into how many classes replies are counted, and
    /// [`reply_class`](Programs::reply_class) says which: read with
    /// [`Rpc::reply_counts`](crate::Rpc::reply_counts).
    fn reply_classes(&self) -> usize {
        0
    }

    /// The class of a reply, by how the call was accepted (`accept_stat`, RFC 5531 section 9; 0 is
    /// success) and the first word of its results, if there is one; `None`: it is not counted. On
    /// the network thread, once per reply.
    fn reply_class(&self, call: &Call, accepted: u32, result: Option<u32>) -> Option<usize> {
        let _ = (call, accepted, result);
        None
    }

    /// The limit that a call enters for [`Programs::prepare`], if it needs that: it blocks for
    /// another reason than [`limit`](Programs::limit) is for. On a worker, whenever the call has
    /// its turn.
    fn preparation(&self, call: &Call, arguments: Arguments<'_>) -> Option<BlockingLimit> {
        let _ = (call, arguments);
        None
    }

    /// Does what a call needs before it is answered, and keeps that for
    /// [`Programs::pooled`]. It is left out where its limit has no room and is stuck. On a worker;
    /// may block.
    fn prepare(&self, call: &Call) {
        let _ = call;
    }

    /// The limit that a call enters before [`Programs::pooled`] answers it, because
    /// it may block for a reason that others have too. On a worker, whenever it has its turn.
    fn limit(&self, call: &Call, arguments: Arguments<'_>) -> Option<BlockingLimit> {
        let _ = (call, arguments);
        None
    }

    /// Answers a call for which there is no room in its [`limit`](Programs::limit), without waiting
    /// for what is in the way. On a worker.
    fn busy(
        &self,
        call: &Call,
        arguments: Arguments<'_>,
        reply: &mut Reply,
        pool: PoolHandle<'_>,
    ) -> CallOutcome {
        let _ = (call, arguments, reply, pool);
        CallOutcome::SystemError
    }

    /// Answers any other call. On a worker; may block.
    fn pooled(
        &self,
        call: &Call,
        arguments: Arguments<'_>,
        reply: &mut Reply,
        pool: PoolHandle<'_>,
    ) -> CallOutcome;

    /// As [`Programs::pooled`], which it is by default, for a call that was tried and found this.
    fn pooled_after(
        &self,
        found: Found,
        call: &Call,
        arguments: Arguments<'_>,
        reply: &mut Reply,
        pool: PoolHandle<'_>,
    ) -> CallOutcome {
        let _ = found;
        self.pooled(call, arguments, reply, pool)
    }
}
