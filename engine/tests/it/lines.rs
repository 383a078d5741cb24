//! A protocol for tests: one command a line, and a reply for each.
//!
//! | command    | answered | reply                                          |
//! |------------|----------|------------------------------------------------|
//! | `ping`     | inline   | `pong`                                         |
//! | `work N`   | pooled   | `done N`, in any order                         |
//! | `sleep MS` | pooled   | `slept MS` after so long                       |
//! | `panic`    | pooled   | `panicked`                                     |
//! | `boom`     | inline   | none: the connection is cut                    |
//! | `big N`    | inline   | N bytes `x` and a line end, as output drains    |
//! | `last`     | inline   | `lasts`, as long as the connection does; or `no`|
//! | `bye`      | inline   | `bye`, then closed                             |
//! | `linger`   | inline   | `bye`, then closed once its client has ended   |
//! | `tls?`     | inline   | `TLS` or `no TLS`, as the connection has it     |
//! | `tls`      | inline   | `begin`, and TLS does; or `cannot`              |

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::panic::resume_unwind;
use std::time::Duration;

use flatpath::{
    Context, DriverChoice, Event, Job, ListenerOptions, Phase, Protocol, Received, Running, Server,
    Stall, WorkerScope,
};
use flatpath_testkit::deadline::is_slow;
use flatpath_testkit::{drivers_here, patience};

/// Jobs of one connection at once.
const PIPELINE_MAX: u32 = 64;

/// See the module.
pub(crate) struct Lines;

/// Bytes of a big reply still owed.
#[derive(Default)]
pub(crate) struct Session {
    owed: usize,
    ended: bool,
    /// Jobs that last as long as the connection.
    lasting: Vec<Job<Lines>>,
    /// Replies that came back in the middle of a big one.
    held: String,
}

/// A command with a worker, then its reply.
#[derive(Default)]
pub(crate) struct Command {
    line: String,
    reply: String,
}

impl Lines {
    fn produce(&self, context: &mut Context<'_, Self>) {
        const CHUNK: [u8; 4096] = [b'x'; 4096];
        while context.session.owed > 0 && !context.output_is_full() {
            let count = context.session.owed.min(CHUNK.len());
            if context.write(&CHUNK[..count]).is_err() {
                break;
            }
            context.session.owed -= count;
        }
        if context.session.owed > 0 {
            context.notify_output_low();
        } else {
            context.phase(Phase::Idle);
            context.write(b"\n").expect("room for a line end");
            let held = std::mem::take(&mut context.session.held);
            context.write(held.as_bytes()).expect("room");
            Self::finish_if_ended(context);
        }
    }

    fn says_whether_secured(context: &mut Context<'_, Self>) {
        let reply: &[u8] = match context.is_secured() {
            true => b"TLS\n",
            false => b"no TLS\n",
        };
        context.write(reply).expect("room");
    }

    fn begins_tls(context: &mut Context<'_, Self>) -> bool {
        let begins = context.start_tls();
        let reply: &[u8] = if begins { b"begin\n" } else { b"cannot\n" };
        context.write(reply).expect("room");
        begins
    }

    fn finish_if_ended(context: &mut Context<'_, Self>) {
        if context.session.ended && context.session.owed == 0 && context.jobs_out() == 0 {
            context.close_after_output();
        }
    }
}

impl Protocol for Lines {
    type ThreadState = ();
    type Session = Session;
    type Job = Command;

    fn options(&self) -> ListenerOptions {
        ListenerOptions {
            refusal: flatpath::Bytes::from_static(b"full\n"),
            alpn: &["lines"],
            ..ListenerOptions::named("lines")
        }
    }

    fn received(&self, context: &mut Context<'_, Self>, input: &[u8]) -> Received {
        let (mut consumed, mut blocked) = (0, None);
        while let Some(length) = input[consumed..].iter().position(|byte| *byte == b'\n') {
            if context.session.owed > 0 || context.output_is_full() {
                blocked = Some(Stall::Output);
                break;
            }
            if context.jobs_out() >= PIPELINE_MAX {
                blocked = Some(Stall::Pipeline);
                break;
            }
            let line = String::from_utf8_lossy(&input[consumed..consumed + length]).into_owned();
            match line.split(' ').next().unwrap_or_default() {
                "ping" => context.write(b"pong\n").expect("room"),
                "last" => {
                    let mut job = context.job().expect("a test leaves room for short ones");
                    let lasts = context.lasts(&mut job);
                    match lasts {
                        true => context.session.lasting.push(job),
                        false => context.recycle(job),
                    }
                    let reply: &[u8] = if lasts { b"lasts\n" } else { b"no\n" };
                    context.write(reply).expect("room");
                }
                "tls?" => Self::says_whether_secured(context),
                "tls" if Self::begins_tls(context) => {
                    consumed += length + 1;
                    break;
                }
                "tls" => {}
                "boom" => resume_unwind(Box::new("as asked")),
                "bye" => {
                    context.write(b"bye\n").expect("room");
                    context.close_after_output();
                }
                "linger" => {
                    context.write(b"bye\n").expect("room");
                    context.close_lingering();
                }
                "big" => {
                    context.session.owed = line[4..].parse().expect("a number");
                    self.produce(context);
                }
                _ => {
                    let Some(mut job) = context.job() else {
                        blocked = Some(Stall::Jobs);
                        break;
                    };
                    job.line = line;
                    context.dispatch(job);
                }
            }
            consumed += length + 1;
        }
        match input.len() - consumed {
            _ if context.session.owed > 0 || !context.session.lasting.is_empty() => {
                context.phase(Phase::Work);
            }
            0 => context.restart_phase(Phase::Idle),
            _ => context.phase(Phase::Head),
        }
        match blocked {
            Some(on) => Received::Blocked { consumed, on },
            None => Received::NeedMore { consumed },
        }
    }

