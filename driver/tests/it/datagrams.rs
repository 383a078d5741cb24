//! Datagrams: each test is written once and run on every kind of driver; and on the simulation.

on_every_driver! {
    #[test] fn every_datagram_comes_whole_with_its_sender_and_where_it_was_sent_to;
    #[test] fn a_datagram_that_is_too_long_says_that_it_is_cut;
    #[test] fn what_is_reported_for_a_reply_ends_no_receive;
    #[test] fn without_a_page_the_receive_stalls_and_the_rest_waits_in_the_socket;
    #[test] fn what_comes_after_a_cancel_stays_in_the_socket;
    #[test] fn a_cancel_ends_the_receive_of_its_socket_alone;
    #[test] fn a_cancel_ends_a_receive_that_a_datagram_has_just_come_to;
    #[test] fn a_flood_leaves_a_connection_its_turns;
    #[test] fn what_the_socket_had_no_room_for_is_counted;
    #[test] fn a_driver_is_dropped_with_datagrams_under_way;
}

// io_uring's way for kernels without multishot.
on_this_driver! { single OnUringSingle
    #[test] every_datagram_comes_whole_with_its_sender_and_where_it_was_sent_to
    #[test] a_datagram_that_is_too_long_says_that_it_is_cut
    #[test] what_is_reported_for_a_reply_ends_no_receive
    #[test] without_a_page_the_receive_stalls_and_the_rest_waits_in_the_socket
    #[test] what_comes_after_a_cancel_stays_in_the_socket
    #[test] a_cancel_ends_the_receive_of_its_socket_alone
    #[test] a_cancel_ends_a_receive_that_a_datagram_has_just_come_to
    #[test] a_flood_leaves_a_connection_its_turns
    #[test] what_the_socket_had_no_room_for_is_counted
    #[test] a_driver_is_dropped_with_datagrams_under_way
}

on_this_driver! { epoll_alone OnEpoll
    #[test] a_wait_takes_no_more_of_a_flood_than_it_may_on_epoll
}

mod cases {
    use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
    use std::os::fd::OwnedFd;
    use std::sync::Arc;

    use flatpath_driver::{
        Completion, DATAGRAM_HEAD_BYTES, Datagram, DatagramSocket, Driver, DriverConfig, Errno,
        Operation, OperationMode, Outcome, RegionConfig,
    };

    use crate::rig::{Make, Rig, patience, small};

    /// The region that datagrams are received into, and how much of one it has room for.
    const REGION: u16 = 1;
    const ROOM: usize = 1500;
    const PAGES: u32 = 8;

    fn config() -> DriverConfig {
        DriverConfig {
            regions: vec![RegionConfig {
                pages: PAGES,
                page_bytes: (DATAGRAM_HEAD_BYTES + ROOM) as u32,
                reserve_pages: PAGES,
                ..RegionConfig::default()
            }],
            ..small()
        }
    }

    /// A socket at an address, as the driver has it, and where it is.
    fn bind(at: impl std::net::ToSocketAddrs) -> (Arc<DatagramSocket>, SocketAddr) {
        let socket = UdpSocket::bind(at).expect("a free port");
        let address = socket.local_addr().expect("bound");
        let socket = DatagramSocket::new(OwnedFd::from(socket)).expect("of the internet");
        (Arc::new(socket), address)
    }

    fn client() -> (UdpSocket, SocketAddr) {
        let client = UdpSocket::bind("127.0.0.1:0").expect("a free port");
        client.set_read_timeout(Some(patience())).expect("a socket");
        let address = client.local_addr().expect("bound");
        (client, address)
    }

    /// The next datagram of a receive, its bytes beside it.
    fn next<D: Driver>(rig: &mut Rig<D>, user_data: u64) -> (Datagram, Vec<u8>) {
        let completion = rig.next(user_data);
        assert!(completion.more, "a receive lasts: {completion:?}");
        taken(rig, completion)
    }

