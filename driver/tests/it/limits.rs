//! What drivers do at their limits: tiny queues, few buffers, no descriptors left, a drop in full
//! flight, and wake-ups under stress.

on_every_driver! {
    #[test] fn a_completion_queue_of_eight_serves_a_thousand_clients;
    #[test] fn a_submission_queue_of_four_takes_a_hundred_operations;
    #[test] fn four_buffers_serve_three_hundred_clients;
    #[test] fn one_buffer_and_single_shots_serve_fifty_clients;
    #[test] fn pages_that_the_kernel_has_not_yet_are_free;
    #[test] fn no_descriptor_left_keeps_connections_in_the_backlog;
    #[test] fn dropping_a_busy_driver_ends_everything;
    #[test] fn a_wake_ends_a_wait;
    #[test] fn a_wake_before_the_wait_is_not_lost;
    #[test] fn every_wake_of_many_threads_is_seen;
    #[test] fn every_wake_is_seen_while_the_completion_queue_overflows;
    #[test] fn chaotic_clients_leave_nothing_behind;
    #[test] fn a_time_out_ends_a_wait;
    #[test] fn ready_work_keeps_a_wait_from_blocking;
    #[test] fn bytes_arrive_while_other_work_is_always_ready;
    #[test] fn accepted_sockets_are_not_inherited;
}

mod cases {
    use std::io::{ErrorKind, Read, Write};
    use std::net::{Shutdown, TcpStream};
    use std::os::fd::AsRawFd;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::{Duration, Instant};

    use flatpath_driver::uring::Uring;
    use flatpath_driver::{
        AfterSend, Driver, DriverConfig, Errno, Listener, OperationMode, Outcome, RegionConfig,
    };

    use rustix::fs::OFlags;

    use crate::rig::echo::Echo;
    use crate::rig::{
        Make, Rig, connect, in_child, listen, patience, pattern, read_to_end, small, write,
    };

    /// Serves `clients` with an echo server; every one of them checks its bytes.
    fn serve<M: Make>(config: &DriverConfig, clients: usize, bytes: usize, mode: OperationMode) {
        let (listener, address) = listen();
        let Some(mut driver) = M::make(config) else {
            return;
        };
        let client_threads = std::thread::spawn(move || {
            let mut open: Vec<TcpStream> = (0..clients).map(|_| connect(address)).collect();
            for (number, client) in open.iter_mut().enumerate() {
                write(client, &pattern(bytes + number % 7));
                client.shutdown(Shutdown::Write).expect("open");
            }
            for (number, client) in open.iter_mut().enumerate() {
                assert!(
                    read_to_end(client) == pattern(bytes + number % 7),
                    "client {number}"
                );
            }
        });
        let mut echo = Echo::new(listener, mode, mode);
        let deadline = Instant::now() + patience();
        while echo.ended < clients {
            echo.turn(&mut driver, 50_000_000);
            assert!(
                Instant::now() < deadline,
                "{} of {clients} ended",
                echo.ended
            );
            assert_eq!(echo.broken, 0);
        }
        while !client_threads.is_finished() {
            echo.turn(&mut driver, 10_000_000);
            assert!(Instant::now() < deadline, "clients do not end");
        }
        client_threads.join().expect("every client got its bytes");
        assert_eq!(echo.accepted, clients);
        let statistics = driver.statistics();
        assert_eq!(
            (statistics.sockets, statistics.buffers_in_use),
            (0, 0),
            "{statistics:?}"
        );
    }

    pub(crate) fn a_completion_queue_of_eight_serves_a_thousand_clients<M: Make>(_: &str) {
        let config = DriverConfig {
            completion_entries: 8,
            ..small()
        };
        serve::<M>(&config, 1_000, 500, OperationMode::Multishot);
    }

    pub(crate) fn a_submission_queue_of_four_takes_a_hundred_operations<M: Make>(_: &str) {
        let config = DriverConfig {
            submission_entries: 4,
            ..small()
        };
        serve::<M>(&config, 100, 5_000, OperationMode::Multishot);
    }

