//! The inbox without a driver: each table of its header row by row, and a model of its order.

use flatpath_driver::simulation::Random;
use flatpath_structures::pool::{Pool, PoolConfig};

use super::*;

/// The buffers of the tests.
const CLASSES: [usize; 3] = [64, 1024, INPUT_BYTES_MAX];

/// A page of a test: its bytes, and whether all connections share pages as this one.
#[derive(Debug)]
struct Sheet(Vec<u8>, bool);

impl Page for Sheet {
    fn page_bytes(&self) -> usize {
        self.0.len()
    }

    fn is_common(&self) -> bool {
        self.1
    }
}

/// Where they come from.
struct Store {
    pool: Pool,
    /// No buffer is there.
    is_out: bool,
    recycled: usize,
}

impl Store {
    fn new() -> Store {
        let config = PoolConfig {
            classes: CLASSES.to_vec(),
            budget_bytes: 4 * INPUT_BYTES_MAX,
            ..PoolConfig::default()
        };
        Store {
            pool: Pool::new(config),
            is_out: false,
            recycled: 0,
        }
    }
}

impl Supply<Sheet> for Store {
    fn bytes<'a>(&'a self, page: &'a Sheet) -> &'a [u8] {
        &page.0
    }

    fn recycle(&mut self, _: Sheet) {
        self.recycled += 1;
    }

    fn take(&self, bytes: usize) -> Option<Buffer> {
        let buffer = (!self.is_out).then(|| self.pool.take(bytes)).flatten();
        buffer.filter(|buffer| buffer.room() >= bytes)
    }
}

/// A page that all share, and one of a listener's own.
fn common(bytes: usize) -> Sheet {
    Sheet(vec![b'c'; bytes], true)
}

fn own(bytes: usize) -> Sheet {
    Sheet(vec![b'o'; bytes], false)
}

/// An inbox with a remainder of the first length, in a buffer with room for the second.
fn with_remainder(bytes: usize, room: usize, store: &Store) -> Inbox<Sheet> {
    let mut inbox = Inbox::default();
    if bytes > 0 {
        let mut buffer = store.pool.take(bytes + room).expect("a buffer");
        buffer.append(&vec![b'r'; buffer.room() - room]);
        buffer.consume_front(buffer.filled().len() - bytes);
        inbox.put_remainder(buffer);
    }
    inbox
}

/// A chunk in a word: where it lies, how long it is, and where in its page it begins.
fn word(chunk: &Chunk<Sheet>) -> (&'static str, usize, u32) {
    match chunk {
        Chunk::Page(_, from) => ("page", chunk.bytes(), *from),
        Chunk::Buffer(_) => ("buffer", chunk.bytes(), 0),
        Chunk::Empty => ("empty", 0, 0),
    }
}

#[test]
fn what_is_next_is_what_the_table_says() {
    let (arrival, turn) = (Reason::Arrival(10), Reason::Turn);
    let [again, for_room] = [false, true].map(|for_room| Reason::Again { for_room });
    // Bytes of the remainder and of the first page, what is in that, why one looks: what is next.
    let rows = [
        (0, 0, Form::Plain, arrival, "nothing", 0),
        (0, 0, Form::Plain, turn, "nothing", 0),
        (0, 0, Form::Plain, again, "nothing", 0),
        (0, 0, Form::Plain, for_room, "empty", 0),
        (5, 0, Form::Plain, arrival, "nothing", 0),
        (5, 0, Form::Plain, turn, "nothing", 0),
        (5, 0, Form::Plain, again, "buffer", 5),
        (5, 0, Form::Plain, for_room, "buffer", 5),
        (0, 10, Form::Plain, arrival, "page", 10),
        (0, 11, Form::Plain, arrival, "later", 0),
        (0, 11, Form::Plain, turn, "page", 11),
        (0, 11, Form::Plain, for_room, "page", 11),
        (5, 10, Form::Plain, arrival, "page", 10),
        (5, 11, Form::Plain, turn, "page", 11),
        (5, 11, Form::Plain, again, "buffer", 5),
        (0, 10, Form::Records, arrival, "records", 10),
        (0, 11, Form::Records, arrival, "later", 0),
        (5, 11, Form::Records, again, "buffer", 5),
        (0, 11, Form::Records, again, "records", 11),
    ];
    for (remainder, page, form, reason, expected, bytes) in rows {
        let case = format!("{remainder}, {page}, {form:?}, {reason:?}");
        let store = Store::new();
        let mut inbox = with_remainder(remainder, 0, &store);
        if page > 0 {
            // Two bytes of it were given before.
            inbox.put_back(Chunk::Page(common(page + 2), 2), form);
        }
        assert_eq!(inbox.next_bytes(), remainder + page, "{case}");
        let found = match inbox.next(reason) {
            Next::Nothing => ("nothing", 0),
            Next::Later => ("later", 0),
            Next::Records(records) => ("records", records.bytes()),
            Next::Chunk(chunk) => (word(&chunk).0, chunk.bytes()),
            next @ (Next::Drop | Next::End) => panic!("{case}: {next:?} is its connection's"),
        };
        assert_eq!(found, (expected, bytes), "{case}");
    }
}

