//! The parts of `--memory`: one term for each thing that takes memory, and the pool gets
//! what is left.
//!
//! The terms are upper bounds of what each part can touch, so that their sum is what the process
//! may come to under any load. Beside the sum stay what `--ingest-memory` names and what the kernel
//! keeps for the process (socket buffers, page cache), which is not the process's own.

mod costs;
mod occasional;

use flatpath::memory::RegionConfig;
use flatpath::{DriverConfig, Limits};
use flatpath_files::limits::CACHE_BYTES_MAX;
use flatpath_layers::limits::RATE_LIMIT_BYTES;
use flatpath_nfs::limits::NODES_MAX;
use flatpath_nfs::{Nfs, Portmapper};
use flatpath_rpc::limits::{
    CACHED_REPLIES_MAX, CACHED_REPLY_BYTES_MAX, PAGE_BYTES, PAGES_PER_LISTENER,
};

use crate::failure::Failure;
use crate::passwords;
use crate::units::size_text;
pub(crate) use occasional::{Occasional, OccasionalNeeds};

const MIB: usize = 1 << 20;

/// Code and constants of the program and its libraries that are touched 6 MiB, the allocator's
/// first pages, tables of services and logs, stacks of the threads that are neither workers nor
/// network threads 2 MiB, the counters of the pool and the queue 2 MiB.
const PROGRAM_BYTES: usize = 10 * MIB;

/// For each network thread: rings and completions taken from them 512 KiB, timer wheel and free
/// lists, stack 512 KiB.
const NETWORK_THREAD_BYTES: usize = MIB;

/// For each worker: its stack 16 KiB, the allocator's cache of the thread 16 KiB.
const WORKER_BYTES: usize = 32 * 1024;

/// For each place of the connection table: connection 384, session and deadlines; a connection that
/// is idle is tested to stay below 1 KiB with everything, and measures 320.
const CONNECTION_BYTES: usize = 640;

/// The same where a listener has TLS: what an idle connection adds is measured, 1,700.
const SECURED_CONNECTION_BYTES: usize = 2304;

/// For each network thread of such a server: the ciphers of 1,024 connections.
const CIPHERS_BYTES: usize = 3 * MIB / 2;

/// The most connections without `--max-connections`.
const CONNECTIONS_DEFAULT: usize = 100_000;

/// The part of the memory that connections may take without `--max-connections`.
const CONNECTIONS_PART: usize = 8;

/// For each request in work: the job, the head as it was sent, and what the service notes.
const REQUEST_BYTES: usize = 2 * 1024;

/// The part of the memory that requests in work may take, and the fewest for a network thread.
const REQUESTS_PART: usize = 16;
const REQUESTS_MIN: usize = 64;

/// The part of the memory that all caches of small files together may take.
const CACHE_PART: usize = 16;

/// The part that each kind of NFS receive memory and its kept replies may take, and the least of
/// them: receive buffers of one network thread, bytes of a page, replies.
const NFS_PART: usize = 16;
const NFS_BUFFERS_MIN: u32 = 64;
const NFS_PAGE_BYTES_MIN: u32 = 64 * 1024;
const NFS_REPLIES_MIN: usize = 1024;

/// For each kept reply: the reply, and its entry and origin 192.
const NFS_REPLY_BYTES: usize = CACHED_REPLY_BYTES_MAX + 192;

/// For each open file of NFS: descriptors, handle, verdicts.
const NFS_NODE_BYTES: usize = 512;

/// One part in this many of what is left stays free for the allocator: holes between buffers of
/// different sizes, and spare pages of its heaps. Measured under slow readers and slow uploads: a
/// fifth to a quarter of the pool.
const SLACK_PART: usize = 5;

/// One part in this many of the slack is for what a reload adds.
const RELOAD_PART: usize = 4;

/// The least for the pool: what one connection may hold at least.
const POOL_BYTES_MIN: usize = 2 * MIB;

