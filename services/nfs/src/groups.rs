//! The groups of users as this machine knows them (`--manage-gids`): a call names at most sixteen.
//!
//! Other names: the cache `auth.unix.gid` of Linux's NFS server, which mountd fills.
//!
//! They take the place of those that a call names; its first group stays. A user that this machine
//! does not know is in no other group. Looking a user up may wait, for another machine or for ever,
//! so workers do it, within a limit of its own: half of the workers at most, and one of them for
//! each user. What was found is kept for a while, that there is no such user for a shorter one, and
//! that it could not be found out for seconds. Groups that are older stay in use while they are
//! looked up anew, and where that fails.
//!
//! | may run beside | find | needs_lookup | look_up                      |
//! |----------------|------|--------------|------------------------------|
//! | each of them   | yes  | yes          | yes; two of one user are one |
//!
//! Invariants
//! - G1: nothing waits under the lock but [`UserGroups::look_up`] for another one of its user, with
//!   a bound on how many and on how long.
//! - G2: at most [`GROUP_NUMBERS_MAX`] numbers are kept, in two generations: the older half goes at
//!   once.
//! - G3: a user is in `running` exactly while one thread looks it up, also when that panics.
//!
//! Cost of [`UserGroups::find`]: one lock, one or two searches, one reading of the clock.

use std::collections::HashMap;
use std::ffi::CString;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use flatpath::blocking::{BlockingLimit, WaitLimits};
use flatpath::lock::{Condition, Lock};
use nix::unistd::{Gid, Uid, User, getgrouplist};

use crate::limits::{
    GROUP_NUMBERS_MAX, GROUPS_AGE_FAILED, GROUPS_AGE_MAX, GROUPS_AGE_UNKNOWN, LOOKUP_TIME_MAX,
    LOOKUP_WAITERS_MAX,
};

/// Numbers that an entry counts for beside its groups.
const ENTRY_NUMBERS: usize = 16;

/// What waits for lookups.
const WAITS: WaitLimits = WaitLimits {
    waiting_max: 256,
    stuck_after: Duration::from_secs(1),
};

/// Finds the groups of a user; `None` for one that this machine does not know.
type LookUp = Box<dyn Fn(u32) -> io::Result<Option<Vec<u32>>> + Send + Sync>;

pub(crate) struct UserGroups {
    table: Lock<Table>,
    /// A lookup has ended.
    ended: Condition,
    limit: BlockingLimit,
    look_up: LookUp,
}

#[derive(Default)]
struct Table {
    young: HashMap<u32, Entry>,
    old: HashMap<u32, Entry>,
    /// Numbers in `young`.
    numbers: usize,
    /// Users that are being looked up.
    running: Vec<u32>,
    waiting: usize,
}

#[derive(Clone)]
struct Entry {
    /// None: they could not be found out.
    groups: Option<Arc<[u32]>>,
    fresh_until: Instant,
}

impl Entry {
    fn new(groups: Option<Arc<[u32]>>, age_max: Duration) -> Entry {
        Entry {
            groups,
            fresh_until: Instant::now() + age_max,
        }
    }

    fn is_fresh(&self) -> bool {
        Instant::now() < self.fresh_until
    }
}

impl Table {
    fn find(&self, user: u32) -> Option<&Entry> {
        self.young.get(&user).or_else(|| self.old.get(&user))
    }

    /// Whether a call of this user should wait for a lookup before it is served.
    fn needs_lookup(&self, user: u32) -> bool {
        match self.find(user) {
            Some(entry) if entry.is_fresh() => false,
            // One is enough, as long as there is something to use meanwhile.
            Some(Entry {
                groups: Some(_), ..
            }) => !self.running.contains(&user),
            _ => true,
        }
    }

    fn insert(&mut self, user: u32, entry: Entry) {
        let numbers =
            |entry: &Entry| ENTRY_NUMBERS + entry.groups.as_ref().map_or(0, |it| it.len());
        let added = numbers(&entry);
        if self.numbers + added > GROUP_NUMBERS_MAX / 2 {
            self.old = std::mem::take(&mut self.young);
            self.numbers = 0;
        }
        self.numbers += added;
        if let Some(before) = self.young.insert(user, entry) {
            self.numbers -= numbers(&before);
        }
    }
}

