//! Ends and deadlines: each phase with its own time, with an earlier and with a later end, after
//! another phase, with deadlines of the connection's own or without, while its output is sent or is
//! not, and while the server drains, hands over (which is a drain here) or changes its limits,
//! before the phase begins or in it. Each deadline fires when a few lines of arithmetic say so, and
//! no other does.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use flatpath::simulation::{Conditions, SimulatedServer};
use flatpath::{
    ConnectionHandle, Context, Event, Limits, ListenerLimits, Phase, Protocol, Received, Stall,
};
use flatpath_driver::simulation::Client;

const fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

/// The clock takes such steps.
const STEP: Duration = ms(20);
/// Until a client's words are received, two steps, and a tick of the wheel.
const SLACK: Duration = ms(5 + 2 * 20 + 9);
/// When each connection begins its first phase, its second, and what happens meanwhile; when its
/// stall is over, when its client reads, and when all is over.
const FIRST: Duration = ms(1_000);
const BETWEEN: Duration = ms(1_100);
const SECOND: Duration = ms(1_200);
const WITHIN: [Duration; 2] = [ms(1_300), ms(1_400)];
const WAKES: Duration = ms(2_500);
/// How long it takes to call all of those whose stall is over.
const WAKING: Duration = ms(25);
const READS: Duration = ms(15_000);
const END: Duration = ms(45_000);

/// When a connection can be silent no longer, in a world whose clock runs for a while already.
const BEGAN: Duration = Duration::from_secs(1_000);

/// How a phase begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Begin {
    /// With the time that it has.
    Whole(Phase),
    /// Until this number of eighths of that have passed.
    Until(Phase, u32),
}

use Begin::{Until, Whole};

const PHASES: [Phase; 8] = [
    Phase::Idle,
    Phase::Head,
    Phase::Body,
    Phase::Work,
    Phase::Timed,
    Phase::Push,
    Phase::Wait,
    Phase::Spliced,
];

/// What the wheel may hold when the phase begins that counts: something early, late, or nothing.
const FIRSTS: [Begin; 7] = [
    Whole(Phase::Work),
    Whole(Phase::Idle),
    Whole(Phase::Push),
    Until(Phase::Body, 3),
    Until(Phase::Idle, 12),
    Until(Phase::Timed, 3),
    Until(Phase::Timed, 12),
];

/// A time for `Timed`, which has none by itself.
const GIVEN: Duration = ms(6_000);

/// Each of them different, so that no deadline is taken for another; multiplied.
fn limits(eighths: u32) -> Limits {
    let scaled = |time| ms(time) * eighths / 8;
    Limits {
        connections_max: 2_000,
        head_timeout: scaled(3_000),
        idle_timeout: scaled(4_000),
        body_timeout: scaled(5_000),
        wait_timeout: scaled(7_000),
        push_interval: scaled(2_600),
        spliced_timeout: scaled(8_000),
        write_timeout: Duration::from_secs(10_000),
        drain_timeout: Duration::from_secs(10_000),
        drain_idle_timeout: ms(1_100),
        ..Limits::default()
    }
}

/// Deadlines of a connection's own: some are longer, some shorter, some missing.
fn own() -> Arc<ListenerLimits> {
    Arc::new(ListenerLimits {
        idle_timeout: Some(ms(2_200)),
        body_timeout: Some(ms(9_100)),
        wait_timeout: Some(ms(3_300)),
        spliced_timeout: Some(ms(12_100)),
        ..ListenerLimits::default()
    })
}

/// What happens to the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    Drain,
    /// The limits are this number of eighths of the first ones.
    Limits(u32),
}

use Change::{Drain, Limits as Scaled};

/// Each change before the phase that counts, and in it; two of them in both orders.
const HISTORIES: [&[(Duration, Change)]; 14] = [
    &[],
    &[(BETWEEN, Drain)],
    &[(WITHIN[0], Drain)],
    &[(BETWEEN, Scaled(4))],
    &[(WITHIN[0], Scaled(4))],
    &[(BETWEEN, Scaled(13))],
    &[(WITHIN[0], Scaled(13))],
    &[(BETWEEN, Drain), (WITHIN[0], Scaled(4))],
    &[(BETWEEN, Drain), (WITHIN[0], Scaled(13))],
    &[(WITHIN[0], Drain), (WITHIN[1], Scaled(4))],
    &[(WITHIN[0], Drain), (WITHIN[1], Scaled(13))],
    &[(WITHIN[0], Scaled(4)), (WITHIN[1], Drain)],
    &[(WITHIN[0], Scaled(13)), (WITHIN[1], Drain)],
    &[(WITHIN[0], Scaled(4)), (WITHIN[1], Scaled(13))],
];

/// What is special about a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Special {
    Nothing,
    /// It has deadlines of its own.
    Own,
    /// Its input is stalled from the beginning of the second phase on, for a while: its clock
    /// stands still.
    Stalls,
}

#[derive(Clone, Copy, Debug)]
struct Plan {
    first: Begin,
    second: Begin,
    special: Special,
}

