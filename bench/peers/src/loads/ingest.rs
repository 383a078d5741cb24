//! Large messages from producers to consumers in other processes, the same for every server. Each
//! run has a fresh server, a consumer process for each producer, and one process of producers.
//!
//! A consumer adds up all it receives, word by word: the least that a reader of a payload does. The
//! sum shows that it is what was sent.

use std::io::{self, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use flatpath_bench_common::servers::{Metric, Run};
use flatpath_consumer::{Consumer, Message};
use flatpath_testkit::child::{self, Child};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::comparison::{Load, Row, Turn};
use crate::ground::Ground;
use crate::instructions::this_program;

/// Producers, and consumers.
pub(crate) const FLOWS: u32 = 4;
/// Bytes of a message.
pub(crate) const MESSAGE_BYTES: u32 = 1 << 20;
/// How long a consumer may take to attach.
const ATTACH_MAX: Duration = Duration::from_secs(10);

/// From the first byte sent until the last message was added up.
pub(crate) const RATE: Metric = Metric::median("GiB/s");
/// The server's CPU time.
pub(crate) const CPU: Metric = Metric::median("server s/GiB");
/// The server's and the consumers'.
pub(crate) const BOTH: Metric = Metric::median("with consumers");
/// Bytes of a fragment, on average.
const FRAGMENT: Metric = Metric::median("fragment B");

/// Longer than any pause of a run; a hang becomes an error.
const PATIENCE: Duration = Duration::from_secs(30);

/// One consumer.
#[derive(Args, Debug)]
pub(crate) struct Consume {
    /// Where to attach
    #[arg(long)]
    socket: PathBuf,
    /// Messages of each producer
    #[arg(long)]
    messages: u32,
}

/// All producers.
#[derive(Args, Debug)]
pub(crate) struct Produce {
    /// Where to connect
    #[arg(long)]
    address: SocketAddr,
    /// Messages of each producer
    #[arg(long)]
    messages: u32,
}

/// This many messages of each producer.
pub(crate) struct Messages(pub(crate) u32);

impl Load for Messages {
    fn start<'a>(&'a self, ground: &'a Ground, row: &'a Row) -> io::Result<Turn<'a>> {
        Ok(Box::new(move || self.measure(ground, row)))
    }
}

impl Messages {
    fn measure(&self, ground: &Ground, row: &Row) -> io::Result<Run> {
        let server = row.start(ground)?;
        let socket = format!("--socket={}", server.socket().display());
        let mut consumers = Vec::new();
        while consumers.len() < FLOWS as usize {
            // The tokio server makes its socket after it says that it is ready.
            let mut consumer = self.client("consume", &socket)?;
            match consumer.line(ATTACH_MAX) {
                Ok(_attached) => consumers.push(consumer),
                Err(_) => thread::sleep(Duration::from_millis(10)),
            }
        }
        let expected = sum().wrapping_mul(u64::from(self.0));
        let address = format!("--address={}", server.address);
        let started = Instant::now();
        let ((total, produced), used) = server.watch(|| {
            let produced: Produced = result(&mut self.client("produce", &address)?)?;
            let mut total = Received::default();
            for consumer in &mut consumers {
                let received: Received = result(consumer)?;
                if received.sum != expected {
                    return Err(io::Error::other("the payload has changed"));
                }
                total.bytes += received.bytes;
                total.fragments += received.fragments;
                total.cpu_seconds += received.cpu_seconds;
            }
            Ok((total, produced))
        })?;
        // Of both: without the start of the producers' process, and until all was added up.
        let seconds = started.elapsed().as_secs_f64().max(produced.seconds);
        let server_seconds = used.server.as_secs_f64();
        let gibibytes = total.bytes as f64 / f64::from(1 << 30);
        Ok(vec![
            (RATE, gibibytes / seconds),
            (CPU, server_seconds / gibibytes),
            (BOTH, (server_seconds + total.cpu_seconds) / gibibytes),
            (FRAGMENT, total.bytes as f64 / total.fragments as f64),
        ])
    }

    fn client(&self, role: &str, place: &str) -> io::Result<Child> {
        let mut command = child::command(this_program(), &[]);
        command.args([role, place, &format!("--messages={}", self.0)]);
        Child::start(&mut command)
    }
}

/// What a consumer received.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
struct Received {
    bytes: u64,
    sum: u64,
    fragments: u64,
    /// This process's processor time, in seconds.
    cpu_seconds: f64,
}

