//! Outboxes on a simulated server: their bound, their charge, their wakes, their end.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use flatpath::access_log::LogEnd;
use flatpath::limits::{OUTPUT_BYTES_HIGH, PIECE_COPY_BYTES_MAX};
use flatpath::simulation::{Conditions, SimulatedServer};
use flatpath::{
    Bytes, ConnectionHandle, Context, Event, Flushed, Limits, Outbox, Phase, Protocol, Received,
    Refused, Stall, on_network_thread,
};
use flatpath_driver::simulation::{Client, Random, each_seed};

const BYTES_MAX: usize = 64 * 1024;

/// While this is written another thread sends the last piece, and ends.
const LAST_BUT_ONE: &[u8] = b"last but one";
const LAST: &[u8] = b", and last";

/// What a piece is charged as.
fn cost(bytes: usize) -> usize {
    (bytes + 128).next_multiple_of(64)
}

type Box = Arc<Outbox<Bytes, ()>>;

/// Asks for as much of [`COMMON`] as a stream may have in its output.
const MORE: u8 = b'm';

/// What all connections have.
const COMMON: &[u8] = &[1; 1_000];

/// Each connection takes from an outbox of its own.
#[derive(Clone, Default)]
struct Post {
    boxes: Arc<Mutex<Vec<Box>>>,
    handles: Arc<Mutex<Vec<ConnectionHandle>>>,
    bytes_max: usize,
}

impl Post {
    fn boxes(&self) -> MutexGuard<'_, Vec<Box>> {
        self.boxes.lock().expect("whole")
    }

    fn flush(context: &mut Context<'_, Self>) {
        let Some(outbox) = &*context.session else {
            return;
        };
        let flushed = outbox.flush(&mut context.io, |io, piece| {
            if piece == LAST_BUT_ONE {
                // As another thread does at that moment.
                outbox.try_push(Bytes::from_static(LAST)).expect("room");
                outbox.end(());
            }
            io.write_piece(b"", piece, b"").map(|()| true)
        });
        if flushed == Flushed::NoMemory {
            context.io.stall(Stall::Memory);
        } else if flushed == Flushed::Ended {
            context.io.close_after_output();
        }
    }
}

impl Protocol for Post {
    type ThreadState = ();
    type Session = Option<Box>;
    type Job = ();

    fn received(&self, context: &mut Context<'_, Self>, input: &[u8]) -> Received {
        if context.session.is_none() {
            let outbox = Arc::new(Outbox::new(self.bytes_max));
            *context.session = Some(Arc::clone(&outbox));
            // Kept, it is charged when there is memory.
            let _charged = outbox.attach(context.handle());
            let handle = context.handle();
            self.handles.lock().expect("whole").push(handle);
            self.boxes().push(outbox);
            context.phase(Phase::Work);
        }
        Self::flush(context);
        while input.contains(&MORE) && !context.io.common_is_full(BYTES_MAX) {
            context.io.write_common(&Bytes::from_static(COMMON));
        }
        Received::Consumed
    }

    fn event(&self, context: &mut Context<'_, Self>, event: Event<'_>) {
        match event {
            Event::Woken => Self::flush(context),
            Event::OutputLow => Self::flush(context),
            other => other.by_default(context),
        }
    }

    fn closed(&self, (): &mut (), session: &mut Option<Box>, _: Option<LogEnd<'_>>) {
        if let Some(outbox) = session.take() {
            outbox.close(None);
        }
    }
}

struct Site {
    server: SimulatedServer,
    post: Post,
}

impl Site {
    fn new(seed: u64, buffer_bytes_max: usize) -> Site {
        Site::with(seed, buffer_bytes_max, BYTES_MAX)
    }

    fn with(seed: u64, buffer_bytes_max: usize, bytes_max: usize) -> Site {
        let post = Post {
            bytes_max,
            ..Post::default()
        };
        let mut conditions = Conditions::calm(seed);
        conditions.limits = Limits {
            buffer_bytes_max,
            ..Limits::default()
        };
        let server = SimulatedServer::new(conditions, post.clone());
        Site { server, post }
    }

