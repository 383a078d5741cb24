//! Protocols for tests that hand their connections over to each other: one command a line.
//!
//! | command  | reply                                                                       |
//! |----------|-----------------------------------------------------------------------------|
//! | `ping`   | `I pong`, where I is the speaker's number                                   |
//! | `work N` | `I did N`, by a worker; nothing else is read meanwhile                      |
//! | `go J`   | `I goes`, then J speaks, which says `J after I`                             |
//! | `fail`   | `I fails`, then the next session panics as it begins                        |
//! | `late J` | the connection is cut: a job is dispatched after the wish                   |
//! | `try J`  | `I stays`: handed over while a worker has a job of it, which is refused     |
//!
//! At the end of the input: `I ends`, then closed.

use std::panic::resume_unwind;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use flatpath::access_log::LogEnd;
use flatpath::{
    Context, Event, Job, PerThread, Phase, Protocol, Received, Stall, Successor, WorkerScope,
};

/// What all speakers of a test count, and how they find each other.
#[derive(Default)]
pub(crate) struct Troupe {
    pub(crate) successors: OnceLock<Vec<Successor<Speaker>>>,
    pub(crate) begun: AtomicUsize,
    pub(crate) closed: AtomicUsize,
    pub(crate) drains_told: AtomicUsize,
    /// Jobs or sessions that a speaker met that were another's.
    pub(crate) strangers: AtomicUsize,
}

/// See the module.
pub(crate) struct Speaker {
    number: usize,
    troupe: Arc<Troupe>,
}

/// The speaker that accepts, and what a test looks at; 1 to 3 succeed.
pub(crate) fn troupe() -> (Speaker, Arc<Troupe>) {
    let troupe = Arc::new(Troupe::default());
    let speaker = |number| Speaker {
        number,
        troupe: Arc::clone(&troupe),
    };
    let successors = (1..4).map(|number| Successor::new(speaker(number)));
    let is_first = troupe.successors.set(successors.collect());
    assert!(is_first.is_ok(), "set once");
    (speaker(0), troupe)
}

#[derive(Default)]
pub(crate) struct Session {
    /// The number of the speaker before, and this one's.
    came: Option<(usize, usize)>,
    is_tired: bool,
    has_ended: bool,
    is_counted: bool,
}

#[derive(Default)]
pub(crate) struct Work {
    speaker: usize,
    number: usize,
}

impl Speaker {
    fn say(&self, context: &mut Context<'_, Self>, words: &str) -> bool {
        let line = format!("{} {words}\n", self.number);
        context.write(line.as_bytes()).is_ok()
    }

    fn hand_over(&self, context: &mut Context<'_, Self>, to: usize) -> bool {
        let successors = self.troupe.successors.get().expect("set first");
        let (from, troupe) = (self.number, Arc::clone(&self.troupe));
        let wish = successors[to - 1].begin(move || {
            troupe.begun.fetch_add(1, Relaxed);
            Session {
                came: Some((from, to)),
                is_counted: true,
                ..Session::default()
            }
        });
        context.hand_over(wish).is_ok()
    }

    fn work(&self, context: &mut Context<'_, Self>, number: usize) -> Option<()> {
        let mut job = context.job()?;
        *job = Work {
            speaker: self.number,
            number,
        };
        context.dispatch(job);
        Some(())
    }

    /// One command. What is in the way, if it has to wait.
    fn command(&self, context: &mut Context<'_, Self>, line: &str) -> Result<(), Stall> {
        let (word, number) = line.split_once(' ').unwrap_or((line, "0"));
        let number: usize = number.parse().expect("a number");
        let said = match word {
            "ping" => self.say(context, "pong"),
            "work" => return self.work(context, number).ok_or(Stall::Jobs),
            "go" => self.say(context, "goes") && self.hand_over(context, number),
            "fail" => {
                let successors = self.troupe.successors.get().expect("set first");
                let wish = successors[0].begin(|| resume_unwind(Box::new("as asked")));
                self.say(context, "fails") && context.hand_over(wish).is_ok()
            }
            "late" => {
                self.hand_over(context, number);
                return self.work(context, number).ok_or(Stall::Jobs);
            }
            "try" => {
                self.work(context, number).ok_or(Stall::Jobs)?;
                !self.hand_over(context, number) && self.say(context, "stays")
            }
            _ => panic!("{line:?} is no command"),
        };
        said.then_some(()).ok_or(Stall::Memory)
    }
}