    fn taken<D: Driver>(rig: &mut Rig<D>, completion: Completion) -> (Datagram, Vec<u8>) {
        let Outcome::Datagram(mut datagram) = completion.outcome else {
            panic!("no datagram but {completion:?}")
        };
        let bytes = datagram.piece.take().map(|piece| {
            let bytes = rig.driver.bytes(&piece).to_vec();
            rig.driver.recycle(piece);
            bytes
        });
        (*datagram, bytes.unwrap_or_default())
    }

    pub(crate) fn every_datagram_comes_whole_with_its_sender_and_where_it_was_sent_to<M: Make>(
        _: &str,
    ) {
        let Some(mut rig) = Rig::new::<M>(&config()) else {
            return;
        };
        let (socket, at) = bind("0.0.0.0:0");
        rig.driver.receive_datagrams(Arc::clone(&socket), 7, REGION);
        let clients = [client(), client()];
        let lengths = [1, 0, 0, 40, ROOM - 1, ROOM, 0, 2];
        for (number, bytes) in lengths.into_iter().enumerate() {
            let (client, from) = &clients[number % 2];
            let to = Ipv4Addr::new(127, 0, 0, 1 + (number % 3) as u8);
            let sent = vec![number as u8; bytes];
            client.send_to(&sent, (to, at.port())).expect("sent");
            let (datagram, bytes) = next(&mut rig, 7);
            assert_eq!(bytes, sent);
            let envelope = datagram.envelope;
            assert_eq!((envelope.from, envelope.to), (*from, Some(to.into())));
            assert!(!envelope.is_cut && !envelope.is_to_group);
            socket
                .send(&[9, 9], envelope.from, envelope.to)
                .expect("room");
            let mut answer = [0; 8];
            let (count, answered) = client.recv_from(&mut answer).expect("a reply");
            assert_eq!((count, answered), (2, (to, at.port()).into()));
        }
        assert_eq!(rig.driver.free(REGION), PAGES);
    }

    pub(crate) fn a_datagram_that_is_too_long_says_that_it_is_cut<M: Make>(_: &str) {
        let Some(mut rig) = Rig::new::<M>(&config()) else {
            return;
        };
        let (socket, at) = bind("[::1]:0");
        rig.driver.receive_datagrams(socket, 7, REGION);
        let client = UdpSocket::bind("[::1]:0").expect("a free port");
        for (length, is_cut) in [(ROOM + 1, true), (ROOM, false), (9000, true), (3, false)] {
            client.send_to(&vec![1; length], at).expect("sent");
            let (datagram, bytes) = next(&mut rig, 7);
            assert_eq!(bytes.len(), length.min(ROOM));
            assert_eq!(datagram.envelope.is_cut, is_cut, "{length}");
            let here = std::net::Ipv6Addr::LOCALHOST.into();
            assert_eq!(datagram.envelope.to, Some(here));
        }
    }

    pub(crate) fn what_is_reported_for_a_reply_ends_no_receive<M: Make>(_: &str) {
        let Some(mut rig) = Rig::new::<M>(&config()) else {
            return;
        };
        let server = UdpSocket::bind("127.0.0.1:0").expect("a free port");
        let at = server.local_addr().expect("bound");
        let (peer, from) = client();
        drop(peer);
        // The kernel reports ICMP errors to connected sockets (udp(7)).
        server.connect(from).expect("an address");
        let socket = DatagramSocket::new(OwnedFd::from(server)).expect("of the internet");
        let socket = Arc::new(socket);
        rig.driver.receive_datagrams(Arc::clone(&socket), 7, REGION);
        for _ in 0..3 {
            rig.turn();
            socket.send(b"hello?", from, None).expect("no one listens");
            let completion = rig.next(7);
            assert!(completion.more, "{completion:?}");
            let Outcome::Failed(Errno::CONNREFUSED) = completion.outcome else {
                panic!("no report but {completion:?}")
            };
        }
        let peer = UdpSocket::bind(from).expect("its port is free");
        peer.send_to(b"here", at).expect("sent");
        assert_eq!(next(&mut rig, 7).1, b"here");
    }

