//! A connection beside a model with one flag for each fact, over random events.
//!
//! The model is how connections were before they had one state for reading and one for writing:
//! any of its flags may be set beside any other, and each question is a sum of them. What a
//! connection answers must be the same, but for one thing: a stall takes the place of a quota that
//! is used up. That is asked again when the stall is over.

use bytes::Bytes;
use flatpath_driver::SendList;
use flatpath_driver::simulation::Random;

use crate::limits::{LINGER_TIMES_MAX, Limits, WRITE_LOOKS};
use crate::memory::pages::PageKind;
use crate::network::waits::Wait;
use crate::protocol::phase::{Phase, Stall};
use crate::protocol::turn::end_ns;

use super::state::Reading;
use super::{Closing, Connection, NextReceive, Overdue, Receive, tests};

const STALLS: [Stall; 5] = [
    Stall::Output,
    Stall::Jobs,
    Stall::Memory,
    Stall::Share,
    Stall::Outside,
];

const PHASES: [Phase; 5] = [
    Phase::Idle,
    Phase::Head,
    Phase::Body,
    Phase::Work,
    Phase::Push,
];

const CLOSINGS: [Closing; 3] = [Closing::AfterOutput, Closing::Lingering, Closing::Abort];

/// One flag for each fact.
#[derive(Debug)]
struct Flags {
    stalled: Option<Stall>,
    over_quota: bool,
    input_unwanted: bool,
    /// [`Closing::No`] while only input is unwanted.
    closing: Closing,
    lingers: bool,
    output_ended: bool,
    sends: bool,
    cancels_send: bool,
    receive: Receive,
    region_id: u16,
    receive_region_id: u16,
    has_received: bool,
    end_came: bool,
    end_reported: bool,
    is_bulk: bool,
    starves: bool,
    awaits_turn: bool,
    jobs_out: u32,
    output_waits: bool,
    phase: Phase,
    phase_ns: u64,
    send_ns: u64,
    stall_ns: u64,
    linger_ns: u64,
    suspended_ns: u64,
}

impl Flags {
    fn new() -> Flags {
        Flags {
            stalled: None,
            over_quota: false,
            input_unwanted: false,
            closing: Closing::No,
            lingers: false,
            output_ended: false,
            sends: false,
            cancels_send: false,
            receive: Receive::Off,
            region_id: 0,
            receive_region_id: 0,
            has_received: false,
            end_came: false,
            end_reported: false,
            is_bulk: false,
            starves: false,
            awaits_turn: false,
            jobs_out: 0,
            output_waits: false,
            phase: Phase::Head,
            phase_ns: 0,
            send_ns: 0,
            stall_ns: 0,
            linger_ns: 0,
            suspended_ns: 0,
        }
    }

    fn is_closing(&self) -> bool {
        self.closing != Closing::No
    }

    fn may_take_input(&self) -> bool {
        !self.is_closing() && !self.input_unwanted
    }

    fn takes_input(&self) -> bool {
        self.may_take_input() && self.stalled.is_none()
    }

    fn wants_input(&self) -> bool {
        let drops = self.closing == Closing::Lingering && self.lingers;
        !self.end_came && (self.takes_input() && !self.over_quota || drops)
    }

    fn receives_as_wanted(&self) -> bool {
        let is_same = self.region_id == self.receive_region_id;
        self.receive == Receive::Many && is_same && !self.is_bulk && self.wants_input()
    }

    fn next_receive(&self, wanted: bool) -> NextReceive {
        let is_other = self.region_id != self.receive_region_id;
        match self.receive {
            Receive::Off if self.awaits_turn || self.starves => NextReceive::Stays,
            Receive::Off if wanted && self.is_bulk => NextReceive::AwaitsTurn,
            Receive::Off if wanted => NextReceive::Arm,
            Receive::Many if !wanted || self.is_bulk || is_other => NextReceive::Cancel,
            Receive::Once if self.is_closing() && !wanted => NextReceive::Cancel,
            _ => NextReceive::Stays,
        }
    }

