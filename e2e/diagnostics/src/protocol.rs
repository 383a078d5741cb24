//! Values that no server listens with: `flatpath::Protocol`.

use flatpath::{Context, Protocol, Received, Server};
use flatpath_http::Router;

pub(crate) fn a_router() {
    let _ = Server::new().listen("127.0.0.1:0", Router::<()>::new());
}

/// It begins when it is made, so it has no default.
pub(crate) struct Since(std::time::Instant);

pub(crate) struct Clock;

impl Protocol for Clock {
    type ThreadState = Since;
    type Session = ();
    type Job = ();

    fn received(&self, context: &mut Context<'_, Self>, _: &[u8]) -> Received {
        let running = context.thread.0.elapsed();
        context.write_held(format!("{running:?}\n").into());
        Received::Consumed
    }
}
