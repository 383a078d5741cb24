//! A producer with a consumer of its own: both name the same token, and the messages of the one go
//! to the other process only, in the memory where they were received.
//!
//! ```console
//! $ cargo run -p flatpath-ingest --example paired
//! ```

use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;

use flatpath::Server;
use flatpath_consumer::Consumer;
use flatpath_ingest::{Ingest, Settings};
use flatpath_messages::framing::{length, naming};

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Sends messages as a producer with a token.
pub(crate) fn produce(
    address: SocketAddr,
    token: u64,
    messages: &[&[u8]],
) -> std::io::Result<TcpStream> {
    let mut stream = TcpStream::connect(address)?;
    stream.write_all(&naming(token))?;
    for message in messages {
        let length = length(message.len()).ok_or(std::io::ErrorKind::InvalidInput)?;
        stream.write_all(&length)?;
        stream.write_all(message)?;
    }
    Ok(stream)
}

/// Attaches as the consumer of a token; this would be another process.
pub(crate) fn consume(socket: &Path, token: u64) -> Result<Consumer, flatpath_consumer::Error> {
    Consumer::attach_for(socket, token)
}

#[allow(dead_code, reason = "the test has one of its own")]
fn main() -> Result<(), Failure> {
    let socket = std::env::temp_dir().join(format!("flatpath-paired-{}", std::process::id()));
    let (ingest, _control) = Ingest::open(Settings::new(socket.clone()))?;
    let running = Server::new().listen("127.0.0.1:0", ingest).start()?;
    let address = running.addresses()[0].address;
    let mut consumer = consume(&socket, 7)?;
    let _producer = produce(address, 7, &[b"for seven", b"and again"])?;
    for _ in 0..2 {
        let message = consumer.receive()?.ok_or("the server is there")?;
        println!("{}", String::from_utf8_lossy(&message.to_vec()));
    }
    Ok(())
}
