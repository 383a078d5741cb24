//! Receives that share a page, on real sockets and every kind of driver. A driver that cannot share
//! takes a page for each, and keeps the same promises.

on_every_driver! {
    #[test] fn small_receives_of_many_connections_share_pages;
    #[test] fn what_lies_in_a_shared_page_stays_as_it_was_while_more_is_received_behind_it;
    #[test] fn a_shared_page_is_back_when_its_last_token_is;
    #[test] fn ends_of_streams_between_receives_change_nothing;
    #[test] fn a_small_receive_needs_no_page_of_its_own_to_be_free;
    #[test] fn a_region_used_up_by_small_receives_recovers;
    #[test] fn pieces_that_are_put_back_are_received_into_at_once;
    #[test] fn model_shared_and_whole_pages_hold_what_was_received;
}

mod cases {
    use std::net::TcpStream;
    use std::sync::Arc;
    use std::time::{Duration, Instant};

    use flatpath_driver::{
        Attachment, Driver, DriverConfig, Errno, Fragment, OperationMode, Outcome, Piece, Quota,
        QuotaWaker, RegionConfig, SmallReceives, Socket,
    };
    use flatpath_structures::tokens::PageToken;

    use crate::rig::{Make, Rig, is_offered, patience, small, write};

    const PAGES: u32 = 64;
    const PAGE_BYTES: u32 = 4096;

    struct Silent;

    impl QuotaWaker for Silent {
        fn wake(&self, _number: u64) {}
    }

    fn quota() -> Quota {
        Quota::new(1, Arc::new(Silent))
    }

    fn config() -> DriverConfig {
        DriverConfig {
            regions: vec![RegionConfig {
                pages: PAGES,
                page_bytes: PAGE_BYTES,
                reserve_pages: 16,
                small_receives: SmallReceives::SharePages,
                ..RegionConfig::default()
            }],
            ..small()
        }
    }

    /// Whether this driver shares pages here.
    fn shares<D: Driver>(rig: &Rig<D>) -> bool {
        rig.driver.kind() == "uring" && is_offered("receives that share a page")
    }

    /// The next piece, or `None` for a stall.
    fn arrived<D: Driver>(rig: &mut Rig<D>, token: u64) -> Option<Piece> {
        match rig.next(token).outcome {
            Outcome::Received(piece) => Some(piece),
            Outcome::Failed(Errno::NOBUFS) => None,
            other => panic!("no bytes but {other:?}"),
        }
    }

    fn receive<D: Driver>(rig: &mut Rig<D>, socket: Socket) -> Option<Piece> {
        rig.driver.receive_sharing(socket, 1, 1);
        arrived(rig, 1)
    }

    /// Keeps all of it, and puts the piece back.
    fn keep<D: Driver>(rig: &mut Rig<D>, piece: Piece) -> Option<Fragment> {
        let region = rig.driver.region(1);
        let kept = region.retain(&piece, 0..piece.len(), &quota());
        rig.driver.recycle(piece);
        kept
    }

    fn bytes_of(number: usize, length: usize) -> Vec<u8> {
        (0..length).map(|at| (number * 31 + at) as u8).collect()
    }

    fn all_is_back<D: Driver>(rig: &mut Rig<D>) {
        rig.until("all pages to be back", |rig| {
            rig.driver.region(1).retained() == 0
        });
        let token = 99;
        let (mut client, socket) = rig.pair();
        // Whole pages, one after the other: all but those that are for small receives.
        let mut pieces = vec![];
        for number in 0..PAGES / 2 {
            write(&mut client, &bytes_of(number as usize, 10));
            rig.driver.receive(socket, token, OperationMode::Single, 1);
            pieces.push(arrived(rig, token).expect("a page is free"));
        }
        for piece in pieces {
            rig.driver.recycle(piece);
        }
    }

