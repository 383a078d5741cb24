//! A listener that holds its share of the memory leaves the rest to the others. On both drivers.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;
use std::time::Instant;

use crate::gate::patience;
use crate::hoard::Hoard;
use crate::lines::on_both;
use flatpath::{Limits, Server};

/// The budget without its reserve, in smallest buffers.
const BUFFERS: usize = 7 * 256;

fn client(address: SocketAddr, words: &str) -> TcpStream {
    let mut client = TcpStream::connect(address).expect("connected");
    client.set_read_timeout(Some(patience())).expect("set");
    client.write_all(words.as_bytes()).expect("written");
    client
}

fn is_answered(client: &mut TcpStream) {
    let mut answer = [0; 3];
    client.read_exact(&mut answer).expect("an answer");
    assert_eq!(&answer, b"ok\n");
}

#[test]
fn a_listener_with_its_share_waits_and_the_others_do_not() {
    on_both(|choice| {
        let limits = Limits {
            buffer_bytes_max: BUFFERS / 7 * 8 * 4096,
            stall_timeout: Duration::from_secs(60),
            ..Limits::default()
        };
        let server = Server::new()
            .driver(choice)
            .network_threads(2)
            .limits(limits);
        let server = server.listen("127.0.0.1:0", Hoard::default());
        let server = server.listen("127.0.0.1:0", Hoard::default());
        let running = server.start().expect("started");
        let address = |number: usize| running.addresses()[number].address;
        let mut other = client(address(1), "hold 256\nok?\n");
        is_answered(&mut other);
        // More than three quarters, over all network threads.
        let mut holders: Vec<TcpStream> = Vec::new();
        let handle = running.handle();
        let deadline = Instant::now() + patience();
        while handle.statistics().listener_share_stalls == 0 {
            assert!(
                Instant::now() < deadline,
                "no connection waits for its share"
            );
            assert!(holders.len() < 11, "more than there is was handed out");
            let mut holder = client(address(0), "hold 128\nok?\n");
            is_answered(&mut holder);
            holders.push(holder);
            // Those that held theirs before memory was weighed are counted little by little.
            std::thread::sleep(Duration::from_millis(20));
        }
        let stalled = holders.last_mut().expect("one at least");
        stalled.write_all(b"ok?\n").expect("written");
        other.write_all(b"ok?\n").expect("written");
        is_answered(&mut other);
        for holder in &mut holders[..4] {
            holder.write_all(b"free\n").expect("written");
        }
        is_answered(holders.last_mut().expect("one at least"));
        running.handle().drain();
        drop(holders);
        drop(other);
        running.wait().expect("a clean end");
    });
}
