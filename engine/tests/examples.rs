//! The examples do what they say, on io_uring and on epoll.

#[path = "../examples/rendezvous.rs"]
mod rendezvous;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use flatpath::{Choice, Server};
use rendezvous::Rendezvous;

#[test]
fn rendezvous_joins_one_who_gives_with_one_who_takes() {
    for choice in [Choice::Uring, Choice::Epoll] {
        let server = Server::new().driver(choice);
        let running = server.listen("127.0.0.1:0", Rendezvous::new()).start();
        let running = running.expect("started");
        let address = running.addresses()[0].address;
        let say = |words: &[u8]| {
            let mut stream = TcpStream::connect(address).expect("connected");
            let patience = Some(Duration::from_secs(20));
            stream.set_read_timeout(patience).expect("a deadline");
            stream.write_all(words).expect("written");
            stream
        };
        let hear = |stream: &mut TcpStream, words: &[u8]| {
            let mut heard = vec![0; words.len()];
            stream.read_exact(&mut heard).expect("in time");
            assert_eq!(heard, words);
        };
        let mut giver = say(b"give coffee\n");
        let mut taker = say(b"take coffee\n");
        hear(&mut giver, b"here you are\n");
        hear(&mut taker, b"here you are\n");
        giver.write_all(b"a cup").expect("open");
        hear(&mut taker, b"a cup");
        // The word has both its sides.
        hear(&mut say(b"take coffee\n"), b"no:");
        running.handle().force();
        running.wait().expect("a clean end");
    }
}