    fn event(&self, context: &mut Context<'_, Self>, event: Event<'_>) {
        match event {
            Event::InputEnded(_) => {
                context.session.ended = true;
                Self::finish_if_ended(context);
            }
            Event::OutputLow => self.produce(context),
            other => other.by_default(context),
        }
    }

    fn run(&self, job: &mut Command, _scope: &mut WorkerScope<'_>) {
        let (word, rest) = job.line.split_once(' ').unwrap_or((job.line.as_str(), ""));
        job.reply = match word {
            "work" => format!("done {rest}\n"),
            "sleep" => {
                std::thread::sleep(Duration::from_millis(rest.parse().expect("a number")));
                format!("slept {rest}\n")
            }
            "panic" => resume_unwind(Box::new("as asked")),
            _ => "what?\n".into(),
        };
    }

    fn panicked(&self, job: &mut Command) {
        job.reply = "panicked\n".into();
    }

    fn finished(&self, context: &mut Context<'_, Self>, job: Job<Self>) {
        if context.session.owed > 0 {
            context.session.held.push_str(&job.reply);
        } else {
            context.write(job.reply.as_bytes()).expect("room");
        }
        context.recycle(job);
        Self::finish_if_ended(context);
    }
}

/// A server of lines on a free port, and a client's end.
pub(crate) struct Site {
    running: Option<Running>,
    pub(crate) address: SocketAddr,
}

impl Site {
    pub(crate) fn new(choice: DriverChoice, adjust: impl FnOnce(Server) -> Server) -> Site {
        let server = Server::new().driver(choice).listen("127.0.0.1:0", Lines);
        let running = adjust(server).start().expect("the server starts");
        let address = running.addresses()[0].address;
        Site {
            running: Some(running),
            address,
        }
    }

    pub(crate) fn running(&self) -> &Running {
        self.running.as_ref().expect("not yet ended")
    }

    pub(crate) fn client(&self) -> Client {
        Client::of(TcpStream::connect(self.address).expect("connected"))
    }

    pub(crate) fn end(mut self) {
        let running = self.running.take().expect("ended once");
        running.handle().drain();
        running.wait().expect("a clean end");
    }

    /// Ends by force: a worker that still runs a job may be left behind.
    pub(crate) fn end_forced(mut self) {
        let running = self.running.take().expect("ended once");
        running.handle().force();
        match running.wait() {
            Ok(()) | Err(flatpath::Error::LeftBehind { .. }) => {}
            Err(other) => panic!("{other}"),
        }
    }
}

/// Ends a server whose connections stay open. A forced end waits for a moment only, which threads
/// of an emulated processor may miss.
pub(crate) fn cut(running: Running) {
    running.handle().force();
    match running.wait() {
        Ok(()) => {}
        Err(flatpath::Error::LeftBehind { .. }) if is_slow() => {}
        Err(other) => panic!("no clean end: {other}"),
    }
}

/// A blocking client with deadlines.
pub(crate) struct Client {
    reader: BufReader<TcpStream>,
}

impl Client {
    pub(crate) fn of(stream: TcpStream) -> Client {
        stream
            .set_read_timeout(Some(patience()))
            .expect("a deadline");
        stream
            .set_write_timeout(Some(patience()))
            .expect("a deadline");
        Client {
            reader: BufReader::new(stream),
        }
    }

    pub(crate) fn say(&mut self, text: &str) {
        self.reader
            .get_mut()
            .write_all(text.as_bytes())
            .expect("written");
    }

    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        self.reader
            .read_line(&mut line)
            .expect("a line before the deadline");
        line
    }

    pub(crate) fn ask(&mut self, text: &str) -> String {
        self.say(text);
        self.line()
    }

    pub(crate) fn rest(&mut self) -> Vec<u8> {
        let mut rest = Vec::new();
        // A reset is an end as well: some tests cause one.
        let _ = self.reader.read_to_end(&mut rest);
        rest
    }

    pub(crate) fn stream(&self) -> &TcpStream {
        self.reader.get_ref()
    }
}

/// The drivers of this machine. If io_uring is not one of them, a line says so.
pub(crate) fn choices() -> impl Iterator<Item = DriverChoice> {
    drivers_here(DriverChoice::Uring, DriverChoice::Epoll)
}

/// Runs a test body on both drivers.
pub(crate) fn on_both(body: impl Fn(DriverChoice)) {
    choices().for_each(body);
}
