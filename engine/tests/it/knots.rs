//! A protocol for tests: a client says a name and a line end, and is spliced to the next one that
//! says the same. Both hear `tied` first. What follows a name goes to the other, unless the client
//! has to wait: then it is kept. Clones know the same names, on several listeners.
//!
//! A name that begins with `stale` is never forgotten, so that a join meets a connection that has
//! gone: the newcomer hears `gone`. Two of the name `last` hear `last` when the server drains. `!`
//! names a connection that is spliced to itself. An empty line before the name is answered with
//! `?`.

use std::collections::HashMap;
use std::sync::Arc;

use flatpath::access_log::LogEnd;
use flatpath::lock::{Guard, Lock};
use flatpath::{
    ConnectionHandle, Context, Event, ListenerOptions, Phase, Protocol, Received, Spread, Stall,
};

/// See the module.
#[derive(Clone, Default)]
pub(crate) struct Knots(Arc<Lock<HashMap<String, ConnectionHandle>>>);

impl Knots {
    fn names(&self) -> Guard<'_, HashMap<String, ConnectionHandle>> {
        self.0.lock()
    }
}

/// What a connection said.
#[derive(Default)]
pub(crate) struct Session {
    name: Option<String>,
    tied: bool,
}

impl Protocol for Knots {
    type ThreadState = ();
    type Session = Session;
    type Job = ();

    fn options(&self) -> ListenerOptions {
        ListenerOptions {
            spread: Spread::OneThread,
            ..ListenerOptions::named("knots")
        }
    }

    fn received(&self, context: &mut Context<'_, Self>, input: &[u8]) -> Received {
        assert!(!context.session.tied, "a spliced connection is not asked");
        if context.session.name.is_some() {
            return Received::Blocked {
                consumed: 0,
                on: Stall::Pipeline,
            };
        }
        let Some(length) = input.iter().position(|byte| *byte == b'\n') else {
            return Received::NeedMore { consumed: 0 };
        };
        if length == 0 {
            context.phase(Phase::Wait);
            context.write_static(b"?\n");
            return Received::NeedMore { consumed: 1 };
        }
        let name = String::from_utf8_lossy(&input[..length]).into_owned();
        context.session.name = Some(name.clone());
        let other = self.names().get(&name).cloned();
        if name == "!" {
            let own = context.handle();
            context.splice(&own);
        } else if let Some(other) = other {
            if !name.starts_with("stale") {
                self.names().remove(&name);
            }
            context.splice(&other);
        } else {
            self.names().insert(name, context.handle());
            context.phase(Phase::Wait);
        }
        Received::NeedMore {
            consumed: length + 1,
        }
    }

    fn event(&self, context: &mut Context<'_, Self>, event: Event<'_>) {
        match event {
            Event::InputEnded(_) => {
                assert!(!context.session.tied, "a spliced connection is not asked");
                // One whose name begins with `mute` may still listen.
                if !context
                    .session
                    .name
                    .as_deref()
                    .is_some_and(|name| name.starts_with("mute"))
                {
                    context.close_after_output();
                }
            }
            Event::Spliced => {
                context.session.tied = true;
                context.write_static(b"tied\n");
            }
            Event::SpliceRefused => {
                context.write_static(b"gone\n");
                context.close_after_output();
            }
            Event::Draining => {
                if !context.session.tied {
                    context.close_after_output();
                } else if context.session.name.as_deref() == Some("last") {
                    context.write_static(b"last\n");
                }
            }
            other => other.by_default(context),
        }
    }

    fn closed(&self, _: &mut (), session: &mut Session, _: Option<LogEnd<'_>>) {
        if let Some(name) = session.name.take()
            && !session.tied
            && !name.starts_with("stale")
        {
            self.names().remove(&name);
        }
    }
}
