//! Received bytes that outlive their turn: fragments, budgets and tokens, on real sockets and every
//! kind of driver.

on_every_driver! {
    #[test] fn what_is_kept_stays_as_it_was_until_it_is_dropped;
    #[test] fn a_region_that_is_kept_up_to_its_reserve_goes_on_receiving_and_recovers;
    #[test] fn a_page_dropped_elsewhere_ends_the_wait_that_awaits_it;
    #[test] fn a_page_dropped_just_before_the_driver_sleeps_ends_the_wait;
    #[test] fn an_awaited_page_that_is_free_ends_every_wait;
    #[test] fn a_piece_that_is_dropped_instead_of_put_back_does_no_harm;
    #[test] fn model_random_takes_and_returns_match_an_oracle;
    #[test] fn only_what_is_held_can_be_returned;
    #[test] fn a_shared_region_shows_what_arrived_and_cannot_be_written;
    #[test] fn fragments_outlive_their_driver;
    #[test] fn tokens_of_ten_thousand_holders_in_two_gibibytes_take_little_memory;
    #[test] fn a_fragment_grows_while_it_is_alone_in_its_page;
}

mod cases {
    use std::cell::Cell;
    use std::net::TcpStream;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::{Duration, Instant};

    use flatpath_driver::{
        Attachment, Backing, Driver, DriverConfig, Errno, Fragment, OperationMode, Outcome, Piece,
        Quota, QuotaWaker, RegionConfig, Socket,
    };
    use flatpath_structures::tokens::{PageToken, TakeError};

    use crate::rig::{Make, Rig, patience, pattern, small, write};

    /// Counts its rings.
    #[derive(Default)]
    struct Count(AtomicU64);

    impl QuotaWaker for Count {
        fn wake(&self, _number: u64) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn quota() -> Quota {
        Quota::new(1, Arc::new(Count::default()))
    }

    /// Region 1 has 16 pages of 4 KiB, four of them in reserve.
    fn config(backing: Backing) -> DriverConfig {
        DriverConfig {
            regions: vec![RegionConfig {
                pages: 16,
                page_bytes: 4096,
                reserve_pages: 4,
                backing,
                ..RegionConfig::default()
            }],
            ..small()
        }
    }

    /// The next piece of a single receive, or `None` for a stall.
    fn piece<D: Driver>(
        rig: &mut Rig<D>,
        socket: Socket,
        token: u64,
        region_id: u16,
    ) -> Option<Piece> {
        rig.driver
            .receive(socket, token, OperationMode::Single, region_id);
        match rig.next(token).outcome {
            Outcome::Received(piece) => {
                assert_eq!(piece.region_id(), region_id);
                Some(piece)
            }
            Outcome::Failed(Errno::NOBUFS) => None,
            other => panic!("no bytes but {other:?}"),
        }
    }

    pub(crate) fn what_is_kept_stays_as_it_was_until_it_is_dropped<M: Make>(_: &str) {
        let Some(mut rig) = Rig::new::<M>(&config(Backing::Private)) else {
            return;
        };
        let (mut client, socket) = rig.pair();
        let quota = quota();
        let mut kept: Vec<(Vec<u8>, Fragment)> = vec![];
        for round in 0..200_u64 {
            let sent: Vec<u8> = (0..100).map(|byte| (round + byte) as u8).collect();
            write(&mut client, &sent);
            let piece = piece(&mut rig, socket, round, 1).expect("a page");
            let bytes = rig.driver.bytes(&piece).to_vec();
            let region = rig.driver.region(1).clone();
            let fragment = region.retain(&piece, 10..bytes.len(), &quota);
            rig.driver.recycle(piece);
            if let Some(fragment) = fragment {
                assert_eq!(fragment.offset(), 10);
                kept.push((bytes[10..].to_vec(), fragment));
            }
            for (bytes, fragment) in &kept {
                assert_eq!(&fragment[..], &bytes[..]);
            }
            if kept.len() > 8 {
                kept.remove((round % 8) as usize);
            }
        }
        assert_eq!(quota.held() as usize, kept.len());
        kept.clear();
        assert_eq!(quota.held(), 0);
        assert_eq!(rig.driver.region(1).retained(), 0);
        rig.turn();
        assert_eq!(rig.driver.free(1), 16);
    }

