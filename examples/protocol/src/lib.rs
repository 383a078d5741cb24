//! A protocol of one's own, for a program that depends on the crate `flatpath` and nothing else.
//!
//! A client sends the length of a block (four bytes, big endian) and the block; the server answers
//! with the sum of its bytes, in decimal, and a line end. Blocks stay in the pages they were
//! received in, and workers add them up. The tests run it on real sockets and in the simulation.
#![forbid(unsafe_code)]

use flatpath::memory::{Part, Payload, RegionConfig};
use flatpath::{
    Context, Job, ListenerOptions, Pages, Phase, Protocol, Received, Stall, WorkerScope,
};

/// Longest block, in bytes.
pub const BLOCK_BYTES_MAX: usize = 1 << 20;

/// The protocol; it has no settings.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sums;

/// One connection.
#[derive(Debug, Default)]
pub struct Session {
    /// Bytes that are to come of the block; none between blocks.
    left: Option<usize>,
    block: Payload,
    /// A worker has a block of this connection.
    is_busy: bool,
}

/// One block on its way to a worker and back.
#[derive(Debug, Default)]
pub struct Block {
    bytes: Payload,
    sum: u64,
}

impl Sums {
    /// Uses what it can of the front of the input: how many bytes, none if it needs more, or why it
    /// has to wait.
    fn take(context: &mut Context<'_, Self>, input: &[u8]) -> Result<Option<usize>, Stall> {
        if context.session.is_busy {
            return Err(Stall::Pipeline);
        }
        match context.session.left {
            None => {
                let Some(length) = input.first_chunk() else {
                    return Ok(None);
                };
                let length = u32::from_be_bytes(*length) as usize;
                if length > BLOCK_BYTES_MAX {
                    context.abort();
                    return Ok(None);
                }
                context.session.left = Some(length);
                context.restart_phase(Phase::Body);
                Ok(Some(4))
            }
            Some(0) => {
                let mut job = context.job().ok_or(Stall::Jobs)?;
                job.bytes = std::mem::take(&mut context.session.block);
                context.session.left = None;
                context.session.is_busy = true;
                context.phase(Phase::Work);
                context.dispatch(job);
                Ok(Some(0))
            }
            Some(_) if input.is_empty() => Ok(None),
            Some(left) => {
                let taken = left.min(input.len());
                let block = &mut context.session.block;
                let retained = context.io.retain_or_copy(&input[..taken], block);
                retained.map_err(|_| Stall::Memory)?;
                context.session.left = Some(left - taken);
                Ok(Some(taken))
            }
        }
    }
}

impl Protocol for Sums {
    type ThreadState = ();
    type Session = Session;
    type Job = Block;

    fn options(&self) -> ListenerOptions {
        ListenerOptions {
            region: Some(RegionConfig::default()),
            first_pages: Pages::Listener,
            ..ListenerOptions::named("sums")
        }
    }

    fn received(&self, context: &mut Context<'_, Self>, input: &[u8]) -> Received {
        let mut consumed = 0;
        loop {
            match Self::take(context, &input[consumed..]) {
                Err(on) => return Received::Blocked { consumed, on },
                Ok(None) => return Received::NeedMore { consumed },
                Ok(Some(taken)) => consumed += taken,
            }
        }
    }

    fn run(&self, block: &mut Block, _scope: &mut WorkerScope<'_>) {
        let bytes = block.bytes.parts().flat_map(Part::bytes);
        block.sum = bytes.map(|byte| u64::from(*byte)).sum();
        // Back to the kernel as early as possible.
        block.bytes = Payload::new();
    }

    fn finished(&self, context: &mut Context<'_, Self>, block: Job<Self>) {
        let reply = format!("{}\n", block.sum);
        context.recycle(block);
        context.session.is_busy = false;
        context.restart_phase(Phase::Idle);
        if context.write(reply.as_bytes()).is_err() {
            context.abort();
        }
    }

    fn retire(&self, _thread: &mut (), block: &mut Block) {
        *block = Block::default();
    }
}
