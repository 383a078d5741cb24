//! How many workers may be active: the policy of the scaler, without threads, clock or `/proc`.
//!
//! A worker more helps if it has something to run on and something to do there. So before one is
//! added the scaler looks at what busy workers are at:
//!
//! | busy workers                     | added                                            |
//! |----------------------------------|--------------------------------------------------|
//! | as many runnable as processors   | none; one per [`STUCK_SAMPLES`] without progress |
//! | some wait for locks, some do not | by trial; one per [`PATIENCE`] without progress  |
//! | all wait for locks               | as many as help: they wait for something else    |
//! | they sleep: in I/O, in timers    | as many as help                                  |
//!
//! "As many as help": where no job was taken for a whole sample but by workers that were added for
//! it, one, and twice as many each time that this did not help; one where work waited at
//! [`PATIENCE`] samples in a row in spite of progress, and a second look says the same.
//!
//! Handlers may wait for each other, so the first two rows do not stop for good: while nothing
//! moves, workers are added, however slowly.
//!
//! Trials: handlers that wait for locks may wait for one that all of them need, where fewer workers
//! are faster, or for something that takes its time, where more are. That shows in the jobs taken
//! within a [`WINDOW`]: with a quarter fewer workers the rate stays, or it falls; with a quarter
//! more it rises, or not. What is not worth half of its share is taken back, and the next trial
//! waits, twice as long each time. At low rates no job is slowed down by waiting, so there is none.
//!
//! Taken back is also what is runnable beyond twice the processors in two windows in a row: workers
//! that were added while handlers slept, and compute now.

use std::time::Duration;

/// Samples with work waiting, in spite of progress, before another worker is added.
pub(super) const PATIENCE: u32 = 8;

/// Samples without progress after which one worker is added although the processors are busy.
const STUCK_SAMPLES: u32 = 128;

/// Samples without progress between two looks, once workers were refused.
const LOOK_AGAIN: u32 = 2;

/// How often the rate is measured, and busy workers are looked at where many are active.
pub(super) const WINDOW: Duration = Duration::from_millis(32);

/// Windows without work waiting after which the limit is what it was in the beginning.
const REST_WINDOWS: u32 = 32;

/// Jobs that a window must bring for a trial: fewer show nothing.
const TRIAL_JOBS_MIN: u64 = 128;

/// A trial changes one worker in this many.
const TRIAL_PART: u32 = 4;

/// Windows between two trials that failed, at least and at most.
const PAUSE_WINDOWS: (u32, u32) = (8, 256);

/// What the scaler knows at a moment.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sample {
    /// Work waits, and no worker may take it.
    pub(super) is_wanted: bool,
    /// Jobs taken from the queue since the start.
    pub(super) taken: u64,
    /// Jobs that wait now.
    pub(super) queued: u64,
    /// Workers that are not idle.
    pub(super) active: u32,
    /// When, on a clock that only runs forward.
    pub(super) now: Duration,
}

/// What the active workers are at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Activity {
    /// On a processor, or waiting for one.
    pub(super) runnable: u32,
    /// Waiting for a lock, a condition, another thread.
    pub(super) locked: u32,
    /// Waiting for anything else.
    pub(super) sleeping: u32,
}

impl Activity {
    /// Some wait for a lock that one of the others may have.
    fn is_contended(self) -> bool {
        self.locked > 0 && self.runnable + self.sleeping > 0
    }
}

/// What the scaler is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Step {
    /// Workers that may be active from now on.
    pub(super) active_max: u32,
    /// How many more than now should be.
    pub(super) more: u32,
}

/// Bounds of the number of active workers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// Never fewer.
    pub(super) min: u32,
    pub(super) max: u32,
    pub(super) processors: u32,
}

/// The state of the policy.
#[derive(Debug)]
pub(super) struct Growth {
    bounds: Bounds,
    active_max: u32,
    /// Jobs taken by the last sample.
    taken: u64,
    /// Workers that were added after it.
    added: u64,
    /// How many were wanted the last time without progress.
    batch: u32,
    /// Samples with work waiting since a worker was added or refused.
    busy: u32,
    /// Samples without progress in a row.
    stuck: u32,
    window: Window,
    trials: Trials,
    /// Windows in a row with too many runnable, and without work waiting.
    crowded: u32,
    calm: u32,
}