/// A lookup that runs; dropped, it has ended (G3).
struct Running<'a> {
    groups: &'a UserGroups,
    user: u32,
    found: Option<Entry>,
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        let mut table = self.groups.table.lock();
        table.running.retain(|user| *user != self.user);
        let found = self.found.take();
        let found = found.unwrap_or_else(|| Entry::new(None, GROUPS_AGE_FAILED));
        // What was known before is better than nothing.
        let known = table.find(self.user).and_then(|it| it.groups.clone());
        let found = Entry {
            groups: found.groups.or(known),
            ..found
        };
        table.insert(self.user, found);
        drop(table);
        self.groups.ended.notify_all();
    }
}

impl UserGroups {
    /// By the C library, and so by what `nsswitch.conf` names.
    pub(crate) fn of_machine() -> UserGroups {
        UserGroups::with(of_machine)
    }

    pub(crate) fn with(
        look_up: impl Fn(u32) -> io::Result<Option<Vec<u32>>> + Send + Sync + 'static,
    ) -> UserGroups {
        UserGroups {
            table: Lock::default(),
            ended: Condition::new(),
            limit: BlockingLimit::new("lookups of users' groups", WAITS),
            look_up: Box::new(look_up),
        }
    }

    /// For the workers that look up.
    pub(crate) fn limit(&self) -> &BlockingLimit {
        &self.limit
    }

    /// What is known of a user by now. Without a wait: a lock that is taken finds nothing.
    pub(crate) fn find_now(&self, user: u32) -> Option<Arc<[u32]>> {
        let table = self.table.try_lock()?;
        let entry = table.find(user)?;
        let is_usable = entry.is_fresh() || table.running.contains(&user);
        entry.groups.clone().filter(|_| is_usable)
    }

    /// What is known of a user, however old it is.
    pub(crate) fn find(&self, user: u32) -> Option<Arc<[u32]>> {
        self.table.lock().find(user)?.groups.clone()
    }

    /// Whether [`UserGroups::look_up`] is to come before a call of this user.
    pub(crate) fn needs_lookup(&self, user: u32) -> bool {
        self.table.lock().needs_lookup(user)
    }

    /// Looks a user up, unless another thread does or has done so. May wait.
    pub(crate) fn look_up(&self, user: u32) {
        let end = Instant::now() + LOOKUP_TIME_MAX;
        let mut table = self.table.lock();
        while table.running.contains(&user) {
            let left = end.saturating_duration_since(Instant::now());
            let is_full = table.waiting >= LOOKUP_WAITERS_MAX;
            if left.is_zero() || is_full || !table.needs_lookup(user) {
                return;
            }
            table.waiting += 1;
            table = self.ended.wait_for(table, left);
            table.waiting -= 1;
        }
        if !table.needs_lookup(user) {
            return;
        }
        table.running.push(user);
        drop(table);
        let mut running = Running {
            groups: self,
            user,
            found: None,
        };
        running.found = Some(match (self.look_up)(user) {
            Ok(Some(groups)) => Entry::new(Some(groups.into()), GROUPS_AGE_MAX),
            Ok(None) => Entry::new(Some([].into()), GROUPS_AGE_UNKNOWN),
            Err(cause) => {
                log::debug!("the groups of user {user} cannot be looked up: {cause}");
                Entry::new(None, GROUPS_AGE_FAILED)
            }
        });
    }

    /// Forgets what it knows: the next calls look it up.
    pub(crate) fn forget(&self) {
        let mut table = self.table.lock();
        let stale = |entry: &mut Entry| entry.fresh_until = Instant::now();
        table.young.values_mut().for_each(stale);
        table.old.values_mut().for_each(stale);
    }
}