    fn open(&mut self) -> (Client, Box) {
        let (before, client) = (self.post.boxes().len(), self.server.connect());
        client.write(b"+");
        while self.post.boxes().len() == before {
            self.server.turn();
        }
        let outbox = Arc::clone(&self.post.boxes()[before]);
        (client, outbox)
    }

    fn pass(&mut self) {
        self.server.advance(Duration::from_millis(2));
        for _ in 0..6 {
            self.server.turn();
        }
    }

    fn charged_bytes(&self) -> usize {
        self.server.handle().pool_statistics().charged_bytes
    }

    /// Gives everything back.
    fn end(mut self) {
        self.server.force();
        self.server.end(10_000);
        let (leaks, bytes) = self.server.leaks();
        assert!(leaks.is_none() && bytes == 0, "{leaks:?}, {bytes} bytes");
    }
}

/// A piece that counts itself as long as it is referenced.
struct Counted(Vec<u8>, Arc<AtomicUsize>);

impl AsRef<[u8]> for Counted {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        assert!(!on_network_thread(), "its drop may block");
        self.1.fetch_sub(cost(self.0.len()), Ordering::Relaxed);
    }
}

fn counted(bytes: usize, alive: &Arc<AtomicUsize>) -> Bytes {
    alive.fetch_add(cost(bytes), Ordering::Relaxed);
    Bytes::from_owner(Counted(vec![7; bytes], Arc::clone(alive)))
}

#[test]
fn model_the_sum_of_charges_is_what_is_referenced_whoever_shares_it() {
    each_seed(40, |seed| {
        let mut random = Random::new(seed);
        let mut site = Site::new(seed, 1 << 20);
        site.server.world().set_window_bytes(2_000);
        let alive = Arc::new(AtomicUsize::new(0));
        let mut clients: Vec<(Client, Box)> = (0..5).map(|_| site.open()).collect();
        let mut below = |most: usize| random.below(most);
        for _ in 0..150 {
            // Pieces that are copied, at times, and others that never are.
            let bytes = [600, 5_000, 9_000, 40_000][below(4)];
            match below(8) {
                0..4 => {
                    let (_, outbox) = &clients[below(clients.len())];
                    let _ = outbox.try_push(counted(bytes, &alive));
                }
                4 => {
                    let message = counted(bytes, &alive);
                    for (_, outbox) in &clients {
                        let _ = outbox.try_push(message.clone());
                    }
                }
                5 if clients.len() > 2 => {
                    let (client, _) = clients.swap_remove(below(clients.len()));
                    client.abort();
                }
                6 => clients.push(site.open()),
                _ => {
                    clients[below(clients.len())].0.read_at_most(30_000);
                }
            }
            site.pass();
            let alive = alive.load(Ordering::Relaxed);
            assert_eq!(site.charged_bytes(), alive, "seed {seed}");
            let statistics = site.server.handle().pool_statistics();
            assert!(statistics.in_use_bytes + statistics.idle_bytes <= 1 << 20);
        }
        drop(clients);
        site.end();
        assert_eq!(alive.load(Ordering::Relaxed), 0, "seed {seed}");
    });
}

#[test]
fn sim_short_pieces_are_charged_while_they_are_queued() {
    let mut site = Site::new(1, 4 << 20);
    site.server.world().set_window_bytes(1);
    let (client, outbox) = site.open();
    let mut sent = 0;
    while outbox
        .try_push(vec![1; PIECE_COPY_BYTES_MAX].into())
        .is_ok()
    {
        sent += PIECE_COPY_BYTES_MAX;
        if sent == 2 * PIECE_COPY_BYTES_MAX {
            assert_eq!(site.charged_bytes(), 2 * cost(PIECE_COPY_BYTES_MAX));
        }
    }
    assert_eq!(sent, BYTES_MAX, "the bound");
    site.pass();
    // All of it is in buffers now, and still waits.
    assert_eq!(site.charged_bytes(), 0);
    assert!(site.server.handle().pool_statistics().in_use_bytes >= sent);
    assert!(outbox.try_push("x".into()).is_err());
    site.server.world().set_window_bytes(1 << 20);
    let mut read = 0;
    while read < sent {
        site.pass();
        read += client.read().len();
    }
    assert!(outbox.try_push("x".into()).is_ok(), "it has been read");
    site.end();
}