impl Growth {
    pub(super) fn new(bounds: Bounds) -> Growth {
        Growth {
            bounds,
            active_max: rest(bounds),
            taken: 0,
            added: 0,
            batch: 0,
            busy: 0,
            stuck: 0,
            window: Window::default(),
            trials: Trials::default(),
            crowded: 0,
            calm: 0,
        }
    }

    /// Workers that may be active, as it stands.
    pub(super) fn active_max(&self) -> u32 {
        self.active_max
    }

    /// `missed` of those that were to be added could not be.
    pub(super) fn missed(&mut self, missed: u64) {
        self.added = self.added.saturating_sub(missed);
    }

    /// Work waits again after a rest.
    pub(super) fn wakes(&mut self) {
        self.calm = 0;
    }

    /// Whether nothing has to be looked at until work waits again.
    pub(super) fn is_at_rest(&self) -> bool {
        self.calm >= REST_WINDOWS
    }

    /// Takes a sample. `look` is called where it matters what busy workers are at, once at most;
    /// without an answer everything is taken for sleep.
    pub(super) fn sample(
        &mut self,
        sample: &Sample,
        look: impl FnOnce() -> Option<Activity>,
    ) -> Step {
        let taken = sample.taken.saturating_sub(self.taken);
        self.taken = sample.taken;
        let jobs = self.window.add(taken, sample);
        let wanted = self.wanted(sample, taken);
        let is_crowd = jobs.is_some() && sample.active > self.bounds.min;
        let activity = (wanted > 0 || is_crowd).then(look).flatten();
        if let Some(jobs) = jobs {
            self.window_ended(sample, jobs, activity);
        }
        let more = match activity {
            Some(activity) if wanted > 0 => self.allowed(wanted, activity),
            _ => wanted,
        };
        let more = more.min(self.bounds.max.saturating_sub(sample.active));
        if more > 0 {
            self.active_max = self.active_max.max(sample.active + more);
            self.busy = 0;
            // Its rate would be that of another number.
            self.trials.cancel();
        }
        self.added = u64::from(more);
        Step {
            active_max: self.active_max,
            more,
        }
    }

    /// How many more would help if handlers slept.
    fn wanted(&mut self, sample: &Sample, taken: u64) -> u32 {
        let added = std::mem::take(&mut self.added);
        if !sample.is_wanted {
            (self.batch, self.busy, self.stuck) = (0, 0, 0);
            return 0;
        }
        self.busy += 1;
        if taken > added {
            (self.batch, self.stuck) = (0, 0);
            return u32::from(self.busy >= PATIENCE);
        }
        self.stuck += 1;
        let is_refused =
            self.batch == 0 && self.stuck > 1 && !self.stuck.is_multiple_of(LOOK_AGAIN);
        if is_refused {
            return 0;
        }
        let queued = u32::try_from(sample.queued).unwrap_or(u32::MAX).max(1);
        self.batch = self.batch.saturating_mul(2).clamp(1, queued);
        self.batch
    }

    /// How many of them do help, by what busy workers are at.
    fn allowed(&mut self, wanted: u32, activity: Activity) -> u32 {
        let is_stuck = self.stuck > 0;
        if activity.runnable >= self.bounds.processors {
            self.batch = 0;
            self.busy = 0;
            return u32::from(is_stuck && self.stuck.is_multiple_of(STUCK_SAMPLES));
        }
        if activity.is_contended() {
            self.batch = 0;
            return match is_stuck {
                true => u32::from(self.stuck.is_multiple_of(PATIENCE)),
                false => u32::from(!self.window.is_fast),
            };
        }
        if is_stuck || self.busy > PATIENCE {
            return wanted;
        }
        // The next sample looks once more.
        0
    }