    pub(crate) fn small_receives_of_many_connections_share_pages<M: Make>(_: &str) {
        const RECEIVES: usize = 40;
        let Some(mut rig) = Rig::new::<M>(&config()) else {
            return;
        };
        let mut pairs: Vec<_> = (0..4).map(|_| rig.pair()).collect();
        let mut kept = vec![];
        for number in 0..RECEIVES {
            let (client, socket) = &mut pairs[number % 4];
            write(client, &bytes_of(number, 100));
            let piece = receive(&mut rig, *socket).expect("room");
            assert_eq!(rig.driver.bytes(&piece), bytes_of(number, 100));
            kept.push(keep(&mut rig, piece).expect("room"));
        }
        for (number, fragment) in kept.iter().enumerate() {
            assert_eq!(&fragment[..], bytes_of(number, 100));
        }
        let pages = rig.driver.region(1).retained();
        let shared = rig.driver.statistics().shared_receives;
        if shares(&rig) {
            assert_eq!((pages, shared), (1, RECEIVES as u64 - 1), "4,000 bytes");
        } else {
            assert_eq!((pages, shared), (RECEIVES as u32, 0));
        }
        drop(kept);
        all_is_back(&mut rig);
    }

    pub(crate) fn what_lies_in_a_shared_page_stays_as_it_was_while_more_is_received_behind_it<
        M: Make,
    >(
        _: &str,
    ) {
        let Some(mut rig) = Rig::new::<M>(&config()) else {
            return;
        };
        let (mut client, socket) = rig.pair();
        write(&mut client, b"first");
        let piece = receive(&mut rig, socket).expect("room");
        let mut first = keep(&mut rig, piece).expect("room");
        if shares(&rig) {
            assert!(
                !first.try_append(b"x"),
                "the kernel continues after it, though nothing else has the page"
            );
        }
        // On to the end of the page and beyond it, with a piece that is out all the while.
        write(&mut client, b"out");
        let out = receive(&mut rig, socket).expect("room");
        for number in 0..10 {
            write(&mut client, &bytes_of(number, 1000));
            let piece = receive(&mut rig, socket).expect("room");
            assert_eq!(rig.driver.bytes(&out), b"out");
            assert_eq!(&first[..], b"first");
            rig.driver.recycle(piece);
        }
        rig.driver.recycle(out);
        assert_eq!(rig.driver.region(1).retained(), 1);
        assert!(first.try_append(b", and now it may grow"));
        assert_eq!(&first[..], b"first, and now it may grow");
        drop(first);
        all_is_back(&mut rig);
    }

    pub(crate) fn a_shared_page_is_back_when_its_last_token_is<M: Make>(_: &str) {
        let Some(mut rig) = Rig::new::<M>(&config()) else {
            return;
        };
        let (mut client, socket) = rig.pair();
        let region = rig.driver.region(1).clone();
        let mut consumer = region.attach(100).expect("open");
        let mut other = region.attach(100).expect("open");
        let mut tokens: Vec<PageToken> = vec![];
        let take = |rig: &mut Rig<_>, client: &mut TcpStream, holder: &mut Attachment| {
            write(client, &bytes_of(1, 50));
            let piece = receive(rig, socket).expect("room");
            let fragment = keep(rig, piece).expect("room");
            fragment.token(holder).expect("room")
        };
        for _ in 0..20 {
            tokens.push(take(&mut rig, &mut client, &mut consumer));
        }
        let foreign = take(&mut rig, &mut client, &mut other);
        let mut pages = vec![];
        consumer.held_pages(|page| pages.push(page));
        pages.dedup();
        assert_eq!((consumer.held(), other.held()), (20, 1));
        assert_eq!(pages.len(), if shares(&rig) { 1 } else { 20 });
        assert!(
            !consumer.give_back(foreign),
            "another one's, in the same page"
        );
        for token in &tokens[1..] {
            assert!(consumer.give_back(*token));
            assert!(!consumer.give_back(*token), "twice");
        }
        // Given back entirely, and received into after what was there: never anew.
        assert!(consumer.give_back(tokens[0]));
        drop(other);
        assert_eq!(region.retained(), 0);
        tokens.clear();
        tokens.push(take(&mut rig, &mut client, &mut consumer));
        assert_eq!(region.retained(), 1);
        drop(consumer);
        all_is_back(&mut rig);
    }

