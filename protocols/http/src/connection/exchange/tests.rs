//! Requests and their replies without a connection.

use std::io::{self, Read};

use super::*;
use crate::head::Spoken;
use crate::limits::REPLY_BUFFER_BYTES;
use flatpath_structures::pool::{Pool, PoolConfig, Zero};

const META: RequestMeta = RequestMeta {
    is_head: false,
    spoken: Spoken::Http11,
    keep_alive: true,
    takes_trailers: false,
};

fn pool() -> Pool {
    let classes = vec![REPLY_BUFFER_BYTES, 64 * 1024, 256 * 1024];
    Pool::new(PoolConfig {
        classes,
        budget_bytes: 1 << 22,
        zero: Zero::Never,
    })
}

fn begun(pool: PoolHandle<'_>, request: RequestMeta) -> Exchange {
    let mut exchange = Exchange::default();
    exchange.begin(
        0,
        request,
        Some(pool.take(REPLY_BUFFER_BYTES).expect("the pool has room")),
    );
    exchange
}

fn head_of(exchange: &Exchange) -> &str {
    match &exchange.reply.as_ref().expect("it has a reply").head {
        OutgoingHead::Open(head) => std::str::from_utf8(head.filled()).expect("ASCII"),
        OutgoingHead::Words(words) => words.text,
        other => panic!("a worker makes no such head: {other:?}"),
    }
}

fn body_of(exchange: &Exchange) -> &Body {
    &exchange.reply.as_ref().expect("it has a reply").body
}

fn keeps_alive(exchange: &Exchange) -> bool {
    let reply = exchange.reply.as_ref().expect("it has a reply");
    reply.request.keep_alive
}

/// Every chunk up to the end, as it goes out, and the state after it.
fn chunks(exchange: &mut Exchange, pool: PoolHandle<'_>) -> (Vec<u8>, State) {
    let mut out = Vec::new();
    for _ in 0..1000 {
        if let Some(chunk) = exchange.chunk.take() {
            out.extend_from_slice(chunk.filled());
        }
        if exchange.state != State::Streaming {
            return (out, exchange.state);
        }
        exchange.read_chunk(pool);
    }
    panic!("the stream has no end");
}

fn stream(request: RequestMeta, content: &'static [u8], length: Option<u64>) -> (Vec<u8>, State) {
    let pool = pool();
    let mut exchange = begun((&pool).into(), request);
    exchange.answer(Response::new(Body::reader(content, length)), (&pool).into());
    chunks(&mut exchange, (&pool).into())
}

#[test]
fn a_body_in_memory_is_answered_in_one_run() {
    let pool = pool();
    let mut exchange = begun((&pool).into(), META);
    exchange.answer(Response::new("hello".into()), (&pool).into());
    assert_eq!(exchange.state, State::Answered);
    assert_eq!(
        head_of(&exchange),
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n"
    );
    assert_eq!(body_of(&exchange).as_bytes(), Some(&b"hello"[..]));
    exchange.reset();
    assert_eq!(
        pool.statistics().in_use_bytes,
        0,
        "a reset exchange holds nothing"
    );
}

#[test]
fn bytes_that_others_share_stay_on_the_worker_where_they_are_copied_anyway() {
    let pool = pool();
    let shared = bytes::Bytes::from(vec![b'x'; 5_000]);
    let _clone = shared.clone();
    let mut exchange = begun((&pool).into(), META);
    exchange.answer(Response::new(shared.into()), (&pool).into());
    assert_eq!(body_of(&exchange).as_bytes(), Some(&[b'x'; 5_000][..]));
    let is_own = matches!(body_of(&exchange), Body::Bytes(bytes) if bytes.is_unique());
    assert!(is_own, "nothing of it needs the bin");
}

#[test]
fn chunks_are_framed_with_five_digits() {
    let chunked = stream(META, b"hello", None);
    assert_eq!(
        chunked,
        (b"00005\r\nhello\r\n0\r\n\r\n".to_vec(), State::Answered)
    );
    let old = RequestMeta {
        spoken: Spoken::Http10,
        ..META
    };
    assert_eq!(
        stream(old, b"hello", None),
        (b"hello".to_vec(), State::Answered)
    );
    assert_eq!(
        stream(META, b"hello", Some(5)),
        (b"hello".to_vec(), State::Answered)
    );
    assert_eq!(
        stream(META, b"", None),
        (b"0\r\n\r\n".to_vec(), State::Answered)
    );
    assert_eq!(stream(META, b"", Some(0)), (Vec::new(), State::Answered));
}

#[test]
fn a_reader_gives_no_more_than_its_length() {
    assert_eq!(
        stream(META, b"hello", Some(3)),
        (b"hel".to_vec(), State::Answered)
    );
}

#[test]
fn a_reader_that_ends_early_has_failed() {
    assert_eq!(
        stream(META, b"hello", Some(6)),
        (b"hello".to_vec(), State::Failed)
    );
}

#[test]
fn a_reader_that_says_too_much_has_failed() {
    struct Liar;
    impl Read for Liar {
        fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
            Ok(room.len() + 1)
        }
    }
    let pool = pool();
    let mut exchange = begun((&pool).into(), META);
    exchange.answer(Response::new(Body::reader(Liar, None)), (&pool).into());
    assert_eq!(
        chunks(&mut exchange, (&pool).into()),
        (Vec::new(), State::Failed)
    );
}

#[test]
fn a_large_head_gets_a_large_buffer_and_a_larger_one_is_a_500() {
    let with_value = |bytes: usize| {
        let pool = pool();
        let mut exchange = begun((&pool).into(), META);
        let headers = http::Response::builder().header("a", "v".repeat(bytes));
        exchange.answer(
            headers.body(Body::Empty).expect("a valid response"),
            (&pool).into(),
        );
        let status = head_of(&exchange)["HTTP/1.1 ".len()..][..3].to_owned();
        (status, keeps_alive(&exchange))
    };
    for bytes in [1, REPLY_BUFFER_BYTES - 100, REPLY_BUFFER_BYTES, 60_000] {
        assert_eq!(with_value(bytes), ("200".to_owned(), true), "{bytes} bytes");
    }
    assert_eq!(with_value(300_000), ("500".to_owned(), false));
}

#[test]
fn a_panic_is_a_500_before_the_head_and_a_failure_after_it() {
    let pool = pool();
    let mut fresh = begun((&pool).into(), META);
    fresh.panicked();
    assert!(head_of(&fresh).starts_with("HTTP/1.1 500 ") && !keeps_alive(&fresh));
    assert_eq!(fresh.state, State::Answered);
    let mut streaming = begun((&pool).into(), META);
    streaming.answer(
        Response::new(Body::reader(io::repeat(b'x'), None)),
        (&pool).into(),
    );
    streaming.panicked();
    assert_eq!(streaming.state, State::Failed);
}
