//! What a request costs where one follows the other: a reply that went out is no reason for a turn
//! of its own.

use std::io::{Read, Write};
use std::net::TcpStream;

use crate::lines::on_both;
use flatpath::{Context, Phase, Protocol, Received, Server};

use flatpath_testkit::patience;
const REQUESTS: u64 = 300;

/// Answers every byte with one.
struct Answers;

impl Protocol for Answers {
    type ThreadState = ();
    type Session = ();
    type Job = ();

    fn received(&self, context: &mut Context<'_, Self>, input: &[u8]) -> Received {
        context.write(input).expect("room");
        context.phase(Phase::Idle);
        Received::Consumed
    }
}

#[test]
fn a_request_after_another_costs_one_turn() {
    on_both(|choice| {
        let server = Server::new().driver(choice).listen("127.0.0.1:0", Answers);
        let running = server.start().expect("started");
        let mut client = TcpStream::connect(running.addresses()[0].address).expect("connected");
        client.set_read_timeout(Some(patience())).expect("set");
        client.set_nodelay(true).expect("set");
        let mut ask = || {
            client.write_all(b"?").expect("sent");
            client.read_exact(&mut [0]).expect("answered");
        };
        (0..20).for_each(|_| ask());
        let turns = || running.handle().figures().threads[0].turns.count();
        let before = turns();
        (0..REQUESTS).for_each(|_| ask());
        let turns = turns() - before;
        // Beside them: timers, and the pauses of a machine that has other things to do.
        assert!(turns <= REQUESTS + REQUESTS / 2, "{turns} turns");
    });
}
