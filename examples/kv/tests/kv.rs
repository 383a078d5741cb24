//! The store in the simulation, and on real sockets with both drivers.

use flatpath::framing::LengthPrefix;
use flatpath::{DriverChoice, Limits, Server};
use flatpath_example_kv::{REQUEST_BYTES_MAX, Store};
use flatpath_test::{Conditions, MessageClient, TestServer, each_seed};

/// Replies may be longer than requests.
const SHORT: fn() -> LengthPrefix = || LengthPrefix::u32(60_000);

#[test]
fn sim_what_is_set_is_got_and_listed_in_order() {
    each_seed(50, |seed| {
        let mut server = TestServer::new(Conditions::rough(seed), Store::default().protocol());
        let mut client = server.connect_messages(SHORT());
        client.send("g a");
        for entry in ["s ab\n1", "s b\nnot this", "s aa\n2", "s ab\n3\n4"] {
            client.send(entry);
        }
        client.send("l a");
        client.send("g ab");
        client.send("l x");
        client.send("l ");
        client.send("q");
        client.send("g a");
        assert_eq!(client.read(&mut server), b"-no such key");
        for _ in 0..4 {
            assert_eq!(client.read(&mut server), b"+");
        }
        for reply in ["+aa\nab\n", "+3\n4", "+", "+aa\nab\nb\n", "+"] {
            let read = client.read(&mut server);
            assert_eq!(String::from_utf8_lossy(&read), reply);
        }
        client.read_end(&mut server);
    });
}

#[test]
fn sim_an_error_is_answered_and_ends_the_connection_after_what_was_before() {
    each_seed(20, |seed| {
        let wrong: [(&[u8], &str); 5] = [
            (b"x", "-a request is g, s, l or q"),
            (b"", "-a request is g, s, l or q"),
            (b"s no value", "-a request is g, s, l or q"),
            (b"g \xff", "-keys and values are UTF-8"),
            (b"q ", "-a request is g, s, l or q"),
        ];
        for (request, error) in wrong {
            let mut server = TestServer::new(Conditions::rough(seed), Store::default().protocol());
            let mut client = server.connect_messages(SHORT());
            client.send("s a\n1");
            client.send("l a");
            client.send(request);
            client.send("g a");
            for reply in ["+", "+a\n", error] {
                let read = client.read(&mut server);
                assert_eq!(String::from_utf8_lossy(&read), reply);
            }
            client.read_end(&mut server);
        }
    });
}

#[test]
fn sim_a_prefix_that_is_no_text_is_an_error_of_the_worker_and_the_client_goes_on() {
    let mut server = TestServer::new(Conditions::calm(1), Store::default().protocol());
    let mut client = server.connect_messages(SHORT());
    client.send(b"l \xff");
    client.send("l ");
    assert_eq!(client.read(&mut server), b"-keys and values are UTF-8");
    assert_eq!(client.read(&mut server), b"+");
}

#[test]
fn sim_a_request_that_is_too_long_ends_the_connection() {
    let mut server = TestServer::new(Conditions::calm(1), Store::default().protocol());
    let mut client = server.connect_messages(SHORT());
    client.send("g a");
    client.send(vec![b'g'; REQUEST_BYTES_MAX + 1]);
    assert_eq!(client.read(&mut server), b"-no such key");
    client.read_end(&mut server);
}

/// The one reply that is longer than a framing of the engine holds: its length, and the rest.
fn long_reply(bytes: &[u8]) -> &[u8] {
    let (length, rest) = bytes.split_at(4);
    let length = u32::from_be_bytes(length.try_into().expect("four"));
    assert_eq!(length as usize, rest.len());
    rest
}

#[test]
fn sim_a_long_list_comes_whole_to_a_client_that_reads_slowly() {
    each_seed(5, |seed| {
        let mut conditions = Conditions::rough(seed);
        conditions.limits.buffer_bytes_max = Limits::default().buffer_bytes_max;
        let mut server = TestServer::new(conditions, Store::default().protocol());
        let mut writer = server.connect_messages(SHORT());
        let mut listed = String::from("+");
        for number in 0..400 {
            let key = format!("{number:03}{}", "k".repeat(1000));
            writer.send(format!("s {key}\n"));
            assert_eq!(writer.read(&mut server), b"+");
            listed += &format!("{key}\n");
        }
        server.world().set_window_bytes(20_000);
        let reader = server.connect();
        reader.write(b"\0\0\0\x02l ");
        let list = server.read_exact(&reader, 4 + listed.len());
        assert!(long_reply(&list) == listed.as_bytes());
    });
}

#[test]
fn both_drivers_serve_many_clients_at_a_time() {
    for choice in [DriverChoice::Auto, DriverChoice::Epoll] {
        let server = Server::new().driver(choice);
        let server = server.listen("127.0.0.1:0", Store::default().protocol());
        let running = server.start().expect("it starts");
        let address = running.addresses()[0].address;
        let clients = (0..4).map(|number| {
            std::thread::spawn(move || {
                let mut client = MessageClient::connect(address, SHORT());
                let long = "v".repeat(10_000);
                for key in 0..50 {
                    client.send(format!("s {number}-{key:02}\n{long}{key}"));
                    client.send(format!("g {number}-{key:02}"));
                    client.send(format!("l {number}-"));
                    assert_eq!(client.read(), b"+");
                    assert_eq!(client.read(), format!("+{long}{key}").into_bytes());
                    let keys = (0..=key).map(|key| format!("{number}-{key:02}\n"));
                    let list: String = keys.collect();
                    assert_eq!(String::from_utf8(client.read()), Ok(format!("+{list}")));
                }
                client.send("q");
                assert_eq!(client.read(), b"+");
                client.read_end();
            })
        });
        for client in clients.collect::<Vec<_>>() {
            client.join().expect("no panic");
        }
        running.handle().drain();
        running.wait().expect("it ends");
    }
}