#[test]
fn what_may_be_given_on_arrival_is_counted_and_counted_anew_after_a_turn() {
    let again = Reason::Again { for_room: true };
    for (reason, left) in [
        (Reason::Arrival(10), 7),
        (Reason::Arrival(2), 0),
        (Reason::Turn, 100),
        (again, 100),
    ] {
        assert_eq!(reason.after(3, 100), Reason::Arrival(left), "{reason:?}");
    }
}

#[test]
fn a_chunk_joins_the_remainder_as_the_table_says() {
    const MUCH: usize = INPUT_BYTES_MAX;
    // The remainder and its room, the page from its third byte on, whether buffers are there: what
    // is given, and what is held then.
    let rows = [
        (0, 0, common(9), true, ("page", 7, 2), 0),
        (0, 0, common(9), false, ("page", 7, 2), 0),
        (5, 7, common(9), false, ("buffer", 12, 0), 0),
        (5, 6, common(9), true, ("buffer", 12, 0), 0),
        (5, 6, common(9), false, ("buffer", 11, 0), 1),
        (5, 0, common(9), true, ("buffer", 12, 0), 0),
        (5, 0, common(9), false, ("no memory", 0, 0), 7),
        (5, 0, common(MUCH - 2), true, ("too long", 0, 0), 0),
        (5, 0, common(MUCH - 3), true, ("buffer", MUCH, 0), 0),
        (
            5,
            0,
            own(APPEND_BYTES_MAX + 9),
            true,
            ("buffer", APPEND_BYTES_MAX + 5, 0),
            7,
        ),
    ];
    for (remainder, room, page, has_buffers, expected, held) in rows {
        let case = format!("{remainder}, {room}, {}, {has_buffers}", page.0.len());
        let mut store = Store::new();
        let mut inbox = with_remainder(remainder, room, &store);
        store.is_out = !has_buffers;
        let found = match inbox.join(Chunk::Page(page, 2), &mut store) {
            Joined::NoMemory => ("no memory", 0, 0),
            Joined::TooLong => ("too long", 0, 0),
            Joined::Chunk(chunk) => {
                assert!(!inbox.has_remainder(), "{case}: it is in the chunk");
                word(&chunk)
            }
        };
        assert_eq!(found, expected, "{case}");
        assert_eq!(inbox.first().map_or(0, Held::bytes), held, "{case}");
        let is_used_up = held == 0 && found.0 != "page";
        assert_eq!(store.recycled, usize::from(is_used_up), "{case}");
    }
}

#[test]
fn a_record_that_came_in_parts_joins_where_room_was_made_for_it() {
    let mut store = Store::new();
    let part = |store: &Store| {
        let mut part = store.pool.take(20).expect("a buffer");
        part.append(&[b'p'; 20]);
        Chunk::Buffer(part)
    };
    let mut inbox = with_remainder(0, 0, &store);
    assert_eq!(inbox.reserve(20, &store), Room::Made);
    assert!(!inbox.has_remainder(), "it needs no buffer");
    assert!(matches!(
        inbox.join(part(&store), &mut store),
        Joined::Chunk(Chunk::Buffer(_))
    ));
    let mut inbox = with_remainder(5, 10, &store);
    store.is_out = true;
    assert_eq!(inbox.reserve(20, &store), Room::NoMemory);
    assert_eq!(inbox.reserve(INPUT_BYTES_MAX, &store), Room::TooLong);
    store.is_out = false;
    assert_eq!(inbox.reserve(20, &store), Room::Made);
    let chunk = part(&store);
    store.is_out = true;
    let joined = inbox.join(chunk, &mut store);
    let Joined::Chunk(Chunk::Buffer(buffer)) = joined else {
        panic!("it has room: {joined:?}");
    };
    assert_eq!(buffer.filled(), [&[b'r'; 5][..], &[b'p'; 20]].concat());
}