    pub(crate) fn without_a_page_the_receive_stalls_and_the_rest_waits_in_the_socket<M: Make>(
        _: &str,
    ) {
        let Some(mut rig) = Rig::new::<M>(&config()) else {
            return;
        };
        let (socket, at) = bind("127.0.0.1:0");
        let (client, _) = client();
        for number in 0..3 * PAGES as u8 {
            client.send_to(&[number], at).expect("sent");
        }
        let mut numbers = vec![];
        while numbers.len() < 3 * PAGES as usize {
            rig.driver.receive_datagrams(Arc::clone(&socket), 7, REGION);
            let mut kept = vec![];
            let errno = loop {
                let completion = rig.next(7);
                match completion.outcome {
                    Outcome::Failed(errno) => {
                        assert!(!completion.more);
                        break errno;
                    }
                    Outcome::Datagram(datagram) => kept.extend(datagram.piece),
                    other => panic!("{other:?}"),
                }
                if numbers.len() + kept.len() == 3 * PAGES as usize {
                    // So that the receive finds no free page.
                    client.send_to(b"last", at).expect("sent");
                }
            };
            assert_eq!((errno, kept.len()), (Errno::NOBUFS, PAGES as usize));
            assert_eq!(rig.driver.free(REGION), 0);
            for piece in kept {
                numbers.push(rig.driver.bytes(&piece)[0]);
                rig.driver.recycle(piece);
            }
        }
        assert!(numbers.into_iter().eq(0..3 * PAGES as u8), "in order");
        assert_eq!(rig.driver.statistics().stalls, 3);
        rig.driver.receive_datagrams(socket, 7, REGION);
        assert_eq!(next(&mut rig, 7).1, b"last");
    }

    pub(crate) fn what_comes_after_a_cancel_stays_in_the_socket<M: Make>(_: &str) {
        let Some(mut rig) = Rig::new::<M>(&config()) else {
            return;
        };
        let (socket, at) = bind("127.0.0.1:0");
        let (client, _) = client();
        rig.driver.receive_datagrams(Arc::clone(&socket), 7, REGION);
        rig.turn();
        // One of another number: it is not meant.
        rig.driver.cancel(Operation::ReceiveDatagrams(&socket), 8);
        client.send_to(b"before", at).expect("sent");
        assert_eq!(next(&mut rig, 7).1, b"before");
        rig.driver.cancel(Operation::ReceiveDatagrams(&socket), 7);
        let completion = rig.next(7);
        let is_end = matches!(completion.outcome, Outcome::Failed(Errno::CANCELED));
        assert!(is_end && !completion.more, "{completion:?}");
        client.send_to(b"after", at).expect("sent");
        rig.turn();
        assert!(rig.arrived.is_empty(), "{:?}", rig.arrived);
        rig.driver.receive_datagrams(Arc::clone(&socket), 9, REGION);
        assert_eq!(next(&mut rig, 9).1, b"after");
    }

    pub(crate) fn a_cancel_ends_the_receive_of_its_socket_alone<M: Make>(_: &str) {
        let Some(mut rig) = Rig::new::<M>(&config()) else {
            return;
        };
        let sockets = [bind("127.0.0.1:0"), bind("127.0.0.1:0")];
        let (client, _) = client();
        for ((socket, _), user_data) in sockets.iter().zip(1..) {
            rig.driver
                .receive_datagrams(Arc::clone(socket), user_data, REGION);
        }
        rig.turn();
        rig.driver
            .cancel(Operation::ReceiveDatagrams(&sockets[0].0), 1);
        assert!(!rig.next(1).more);
        client.send_to(b"other", sockets[1].1).expect("sent");
        assert_eq!(next(&mut rig, 2).1, b"other");
        let [(first, _), (second, _)] = sockets;
        assert_eq!(Arc::strong_count(&first), 1, "an ended receive keeps none");
        assert_eq!(Arc::strong_count(&second), 2);
    }

