//! Starts the engine's threads.
//!
//! Not `std` itself: what it does for a thread is compiled once for each type of function and of
//! result, and for each type that goes through a channel, which was a twentieth of this crate's
//! code. Here every thread runs a boxed function without a result, and what threads tell the one
//! that started them goes through a [`Reports`].
//!
//! | may run beside   | `tell` | drop of a `Reporter` | `all` |
//! |------------------|--------|----------------------|-------|
//! | any of the three | yes    | yes                  | yes   |

use std::io;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};

use flatpath_structures::lock::{Condition, Lock};

/// Starts a thread.
///
/// # Errors
/// When the kernel refuses it.
pub(crate) fn start(
    name: String,
    run: impl FnOnce() + Send + 'static,
) -> io::Result<JoinHandle<()>> {
    start_boxed(name, Box::new(run))
}

fn start_boxed(name: String, run: Box<dyn FnOnce() + Send>) -> io::Result<JoinHandle<()>> {
    Builder::new().name(name).spawn(run)
}

/// What threads say of their start.
pub(crate) struct Reports {
    state: Lock<State>,
    changed: Condition,
}

#[derive(Default)]
struct State {
    /// Threads that may still say something.
    awaited: usize,
    told: Vec<io::Result<()>>,
}

/// A thread's right to say one thing; a thread that panics drops it without.
pub(crate) struct Reporter(Arc<Reports>);

impl Reports {
    pub(crate) fn new() -> Reports {
        Reports {
            state: Lock::new(State::default()),
            changed: Condition::new(),
        }
    }

    pub(crate) fn reporter(self: &Arc<Reports>) -> Reporter {
        self.state.lock().awaited += 1;
        Reporter(Arc::clone(self))
    }

    /// Waits until no thread has anything to say any more; what was said.
    pub(crate) fn all(&self) -> Vec<io::Result<()>> {
        let state = self.state.lock();
        let mut state = self.changed.wait_while(state, |state| state.awaited > 0);
        std::mem::take(&mut state.told)
    }
}

impl Reporter {
    pub(crate) fn tell(self, what: io::Result<()>) {
        self.0.state.lock().told.push(what);
    }
}

impl Drop for Reporter {
    fn drop(&mut self) {
        self.0.state.lock().awaited -= 1;
        self.0.changed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use std::panic::resume_unwind;

    use super::*;

    #[test]
    fn all_reports_are_there_when_each_thread_has_spoken_or_is_gone() {
        let reports = Arc::new(Reports::new());
        let threads = [0, 1, 2].map(|number| {
            let reporter = reports.reporter();
            let name = format!("reporter {number}");
            let thread = start(name, move || match number {
                0 => reporter.tell(Ok(())),
                1 => reporter.tell(Err(io::Error::other("no ring"))),
                _ => {
                    let _kept = reporter;
                    resume_unwind(Box::new("as asked"))
                }
            });
            thread.expect("a thread")
        });
        let told = reports.all();
        assert_eq!(told.len(), 2);
        assert_eq!(told.iter().filter(|it| it.is_err()).count(), 1);
        let ended = threads.map(JoinHandle::join);
        assert!(ended[0].is_ok() && ended[1].is_ok() && ended[2].is_err());
    }

    #[test]
    fn a_thread_has_its_name() {
        let (names, name) = (Arc::new(Lock::new(None)), "flatpath-test".to_owned());
        let seen = Arc::clone(&names);
        let thread = start(name.clone(), move || {
            let own = std::thread::current().name().map(str::to_owned);
            *seen.lock() = own;
        });
        thread.expect("a thread").join().expect("it ends");
        assert_eq!(*names.lock(), Some(name));
    }
}