fn plans() -> Vec<Plan> {
    let mut plans = Vec::new();
    for first in FIRSTS {
        for phase in PHASES {
            for second in [Whole(phase), Until(phase, 2), Until(phase, 12)] {
                for special in [Special::Nothing, Special::Own, Special::Stalls] {
                    plans.push(Plan {
                        first,
                        second,
                        special,
                    });
                }
            }
        }
    }
    // Such a phase has no end of its own.
    plans.retain(|plan| plan.second != Whole(Phase::Timed));
    // What stood still before a phase would have begun that has all its time does not count.
    let is_plain = |begin| !matches!(begin, Until(Phase::Timed, _) | Until(_, 12));
    plans.retain(|plan| plan.special != Special::Stalls || is_plain(plan.second));
    plans
}

/// What the arithmetic knows of a server at a time.
struct Then {
    limits: Limits,
    drains: bool,
}

impl Then {
    fn at(time: Duration, history: &[(Duration, Change)]) -> Then {
        let mut then = Then {
            limits: limits(8),
            drains: false,
        };
        for (_, change) in history.iter().filter(|(at, _)| *at <= time) {
            match change {
                Drain => then.drains = true,
                Scaled(eighths) => then.limits = limits(*eighths),
            }
        }
        then
    }

    /// How long a connection may be in a phase; for `Timed`, from its end on.
    fn of(&self, phase: Phase, special: Special) -> Option<Duration> {
        let own = Some(own()).filter(|_| special == Special::Own);
        let own = own.and_then(|own| match phase {
            Phase::Idle => own.idle_timeout,
            Phase::Body => own.body_timeout,
            Phase::Wait => own.wait_timeout,
            Phase::Spliced => own.spliced_timeout,
            _ => None,
        });
        let time = own.or(self.limits.of_phase(phase))?;
        match self.drains && phase == Phase::Idle {
            true => Some(time.min(self.limits.drain_idle_timeout)),
            false => Some(time),
        }
    }
}

/// The time that ends of phases are parts of.
fn whole(phase: Phase) -> Duration {
    match phase {
        Phase::Timed | Phase::Work => GIVEN,
        phase => limits(8).of_phase(phase).expect("a time"),
    }
}

/// Which deadline fires, and when at the earliest and at the latest.
fn foretold(
    plan: Plan,
    history: &[(Duration, Change)],
    is_unsent: bool,
) -> Option<(Phase, Duration, Duration)> {
    let mut times = vec![FIRST, SECOND, WAKES, END];
    times.extend(history.iter().map(|(at, _)| *at));
    times.sort_unstable();
    // When the phase would have begun that has the whole of its time, and how much later it may
    // have been.
    let (mut phase, mut since, mut late) = (Phase::Work, Duration::ZERO, Duration::ZERO);
    let stalls = plan.special == Special::Stalls;
    for pair in times.windows(2) {
        let (now, until) = (pair[0], pair[1]);
        let then = Then::at(now, history);
        let begin = [(FIRST, plan.first), (SECOND, plan.second)];
        for (_, begin) in begin.into_iter().filter(|(at, _)| *at == now) {
            late = if stalls { WAKING } else { Duration::ZERO };
            (phase, since) = match begin {
                Whole(phase) => (phase, BEGAN + now),
                Until(phase, eighths) => {
                    let end = BEGAN + now + whole(phase) * eighths / 8;
                    let time = then.of(phase, plan.special).unwrap_or_default();
                    (phase, end - time)
                }
            };
        }
        if stalls && now == WAKES {
            since += WAKES - SECOND;
        }
        let stands = stalls && (SECOND..WAKES).contains(&now);
        while !stands && let Some(time) = then.of(phase, plan.special) {
            let due = (since + time).max(BEGAN + now);
            if due >= BEGAN + until {
                break;
            }
            if phase != Phase::Idle || !is_unsent {
                return Some((phase, due - BEGAN, due - BEGAN + late + SLACK));
            }
            // It is idle when its client has read what was written before, as far as is known: a
            // send that is over is noted a moment later.
            if due + late + SLACK >= BEGAN + READS {
                let least = (due - BEGAN).max(READS);
                return Some((phase, least, least + time + late + SLACK));
            }
            since = due;
            late += SLACK;
        }
    }
    None
}

type Stalled = Arc<Mutex<Vec<ConnectionHandle>>>;
type Fired = Arc<Mutex<BTreeMap<usize, (Phase, Duration)>>>;

/// Does what its plans say, and notes which deadline fires first.
struct Guarded {
    plans: Arc<Vec<Plan>>,
    is_unsent: bool,
    fired: Fired,
    stalled: Stalled,
}

impl Guarded {
    fn begin(context: &mut Context<'_, Self>, begin: Begin) {
        match begin {
            Whole(phase) => context.restart_phase(phase),
            Until(phase, eighths) => {
                let end = context.turn().now() + whole(phase) * eighths / 8;
                context.phase_until(phase, end);
            }
        }
    }
}

impl Protocol for Guarded {
    type ThreadState = ();
    type Session = Option<usize>;
    type Job = ();

