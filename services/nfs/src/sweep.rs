//! Closes what is not in use: files that were removed on the server, and data of idle files; and,
//! when connections and transfers need the descriptors, whatever was used least recently.
//!
//! The descriptors of a removed file keep its blocks, a descriptor for writing keeps a program from
//! being started and a file system from being made read-only, and no call may ever come that would
//! close them. So a thread looks at all nodes twice a second. It may wait for a file system that
//! hangs; that is why it is a thread of its own and holds no lock when it asks. All files are on
//! one file system, so no other file system has to wait for it.
//!
//! Invariants
//! - W1: what a call uses is not closed (`nodes`, N2).
//! - W2: the thread ends when the export does.
//!
//! Cost: with all of [`NODES_MAX`](crate::limits::NODES_MAX) files open and idle, two system calls
//! for each of them in two seconds; for files in use, one look at a flag.

use std::sync::{Arc, Weak};
use std::time::Instant;

use flatpath::memory::Pipes;
use rustix::fs::{AtFlags, StatxFlags};

use crate::export::Export;
use crate::limits::{
    NODE_SHARDS, SWEEP_INTERVAL, SWEEP_PAUSE, SWEEP_SYNC_TIME_MAX, SWEEPS_IDLE, SWEEPS_PER_QUESTION,
};
use crate::node::Node;

/// Starts the thread.
///
/// # Errors
/// When the system has no more threads.
pub(crate) fn start(export: &Arc<Export>, pipes: Pipes) -> std::io::Result<()> {
    let export = Arc::downgrade(export);
    let thread = std::thread::Builder::new().name("flatpath-sweep".into());
    let run = move || run(&export, &pipes);
    thread.spawn(run).map(drop)
}

fn run(export: &Weak<Export>, pipes: &Pipes) {
    let (mut nodes, mut unsynced) = (Vec::new(), Vec::new());
    loop {
        give_back_until(Instant::now() + SWEEP_INTERVAL, export, pipes);
        let Some(export) = export.upgrade() else {
            return;
        };
        export.nodes.close_left();
        for shard in 0..NODE_SHARDS {
            export.nodes.list(shard, &mut nodes);
            for node in nodes.drain(..) {
                if node.key != export.root_key {
                    look_at(&export, node, &mut unsynced);
                }
            }
        }
        sync(&export, &mut unsynced);
    }
}

/// Waits, and closes what connections and transfers need in that time.
fn give_back_until(end: Instant, export: &Weak<Export>, pipes: &Pipes) {
    let budget = loop {
        let known = export.upgrade();
        match known.and_then(|export| export.nodes.budget().cloned()) {
            Some(budget) => break budget,
            None if Instant::now() >= end => return,
            // The server starts any moment.
            None => std::thread::sleep(SWEEP_PAUSE),
        }
    };
    loop {
        let left = end.saturating_duration_since(Instant::now());
        let excess = budget.await_excess(left);
        if excess == 0 && left.is_zero() {
            return;
        }
        if excess > 0 {
            let Some(export) = export.upgrade() else {
                return;
            };
            budget.gave_back(give_back(&export, pipes, excess));
            // Files that calls have in use are closed when they end; the network threads ask again.
            std::thread::sleep(SWEEP_PAUSE);
        }
    }
}

/// Closes files with `excess` descriptors. How many were given back by that.
fn give_back(export: &Export, pipes: &Pipes, excess: usize) -> usize {
    let piped = 2 * pipes.close_idle();
    let mut nodes = Vec::new();
    export.nodes.evict(excess.saturating_sub(piped), &mut nodes);
    let closed: usize = nodes.iter().map(|node| node.descriptors()).sum();
    // Those that take no time are closed first, before the others are synced.
    nodes.retain(|node| node.is_unsynced());
    drop(nodes);
    piped + closed
}

fn look_at(export: &Export, node: Arc<Node>, unsynced: &mut Vec<Arc<Node>>) {
    let idle = node.count_idle();
    if idle == 0 {
        return;
    }
    if idle.is_multiple_of(SWEEPS_PER_QUESTION) && may_be_dead(&node) {
        match export.bury_if_dead(&node) {
            Ok(false) => {}
            Ok(true) => return,
            Err(status) => log::debug!("a file cannot be looked at: {status:?}"),
        }
    }
    if idle >= SWEEPS_IDLE && node.has_data_open() {
        if node.is_unsynced() {
            unsynced.push(node);
        } else {
            close(export, &node);
        }
    }
}

/// From what the kernel knows without asking a server elsewhere.
fn may_be_dead(node: &Node) -> bool {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    rustix::fs::statx(&node.path, c"", flags, StatxFlags::NLINK)
        .is_ok_and(|found| found.stx_nlink == 0)
}

fn close(export: &Export, node: &Arc<Node>) {
    if let Err(errno) = export.nodes.renew(node) {
        log::debug!("an idle file stays open: {errno}");
    }
}

/// Writes to disk what would be closed before it was committed; what there is no time for is left
/// to the next sweep.
fn sync(export: &Export, nodes: &mut Vec<Arc<Node>>) {
    let began = Instant::now();
    for node in nodes.drain(..) {
        if began.elapsed() > SWEEP_SYNC_TIME_MAX {
            continue;
        }
        node.sync_writer();
        close(export, &node);
    }
}
