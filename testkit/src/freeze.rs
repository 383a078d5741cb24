//! A thread of another process that stops wherever it is, as in a system call that never returns.
//!
//! It is traced and interrupted (ptrace(2)): no signal but the end of the process moves it. The
//! process must be a child of this one. Everything happens on the thread that made the [`Frozen`],
//! because the kernel takes requests from that one alone; so it is neither `Send` nor `Sync`.

use std::marker::PhantomData;

use nix::sys::ptrace::{self, Options};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use crate::tools;
use crate::{Process, until};

/// A thread that runs no more.
#[derive(Debug)]
pub struct Frozen {
    thread: Pid,
    on_this_thread: PhantomData<*const ()>,
}

impl Frozen {
    /// Freezes the thread of that name (its first 15 bytes). `None` where the machine allows no
    /// tracing, after saying so.
    pub fn thread(process: Process, name: &str) -> Option<Frozen> {
        let threads = until(&format!("a thread {name}"), || {
            Some(process.threads(name)).filter(|threads| !threads.is_empty())
        });
        let number = i32::try_from(threads[0]).expect("a thread number");
        let thread = Pid::from_raw(number);
        if let Err(errno) = ptrace::seize(thread, Options::empty()) {
            return tools::refused(&format!("ptrace: {errno}"));
        }
        ptrace::interrupt(thread).expect("it is traced");
        let frozen = Frozen {
            thread,
            on_this_thread: PhantomData,
        };
        until("the thread to stop", || {
            matches!(frozen.status(), WaitStatus::PtraceEvent(..)).then_some(())
        });
        Some(frozen)
    }

    /// Waits until the thread has ended with its process. Only then is the process seen to end.
    pub fn await_end(self) {
        until("the frozen thread to end with its process", || {
            let status = self.status();
            matches!(status, WaitStatus::Exited(..) | WaitStatus::Signaled(..)).then_some(())
        });
    }

    fn status(&self) -> WaitStatus {
        let flags = WaitPidFlag::WNOHANG | WaitPidFlag::__WALL;
        waitpid(self.thread, Some(flags)).expect("it is traced")
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        // A thread that is traced keeps its process from being reaped. Gone is as good.
        let _ = ptrace::detach(self.thread, None);
    }
}