    pub(crate) fn ends_of_streams_between_receives_change_nothing<M: Make>(_: &str) {
        let Some(mut rig) = Rig::new::<M>(&config()) else {
            return;
        };
        let (mut client, socket) = rig.pair();
        let mut kept = vec![];
        for number in 0..30 {
            write(&mut client, &bytes_of(number, 130));
            let piece = receive(&mut rig, socket).expect("room");
            kept.push(keep(&mut rig, piece).expect("room"));
            let (ending, ended) = rig.pair();
            if number % 2 == 0 {
                drop(ending);
            } else {
                let at_once = Some(Duration::ZERO);
                rustix::net::sockopt::set_socket_linger(&ending, at_once).expect("an option");
                drop(ending);
            }
            rig.driver.receive_sharing(ended, 2, 1);
            let end = rig.next(2).outcome;
            assert!(
                matches!(
                    end,
                    Outcome::EndOfStream | Outcome::Failed(Errno::CONNRESET)
                ),
                "{end:?}"
            );
            rig.driver.close(ended);
        }
        for (number, fragment) in kept.iter().enumerate() {
            assert_eq!(&fragment[..], bytes_of(number, 130));
        }
        drop(kept);
        all_is_back(&mut rig);
    }

    /// All whole pages are out; what is there to be shared is awaited apart from them.
    pub(crate) fn a_small_receive_needs_no_page_of_its_own_to_be_free<M: Make>(_: &str) {
        let Some(mut rig) = Rig::new::<M>(&config()) else {
            return;
        };
        let (mut client, socket) = rig.pair();
        let mut whole = vec![];
        loop {
            write(&mut client, b"whole");
            rig.driver.receive(socket, 1, OperationMode::Single, 1);
            match arrived(&mut rig, 1) {
                Some(piece) => whole.push(piece),
                None => break,
            }
        }
        assert_eq!(rig.driver.free(1), 0);
        if !shares(&rig) {
            assert_eq!(rig.driver.free_sharing(1), 0);
            return;
        }
        assert!(rig.driver.free_sharing(1) > 0);
        rig.driver.await_sharing(1);
        let deadline = Instant::now() + patience();
        let waited = rig.driver.wait(
            Some(4 * patience().as_nanos() as u64),
            &|| false,
            &mut rig.arrived,
        );
        waited.expect("the driver works");
        assert!(Instant::now() < deadline, "a page to share ended no wait");
        let piece = receive(&mut rig, socket).expect("a part of a page");
        rig.driver.recycle(piece);
        whole
            .into_iter()
            .for_each(|piece| rig.driver.recycle(piece));
        assert!(rig.driver.free(1) > 0);
    }

    pub(crate) fn a_region_used_up_by_small_receives_recovers<M: Make>(_: &str) {
        let Some(mut rig) = Rig::new::<M>(&config()) else {
            return;
        };
        let (mut client, socket) = rig.pair();
        let mut kept = vec![];
        let mut full = false;
        // A page's worth at a time, until no more may be kept.
        for number in 0..4 * PAGES as usize {
            write(&mut client, &bytes_of(number, 2000));
            let piece = receive(&mut rig, socket).expect("the reserve");
            let length = piece.len();
            assert_eq!(length, 2000.min(length), "no more than was sent");
            match keep(&mut rig, piece) {
                Some(fragment) => kept.push(fragment),
                None => full = true,
            }
            let mut left = 2000 - length;
            while left > 0 {
                let piece = receive(&mut rig, socket).expect("the reserve");
                left -= piece.len();
                rig.driver.recycle(piece);
            }
            if full {
                break;
            }
        }
        assert!(full, "the region ends");
        let region = rig.driver.region(1).clone();
        assert!(region.retained() >= region.retained_max() - 1, "{region:?}");
        kept.truncate(1);
        drop(kept);
        all_is_back(&mut rig);
    }

