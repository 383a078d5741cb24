//! One server-sent event as text (WHATWG HTML, section 9.2, "Server-sent events").
//!
//! Invariant: each line that an event consists of begins with a name of this file, whatever the
//! program put into it: a line break in a value begins a line of its own with the same name, or
//! becomes a space where a value has one line only.

use std::ops::Range;
use std::time::Duration;

use bytes::Bytes;

/// A server-sent event, put together field by field.
///
/// A browser fires it when it has data, even if that is empty; the other fields alone only change
/// what the browser remembers.
///
/// ```
/// use flatpath_http::sse::Event;
///
/// let event = Event::new().event("said").id("7").data("two\nlines");
/// assert_eq!(event.to_bytes(), "event: said\nid: 7\ndata: two\ndata: lines\n\n");
/// assert_eq!(Event::from("hello").to_bytes(), "data: hello\n\n");
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct Event {
    lines: String,
}

impl Event {
    /// An event without a field.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds data: what a listener finds in `MessageEvent.data`. Lines may end with LF, CR or both;
    /// the listener gets LF. Data that is added to data begins a line of its own.
    pub fn data(self, data: impl AsRef<str>) -> Self {
        self.lines("data: ", data.as_ref())
    }

    /// Adds data: this value as JSON. With the feature `json`. A value that serde cannot write is
    /// logged, and adds none.
    #[cfg(feature = "json")]
    pub fn json(self, value: &impl serde::Serialize) -> Self {
        match serde_json::to_string(value) {
            Ok(text) => self.data(text),
            Err(reason) => {
                log::error!("an event is sent without its data: {reason}");
                self
            }
        }
    }

    /// Names the event, so that listeners for that name get it instead of those for `message`. A
    /// line break in it becomes a space.
    pub fn event(self, name: impl AsRef<str>) -> Self {
        self.line("event: ", name.as_ref())
    }

    /// Identifies the event. A client that comes back tells the last id that it has seen, in its
    /// header `Last-Event-ID`. A line break in it becomes a space, and so does NUL, for which
    /// browsers would ignore it.
    pub fn id(self, id: impl AsRef<str>) -> Self {
        self.line("id: ", id.as_ref())
    }

    /// How long a client waits before it comes back after its stream has ended, in whole
    /// milliseconds; a few seconds if it is never told.
    pub fn retry(mut self, time: Duration) -> Self {
        self.lines += "retry: ";
        self.lines += itoa::Buffer::new().format(time.as_millis());
        self.lines.push('\n');
        self
    }

    /// Adds a comment, which clients ignore.
    pub fn comment(self, text: impl AsRef<str>) -> Self {
        self.lines(": ", text.as_ref())
    }

    /// Where its last id is in what is sent, unless it has none, or an empty one, which a client
    /// does not tell. Spaces around it are left out: no header has them.
    pub(crate) fn last_id(&self) -> Option<Range<usize>> {
        let mut end = self.lines.len();
        for line in self.lines.split_inclusive('\n').rev() {
            let start = end - line.len();
            if let Some(id) = line.strip_prefix("id: ") {
                let from = start + (line.len() - id.trim_ascii_start().len());
                let id = id.trim_ascii();
                return (!id.is_empty()).then(|| from..from + id.len());
            }
            end = start;
        }
        None
    }

    /// The event as it is sent, with the empty line that ends it.
    pub fn to_bytes(&self) -> Bytes {
        self.clone().into()
    }

    fn lines(mut self, name: &str, text: &str) -> Self {
        let mut rest = Some(text);
        while let Some(text) = rest {
            let end = text.find(['\r', '\n']);
            rest = end.map(|end| {
                let length = if text[end..].starts_with("\r\n") {
                    2
                } else {
                    1
                };
                &text[end + length..]
            });
            self.lines += name;
            self.lines += &text[..end.unwrap_or(text.len())];
            self.lines.push('\n');
        }
        self
    }

    fn line(mut self, name: &str, value: &str) -> Self {
        self.lines += name;
        let characters = value.chars().map(|character| match character {
            '\r' | '\n' | '\0' => ' ',
            other => other,
        });
        self.lines.extend(characters);
        self.lines.push('\n');
        self
    }
}

/// An event that is nothing but data.
impl From<&str> for Event {
    fn from(data: &str) -> Self {
        Self::new().data(data)
    }
}

/// An event that is nothing but data.
impl From<String> for Event {
    fn from(data: String) -> Self {
        Self::new().data(data)
    }
}