    fn is_sent(&self) -> bool {
        !self.sends && !self.output_waits
    }

    fn has_wishes(&self) -> bool {
        self.stalled.is_some() || self.input_unwanted || self.is_closing()
    }

    fn is_at_last_send(&self) -> bool {
        self.closing == Closing::AfterOutput && self.receive == Receive::Off && !self.output_waits
    }

    fn waits_for_us(&self) -> bool {
        self.stalled.is_some() || self.over_quota || self.starves || self.awaits_turn
    }

    fn rests(&self) -> Option<Phase> {
        if self.lingers && self.closing == Closing::Lingering {
            return Some(Phase::Idle);
        }
        let is_busy = self.is_closing()
            || self.jobs_out > 0
            || self.stalled.is_some()
            || self.over_quota
            || self.starves
            || self.awaits_turn
            || !self.is_sent();
        (!is_busy && matches!(self.phase, Phase::Idle | Phase::Head)).then_some(self.phase)
    }

    fn overdue(&self, limits: &Limits) -> Vec<(u64, Overdue)> {
        let mut found = Vec::new();
        if self.closing == Closing::Abort {
            return found;
        }
        if self.sends {
            let looks = limits.write_timeout / WRITE_LOOKS;
            found.push((end_ns(self.send_ns, limits.write_timeout), Overdue::Send));
            found.push((end_ns(self.send_ns, looks), Overdue::Look));
        }
        let is_timed = match self.stalled {
            Some(Stall::Share) => self.jobs_out == 0 && self.is_sent(),
            stalled => stalled.is_some_and(Stall::is_timed),
        };
        if is_timed {
            found.push((end_ns(self.stall_ns, limits.stall_timeout), Overdue::Stall));
        }
        if self.lingers {
            let silence_ns = end_ns(self.phase_ns, limits.linger_timeout);
            let last_ns = end_ns(self.linger_ns, limits.linger_timeout * LINGER_TIMES_MAX);
            found.push((silence_ns.min(last_ns), Overdue::Linger));
        }
        if !self.is_closing() && !self.waits_for_us() {
            let timeout = match self.phase {
                Phase::Idle => limits.idle_timeout,
                Phase::Head => limits.head_timeout,
                Phase::Body => limits.body_timeout,
                Phase::Push => limits.push_interval,
                _ => return found,
            };
            found.push((end_ns(self.phase_ns, timeout), Overdue::Phase(self.phase)));
        }
        found
    }

    /// The end of an event: the clock of the phase stands still while the server does not receive.
    fn end_event(&mut self, now_ns: u64) {
        if self.is_closing() {
            self.stalled = None;
        }
        if self.waits_for_us() && self.suspended_ns == 0 {
            self.suspended_ns = now_ns;
        } else if !self.waits_for_us() && self.suspended_ns > 0 {
            self.phase_ns += now_ns - self.suspended_ns.max(self.phase_ns);
            self.suspended_ns = 0;
        }
        if !self.stalled.is_some_and(Stall::is_timed) {
            self.stall_ns = 0;
        }
    }
}

/// A connection and its model.
struct Both {
    real: Connection,
    flags: Flags,
}

impl Both {
    /// What becomes of input.
    fn read(&mut self, random: &mut Random, now_ns: u64) {
        let Both { real, flags } = self;
        match random.below(8) {
            0 => {
                let stall = STALLS[random.below(STALLS.len())];
                real.stall(stall, now_ns);
                if !flags.is_closing() {
                    flags.stalled = Some(stall);
                    flags.over_quota = false;
                    if stall.is_timed() && flags.stall_ns == 0 {
                        flags.stall_ns = now_ns;
                    }
                }
            }
            1 => assert_eq!(real.take_stall(), flags.stalled.take()),
            2 if flags.stalled.is_none() && !flags.lingers => {
                real.reading = Reading::OverQuota;
                flags.over_quota = true;
            }
            3 => {
                real.quota_has_room();
                flags.over_quota = false;
            }
            4 => {
                real.note_received();
                flags.has_received = true;
            }
            5 if random.below(20) == 0 => {
                real.end_came();
                (flags.end_came, flags.has_received) = (true, true);
            }
            6 if flags.end_came => {
                real.end_reported();
                flags.end_reported = true;
            }
            7 => {
                flags.region_id = random.below(2) as u16;
                real.receive_into(PageKind::new(flags.region_id, false));
            }
            _ => {}
        }
    }

