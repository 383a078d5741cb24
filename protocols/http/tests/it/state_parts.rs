//! Parts of a router's state, as handlers take them, in the simulation.

use std::sync::{Arc, Mutex};

use flatpath_http::{FromRef, Router, State};

use crate::router::one;

/// The state of a program, of which handlers take parts.
#[derive(Clone)]
struct App {
    greeting: &'static str,
    visits: Arc<Mutex<u32>>,
}

impl FromRef<App> for Arc<Mutex<u32>> {
    fn from_ref(app: &App) -> Self {
        Arc::clone(&app.visits)
    }
}

impl FromRef<App> for &'static str {
    fn from_ref(app: &App) -> Self {
        app.greeting
    }
}

#[test]
fn a_handler_takes_the_part_of_the_state_that_it_needs() {
    fn visit<S>() -> Router<S>
    where
        S: Send + Sync + 'static,
        Arc<Mutex<u32>>: FromRef<S>,
    {
        let visit = |State(visits): State<Arc<Mutex<u32>>>| {
            let mut visits = visits.lock().expect("no panic");
            *visits += 1;
            visits.to_string()
        };
        Router::new()
            .get("/visit", visit)
            .get("/", |State(it): State<Arc<Mutex<u32>>>| {
                it.lock().expect("no panic").to_string()
            })
    }
    let visits = Arc::new(Mutex::new(0));
    let app = App {
        greeting: "hello",
        visits: Arc::clone(&visits),
    };
    let router = || {
        let both = |State(app): State<App>, greeting: State<&'static str>| {
            format!("{} {}", app.visits.lock().expect("no panic"), greeting.0)
        };
        Router::new()
            .nest("/app", visit::<App>())
            .get("/both", both)
            .fallback(|State(greeting): State<&'static str>| greeting)
            .with_state(app.clone())
            // One whose whole state is what is a part there.
            .nest("/alone", visit().with_state(Arc::clone(&visits)))
    };
    for (path, end) in [
        ("/app/visit", "1"),
        ("/alone/visit", "2"),
        ("/app", "2"),
        ("/both", "2 hello"),
        ("/none", "hello"),
    ] {
        let reply = one(router(), "GET", path, "");
        assert!(
            reply.ends_with(&format!("\r\n\r\n{end}")),
            "{path}: {reply}"
        );
    }
}