    pub(crate) fn a_cancel_ends_a_receive_that_a_datagram_has_just_come_to<M: Make>(_: &str) {
        let Some(mut rig) = Rig::new::<M>(&config()) else {
            return;
        };
        let (client, _) = client();
        for bytes in [&b""[..], b"some"] {
            let (socket, at) = bind("127.0.0.1:0");
            rig.driver.receive_datagrams(Arc::clone(&socket), 7, REGION);
            rig.turn();
            // To io_uring either may be the end of an operation (DG2).
            client.send_to(bytes, at).expect("sent");
            rig.driver.cancel(Operation::ReceiveDatagrams(&socket), 7);
            let mut more = true;
            while more {
                let completion = rig.next(7);
                more = completion.more;
                match completion.outcome {
                    Outcome::Datagram(_) => assert_eq!(taken(&mut rig, completion).1, bytes),
                    outcome => assert!(matches!(outcome, Outcome::Failed(Errno::CANCELED))),
                }
            }
            assert_eq!(Arc::strong_count(&socket), 1, "an ended receive keeps none");
        }
        assert_eq!(rig.driver.free(REGION), PAGES);
    }

    pub(crate) fn a_flood_leaves_a_connection_its_turns<M: Make>(_: &str) {
        let Some(mut rig) = Rig::new::<M>(&config()) else {
            return;
        };
        let (mut stream, socket) = rig.pair();
        let (datagrams, at) = bind("127.0.0.1:0");
        let (client, _) = client();
        rig.driver
            .receive_datagrams(Arc::clone(&datagrams), 7, REGION);
        rig.driver.receive(socket, 1, OperationMode::Multishot, 0);
        let (mut came, mut echoed) = (0, 0);
        while echoed < 20 {
            for _ in 0..50 {
                client.send_to(b"flood", at).expect("sent");
            }
            std::io::Write::write_all(&mut stream, b"x").expect("open");
            rig.turn();
            let arrived = std::mem::take(&mut rig.arrived);
            let is_datagram = |it: &&Completion| matches!(it.outcome, Outcome::Datagram(_));
            let count = arrived.iter().filter(is_datagram).count();
            assert!(count <= PAGES as usize, "{count} in one wait (D8)");
            for completion in arrived {
                match completion.outcome {
                    Outcome::Datagram(_) => {
                        came += 1;
                        taken(&mut rig, completion);
                    }
                    Outcome::Received(piece) => {
                        echoed += rig.driver.bytes(&piece).len();
                        rig.driver.recycle(piece);
                        if !completion.more {
                            rig.driver.receive(socket, 1, OperationMode::Multishot, 0);
                        }
                    }
                    Outcome::Failed(Errno::NOBUFS) if completion.user_data == 7 => {
                        rig.driver
                            .receive_datagrams(Arc::clone(&datagrams), 7, REGION);
                    }
                    other => panic!("{other:?}"),
                }
            }
        }
        assert!(came > 0, "datagrams have their turns as well");
    }

    pub(crate) fn a_wait_takes_no_more_of_a_flood_than_it_may_on_epoll<M: Make>(_: &str) {
        const COUNT: usize = 150;
        const PAGES: u32 = 256;
        // As D8 says, and the module: four calls of sixteen.
        const WAIT_MAX: usize = 64;
        let mut config = config();
        (config.regions[0].pages, config.regions[0].reserve_pages) = (PAGES, PAGES);
        let Some(mut rig) = Rig::new::<M>(&config) else {
            return;
        };
        let (socket, at) = bind("127.0.0.1:0");
        let (client, _) = client();
        for number in 0..COUNT {
            client.send_to(&[number as u8], at).expect("sent");
        }
        rig.driver.receive_datagrams(socket, 7, REGION);
        let (mut came, mut most) = (0, 0);
        while came < COUNT {
            rig.turn();
            let arrived = std::mem::take(&mut rig.arrived);
            assert!(arrived.len() <= WAIT_MAX, "{} in one wait", arrived.len());
            most = most.max(arrived.len());
            for completion in arrived {
                let (_, bytes) = taken(&mut rig, completion);
                assert_eq!(bytes, [came as u8], "in order");
                came += 1;
            }
        }
        assert_eq!(most, WAIT_MAX, "one wait takes what it may");
        assert_eq!(rig.driver.free(REGION), PAGES);
    }

