//! Clients that are established and stay, and ask for the small file, one request at a time each,
//! with a pause after each reply: one thread, one epoll loop.

use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use flatpath_bench_common::http;
use flatpath_bench_common::source::Source;
use flatpath_testkit::clients::{Clients, Connection};
use flatpath_testkit::tls::TlsClient;
use rustix::net::SocketFlags;

use super::newcomers::{Counts, LOOK_EVERY};
use super::tls::{self, Client};
use crate::ground::SMALL_PATH;

/// Between a reply and the next request of a client.
const PAUSE: Duration = Duration::from_millis(10);

/// See the module.
pub(crate) struct Calm {
    clients: Clients,
    members: Vec<Member>,
    request: Vec<u8>,
}

struct Member {
    wire: TlsClient,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Its next request is due then.
    Rests(Instant),
    /// It waits for the reply to a request that was sent then.
    Asked(Instant),
    /// Its connection has failed.
    Lost,
}

impl Calm {
    /// Connects them, and waits until each is established.
    ///
    /// # Errors
    /// `TimedOut`; if sockets cannot be made, or a connection fails.
    pub(crate) fn connect(client: &Client, address: SocketAddr, count: u32) -> io::Result<Self> {
        let mut calm = Self {
            clients: Clients::new()?,
            members: Vec::new(),
            request: http::request(SMALL_PATH),
        };
        let (mut source, begin) = (Source::fresh(), Instant::now());
        for index in 0..count as usize {
            let mut wire = client.wire();
            let socket = source.dial(address, SocketFlags::NONBLOCK)?;
            calm.clients.insert(index, socket.into(), wire.take())?;
            let state = State::Rests(begin);
            calm.members.push(Member { wire, state });
        }
        while calm.members.iter().any(|it| it.wire.tls.is_handshaking()) {
            if begin.elapsed() > http::PATIENCE {
                let message = "the calm clients could not shake hands";
                return Err(io::Error::new(io::ErrorKind::TimedOut, message));
            }
            for index in calm.clients.wait(LOOK_EVERY)? {
                if let Some(connection) = calm.clients.get(index) {
                    calm.members[index].receive(connection)?;
                }
            }
        }
        Ok(calm)
    }

    /// They ask for so long, beginning one after the other, and wait for what was asked before the
    /// end. A client without a reply, then or before, is lost and has failed.
    ///
    /// # Errors
    /// What epoll reports; not one reply.
    pub(crate) fn ask(&mut self, time: Duration) -> io::Result<Counts> {
        let (begin, mut counts) = (Instant::now(), Counts::none());
        let end = begin + time;
        self.spread(begin);
        loop {
            let now = Instant::now();
            if now < end {
                self.send_what_is_due(now);
            } else if now > end + http::PATIENCE || !self.any_asked() {
                break;
            }
            for index in self.clients.wait(self.pause(now))? {
                self.look(index, &mut counts);
            }
        }
        for member in &mut self.members {
            if let State::Asked(_) = member.state {
                member.lose(&mut counts);
            }
        }
        match counts.served {
            0 => Err(io::Error::other("not one reply to a calm client")),
            _ => Ok(counts),
        }
    }

    /// The first requests, over the length of a pause.
    fn spread(&mut self, begin: Instant) {
        let apart = PAUSE.as_secs_f64() / self.members.len().max(1) as f64;
        for (number, member) in self.members.iter_mut().enumerate() {
            if let State::Rests(_) = member.state {
                let after = Duration::from_secs_f64(apart * number as f64);
                member.state = State::Rests(begin + after);
            }
        }
    }

    fn send_what_is_due(&mut self, now: Instant) {
        for (index, member) in self.members.iter_mut().enumerate() {
            let State::Rests(due) = member.state else {
                continue;
            };
            let Some(connection) = self.clients.get(index).filter(|_| due <= now) else {
                continue;
            };
            member.state = State::Asked(Instant::now());
            member.send(connection, &self.request);
        }
    }

    fn any_asked(&self) -> bool {
        let mut states = self.members.iter().map(|member| member.state);
        states.any(|state| matches!(state, State::Asked(_)))
    }

    /// Until the next request is due.
    fn pause(&self, now: Instant) -> Duration {
        let due = self.members.iter().filter_map(|member| match member.state {
            State::Rests(due) => Some(due.saturating_duration_since(now)),
            _ => None,
        });
        due.min().unwrap_or(LOOK_EVERY).min(LOOK_EVERY)
    }

    fn look(&mut self, index: usize, counts: &mut Counts) {
        let (Some(connection), Some(member)) =
            (self.clients.get(index), self.members.get_mut(index))
        else {
            return;
        };
        match (member.receive(connection), member.state) {
            (_, State::Lost) => {}
            (Ok(true), State::Asked(sent)) => {
                counts.serve(sent);
                member.wire.heard.clear();
                member.state = State::Rests(Instant::now() + PAUSE);
            }
            (Ok(false), _) if connection.end.is_none() => {}
            _ => member.lose(counts),
        }
    }
}

impl Member {
    fn send(&mut self, connection: &mut Connection, request: &[u8]) {
        self.wire.say(request);
        connection.send(self.wire.take());
    }

    /// Whether a whole reply is there.
    fn receive(&mut self, connection: &mut Connection) -> io::Result<bool> {
        tls::step(&mut self.wire, connection)?;
        tls::is_answered(&self.wire)
    }

    fn lose(&mut self, counts: &mut Counts) {
        self.state = State::Lost;
        counts.failed += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::super::tls::tests::server;
    use super::*;
    use flatpath_testkit::Issued;

    #[test]
    fn each_asks_again_after_a_pause_and_never_sooner() {
        let issued = Issued::for_localhost();
        let client = Client::new(&issued, &[]).expect("made");
        let mut calm = Calm::connect(&client, server(&issued), 3).expect("established");
        for _ in 0..2 {
            let (time, begin) = (PAUSE * 10, Instant::now());
            let counts = calm.ask(time).expect("answered");
            let most = 3 * (begin.elapsed().as_millis() / PAUSE.as_millis() + 1);
            assert!(u128::from(counts.served) <= most, "{}", counts.served);
            assert!(counts.served >= 3, "{}", counts.served);
            assert_eq!(counts.failed, 0);
        }
    }
}