    pub(crate) fn four_buffers_serve_three_hundred_clients<M: Make>(_: &str) {
        let config = DriverConfig {
            receive_buffers: 4,
            receive_buffer_bytes: 1000,
            ..small()
        };
        serve::<M>(&config, 300, 2_500, OperationMode::Multishot);
    }

    pub(crate) fn one_buffer_and_single_shots_serve_fifty_clients<M: Make>(_: &str) {
        let config = DriverConfig {
            receive_buffers: 1,
            receive_buffer_bytes: 64,
            ..small()
        };
        serve::<M>(&config, 50, 300, OperationMode::Single);
    }

    /// The kernel is given a few megabytes of a region at a time.
    pub(crate) fn pages_that_the_kernel_has_not_yet_are_free<M: Make>(_: &str) {
        let config = DriverConfig {
            regions: vec![RegionConfig {
                pages: 64,
                page_bytes: 1 << 20,
                ..RegionConfig::default()
            }],
            ..small()
        };
        if let Some(driver) = M::make(&config) {
            assert_eq!(driver.free(1), 64);
        }
    }

    pub(crate) fn no_descriptor_left_keeps_connections_in_the_backlog<M: Make>(name: &str) {
        use rustix::process::{Resource, Rlimit, setrlimit};
        if !in_child(name) {
            return;
        }
        let Some(mut rig) = Rig::new::<M>(&small()) else {
            return;
        };
        if let Ok(driver) = Uring::new(&small()) {
            // Whatever this opens for good is open now.
            drop(driver);
        }
        let mut clients: Vec<_> = (0..10).map(|_| rig.connect()).collect();
        let next = clients[0].try_clone().expect("a descriptor").as_raw_fd() as u64;
        let limit = Rlimit {
            current: Some(next + 3),
            maximum: Some(next + 3),
        };
        setrlimit(Resource::Nofile, limit).expect("lowering is allowed");
        let mut served = 0;
        let mut open = vec![];
        let mut refusals = 0;
        while served < clients.len() {
            rig.driver
                .accept(&rig.listener, 1, OperationMode::Multishot);
            loop {
                if served + open.len() == clients.len() {
                    break;
                }
                let completion = rig.next(1);
                match completion.outcome {
                    Outcome::Accepted(socket) => open.push(socket),
                    Outcome::Failed(errno) => {
                        assert_eq!(errno, Errno::MFILE);
                        assert!(!completion.more, "a refused accept ends");
                        refusals += 1;
                    }
                    _ => panic!("{completion:?}"),
                }
                if !completion.more {
                    break;
                }
            }
            let enters = rig.driver.statistics().enters;
            rig.turn();
            rig.turn();
            assert!(rig.driver.statistics().enters <= enters + 2, "it spins");
            for socket in open.drain(..) {
                rig.send_all(socket, 2, b"served", AfterSend::Close);
                served += 1;
            }
            rig.turn();
        }
        for client in &mut clients {
            assert_eq!(read_to_end(client), b"served");
        }
        assert!(refusals > 0, "no accept was refused");
    }

    pub(crate) fn dropping_a_busy_driver_ends_everything<M: Make>(_: &str) {
        for round in 0..5 {
            let config = DriverConfig {
                completion_entries: 64 >> round,
                ..small()
            };
            let Some(mut rig) = Rig::new::<M>(&config) else {
                return;
            };
            let mut clients = vec![];
            for user_data in 0..20_u64 {
                let (client, socket) = rig.pair();
                rig.driver
                    .receive(socket, user_data, OperationMode::Multishot, 0);
                // Megabytes are on the way of each send that cannot end: few of them do.
                if user_data % 4 == 0 {
                    let bytes = pattern(5 << 20);
                    rig.send(socket, 100 + user_data, &bytes, AfterSend::KeepOpen);
                }
                clients.push(client);
            }
            rig.driver
                .accept(&rig.listener, 50, OperationMode::Multishot);
            if round % 2 == 0 {
                rig.turn();
            }
            clients.push(rig.connect());
            let Rig {
                driver,
                listener,
                arrived,
                ..
            } = rig;
            drop(arrived);
            drop(driver);
            // Nothing of the driver holds the port any more, and every client sees an end.
            let descriptor = listener.descriptor().expect("a real one");
            let address = rustix::net::getsockname(descriptor).expect("bound");
            drop(listener);
            for mut client in clients {
                let mut rest = vec![];
                // What was sent arrives, then an end or a reset.
                let ended = client.read_to_end(&mut rest);
                let kind = ended.map_err(|error| error.kind());
                assert_ne!(kind, Err(ErrorKind::WouldBlock), "no end came");
            }
            let address = std::net::SocketAddr::try_from(address).expect("an internet address");
            assert!(
                TcpStream::connect(address).is_err(),
                "the port is still listened on"
            );
        }
    }

