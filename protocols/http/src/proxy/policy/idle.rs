//! Idle connections of one server on one network thread: the latest is taken first, so that those
//! that are not needed grow old and end.
//!
//! A list through slots, as each of them leaves from the middle when its server closes it.
//!
//! Cost: O(1) for each call, however many there are.

/// A place in the list, which is one connection's until it is taken or removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct IdleKey {
    slot: u32,
    generation: u32,
}

#[derive(Debug)]
struct Slot<C> {
    generation: u32,
    /// Of a free one, the next that is free.
    older: Option<u32>,
    newer: Option<u32>,
    held: Option<C>,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Idle<C> {
    slots: Vec<Slot<C>>,
    newest: Option<u32>,
    free: Option<u32>,
    count: usize,
}

impl<C> Default for Idle<C> {
    fn default() -> Self {
        Self {
            slots: Vec::new(),
            newest: None,
            free: None,
            count: 0,
        }
    }
}

impl<C> Idle<C> {
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// Adds the newest one.
    pub(crate) fn put(&mut self, held: C) -> IdleKey {
        let slot = match self.free {
            Some(slot) => {
                self.free = self.slots[slot as usize].older;
                slot
            }
            None => {
                self.slots.push(Slot {
                    generation: 0,
                    older: None,
                    newer: None,
                    held: None,
                });
                (self.slots.len() - 1) as u32
            }
        };
        let older = self.newest.replace(slot);
        if let Some(older) = older {
            self.slots[older as usize].newer = Some(slot);
        }
        let of_it = &mut self.slots[slot as usize];
        (of_it.older, of_it.newer, of_it.held) = (older, None, Some(held));
        self.count += 1;
        IdleKey {
            slot,
            generation: of_it.generation,
        }
    }

    /// Takes the newest one.
    pub(crate) fn take(&mut self) -> Option<C> {
        self.unlink(self.newest?)
    }

    /// Takes this one, unless it was taken before.
    pub(crate) fn remove(&mut self, key: IdleKey) -> Option<C> {
        let slot = self.slots.get(key.slot as usize)?;
        (slot.generation == key.generation && slot.held.is_some()).then_some(())?;
        self.unlink(key.slot)
    }

    fn unlink(&mut self, slot: u32) -> Option<C> {
        let free = self.free.replace(slot);
        let of_it = &mut self.slots[slot as usize];
        let (older, newer, held) = (of_it.older, of_it.newer, of_it.held.take());
        of_it.generation = of_it.generation.wrapping_add(1);
        (of_it.older, of_it.newer) = (free, None);
        if let Some(older) = older {
            self.slots[older as usize].newer = newer;
        }
        match newer {
            Some(newer) => self.slots[newer as usize].older = older,
            None => self.newest = older,
        }
        self.count -= 1;
        held
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_is_taken_first_and_each_once() {
        let mut idle = Idle::default();
        let keys: Vec<_> = (0..4).map(|it| idle.put(it)).collect();
        assert_eq!(idle.remove(keys[1]), Some(1));
        assert_eq!(idle.remove(keys[1]), None);
        assert_eq!(idle.take(), Some(3));
        assert_eq!(idle.remove(keys[3]), None);
        let again = idle.put(5);
        assert_eq!(idle.remove(keys[3]), None, "its place is another's");
        assert_eq!((idle.take(), idle.remove(again)), (Some(5), None));
        assert_eq!(
            (idle.take(), idle.take(), idle.take()),
            (Some(2), Some(0), None)
        );
        assert_eq!(idle.count(), 0);
    }

    #[test]
    fn model_a_list_of_all_that_are_idle() {
        let mut random = fastrand::Rng::with_seed(3);
        let (mut idle, mut model) = (Idle::default(), Vec::<(IdleKey, u32)>::new());
        for it in 0..20_000 {
            match random.u8(..4) {
                0 | 1 => model.push((idle.put(it), it)),
                2 if !model.is_empty() => {
                    let (key, it) = model.remove(random.usize(..model.len()));
                    assert_eq!(idle.remove(key), Some(it));
                    assert_eq!(idle.remove(key), None);
                }
                _ => assert_eq!(idle.take(), model.pop().map(|(_, it)| it)),
            }
            assert_eq!(idle.count(), model.len());
        }
    }
}
