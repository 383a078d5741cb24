//! Functions that are no layers: `flatpath_http::{Layer, IntoAnswer}`.

use flatpath_http::{Answer, IntoAnswer, Next, Request, Router};

struct Order;

fn another_answer(_: Request, _: &Next<'_>) -> Order {
    Order
}

pub(crate) fn no_function() {
    let _ = Router::<()>::new().layer("cors");
}

pub(crate) fn a_layer_that_returns_what_is_no_answer() {
    let _ = Router::<()>::new().layer(another_answer);
}

pub(crate) fn no_answer() -> Answer {
    answer(Order)
}

fn answer(of: impl IntoAnswer) -> Answer {
    of.into_answer()
}
