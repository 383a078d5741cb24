//! One message to many sockets: order, slow clients, and clients that come and go.

use flatpath_test::{ClientState, Conditions, each_seed};
use flatpath_websocket::{Broadcast, Handler, Limits, Member, Message, Slow, Socket, WebSocket};

use crate::client::{Peer, serve};
use crate::frames::{close, frame};

/// Sends what its client says to all.
struct Says {
    all: Broadcast,
    member: Option<Member>,
}

impl Handler for Says {
    fn opened(&mut self, socket: &Socket) {
        self.member = Some(self.all.join(socket));
    }

    fn message(&mut self, _: &Socket, message: Message) {
        self.all.send(message);
    }
}

fn says(all: &Broadcast) -> impl Fn() -> Says + Send + Sync + 'static {
    let all = all.clone();
    move || Says {
        all: all.clone(),
        member: None,
    }
}

#[test]
fn sim_all_hear_all_messages_in_one_order_for_as_long_as_they_are_there() {
    each_seed(60, |seed| {
        let all = Broadcast::new();
        let sockets = [WebSocket::inline, WebSocket::pooled][seed as usize / 2 % 2]();
        let mut server = serve(Conditions::rough(seed), sockets, says(&all));
        let peers: Vec<Peer> = (0..3).map(|_| Peer::open(&mut server)).collect();
        server.run_until(|| all.sockets() == 3);
        for number in 0..10_u8 {
            for (who, peer) in (0..).zip(&peers) {
                peer.send(&frame(0x81, &[b'a' + number, b'x' + who]));
            }
        }
        let heard: Vec<Vec<String>> = peers
            .iter()
            .map(|peer| (0..30).map(|_| peer.text(&mut server)).collect())
            .collect();
        assert!(heard.iter().all(|words| *words == heard[0]), "{heard:?}");
        for who in ["x", "y", "z"] {
            let said = heard[0].iter().filter(|words| words.ends_with(who));
            assert!(said.is_sorted(), "{heard:?}");
        }
        // One leaves in good order, one does not.
        peers[0].send(&close(1000));
        assert_eq!(peers[0].closed(&mut server), 1000);
        peers[1].client.abort();
        server.run_until(|| all.sockets() == 1);
        assert_eq!(all.send("to one"), 1);
        assert_eq!(peers[2].text(&mut server), "to one");
    });
}

#[test]
fn sim_a_client_that_does_not_read_is_closed_or_misses_messages_and_others_do_not() {
    const MESSAGE: [u8; 5_000] = [7; 5_000];
    each_seed(20, |seed| {
        for slow in [Slow::Close, Slow::Skip] {
            let all = Broadcast::with_slow(slow);
            let limits = Limits {
                queued_bytes_max: 10_000,
                ..Limits::default()
            };
            let sockets = WebSocket::inline().limits(limits);
            let mut server = serve(Conditions::rough(seed), sockets, says(&all));
            server.world().set_window_bytes(10_000);
            let (deaf, other) = (Peer::open(&mut server), Peer::open(&mut server));
            server.run_until(|| all.sockets() == 2);
            let mut taken_by_both = 0;
            for number in 0..20_u8 {
                let taken = all.send([&[number], &MESSAGE[..]].concat());
                assert_eq!(other.frame(&mut server).1[0], number);
                // Until the server knows that it has read.
                server.settle();
                assert!((1..=2).contains(&taken));
                taken_by_both += usize::from(taken == 2);
            }
            assert!((2..20).contains(&taken_by_both), "{taken_by_both}");
            for number in 0..taken_by_both {
                let (_, message) = deaf.frame(&mut server);
                // What it misses is in the middle, where room came back too late.
                assert!(usize::from(message[0]) >= number);
            }
            match slow {
                Slow::Close => {
                    assert_eq!(deaf.closed(&mut server), 1013);
                    assert_eq!(all.sockets(), 1);
                }
                _ => {
                    server.settle();
                    assert_eq!(all.send("again"), 2);
                    assert_eq!(deaf.text(&mut server), "again");
                    assert_eq!(deaf.client.state(), ClientState::Open);
                }
            }
        }
    });
}