    pub(crate) fn pieces_that_are_put_back_are_received_into_at_once<M: Make>(_: &str) {
        let Some(mut rig) = Rig::new::<M>(&config()) else {
            return;
        };
        let (mut client, socket) = rig.pair();
        let mut out = vec![];
        let stalled = (0..8 * PAGES as usize).any(|number| {
            write(&mut client, &bytes_of(number, 2000));
            match receive(&mut rig, socket) {
                Some(piece) => out.push(piece),
                None => return true,
            }
            false
        });
        assert!(stalled, "the region ends");
        assert_eq!(rig.driver.free_sharing(1), 0);
        // The oldest first: these share pages, where the driver can.
        let mut out = out.into_iter();
        while rig.driver.free_sharing(1) == 0 {
            rig.driver.recycle(out.next().expect("there is more"));
        }
        let piece = receive(&mut rig, socket).expect("a page is free");
        rig.driver.recycle(piece);
        out.for_each(|piece| rig.driver.recycle(piece));
        all_is_back(&mut rig);
    }

    /// One connection of the model.
    struct Flow {
        client: TcpStream,
        socket: Socket,
        sent: usize,
        /// Bytes sent and not received yet.
        under_way: usize,
    }

    impl Flow {
        fn new<D: Driver>(rig: &mut Rig<D>) -> Flow {
            let (client, socket) = rig.pair();
            Flow {
                client,
                socket,
                sent: 0,
                under_way: 0,
            }
        }
    }

    fn stream(flow: usize, from: usize, length: usize) -> Vec<u8> {
        (from..from + length)
            .map(|at| (at * 13 + flow * 101 + at / 251) as u8)
            .collect()
    }

    pub(crate) fn model_shared_and_whole_pages_hold_what_was_received<M: Make>(_: &str) {
        const STEPS: usize = 3000;
        let Some(mut rig) = Rig::new::<M>(&config()) else {
            return;
        };
        let mut generator = fastrand::Rng::with_seed(5);
        let mut random = move |below: usize| generator.usize(..below);
        let mut flows: Vec<Flow> = (0..5).map(|_| Flow::new(&mut rig)).collect();
        let mut out: Vec<(Piece, Vec<u8>)> = vec![];
        let mut kept: Vec<(Fragment, Vec<u8>)> = vec![];
        for step in 0..STEPS {
            let which = random(flows.len());
            let flow = &mut flows[which];
            if flow.under_way == 0 {
                let longest = [20, 300, 6000][random(3)];
                let length = 1 + random(longest);
                write(&mut flow.client, &stream(which, flow.sent, length));
                flow.sent += length;
                flow.under_way = length;
            }
            let socket = flow.socket;
            match random(3) {
                0 => rig.driver.receive(socket, 1, OperationMode::Single, 1),
                _ => rig.driver.receive_sharing(socket, 1, 1),
            }
            if let Some(piece) = arrived(&mut rig, 1) {
                let flow = &mut flows[which];
                let expected = stream(which, flow.sent - flow.under_way, piece.len());
                assert_eq!(rig.driver.bytes(&piece), expected, "step {step}");
                flow.under_way -= piece.len();
                out.push((piece, expected));
            }
            while out.len() > 10 || (random(2) == 0 && !out.is_empty()) {
                let (piece, bytes) = out.swap_remove(random(out.len()));
                assert_eq!(rig.driver.bytes(&piece), bytes, "step {step}");
                let from = random(piece.len());
                let region = rig.driver.region(1);
                let fragment = region.retain(&piece, from..piece.len(), &quota());
                rig.driver.recycle(piece);
                kept.extend(fragment.map(|fragment| (fragment, bytes[from..].to_vec())));
            }
            while kept.len() > 60 || (random(3) == 0 && !kept.is_empty()) {
                let (fragment, bytes) = kept.swap_remove(random(kept.len()));
                assert_eq!(&fragment[..], bytes, "step {step}");
                if random(2) == 0 {
                    let elsewhere = std::thread::spawn(move || drop(fragment));
                    elsewhere.join().expect("no panic");
                }
            }
            assert!(rig.driver.region(1).retained() as usize <= kept.len() + out.len());
        }
        for (piece, bytes) in out {
            assert_eq!(rig.driver.bytes(&piece), bytes);
            rig.driver.recycle(piece);
        }
        drop(kept);
        let shared = rig.driver.statistics().shared_receives;
        assert_eq!(shared > 0, shares(&rig));
        all_is_back(&mut rig);
    }
}
