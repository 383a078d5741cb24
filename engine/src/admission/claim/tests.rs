//! Claims without connections: every rule, what each step leaves, and where a claim ends.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use super::super::addresses::AddressKeys;
use super::super::tests::{Resting, admission, load};
use super::*;

const LATE_NS: u64 = 9 * SPARED_NS;

/// A thread with connections, and what they do.
struct Thread {
    admission: Admission,
    resting: Resting,
    keys: AddressKeys,
    open: usize,
    max: usize,
}

impl Thread {
    /// With this number of connections; `host` gives the host of each.
    fn new((open, max): (u32, usize), listeners: &[usize], host: impl Fn(u32) -> u8) -> Thread {
        let mut thread = Thread {
            admission: admission(64, listeners),
            resting: Resting::default(),
            keys: AddressKeys::default(),
            open: 0,
            max,
        };
        for index in 0..open {
            thread.comes(index, host(index));
        }
        thread
    }

    /// A connection comes, whose address is known unless it is 0.
    fn comes(&mut self, index: u32, host: u8) {
        self.open += 1;
        self.admission.enter(index, 0, true);
        if host > 0 {
            self.learns(index, host);
        }
    }

    fn learns(&mut self, index: u32, host: u8) {
        let host = IpAddr::V4(Ipv4Addr::new(10, 0, 0, host));
        let address = self.keys.find(Some(SocketAddr::new(host, 1)));
        self.admission.learn(index, address);
    }

    fn rests(&mut self, index: u32, since_ns: u64) {
        let (resting, admission) = (&mut self.resting, &mut self.admission);
        resting.begin(admission, index, Phase::Idle, since_ns);
    }

    fn step(&mut self, claim: &mut Claim) -> Step {
        let load = load(self.open, self.max, LATE_NS);
        self.admission.next_step(claim, load, self.resting.rests())
    }

    /// The steps of a claim to its end. No long-lived connection can be ended for it.
    fn steps(&mut self, mut claim: Claim) -> Vec<Step> {
        let mut steps = Vec::new();
        loop {
            let step = self.step(&mut claim);
            steps.push(step);
            match step {
                Step::Done | Step::Refuse(_) => return steps,
                Step::EndLongestLived => claim.ended(false),
                Step::Learn(index) => self.learns(index, 99),
                Step::Close(_) => {}
            }
            assert!(steps.len() < 64, "CL2: {steps:?}");
        }
    }
}

fn refused(index: u32, cause: Cause) -> Step {
    Step::Refuse(Refusal {
        index,
        lingers: true,
        cause,
    })
}

#[test]
fn while_there_is_plenty_a_newcomer_is_met_without_a_question() {
    let mut thread = Thread::new((1, 32), &[usize::MAX], |_| 0);
    assert_eq!(thread.steps(Claim::newcomer(0, 0, 0)), [Step::Done]);
}

#[test]
fn from_half_of_the_places_on_a_newcomer_is_asked_where_it_comes_from() {
    for (open, asks) in [(16, false), (17, true)] {
        let mut thread = Thread::new((open, 32), &[usize::MAX], |_| 0);
        let steps = thread.steps(Claim::newcomer(3, 0, 0));
        let expected: &[Step] = match asks {
            true => &[Step::Learn(3), Step::Done],
            false => &[Step::Done],
        };
        assert_eq!(steps, expected, "{open}");
    }
}

