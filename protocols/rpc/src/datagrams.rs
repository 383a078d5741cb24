//! ONC RPC over datagrams: a call is one datagram, and so is its reply. There are no record marks,
//! which are for streams alone (RFC 5531 section 11).
//!
//! The programs are those of the streams, and so are their rules: a call is opened, routed and
//! answered by the same code, on the network thread or on a worker. What differs:
//!
//! - Anyone can send a datagram in the name of any address. [`Call::transport`] tells a program
//!   that [`Call::peer`] proves nothing. The reply goes to that address, so who forges it learns
//!   nothing; who gets what it has not asked for, gets at most three times the forger's bytes
//!   ([`flatpath::datagrams`]).
//! - A reply that would be longer than it may be is replaced by one without results, SYSTEM_ERR: a
//!   client then knows that it has to come by TCP, and waits for nothing.
//! - What is no call is not answered: a reply to it might be answered by another server.
//! - A call that must not be executed twice ([`Route::Once`]) is refused with PROC_UNAVAIL: a
//!   repeated one is known by its connection, which there is none of.
//! - TLS does not begin here: a call that asks for it is refused as where there is none (RFC 9289
//!   section 4.1).
//!
//! A call enters its limits as over a stream ([`Programs::limit`]), and waits for them without its
//! worker. The engine gives few workers to the datagrams of a listener, and drops those that find
//! none.
//!
//! Cost: on the network thread that of an inline call; with a worker, one copy of the reply.

use std::sync::Arc;

use flatpath::WorkerScope;
use flatpath::blocking::{BlockingLimit, Entry};
use flatpath::datagrams::{Datagram, DatagramService, Next, Reply as Answer};
use flatpath::limits::BUFFER_CLASSES;
use flatpath::memory::{Pool, PoolConfig, PoolHandle, Zero};

use crate::admission::Admission;
use crate::auth::AuthStatus;
use crate::limits::{DATAGRAM_REPLIES_BYTES, INLINE_REPLY_BYTES_MAX, REPLY_BYTES_MIN};
use crate::message::{self, Accepted, Call, Denied, Refusal, Transport};
use crate::programs::{Programs, Route};
use crate::record::Arguments;
use crate::reply::Reply;
use crate::reply_counts::{Beside, ReplyCounts, ThreadCounts};
use crate::xdr::Writer;

/// Bytes of a record's mark, for which replies to streams have room at their front.
const MARK_BYTES: usize = 4;

/// Programs that answer datagrams, made by [`Rpc::datagrams`](crate::Rpc::datagrams).
pub struct RpcDatagrams<S: Programs> {
    programs: Arc<S>,
    /// Shared by the network thread and the workers of this listener.
    counts: ThreadCounts,
    pool: Pool,
}

flatpath::opaque_debug! {
    impl[S: Programs] RpcDatagrams<S> as "RpcDatagrams";
}

impl<S: Programs> RpcDatagrams<S> {
    pub(crate) fn new(programs: Arc<S>, counts: &ReplyCounts) -> RpcDatagrams<S> {
        let counts = counts.enter(programs.reply_classes());
        RpcDatagrams {
            programs,
            counts,
            pool: Pool::new(PoolConfig {
                classes: BUFFER_CLASSES[..2].to_vec(),
                budget_bytes: DATAGRAM_REPLIES_BYTES,
                zero: Zero::WhenLent,
            }),
        }
    }