    fn window_ended(&mut self, sample: &Sample, jobs: u64, activity: Option<Activity>) {
        let rest = rest(self.bounds);
        let is_calm = !sample.is_wanted && sample.active <= rest;
        self.calm = if is_calm { self.calm + 1 } else { 0 };
        if self.is_at_rest() {
            self.active_max = rest;
            self.trials = Trials::default();
        }
        let Some(activity) = activity else {
            self.crowded = 0;
            return self.trials.cancel();
        };
        let surplus = activity.runnable.saturating_sub(self.bounds.processors);
        let is_crowded = surplus > self.bounds.processors;
        self.crowded = if is_crowded { self.crowded + 1 } else { 0 };
        if self.crowded >= 2 {
            self.crowded = 0;
            self.trials.cancel();
            let fewer = sample.active.saturating_sub(surplus);
            self.active_max = self.active_max.min(fewer).max(self.bounds.min);
            return;
        }
        if activity.is_contended() && self.window.is_fast {
            let now = self.active_max.min(sample.active);
            let next = self.trials.window(jobs, now, sample.is_wanted, self.bounds);
            self.active_max = next.unwrap_or(self.active_max);
        } else {
            self.trials.cancel();
        }
    }
}

/// How many may be active without a look at them.
fn rest(bounds: Bounds) -> u32 {
    bounds.min.max(bounds.processors).min(bounds.max)
}

/// The jobs of the present window.
#[derive(Debug, Default)]
struct Window {
    jobs: u64,
    began: Duration,
    /// Whether the last one brought enough for a trial.
    is_fast: bool,
}

impl Window {
    /// Counts jobs; those of a whole window, if it ends with them.
    fn add(&mut self, taken: u64, sample: &Sample) -> Option<u64> {
        self.jobs += taken;
        let length = sample.now.saturating_sub(self.began);
        if length < WINDOW {
            return None;
        }
        let jobs = std::mem::take(&mut self.jobs);
        self.began = sample.now;
        let jobs = u128::from(jobs) * WINDOW.as_nanos() / length.as_nanos();
        let jobs = u64::try_from(jobs).unwrap_or(u64::MAX);
        self.is_fast = jobs >= TRIAL_JOBS_MIN;
        Some(jobs)
    }
}

/// Trials of other numbers of workers.
#[derive(Debug, Default)]
struct Trials {
    present: Option<Trial>,
    /// The last one was with fewer and failed: more are tried next.
    tries_more: bool,
    /// Windows until the next one, and how many it was the last time.
    wait: u32,
    pause: u32,
}

#[derive(Clone, Copy, Debug)]
struct Trial {
    /// Jobs of the window before, and the number of workers in it.
    jobs: u64,
    from: u32,
    to: u32,
}

impl Trial {
    /// Whether the number of jobs justifies the number of workers.
    fn succeeds(self, jobs: u64) -> bool {
        // Half of what would be proportional.
        let between = u64::from(self.from + self.to);
        jobs * 2 * u64::from(self.from) >= self.jobs * between
    }
}

impl Trials {
    /// Nothing is known of the present number.
    fn cancel(&mut self) {
        self.present = None;
    }

    /// The next number of active workers, where it changes, after a window with `jobs` and `now`.
    fn window(&mut self, jobs: u64, now: u32, is_wanted: bool, bounds: Bounds) -> Option<u32> {
        if let Some(trial) = self.present.take() {
            if !trial.succeeds(jobs) {
                let (least, most) = PAUSE_WINDOWS;
                self.pause = (self.pause * 2).clamp(least, most);
                self.wait = self.pause;
                self.tries_more = trial.to < trial.from;
                return Some(trial.from);
            }
            self.pause = 0;
        } else if self.wait > 0 {
            self.wait -= 1;
            return None;
        }
        let part = (now / TRIAL_PART).max(1);
        let fewer = now.saturating_sub(part).max(bounds.min);
        let more = (now + part).min(bounds.max);
        let to = match (self.tries_more && is_wanted, fewer < now) {
            (false, true) => fewer,
            _ if is_wanted => more,
            _ => return None,
        };
        self.tries_more = to > now;
        self.present = Some(Trial {
            jobs,
            from: now,
            to,
        });
        (to != now).then_some(to)
    }
}

#[cfg(test)]
mod tests;
