//! `flatpath top`: the metrics of a running server in a terminal, live, from its `--admin` address.
//!
//! | standard output    | what is written                                               |
//! |--------------------|---------------------------------------------------------------|
//! | a terminal         | a screen, drawn anew with each answer, until q or Ctrl-C      |
//! | a file or a pipe   | a line for each answer, as `vmstat` does                      |
//! | `--json`           | each answer as it came, a line each                           |
//! | `--once`           | the screen's text, or the answer, once                        |
//!
//! A server that does not answer at first is an error. One that stops answering later is asked
//! again until it does: what is shown says so.

mod feed;
mod pair;
mod screen;
mod terminal;
mod words;

use std::io::{self, ErrorKind, IsTerminal, Write};
use std::time::{Duration, Instant};

use clap::{Arg, ArgAction, ArgMatches, Command};
use flatpath::sockets::ListenAddress;
use serde_json::Value;

use crate::client;
use crate::failure::Failure;
use crate::logging;
use crate::units;
use pair::Pair;
use screen::COLUMNS;
use terminal::Terminal;

/// The arguments of the command.
struct Arguments {
    address: ListenAddress,
    once: bool,
    json: bool,
    interval: Duration,
}

/// The command line of `top`.
pub(crate) fn command() -> Command {
    let flag = |name| Arg::new(name).long(name).action(ArgAction::SetTrue);
    let interval = Arg::new("interval").long("interval").value_name("TIME");
    Command::new("top")
        .about("Show the metrics of a running server in a terminal, live, from its --admin address")
        .args([
            client::address(
                "Where the server answers: what its --admin was given, HOST:PORT, PORT or \
                 unix:PATH",
            ),
            flag("once").help(
                "Show the metrics once and end. Rates are those since the start of the server",
            ),
            flag("json").help("Write what the server answers, one object a line"),
            interval
                .default_value("1s")
                .value_parser(units::time)
                .help("How often to ask"),
        ])
}

impl Arguments {
    fn of(matches: &ArgMatches) -> Self {
        let one = "it is required, or has a default";
        Self {
            address: matches
                .get_one::<ListenAddress>("address")
                .expect(one)
                .clone(),
            once: matches.get_flag("once"),
            json: matches.get_flag("json"),
            interval: *matches.get_one("interval").expect(one),
        }
    }
}

/// How often keys and the size of the terminal are looked at.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// Headings are repeated after this many lines.
const LINES_BETWEEN_HEADINGS: usize = 20;

/// Shows the metrics until a signal ends it.
pub(crate) fn run(matches: &ArgMatches) -> Result<(), Failure> {
    let arguments = &Arguments::of(matches);
    let first = feed::ask(&arguments.address).map_err(|why| no_answer(&arguments.address, &why))?;
    let mut shown = Shown::new(first);
    let output = io::stdout();
    let written = if arguments.once {
        put(&match arguments.json {
            true => format!("{}\n", shown.now),
            false => screen::text(&shown.pair()),
        })
    } else if output.is_terminal() && !arguments.json {
        on_terminal(arguments, &mut shown)
    } else {
        as_lines(arguments, &mut shown)
    };
    match written {
        // The reader has closed its end.
        Err(cause) if cause.kind() == ErrorKind::BrokenPipe => Ok(()),
        outcome => {
            outcome.map_err(|cause| Failure::Failed(format!("cannot write the metrics: {cause}")))
        }
    }
}

fn no_answer(address: &ListenAddress, why: &str) -> Failure {
    Failure::Failed(format!(
        "no answer from {address}: {why}; name the address of a server that runs with --admin ADDR"
    ))
}

fn put(text: &str) -> io::Result<()> {
    let mut output = io::stdout().lock();
    output.write_all(text.as_bytes())?;
    output.flush()
}

/// The last answers.
struct Shown {
    now: Value,
    /// The one before, of the same server.
    before: Option<Value>,
    /// Since when it does not answer, and why.
    lost: Option<(Instant, String)>,
}

impl Shown {
    fn new(now: Value) -> Shown {
        let (before, lost) = (None, None);
        Shown { now, before, lost }
    }

    fn pair(&self) -> Pair<'_> {
        Pair::new(self.before.as_ref(), &self.now)
    }

    /// Takes an answer, or the reason why there is none. True if that is new: it was lost, or it is
    /// there again.
    fn take(&mut self, answer: Result<Value, String>) -> bool {
        let was_lost = self.lost.is_some();
        match answer {
            Ok(now) => {
                let before = std::mem::replace(&mut self.now, now);
                self.before = pair::is_same_server(&before, &self.now).then_some(before);
                self.lost = None;
            }
            Err(why) => {
                let since = self
                    .lost
                    .take()
                    .map_or_else(Instant::now, |(since, _)| since);
                self.lost = Some((since, why));
            }
        }
        was_lost != self.lost.is_some()
    }
}

/// Draws until a key or a signal ends it.
fn on_terminal(arguments: &Arguments, shown: &mut Shown) -> io::Result<()> {
    let feed = feed::start(arguments.address.clone(), arguments.interval)?;
    let mut terminal = Terminal::take()?;
    let mut size = None;
    loop {
        let mut is_new = false;
        while let Ok(answer) = feed.try_recv() {
            shown.take(answer);
            is_new = true;
        }
        let now = terminal.size();
        if is_new || size != Some(now) {
            size = Some(now);
            terminal.draw(&screen_of(arguments, shown), now)?;
        }
        if terminal.is_to_end(LOOK_AGAIN)? {
            return Ok(());
        }
    }
}

fn screen_of(arguments: &Arguments, shown: &Shown) -> String {
    let words = match &shown.lost {
        None => format!(
            "every {}; q ends\n",
            humantime::format_duration(arguments.interval)
        ),
        Some((since, why)) => format!(
            "NO ANSWER for {} s: {why}. What follows is the last one; q ends\n",
            since.elapsed().as_secs()
        ),
    };
    words + &screen::text(&shown.pair())
}

/// Writes a line for each answer. What else there is to say goes to standard error.
fn as_lines(arguments: &Arguments, shown: &mut Shown) -> io::Result<()> {
    let feed = feed::start(arguments.address.clone(), arguments.interval)?;
    let mut lines = 0;
    loop {
        if arguments.json {
            put(&format!("{}\n", shown.now))?;
        } else {
            if lines % LINES_BETWEEN_HEADINGS == 0 {
                put(&screen::line(&COLUMNS.map(String::from)))?;
            }
            put(&screen::line(&shown.pair().summary()))?;
            lines += 1;
        }
        loop {
            let Ok(answer) = feed.recv() else {
                return Ok(());
            };
            let is_new = shown.take(answer);
            match &shown.lost {
                None if is_new => logging::say("flatpath: it answers again"),
                Some((_, why)) if is_new => logging::say(&format!("flatpath: no answer: {why}")),
                _ => {}
            }
            if shown.lost.is_none() {
                break;
            }
        }
    }
}
