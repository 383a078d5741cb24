//! Parts of a router's state.

/// A part of a router's state `S`: what [`State`](crate::State) of it gives to handlers.
///
/// A handler that needs a part of the state names that part alone, so it serves routers of any
/// state that has it. Every state is a part of itself. It is made for each request that asks for
/// it: an `Arc`, say, is cloned.
///
/// ```
/// use std::sync::Arc;
///
/// use flatpath_http::{FromRef, Router, State};
///
/// #[derive(Clone)]
/// struct Mailer(Arc<str>);
///
/// #[derive(Clone)]
/// struct App {
///     mailer: Mailer,
///     greeting: &'static str,
/// }
///
/// impl FromRef<App> for Mailer {
///     fn from_ref(app: &App) -> Self {
///         app.mailer.clone()
///     }
/// }
///
/// fn invite(State(Mailer(host)): State<Mailer>) -> String {
///     format!("sent by {host}\n")
/// }
///
/// fn greet(State(app): State<App>) -> &'static str {
///     app.greeting
/// }
///
/// let app = App { mailer: Mailer("mail.example.org".into()), greeting: "hello\n" };
/// let router: Router = Router::new().post("/invite", invite).get("/", greet).with_state(app);
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no part of the state `{S}`",
    label = "not in the router's state",
    note = "implement `FromRef<{S}>` for `{Self}`; a state is a part of itself if it is `Clone`",
    note = "the state of a router is what `Router::with_state` gives it"
)]
pub trait FromRef<S> {
    /// The part of this state.
    fn from_ref(state: &S) -> Self;
}

impl<S: Clone> FromRef<S> for S {
    fn from_ref(state: &S) -> Self {
        state.clone()
    }
}