    pub(crate) fn a_region_that_is_kept_up_to_its_reserve_goes_on_receiving_and_recovers<
        M: Make,
    >(
        _: &str,
    ) {
        let Some(mut rig) = Rig::new::<M>(&config(Backing::Private)) else {
            return;
        };
        let (mut client, socket) = rig.pair();
        let quota = quota();
        for _ in 0..3 {
            let (mut kept, mut refused) = (vec![], 0);
            for round in 0..40 {
                write(&mut client, &[round as u8; 10]);
                let piece = piece(&mut rig, socket, round, 1).expect("the reserve serves");
                let region = rig.driver.region(1).clone();
                match region.retain(&piece, 0..piece.len(), &quota) {
                    Some(fragment) => kept.push(fragment),
                    None => refused += 1,
                }
                rig.driver.recycle(piece);
            }
            assert_eq!(
                (kept.len(), refused),
                (12, 28),
                "twelve of sixteen, then none"
            );
            assert_eq!(rig.driver.region(1).retained(), 12);
            assert_eq!(rig.driver.statistics().pages_retained, 12);
            assert!(quota.wait_below(7), "twelve are held");
            drop(kept);
            assert!(!quota.wait_below(7), "none is held");
            rig.turn();
            assert_eq!(rig.driver.free(1), 16);
        }
    }

    /// How long a page may take to end a wait, and a time-out that is not mistaken for it.
    fn return_and_timeout() -> (Duration, Option<u64>) {
        (patience(), Some(4 * patience().as_nanos() as u64))
    }

    /// A driver whose region 1 has no page left: all sixteen are kept.
    struct Starved<D: Driver> {
        rig: Rig<D>,
        client: TcpStream,
        socket: Socket,
        quota: Quota,
        kept: Vec<Fragment>,
        token: u64,
    }

    impl<D: Driver> Starved<D> {
        fn new<M: Make<Driver = D>>() -> Option<Starved<D>> {
            let mut config = config(Backing::Private);
            config.regions[0].reserve_pages = 0;
            let mut rig = Rig::new::<M>(&config)?;
            let (client, socket) = rig.pair();
            let mut starved = Starved {
                rig,
                client,
                socket,
                quota: quota(),
                kept: vec![],
                token: 0,
            };
            for _ in 0..16 {
                assert!(starved.receive_and_keep());
            }
            assert!(!starved.receive_and_keep(), "there are sixteen pages");
            Some(starved)
        }

        /// False: there was no page.
        fn receive_and_keep(&mut self) -> bool {
            write(&mut self.client, b"bytes");
            self.token += 1;
            let Some(piece) = piece(&mut self.rig, self.socket, self.token, 1) else {
                return false;
            };
            let region = self.rig.driver.region(1).clone();
            let fragment = region.retain(&piece, 0..5, &self.quota);
            self.kept.push(fragment.expect("no reserve"));
            self.rig.driver.recycle(piece);
            true
        }

        /// Waits once, awaiting a page. The time-out is far beyond what the return of one may take.
        fn await_page(&mut self, ready: &dyn Fn() -> bool) {
            let (returned, timeout_ns) = return_and_timeout();
            let deadline = Instant::now() + returned;
            let (driver, arrived) = (&mut self.rig.driver, &mut self.rig.arrived);
            driver.await_pages(1);
            let waited = driver.wait(timeout_ns, ready, arrived);
            waited.expect("the driver works");
            assert!(Instant::now() < deadline, "a page's return ended no wait");
        }

        fn await_pages_until_one_is_free(&mut self, ready: &dyn Fn() -> bool) {
            while self.rig.driver.free(1) == 0 {
                self.await_page(ready);
            }
        }
    }