#[test]
fn what_a_call_leaves_is_where_the_table_says() {
    // The page, whether the connection is stalled and buffers are there: whether it is held.
    let rows = [
        (common(9), false, true, Left::Kept, false),
        (common(9), true, true, Left::Kept, false),
        (common(9), true, false, Left::NoMemory, true),
        (own(9), false, true, Left::Kept, false),
        (own(9), true, true, Left::Kept, true),
        (own(9), false, false, Left::NoMemory, true),
    ];
    for (page, is_stalled, has_buffers, expected, is_held) in rows {
        let case = format!("{page:?}, {is_stalled}, {has_buffers}");
        let mut store = Store::new();
        let mut inbox = Inbox::default();
        store.is_out = !has_buffers;
        let common_pages = usize::from(page.is_common() && is_held);
        let left = inbox.leave(Chunk::Page(page, 2), is_stalled, &mut store);
        assert_eq!(left, expected, "{case}");
        assert_eq!((inbox.holds_nothing(), inbox.next_bytes()), (!is_held, 7));
        assert_eq!(inbox.common_pages(), common_pages, "{case}");
        assert_eq!(store.recycled, usize::from(!is_held), "{case}");
        inbox.clear(&mut store);
        assert!(inbox.is_empty() && store.recycled == 1, "{case}");
    }
}

#[test]
fn what_comes_to_a_stalled_connection_is_copied_unless_it_may_not_be() {
    // The page, what is in it, whether it is stalled, others are held and buffers are there:
    // whether it is held.
    let rows = [
        (common(9), Form::Plain, true, false, true, false),
        (common(9), Form::Plain, true, false, false, true),
        (common(9), Form::Plain, true, true, true, true),
        (common(9), Form::Plain, false, false, true, true),
        (common(9), Form::Records, true, false, true, true),
        (own(9), Form::Plain, true, false, true, true),
    ];
    for (page, form, is_stalled, holds, has_buffers, is_held) in rows {
        let case = format!("{page:?}, {form:?}, {is_stalled}, {holds}, {has_buffers}");
        let mut store = Store::new();
        let mut inbox = Inbox::default();
        if holds {
            inbox.put_back(Chunk::Page(common(3), 0), Form::Plain);
        }
        store.is_out = !has_buffers;
        inbox.add(page, form, is_stalled, &mut store);
        assert_eq!(inbox.has_remainder(), !is_held, "{case}");
        assert_eq!(store.recycled, usize::from(!is_held), "{case}");
        assert_eq!(inbox.has_held(), holds || is_held, "{case}");
    }
}

#[test]
fn pages_that_are_copied_out_give_what_they_had_in_their_order_and_form() {
    let mut store = Store::new();
    let mut inbox = Inbox::default();
    let pages = [
        (own(7), Form::Plain),
        (common(9), Form::Plain),
        (common(8), Form::Records),
    ];
    for (page, form) in pages {
        inbox.add(page, form, false, &mut store);
    }
    store.is_out = true;
    inbox.copy_out(&mut store);
    assert_eq!((inbox.common_pages(), store.recycled), (2, 0), "no buffer");
    store.is_out = false;
    inbox.copy_out(&mut store);
    assert_eq!((inbox.common_pages(), store.recycled), (0, 2));
    assert_eq!(inbox.next_bytes(), 7);
    let next = |inbox: &mut Inbox<Sheet>| match inbox.next(Reason::Turn) {
        Next::Chunk(chunk) => (word(&chunk).0, chunk.bytes()),
        Next::Records(records) => ("records", records.bytes()),
        other => panic!("{other:?}"),
    };
    let given = [(); 3].map(|()| next(&mut inbox));
    assert_eq!(given, [("page", 7), ("buffer", 9), ("records", 8)]);
}

#[test]
fn a_copy_that_finds_no_room_after_the_remainder_is_held_first() {
    let mut store = Store::new();
    let mut inbox = with_remainder(5, 0, &store);
    inbox.put_back(Chunk::Page(common(9), 2), Form::Plain);
    inbox.copy_out(&mut store);
    store.is_out = true;
    let Next::Chunk(copy) = inbox.next(Reason::Turn) else {
        panic!("the copy is next");
    };
    assert!(matches!(inbox.join(copy, &mut store), Joined::NoMemory));
    assert_eq!(inbox.next_bytes(), 12);
    inbox.clear(&mut store);
    assert_eq!(store.recycled, 1);
}

#[test]
fn from_the_end_of_a_handshake_on_all_that_is_held_is_records() {
    let mut inbox = Inbox::default();
    inbox.put_back(Chunk::Page(common(9), 0), Form::Plain);
    inbox.begin_records();
    assert!(matches!(inbox.next(Reason::Turn), Next::Records(..)));
}

