//! The chat on real sockets, with both drivers, and in the simulation.

use flatpath::{DriverChoice, Running, Server};
use flatpath_example_events::Chat;
use flatpath_http::Http;
use flatpath_test::{Conditions, TestServer, each_seed};
use flatpath_testkit::{Client, drivers_here, until};

fn serve(choice: DriverChoice) -> Running {
    let http = Http::service(Chat::default().router());
    let server = Server::new().driver(choice).listen("127.0.0.1:0", http);
    server.start().expect("it starts")
}

/// A client that listens, with the head of its stream read.
fn listener(running: &Running) -> Client {
    let mut client = Client::connect(running.addresses()[0].address);
    client.request("GET", "/events", &[]);
    expect_end_of(&mut client, "\r\n\r\n");
    client
}

fn expect_end_of(client: &mut Client, text: &str) {
    let mut bytes = Vec::new();
    while !bytes.ends_with(text.as_bytes()) {
        bytes.extend(client.exactly(1));
    }
}

fn await_count(client: &mut Client, count: usize) {
    until(&format!("{count} listeners"), || {
        (client.get("/count").text() == count.to_string()).then_some(())
    });
}

fn say(client: &mut Client, words: &str) {
    let length = words.len().to_string();
    client.request("POST", "/say", &[("Content-Length", &length)]);
    client.send(words.as_bytes());
    assert_eq!(client.reply().status, 204);
}

#[test]
fn all_get_what_one_says_and_a_drain_ends_their_streams() {
    for choice in drivers_here(DriverChoice::Uring, DriverChoice::Epoll) {
        let running = serve(choice);
        let mut speaker = Client::connect(running.addresses()[0].address);
        assert!(speaker.get("/").text().contains("EventSource"));
        let mut listeners: Vec<Client> = (0..3).map(|_| listener(&running)).collect();
        await_count(&mut speaker, 3);
        say(&mut speaker, "hello\nevent: none\n");
        let mut ids = Vec::new();
        for client in &mut listeners {
            expect_end_of(client, "event: said\nid: ");
            ids.push(client.line());
            expect_end_of(client, "data: hello\ndata: event: none\ndata: \n\n\r\n");
        }
        assert!(ids.iter().all(|id| *id == ids[0]), "{ids:?}");
        // One leaves.
        drop(listeners.pop());
        await_count(&mut speaker, 2);
        say(&mut speaker, "still here");
        for client in &mut listeners {
            expect_end_of(client, "\ndata: still here\n\n\r\n");
        }
        // One comes back, and one is new.
        let mut back = Client::connect(running.addresses()[0].address);
        back.request("GET", "/events", &[("Last-Event-ID", &ids[0])]);
        expect_end_of(&mut back, "\r\n\r\n");
        // The length of the first chunk.
        back.line();
        assert_eq!(back.line(), "event: said");
        expect_end_of(&mut back, "\ndata: still here\n\n\r\n");
        let mut new = Client::connect(running.addresses()[0].address);
        new.request("GET", "/events", &[]);
        expect_end_of(&mut new, "\ndata: hello\ndata: event: none\ndata: \n\n\r\n");
        expect_end_of(&mut new, "\ndata: still here\n\n\r\n");
        listeners.extend([back, new]);
        running.handle().drain();
        for client in &mut listeners {
            assert_eq!(client.exactly(5), b"0\r\n\r\n");
            client.expect_closed();
        }
        running.wait().expect("it ends");
    }
}

#[test]
fn sim_listeners_hear_each_other_whatever_the_kernel_does() {
    each_seed(30, |seed| {
        let http = Http::service(Chat::default().router());
        let mut server = TestServer::new(Conditions::rough(seed), http);
        let listeners = [server.connect(), server.connect()];
        for client in &listeners {
            client.write(b"GET /events HTTP/1.1\r\nHost: h\r\n\r\n");
            while server.read_line(client) != "\r\n" {}
        }
        let speaker = server.connect();
        speaker.write(b"POST /say HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello");
        for client in &listeners {
            while server.read_line(client) != "data: hello\n" {}
        }
    });
}
