//! Which faults the simulation injects, and how often.

use super::random::Random;

/// How often each fault strikes, in times out of a thousand occasions. All zero: a perfect network.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// A receive brings fewer bytes than there are.
    pub short_receive_permille: u16,
    /// A send takes fewer bytes than there is room for.
    pub short_send_permille: u16,
    /// A receive finds the connection reset (ECONNRESET).
    pub receive_reset_permille: u16,
    /// A receive finds the connection timed out (ETIMEDOUT).
    pub receive_time_out_permille: u16,
    /// A send finds the connection gone (EPIPE).
    pub send_pipe_permille: u16,
    /// A send finds the connection reset (ECONNRESET).
    pub send_reset_permille: u16,
    /// A receive finds no buffer, although there are some by now (ENOBUFS).
    pub no_buffers_permille: u16,
    /// An accept finds no descriptor (EMFILE); the connection stays in the backlog.
    pub no_descriptor_permille: u16,
    /// An accept finds no file (ENFILE): the connection stays in the backlog.
    pub no_file_permille: u16,
    /// A connection is gone before it is accepted (ECONNABORTED).
    pub aborted_permille: u16,
    /// A multishot operation ends after this one, for no visible reason.
    pub early_end_permille: u16,
    /// A completion comes late, by up to `late_ns_max`.
    pub late_permille: u16,
    /// The final completion of an operation comes again, late and without what it carried.
    pub duplicate_permille: u16,
    /// A turn finds the completion queue overflown: few completions come, and multishot operations
    /// that had one on the way end with it.
    pub overflow_permille: u16,
    /// A cancelled operation comes to something before the cancel reaches it.
    pub cancel_race_permille: u16,
    /// How late a late completion is at most, in nanoseconds.
    pub late_ns_max: u64,
    /// How long bytes are on their way at most, in nanoseconds.
    pub latency_ns_max: u64,
}

impl Faults {
    /// No faults at all.
    pub fn none() -> Faults {
        Faults::default()
    }

    /// A mix drawn from the seed: each fault is absent, rare or frequent.
    pub fn mixed(seed: u64) -> Faults {
        let mut random = Random::new(seed ^ 0xfa_0175);
        let mut draw = |frequent: u16| match random.below(4) {
            0 | 1 => 0,
            2 => frequent.div_ceil(10),
            _ => frequent,
        };
        Faults {
            short_receive_permille: draw(500),
            short_send_permille: draw(500),
            receive_reset_permille: draw(20),
            receive_time_out_permille: draw(20),
            send_pipe_permille: draw(20),
            send_reset_permille: draw(20),
            no_buffers_permille: draw(200),
            no_descriptor_permille: draw(200),
            no_file_permille: draw(200),
            aborted_permille: draw(50),
            early_end_permille: draw(200),
            late_permille: draw(300),
            duplicate_permille: draw(300),
            overflow_permille: draw(100),
            cancel_race_permille: draw(500),
            late_ns_max: 5_000_000,
            latency_ns_max: 2_000_000,
        }
    }

    /// The same without the faults that a client notices: nothing is reset, lost or timed out, and
    /// no accept lacks a descriptor, for which a server may close another connection.
    pub fn without_losses(self) -> Faults {
        Faults {
            receive_reset_permille: 0,
            receive_time_out_permille: 0,
            send_pipe_permille: 0,
            send_reset_permille: 0,
            aborted_permille: 0,
            no_descriptor_permille: 0,
            no_file_permille: 0,
            ..self
        }
    }
}

/// How often each fault struck: a test of the caller can see what it was put through.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Injected {
    pub short_receives: u64,
    pub short_sends: u64,
    pub resets: u64,
    pub time_outs: u64,
    pub pipes: u64,
    pub no_buffers: u64,
    pub no_descriptors: u64,
    pub no_files: u64,
    pub aborted: u64,
    pub early_ends: u64,
    pub late: u64,
    pub duplicates: u64,
    pub overflows: u64,
    pub cancel_races: u64,
}

impl Injected {
    /// Adds another run's counts.
    pub fn add(&mut self, other: &Injected) {
        self.short_receives += other.short_receives;
        self.short_sends += other.short_sends;
        self.resets += other.resets;
        self.time_outs += other.time_outs;
        self.pipes += other.pipes;
        self.no_buffers += other.no_buffers;
        self.no_descriptors += other.no_descriptors;
        self.no_files += other.no_files;
        self.aborted += other.aborted;
        self.early_ends += other.early_ends;
        self.late += other.late;
        self.duplicates += other.duplicates;
        self.overflows += other.overflows;
        self.cancel_races += other.cancel_races;
    }

    /// True when every fault has struck at least once.
    pub fn is_complete(&self) -> bool {
        [
            self.short_receives,
            self.short_sends,
            self.resets,
            self.time_outs,
            self.pipes,
            self.no_buffers,
            self.no_descriptors,
            self.no_files,
            self.aborted,
            self.early_ends,
            self.late,
            self.duplicates,
            self.overflows,
            self.cancel_races,
        ]
        .iter()
        .all(|count| *count > 0)
    }
}