/// An inbox, and the input as one run of bytes.
struct Model {
    inbox: Inbox<Sheet>,
    store: Store,
    came: usize,
    consumed: usize,
    pages: usize,
    is_stalled: bool,
}

/// The byte at a place of the input.
fn byte(at: usize) -> u8 {
    (at % 251) as u8
}

impl Model {
    /// A page comes. Pages of the own kind come one at a time.
    fn arrive(&mut self, random: &mut Random) {
        let bytes = 1 + random.below(200);
        let is_common = random.below(4) > 0 || !self.inbox.holds_nothing();
        let page = Sheet(
            (self.came..self.came + bytes).map(byte).collect(),
            is_common,
        );
        let form = match random.below(2) {
            0 if self.inbox.holds_nothing() => Form::Plain,
            _ => Form::Records,
        };
        (self.came, self.pages) = (self.came + bytes, self.pages + 1);
        self.inbox.add(page, form, self.is_stalled, &mut self.store);
    }

    /// A call takes some of the next chunk (B1). False: nothing is next.
    fn give(&mut self, reason: Reason, random: &mut Random) -> bool {
        let chunk = match self.inbox.next(reason) {
            Next::Chunk(chunk) => chunk,
            // The filter of this model takes nothing away.
            Next::Records(records) => records,
            _ => return false,
        };
        let Joined::Chunk(mut chunk) = self.inbox.join(chunk, &mut self.store) else {
            self.is_stalled = true;
            return false;
        };
        let given = match &chunk {
            Chunk::Page(page, from) => &page.0[*from as usize..],
            Chunk::Buffer(buffer) => buffer.filled(),
            Chunk::Empty => &[],
        };
        let expected: Vec<u8> = (self.consumed..).take(given.len()).map(byte).collect();
        assert_eq!(given, expected, "B1");
        let consumed = match random.below(3) {
            0 => given.len(),
            _ => random.below(given.len() + 1),
        };
        self.consumed += consumed;
        self.is_stalled = consumed < given.len() && random.below(2) == 0;
        chunk.consume(consumed);
        if chunk.bytes() > 0 {
            let left = self.inbox.leave(chunk, self.is_stalled, &mut self.store);
            self.is_stalled |= left == Left::NoMemory;
        } else if let Chunk::Page(page, _) = chunk {
            self.store.recycle(page);
        }
        !self.is_stalled
    }

    fn check(&self) {
        let waits = self.came - self.consumed;
        assert_eq!(self.inbox.is_empty(), waits == 0);
        let mut held = self.inbox.hold.iter().flat_map(|hold| hold.iter());
        let pages: Vec<_> = held.by_ref().collect();
        let bytes: usize = pages.iter().map(|held| held.bytes()).sum();
        assert_eq!(self.inbox.remainder().len() + bytes, waits);
        let is_whole = |held: &&Held<Sheet>| !matches!(held.chunk, Chunk::Page(_, 1..));
        assert!(pages.iter().skip(1).all(is_whole), "B3");
        let forms = pages.iter().map(|held| held.form == Form::Records);
        assert!(forms.is_sorted(), "B3: {pages:?}");
        let uncopied = pages
            .iter()
            .filter(|held| matches!(held.chunk, Chunk::Page(..)));
        assert_eq!(self.store.recycled + uncopied.count(), self.pages);
    }
}

#[test]
fn model_chunks_are_the_input_in_its_order() {
    for seed in 1..500 {
        let mut random = Random::new(seed);
        let mut model = Model {
            inbox: Inbox::default(),
            store: Store::new(),
            came: 0,
            consumed: 0,
            pages: 0,
            is_stalled: false,
        };
        for _ in 0..100 {
            model.store.is_out = random.below(4) == 0;
            let reason = match random.below(4) {
                0 => Reason::Turn,
                1 => Reason::Again { for_room: false },
                _ => Reason::Arrival(random.below(300)),
            };
            model.arrive(&mut random);
            if random.below(4) == 0 {
                model.inbox.copy_out(&mut model.store);
                assert!(model.store.is_out || model.inbox.common_pages() == 0);
            }
            if !matches!(reason, Reason::Arrival(_)) {
                model.is_stalled = false;
            }
            let mut goes_on = !model.is_stalled && model.give(reason, &mut random);
            while goes_on {
                model.check();
                goes_on = model.give(reason.after(0, 100), &mut random);
            }
            model.check();
        }
        model.inbox.clear(&mut model.store);
        assert_eq!(model.store.recycled, model.pages, "seed {seed}");
        assert_eq!(model.store.pool.statistics().in_use_bytes, 0, "seed {seed}");
    }
}