#[test]
fn sim_the_charge_of_short_pieces_is_that_of_those_in_the_queue() {
    const PIECES: usize = 1024;
    let bytes_max = PIECES * PIECE_COPY_BYTES_MAX;
    let mut site = Site::with(1, 8 << 20, bytes_max);
    site.server.world().set_window_bytes(1);
    let (_client, outbox) = site.open();
    let piece = Bytes::from_static(&[1; PIECE_COPY_BYTES_MAX]);
    for _ in 0..PIECES {
        outbox.try_push(piece.clone()).expect("room");
    }
    let charged = PIECES * cost(PIECE_COPY_BYTES_MAX);
    assert_eq!(site.charged_bytes(), charged);
    site.pass();
    // An output full of them is in buffers now.
    let written = OUTPUT_BYTES_HIGH / PIECE_COPY_BYTES_MAX;
    let charged = (PIECES - written) * cost(PIECE_COPY_BYTES_MAX);
    assert_eq!(site.charged_bytes(), charged);
    site.end();
}

#[test]
fn sim_what_was_admitted_and_became_shorter_is_charged_as_what_it_is() {
    let mut site = Site::new(1, 4 << 20);
    let (_client, outbox) = site.open();
    outbox.try_push(vec![1; 500].into()).expect("room");
    let admitted = outbox.try_admit(10_000).expect("room");
    assert_eq!(site.charged_bytes(), cost(10_000));
    let pushed = outbox.push_admitted(vec![1; 100].into(), admitted);
    pushed.expect("it is open");
    assert_eq!(site.charged_bytes(), cost(100));
    site.end();
}

/// Holds more than a quarter of a budget of 4 MiB, and less than half, by clients that do not read.
fn press(site: &mut Site) -> Vec<(Client, Box)> {
    site.server.world().set_window_bytes(1);
    let hogs = (0..24).map(|_| {
        let (client, hog) = site.open();
        hog.try_push(vec![1; 60_000].into()).expect("room");
        (client, hog)
    });
    let hogs = hogs.collect();
    site.pass();
    let held = site.server.handle().pool_statistics().in_use_bytes;
    assert!((1 << 20..2 << 20).contains(&held), "{held} bytes are held");
    hogs
}

#[test]
fn sim_while_memory_is_short_one_piece_waits_for_a_client_although_there_is_room() {
    let mut site = Site::new(1, 4 << 20);
    let _hogs = press(&mut site);
    for bytes in [400, 5_000, 20_000] {
        let (_client, outbox) = site.open();
        outbox.try_push(vec![1; bytes].into()).expect("one piece");
        let more = outbox.try_push(vec![1; bytes].into());
        assert!(matches!(more, Err(Refused::Full(_))), "{bytes}: {more:?}");
        let more = outbox.try_admit(bytes);
        assert!(matches!(more, Err(Refused::Full(()))), "{bytes}");
        site.pass();
        let more = outbox.try_push(vec![1; bytes].into());
        assert!(matches!(more, Err(Refused::Full(_))), "{bytes}: {more:?}");
    }
    site.end();
}

#[test]
fn sim_while_memory_is_short_a_client_has_a_fair_part_of_what_all_have() {
    let read = |is_short: bool| {
        let mut site = Site::new(1, 4 << 20);
        let _hogs = is_short.then(|| press(&mut site));
        let (client, _) = site.open();
        client.write(&[MORE]);
        site.pass();
        site.server.world().set_window_bytes(1 << 20);
        let mut read = 0;
        for _ in 0..20 {
            site.pass();
            read += client.read().len();
        }
        site.end();
        read
    };
    assert_eq!(read(false), BYTES_MAX.next_multiple_of(COMMON.len()));
    assert_eq!(read(true), COMMON.len());
}