    fn received(&self, context: &mut Context<'_, Self>, input: &[u8]) -> Received {
        if input.is_empty() {
            // The stall is over.
            return Received::Consumed;
        }
        if let Some(number) = *context.session {
            let plan = self.plans[number];
            Self::begin(context, plan.second);
            if plan.special == Special::Stalls {
                self.stalled.lock().expect("whole").push(context.handle());
                let (consumed, on) = (input.len(), Stall::Outside);
                return Received::Blocked { consumed, on };
            }
            return Received::Consumed;
        }
        let number = usize::from(u16::from_le_bytes(input.try_into().expect("a number")));
        *context.session = Some(number);
        if self.is_unsent {
            context.write(&[b'x'; 1_000]).expect("room");
        }
        let plan = self.plans[number];
        if plan.special == Special::Own {
            context.timeouts(Some(&own()));
        }
        Self::begin(context, plan.first);
        Received::Consumed
    }

    fn event(&self, context: &mut Context<'_, Self>, event: Event<'_>) {
        match event {
            Event::Draining => {}
            Event::Expired(phase) => {
                let number = context.session.expect("a client has said it");
                let now = context.turn().now();
                self.fired
                    .lock()
                    .expect("whole")
                    .entry(number)
                    .or_insert((phase, now));
                context.close_after_output();
            }
            other => other.by_default(context),
        }
    }
}

fn until(server: &mut SimulatedServer, time: Duration) {
    while server.world().now() < BEGAN + time {
        server.turn();
        let left = (BEGAN + time).saturating_sub(server.world().now());
        server.advance(left.min(STEP));
    }
}

/// What fired otherwise than foretold.
fn wrong(
    plans: &[Plan],
    history: &[(Duration, Change)],
    is_unsent: bool,
    fired: &BTreeMap<usize, (Phase, Duration)>,
) -> Vec<String> {
    let mut wrong = Vec::new();
    for (number, plan) in plans.iter().enumerate() {
        let what = || format!("{plan:?}, {history:?}, unsent: {is_unsent}");
        let fired = fired.get(&number).map(|(phase, at)| (*phase, *at - BEGAN));
        match (foretold(*plan, history, is_unsent), fired) {
            (None, None) => {}
            (Some((phase, least, most)), Some((fired, at))) => {
                let is_right = phase == fired && least <= at && at <= most;
                if !is_right {
                    let due = format!("{phase:?} is due at {least:?} to {most:?}");
                    wrong.push(format!("{}: {due}, {fired:?} fired at {at:?}", what()));
                }
            }
            other => wrong.push(format!("{}: foretold, fired: {other:?}", what())),
        }
    }
    wrong
}

/// What fired otherwise than foretold.
fn run(history: &[(Duration, Change)], is_unsent: bool) -> Vec<String> {
    let plans = Arc::new(plans());
    let (fired, stalled) = (Fired::default(), Stalled::default());
    let mut conditions = Conditions::calm(1);
    conditions.limits = limits(8);
    let protocol = Guarded {
        plans: Arc::clone(&plans),
        is_unsent,
        fired: Arc::clone(&fired),
        stalled: Arc::clone(&stalled),
    };
    let mut server = SimulatedServer::new(conditions, protocol);
    if is_unsent {
        server.world().set_window_bytes(100);
    }
    server.advance(BEGAN - server.world().now());
    let clients: Vec<Client> = plans.iter().map(|_| server.connect()).collect();
    until(&mut server, FIRST);
    for (number, client) in (0_u16..).zip(&clients) {
        client.write(&number.to_le_bytes());
    }
    let mut times = vec![SECOND, WAKES, READS, END];
    times.extend(history.iter().map(|(at, _)| *at));
    times.sort_unstable();
    for time in times {
        until(&mut server, time);
        if time == SECOND {
            clients.iter().for_each(|client| client.write(b"."));
        }
        if time == WAKES {
            stalled
                .lock()
                .expect("whole")
                .drain(..)
                .for_each(|it| it.wake());
            // This number is called in a few turns.
            (0..20).for_each(|_| server.turn());
        }
        if time == READS {
            server.world().set_window_bytes(10_000);
            for _ in 0..20 {
                clients.iter().for_each(|client| drop(client.read()));
                server.turn();
            }
        }
        for (_, change) in history.iter().filter(|(at, _)| *at == time) {
            match change {
                Drain => server.drain(),
                Scaled(eighths) => server.handle().change_limits(&limits(*eighths), &[]),
            }
        }
    }
    let wrong = wrong(&plans, history, is_unsent, &fired.lock().expect("whole"));
    drop(clients);
    server.force();
    server.end(1_000);
    wrong
}

fn each_history(is_unsent: bool) {
    let wrong = HISTORIES
        .into_iter()
        .flat_map(|history| run(history, is_unsent));
    let wrong: Vec<String> = wrong.collect();
    let few = &wrong[..wrong.len().min(10)];
    assert!(wrong.is_empty(), "{} are wrong: {few:#?}", wrong.len());
}

#[test]
fn sim_each_deadline_fires_in_its_time_while_output_is_sent() {
    each_history(false);
}

#[test]
fn sim_each_deadline_fires_in_its_time_while_output_is_unsent() {
    each_history(true);
}