    /// What waits its turn.
    fn queue(&mut self, random: &mut Random) {
        let Both { real, flags } = self;
        let toggle = |real: &mut Connection, wait, flag: &mut bool| {
            *flag = !*flag;
            match *flag {
                true => real.waits.insert(wait),
                false => real.waits.remove(wait),
            }
        };
        match random.below(4) {
            0 => toggle(real, Wait::Input, &mut flags.awaits_turn),
            1 if flags.starves => {
                assert!(real.end_starving().is_some());
                flags.starves = false;
            }
            1 if flags.receive == Receive::Off => {
                assert_eq!(real.begin_starving().region_id(), flags.region_id);
                flags.starves = true;
            }
            2 if !flags.is_bulk => {
                real.begin_bulk();
                flags.is_bulk = true;
            }
            3 if flags.is_bulk => {
                real.note_length(true);
                flags.is_bulk = real.is_bulk();
            }
            _ => {}
        }
    }

    /// The receive, as its connection wants it.
    fn operate(&mut self, random: &mut Random) {
        let Both { real, flags } = self;
        if random.below(2) == 0 && flags.receive != Receive::Off {
            real.receive_ended();
            flags.receive = Receive::Off;
        }
        let wanted = flags.wants_input();
        assert_eq!(real.next_receive(wanted), flags.next_receive(wanted));
        match flags.next_receive(wanted) {
            NextReceive::Arm => {
                // Many go to common pages only: `may_receive_many`.
                let receive = match random.below(2) {
                    1 if flags.region_id == 0 => Receive::Many,
                    _ => Receive::Once,
                };
                real.begin_receive(receive);
                flags.receive = receive;
                flags.receive_region_id = flags.region_id;
            }
            NextReceive::Cancel => {
                real.cancel_receive();
                flags.receive = Receive::Cancelling;
            }
            NextReceive::Stays | NextReceive::AwaitsTurn => {}
        }
    }

    /// What goes out.
    fn write(&mut self, random: &mut Random, now_ns: u64) {
        let Both { real, flags } = self;
        let has_ended = flags.lingers || flags.output_ended;
        match random.below(6) {
            0 if !has_ended && !flags.output_waits => {
                real.output_mut().push(Bytes::from_static(b"x").into());
                flags.output_waits = true;
            }
            1 if flags.output_waits => {
                let may_send = !flags.sends && flags.closing != Closing::Abort;
                assert_eq!(real.may_send(), may_send);
                if may_send {
                    let _taken = real.output_mut().take(&mut SendList::new());
                    real.begin_send(now_ns);
                    (flags.sends, flags.output_waits) = (true, false);
                    flags.send_ns = now_ns;
                }
            }
            2 if flags.sends => {
                real.send_ended();
                (flags.sends, flags.cancels_send) = (false, false);
            }
            3 if flags.closing == Closing::Abort => {
                let is_new = flags.sends && !flags.cancels_send;
                assert_eq!(real.cancel_send().is_some(), is_new);
                flags.cancels_send |= is_new;
            }
            4 if !flags.is_closing() && flags.is_sent() => {
                assert_eq!(real.finish(), !flags.output_ended);
                flags.output_ended = true;
            }
            5 => {
                flags.jobs_out = random.below(2) as u32;
                real.jobs_out = flags.jobs_out;
            }
            _ => {}
        }
    }