    /// The call in a datagram, its arguments, and where it is answered.
    fn route<'a>(&self, datagram: &Datagram<'a>) -> Result<(Call, Arguments<'a>, Route), Refusal> {
        let (mut call, arguments) = message::open(datagram.bytes(), Some(datagram.peer()))?;
        call.local = datagram.local();
        call.transport = Transport::Datagram;
        let refused = |status| Err(Refusal::Accepted(call.xid, status));
        match self.programs.route(&call) {
            Route::Unavailable(status) => refused(status),
            Route::Once => refused(Accepted::ProcedureUnavailable),
            Route::Refused(status) => Err(Refusal::Denied(call.xid, Denied::Auth(status))),
            route => Ok((call, Arguments::new(arguments), route)),
        }
    }

    fn answer_inline(&self, call: &Call, arguments: Arguments<'_>, answer: &mut Answer<'_>) {
        let mut room = [0; INLINE_REPLY_BYTES_MAX];
        let mut writer = Writer::new(&mut room);
        message::write_accepted(&mut writer, call.xid, Accepted::Success);
        let served = self.programs.inline(call, arguments, &mut writer);
        let overflow = writer.overflowed().then_some(Accepted::SystemError);
        let failure = served.failure().or(overflow);
        let written = writer.written();
        match failure {
            Some(status) => self.answer_status(call, status, answer),
            None => self.answer_with(call, &room[MARK_BYTES..written], None, answer),
        }
    }

    /// On a worker. A datagram for which there is no memory is dropped: its client sends it again.
    fn answer_pooled(
        &self,
        call: &Call,
        arguments: Arguments<'_>,
        answer: &mut Answer<'_>,
        enter: impl FnMut(BlockingLimit) -> Entry,
    ) {
        let pool = PoolHandle::from(&self.pool);
        let Some(buffer) = pool.take(REPLY_BYTES_MIN) else {
            return;
        };
        let mut reply = Reply::default();
        reply.prepare(buffer);
        reply.begin(call.xid);
        let admission = Admission::of(&*self.programs, call, arguments, enter);
        let served = match admission {
            Admission::Inside { .. } => self.programs.pooled(call, arguments, &mut reply, pool),
            Admission::Refused => self.programs.busy(call, arguments, &mut reply, pool),
            Admission::Parked => return,
        };
        if let Some(status) = served.failure() {
            return self.answer_status(call, status, answer);
        }
        let (_, result) = reply.status();
        match reply.one_piece() {
            Some(bytes) => self.answer_with(call, bytes, result, answer),
            None => self.answer_status(call, Accepted::SystemError, answer),
        }
    }

    /// Answers with these results, or that there are some which are too long.
    fn answer_with(&self, call: &Call, bytes: &[u8], result: Option<u32>, answer: &mut Answer<'_>) {
        if answer.write(bytes).is_err() {
            return self.answer_status(call, Accepted::SystemError, answer);
        }
        self.count(call, Accepted::Success, result);
    }

    fn answer_status(&self, call: &Call, status: Accepted, answer: &mut Answer<'_>) {
        self.count(call, status, None);
        write(answer, |writer| {
            message::write_accepted(writer, call.xid, status);
        });
    }

    fn answer_refusal(&self, refusal: Refusal, answer: &mut Answer<'_>) {
        self.counts.add_beside_shared(Beside::Refused);
        let denied = |xid, why| (xid, Denied::Auth(why));
        let (xid, why) = match refusal {
            Refusal::NoCall => return,
            Refusal::Accepted(xid, status) => {
                return write(answer, |writer| {
                    message::write_accepted(writer, xid, status);
                });
            }
            Refusal::Denied(xid, why) => (xid, why),
            Refusal::AsksForTls(probe) => denied(probe.xid, AuthStatus::BadCredential),
        };
        write(answer, |writer| message::write_denied(writer, xid, why));
    }

    fn count(&self, call: &Call, accepted: Accepted, result: Option<u32>) {
        let class = self.programs.reply_class(call, accepted.number(), result);
        if let Some(class) = class {
            self.counts.add_shared(class);
        }
    }
}

/// Writes a reply without results, which is no longer than three times its call.
fn write(answer: &mut Answer<'_>, encode: impl FnOnce(&mut Writer<'_>)) {
    let mut room = [0; INLINE_REPLY_BYTES_MAX];
    let mut writer = Writer::new(&mut room);
    encode(&mut writer);
    let written = writer.written();
    answer.clear();
    // It fits: the shortest call that is answered has eight bytes, and this reply 24, or more of
    // each. If it did not, the engine would drop it.
    let _ = answer.write(&room[MARK_BYTES..written]);
}

impl<S: Programs> DatagramService for RpcDatagrams<S> {
    fn name(&self) -> &'static str {
        self.programs.name()
    }

    fn receive(&self, datagram: &Datagram<'_>, answer: &mut Answer<'_>) -> Next {
        match self.route(datagram) {
            Ok((_, _, Route::Silent)) => self.counts.add_beside_shared(Beside::Refused),
            Ok((call, arguments, Route::Inline)) => self.answer_inline(&call, arguments, answer),
            Ok(_) => return Next::Work,
            Err(refusal) => self.answer_refusal(refusal, answer),
        }
        Next::Answer
    }

    fn work(&self, datagram: &Datagram<'_>, answer: &mut Answer<'_>, scope: &mut WorkerScope<'_>) {
        self.answer_on_worker(datagram, answer, |limit| limit.enter(scope));
    }
}

impl<S: Programs> RpcDatagrams<S> {
    fn answer_on_worker(
        &self,
        datagram: &Datagram<'_>,
        answer: &mut Answer<'_>,
        enter: impl FnMut(BlockingLimit) -> Entry,
    ) {
        // The rules may have changed since: then it is as if it had come now.
        match self.route(datagram) {
            Ok((_, _, Route::Silent)) => {}
            Ok((call, arguments, Route::Inline)) => self.answer_inline(&call, arguments, answer),
            Ok((call, arguments, _)) => self.answer_pooled(&call, arguments, answer, enter),
            Err(refusal) => self.answer_refusal(refusal, answer),
        }
    }
}

#[cfg(test)]
mod tests;