    pub(crate) fn what_the_socket_had_no_room_for_is_counted<M: Make>(_: &str) {
        let Some(mut rig) = Rig::new::<M>(&config()) else {
            return;
        };
        let (socket, at) = bind("127.0.0.1:0");
        let descriptor = socket.descriptor().expect("a real one");
        rustix::net::sockopt::set_socket_recv_buffer_size(descriptor, 4096).expect("a socket");
        let (client, _) = client();
        for _ in 0..100 {
            client.send_to(&[0; 1000], at).expect("sent");
        }
        rig.driver.receive_datagrams(socket, 7, REGION);
        let mut came = 0;
        let mut lost = 0;
        while came + lost < 100 {
            // One more brings the count of those before it.
            let (datagram, _) = next(&mut rig, 7);
            (came, lost) = (came + 1, datagram.envelope.lost);
            client.send_to(b"x", at).expect("sent");
        }
        assert!(lost > 0 && came > 0, "{came} came, {lost} were lost");
    }

    pub(crate) fn a_driver_is_dropped_with_datagrams_under_way<M: Make>(_: &str) {
        let Some(mut rig) = Rig::new::<M>(&config()) else {
            return;
        };
        let (socket, at) = bind("127.0.0.1:0");
        let (client, _) = client();
        rig.driver.receive_datagrams(Arc::clone(&socket), 7, REGION);
        for _ in 0..4 {
            client.send_to(b"unheard", at).expect("sent");
        }
        rig.turn();
        // These end an operation while the driver goes, if they come to it.
        for _ in 0..2 {
            client.send_to(b"", at).expect("sent");
        }
        drop(rig);
        assert_eq!(Arc::strong_count(&socket), 1, "no driver has it");
        // And none takes what comes.
        client.send_to(b"x", at).expect("sent");
    }
}

mod simulated {
    use std::net::SocketAddr;
    use std::sync::Arc;

    use flatpath_driver::simulation::{Faults, Network, Simulation, each_seed};
    use flatpath_driver::{
        DATAGRAM_HEAD_BYTES, Datagram, DatagramSocket, Driver, DriverConfig, Envelope, Errno,
        Operation, Outcome,
    };

    const ROOM: usize = 16;

    fn simulation(seed: u64, pages: u32, faults: Faults) -> (Simulation, Network) {
        let config = DriverConfig {
            receive_buffers: pages,
            receive_buffer_bytes: (DATAGRAM_HEAD_BYTES + ROOM) as u32,
            ..DriverConfig::default()
        };
        Simulation::new(seed, &config, faults)
    }

    fn from(number: u32) -> Envelope {
        let host = std::net::Ipv4Addr::from(0x0a00_0000 + number);
        Envelope {
            from: SocketAddr::from((host, 9)),
            to: Some([192, 0, 2, 1].into()),
            is_to_group: false,
            is_cut: false,
            lost: 0,
        }
    }