    pub(crate) fn a_wake_ends_a_wait<M: Make>(_: &str) {
        let Some(mut rig) = Rig::new::<M>(&small()) else {
            return;
        };
        let waker = rig.driver.waker();
        let asleep = Arc::new(AtomicUsize::new(0));
        let thread = std::thread::spawn({
            let asleep = Arc::clone(&asleep);
            move || {
                for round in 1..=100 {
                    while asleep.load(Ordering::Acquire) < round {
                        std::thread::yield_now();
                    }
                    waker.wake();
                }
            }
        });
        for _ in 0..100 {
            // The flag goes up inside `ready`: at that time the thread counts as asleep. Without
            // the wake-up this wait would never end.
            let asked = AtomicUsize::new(0);
            let ready = || {
                if asked.fetch_add(1, Ordering::Relaxed) == 1 {
                    asleep.fetch_add(1, Ordering::AcqRel);
                }
                false
            };
            while asked.load(Ordering::Relaxed) < 2 {
                rig.driver
                    .wait(None, &ready, &mut rig.arrived)
                    .expect("the driver works");
            }
        }
        thread.join().expect("done");
        assert!(rig.arrived.is_empty());
        assert!(rig.driver.statistics().wakes <= 100);
    }

    pub(crate) fn a_wake_before_the_wait_is_not_lost<M: Make>(_: &str) {
        let Some(mut rig) = Rig::new::<M>(&small()) else {
            return;
        };
        let work = AtomicUsize::new(1);
        rig.driver.waker().wake();
        let ready = || work.load(Ordering::Acquire) > 0;
        rig.driver
            .wait(None, &ready, &mut rig.arrived)
            .expect("the driver works");
        assert_eq!(rig.driver.statistics().wakes, 0, "no thread slept");
    }

    pub(crate) fn every_wake_of_many_threads_is_seen<M: Make>(_: &str) {
        every_wake_is_seen::<M>(&small(), 0);
    }

    pub(crate) fn every_wake_is_seen_while_the_completion_queue_overflows<M: Make>(_: &str) {
        let config = DriverConfig {
            completion_entries: 4,
            ..small()
        };
        every_wake_is_seen::<M>(&config, 50);
    }

    /// Threads queue work and wake, while another lets `clients` write all at once.
    fn every_wake_is_seen<M: Make>(config: &DriverConfig, clients: usize) {
        const EACH: usize = 2_000;
        let Some(mut rig) = Rig::new::<M>(config) else {
            return;
        };
        let queued = Arc::new(AtomicUsize::new(0));
        let (mut talkers, sockets): (Vec<_>, Vec<_>) = (0..clients).map(|_| rig.pair()).unzip();
        for (number, socket) in sockets.iter().enumerate() {
            rig.driver
                .receive(*socket, number as u64, OperationMode::Single, 0);
        }
        let mut threads: Vec<_> = (0..3)
            .map(|_| {
                let (waker, queued) = (rig.driver.waker(), Arc::clone(&queued));
                std::thread::spawn(move || {
                    for _ in 0..EACH {
                        queued.fetch_add(1, Ordering::Release);
                        waker.wake();
                    }
                })
            })
            .collect();
        let over = Arc::new(AtomicUsize::new(0));
        threads.push(std::thread::spawn({
            let over = Arc::clone(&over);
            move || {
                while over.load(Ordering::Acquire) == 0 {
                    talkers.iter_mut().for_each(|client| write(client, b"x"));
                    std::thread::sleep(Duration::from_micros(50));
                }
            }
        }));
        let mut taken = 0;
        while taken < 3 * EACH {
            // As good as no time-out: a lost wake-up hangs here, and is named.
            let watchdog = Some(patience().as_nanos() as u64);
            let before = Instant::now();
            let ready = || queued.load(Ordering::Acquire) > 0;
            rig.driver
                .wait(watchdog, &ready, &mut rig.arrived)
                .expect("the driver works");
            assert!(
                before.elapsed() < patience(),
                "a wake-up was lost at {taken}"
            );
            taken += queued.swap(0, Ordering::AcqRel);
            for completion in std::mem::take(&mut rig.arrived) {
                let number = completion.user_data;
                assert!(rig.received(completion).iter().all(|byte| *byte == b'x'));
                rig.driver
                    .receive(sockets[number as usize], number, OperationMode::Single, 0);
            }
        }
        over.store(1, Ordering::Release);
        for thread in threads {
            thread.join().expect("done");
        }
    }