#[test]
fn an_address_with_more_than_its_share_pays_with_its_own_where_places_are_short() {
    // Of 32 places host 1 has 30 beside one of another, and none is free.
    let host = |index| if index == 0 { 2 } else { 1 };
    let full = || {
        let mut thread = Thread::new((31, 32), &[usize::MAX], host);
        thread.comes(31, 1);
        thread
    };
    let mut none_rests = full();
    none_rests.rests(0, 1);
    let steps = none_rests.steps(Claim::newcomer(31, 0, 0));
    assert_eq!(
        steps,
        [refused(31, Cause::Address)],
        "another's is not closed for it"
    );
    let mut one_rests = full();
    one_rests.rests(0, 1);
    one_rests.rests(7, 2);
    let steps = one_rests.steps(Claim::newcomer(31, 0, 0));
    assert_eq!(steps[0], Step::Close(7), "its own");
    assert!(one_rests.admission.is_leaving(7), "CL1");
    let mut roomy = Thread::new((20, 32), &[usize::MAX], host);
    assert_eq!(roomy.steps(Claim::newcomer(19, 0, 0)), [Step::Done]);
}

#[test]
fn a_newcomer_to_a_full_thread_has_the_longest_resting_closed() {
    let mut thread = Thread::new((33, 32), &[usize::MAX], |index| index as u8 + 1);
    thread.rests(5, 1);
    thread.rests(4, 2);
    let steps = thread.steps(Claim::newcomer(32, 0, 0));
    assert_eq!(steps, [Step::Close(5), Step::Close(4), Step::Done]);
    assert_eq!(thread.admission.counted(load(33, 32, 0)), 31);
}

#[test]
fn without_one_that_rests_a_long_lived_one_ends_or_the_newcomer_is_refused() {
    let full = || Thread::new((33, 32), &[usize::MAX], |index| index as u8 + 1);
    let mut thread = full();
    let steps = thread.steps(Claim::newcomer(32, 0, 0));
    assert_eq!(steps, [Step::EndLongestLived, refused(32, Cause::Room)]);
    let mut thread = full();
    let mut claim = Claim::newcomer(32, 0, 0);
    assert_eq!(thread.step(&mut claim), Step::EndLongestLived);
    claim.ended(true);
    thread.open -= 1;
    assert_eq!(thread.step(&mut claim), Step::Done, "it has a place now");
    // One that has just begun to rest comes after the long-lived.
    let mut thread = full();
    thread.rests(7, LATE_NS - 1);
    let steps = thread.steps(Claim::newcomer(32, 0, 0));
    assert_eq!(steps, [Step::EndLongestLived, Step::Close(7), Step::Done]);
}

#[test]
fn one_that_was_paid_for_is_not_refused_although_others_have_come() {
    let mut thread = Thread::new((40, 32), &[usize::MAX], |index| index as u8 + 1);
    (0..3).for_each(|index| thread.rests(index, 1));
    let steps = thread.steps(Claim::newcomer(39, 0, 0));
    assert_eq!(steps, [Step::Close(0), Step::Close(1), Step::Done]);
}

#[test]
fn a_listener_and_an_address_pay_with_their_own() {
    let listener = |thread: &mut Thread| thread.steps(Claim::newcomer(4, 0, 0));
    let mut thread = Thread::new((5, 32), &[4], |_| 0);
    assert_eq!(listener(&mut thread), [refused(4, Cause::Room)]);
    let mut thread = Thread::new((5, 32), &[4], |_| 0);
    thread.rests(2, 1);
    assert_eq!(listener(&mut thread), [Step::Close(2), Step::Done]);

    let address = |claim| {
        let mut thread = Thread::new((5, 32), &[usize::MAX], |_| 1);
        let refused = thread.steps(claim);
        thread.rests(2, 1);
        (refused, thread)
    };
    let (steps, _) = address(Claim::newcomer(4, 0, 4));
    assert_eq!(steps, [refused(4, Cause::Address)]);
    let (steps, mut thread) = address(Claim::client(3, 0, 4));
    assert_eq!(steps, [refused(3, Cause::Address)]);
    thread.comes(9, 1);
    let steps = thread.steps(Claim::newcomer(9, 0, 4));
    assert_eq!(steps, [Step::Close(2), Step::Done]);
    for per_address_max in [0, 5] {
        let (steps, _) = address(Claim::newcomer(4, 0, per_address_max));
        assert_eq!(steps, [Step::Done], "{per_address_max}");
    }
}

