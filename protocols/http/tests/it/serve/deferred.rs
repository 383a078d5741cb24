//! Responses that futures make, on a runtime of the program's.

use std::panic::panic_any;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use flatpath::DriverChoice;
use flatpath_http::{Deferred, Http, Parameters, Router, routing};
use flatpath_testkit::{Client, until_true};
use tokio::runtime::{Builder, Handle};
use tokio::sync::{Notify, oneshot};

use crate::on_each_driver;
use crate::serve::{get, serve};

on_each_driver!(
    futures_answer_while_the_workers_are_free,
    a_future_that_panics_is_a_500,
    a_client_that_goes_away_drops_its_future,
);

/// A runtime with one thread, until it is dropped.
struct Runtime {
    handle: Handle,
    stop: Arc<Notify>,
    thread: Option<JoinHandle<()>>,
}

impl Runtime {
    fn start() -> Self {
        let runtime = Builder::new_current_thread().build().expect("a runtime");
        let (handle, stop) = (runtime.handle().clone(), Arc::new(Notify::new()));
        let stopped = Arc::clone(&stop);
        let thread = thread::spawn(move || runtime.block_on(stopped.notified()));
        Self {
            handle,
            stop,
            thread: Some(thread),
        }
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        self.stop.notify_one();
        let thread = self.thread.take().expect("it was not joined");
        thread.join().expect("the runtime ends");
    }
}

fn futures_answer_while_the_workers_are_free(choice: DriverChoice) {
    const CLIENTS: usize = 50;
    let runtime = Runtime::start();
    let handle = runtime.handle.clone();
    let all_wait = Arc::new(tokio::sync::Barrier::new(CLIENTS));
    // Each waits for all others, and there are fewer workers than that.
    let meet = move |parameters: Parameters| {
        let (all_wait, name) = (
            Arc::clone(&all_wait),
            parameters.get("name").map(str::to_owned),
        );
        Deferred::spawn(&handle, async move {
            all_wait.wait().await;
            let (sender, receiver) = oneshot::channel();
            tokio::spawn(async move { sender.send(name.unwrap_or_default()) });
            receiver
                .await
                .map(|name| format!("met {name}\n"))
                .map_err(|_| "nothing came")
        })
    };
    let router = Router::new()
        .get("/pooled/{name}", meet.clone())
        .route("/inline/{name}", routing::get(meet).inline());
    let (_server, address) = serve(choice, Http::service(router));
    let mut clients: Vec<_> = (0..CLIENTS).map(|_| Client::connect(address)).collect();
    for (number, client) in clients.iter_mut().enumerate() {
        let kind = if number % 2 == 0 { "pooled" } else { "inline" };
        client.send(get(&format!("/{kind}/{number}")));
    }
    for (number, client) in clients.iter_mut().enumerate() {
        assert_eq!(client.reply().text(), format!("met {number}\n"));
    }
}

fn a_future_that_panics_is_a_500(choice: DriverChoice) {
    let runtime = Runtime::start();
    let handle = runtime.handle.clone();
    let fail = move || {
        Deferred::spawn(&handle, async {
            if true {
                panic_any("the future panics on purpose");
            }
            "never"
        })
    };
    let (_server, address) = serve(choice, Http::service(Router::new().get("/", fail)));
    let mut client = Client::connect(address);
    for _ in 0..2 {
        client.send(get("/"));
        assert_eq!(client.reply().status, 500);
    }
}

/// Tells when it is dropped.
struct Dropped(Arc<AtomicBool>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

fn a_client_that_goes_away_drops_its_future(choice: DriverChoice) {
    let runtime = Runtime::start();
    let handle = runtime.handle.clone();
    let (began, dropped) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicBool::new(false)),
    );
    let (begin, drops) = (Arc::clone(&began), Arc::clone(&dropped));
    let never = move || {
        let (begin, guard) = (Arc::clone(&begin), Dropped(Arc::clone(&drops)));
        Deferred::spawn(&handle, async move {
            let _guard = guard;
            begin.store(true, Ordering::SeqCst);
            std::future::pending::<()>().await;
            "never"
        })
    };
    let (_server, address) = serve(choice, Http::service(Router::new().get("/", never)));
    let mut client = Client::connect(address);
    client.send(get("/"));
    until_true("the future is polled", || began.load(Ordering::SeqCst));
    drop(client);
    until_true("the future is dropped", || dropped.load(Ordering::SeqCst));
}