    /// Clients that write, vanish, finish and reset as chance will have it.
    pub(crate) fn chaotic_clients_leave_nothing_behind<M: Make>(_: &str) {
        let config = DriverConfig {
            completion_entries: 16,
            receive_buffers: 4,
            receive_buffer_bytes: 512,
            ..small()
        };
        let (listener, address) = listen();
        let Some(mut driver) = M::make(&config) else {
            return;
        };
        let clients = std::thread::spawn(move || {
            let mut random = fastrand::Rng::with_seed(1);
            let mut chance = move |bound: u64| random.u64(..bound);
            for _ in 0..40 {
                let mut open: Vec<TcpStream> = (0..10).map(|_| connect(address)).collect();
                for client in &mut open {
                    let writes = chance(4);
                    for _ in 0..writes {
                        // The server may have ended it already.
                        let _ = client.write_all(&pattern(1 + chance(5_000) as usize));
                    }
                    match chance(4) {
                        0 => drop(client.shutdown(Shutdown::Write)),
                        1 => rustix::net::sockopt::set_socket_linger(client, Some(Duration::ZERO))
                            .expect("a socket"),
                        2 if writes > 0 => drop(client.read(&mut [0; 100])),
                        _ => {}
                    }
                }
            }
        });
        let mut echo = Echo::new(listener, OperationMode::Multishot, OperationMode::Multishot);
        let deadline = Instant::now() + patience();
        while !clients.is_finished() || echo.accepted < 400 {
            echo.turn(&mut driver, 10_000_000);
            assert!(Instant::now() < deadline, "{} accepted", echo.accepted);
        }
        clients.join().expect("clients do not fail");
        while !echo.stop(&mut driver) {
            echo.turn(&mut driver, 10_000_000);
            assert!(Instant::now() < deadline, "{} left", echo.open());
        }
        let statistics = driver.statistics();
        assert_eq!(
            (statistics.sockets, statistics.buffers_in_use),
            (0, 0),
            "{statistics:?}"
        );
        assert_eq!(echo.ended + echo.broken, 400);
    }

    pub(crate) fn a_time_out_ends_a_wait<M: Make>(_: &str) {
        let Some(mut rig) = Rig::new::<M>(&small()) else {
            return;
        };
        rig.driver
            .accept(&rig.listener, 1, OperationMode::Multishot);
        let start = rig.driver.now_ns();
        for timeout_ns in [0, 1, 1_000_000, 1_500_000, 20_000_000] {
            let before = rig.driver.now_ns();
            // Signals and late wake-ups may end a wait early, never the clock.
            rig.driver
                .wait(Some(timeout_ns), &|| false, &mut rig.arrived)
                .expect("the driver works");
            assert!(rig.driver.now_ns() >= before);
        }
        assert!(rig.driver.now_ns() > start);
        assert!(rig.arrived.is_empty());
    }

