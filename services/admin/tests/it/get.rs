//! One request on a connection of its own.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use flatpath_testkit::patience;

/// The whole answer.
pub(crate) fn get(address: SocketAddr, path: &str) -> String {
    let mut client = TcpStream::connect(address).expect("connected");
    client.set_read_timeout(Some(patience())).expect("set");
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    client.write_all(request.as_bytes()).expect("written");
    let mut reply = String::new();
    client.read_to_string(&mut reply).expect("an answer");
    reply
}