#[test]
fn a_limit_by_address_asks_for_it_at_once_but_not_before_the_header_names_the_client() {
    let mut thread = Thread::new((1, 32), &[usize::MAX], |_| 0);
    let steps = thread.steps(Claim::newcomer(0, 0, 4));
    assert_eq!(steps, [Step::Learn(0), Step::Done]);
    for open in [2, 30] {
        let mut thread = Thread::new((open, 32), &[usize::MAX], |_| 0);
        thread.admission.enter(31, 0, false);
        assert_eq!(thread.steps(Claim::newcomer(31, 0, 4)), [Step::Done]);
        thread.admission.is_named(31);
        let steps = thread.steps(Claim::client(31, 0, 4));
        assert_eq!(steps, [Step::Learn(31), Step::Done]);
    }
}

#[test]
fn few_of_those_that_are_refused_linger() {
    let mut thread = Thread::new((33, 32), &[usize::MAX], |index| index as u8 + 1);
    let mut lingered = 0;
    for index in 33..50 {
        thread.comes(index, index as u8 + 1);
        let last = thread.steps(Claim::newcomer(index, 0, 0)).pop();
        let Some(Step::Refuse(refusal)) = last else {
            panic!("it is refused: {last:?}");
        };
        assert_eq!(
            refusal.lingers,
            lingered < crate::limits::OVERFLOW_LINGERING_MAX
        );
        lingered += usize::from(refusal.lingers);
    }
}

#[test]
fn for_files_what_has_rested_for_long_is_closed_before_the_long_lived() {
    let full = |open| Thread::new((open, 32), &[usize::MAX], |index| index as u8 + 1);
    assert_eq!(full(32).steps(Claim::files()), [Step::Done]);
    assert_eq!(
        full(33).steps(Claim::files()),
        [Step::EndLongestLived, Step::Done]
    );
    let mut thread = full(35);
    thread.rests(3, 1);
    thread.rests(4, LATE_NS - 1);
    let steps = thread.steps(Claim::files());
    let expected = [Step::Close(3), Step::EndLongestLived, Step::Done];
    assert_eq!(
        steps, expected,
        "one that rests only for now keeps its place"
    );
    let mut thread = full(35);
    let mut claim = Claim::files();
    for _ in 0..3 {
        assert_eq!(thread.step(&mut claim), Step::EndLongestLived);
        claim.ended(true);
        thread.open -= 1;
    }
    assert_eq!(thread.step(&mut claim), Step::Done);
    let mut many = full(63);
    (0..63).for_each(|index| many.rests(index, 1));
    many.max = 1;
    let steps = many.steps(Claim::files());
    assert_eq!(
        steps.len(),
        SHED_PER_TURN_MAX.min(62) + 1,
        "some in each turn"
    );
}

/// Whether a claim is asked of no rule is only a matter of cost.
#[test]
fn a_claim_that_no_rule_opposes_would_be_met_by_the_rules() {
    let kinds: [fn(u32, u16, usize) -> Claim; 2] = [Claim::newcomer, Claim::client];
    let mut unopposed = 0;
    for (open, max) in (1..12_u32).flat_map(|open| (1..24_usize).map(move |max| (open, max))) {
        for (per_address_max, listener_max) in [(0, 64), (0, 3), (2, 64)] {
            for claim in kinds {
                let mut thread = Thread::new((open, max), &[listener_max], |_| 1);
                let load = load(thread.open, thread.max, LATE_NS);
                let mut claim = claim(open - 1, 0, per_address_max);
                if thread.admission.is_unopposed(&claim, load) {
                    let rests = thread.resting.rests();
                    let step = thread.admission.by_rules(&mut claim, load, rests);
                    assert_eq!(step, Step::Done, "{open} of {max}, {claim:?}");
                    unopposed += 1;
                }
            }
        }
    }
    assert!(unopposed > 100, "{unopposed}");
}
