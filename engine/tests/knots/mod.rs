//! A protocol for tests: a client says a name and a line end, and is joined to the next one that
//! says the same. Both hear `tied` first. What follows a name goes to the other, unless the client
//! has to wait: then it is kept.
//!
//! A name that begins with `stale` is never forgotten, so that a join meets a connection that has
//! gone: the newcomer hears `gone`. Two of the name `last` hear `last` when the server drains. `!`
//! names a connection that is joined to itself.
#![allow(dead_code, reason = "each test file uses its own part")]

use std::collections::HashMap;

use flatpath::{Context, End, Phase, Protocol, Spread, Stall};

/// See the module.
#[derive(Default)]
pub(crate) struct Knots;

/// What a connection said.
#[derive(Default)]
pub(crate) struct Session {
    name: Option<String>,
    tied: bool,
}

impl Protocol for Knots {
    type Lane = HashMap<String, End>;
    type Session = Session;
    type Job = ();

    fn name(&self) -> &'static str {
        "knots"
    }

    fn spread(&self) -> Spread {
        Spread::OneRing
    }

    fn lane(&self) -> Self::Lane {
        HashMap::new()
    }

    fn received(
        &self,
        lane: &mut Self::Lane,
        session: &mut Session,
        context: &mut Context<'_, Self>,
        input: &[u8],
    ) -> usize {
        assert!(!session.tied, "a joined connection is not asked");
        if session.name.is_some() {
            context.stall(Stall::Pipeline);
            return 0;
        }
        let Some(length) = input.iter().position(|byte| *byte == b'\n') else {
            return 0;
        };
        let name = String::from_utf8_lossy(&input[..length]).into_owned();
        session.name = Some(name.clone());
        if name == "!" {
            context.join(context.end());
        } else if let Some(other) = lane.get(&name).copied() {
            if !name.starts_with("stale") {
                lane.remove(&name);
            }
            context.join(other);
        } else {
            lane.insert(name, context.end());
            context.phase(Phase::Wait);
        }
        length + 1
    }

    fn input_ended(
        &self,
        _lane: &mut Self::Lane,
        session: &mut Session,
        context: &mut Context<'_, Self>,
        _left: &[u8],
    ) {
        assert!(!session.tied, "a joined connection is not asked");
        // One whose name begins with `mute` may still listen.
        if !session
            .name
            .as_deref()
            .is_some_and(|name| name.starts_with("mute"))
        {
            context.close_after_output();
        }
    }

    fn joined(
        &self,
        _lane: &mut Self::Lane,
        session: &mut Session,
        context: &mut Context<'_, Self>,
    ) {
        session.tied = true;
        context.write_static(b"tied\n");
    }

    fn join_refused(
        &self,
        _lane: &mut Self::Lane,
        _session: &mut Session,
        context: &mut Context<'_, Self>,
    ) {
        context.write_static(b"gone\n");
        context.close_after_output();
    }

    fn draining(
        &self,
        _lane: &mut Self::Lane,
        session: &mut Session,
        context: &mut Context<'_, Self>,
    ) {
        if !session.tied {
            context.close_after_output();
        } else if session.name.as_deref() == Some("last") {
            context.write_static(b"last\n");
        }
    }

    fn closed(&self, lane: &mut Self::Lane, session: &mut Session) {
        if let Some(name) = session.name.take()
            && !session.tied
            && !name.starts_with("stale")
        {
            lane.remove(&name);
        }
    }
}
