//! The first page of the engine's documentation shows a handler, which needs `flatpath-http`. The
//! engine does not depend on that crate, so the example is the one that is compiled there.

/// The example below a heading of a crate's first page.
fn example<'a>(page: &'a str, heading: &str) -> &'a str {
    let (_, section) = page.split_once(heading).expect("the heading is there");
    let (_, fenced) = section.split_once("//! ```").expect("an example");
    let (_, lines) = fenced.split_once('\n').expect("its first line");
    let (example, _) = lines.split_once("//! ```").expect("its end");
    example
}

#[test]
fn the_engines_first_page_shows_the_handler_that_http_compiles() {
    let http = include_str!("../../../protocols/http/src/lib.rs");
    let engine = include_str!("../../../engine/src/lib.rs");
    let heading = "//! # A handler\n";
    assert_eq!(example(engine, heading), example(http, heading));
}