#[test]
fn sim_a_refused_sender_is_told_once_of_room_that_it_then_has() {
    let mut site = Site::new(1, 4 << 20);
    site.server.world().set_window_bytes(1);
    let (client, outbox) = site.open();
    let told = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&told);
    outbox.on_event(move || {
        count.fetch_add(1, Ordering::Relaxed);
    });
    while outbox.try_push(vec![1; 10_000].into()).is_ok() {}
    assert!(matches!(outbox.try_push("x".into()), Err(Refused::Full(x)) if x == "x"));
    site.pass();
    assert_eq!(told.load(Ordering::Relaxed), 0);
    site.server.world().set_window_bytes(1 << 20);
    for _ in 0..20 {
        site.pass();
        client.read();
    }
    assert_eq!(told.load(Ordering::Relaxed), 1);
    assert!(outbox.try_push(vec![1; 10_000].into()).is_ok());
    client.abort();
    site.pass();
    assert_eq!(told.load(Ordering::Relaxed), 2, "the end");
    assert!(matches!(
        outbox.try_push("x".into()),
        Err(Refused::Closed(_))
    ));
    site.end();
}

#[test]
fn sim_a_sender_waits_for_memory_in_the_order_of_all_and_short_messages_do_not() {
    let mut site = Site::new(1, 1 << 20);
    let (reader, outbox) = site.open();
    site.server.world().set_window_bytes(1);
    // Pieces of those who do not read, until there is no memory left.
    let mut hogs = Vec::new();
    loop {
        let (client, hog) = site.open();
        let is_taken = hog.try_push(vec![1; 60_000].into()).is_ok();
        hogs.push((client, hog));
        if !is_taken {
            break;
        }
        assert!(hogs.len() < 100, "the budget is a megabyte");
    }
    site.pass();
    let told = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&told);
    outbox.on_event(move || {
        count.fetch_add(1, Ordering::Relaxed);
    });
    assert!(
        outbox.try_push(vec![2; 60_000].into()).is_err(),
        "no memory"
    );
    let waits = |site: &Site| site.server.statistics().memory_stalls;
    let before = waits(&site);
    site.pass();
    assert!(
        waits(&site) > before || before > 0,
        "it waits with the others"
    );
    site.server.world().set_window_bytes(64 * 1024);
    outbox.try_push("short".into()).expect("needs none");
    site.pass();
    site.pass();
    assert_eq!(reader.read(), b"short");
    drop(
        hogs.drain(..)
            .map(|(client, _)| client.abort())
            .collect::<Vec<_>>(),
    );
    for _ in 0..10 {
        site.pass();
    }
    assert!(told.load(Ordering::Relaxed) > 0, "there is memory again");
    assert!(outbox.try_push(vec![2; 60_000].into()).is_ok());
    site.pass();
    site.end();
}

#[test]
fn sim_what_was_queued_before_the_connection_is_charged_with_it() {
    let outbox: Outbox<Bytes, ()> = Outbox::new(BYTES_MAX);
    for bytes in [10, 600, 10_000] {
        outbox.try_push(vec![1; bytes].into()).expect("room");
    }
    let mut site = Site::new(1, 4 << 20);
    let _client = site.open();
    let handle = site.post.handles.lock().expect("whole")[0].clone();
    assert_eq!(site.charged_bytes(), 0);
    outbox.attach(handle).expect("nothing is queued");
    assert_eq!(
        site.charged_bytes(),
        [10, 600, 10_000].map(cost).iter().sum::<usize>()
    );
    outbox.close(None);
    assert_eq!(site.charged_bytes(), 0);
    site.end();
}

/// Whether all is flushed, and whether the sender has ended, is one question: else the end of a
/// sender that has just sent its last piece would be taken for the end of what was flushed.
#[test]
fn sim_what_is_sent_while_the_queue_is_flushed_comes_before_the_end() {
    let mut site = Site::new(7, 1 << 20);
    let (client, outbox) = site.open();
    outbox
        .try_push(Bytes::from_static(LAST_BUT_ONE))
        .expect("room");
    for _ in 0..4 {
        site.pass();
    }
    let read = client.read();
    assert_eq!(read, [LAST_BUT_ONE, LAST].concat());
    site.end();
}