    /// One turn: what came. A receive that ends for lack of a page begins anew, if it is wanted.
    fn turn(
        driver: &mut Simulation,
        socket: Option<&Arc<DatagramSocket>>,
        heard: &mut Vec<(Envelope, Vec<u8>)>,
    ) {
        let mut completions = vec![];
        let waited = driver.wait(Some(1_000_000), &|| false, &mut completions);
        waited.expect("a simulation continues");
        for completion in completions {
            let more = completion.more;
            match completion.outcome {
                Outcome::Datagram(datagram) => {
                    let Datagram { piece, envelope } = *datagram;
                    let bytes = piece.map(|piece| {
                        let bytes = driver.bytes(&piece).to_vec();
                        driver.recycle(piece);
                        bytes
                    });
                    heard.push((envelope, bytes.unwrap_or_default()));
                }
                Outcome::Failed(Errno::NOBUFS) => {
                    assert!(!more);
                    if let Some(socket) = socket {
                        driver.receive_datagrams(Arc::clone(socket), 7, 0);
                    }
                }
                Outcome::Failed(errno) => {
                    assert!(more || errno == Errno::CANCELED, "{errno}");
                }
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn sim_every_datagram_comes_once_with_its_own_sender_whatever_goes_wrong() {
        const COUNT: u32 = 300;
        let reordered = each_seed(60, |seed| {
            let (mut driver, network) = simulation(seed, 4, Faults::mixed(seed));
            let socket = Arc::new(network.bind_datagrams());
            driver.receive_datagrams(Arc::clone(&socket), 7, 0);
            let mut heard = vec![];
            for number in 0..COUNT {
                let bytes = number.to_ne_bytes().repeat(6);
                let bytes = &bytes[..number as usize % 23];
                network.send_datagram(&socket, from(number), bytes);
                if number % 50 == 0 {
                    network.report_to_datagrams(&socket, Errno::CONNREFUSED);
                }
                turn(&mut driver, Some(&socket), &mut heard);
            }
            let mut turns = 0;
            while heard.len() < COUNT as usize {
                turn(&mut driver, Some(&socket), &mut heard);
                turns += 1;
                assert!(turns < 10_000, "some were lost");
            }
            driver.cancel(Operation::ReceiveDatagrams(&socket), 7);
            for _ in 0..100 {
                turn(&mut driver, None, &mut heard);
            }
            assert!(network.leaks().is_none(), "{:?}", network.leaks());
            let is_ordered = heard.is_sorted_by_key(|(envelope, _)| envelope.from);
            heard.sort_by_key(|(envelope, _)| envelope.from);
            assert_eq!(heard.len(), COUNT as usize, "some came twice");
            for (number, (envelope, bytes)) in (0..COUNT).zip(heard) {
                assert_eq!(envelope.from, from(number).from);
                let length = number as usize % 23;
                assert_eq!(bytes.len(), length.min(ROOM));
                assert_eq!(envelope.is_cut, length > ROOM);
                let sent = number.to_ne_bytes();
                assert!(bytes.iter().zip(sent.iter().cycle()).all(|(a, b)| a == b));
            }
            !is_ordered
        });
        let any = std::env::var("FLATPATH_SEED").is_ok() || reordered.contains(&true);
        assert!(any, "no datagram has overtaken another");
    }

    #[test]
    fn sim_a_network_loses_and_repeats_as_many_as_it_is_told_to() {
        let (mut driver, network) = simulation(1, 64, Faults::none());
        let socket = Arc::new(network.bind_datagrams());
        driver.receive_datagrams(Arc::clone(&socket), 7, 0);
        let mut counts = [0; 3];
        for (count, faults) in counts.iter_mut().zip([(1000, 0), (0, 1000), (0, 0)]) {
            network.set_datagram_faults(faults.0, faults.1);
            let mut heard = vec![];
            for number in 0..10 {
                network.send_datagram(&socket, from(number), b"x");
                turn(&mut driver, Some(&socket), &mut heard);
            }
            for _ in 0..10 {
                turn(&mut driver, Some(&socket), &mut heard);
            }
            *count = heard.len();
        }
        assert_eq!(counts, [0, 20, 10]);
    }

    #[test]
    fn sim_a_full_socket_counts_what_it_loses() {
        let (mut driver, network) = simulation(1, 64, Faults::none());
        let socket = Arc::new(network.bind_datagrams());
        for number in 0..1500 {
            network.send_datagram(&socket, from(number), b"x");
        }
        driver.receive_datagrams(Arc::clone(&socket), 7, 0);
        let mut heard = vec![];
        while heard.len() < 1024 {
            turn(&mut driver, Some(&socket), &mut heard);
        }
        assert!(
            heard
                .iter()
                .all(|(envelope, _)| envelope.lost == 1500 - 1024)
        );
        let to = from(3).from;
        socket.send(b"reply", to, None).expect("room");
        let sent = network.sent_datagrams(&socket);
        assert_eq!(
            (sent.len(), &sent[0].bytes[..], sent[0].to),
            (1, &b"reply"[..], to)
        );
        assert!(network.sent_datagrams(&socket).is_empty());
    }

    #[test]
    #[should_panic(expected = "C2: a second receive of datagrams")]
    fn sim_a_second_receive_on_a_socket_is_found_out() {
        let (mut driver, network) = simulation(1, 4, Faults::none());
        let socket = Arc::new(network.bind_datagrams());
        driver.receive_datagrams(Arc::clone(&socket), 7, 0);
        driver.receive_datagrams(socket, 8, 0);
    }
}