/// What the producers did.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Produced {
    seconds: f64,
    cpu_seconds: f64,
}

/// The payload of every message: words that differ.
fn payload() -> Vec<u8> {
    let words = (0..u64::from(MESSAGE_BYTES).div_ceil(8)).map(|at| at ^ 0x5bd1_e995);
    words.flat_map(u64::to_le_bytes).collect()
}

/// The sum of a payload in one piece, as a consumer adds it up.
fn sum() -> u64 {
    let mut adder = Adder::default();
    adder.add(&payload());
    adder.end()
}

/// What a client prints at its end.
fn result<T: DeserializeOwned>(client: &mut Child) -> io::Result<T> {
    Ok(serde_json::from_str(&client.line(PATIENCE)?)?)
}

/// Adds up little-endian words of a message in pieces.
#[derive(Default)]
struct Adder {
    sum: u64,
    rest: u64,
    rest_bytes: u32,
}

impl Adder {
    fn add(&mut self, mut bytes: &[u8]) {
        while self.rest_bytes > 0
            && let Some((byte, rest)) = bytes.split_first()
        {
            self.byte(*byte);
            bytes = rest;
        }
        let (words, rest) = bytes.as_chunks::<8>();
        let sum = words
            .iter()
            .map(|word| u64::from_le_bytes(*word))
            .fold(0, u64::wrapping_add);
        self.sum = self.sum.wrapping_add(sum);
        for byte in rest {
            self.byte(*byte);
        }
    }

    fn byte(&mut self, byte: u8) {
        self.rest |= u64::from(byte) << (8 * self.rest_bytes);
        self.rest_bytes += 1;
        if self.rest_bytes == 8 {
            self.sum = self.sum.wrapping_add(self.rest);
            (self.rest, self.rest_bytes) = (0, 0);
        }
    }

    fn end(self) -> u64 {
        self.sum.wrapping_add(self.rest)
    }
}

fn add_up(message: &Message) -> u64 {
    let mut adder = Adder::default();
    for fragment in message.fragments() {
        adder.add(fragment);
    }
    adder.end()
}

/// Receives as many messages as one producer sends.
pub(crate) fn consume(consume: &Consume) -> io::Result<()> {
    let mut consumer = Consumer::attach(&consume.socket).map_err(io::Error::other)?;
    println!("attached");
    let mut received = Received::default();
    for _ in 0..consume.messages {
        let message = consumer
            .receive_timeout(PATIENCE)
            .map_err(io::Error::other)?
            .ok_or_else(|| io::Error::other("the server is gone"))?;
        received.bytes += message.len() as u64;
        received.fragments += message.fragments().len() as u64;
        received.sum = received.sum.wrapping_add(add_up(&message));
    }
    received.cpu_seconds = own_cpu_seconds();
    println!("{}", serde_json::to_string(&received)?);
    Ok(())
}

/// Sends everything, a thread for each producer.
pub(crate) fn produce(produce: &Produce) -> io::Result<()> {
    let payload = payload();
    let head = MESSAGE_BYTES.to_be_bytes();
    let mut streams = Vec::new();
    for _ in 0..FLOWS {
        streams.push(TcpStream::connect(produce.address)?);
    }
    let message = [&head[..], &payload].concat();
    let messages = produce.messages;
    let started = Instant::now();
    thread::scope(|scope| {
        let senders: Vec<_> = streams
            .iter_mut()
            .map(|stream| {
                let message = &message;
                scope.spawn(move || (0..messages).try_for_each(|_| stream.write_all(message)))
            })
            .collect();
        senders
            .into_iter()
            .try_for_each(|sender| -> io::Result<()> {
                sender
                    .join()
                    .map_err(|_| io::Error::other("a sender panicked"))?
            })
    })?;
    let produced = Produced {
        seconds: started.elapsed().as_secs_f64(),
        cpu_seconds: own_cpu_seconds(),
    };
    println!("{}", serde_json::to_string(&produced)?);
    Ok(())
}

fn own_cpu_seconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sum_does_not_depend_on_the_pieces() {
        let payload = &payload()[..1003];
        let mut whole = Adder::default();
        whole.add(payload);
        let whole = whole.end();
        for cut in [1, 7, 8, 9, 500, 1002] {
            let mut adder = Adder::default();
            adder.add(&payload[..cut]);
            adder.add(&payload[cut..]);
            assert_eq!(adder.end(), whole, "cut at {cut}");
        }
    }
}
