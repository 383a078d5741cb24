//! After warm-up no driver allocates: not for connections, receives, sends, closes or cancels.

#[test]
fn the_counter_sees_an_allocation() {
    let counted = allocation_counter::measure(|| drop(std::hint::black_box(vec![1; 100])));
    assert_eq!(counted.count_total, 1);
}

on_every_driver! {
    #[test] fn a_kept_connection_costs_no_allocation;
    #[test] fn a_short_connection_costs_no_allocation;
}

mod cases {
    use std::net::TcpStream;
    use std::os::unix::net::UnixStream;

    use bytes::Bytes;
    use flatpath_driver::{
        AfterSend, Completion, Driver, Operation, OperationMode, Outcome, SendList, Socket,
    };

    use crate::rig::{Make, Rig, read_exactly, small, write};

    const REQUEST: &[u8] = b"request";
    const REPLY: &[u8] = b"a reply in two segments";

    fn reply() -> SendList {
        let mut list = SendList::new();
        for part in [&REPLY[..7], &REPLY[7..]] {
            list.push(Bytes::from_static(part).into()).expect("room");
        }
        list
    }

    /// Waits for the completion of one user_data; nothing else is under way.
    fn next<D: Driver>(rig: &mut Rig<D>, user_data: u64) -> Completion {
        for _ in 0..600 {
            if let Some(completion) = rig.arrived.pop() {
                assert_eq!(completion.user_data, user_data);
                assert!(rig.arrived.is_empty());
                return completion;
            }
            rig.turn();
        }
        panic!("no completion of {user_data}")
    }

    /// Receives a request that is there, answers it, and does what `after` says.
    fn answer<D: Driver>(rig: &mut Rig<D>, socket: Socket, after: AfterSend) {
        rig.driver.receive(socket, 2, OperationMode::Single, 0);
        let completion = next(rig, 2);
        let Outcome::Received(piece) = completion.outcome else {
            panic!("{completion:?}")
        };
        assert_eq!(rig.driver.bytes(&piece), REQUEST);
        rig.driver.recycle(piece);
        rig.driver.send(socket, 3, &mut reply(), after);
        let completion = next(rig, 3);
        assert!(
            matches!(completion.outcome, Outcome::Sent { .. }),
            "{completion:?}"
        );
    }

    fn kept_round<D: Driver>(rig: &mut Rig<D>, client: &mut TcpStream, socket: Socket) {
        write(client, REQUEST);
        answer(rig, socket, AfterSend::KeepOpen);
        let mut bytes = [0; REPLY.len()];
        std::io::Read::read_exact(client, &mut bytes).expect("an answer");
        assert_eq!(bytes, REPLY);
        // A receive that comes to nothing.
        rig.driver.receive(socket, 4, OperationMode::Multishot, 0);
        rig.driver.cancel(Operation::Receive(socket), 4);
        let completion = next(rig, 4);
        assert!(
            matches!(completion.outcome, Outcome::Failed(_)),
            "{completion:?}"
        );
    }

    pub(crate) fn a_kept_connection_costs_no_allocation<M: Make>(_: &str) {
        let Some(mut rig) = Rig::new::<M>(&small()) else {
            return;
        };
        let (mut client, socket) = rig.pair();
        for _ in 0..20 {
            kept_round(&mut rig, &mut client, socket);
        }
        let counted = allocation_counter::measure(|| {
            for _ in 0..200 {
                kept_round(&mut rig, &mut client, socket);
            }
        });
        assert_eq!(counted.count_total, 0, "{counted:?}");
    }

    /// Tests beside this one open descriptors too, so that the next number may be any: the driver's
    /// tables are grown beforehand, as they are in a server that has seen its busiest hour.
    fn cover_descriptors<D: Driver>(rig: &mut Rig<D>) {
        const HIGH: i32 = 1000;
        let (stream, _) = UnixStream::pair().expect("a pair");
        let high = rustix::io::fcntl_dupfd_cloexec(&stream, HIGH).expect("a high number");
        let socket = rig.driver.register(high).expect("registered");
        rig.driver.close(socket);
        rig.turn();
    }

    pub(crate) fn a_short_connection_costs_no_allocation<M: Make>(_: &str) {
        let Some(mut rig) = Rig::new::<M>(&small()) else {
            return;
        };
        // Clients first: making them allocates.
        let mut clients: Vec<TcpStream> = (0..60).map(|_| rig.connect()).collect();
        clients.iter_mut().for_each(|client| write(client, REQUEST));
        cover_descriptors(&mut rig);
        let round = |rig: &mut Rig<M::Driver>| {
            rig.driver.accept(&rig.listener, 1, OperationMode::Single);
            let completion = next(rig, 1);
            let Outcome::Accepted(socket) = completion.outcome else {
                panic!("{completion:?}")
            };
            answer(rig, socket, AfterSend::Close);
        };
        for _ in 0..20 {
            round(&mut rig);
        }
        let counted = allocation_counter::measure(|| {
            for _ in 0..40 {
                round(&mut rig);
            }
        });
        assert_eq!(counted.count_total, 0, "{counted:?}");
        rig.turn();
        for client in &mut clients {
            assert_eq!(read_exactly(client, REPLY.len()), REPLY);
        }
    }
}
