//! Spans, as a subscriber sees them.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Arc, Mutex};

use flatpath_http::{Router, routing};
use flatpath_layers::{SetRequestId, TracingSpan};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use crate::{Site, upload};

type Fields = BTreeMap<&'static str, String>;

/// What was recorded: each span's fields, and what happened in which span.
#[derive(Clone, Default)]
struct Seen(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    spans: Vec<Fields>,
    inside: Vec<u64>,
    events: Vec<(u64, String)>,
}

struct Write<'a>(&'a mut Fields);

impl Visit for Write<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.insert(field.name(), format!("{value:?}"));
    }
}

impl Subscriber for Seen {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("flatpath_layers") || metadata.target() == "test"
    }

    fn new_span(&self, attributes: &Attributes<'_>) -> Id {
        let mut state = self.0.lock().expect("no panic");
        let mut fields = Fields::new();
        attributes.record(&mut Write(&mut fields));
        state.spans.push(fields);
        Id::from_u64(state.spans.len() as u64)
    }

    fn record(&self, span: &Id, values: &Record<'_>) {
        let mut state = self.0.lock().expect("no panic");
        let place = usize::try_from(span.into_u64() - 1).expect("few");
        values.record(&mut Write(&mut state.spans[place]));
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut state = self.0.lock().expect("no panic");
        let inside = state.inside.last().copied().unwrap_or(0);
        let level = event.metadata().level().to_string();
        state.events.push((inside, level));
    }

    fn enter(&self, span: &Id) {
        self.0
            .lock()
            .expect("no panic")
            .inside
            .push(span.into_u64());
    }

    fn exit(&self, _: &Id) {
        self.0.lock().expect("no panic").inside.pop();
    }
}

#[test]
fn sim_each_request_has_a_span_with_what_became_of_it() {
    let seen = Seen::default();
    let says = || {
        tracing::warn!(target: "test", "inside");
        "hello"
    };
    tracing::subscriber::with_default(seen.clone(), || {
        let router = Router::new()
            .get("/users/{id}", says)
            .get("/fails", || -> &'static str {
                std::panic::panic_any("on purpose")
            })
            .route("/upload", routing::put(upload).streamed())
            .layer(TracingSpan::new())
            .layer(SetRequestId::new().trust(|_| true));
        let mut site = Site::new(1, router);
        for line in ["GET /users/7", "GET /fails", "GET /none", "PUT /upload"] {
            site.ask_from(None, line, &["X-Request-Id: r1"], "body");
        }
    });
    let state = seen.0.lock().expect("no panic");
    let expected = [
        ("GET", "/users/{id}", "200"),
        ("GET", "/fails", "500"),
        ("GET", "-", "404"),
        ("PUT", "/upload", "200"),
    ];
    assert_eq!(state.spans.len(), expected.len(), "{:?}", state.spans);
    for (span, (method, path, status)) in state.spans.iter().zip(expected) {
        let field = |name| span.get(name).map(|value| value.trim_matches('"'));
        assert_eq!(field("method"), Some(method));
        assert_eq!(field("path"), Some(path));
        assert_eq!(field("status"), Some(status));
        assert_eq!(field("id"), Some("r1"));
        let latency = field("latency_us").expect("a latency");
        assert!(latency.parse::<u64>().is_ok(), "{latency}");
    }
    let of = |span| {
        state
            .events
            .iter()
            .filter(move |it| it.0 == span)
            .map(|it| it.1.as_str())
    };
    assert_eq!(
        of(1).collect::<Vec<_>>(),
        ["WARN", "INFO"],
        "the handler is in the span"
    );
    assert_eq!(of(2).collect::<Vec<_>>(), ["ERROR"]);
    assert_eq!(of(3).collect::<Vec<_>>(), ["INFO"]);
    assert_eq!(of(4).collect::<Vec<_>>(), ["INFO"]);
    assert!(state.inside.is_empty());
}
