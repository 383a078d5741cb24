//! One call on its way to a worker and back.

use std::sync::Arc;

use flatpath::WorkerScope;

use crate::admission::Admission;
use crate::duplicate_requests::{DuplicateRequestCache, Lookup, RequestKey, Ticket};
use crate::limits::LOOKUP_PAUSES_MAX;
use crate::message::{Accepted, Call};
use crate::origin::Origin;
use crate::programs::{Found, Programs};
use crate::record::Record;
use crate::reply::Reply;

/// See the module.
#[derive(Debug, Default)]
#[doc(hidden)]
pub struct RpcJob {
    pub(crate) call: Call,
    pub(crate) record: Record,
    pub(crate) arguments_at: usize,
    /// Of a call that must not be executed twice.
    pub(crate) origin: Option<Arc<Origin>>,
    pub(crate) found: Found,
    pub(crate) begun_ns: u64,
    pub(crate) promised_bytes: usize,
    pub(crate) reply: Reply,
    pub(crate) silent: bool,
    /// The reply is that of an earlier call.
    pub(crate) repeated: bool,
}

impl RpcJob {
    /// Executes the call, or repeats the reply to it, when there is room in its limit. Until
    /// then it has no effect and runs again.
    pub(crate) fn run(
        &mut self,
        programs: &impl Programs,
        duplicates: &DuplicateRequestCache,
        scope: &mut WorkerScope<'_>,
    ) {
        let arguments = self.record.arguments(self.arguments_at);
        let admission = Admission::of(programs, &self.call, arguments, |it| it.enter(scope));
        match admission {
            Admission::Inside { .. } => {}
            Admission::Parked => return,
            Admission::Refused => return self.refuse(programs, scope),
        }
        let RpcJob {
            call,
            record,
            arguments_at,
            origin,
            found,
            begun_ns,
            reply,
            silent,
            repeated,
            ..
        } = self;
        let arguments = record.arguments(*arguments_at);
        let mut ticket: Option<Ticket> = None;
        if let Some(origin) = origin.take() {
            let key = duplicates.key(call, &arguments);
            match look_up(duplicates, key, &origin, *begun_ns, scope) {
                Lookup::Unclear => {}
                Lookup::New(new) => ticket = new,
                Lookup::InProgress => {
                    *silent = true;
                    return;
                }
                Lookup::Done(bytes) => {
                    *repeated = true;
                    return reply.repeat(&bytes);
                }
            }
        }
        let found = std::mem::take(found);
        let served = programs.pooled_after(found, call, arguments, reply, scope.pool());
        if let Some(status) = served.failure() {
            reply.restart(status);
        } else if let (Some(ticket), Some(bytes)) = (ticket.take(), reply.one_piece()) {
            ticket.finish(bytes);
        }
        record.clear();
    }

    /// Answers that there is no room now. That is not kept for a client that repeats the call.
    fn refuse(&mut self, programs: &impl Programs, scope: &WorkerScope<'_>) {
        let arguments = self.record.arguments(self.arguments_at);
        let served = programs.busy(&self.call, arguments, &mut self.reply, scope.pool());
        if let Some(status) = served.failure() {
            self.reply.restart(status);
        }
        self.record.clear();
    }

    /// Gives back everything but the vectors.
    pub(crate) fn reset(&mut self) {
        self.origin = None;
        self.record.clear();
        self.reply.reset();
    }

    /// The program has panicked.
    pub(crate) fn fail(&mut self) {
        self.reply.restart(Accepted::SystemError);
    }
}

/// Looks up a call that must not be executed twice. It may have overtaken the news that its
/// first connection broke.
fn look_up(
    duplicates: &DuplicateRequestCache,
    key: RequestKey,
    origin: &Arc<Origin>,
    begun_ns: u64,
    scope: &WorkerScope<'_>,
) -> Lookup {
    for _ in 0..LOOKUP_PAUSES_MAX {
        match duplicates.look_up(key, origin, begun_ns, false) {
            Lookup::Unclear => scope.pause(),
            known => return known,
        }
    }
    duplicates.look_up(key, origin, begun_ns, true)
}
