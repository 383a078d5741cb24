//! Why a function is no handler: the argument at fault, or what it returns.
//!
//! A router asks whether a function is a [`Handler`](crate::Handler) as a whole, and the compiler
//! says no more than that it is none. Here each argument and the reply is asked for by itself. It
//! is all done when a program is compiled.

use crate::extract::{FromRequest, FromRequestParts};
use crate::handler::ByReference;
use crate::message::Request;
use crate::respond::into_response::IntoResponse;

/// Checks that a function is a handler: the compiler names the argument that is none, or the type
/// that is no response. It costs nothing at run time, and may stay.
///
/// Handlers of a router with state name its type.
///
/// ```
/// use flatpath_http::http::StatusCode;
/// use flatpath_http::{State, check_handler};
///
/// fn create(State(limit): State<usize>, text: String) -> Result<StatusCode, StatusCode> {
///     let is_short = text.len() <= limit;
///     is_short.then_some(StatusCode::CREATED).ok_or(StatusCode::PAYLOAD_TOO_LARGE)
/// }
/// check_handler!(create, state = usize);
///
/// fn greet() -> &'static str {
///     "hello\n"
/// }
/// check_handler!(greet);
/// ```
///
/// With the arguments of `create` in the other order it is:
///
/// ```compile_fail
/// use flatpath_http::{State, check_handler};
///
/// // error: `String` cannot be an argument of a handler in this place
/// // note: arguments that take the body, as `Json`, `Form`, `String` and `Request` do, stand last
/// fn create(text: String, State(limit): State<usize>) {}
/// check_handler!(create, state = usize);
/// ```
#[macro_export]
macro_rules! check_handler {
    ($handler:expr $(,)?) => {
        $crate::check_handler!($handler, state = ());
    };
    ($handler:expr, state = $state:ty $(,)?) => {
        const _: () = {
            fn _check() {
                $crate::check::handler::<$state, _, _, _>(&$handler);
            }
        };
    };
}

/// What [`check_handler!`](crate::check_handler) calls.
pub fn handler<S, A, M, F>(_: &F)
where
    F: Function<A> + Send + Sync + 'static,
    A: Arguments<S, M>,
    F::Reply: IntoResponse,
{
}

/// A function with these arguments, whatever they are.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a function of up to eight arguments",
    label = "no handler has this form",
    note = "arguments that belong together can be one: a tuple or a type of your own that is \
            `FromRequestParts`"
)]
pub trait Function<A> {
    /// What it returns.
    type Reply;
}

/// The arguments of a handler of a router with the state `S`.
pub trait Arguments<S, M> {}

/// An argument that is alone.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be an argument of a handler",
    label = "not made of a request",
    note = "implement `FromRequestParts<S>` for what is made of a head, or `FromRequest<S>` for \
            what takes the body",
    note = "`Json<T>`, `Form<T>` and `Query<T>` need `T: serde::Deserialize`"
)]
pub trait OnlyArgument<S, M> {}

impl<S> OnlyArgument<S, ByReference> for &Request {}

impl<S, M, A: FromRequest<S, M>> OnlyArgument<S, (M,)> for A {}

impl<F: Fn() -> R, R> Function<()> for F {
    type Reply = R;
}

impl<S> Arguments<S, ()> for () {}

impl<F: Fn(A) -> R, R, A> Function<(A,)> for F {
    type Reply = R;
}

impl<S, M, A: OnlyArgument<S, M>> Arguments<S, M> for (A,) {}

/// Functions with these arguments, of which the last may take the body.
macro_rules! functions {
    ($($part:ident)+; $last:ident) => {
        impl<F, R, $($part,)+ $last> Function<($($part,)+ $last,)> for F
        where
            F: Fn($($part,)+ $last) -> R,
        {
            type Reply = R;
        }

        impl<S, M, $($part,)+ $last> Arguments<S, M> for ($($part,)+ $last,)
        where
            $($part: FromRequestParts<S>,)+
            $last: FromRequest<S, M>,
        {
        }
    };
}

functions!(A; B);
functions!(A B; C);
functions!(A B C; D);
functions!(A B C D; E);
functions!(A B C D E; G);
functions!(A B C D E G; H);
functions!(A B C D E G H; I);

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;
    use http::{HeaderMap, Method, StatusCode, Uri, Version};

    use super::handler;
    use crate::{Extension, Parameters, Request, Response, Router, State};

    fn none() -> &'static str {
        ""
    }

    fn look(_: &Request) -> Response {
        Response::default()
    }

    fn whole(_: Request) -> Option<String> {
        None
    }

    fn head(_: Method) -> StatusCode {
        StatusCode::OK
    }

    fn body(_: Uri, _: State<Arc<str>>, _: Bytes) -> Result<(), StatusCode> {
        Ok(())
    }

    #[expect(clippy::too_many_arguments, reason = "the most that a handler has")]
    fn most(
        _: Method,
        _: Uri,
        _: Version,
        _: HeaderMap,
        _: Parameters,
        _: Option<Extension<u8>>,
        _: State<u32>,
        _: String,
    ) {
    }

    check_handler!(none);
    check_handler!(body, state = Arc<str>);
    check_handler!(|_: Method, _: String| "a closure", state = u8,);

    #[test]
    fn whatever_a_router_takes_passes() {
        handler::<(), _, _, _>(&none);
        handler::<(), _, _, _>(&look);
        handler::<u8, _, _, _>(&whole);
        handler::<(), _, _, _>(&head);
        handler::<Arc<str>, _, _, _>(&body);
        handler::<u32, _, _, _>(&most);
        let router = Router::new()
            .get("/a", none)
            .get("/b", look)
            .get("/c", head);
        let _ = router.get("/d", whole).get("/e", most).with_state::<()>(7);
        check_handler!(head);
    }
}