/// The facts that the division depends on.
#[derive(Clone, Debug)]
pub(crate) struct Demands {
    /// `--memory`, in bytes.
    pub(crate) bytes: usize,
    pub(crate) network_threads: usize,
    pub(crate) workers: u32,
    /// Directories that listeners serve over HTTP, each with a cache of its own.
    pub(crate) http: usize,
    /// Listeners for HTTP that take uploads.
    pub(crate) writable: usize,
    /// What is needed only now and then.
    pub(crate) occasional: OccasionalNeeds,
    /// Listeners that speak NFS.
    pub(crate) nfs: usize,
    /// Limits of addresses (`--rate`, `--rate-bytes`), each with a table of its own.
    pub(crate) rates: usize,
    pub(crate) password_files: usize,
    /// Portmappers.
    pub(crate) portmappers: usize,
    /// Whether a listener has TLS.
    pub(crate) secured: bool,
    /// `--max-connections`.
    pub(crate) connections: Option<usize>,
    /// Descriptors that the process may open.
    pub(crate) descriptors: u64,
}

/// The parts, in bytes, and the bounds that keep to them.
#[derive(Clone, Debug)]
pub(crate) struct Parts {
    pub(crate) program: usize,
    pub(crate) receive: usize,
    pub(crate) cache: usize,
    pub(crate) connections: usize,
    /// How many those are.
    connections_max: usize,
    pub(crate) requests: usize,
    /// For what is needed only now and then, which takes turns.
    pub(crate) occasional: Occasional,
    pub(crate) nfs: usize,
    pub(crate) slack: usize,
    pub(crate) buffers: usize,
    /// Bytes of one such cache.
    pub(crate) cache_each: usize,
    /// For the engine, which lowers it to the descriptors, with a warning: what was asked for, what
    /// fits, or zero for as many as there are descriptors.
    pub(crate) connections_wished: usize,
    pub(crate) in_flight_max: usize,
    /// Common receive buffers of a network thread.
    pub(crate) driver: DriverConfig,
    pub(crate) nfs_page_bytes: u32,
    pub(crate) nfs_replies: usize,
}

impl Demands {
    /// Divides the memory.
    ///
    /// # Errors
    /// It is too little: names the least that is enough.
    pub(crate) fn divide(&self) -> Result<Parts, Failure> {
        self.parts().ok_or_else(|| {
            let with = |bytes| Demands {
                bytes,
                ..self.clone()
            };
            let enough = |mib: &usize| with(mib * MIB).parts().is_some();
            let least = (1..1 << 20).find(enough);
            let (bytes, words) = match least {
                Some(mib) => (mib * MIB, format!("at least {mib}M with")),
                None => (1 << 40, "1T would not be enough for".into()),
            };
            let given = size_text(self.bytes);
            Failure::WrongUse(format!(
                "--memory {given} is too little: {words} these settings, of which most is for {}",
                with(bytes).most_costly()
            ))
        })
    }

