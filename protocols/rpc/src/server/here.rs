//! Calls that are answered on the network thread: inline, because they are refused, because they
//! need no wait, or because they ask for TLS.

use std::mem;

use flatpath::{Context, Stall};

use crate::auth::AuthStatus;
use crate::limits::{INLINE_REPLY_BYTES_MAX, REPLY_BYTES_MIN, REPLY_COPY_BYTES_MAX};
use crate::message::{self, Accepted, Call, Denied, Probe, Refusal};
use crate::programs::{Found, Programs, Route};
use crate::record::Arguments;
use crate::reply::Reply;
use crate::reply_counts::Beside;
use crate::xdr::Writer;

use super::{Progress, Rpc};

impl<S: Programs> Rpc<S> {
    /// Answers on the network thread, after other replies of this turn. So many bytes are left of
    /// the input.
    pub(super) fn answer_here(
        &self,
        context: &mut Context<'_, Self>,
        routed: Result<(Call, usize, Route), Refusal>,
        mut record: Arguments<'_>,
        left: usize,
    ) -> Progress {
        let (routed, starts_tls) = match routed {
            Err(Refusal::AsksForTls(probe)) => match self.cannot_start(context, probe, left) {
                Some(refusal) => (Err(refusal), false),
                None => (Err(Refusal::AsksForTls(probe)), true),
            },
            routed => (routed, false),
        };
        if let Ok((_, _, Route::Silent)) = routed {
            context.thread.counts.add_beside(Beside::Refused);
            return Progress::Done;
        }
        let Some(buffer) = context.io.reserve(INLINE_REPLY_BYTES_MAX) else {
            return Progress::Stalled(Stall::Memory);
        };
        let counts = &context.thread.counts;
        let room = buffer.spare_up_to(INLINE_REPLY_BYTES_MAX);
        let mut writer = Writer::new(&mut *room);
        match routed {
            Ok((call, arguments_at, _)) => {
                message::write_accepted(&mut writer, call.xid, Accepted::Success);
                record.skip(arguments_at);
                let served = self.programs.inline(&call, record, &mut writer);
                let overflow = writer.overflowed().then_some(Accepted::SystemError);
                let failure = served.failure().or(overflow);
                if let Some(status) = failure {
                    writer = Writer::new(&mut *room);
                    message::write_accepted(&mut writer, call.xid, status);
                }
                let accepted = failure.map_or(0, Accepted::number);
                if let Some(class) = self.programs.reply_class(&call, accepted, None) {
                    counts.add(class);
                }
            }
            Err(Refusal::Accepted(xid, status)) => {
                counts.add_beside(Beside::Refused);
                message::write_accepted(&mut writer, xid, status);
            }
            Err(Refusal::Denied(xid, why)) => {
                counts.add_beside(Beside::Refused);
                message::write_denied(&mut writer, xid, why);
            }
            Err(Refusal::AsksForTls(probe)) => {
                if let Some(class) = self.programs.reply_class(&probe.into(), 0, None) {
                    counts.add(class);
                }
                message::write_starttls(&mut writer, probe.xid);
            }
            Err(Refusal::NoCall) => return Progress::NoCall,
        }
        let written = writer.written();
        room[..4].copy_from_slice(&message::marker(written));
        buffer.advance(written);
        match starts_tls {
            true => Progress::StartsTls,
            false => Progress::Done,
        }
    }

    /// What is wrong with a call that asks for TLS, if anything is (RFC 9289 section 4.1): it must
    /// be NULL, of a program that is here, on a connection that has no TLS yet. What lies behind it
    /// was sent by somebody who has not waited for the answer, and may be another than the client:
    /// the connection ends, and nothing of it is read.
    #[cold]
    fn cannot_start(
        &self,
        context: &Context<'_, Self>,
        probe: Probe,
        left: usize,
    ) -> Option<Refusal> {
        let xid = probe.xid;
        if let Route::Unavailable(status) = self.programs.route(&probe.into()) {
            return Some(Refusal::Accepted(xid, status));
        }
        if probe.procedure != 0 || !context.may_start_tls() {
            let status = AuthStatus::BadCredential;
            return Some(Refusal::Denied(xid, Denied::Auth(status)));
        }
        if left > 0 {
            log::debug!("something was sent in the clear behind a call that asks for TLS");
            return Some(Refusal::NoCall);
        }
        None
    }

    /// Counts a reply that is complete.
    pub(super) fn count(
        &self,
        context: &Context<'_, Self>,
        call: &Call,
        (accepted, result): (u32, Option<u32>),
    ) {
        if let Some(class) = self.programs.reply_class(call, accepted, result) {
            context.thread.counts.add(class);
        }
    }

    /// Tries a call that need not wait.
    ///
    /// # Errors
    /// A worker has to answer it, with what was found.
    pub(super) fn try_promptly(
        &self,
        context: &mut Context<'_, Self>,
        call: &Call,
        arguments: Arguments<'_>,
    ) -> Result<(), Found> {
        let nothing = Found::default();
        let right = self.programs.prompt_right(call, arguments);
        let right = &*right.ok_or(nothing)?;
        let prompt = context.prompt(right).ok_or(nothing)?;
        // Only its vector outlives this call.
        let mut reply = mem::take(&mut context.thread.reply);
        let served = match context.pool().take(REPLY_BYTES_MIN) {
            Some(buffer) => {
                reply.prepare(buffer);
                reply.begin(call.xid);
                self.programs
                    .prompt(call, arguments, &mut reply, context.pool())
            }
            None => Err(nothing),
        };
        context.tried(right, prompt);
        if let Ok(served) = served {
            if let Some(status) = served.failure() {
                reply.restart(status);
            }
            self.count(context, call, reply.status());
            send(context, &mut reply);
        }
        reply.reset();
        context.thread.reply = reply;
        served.map(|_| ())
    }
}

/// Queues a reply that is complete.
pub(super) fn send<S: Programs>(context: &mut Context<'_, Rpc<S>>, reply: &mut Reply) {
    let (mut pieces, piped) = reply.seal();
    while let Some(piece) = pieces.next() {
        let short = pieces.len() == 0 && piece.filled().len() <= REPLY_COPY_BYTES_MAX;
        if !short || context.write(piece.filled()).is_err() {
            context.write_buffer(piece);
        }
    }
    drop(pieces);
    if let Some(piped) = piped {
        context.write_piped(piped);
    }
}

impl From<Probe> for Call {
    fn from(probe: Probe) -> Call {
        Call {
            xid: probe.xid,
            program: probe.program,
            version: probe.version,
            procedure: probe.procedure,
            ..Call::default()
        }
    }
}