impl From<Event> for Bytes {
    fn from(event: Event) -> Self {
        let mut lines = event.lines;
        lines.push('\n');
        lines.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(event: Event) -> String {
        String::from_utf8(Bytes::from(event).to_vec()).expect("text")
    }

    #[test]
    fn every_field_is_a_line_and_the_event_ends_with_an_empty_one() {
        let event = Event::new()
            .comment("first")
            .event("said")
            .id("7")
            .retry(Duration::from_millis(2500))
            .data("hello");
        assert_eq!(
            text(event),
            ": first\nevent: said\nid: 7\nretry: 2500\ndata: hello\n\n"
        );
        assert_eq!(text(Event::new().data("")), "data: \n\n");
    }

    #[test]
    fn each_line_of_data_is_a_line_with_its_name() {
        assert_eq!(text("a\nb".into()), "data: a\ndata: b\n\n");
        assert_eq!(
            text("a\r\nb\rc\n\nd\n".into()),
            "data: a\ndata: b\ndata: c\ndata: \ndata: d\ndata: \n\n"
        );
        assert_eq!(text(Event::from("a").data(" b")), "data: a\ndata:  b\n\n");
    }

    #[cfg(feature = "json")]
    #[test]
    fn data_is_json_where_serde_can_write_it() {
        let written = Event::new().id("7").json(&("two\nlines", 2));
        assert_eq!(text(written), "id: 7\ndata: [\"two\\nlines\",2]\n\n");
        let not_json = std::collections::BTreeMap::from([(vec![1], 2)]);
        assert_eq!(text(Event::new().id("8").json(&not_json)), "id: 8\n\n");
    }

    #[test]
    fn no_value_begins_another_field() {
        let bad = "x\ndata: injected\r\nid: 9\rretry: 1\0";
        for event in [
            Event::new().event(bad),
            Event::new().id(bad),
            Event::new().data(bad),
            Event::new().comment(bad),
        ] {
            let text = text(event);
            let name = text.split_inclusive(": ").next().expect("a name");
            let body = text.strip_suffix("\n\n").expect("its end");
            for line in body.split(['\r', '\n']) {
                assert!(line.starts_with(name), "{text:?}");
            }
            assert!(!text.contains("\n\n\n") && !text[..text.len() - 2].contains("\n\n"));
        }
        assert!(!text(Event::new().id(bad)).contains('\0'));
    }

    #[test]
    fn the_last_id_is_found_and_nothing_else_is_one() {
        let id_of = |event: Event| event.last_id().map(|at| text(event)[at].to_owned());
        let event = Event::new().data("id: 1").comment("id: 2");
        assert_eq!(id_of(event.clone()), None);
        assert_eq!(id_of(event.id("3").data("id: 4")).as_deref(), Some("3"));
        assert_eq!(id_of(Event::new().id("  5 6 ")).as_deref(), Some("5 6"));
        assert_eq!(id_of(Event::new().id("7").id(" ")), None);
    }

    /// What a browser makes of a stream, by WHATWG HTML, 9.2.6: name, id and data of its events.
    fn interpreted(stream: &str) -> Vec<[String; 3]> {
        let (mut events, mut id) = (Vec::new(), String::new());
        let (mut name, mut data) = (String::new(), String::new());
        let stream = stream.replace("\r\n", "\n").replace('\r', "\n");
        for line in stream.split_terminator('\n') {
            let (field, value) = line.split_once(':').unwrap_or((line, ""));
            let value = value.strip_prefix(' ').unwrap_or(value);
            match field {
                "" if line.is_empty() => {
                    let (name, data) = (std::mem::take(&mut name), std::mem::take(&mut data));
                    if let Some(data) = data.strip_suffix('\n') {
                        events.push([name, id.clone(), data.to_owned()]);
                    }
                }
                "event" => value.clone_into(&mut name),
                "data" => data += &format!("{value}\n"),
                "id" if !value.contains('\0') => value.clone_into(&mut id),
                _ => {}
            }
        }
        events
    }

    #[test]
    fn model_a_browser_finds_the_fields_that_were_put_in_whatever_is_in_them() {
        const PARTS: [&str; 12] = [
            "\r", "\n", "\r\n", "\n\n", ":", " ", "\0", "data: ", "id", "event:", "\u{feff}", "ü",
        ];
        let mut random = fastrand::Rng::with_seed(1);
        for _ in 0..2000 {
            let mut value = || -> String {
                let parts = 0..random.usize(..6);
                parts.map(|_| PARTS[random.usize(..PARTS.len())]).collect()
            };
            let (comment, name, id, data) = (value(), value(), value(), value());
            let event = Event::new().comment(&comment).event(&name).id(&id);
            let stream = text(event.data(&data)) + &text("after".into());
            let one_line = |value: &str| value.replace(['\r', '\n', '\0'], " ");
            let lines = data.replace("\r\n", "\n").replace('\r', "\n");
            let expected = [
                [one_line(&name), one_line(&id), lines],
                [String::new(), one_line(&id), "after".to_owned()],
            ];
            assert_eq!(interpreted(&stream), expected, "{stream:?}");
        }
    }
}
