//! Cells: the words of a ledger by number, made when they are first needed, and never moved.
//!
//! The first 16 are part of the ledger, so that a holder of few tokens has one allocation and finds
//! them at once; 48 more are made together, and all others in blocks of 64. A block is reached
//! through nodes of 8, two for the first 4,096 numbers and five for the rest. So no more is made
//! than is needed: cells take at most what the nodes of a 64-way tree of words take, which have two
//! bitmaps each, whatever their number.
//!
//! | may run beside  | get | made, each_used | bytes |
//! |-----------------|-----|-----------------|-------|
//! | get             | yes | yes             | yes   |
//! | made, each_used | yes | no: one owner   | yes   |
//!
//! The cells say nothing about what is in them: invariants and edges are those of the ledger. A
//! `OnceLock` publishes what is made.

use crate::sync::AtomicU32;
use std::sync::OnceLock;

const FIRST: usize = 16;
const BLOCK_BITS: u32 = 6;
const BLOCK: usize = 1 << BLOCK_BITS;
/// Numbers that a node tells apart, as bits.
const NODE_BITS: u32 = 3;
const NODE: usize = 1 << NODE_BITS;

/// See the module for what may run beside what.
#[derive(Debug)]
pub(super) struct Cells {
    first: [AtomicU32; FIRST],
    rest: OnceLock<Box<Rest>>,
}

#[derive(Debug)]
struct Rest {
    /// What is missing in the first block.
    cells: [AtomicU32; BLOCK - FIRST],
    near: OnceLock<Box<Near>>,
}

#[derive(Debug)]
struct Near {
    blocks: Node<Node<Block>>,
    far: OnceLock<Box<Far>>,
}

type Far = Node<Node<Node<Node<Node<Block>>>>>;

#[derive(Debug)]
struct Block([AtomicU32; BLOCK]);

#[derive(Debug)]
struct Node<T>([OnceLock<Box<T>>; NODE]);

/// A block, or a node above blocks.
trait Level {
    /// The low bits of a number that tell its cells apart.
    const BITS: u32;
    /// A node is made empty, a block with all cells at `word`.
    fn new(word: u32) -> Self;
    fn block(&self, number: u32) -> Option<&Block>;
    fn make(&self, number: u32, word: u32) -> &Block;
    /// With what is below.
    fn bytes(&self) -> usize;
}

impl Cells {
    pub(super) fn new(word: u32) -> Cells {
        Cells {
            first: filled(word),
            rest: OnceLock::new(),
        }
    }

    /// The cell of any number, if it was made.
    #[inline]
    pub(super) fn get(&self, number: u32) -> Option<&AtomicU32> {
        match self.first.get(number as usize) {
            Some(cell) => Some(cell),
            None => self.further(number),
        }
    }

    #[inline]
    fn further(&self, number: u32) -> Option<&AtomicU32> {
        let rest = self.rest.get()?;
        match rest.cells.get(number as usize - FIRST) {
            Some(cell) => Some(cell),
            None => Some(&rest.near.get()?.block(number)?.0[number as usize % BLOCK]),
        }
    }

    /// The cell of `number`, which is made, and all that are made with it, at `word`.
    #[inline]
    pub(super) fn made(&self, number: u32, word: u32) -> &AtomicU32 {
        match self.first.get(number as usize) {
            Some(cell) => cell,
            None => self.made_further(number, word),
        }
    }

    #[cold]
    fn made_further(&self, number: u32, word: u32) -> &AtomicU32 {
        if let Some(cell) = self.further(number) {
            return cell;
        }
        let rest = self.rest.get_or_init(|| {
            Box::new(Rest {
                cells: filled(word),
                near: OnceLock::new(),
            })
        });
        match rest.cells.get(number as usize - FIRST) {
            Some(cell) => cell,
            None => {
                let block = rest.near.get_or_init(Near::new).make(number, word);
                &block.0[number as usize % BLOCK]
            }
        }
    }

    /// Calls `visit` with the first `count` cells, all of which were made, in order.
    #[inline]
    pub(super) fn each_used(&self, count: u32, mut visit: impl FnMut(&AtomicU32)) {
        self.first.iter().take(count as usize).for_each(&mut visit);
        let Some(rest) = self.rest.get() else { return };
        let further = (count as usize).saturating_sub(FIRST);
        rest.cells.iter().take(further).for_each(&mut visit);
        let Some(near) = rest.near.get() else { return };
        for number in (BLOCK as u32..count).step_by(BLOCK) {
            let used = (count - number) as usize;
            let cells = near.block(number).into_iter().flat_map(|block| &block.0);
            cells.take(used).for_each(&mut visit);
        }
    }

    /// What was allocated beside the first cells.
    pub(super) fn further_bytes(&self) -> usize {
        let Some(rest) = self.rest.get() else {
            return 0;
        };
        size_of::<Rest>() + rest.near.get().map_or(0, |near| near.bytes())
    }
}

impl Near {
    fn new() -> Box<Near> {
        Box::new(Near {
            blocks: Node::new(0),
            far: OnceLock::new(),
        })
    }

