//! Which reply of a connection is due, where several of its messages are with workers.
//!
//! Invariants
//! - RO1: [`Order::Kept`]: replies become due in the order in which their messages were begun.
//!   [`Order::AsReady`]: in the order in which they come back.
//! - RO2: a reply that is due stays so until it is finished; none after it is due before that.
//! - RO3: messages at work are those that were begun and whose reply is not finished.
//!
//! Cost: nothing for a connection without late replies but three words. A reply that comes back
//! before others are finished is sorted in from the end: as many steps as there are later ones.

use std::collections::VecDeque;

/// In which order the replies to messages of one connection are sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Order {
    /// That of the messages.
    #[default]
    Kept,
    /// That in which workers finish.
    AsReady,
}

/// See the module. `T` is a reply that has come back.
pub(super) struct Replies<T> {
    /// Messages so far, wrapping.
    begun: u32,
    /// Replies that are finished, of them.
    finished: u32,
    /// Replies that are back and not finished, with their numbers, in order.
    late: Late<T>,
}

/// In a box: most connections have none.
type Late<T> = Option<Box<Back<T>>>;

struct Back<T>(VecDeque<(u32, T)>);

impl<T> Default for Replies<T> {
    fn default() -> Self {
        Replies {
            begun: 0,
            finished: 0,
            late: None,
        }
    }
}

impl<T> Replies<T> {
    /// A message is begun: its number.
    pub(super) fn begin(&mut self) -> u32 {
        let number = self.begun;
        self.begun = self.begun.wrapping_add(1);
        number
    }

    /// Messages at work (RO3).
    pub(super) fn at_work(&self) -> u32 {
        self.begun.wrapping_sub(self.finished)
    }

    /// The reply to the message of that number is back.
    pub(super) fn came_back(&mut self, order: Order, number: u32, reply: T) {
        let finished = self.finished;
        let late = &mut self
            .late
            .get_or_insert_with(|| Box::new(Back(VecDeque::new())))
            .0;
        let number = match order {
            Order::Kept => number,
            // Numbers are given anew, in the order of coming back.
            Order::AsReady => finished.wrapping_add(late.len() as u32),
        };
        let is_before =
            |it: &&(u32, T)| it.0.wrapping_sub(finished) > number.wrapping_sub(finished);
        let after = late.iter().rev().take_while(is_before).count();
        late.insert(late.len() - after, (number, reply));
    }

    /// The reply that is due, if it is back.
    pub(super) fn due(&mut self) -> Option<&mut T> {
        let (number, reply) = self.late.as_mut()?.0.front_mut()?;
        (*number == self.finished).then_some(reply)
    }

    /// The reply that was due is finished.
    pub(super) fn finish(&mut self) -> Option<T> {
        let late = self.late.as_mut()?;
        let (_, reply) = late.0.pop_front()?;
        if late.0.is_empty() {
            self.late = None;
        }
        self.finished = self.finished.wrapping_add(1);
        Some(reply)
    }

    /// Gives up all that is back.
    pub(super) fn take_all(&mut self) -> impl Iterator<Item = T> + use<T> {
        let late = self.late.take().map(|late| late.0).unwrap_or_default();
        self.finished = self.finished.wrapping_add(late.len() as u32);
        late.into_iter().map(|(_, reply)| reply)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulation::Random;

    /// What is finished of what is due.
    fn finish_due(replies: &mut Replies<u32>, finished: &mut Vec<u32>) {
        while replies.due().is_some() {
            finished.extend(replies.finish());
        }
    }

    #[test]
    fn model_replies_are_finished_in_their_order_across_the_wrap() {
        for seed in 0..200 {
            let mut random = Random::new(seed);
            let order = [Order::Kept, Order::AsReady][random.below(2)];
            let near_wrap = u32::MAX - 20;
            let mut replies = Replies {
                begun: near_wrap,
                finished: near_wrap,
                ..Replies::default()
            };
            let (mut out, mut back) = (Vec::new(), Vec::new());
            let (mut begun, mut finished) = (Vec::new(), Vec::new());
            for _ in 0..300 {
                if out.len() < 7 && random.below(2) == 0 {
                    let number = replies.begin();
                    out.push(number);
                    begun.push(number);
                } else if !out.is_empty() {
                    let number = out.swap_remove(random.below(out.len()));
                    back.push(number);
                    replies.came_back(order, number, number);
                }
                // Some are late although they are due.
                if random.below(3) > 0 {
                    finish_due(&mut replies, &mut finished);
                }
                let at_work = begun.len() - finished.len();
                assert_eq!(replies.at_work() as usize, at_work, "seed {seed}");
            }
            for number in out {
                back.push(number);
                replies.came_back(order, number, number);
            }
            finish_due(&mut replies, &mut finished);
            let expected = if order == Order::Kept { begun } else { back };
            assert_eq!(finished, expected, "seed {seed}");
            assert_eq!(replies.at_work(), 0);
        }
    }

    #[test]
    fn what_is_given_up_is_not_at_work() {
        let mut replies = Replies::default();
        let (_, second) = (replies.begin(), replies.begin());
        replies.came_back(Order::Kept, second, 'b');
        assert!(replies.due().is_none());
        assert_eq!(replies.take_all().collect::<Vec<_>>(), ['b']);
        assert_eq!(replies.at_work(), 1);
    }
}
