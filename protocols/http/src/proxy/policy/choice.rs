//! Which of several servers gets a request.
//!
//! | way                | takes                                                              |
//! |--------------------|--------------------------------------------------------------------|
//! | `LeastOfTwo`       | of two at random the one with fewer requests out for its weight    |
//! | `RoundRobin`       | each in turn, as often as its weight says, spread evenly           |
//! | `Hash`             | the same for the same key, unless that has more than its part      |
//!
//! The least of two is the default. Turns look at no load: a slow server gets as much as a fast one
//! until its queue is full. The least of all makes the one that came last (or fails fastest) the
//! target of every network thread at once. Two at random are as even as the least of all to within
//! a small number (Mitzenmacher, "The Power of Two Choices"), and no two threads choose alike.
//!
//! The hash is by rendezvous: each server has a number for each key, and the highest wins. A server
//! more or fewer moves only its own keys. The load is bounded (Mirrokni, Thorup, Zadimoghaddam): a
//! server that has [`HASH_LOAD_PARTS`] quarters of its part of all requests out is passed over.
//!
//! Cost: O(candidates).

/// How requests are spread over the servers of an [`Upstream`](crate::Upstream).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Balance {
    /// Of two servers at random the one with fewer requests out, for its weight.
    #[default]
    LeastOfTwo,
    /// Each server in turn, as often as its weight says.
    RoundRobin,
    /// By the address of the client: the same server for the same client, as long as that has not
    /// more than its part of the requests. A client without an address has any server.
    HashOfClient,
}

/// Of a hashed choice: the most that a server has out, in quarters of its part.
const HASH_LOAD_PARTS: u64 = 5;

/// A server that may have the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Candidate {
    pub(crate) index: usize,
    /// Scaled: see `health`.
    pub(crate) weight: u64,
    /// Requests that are out.
    pub(crate) in_flight: u32,
}

impl Candidate {
    /// Whether this one has less out for its weight than the other, with one request more.
    fn is_freer_than(&self, other: &Self) -> bool {
        let load = |it: &Self, by: &Self| (u128::from(it.in_flight) + 1) * u128::from(by.weight);
        load(self, other) < load(other, self)
    }
}

/// What a choice keeps from one request to the next.
#[derive(Clone, Debug)]
pub(crate) struct Choice {
    balance: Balance,
    /// Of random choices.
    random: u64,
    /// Of turns: what each server has saved up.
    credits: Vec<i128>,
}

impl Choice {
    /// `seed` is of the random choices.
    pub(crate) fn new(balance: Balance, servers: usize, seed: u64) -> Self {
        Self {
            balance,
            random: seed,
            credits: vec![0; servers],
        }
    }

    /// The one of these that has the request. `None` where there is none.
    pub(crate) fn of(&mut self, candidates: &[Candidate], key: Option<u64>) -> Option<usize> {
        match (candidates, self.balance, key) {
            ([], _, _) => None,
            (_, Balance::RoundRobin, _) => self.next_in_turn(candidates),
            ([one], _, _) => Some(one.index),
            (_, Balance::HashOfClient, Some(key)) => hashed(candidates, key),
            (_, Balance::LeastOfTwo | Balance::HashOfClient, _) => {
                Some(self.freer_of_two(candidates))
            }
        }
    }

    fn freer_of_two(&mut self, candidates: &[Candidate]) -> usize {
        let first = self.below(candidates.len());
        let second = (first + 1 + self.below(candidates.len() - 1)) % candidates.len();
        let (first, second) = (candidates[first], candidates[second]);
        match second.is_freer_than(&first) {
            true => second.index,
            false => first.index,
        }
    }

    /// Each saves up its weight, the richest has its turn and pays for all.
    fn next_in_turn(&mut self, candidates: &[Candidate]) -> Option<usize> {
        let mut total = 0;
        for candidate in candidates {
            self.credits[candidate.index] += i128::from(candidate.weight);
            total += i128::from(candidate.weight);
        }
        let indices = candidates.iter().map(|candidate| candidate.index);
        let next = indices.rev().max_by_key(|index| self.credits[*index])?;
        self.credits[next] -= total;
        Some(next)
    }

    /// A random number below this one: xorshift (Marsaglia), whose bias is no matter here.
    fn below(&mut self, bound: usize) -> usize {
        let mut state = self.random | 1;
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        self.random = state;
        ((u128::from(state) * bound as u128) >> 64) as usize
    }
}

/// The best for this key that has not more than its part.
fn hashed(candidates: &[Candidate], key: u64) -> Option<usize> {
    let weights: u128 = candidates.iter().map(|it| u128::from(it.weight)).sum();
    let out: u128 = candidates.iter().map(|it| u128::from(it.in_flight)).sum();
    let has_room = |it: &&Candidate| {
        // in_flight + 1 <= parts / 4 * (out + 1) * weight / weights, rounded up.
        let most = u128::from(HASH_LOAD_PARTS) * (out + 1) * u128::from(it.weight);
        u128::from(it.in_flight) < most.div_ceil(4 * weights)
    };
    let best = |one: &&Candidate, other: &&Candidate| score(one, key).total_cmp(&score(other, key));
    candidates
        .iter()
        .filter(has_room)
        .max_by(best)
        .map(|it| it.index)
}