    /// The block of a number that is not in the first one.
    #[inline]
    fn block(&self, number: u32) -> Option<&Block> {
        match number >> <Node<Node<Block>>>::BITS {
            0 => self.blocks.block(number),
            _ => self.far.get()?.block(number),
        }
    }

    fn bytes(&self) -> usize {
        let far = self.far.get().map_or(0, |far| far.bytes());
        size_of::<Self>() - size_of_val(&self.blocks) + self.blocks.bytes() + far
    }

    fn make(&self, number: u32, word: u32) -> &Block {
        match number >> <Node<Node<Block>>>::BITS {
            0 => self.blocks.make(number, word),
            _ => {
                let far = self.far.get_or_init(|| Box::new(Node::new(word)));
                far.make(number, word)
            }
        }
    }
}

impl Level for Block {
    const BITS: u32 = BLOCK_BITS;

    fn new(word: u32) -> Block {
        Block(filled(word))
    }

    #[inline]
    fn block(&self, _number: u32) -> Option<&Block> {
        Some(self)
    }

    fn make(&self, _number: u32, _word: u32) -> &Block {
        self
    }

    fn bytes(&self) -> usize {
        size_of::<Block>()
    }
}

impl<T: Level> Level for Node<T> {
    const BITS: u32 = T::BITS + NODE_BITS;

    fn new(_word: u32) -> Node<T> {
        Node(std::array::from_fn(|_| OnceLock::new()))
    }

    #[inline]
    fn block(&self, number: u32) -> Option<&Block> {
        self.0[(number >> T::BITS) as usize % NODE]
            .get()?
            .block(number)
    }

    fn make(&self, number: u32, word: u32) -> &Block {
        let below = &self.0[(number >> T::BITS) as usize % NODE];
        let below = below.get_or_init(|| Box::new(T::new(word)));
        below.make(number, word)
    }

    fn bytes(&self) -> usize {
        let below = self.0.iter().filter_map(OnceLock::get);
        size_of::<Node<T>>() + below.map(|below| below.bytes()).sum::<usize>()
    }
}

fn filled<const CELLS: usize>(word: u32) -> [AtomicU32; CELLS] {
    std::array::from_fn(|_| AtomicU32::new(word))
}

/// Numbers of all cells.
pub(super) const CELLS_MAX: u32 = 1 << Far::BITS;

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::sync::Ordering::Relaxed;
    use crate::testing::repeats;

    /// The numbers about which something changes, and their neighbours.
    const EDGES: [u32; 14] = [
        0,
        15,
        16,
        63,
        64,
        511,
        512,
        4_095,
        4_096,
        32_767,
        32_768,
        262_144,
        1_048_559,
        CELLS_MAX - 1,
    ];

    #[test]
    fn a_cell_is_there_when_it_was_made_and_each_is_another_one() {
        let cells = Cells::new(7);
        assert!((0..16).all(|number| cells.get(number).is_some()));
        for number in [16, 64, 512, 4_096, CELLS_MAX - 1, CELLS_MAX, u32::MAX] {
            assert!(cells.get(number).is_none(), "{number} before it was made");
        }
        for number in EDGES {
            let cell = cells.made(number, 7);
            assert_eq!(
                cell.swap(number + 100, Relaxed),
                7,
                "fresh, and no other one"
            );
        }
        for number in EDGES {
            let cells = [Some(cells.made(number, 8)), cells.get(number)];
            let words = cells.map(|cell| cell.map(|cell| cell.load(Relaxed)));
            assert_eq!(words, [Some(number + 100); 2], "made once");
        }
    }

    #[test]
    fn the_cells_used_are_those_of_the_numbers_in_order() {
        let cells = Cells::new(0);
        let made = repeats(10_000).max(200);
        for number in 0..made {
            cells.made(number, 0).store(number, Relaxed);
        }
        for count in [0, 1, 15, 16, 17, 63, 64, 65, 128, made] {
            let mut words = vec![];
            cells.each_used(count, |cell| words.push(cell.load(Relaxed)));
            assert!(words.iter().copied().eq(0..count), "{count} used");
        }
    }

    /// A tree of 64 ways whose nodes are 64 words and two bitmaps.
    fn tree_bytes(words: u32) -> usize {
        let mut nodes = 0;
        let mut level = words;
        loop {
            level = level.div_ceil(BLOCK as u32);
            nodes += level as usize;
            if level <= 1 {
                return nodes * (4 * BLOCK + 16);
            }
        }
    }

    /// From the first node on: below, the ledger's own fields count.
    #[test]
    fn further_cells_never_take_more_than_a_tree_of_words() {
        let cells = Cells::new(0);
        for number in 0..repeats(300_000) {
            cells.made(number, 0);
            let bytes = size_of::<[AtomicU32; FIRST]>() + cells.further_bytes();
            let tree = tree_bytes(number + 1);
            assert!(bytes <= tree, "{} cells: {bytes} beside {tree}", number + 1);
        }
    }
}
