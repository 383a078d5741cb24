//! The least that any relay has to ask of the kernel: accept, one receive, one send of `ok`, a
//! receive that finds the end, close. Nothing is matched. What a relay costs beyond this is its
//! own; what it costs below that, no relay can save.

use std::collections::HashMap;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};

/// Events taken with one call.
const EVENTS_MAX: usize = 1024;
const LISTENER: u64 = u64::MAX;

/// Runs until the process is ended.
pub(super) fn run(address: SocketAddr) -> io::Result<()> {
    let listener = TcpListener::bind(address)?;
    // The standard library asks for a backlog of 128.
    rustix::net::listen(&listener, 4096)?;
    listener.set_nonblocking(true)?;
    let epoll = epoll::create(CreateFlags::CLOEXEC)?;
    epoll::add(
        &epoll,
        &listener,
        EventData::new_u64(LISTENER),
        EventFlags::IN,
    )?;
    let mut streams: HashMap<u64, TcpStream> = HashMap::new();
    let mut events: Vec<epoll::Event> = Vec::with_capacity(EVENTS_MAX);
    loop {
        events.clear();
        epoll::wait(&epoll, rustix::buffer::spare_capacity(&mut events), None)?;
        for event in &events {
            let number = event.data.u64();
            if number == LISTENER {
                accept_all(&listener, &epoll, &mut streams)?;
            } else if let Some(stream) = streams.get_mut(&number)
                && !replies(stream)
            {
                streams.remove(&number);
            }
        }
    }
}

fn accept_all(
    listener: &TcpListener,
    epoll: &std::os::fd::OwnedFd,
    streams: &mut HashMap<u64, TcpStream>,
) -> io::Result<()> {
    loop {
        match listener.accept() {
            Ok((stream, _)) => {
                stream.set_nonblocking(true)?;
                let number = stream.as_raw_fd() as u64;
                let flags = EventFlags::IN | EventFlags::ET;
                epoll::add(epoll, &stream, EventData::new_u64(number), flags)?;
                streams.insert(number, stream);
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error),
        }
    }
}

/// One receive, and `ok` if there was something; whether the connection continues.
fn replies(stream: &mut TcpStream) -> bool {
    let mut bytes = [0; 256];
    match stream.read(&mut bytes) {
        Ok(0) => false,
        Ok(_) => stream.write_all(b"ok\n").is_ok(),
        Err(error) => error.kind() == ErrorKind::WouldBlock,
    }
}
