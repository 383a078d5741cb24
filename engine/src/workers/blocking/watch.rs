//! Sends jobs back that wait for a stuck limit: one task of the housekeeper for all limits.
//!
//! A limit in which nothing moves wakes no job by itself. So it is listed here when its first job
//! begins to wait, and a task looks at what is listed, again and again until no job waits.
//!
//! Invariant: a limit for which a job waits is listed. It is added after the job waits, and removed
//! under the lock of the list, only when no job does.
//!
//! Cost: a lock and a search for the first job that waits for a limit; nothing while none does.

use std::sync::{Arc, Weak};

use flatpath_structures::lock::Lock;

use super::{BlockingLimit, Inner};
use crate::housekeeper::{Next, Task};
use crate::limits::STUCK_LOOK_INTERVAL;

static WATCH: Lock<Watch> = Lock::new(Watch {
    listed: Vec::new(),
    task: None,
});

struct Watch {
    listed: Vec<Weak<Inner>>, // OURS: as many as there are limits.
    /// While anything is listed.
    task: Option<Task>,
}

/// Lists a limit, for which a job waits.
pub(super) fn add(limit: &BlockingLimit) {
    let mut watch = WATCH.lock();
    if watch
        .listed
        .iter()
        .any(|it| it.as_ptr() == Arc::as_ptr(&limit.0))
    {
        return;
    }
    watch.listed.push(Arc::downgrade(&limit.0));
    if watch.task.is_some() {
        return;
    }
    match Task::begin("stuck limits", |_| look()) {
        Ok(task) => watch.task = Some(task),
        Err(cause) => log::error!(
            "the housekeeper cannot be started: {cause}; what waits for a mount that hangs waits \
             as long as the mount"
        ),
    }
}

fn look() -> Next {
    let listed: Vec<_> = WATCH
        .lock()
        .listed
        .iter()
        .filter_map(Weak::upgrade)
        .collect();
    for limit in listed {
        BlockingLimit(limit).refuse_stuck();
    }
    let mut watch = WATCH.lock();
    let is_waited_for = |it: &Weak<Inner>| {
        it.upgrade()
            .is_some_and(|it| BlockingLimit(it).is_waited_for())
    };
    // OURS: limits without a job.
    watch.listed.retain(is_waited_for);
    if !watch.listed.is_empty() {
        return Next::After(STUCK_LOOK_INTERVAL);
    }
    let task = watch.task.take();
    drop(watch);
    drop(task);
    Next::Ended
}
