//! The example protocol on real sockets, with both drivers, and in the simulation.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::time::Duration;

use flatpath::{DriverChoice, Server};
use flatpath_example_protocol::{BLOCK_BYTES_MAX, Sums};
use flatpath_test::{Conditions, TestServer, each_seed};

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
    for choice in [DriverChoice::Auto, DriverChoice::Epoll] {
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
    each_seed(50, |seed| {
        let mut server = TestServer::new(Conditions::rough(seed), Sums);
        let blocks: Vec<_> = (1..=5_u8)
            .map(|number| block(&vec![number; 1 << (2 * number)]))
            .collect();
        let clients: Vec<_> = (0..CLIENTS).map(|_| server.connect()).collect();
        for client in &clients {
            for (sent, _) in &blocks {
                client.write(sent);
            }
        }
        for client in &clients {
            for (_, expected) in &blocks {
                assert_eq!(server.read_line(client), *expected);
            }
        }
    });
}
