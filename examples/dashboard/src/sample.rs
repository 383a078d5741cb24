//! What the machine does at one moment, from `/proc`.

use procfs::{CpuTime, Current, CurrentSI, KernelStats, LoadAverage, Meminfo, ProcResult};
use serde::Serialize;

/// One measurement.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Sample {
    /// Tasks that run or want to, averaged over the last minute.
    pub load: f32,
    /// Share of all processors that was in use since the measurement before, in percent.
    pub cpu_percent: f64,
    /// Memory that programs cannot get any more, in bytes.
    pub memory_used_bytes: u64,
    /// All memory, in bytes.
    pub memory_bytes: u64,
}

/// Clock ticks of all processors since the machine's start.
#[derive(Clone, Copy)]
struct Ticks {
    idle: u64,
    all: u64,
}

/// Measures, again and again.
pub(crate) struct Sampler {
    before: Ticks,
}

impl Sampler {
    /// # Errors
    /// `/proc` cannot be read.
    pub(crate) fn new() -> ProcResult<Self> {
        let before = Ticks::now()?;
        Ok(Self { before })
    }

    /// Measures. It reads three files that take no time.
    ///
    /// # Errors
    /// `/proc` cannot be read.
    pub(crate) fn sample(&mut self) -> ProcResult<Sample> {
        let now = Ticks::now()?;
        let before = std::mem::replace(&mut self.before, now);
        let memory = Meminfo::current()?;
        let available = memory.mem_available.unwrap_or(memory.mem_free);
        Ok(Sample {
            load: LoadAverage::current()?.one,
            cpu_percent: now.busy_percent_since(before),
            memory_used_bytes: memory.mem_total.saturating_sub(available),
            memory_bytes: memory.mem_total,
        })
    }
}

impl Ticks {
    fn now() -> ProcResult<Self> {
        Ok(Self::of(&KernelStats::current()?.total))
    }

    /// Time of guests is part of `user` and `nice`.
    fn of(time: &CpuTime) -> Self {
        let idle = time.idle + time.iowait.unwrap_or(0);
        let others = [time.irq, time.softirq, time.steal].map(|ticks| ticks.unwrap_or(0));
        let busy = time.user + time.nice + time.system + others.iter().sum::<u64>();
        let all = idle + busy;
        Self { idle, all }
    }

    /// 0 if no tick has passed.
    fn busy_percent_since(self, before: Self) -> f64 {
        let all = self.all.saturating_sub(before.all);
        // The kernel corrects its count of idle time downwards at times.
        let idle = self.idle.saturating_sub(before.idle).min(all);
        match all {
            0 => 0.0,
            all => 100.0 * (all - idle) as f64 / all as f64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_in_use_is_that_of_the_ticks_since() {
        let before = Ticks { idle: 60, all: 100 };
        let percent = |idle, all| Ticks { idle, all }.busy_percent_since(before) as u64;
        assert_eq!(percent(60, 200), 100);
        assert_eq!(percent(135, 200), 25);
        assert_eq!(percent(160, 200), 0);
        // Nothing has passed, or the kernel has corrected itself.
        assert_eq!(percent(60, 100), 0);
        assert_eq!(percent(50, 99), 0);
    }
}
