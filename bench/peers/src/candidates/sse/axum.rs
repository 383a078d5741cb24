//! axum as its example shows it: `Sse` over the receiver of a tokio broadcast.

use std::convert::Infallible;
use std::io;
use std::net::Ipv4Addr;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::response::sse::{Event, Sse};
use axum::routing::get;
use axum::serve::ListenerExt;
use tokio::net::TcpListener;
use tokio::runtime::Builder;
use tokio::sync::broadcast::{self, Sender};
use tokio::{task, time};
use tokio_stream::wrappers::BroadcastStream;
use tokio_stream::{Stream, StreamExt};

use flatpath_bench_common::nginx::{HELLO_BODY, HELLO_PATH};

use super::super::hyper::NETWORK_THREADS;
use super::super::serve::{Serve, announce};
use super::{EVENTS_PATH, event, interval};

/// Events that a listener may be behind.
const BEHIND_MAX: usize = 16;

/// Runs until the process is ended.
///
/// # Errors
/// If the runtime or the listener cannot be made.
pub(in super::super) fn run(serve: &Serve) -> io::Result<()> {
    let every = interval(serve);
    let (events, _) = broadcast::channel(BEHIND_MAX);
    let app = Router::new()
        .route(EVENTS_PATH, get(listen))
        .route(HELLO_PATH, get(async || HELLO_BODY))
        .with_state(events.clone());
    let mut builder = Builder::new_multi_thread();
    builder.worker_threads(NETWORK_THREADS).enable_all();
    builder.build()?.block_on(async move {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        announce("http", listener.local_addr()?)?;
        task::spawn(send_all(events, every));
        // A socket that refuses only answers later.
        let listener = listener.tap_io(|socket| drop(socket.set_nodelay(true)));
        axum::serve(listener, app).await
    })
}

async fn send_all(events: Sender<String>, every: Duration) {
    let mut ticks = time::interval(every);
    for number in 0.. {
        ticks.tick().await;
        // There may be no listener yet.
        let _ = events.send(event(number));
    }
}

async fn listen(
    State(events): State<Sender<String>>,
) -> Sse<impl Stream<Item = Result<Event, Infallible>>> {
    let events = BroadcastStream::new(events.subscribe());
    let texts = events.filter_map(Result::ok);
    Sse::new(texts.map(|text| Ok(Event::default().data(text))))
}