    /// The terms of the part `program`, by their settings; the program itself has none.
    fn program_terms(&self) -> [(&'static str, usize); 5] {
        let network_thread_bytes = match self.secured {
            true => NETWORK_THREAD_BYTES + CIPHERS_BYTES,
            false => NETWORK_THREAD_BYTES,
        };
        let threads = self.network_threads.saturating_mul(network_thread_bytes);
        [
            ("", PROGRAM_BYTES),
            ("network-threads", threads),
            (
                "workers",
                WORKER_BYTES.saturating_mul(self.workers as usize),
            ),
            ("rate", RATE_LIMIT_BYTES.saturating_mul(self.rates)),
            (
                "auth-file",
                passwords::FILE_MEMORY_BYTES.saturating_mul(self.password_files),
            ),
        ]
    }

    /// The terms of the part `receive`, by their settings.
    fn receive_terms(&self, driver: &DriverConfig, page_bytes: u32) -> [(&'static str, usize); 4] {
        let uploads = RegionConfig::default();
        let uploads = uploads.pages as usize * uploads.page_bytes as usize;
        let pages = PAGES_PER_LISTENER as usize;
        let portmapper_bytes = Portmapper::page_bytes() as usize;
        [
            ("network-threads", common_bytes(driver)),
            ("writable", self.writable * uploads),
            ("nfs", pages * self.nfs * page_bytes as usize),
            (
                "nfs-portmapper",
                pages * self.portmappers * portmapper_bytes,
            ),
        ]
        .map(|(setting, bytes)| (setting, bytes.saturating_mul(self.network_threads)))
    }

    fn parts(&self) -> Option<Parts> {
        let threads = self.network_threads;
        let sum = |terms: &[(&str, usize)]| {
            let mut bytes = terms.iter().map(|(_, bytes)| *bytes);
            bytes.try_fold(0, usize::checked_add)
        };
        let program = sum(&self.program_terms())?;
        let driver = self.driver();
        let nfs_page_bytes = self.nfs_page_bytes();
        let receive = sum(&self.receive_terms(&driver, nfs_page_bytes))?;
        let caches = threads.checked_mul(self.http)?;
        let cache_each = (self.bytes / CACHE_PART / caches.max(1)).min(CACHE_BYTES_MAX);
        let (connections_wished, connections_max) = self.connections();
        let in_flight_max = (self.bytes / REQUESTS_PART / REQUEST_BYTES / threads)
            .clamp(REQUESTS_MIN, Limits::default().in_flight_max);
        let nfs_replies = self.nfs_replies();
        let mut parts = Parts {
            program,
            receive,
            cache: cache_each * caches,
            connections: connections_max.checked_mul(self.connection_bytes())?,
            connections_max,
            requests: in_flight_max * threads * REQUEST_BYTES,
            occasional: self.occasional.divide(self.bytes),
            nfs: self.nfs_bytes(nfs_replies),
            slack: 0,
            buffers: 0,
            cache_each,
            connections_wished,
            in_flight_max,
            driver,
            nfs_page_bytes,
            nfs_replies,
        };
        let left = self.bytes.checked_sub(parts.sum()?)?;
        parts.slack = left / SLACK_PART;
        parts.buffers = left - parts.slack;
        (parts.buffers >= POOL_BYTES_MIN).then_some(parts)
    }

    fn nfs_replies(&self) -> usize {
        (self.bytes / NFS_PART / NFS_REPLY_BYTES / self.nfs.max(1))
            .clamp(NFS_REPLIES_MIN, CACHED_REPLIES_MAX)
    }

    fn nfs_bytes(&self, replies: usize) -> usize {
        self.nfs * (replies * NFS_REPLY_BYTES + NODES_MAX * NFS_NODE_BYTES)
    }

    fn connection_bytes(&self) -> usize {
        match self.secured {
            true => SECURED_CONNECTION_BYTES,
            false => CONNECTION_BYTES,
        }
    }

    /// The limit for the engine, and how many connections there may be at most.
    fn connections(&self) -> (usize, usize) {
        let descriptors = usize::try_from(self.descriptors).unwrap_or(usize::MAX);
        let fitting = self.bytes / CONNECTIONS_PART / self.connection_bytes();
        let fitting = fitting.clamp(1, CONNECTIONS_DEFAULT);
        let wished = match self.connections {
            Some(asked) => asked,
            None if fitting >= descriptors => 0,
            None => fitting,
        };
        let most = self.connections.unwrap_or(fitting);
        (wished, most.min(descriptors))
    }

    fn driver(&self) -> DriverConfig {
        let mut driver = match self.nfs {
            0 => DriverConfig::default(),
            _ => Nfs::driver_config(),
        };
        let bytes_max = self.bytes / NFS_PART / self.network_threads;
        while self.nfs > 0
            && driver.receive_buffers > NFS_BUFFERS_MIN
            && common_bytes(&driver) > bytes_max
        {
            driver.receive_buffers /= 2;
        }
        driver
    }

    fn nfs_page_bytes(&self) -> u32 {
        let bytes_max = self.bytes / NFS_PART / self.network_threads;
        let mut page_bytes = PAGE_BYTES;
        while page_bytes > NFS_PAGE_BYTES_MIN
            && PAGES_PER_LISTENER as usize * page_bytes as usize > bytes_max
        {
            page_bytes /= 2;
        }
        page_bytes
    }
}

fn common_bytes(driver: &DriverConfig) -> usize {
    driver.receive_buffers as usize * driver.receive_buffer_bytes as usize
}

impl Parts {
    /// The parts of sites that replace those of the start. Caches share the part that the start set
    /// aside, and so does what is needed now and then. What else they need more comes out of the
    /// slack, as far as [`RELOAD_PART`] goes; the pool keeps its size.
    ///
    /// # Errors
    /// They need more than that.
    pub(crate) fn of_reload(&self, demands: &Demands) -> Result<Self, Failure> {
        let new = demands.divide()?;
        if let Some(setting) = self.occasional.lack(&new.occasional) {
            return Err(Failure::WrongUse(format!(
                "--memory: nothing was set aside at the start for {setting} of the new sites: \
                 restart"
            )));
        }
        let needed = |parts: &Self| parts.program.saturating_add(parts.requests);
        let more = needed(&new).saturating_sub(needed(self));
        let most = self.slack / RELOAD_PART;
        if more > most {
            return Err(Failure::WrongUse(format!(
                "--memory: the new sites, their limits and files of passwords need {} more than \
                 there was at the start, and a reload has {}: restart",
                size_text(more),
                size_text(most - most % 1024),
            )));
        }
        let caches = demands.network_threads.saturating_mul(demands.http);
        Ok(Self {
            cache_each: (self.cache / caches.max(1)).min(CACHE_BYTES_MAX),
            ..self.clone()
        })
    }

    /// All parts together.
    fn sum(&self) -> Option<usize> {
        [
            self.program,
            self.receive,
            self.cache,
            self.connections,
            self.requests,
            self.occasional.bytes(),
            self.nfs,
            self.slack,
            self.buffers,
        ]
        .into_iter()
        .try_fold(0, usize::checked_add)
    }

    /// Logs one line, and a warning if this is more than the machine has.
    pub(crate) fn log(&self) {
        let sum = self.sum().expect("they were divided from a sum");
        let machine = machine_bytes();
        if sum > machine {
            log::warn!(
                "--memory {} is more than the {} of this machine: a full server would be killed",
                size_text(sum),
                size_text(machine - machine % MIB),
            );
        }
        log::info!(
            "memory: sum={} buffers={} slack={} receive={} cache={} connections={} requests={} \
             occasional={} nfs={} program={} connections_limit={} in_flight_max={}",
            sum,
            self.buffers,
            self.slack,
            self.receive,
            self.cache,
            self.connections,
            self.requests,
            self.occasional.bytes(),
            self.nfs,
            self.program,
            self.connections_max,
            self.in_flight_max,
        );
    }
}

/// The memory of this machine in bytes (`sysinfo(2)`).
pub(crate) fn machine_bytes() -> usize {
    let machine = rustix::system::sysinfo();
    let units = usize::try_from(machine.totalram).unwrap_or(usize::MAX);
    units.saturating_mul(machine.mem_unit.max(1) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn demands(mib: usize) -> Demands {
        Demands {
            bytes: mib * MIB,
            network_threads: 1,
            workers: 128,
            http: 1,
            writable: 0,
            occasional: OccasionalNeeds::default(),
            nfs: 0,
            rates: 0,
            password_files: 0,
            portmappers: 0,
            secured: false,
            connections: None,
            descriptors: 1 << 20,
        }
    }

    fn all(mib: usize) -> Demands {
        Demands {
            writable: 1,
            nfs: 1,
            ..demands(mib)
        }
    }

    #[test]
    fn the_parts_come_to_the_whole() {
        for demands in [demands(64), demands(256), demands(4096), all(64), all(1024)] {
            let parts = demands.divide().expect("enough");
            assert_eq!(parts.sum(), Some(demands.bytes), "{demands:?}");
            assert!(parts.buffers >= POOL_BYTES_MIN, "{parts:?}");
        }
    }

    #[test]
    fn sixty_four_mebibytes_do_for_everything_and_the_default_for_full_sizes() {
        assert!(all(64).divide().expect("enough").buffers >= 4 * MIB);
        let parts = all(256).divide().expect("enough");
        assert_eq!(parts.driver, Nfs::driver_config());
        assert_eq!(parts.nfs_page_bytes, PAGE_BYTES);
        assert_eq!(parts.cache_each, CACHE_BYTES_MAX);
        assert_eq!(parts.nfs_replies, CACHED_REPLIES_MAX);
    }

    #[test]
    fn the_caches_together_keep_to_their_part() {
        let two = Demands {
            network_threads: 2,
            http: 2,
            ..demands(64)
        };
        let parts = two.divide().expect("enough");
        assert_eq!((parts.cache, parts.cache_each), (4 * MIB, MIB));
    }

    /// What four sites with passwords, compression and archives at two listeners with TLS want.
    pub(super) fn four_sites(argon2_bytes: usize) -> Demands {
        Demands {
            http: 2 * 4,
            writable: 0,
            secured: true,
            password_files: 4,
            rates: 2 * 4,
            occasional: OccasionalNeeds {
                compresses: true,
                archives: true,
                check_bytes: argon2_bytes,
                checks_max: 16,
            },
            ..demands(256)
        }
    }

    #[test]
    fn four_sites_with_all_that_is_needed_now_and_then_start_with_the_default() {
        for argon2_bytes in [0, 19 * MIB, 64 * MIB] {
            let parts = four_sites(argon2_bytes).divide().expect("enough");
            assert_eq!(parts.sum(), Some(256 * MIB));
            // Buffers are still the largest part.
            assert!(parts.buffers >= 40 * MIB, "{parts:?}");
        }
    }

    #[test]
    fn limits_of_addresses_and_files_of_passwords_are_counted() {
        let with = Demands {
            rates: 3,
            password_files: 2,
            ..demands(256)
        };
        let (with, without) = (with.divide(), demands(256).divide());
        let (with, without) = (with.expect("enough"), without.expect("enough"));
        let more = 3 * RATE_LIMIT_BYTES + 2 * passwords::FILE_MEMORY_BYTES;
        assert_eq!(with.program, without.program + more);
        assert_eq!(with.sum(), Some(256 * MIB));
    }

    #[test]
    fn sites_of_a_reload_share_the_caches_and_need_a_part_of_the_slack_at_most() {
        let started = demands(64).divide().expect("enough");
        let four = Demands {
            http: 4,
            rates: 1,
            ..demands(64)
        };
        let parts = started.of_reload(&four).expect("little more");
        assert_eq!(parts.cache_each, started.cache / 4);
        assert_eq!(
            (parts.buffers, parts.program),
            (started.buffers, started.program)
        );
        let rates = started.slack / RELOAD_PART / RATE_LIMIT_BYTES;
        let with = |rates| {
            started.of_reload(&Demands {
                rates,
                ..demands(64)
            })
        };
        assert!(rates > 0 && with(rates).is_ok());
        let why = with(rates + 1).expect_err("too many").to_string();
        assert!(why.contains("restart"), "{why}");
        let less = started.of_reload(&demands(64)).expect("the same");
        assert_eq!(less.cache_each, started.cache_each);
    }

    #[test]
    fn connections_that_are_asked_for_are_counted_in_full_as_far_as_descriptors_go() {
        let asked = Demands {
            connections: Some(50_000),
            ..demands(64)
        };
        let parts = asked.divide().expect("enough");
        assert_eq!(parts.connections_wished, 50_000);
        assert_eq!(parts.connections, 50_000 * CONNECTION_BYTES);
        let secured = Demands {
            secured: true,
            bytes: 256 * MIB,
            ..asked.clone()
        };
        let parts = secured.divide().expect("enough");
        assert_eq!(parts.connections, 50_000 * SECURED_CONNECTION_BYTES);
        let few = Demands {
            descriptors: 1_000,
            ..asked
        };
        let parts = few.divide().expect("enough");
        assert_eq!(parts.connections, 1_000 * CONNECTION_BYTES);
        let unasked = Demands {
            connections: None,
            ..few
        };
        assert_eq!(unasked.divide().expect("enough").connections_wished, 0);
    }

    #[test]
    fn too_little_is_refused_with_the_least_that_is_enough() {
        let Err(Failure::WrongUse(words)) = all(1).divide() else {
            panic!("a mebibyte is too little");
        };
        let least = words.split_once("at least ").expect("it names it").1;
        let least = least.split_once('M').expect("in mebibytes").0;
        let least: usize = least.parse().expect("a number");
        assert!(all(least).divide().is_ok() && all(least - 1).divide().is_err());
    }
}
