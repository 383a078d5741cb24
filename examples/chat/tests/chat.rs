//! The chat on real sockets, with both drivers, and in the simulation.

use flatpath::{DriverChoice, Running, Server};
use flatpath_example_chat::Chat;
use flatpath_http::Http;
use flatpath_test::{Conditions, TestServer, each_seed};
use flatpath_testkit::websocket::{CLOSE, HANDSHAKE, TEXT, frame, next_frame, open};
use flatpath_testkit::{Client, drivers_here};

fn text(words: &str) -> Vec<u8> {
    frame(TEXT, words)
}

fn serve(choice: DriverChoice) -> Running {
    let http = Http::service(Chat::default().router());
    let server = Server::new().driver(choice).listen("127.0.0.1:0", http);
    server.start().expect("it starts")
}

/// A client that has joined.
fn join(running: &Running, name: &str) -> Client {
    let mut client = Client::connect(running.addresses()[0].address);
    open(&mut client, "/chat");
    client.send(text(name));
    client
}

fn hears(client: &mut Client, words: &str) {
    let heard = next_frame(|bytes| client.exactly(bytes));
    assert_eq!(heard, (TEXT, words.as_bytes().to_vec()));
}

#[test]
fn all_get_what_one_says_and_learn_who_leaves() {
    for choice in drivers_here(DriverChoice::Uring, DriverChoice::Epoll) {
        let running = serve(choice);
        let mut page = Client::connect(running.addresses()[0].address);
        assert!(page.get("/").text().contains("new WebSocket"));
        let mut ada = join(&running, "Ada");
        hears(&mut ada, "Ada has come");
        let mut bob = join(&running, "Bob");
        for client in [&mut ada, &mut bob] {
            hears(client, "Bob has come");
        }
        bob.send(text("hello"));
        for client in [&mut ada, &mut bob] {
            hears(client, "Bob: hello");
        }
        drop(bob);
        hears(&mut ada, "Bob has left");
        running.handle().drain();
        let farewell = next_frame(|bytes| ada.exactly(bytes));
        assert_eq!(farewell, (CLOSE, 1001_u16.to_be_bytes().to_vec()));
        drop(ada);
        running.wait().expect("it ends");
    }
}

#[test]
fn pages_of_other_servers_may_not_join() {
    let running = serve(DriverChoice::Epoll);
    let mut client = Client::connect(running.addresses()[0].address);
    let foreign = [&HANDSHAKE[..], &[("Origin", "https://elsewhere.example")]].concat();
    client.request("GET", "/chat", &foreign);
    assert_eq!(client.reply().status, 403);
    running.handle().drain();
    running.wait().expect("it ends");
}

#[test]
fn sim_what_is_said_comes_to_all_in_one_order() {
    each_seed(30, |seed| {
        let http = Http::service(Chat::default().router());
        let mut server = TestServer::new(Conditions::rough(seed), http);
        let clients: Vec<_> = (0..3).map(|_| server.connect()).collect();
        for (number, client) in clients.iter().enumerate() {
            client.write(b"GET /chat HTTP/1.1\r\nHost: h\r\n");
            for (name, value) in HANDSHAKE {
                client.write(format!("{name}: {value}\r\n").as_bytes());
            }
            client.write(b"\r\n");
            while server.read_line(client) != "\r\n" {}
            client.write(&text(&format!("{number}")));
            // All who are there, the newcomer among them, learn of it.
            for there in &clients[..=number] {
                let frame = server.read_exact(there, 12);
                assert_eq!(frame[2..], *format!("{number} has come").as_bytes());
            }
        }
        for (number, client) in clients.iter().enumerate() {
            client.write(&text(&format!("I am {number}")));
        }
        let heard: Vec<Vec<u8>> = clients
            .iter()
            .map(|client| server.read_exact(client, 3 * 11))
            .collect();
        assert!(heard.iter().all(|words| *words == heard[0]), "{heard:?}");
    });
}
