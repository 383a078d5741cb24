//! Clients that are established and stay, and ask for the small file, one request at a time each,
//! with a pause after each reply: one thread, one epoll loop.

use std::io;
use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use flatpath_bench_common::http;
use flatpath_bench_common::scheduling;
use flatpath_bench_common::source::Source;
use flatpath_testkit::clients::{Clients, Connection};
use rustix::net::SocketFlags;

use super::client::{Client, Wire};
use super::newcomers::{Counts, LOOK_EVERY};
use crate::session::SMALL_PATH;

/// Between a reply and the next request of a client.
const PAUSE: Duration = Duration::from_millis(10);

/// Handle of the thread that runs the calm clients whenever it is told to. Dropping it ends the
/// thread.
pub(super) struct Asking {
    times: Sender<Duration>,
    counts: Receiver<io::Result<Counts>>,
}

/// See the module.
struct Calm {
    clients: Clients,
    members: Vec<Member>,
    request: Vec<u8>,
}

struct Member {
    wire: Wire,
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

impl Asking {
    /// Connects `count` clients. With `is_first` their thread is the first to get a core.
    ///
    /// # Errors
    /// No thread. That they could not connect is what [`ask`](Self::ask) reports.
    pub(super) fn begin(
        client: &Client,
        address: SocketAddr,
        count: u32,
        is_first: bool,
    ) -> io::Result<Self> {
        let ((times, told), (tell, counts)) = (channel(), channel());
        let client = client.clone();
        let ask = move || {
            let calm = begin_here(&client, address, count, is_first);
            let mut calm = match calm {
                Ok(calm) => calm,
                // The receiver may be gone already.
                Err(error) => return drop(tell.send(Err(error))),
            };
            for time in told {
                if tell.send(calm.ask(time)).is_err() {
                    return;
                }
            }
        };
        thread::Builder::new().name("calm".into()).spawn(ask)?;
        Ok(Self { times, counts })
    }

    /// They ask for so long: what came of it.
    ///
    /// # Errors
    /// They could not connect; not one reply.
    pub(super) fn ask(&self, time: Duration) -> io::Result<Counts> {
        // A thread that has ended has said why.
        let _ = self.times.send(time);
        let counts = self.counts.recv();
        counts.unwrap_or_else(|_| Err(io::Error::other("the calm clients' thread has ended")))
    }
}

fn begin_here(
    client: &Client,
    address: SocketAddr,
    count: u32,
    is_first: bool,
) -> io::Result<Calm> {
    if is_first && !scheduling::takes_latencies()? {
        eprintln!("only root may give the clients a core first: latencies hold their waits");
    }
    Calm::connect(client, address, count)
}

impl Calm {
    /// Connects them, and waits until each is established.
    ///
    /// # Errors
    /// `TimedOut`; if sockets cannot be made, or a connection fails.
    fn connect(client: &Client, address: SocketAddr, count: u32) -> io::Result<Self> {
        let mut calm = Self {
            clients: Clients::new()?,
            members: Vec::new(),
            request: http::request(SMALL_PATH),
        };
        let (mut source, begin) = (Source::fresh(), Instant::now());
        for index in 0..count as usize {
            let mut wire = client.wire()?;
            let socket = source.dial(address, SocketFlags::NONBLOCK)?;
            calm.clients.insert(index, socket.into(), wire.output()?)?;
            let state = State::Rests(begin);
            calm.members.push(Member { wire, state });
        }
        while calm.members.iter().any(|it| !it.wire.is_established()) {
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
    fn ask(&mut self, time: Duration) -> io::Result<Counts> {
        let (begin, mut counts) = (Instant::now(), Counts::none());
        let end = begin + time;
        self.spread(begin);
        loop {
            let now = Instant::now();
            if now < end {
                self.send_what_is_due(now, &mut counts);
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

    fn send_what_is_due(&mut self, now: Instant, counts: &mut Counts) {
        for (index, member) in self.members.iter_mut().enumerate() {
            let State::Rests(due) = member.state else {
                continue;
            };
            let Some(connection) = self.clients.get(index).filter(|_| due <= now) else {
                continue;
            };
            member.state = State::Asked(Instant::now());
            if member.send(connection, &self.request).is_err() {
                member.lose(counts);
            }
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
                member.wire.plain.clear();
                member.state = State::Rests(Instant::now() + PAUSE);
            }
            (Ok(false), _) if connection.end.is_none() => {}
            _ => member.lose(counts),
        }
    }
}

impl Member {
    fn send(&mut self, connection: &mut Connection, request: &[u8]) -> io::Result<()> {
        self.wire.ask(request)?;
        connection.send(self.wire.output()?);
        Ok(())
    }

    /// Whether a whole reply is there.
    fn receive(&mut self, connection: &mut Connection) -> io::Result<bool> {
        self.wire.take(&mut connection.received)?;
        let output = self.wire.output()?;
        if !output.is_empty() {
            connection.send(output);
        }
        match http::frame(&self.wire.plain)? {
            None => Ok(false),
            Some(framed) if framed.status == 200 => Ok(true),
            Some(framed) => Err(io::Error::other(format!("status {}", framed.status))),
        }
    }

    fn lose(&mut self, counts: &mut Counts) {
        self.state = State::Lost;
        counts.failed += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::super::client::tests::server;
    use super::*;
    use crate::certificate::Pair;

    #[test]
    fn each_asks_again_after_a_pause_and_never_sooner() {
        let pair = Pair::make().expect("made");
        let client = Client::new(&pair, &[]).expect("made");
        let calm = Asking::begin(&client, server(&pair), 3, false).expect("a thread");
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