/// The number of the speaker that a network thread made it for.
pub(crate) struct MadeFor(usize);

impl PerThread<Speaker> for MadeFor {
    fn new(speaker: &Speaker) -> MadeFor {
        MadeFor(speaker.number)
    }
}

impl Speaker {
    fn greet(&self, context: &mut Context<'_, Self>) {
        let is_mine = context.thread.0 == self.number;
        match context.session.came {
            Some((from, to)) if to == self.number && is_mine => {
                context.session.is_tired = !self.say(context, &format!("after {from}"));
            }
            None if self.number == 0 && is_mine => {
                context.session.is_counted = true;
                self.troupe.begun.fetch_add(1, Relaxed);
            }
            _ => {
                self.troupe.strangers.fetch_add(1, Relaxed);
            }
        }
    }

    fn end_input(&self, context: &mut Context<'_, Self>) {
        context.session.has_ended = true;
        if context.jobs_out() == 0 {
            self.say(context, "ends");
            context.close_after_output();
        }
    }
}

impl Protocol for Speaker {
    type ThreadState = MadeFor;
    type Session = Session;
    type Job = Work;

    fn event(&self, context: &mut Context<'_, Self>, event: Event<'_>) {
        match event {
            Event::Connected => self.greet(context),
            Event::InputEnded(_) => self.end_input(context),
            Event::Draining => {
                self.troupe.drains_told.fetch_add(1, Relaxed);
            }
            other => other.by_default(context),
        }
    }

    fn received(&self, context: &mut Context<'_, Self>, input: &[u8]) -> Received {
        let mut consumed = 0;
        if context.session.is_tired {
            // It owes its greeting.
            self.greet(context);
            if context.session.is_tired {
                return Received::Blocked {
                    consumed,
                    on: Stall::Memory,
                };
            }
        }
        while let Some(length) = input[consumed..].iter().position(|byte| *byte == b'\n') {
            if context.jobs_out() > 0 {
                let on = Stall::Pipeline;
                return Received::Blocked { consumed, on };
            }
            let line = std::str::from_utf8(&input[consumed..consumed + length]).expect("text");
            if let Err(on) = self.command(context, line) {
                return Received::Blocked { consumed, on };
            }
            consumed += length + 1;
            if line.starts_with("go") || line == "fail" {
                // The rest is the other's.
                break;
            }
        }
        context.phase(Phase::Head);
        Received::NeedMore { consumed }
    }

    fn run(&self, job: &mut Work, _scope: &mut WorkerScope<'_>) {
        if job.speaker != self.number {
            self.troupe.strangers.fetch_add(1, Relaxed);
        }
    }

    fn finished(&self, context: &mut Context<'_, Self>, job: Job<Self>) {
        if job.speaker != self.number {
            self.troupe.strangers.fetch_add(1, Relaxed);
        }
        self.say(context, &format!("did {}", job.number));
        context.recycle(job);
        if context.session.has_ended {
            self.end_input(context);
        }
    }

    fn retire(&self, thread: &mut MadeFor, job: &mut Work) {
        if job.speaker != self.number || thread.0 != self.number {
            self.troupe.strangers.fetch_add(1, Relaxed);
        }
    }

    fn closed(&self, thread: &mut MadeFor, session: &mut Session, _: Option<LogEnd<'_>>) {
        let is_mine = session.came.map_or(0, |(_, to)| to) == self.number;
        if !is_mine || thread.0 != self.number {
            self.troupe.strangers.fetch_add(1, Relaxed);
        }
        // Without that it was refused, and never connected.
        self.troupe
            .closed
            .fetch_add(usize::from(session.is_counted), Relaxed);
    }
}

/// What a client hears that sends these commands and then ends its stream.
pub(crate) fn heard_after(script: &str) -> String {
    let (mut heard, mut speaker) = (String::new(), 0);
    for line in script.lines() {
        let (word, number) = line.split_once(' ').unwrap_or((line, ""));
        match word {
            "ping" => heard += &format!("{speaker} pong\n"),
            "work" => heard += &format!("{speaker} did {number}\n"),
            "try" => heard += &format!("{speaker} stays\n{speaker} did {number}\n"),
            "go" => {
                heard += &format!("{speaker} goes\n{number} after {speaker}\n");
                speaker = number.parse().expect("a number");
            }
            _ => panic!("{line:?} is no command"),
        }
    }
    heard + &format!("{speaker} ends\n")
}
