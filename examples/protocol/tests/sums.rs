//! The example protocol on real sockets, with both drivers, and in the simulation.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::time::Duration;

use flatpath::simulation::{Conditions, Faults, SimulatedServer};
use flatpath::{DriverChoice, Server};
use flatpath_example_protocol::{BLOCK_BYTES_MAX, Sums};

/// Far beyond what anything here takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// A block as it is sent, and the answer to it.
fn block(bytes: &[u8]) -> (Vec<u8>, String) {
    let length = u32::try_from(bytes.len()).expect("a short block");
    let sum: u64 = bytes.iter().map(|byte| u64::from(*byte)).sum();
    ([&length.to_be_bytes(), bytes].concat(), format!("{sum}\n"))
}

#[test]
fn blocks_are_summed_over_real_sockets() {
    for choice in [DriverChoice::Uring, DriverChoice::Epoll] {
        let running = Server::new()
            .driver(choice)
            .listen("127.0.0.1:0", Sums)
            .start()
            .expect("start");
        let address = running.addresses()[0].address;
        let mut client = TcpStream::connect(address).expect("connect");
        client.set_read_timeout(Some(PATIENCE)).expect("settable");
        client.set_write_timeout(Some(PATIENCE)).expect("settable");
        let mut replies = BufReader::new(client.try_clone().expect("a descriptor"));
        for length in [1, 0, 4096, BLOCK_BYTES_MAX, 3] {
            let (sent, expected) = block(&vec![7; length]);
            client.write_all(&sent).expect("write");
            let mut reply = String::new();
            replies.read_line(&mut reply).expect("read");
            assert_eq!(reply, expected);
        }
        drop((client, replies));
        running.handle().drain();
        running.wait().expect("it ends");
    }
}

#[test]
fn sim_blocks_are_summed_whatever_the_kernel_does() {
    const CLIENTS: usize = 4;
    const TURNS: usize = 2_000;
    for seed in 0..50 {
        let conditions = Conditions {
            faults: Faults::mixed(seed).without_losses(),
            ..Conditions::calm(seed)
        };
        let mut server = SimulatedServer::new(conditions, Sums);
        let blocks: Vec<_> = (1..=5_u8)
            .map(|number| block(&vec![number; 1 << (2 * number)]))
            .collect();
        let expected: String = blocks.iter().map(|(_, reply)| reply.as_str()).collect();
        let clients: Vec<_> = (0..CLIENTS).map(|_| server.connect()).collect();
        for client in &clients {
            for (sent, _) in &blocks {
                client.write(sent);
            }
        }
        let mut replies = vec![String::new(); CLIENTS];
        for _ in 0..TURNS {
            server.turn();
            for (reply, client) in replies.iter_mut().zip(&clients) {
                *reply += std::str::from_utf8(&client.read()).expect("digits");
            }
        }
        assert_eq!(replies, vec![expected; CLIENTS], "seed {seed}");
        drop(clients);
        server.drain();
        for _ in 0..TURNS {
            server.turn();
        }
        assert!(server.has_ended(), "seed {seed}");
        let (leaks, bytes) = server.leaks();
        assert!(leaks.is_none() && bytes == 0, "seed {seed}: {leaks:?}");
    }
}
