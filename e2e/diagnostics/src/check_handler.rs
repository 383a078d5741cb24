//! Functions that are no handlers, each checked: `flatpath_http::check_handler!`.

use flatpath_http::http::Method;
use flatpath_http::{Bytes, FromRef, Json, Path, Query, Request, State, check_handler};

struct Order;

#[derive(Clone)]
struct App;

struct Pool;

impl FromRef<App> for u32 {
    fn from_ref(_: &App) -> Self {
        7
    }
}

pub(crate) async fn future() -> &'static str {
    "done\n"
}
check_handler!(future);

pub(crate) fn body_before_head(_: String, _: Method) -> &'static str {
    "done\n"
}
check_handler!(body_before_head);

pub(crate) fn body_of_another_type(_: Json<Order>) -> &'static str {
    "done\n"
}
check_handler!(body_of_another_type);

pub(crate) fn one_of_several(_: Method, _: Query<Order>, _: Bytes) -> &'static str {
    "done\n"
}
check_handler!(one_of_several);

pub(crate) fn the_last_of_several(_: Method, _: Order) -> &'static str {
    "done\n"
}
check_handler!(the_last_of_several);

pub(crate) fn reply_of_another_type(_: Path<u64>) -> Order {
    Order
}
check_handler!(reply_of_another_type);

pub(crate) fn error_of_another_type(_: &Request) -> Result<String, Order> {
    Err(Order)
}
check_handler!(error_of_another_type);

pub(crate) fn part_of_another_state(_: State<String>, _: State<u32>) -> &'static str {
    "done\n"
}
check_handler!(part_of_another_state, state = u32);

pub(crate) fn part_that_is_not_there(_: State<u32>, _: State<Pool>) -> &'static str {
    "done\n"
}
check_handler!(part_that_is_not_there, state = App);

pub(crate) fn by_reference_and_more(_: &Request, _: Method) -> &'static str {
    "done\n"
}
check_handler!(by_reference_and_more);

#[expect(clippy::too_many_arguments, reason = "one more than a handler has")]
pub(crate) fn too_many(
    _: Method,
    _: Method,
    _: Method,
    _: Method,
    _: Method,
    _: Method,
    _: Method,
    _: Method,
    _: Method,
) -> &'static str {
    "done\n"
}
check_handler!(too_many);

check_handler!("hello\n");