    /// How it ends.
    fn end(&mut self, random: &mut Random, now_ns: u64) {
        let Both { real, flags } = self;
        match random.below(60) {
            0 => {
                real.close(Closing::Input);
                flags.input_unwanted = true;
            }
            1 => {
                let closing = CLOSINGS[random.below(3)];
                real.close(closing);
                flags.closing = flags.closing.max(closing);
            }
            2 if flags.closing == Closing::Lingering => {
                real.close_without_lingering();
                flags.closing = Closing::AfterOutput;
            }
            3..30 if flags.closing == Closing::Lingering && flags.is_sent() && !flags.end_came => {
                let begins = real.drop_input(now_ns);
                assert_eq!(begins, !flags.lingers);
                if begins {
                    assert_eq!(real.finish(), !flags.output_ended, "one FIN");
                    (flags.lingers, flags.linger_ns) = (true, now_ns);
                    flags.phase_ns = now_ns;
                    // What comes is dropped, whatever is held.
                    flags.over_quota = false;
                }
            }
            30..40 => {
                flags.phase = PHASES[random.below(PHASES.len())];
                flags.phase_ns = now_ns;
                real.start_phase(flags.phase, now_ns);
            }
            _ => {}
        }
    }

    fn check(&self, limits: &Limits, what: &str) {
        let Both { real, flags } = self;
        let answers = [
            (real.is_closing(), flags.is_closing()),
            (real.may_take_input(), flags.may_take_input()),
            (real.takes_input(), flags.takes_input()),
            (real.wants_input(), flags.wants_input()),
            (real.receives_as_wanted(), flags.receives_as_wanted()),
            (real.waits_for_us(), flags.waits_for_us()),
            (
                real.has_given_all(),
                flags.stalled.is_none() && !flags.awaits_turn,
            ),
            (real.has_wishes(), flags.has_wishes()),
            (real.has_received(), flags.has_received),
            (real.has_ended(), flags.end_came),
            (real.end_is_due(), flags.end_came && !flags.end_reported),
            (real.is_sending(), flags.sends),
            (real.is_sent(), flags.is_sent()),
            (real.is_at_last_send(), flags.is_at_last_send()),
            (
                real.awaits_send(),
                flags.sends && !flags.cancels_send && (flags.output_waits || flags.has_wishes()),
            ),
        ];
        for (number, (is, was)) in answers.into_iter().enumerate() {
            assert_eq!(is, was, "answer {number}, {what}: {flags:?}");
        }
        assert_eq!(real.rests(), flags.rests(), "{what}: {flags:?}");
        let found = flags.overdue(limits);
        let earliest_ns = found.iter().map(|(ns, _)| *ns).min();
        assert_eq!(
            real.deadline_ns(limits),
            earliest_ns.unwrap_or(u64::MAX),
            "{what}: {flags:?}"
        );
        let first = found.first().map(|(_, overdue)| *overdue);
        assert_eq!(real.overdue(limits, u64::MAX), first, "{what}: {flags:?}");
    }
}

#[test]
fn model_one_state_answers_as_many_flags_did() {
    let limits = Limits::default();
    for seed in 1..400 {
        let mut random = Random::new(seed);
        let mut both = Both {
            real: tests::connection(1),
            flags: Flags::new(),
        };
        both.flags.phase_ns = 1;
        let mut now_ns = 1;
        for step in 0..300 {
            now_ns += random.up_to(2_000_000_000);
            match random.below(6) {
                0 | 1 => both.read(&mut random, now_ns),
                2 => both.queue(&mut random),
                3 => both.operate(&mut random),
                4 => both.write(&mut random, now_ns),
                _ => both.end(&mut random, now_ns),
            }
            if both.flags.is_closing() {
                both.real.take_stall();
            }
            both.flags.end_event(now_ns);
            both.real.has_new_deadline(now_ns, 0);
            both.check(&limits, &format!("seed {seed}, step {step}"));
        }
    }
}