    pub(crate) fn a_page_dropped_elsewhere_ends_the_wait_that_awaits_it<M: Make>(_: &str) {
        let Some(mut starved) = Starved::new::<M>() else {
            return;
        };
        // One after the other: every return is noticed, not only the first one after a stall.
        for _ in 0..3 {
            let last = starved.kept.pop().expect("sixteen");
            let asked = AtomicU64::new(0);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    // Asked for the second time when it has published that it sleeps.
                    while asked.load(Ordering::Relaxed) < 2 {
                        std::thread::yield_now();
                    }
                    std::thread::sleep(Duration::from_millis(20));
                    drop(last);
                });
                starved.await_pages_until_one_is_free(&|| {
                    asked.fetch_add(1, Ordering::Relaxed);
                    false
                });
            });
            assert!(starved.receive_and_keep());
        }
    }

    pub(crate) fn a_page_dropped_just_before_the_driver_sleeps_ends_the_wait<M: Make>(_: &str) {
        let Some(mut starved) = Starved::new::<M>() else {
            return;
        };
        for _ in 0..3 {
            // When `ready` is first asked, idle pages were taken back already, and the driver has
            // not published that it sleeps: the return wakes nothing, and has to be noticed.
            let last = Cell::new(starved.kept.pop());
            starved.await_pages_until_one_is_free(&|| {
                drop(last.take());
                false
            });
            assert!(starved.receive_and_keep());
        }
    }

    pub(crate) fn an_awaited_page_that_is_free_ends_every_wait<M: Make>(_: &str) {
        let Some(mut starved) = Starved::new::<M>() else {
            return;
        };
        starved.kept.pop();
        for _ in 0..4 {
            starved.await_page(&|| false);
        }
        assert_eq!(starved.rig.driver.free(1), 1);
    }

    /// C5 is broken. What was kept of the piece brings its page back all the same.
    pub(crate) fn a_piece_that_is_dropped_instead_of_put_back_does_no_harm<M: Make>(_: &str) {
        let Some(mut rig) = Rig::new::<M>(&config(Backing::Private)) else {
            return;
        };
        let (mut client, socket) = rig.pair();
        for token in 0..40 {
            write(&mut client, b"bytes");
            let piece = piece(&mut rig, socket, token, 1).expect("a page");
            let region = rig.driver.region(1).clone();
            let fragment = region.retain(&piece, 1..5, &quota()).expect("room");
            drop(piece);
            assert_eq!(&fragment[..], b"ytes");
            drop(fragment);
            rig.driver
                .wait(Some(0), &|| false, &mut rig.arrived)
                .expect("the driver works");
        }
        assert_eq!(rig.driver.free(1), 16);
    }

    pub(crate) fn model_random_takes_and_returns_match_an_oracle<M: Make>(name: &str) {
        let Some(mut rig) = Rig::new::<M>(&config(Backing::Private)) else {
            return;
        };
        let mut seed = 0x5eed_0000_0000_0001_u64 ^ name.len() as u64;
        println!("seed {seed:#x}");
        let mut random = move |below: usize| {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            (seed >> 11) as usize % below
        };
        let (mut client, socket) = rig.pair();
        let quota = quota();
        let mut held: Vec<(Vec<u8>, Fragment)> = vec![];
        let mut token = 0;
        for step in 0..2_000 {
            match random(5) {
                0 if !held.is_empty() => drop(held.swap_remove(random(held.len()))),
                1 if !held.is_empty() => {
                    let (bytes, fragment) = &held[random(held.len())];
                    held.push((bytes.clone(), fragment.clone()));
                }
                2 if !held.is_empty() => {
                    let index = random(held.len());
                    let (bytes, fragment) = &mut held[index];
                    let cut = random(bytes.len() + 1);
                    let front = fragment.split_to(cut);
                    let rest = bytes.split_off(cut);
                    let pair = (std::mem::replace(bytes, rest), front);
                    held.push(pair);
                    held.retain(|(bytes, _)| !bytes.is_empty());
                }
                _ => {
                    let sent: Vec<u8> = (0..1 + random(300)).map(|_| random(256) as u8).collect();
                    write(&mut client, &sent);
                    token += 1;
                    let piece = piece(&mut rig, socket, token, 1).expect("the reserve serves");
                    let bytes = rig.driver.bytes(&piece).to_vec();
                    let region = rig.driver.region(1).clone();
                    for _ in 0..random(4) {
                        let from = random(bytes.len());
                        let to = from + 1 + random(bytes.len() - from);
                        if let Some(fragment) = region.retain(&piece, from..to, &quota) {
                            held.push((bytes[from..to].to_vec(), fragment));
                        }
                    }
                    rig.driver.recycle(piece);
                }
            }
            let mut pages: Vec<u32> = held.iter().map(|(_, fragment)| fragment.page()).collect();
            pages.sort_unstable();
            pages.dedup();
            let kept = rig.driver.region(1).retained();
            assert_eq!(kept as usize, pages.len(), "step {step}: pages in use");
            assert_eq!(quota.held() as usize, held.len(), "step {step}: fragments");
            for (bytes, fragment) in &held {
                assert_eq!(&fragment[..], &bytes[..], "step {step}: {fragment:?}");
            }
        }
        drop(held);
        rig.turn();
        assert_eq!(
            (rig.driver.region(1).retained(), rig.driver.free(1)),
            (0, 16)
        );
    }

    pub(crate) fn only_what_is_held_can_be_returned<M: Make>(_: &str) {
        let Some(mut rig) = Rig::new::<M>(&config(Backing::Shared)) else {
            return;
        };
        let (mut client, socket) = rig.pair();
        let quota = quota();
        let region = rig.driver.region(1).clone();
        write(&mut client, b"common");
        let common = piece(&mut rig, socket, 1, 0).expect("a buffer");
        let elsewhere = rig.driver.region(0).clone();
        let elsewhere = elsewhere.retain(&common, 0..6, &quota).expect("room");
        rig.driver.recycle(common);
        write(&mut client, b"message");
        let piece = piece(&mut rig, socket, 2, 1).expect("a page");
        let fragment = region.retain(&piece, 0..7, &quota).expect("room");
        rig.driver.recycle(piece);

        let mut one = region.attach(2).expect("open");
        let mut other = region.attach(2).expect("open");
        assert_eq!(
            elsewhere.token(&mut one),
            Err(TakeError::NoSuchPage),
            "foreign"
        );
        let first = fragment.token(&mut one).expect("room");
        let second = fragment.token(&mut one).expect("room");
        assert_eq!(fragment.token(&mut one), Err(TakeError::TooManyTokens));
        drop(fragment);
        assert_eq!(region.retained(), 1, "the tokens keep the page");
        assert!(!other.give_back(first), "held by another");
        assert!(
            !one.give_back(PageToken::from_u64(first.to_u64() ^ 1 << 32)),
            "forged"
        );
        let returner = one.returner();
        assert!(returner.give_back(first));
        assert!(!returner.give_back(first) && !one.give_back(first), "twice");
        assert_eq!(region.retained(), 1);
        assert_eq!(one.held(), 1);
        // It dies with what it has.
        std::thread::spawn(move || drop(one))
            .join()
            .expect("it goes");
        assert!(!returner.give_back(second), "taken back with its holder");
        assert_eq!(region.retained(), 0);
        rig.turn();
        assert_eq!(rig.driver.free(1), 16);
    }

    pub(crate) fn a_shared_region_shows_what_arrived_and_cannot_be_written<M: Make>(_: &str) {
        let Some(mut rig) = Rig::new::<M>(&config(Backing::Shared)) else {
            return;
        };
        let (mut client, socket) = rig.pair();
        let region = rig.driver.region(1).clone();
        let quota = quota();
        let sent = pattern(3_000);
        write(&mut client, &sent);
        let mut seen = vec![];
        let mut kept = vec![];
        for token in 0.. {
            let piece = piece(&mut rig, socket, token, 1).expect("a page");
            let fragment = region.retain(&piece, 0..piece.len(), &quota);
            rig.driver.recycle(piece);
            let fragment = fragment.expect("room");
            let at = fragment.page() * region.page_bytes() + fragment.offset();
            let mut bytes = vec![0; fragment.len()];
            let memory = region.descriptor().expect("shared");
            let read = rustix::io::pread(memory, &mut bytes, u64::from(at));
            assert_eq!(read, Ok(fragment.len()));
            assert_eq!(bytes, fragment.bytes());
            seen.extend(bytes);
            kept.push(fragment);
            if seen.len() == sent.len() {
                break;
            }
        }
        assert_eq!(seen, sent);
        let memory = region.descriptor().expect("shared");
        assert_eq!(rustix::io::pwrite(memory, b"x", 0), Err(Errno::PERM));
        assert_eq!(rustix::fs::ftruncate(memory, 0), Err(Errno::PERM));
    }

    pub(crate) fn tokens_of_ten_thousand_holders_in_two_gibibytes_take_little_memory<M: Make>(
        _: &str,
    ) {
        const HOLDERS: usize = 10_000;
        const TOKENS: usize = 16;
        const BYTES_MAX: usize = 200_000_000;
        let mut config = config(Backing::Private);
        config.regions[0] = RegionConfig {
            pages: 32_768,
            page_bytes: 65_536,
            ..config.regions[0].clone()
        };
        let Some(mut rig) = Rig::new::<M>(&config) else {
            return;
        };
        let (mut client, socket) = rig.pair();
        write(&mut client, b"bytes");
        let region = rig.driver.region(1).clone();
        assert_eq!(region.bytes(), 2 << 30);
        let piece = piece(&mut rig, socket, 1, 1).expect("a page");
        let fragment = region.retain(&piece, 0..5, &quota()).expect("room");
        rig.driver.recycle(piece);
        let attach = |_| region.attach(TOKENS as u32).expect("open");
        let mut holders: Vec<_> = (0..HOLDERS).map(attach).collect();
        for holder in &mut holders {
            assert!((0..TOKENS).all(|_| fragment.token(holder).is_ok()));
        }
        let holding: usize = holders.iter().map(Attachment::bookkeeping_bytes).sum();
        let fragments = HOLDERS * TOKENS * size_of::<Fragment>();
        let region_bytes = region.pages() as usize * 8;
        let all = holding + fragments + region_bytes;
        println!("{all} bytes: holders {holding}, fragments {fragments}, region {region_bytes}");
        assert!(all <= BYTES_MAX, "{all} bytes");
        drop((fragment, holders));
        assert_eq!(region.retained(), 0);
    }

    pub(crate) fn fragments_outlive_their_driver<M: Make>(_: &str) {
        let Some(mut rig) = Rig::new::<M>(&config(Backing::Private)) else {
            return;
        };
        let (mut client, socket) = rig.pair();
        write(&mut client, b"kept");
        let region = rig.driver.region(1).clone();
        let piece = piece(&mut rig, socket, 1, 1).expect("a page");
        let fragment = region.retain(&piece, 0..4, &quota()).expect("room");
        rig.driver.recycle(piece);
        drop(rig);
        assert_eq!(&fragment[..], b"kept");
        assert!(region.attach(1).is_none(), "the driver is gone");
        drop(fragment);
        assert_eq!(region.retained(), 0);
    }

    pub(crate) fn a_fragment_grows_while_it_is_alone_in_its_page<M: Make>(_: &str) {
        let Some(mut rig) = Rig::new::<M>(&config(Backing::Shared)) else {
            return;
        };
        let (mut client, socket) = rig.pair();
        let quota = quota();
        write(&mut client, b"abcdef");
        let piece = piece(&mut rig, socket, 1, 1).expect("a page");
        let region = rig.driver.region(1).clone();
        let mut fragment = region.retain(&piece, 0..4, &quota).expect("kept");
        assert!(!fragment.try_append(b"x"), "the piece is out");
        rig.driver.recycle(piece);
        let other = fragment.slice(1..2);
        assert!(
            !fragment.try_append(b"x"),
            "another fragment is in the page"
        );
        drop(other);
        assert!(fragment.try_append(b"xyz"));
        assert_eq!(&*fragment, b"abcdxyz");
        let room = 4096 - fragment.len();
        assert!(!fragment.try_append(&vec![0; room + 1]), "beyond the page");
        assert!(fragment.try_append(&vec![7; room]));
        assert_eq!((fragment.len(), fragment[4095]), (4096, 7));
        assert!(!fragment.try_append(b"x"));
        let mut attachment = region.attach(1).expect("open");
        let token = fragment.token(&mut attachment).expect("room");
        assert!(!fragment.try_append(b""), "a token of the page is out");
        assert!(attachment.give_back(token));
    }
}
