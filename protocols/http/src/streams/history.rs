//! The events of a broadcast that are kept: for listeners that are slow, and for those that come
//! back.
//!
//! Invariants
//! - H1: at most `events_max` events, the latest ones, in order. Each has a number, one more than
//!   the one before.
//! - H2: `ids` has the number of the latest event of each id that is in the history, and no other.
//! - H3: while anyone listens, what is kept is charged to the memory of the server, once, or has
//!   the newest event uncharged. Where there is no memory the oldest leave.
//!
//! Cost: an event is one allocation; to find the one with an id, a look into a table. The first
//! listener has all of the history charged, the last has it given back.

use std::collections::{HashMap, VecDeque};

use bytes::Bytes;
use flatpath::ConnectionHandle;

use crate::respond::encode::{CHUNK_LINE_BYTES_MAX, chunk_line};
use crate::streams::event::Event;

#[derive(Default)]
pub(crate) struct History {
    pub(crate) events: VecDeque<Kept>,
    /// The number of the event that comes next.
    pub(crate) next: u64,
    ids: HashMap<Bytes, u64>,
    /// Of the events, how many are not charged.
    uncharged: usize,
    pub(crate) is_over: bool,
    /// How many connections listen, and one of their server, to whose memory events are charged.
    listeners: usize,
    pub(crate) connection: Option<ConnectionHandle>,
}

/// An event, framed as a chunk, once for all listeners.
pub(crate) struct Kept {
    pub(crate) chunk: Bytes,
    /// The same, once it is charged.
    pub(crate) charged: Option<Bytes>,
    /// A part of the chunk.
    id: Option<Bytes>,
}

const CHUNK_END: &[u8] = b"\r\n";

impl Kept {
    pub(crate) fn new(event: Event) -> Self {
        let id = event.last_id();
        let event = Bytes::from(event);
        let mut line = [0; CHUNK_LINE_BYTES_MAX];
        let line = chunk_line(event.len(), &mut line);
        let chunk = Bytes::from([line, &event, CHUNK_END].concat());
        Self {
            id: id.map(|id| chunk.slice(line.len() + id.start..line.len() + id.end)),
            chunk,
            charged: None,
        }
    }
}

/// The event in a chunk.
pub(crate) fn content(chunk: &Bytes) -> Bytes {
    let line = chunk.iter().position(|byte| *byte == b'\n');
    chunk.slice(line.map_or(0, |at| at + 1)..chunk.len() - CHUNK_END.len())
}

impl History {
    /// Adds an event; gives back the one that had to leave (H1).
    pub(crate) fn push(&mut self, event: Kept, events_max: usize) -> Option<Kept> {
        let oldest = match self.events.len() == events_max {
            true => self.pop_oldest(),
            false => None,
        };
        if let Some(id) = &event.id {
            // A table keeps the key that it has, and with it the text of an older event.
            self.ids.remove(id); // OURS: a part of a text of ours.
            self.ids.insert(id.clone(), self.next);
        }
        self.events.push_back(event);
        self.uncharged += 1;
        self.next += 1;
        self.charge();
        oldest
    }

    /// The number of the oldest event.
    pub(crate) fn oldest(&self) -> u64 {
        self.next - self.events.len() as u64
    }

    /// The number of the event after the latest one with this id; `None` if there is none.
    pub(crate) fn after(&self, id: &[u8]) -> Option<u64> {
        self.ids.get(id).map(|number| number + 1)
    }

    fn pop_oldest(&mut self) -> Option<Kept> {
        let number = self.oldest();
        let oldest = self.events.pop_front()?;
        self.uncharged -= usize::from(oldest.charged.is_none());
        if let Some(id) = &oldest.id
            && self.ids.get(id) == Some(&number)
        {
            self.ids.remove(id); // OURS: a part of a text of ours.
        }
        Some(oldest)
    }

    /// Charges what is not charged yet, the newest first; where there is no memory the oldest leave
    /// (H3).
    pub(crate) fn charge(&mut self) {
        let Some(connection) = self.connection.clone().filter(|_| self.uncharged > 0) else {
            return;
        };
        // Events at the end that are charged.
        let mut charged = 0;
        while self.uncharged > 0
            && let Some(at) = self.events.len().checked_sub(charged + 1)
        {
            let kept = &mut self.events[at];
            if kept.charged.is_none() {
                kept.charged = connection.hold_common(&kept.chunk);
                if kept.charged.is_none() {
                    if self.events.len() == 1 {
                        return;
                    }
                    self.pop_oldest(); // OURS: an event is text of ours.
                    continue;
                }
                self.uncharged -= 1;
            }
            charged += 1;
        }
    }

    /// Another connection listens.
    pub(crate) fn joined(&mut self, connection: ConnectionHandle) {
        self.listeners += 1;
        self.connection.get_or_insert(connection);
        self.charge();
    }

    /// With the last listener nothing of it waits for a client.
    pub(crate) fn left(&mut self) {
        self.listeners -= 1;
        if self.listeners == 0 {
            self.connection = None; // OURS: a name.
            self.events.iter_mut().for_each(|kept| kept.charged = None);
            self.uncharged = self.events.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn history(ids: &[&str], events_max: usize) -> History {
        let mut history = History::default();
        for id in ids {
            let event = match *id {
                "" => Event::new().data("without"),
                id => Event::new().id(id).data("with\nid: no"),
            };
            history.push(Kept::new(event), events_max);
        }
        history
    }

    #[test]
    fn an_id_names_its_latest_event_for_as_long_as_that_is_kept() {
        let history = history(&["a", "b", "", "a", "c"], 3);
        assert_eq!(history.oldest(), 2);
        assert_eq!(history.after(b"a"), Some(4));
        assert_eq!(history.after(b"c"), Some(5));
        assert_eq!(history.after(b"b"), None);
        assert_eq!(history.after(b""), None);
        assert_eq!(history.after(b"no"), None);
        assert_eq!(history.ids.len(), 2);
    }

    #[test]
    fn an_event_that_leaves_takes_its_id_along_but_not_another_ones() {
        let mut history = history(&["a", "a"], 2);
        history.push(Kept::new(Event::from("x")), 2);
        assert_eq!(history.after(b"a"), Some(2));
        history.push(Kept::new(Event::from("y")), 2);
        assert_eq!(history.after(b"a"), None);
        assert!(history.ids.is_empty());
    }

    #[test]
    fn a_chunk_has_the_event_and_its_id() {
        let kept = Kept::new(Event::new().comment("id: no").id("x y").data("d"));
        assert_eq!(kept.id.as_deref(), Some(&b"x y"[..]));
        assert_eq!(content(&kept.chunk), ": id: no\nid: x y\ndata: d\n\n");
        let twice = Kept::new(Event::new().id("1").id("2"));
        assert_eq!(twice.id.as_deref(), Some(&b"2"[..]));
        assert_eq!(Kept::new(Event::new().id("1").id("")).id, None);
    }
}