    pub(crate) fn ready_work_keeps_a_wait_from_blocking<M: Make>(_: &str) {
        let Some(mut rig) = Rig::new::<M>(&small()) else {
            return;
        };
        for _ in 0..100 {
            rig.driver
                .wait(None, &|| true, &mut rig.arrived)
                .expect("the driver works");
        }
        assert!(rig.arrived.is_empty());
        // And what was started meanwhile is submitted all the same.
        let (mut client, socket) = rig.pair();
        rig.send(socket, 1, b"sent", AfterSend::Close);
        let deadline = Instant::now() + patience();
        while rig.arrived.is_empty() || rig.driver.statistics().sockets > 0 {
            rig.driver
                .wait(None, &|| true, &mut rig.arrived)
                .expect("the driver works");
            assert!(Instant::now() < deadline, "the send does not end");
        }
        for _ in 0..3 {
            rig.driver
                .wait(None, &|| true, &mut rig.arrived)
                .expect("the driver works");
        }
        assert_eq!(read_to_end(&mut client), b"sent");
    }

    pub(crate) fn bytes_arrive_while_other_work_is_always_ready<M: Make>(_: &str) {
        let Some(mut rig) = Rig::new::<M>(&small()) else {
            return;
        };
        let (mut client, socket) = rig.pair();
        rig.driver.receive(socket, 1, OperationMode::Multishot, 0);
        for _ in 0..3 {
            rig.driver
                .wait(None, &|| true, &mut rig.arrived)
                .expect("the driver works");
        }
        let writer = std::thread::spawn(move || {
            for _ in 0..100 {
                write(&mut client, b"x");
                std::thread::yield_now();
            }
            client
        });
        let (deadline, mut received) = (Instant::now() + patience(), 0);
        while received < 100 {
            rig.driver
                .wait(None, &|| true, &mut rig.arrived)
                .expect("the driver works");
            for completion in std::mem::take(&mut rig.arrived) {
                let lasts = completion.more;
                received += rig.received(completion).len();
                if !lasts {
                    rig.driver.receive(socket, 1, OperationMode::Multishot, 0);
                }
            }
            assert!(Instant::now() < deadline, "{received} bytes came");
        }
        drop(writer.join().expect("done"));
    }

    pub(crate) fn accepted_sockets_are_not_inherited<M: Make>(_: &str) {
        let Some(mut rig) = Rig::new::<M>(&small()) else {
            return;
        };
        let (_first, once) = rig.pair();
        let _second = rig.connect();
        rig.driver
            .accept(&rig.listener, 1, OperationMode::Multishot);
        let completion = rig.next(1);
        let Outcome::Accepted(many) = completion.outcome else {
            panic!("{completion:?}")
        };
        for descriptor in [once, many]
            .into_iter()
            .filter_map(flatpath_driver::Socket::descriptor)
        {
            let told = std::fs::read_to_string(format!("/proc/self/fdinfo/{descriptor}"));
            let told = told.expect("the descriptor is open");
            let flags = told.lines().find_map(|line| line.strip_prefix("flags:"));
            let flags = i64::from_str_radix(flags.expect("a line of flags").trim(), 8);
            let flags = flags.expect("an octal number");
            assert_ne!(
                flags & i64::from(OFlags::CLOEXEC.bits()),
                0,
                "inherited: {flags:#o}"
            );
        }
        // A child that lives on holds nothing: the client sees the end at once.
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .expect("a child");
        let (mut client, socket) = rig_pair_while_many(&mut rig);
        rig.driver.close(socket);
        rig.turn();
        assert_eq!(read_to_end(&mut client), b"");
        child.kill().expect("alive");
        child.wait().expect("gone");
    }

    /// A connection through the accept that is armed already.
    fn rig_pair_while_many<D: Driver>(rig: &mut Rig<D>) -> (TcpStream, flatpath_driver::Socket) {
        let mut client = rig.connect();
        client.flush().expect("open");
        let completion = rig.next(1);
        let Outcome::Accepted(socket) = completion.outcome else {
            panic!("{completion:?}")
        };
        (client, socket)
    }

    const _: fn() = || {
        fn shared_between_threads<T: Send + Sync>() {}
        shared_between_threads::<Listener>();
    };
}