/// The number of a server for a key: with it each wins as often as its weight says.
fn score(candidate: &Candidate, key: u64) -> f64 {
    let mixed = mix(key ^ mix(candidate.index as u64));
    // Above 0, below 1.
    let part = ((mixed >> 11) as f64 + 0.5) / (1u64 << 53) as f64;
    -(candidate.weight as f64) / part.ln()
}

/// Each bit of the result depends on each of the number (the end of SplitMix64). The same in every
/// process, so that a key keeps its server when the proxy starts anew.
pub(crate) fn mix(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidates(of: &[(u64, u32)]) -> Vec<Candidate> {
        let each = of.iter().enumerate();
        each.map(|(index, (weight, in_flight))| Candidate {
            index,
            weight: *weight,
            in_flight: *in_flight,
        })
        .collect()
    }

    fn counts(choice: &mut Choice, candidates: &[Candidate], times: usize) -> Vec<usize> {
        let mut counts = vec![0; candidates.len()];
        for _ in 0..times {
            counts[choice.of(candidates, None).expect("there are some")] += 1;
        }
        counts
    }

    #[test]
    fn turns_are_as_weights_say_and_spread_evenly() {
        let mut choice = Choice::new(Balance::RoundRobin, 3, 1);
        let all = candidates(&[(5, 0), (1, 0), (1, 99)]);
        let turns: Vec<_> = (0..14)
            .map(|_| choice.of(&all, None).expect("some"))
            .collect();
        assert_eq!(turns, [0, 0, 1, 0, 2, 0, 0, 0, 0, 1, 0, 2, 0, 0]);
        assert_eq!(choice.of(&[], None), None);
    }

    #[test]
    fn of_two_the_freer_one_has_the_request() {
        let mut choice = Choice::new(Balance::LeastOfTwo, 2, 7);
        assert_eq!(
            counts(&mut choice, &candidates(&[(1, 5), (1, 4)]), 100),
            [0, 100]
        );
        assert_eq!(
            counts(&mut choice, &candidates(&[(3, 6), (1, 1)]), 100),
            [0, 100]
        );
        assert_eq!(
            counts(&mut choice, &candidates(&[(4, 6), (1, 1)]), 100),
            [100, 0]
        );
        let even = counts(&mut choice, &candidates(&[(1, 0), (1, 0)]), 1000);
        assert!(even.iter().all(|count| *count > 400), "{even:?}");
    }

    #[test]
    fn of_many_the_busiest_never_has_it_and_each_other_does() {
        let mut choice = Choice::new(Balance::LeastOfTwo, 5, 3);
        let all = candidates(&[(1, 1), (1, 1), (1, 9), (1, 1), (1, 1)]);
        let counts = counts(&mut choice, &all, 1000);
        assert_eq!(counts[2], 0);
        assert_eq!(
            counts.iter().filter(|count| **count > 150).count(),
            4,
            "{counts:?}"
        );
    }

    #[test]
    fn model_two_choices_keep_servers_even() {
        let mut choice = Choice::new(Balance::LeastOfTwo, 10, 11);
        let mut all = candidates(&[(1, 0); 10]);
        for _ in 0..10_000 {
            let chosen = choice.of(&all, None).expect("some");
            all[chosen].in_flight += 1;
        }
        let loads = all.iter().map(|it| it.in_flight);
        let (least, most) = (loads.clone().min(), loads.max());
        let apart = most.zip(least).map(|(most, least)| most - least);
        assert!(apart.is_some_and(|apart| apart < 10), "{all:?}");
    }

    #[test]
    fn a_key_stays_with_its_server_and_moves_only_with_it() {
        let mut choice = Choice::new(Balance::HashOfClient, 4, 1);
        let all = candidates(&[(1, 0); 4]);
        let fewer = [all[0], all[1], all[3]];
        let mut counts = [0; 4];
        for key in 0..1000 {
            let chosen = choice.of(&all, Some(key)).expect("some");
            assert_eq!(choice.of(&all, Some(key)), Some(chosen));
            counts[chosen] += 1;
            if chosen != 2 {
                assert_eq!(choice.of(&fewer, Some(key)), Some(chosen), "{key}");
            }
        }
        assert!(counts.iter().all(|count| *count > 180), "{counts:?}");
    }

    #[test]
    fn keys_are_spread_as_weights_say() {
        let mut choice = Choice::new(Balance::HashOfClient, 2, 1);
        let all = candidates(&[(3, 0), (1, 0)]);
        let first = (0..4000).filter(|key| choice.of(&all, Some(*key)) == Some(0));
        let count = first.count();
        assert!((2800..3200).contains(&count), "{count}");
    }

    #[test]
    fn a_server_with_more_than_its_part_is_passed_over() {
        let mut choice = Choice::new(Balance::HashOfClient, 2, 1);
        let mut all = candidates(&[(1, 0), (1, 0)]);
        let favourite = choice.of(&all, Some(42)).expect("some");
        for _ in 0..100 {
            let chosen = choice.of(&all, Some(42)).expect("some");
            all[chosen].in_flight += 1;
        }
        let (most, least) = (all[favourite].in_flight, all[1 - favourite].in_flight);
        assert_eq!((most, least), (63, 37), "five quarters of a half");
    }

    #[test]
    fn a_request_without_a_key_has_any_server() {
        let mut choice = Choice::new(Balance::HashOfClient, 2, 1);
        let counts = counts(&mut choice, &candidates(&[(1, 0), (1, 0)]), 100);
        assert!(counts.iter().all(|count| *count > 20), "{counts:?}");
    }
}
