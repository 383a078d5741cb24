//! What threads of this process are at, as `/proc` tells: the one place that asks it.
//!
//! `/proc/self/task/TID/syscall` says `running` of a thread that is on a processor or waits for
//! one, and begins with the number of the system call otherwise. That of `futex` is where locks,
//! conditions and parked threads sleep.
//!
//! Cost: three system calls for a thread, a few microseconds.

use std::fs::File;
use std::io::Read;

use super::growth::Activity;

/// The numbers of `futex`, `futex_waitv` and `futex_wait`.
#[cfg(target_arch = "x86_64")]
const FUTEXES: [&[u8]; 3] = [b"202", b"449", b"455"];
/// The same where system calls have the generic numbers.
#[cfg(not(target_arch = "x86_64"))]
const FUTEXES: [&[u8]; 3] = [b"98", b"449", b"455"];

/// What threads are at, by the numbers that the kernel gave them. `None` where it does not say: no
/// `/proc`, or a kernel without this file.
pub(super) fn activity_of(threads: &[u32]) -> Option<Activity> {
    let mut activity = Activity::default();
    let mut known = 0;
    for thread in threads {
        let mut line = [0; 32];
        let Some(line) = read(*thread, &mut line) else {
            continue;
        };
        known += 1;
        add(line, &mut activity);
    }
    (known > 0 || threads.is_empty()).then_some(activity)
}

fn read(thread: u32, line: &mut [u8; 32]) -> Option<&[u8]> {
    let mut file = File::open(format!("/proc/self/task/{thread}/syscall")).ok()?;
    let length = file.read(line).ok()?;
    Some(&line[..length])
}

/// Counts a thread by its line.
fn add(line: &[u8], activity: &mut Activity) {
    let word = line.split(u8::is_ascii_whitespace).next();
    match word.unwrap_or_default() {
        b"running" => activity.runnable += 1,
        number if FUTEXES.contains(&number) => activity.locked += 1,
        _ => activity.sleeping += 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::mpsc::{Sender, channel};
    use std::sync::{Arc, Barrier};
    use std::time::Instant;

    /// Starts a thread, and waits for its number.
    fn started(act: impl FnOnce() + Send + 'static) -> (u32, std::thread::JoinHandle<()>) {
        let (tell, told) = channel();
        let thread = std::thread::spawn(move || {
            tell_number(&tell);
            act();
        });
        (told.recv().expect("it tells"), thread)
    }

    fn tell_number(tell: &Sender<u32>) {
        let number = flatpath_sys::process::thread_number();
        tell.send(number).expect("it is awaited");
    }

    fn await_activity(thread: u32, wanted: Activity) {
        let deadline = Instant::now() + flatpath_testkit::patience();
        while activity_of(&[thread]) != Some(wanted) {
            let seen = activity_of(&[thread]);
            assert!(Instant::now() < deadline, "{seen:?}, not {wanted:?}");
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_thread_is_seen_at_what_it_is_at() {
        let barrier = Arc::new(Barrier::new(2));
        let other = Arc::clone(&barrier);
        let (number, thread) = started(move || {
            other.wait();
        });
        let locked = Activity {
            locked: 1,
            ..Activity::default()
        };
        await_activity(number, locked);
        barrier.wait();
        thread.join().expect("no panic");

        let is_over = Arc::new(AtomicBool::new(false));
        let until = Arc::clone(&is_over);
        let (number, thread) = started(move || while !until.load(Ordering::Relaxed) {});
        let runnable = Activity {
            runnable: 1,
            ..Activity::default()
        };
        await_activity(number, runnable);
        // ORDER: Relaxed: nothing follows from it.
        is_over.store(true, Ordering::Relaxed);
        thread.join().expect("no panic");

        let (reader, writer) = std::io::pipe().expect("a pipe");
        let (number, thread) = started(move || {
            let read = (&reader).read(&mut [0]);
            assert_eq!(read.ok(), Some(0));
        });
        let sleeping = Activity {
            sleeping: 1,
            ..Activity::default()
        };
        await_activity(number, sleeping);
        drop(writer);
        thread.join().expect("no panic");
    }

    #[test]
    fn a_thread_that_is_gone_is_not_counted_and_where_nothing_is_known_it_is_said() {
        assert_eq!(activity_of(&[]), Some(Activity::default()));
        assert_eq!(activity_of(&[u32::MAX]), None);
        let (number, thread) = started(|| ());
        thread.join().expect("no panic");
        // The kernel still lists one that was joined for a moment.
        flatpath_testkit::until_true("a thread that is gone", || {
            let gone = activity_of(&[number, u32::MAX]);
            gone.is_none() || gone == Some(Activity::default())
        });
    }

    #[test]
    fn a_line_of_a_fault_is_sleep() {
        let mut activity = Activity::default();
        add(b"-1 0x7ffd 0x7f00\n", &mut activity);
        add(b"7 0x1 0x2", &mut activity);
        assert_eq!(activity.sleeping, 2);
    }
}