fn of_machine(user: u32) -> io::Result<Option<Vec<u32>>> {
    let Some(known) = User::from_uid(Uid::from_raw(user))? else {
        return Ok(None);
    };
    let name = CString::new(known.name)?;
    let groups = getgrouplist(&name, known.gid)?;
    Ok(Some(groups.into_iter().map(Gid::as_raw).collect()))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use flatpath_testkit::until_true;

    use super::*;

    fn groups(numbers: &[u32]) -> Option<Arc<[u32]>> {
        Some(numbers.into())
    }

    /// User 7 is in three groups, 8 is unknown, and nobody can say of 9. The calls are counted.
    fn counting() -> (Arc<AtomicU32>, UserGroups) {
        let calls = Arc::new(AtomicU32::new(0));
        let counted = Arc::clone(&calls);
        let known = UserGroups::with(move |user| {
            counted.fetch_add(1, Ordering::Relaxed);
            match user {
                7 => Ok(Some(vec![7, 70, 0])),
                8 => Ok(None),
                9 => Err(io::Error::other("nobody answers")),
                user => Ok(Some(vec![user; 1000])),
            }
        });
        (calls, known)
    }

    #[test]
    fn each_answer_is_kept_also_that_there_is_none() {
        let (calls, known) = counting();
        for (user, expected) in [(7, groups(&[7, 70, 0])), (8, groups(&[])), (9, None)] {
            assert!(known.needs_lookup(user) && known.find(user).is_none());
            for _ in 0..3 {
                known.look_up(user);
                assert_eq!(known.find(user), expected, "{user}");
                assert_eq!(known.find_now(user), expected, "{user}");
                assert!(!known.needs_lookup(user), "{user}");
            }
        }
        assert_eq!(calls.load(Ordering::Relaxed), 3);
    }

    #[test]
    fn what_is_old_is_looked_up_again_and_used_until_then() {
        let (calls, known) = counting();
        known.look_up(7);
        known.forget();
        assert!(known.needs_lookup(7));
        assert!(
            known.find_now(7).is_none(),
            "the network thread leaves it to a worker"
        );
        assert!(known.find(7).is_some(), "which has it if it cannot look up");
        known.look_up(7);
        assert!(!known.needs_lookup(7) && known.find_now(7).is_some());
        assert_eq!(calls.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn what_was_known_stays_in_use_where_a_lookup_fails() {
        let fails = Arc::new(AtomicU32::new(0));
        let flag = Arc::clone(&fails);
        let known = UserGroups::with(move |_| match flag.load(Ordering::Relaxed) {
            0 => Ok(Some(vec![70])),
            1 => Err(io::Error::other("nobody answers")),
            _ => panic!("on purpose"),
        });
        known.look_up(7);
        for failure in [1, 2] {
            fails.store(failure, Ordering::Relaxed);
            known.forget();
            let looked_up = || known.look_up(7);
            let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(looked_up));
            assert_eq!(outcome.is_err(), failure == 2);
            assert_eq!(known.find(7), groups(&[70]));
            assert!(!known.needs_lookup(7), "not with each call");
            assert!(known.table.lock().running.is_empty());
        }
    }

    #[test]
    fn a_lookup_that_hangs_holds_up_few_and_nobody_else() {
        let (release, hung) = std::sync::mpsc::channel::<()>();
        let hung = std::sync::Mutex::new(hung);
        let known = UserGroups::with(move |user| {
            if user == 7 {
                let _ = hung.lock().map(|hung| hung.recv());
            }
            Ok(Some(vec![user]))
        });
        std::thread::scope(|scope| {
            scope.spawn(|| known.look_up(7));
            until_true("it hangs", || !known.table.lock().running.is_empty());
            for _ in 0..LOOKUP_WAITERS_MAX {
                scope.spawn(|| known.look_up(7));
            }
            until_true("others wait", || {
                known.table.lock().waiting == LOOKUP_WAITERS_MAX
            });
            let one_more = scope.spawn(|| known.look_up(7));
            until_true("one more not to wait", || one_more.is_finished());
            assert!(known.find(7).is_none());
            known.look_up(6);
            assert_eq!(known.find(6), groups(&[6]), "nor do other users");
            drop(release);
        });
        assert_eq!(known.find(7), groups(&[7]));
    }

    #[test]
    fn no_more_numbers_are_kept_than_allowed_and_the_newest_stay() {
        let (_, known) = counting();
        let last = 100 + 2 * GROUP_NUMBERS_MAX as u32 / 1000;
        for user in 100..=last {
            known.look_up(user);
            let table = known.table.lock();
            let all = table.young.values().chain(table.old.values());
            let kept: usize = all
                .map(|it| it.groups.as_ref().map_or(0, |it| it.len()))
                .sum();
            assert!(kept <= GROUP_NUMBERS_MAX, "{kept}");
        }
        assert!(known.find(last).is_some() && known.find(100).is_none());
    }

    #[test]
    fn the_machine_knows_root_and_not_every_number() {
        let root = of_machine(0).expect("the C library answers");
        assert!(root.is_some_and(|groups| groups.contains(&0)));
        assert_eq!(of_machine(4_000_000_000).expect("it answers"), None);
    }
}
