//! Replies as upstreams send them, good and bad, whole and byte by byte.

use super::*;

/// What a connection has brought: heads by status, data, how it ended.
#[derive(Debug, Default, PartialEq, Eq)]
struct Brought {
    interim: Vec<u16>,
    status: u16,
    data: Vec<u8>,
    trailers: String,
    end: Option<End>,
    fault: Option<ReplyFault>,
    is_switched: bool,
}

/// Offers an input in pieces of this many bytes, as an engine would, and then its end.
fn bring(asked: Asked, input: &[u8], piece_bytes: usize) -> Brought {
    let (mut codec, mut brought, mut kept) = (Codec::default(), Brought::default(), Vec::new());
    codec.expect(asked);
    for piece in input.chunks(piece_bytes) {
        kept.extend_from_slice(piece);
        match offer(&mut codec, &kept, &mut brought) {
            Ok(used) => drop(kept.drain(..used)),
            Err(fault) => {
                assert_eq!(
                    codec.head(b"H", |_| ()).err(),
                    Some(ReplyFault::Unasked),
                    "UC2: nothing is taken after a fault"
                );
                return Brought {
                    fault: Some(fault),
                    ..brought
                };
            }
        }
    }
    brought.fault = codec.input_ended().err();
    brought
}

fn offer(codec: &mut Codec, input: &[u8], brought: &mut Brought) -> Result<usize, ReplyFault> {
    let mut rest = input;
    loop {
        if codec.awaits_head() {
            if rest.is_empty() {
                return Ok(input.len());
            }
            if brought.end.is_some() {
                return Err(codec.head(rest, |_| ()).expect_err("it is not asked for"));
            }
            let take = |head: &ReplyHead<'_>| (head.status, head.is_interim());
            let Some((bytes, (status, is_interim))) = codec.head(rest, take)? else {
                return Ok(input.len() - rest.len());
            };
            rest = &rest[bytes..];
            match is_interim {
                true => brought.interim.push(status),
                false => brought.status = status,
            }
            brought.is_switched = status == 101;
            if brought.is_switched {
                return Ok(input.len());
            }
            continue;
        }
        match codec.body(&mut rest)? {
            Part::Data(data) => brought.data.extend_from_slice(data),
            Part::More { kept } => return Ok(input.len() - kept),
            Part::End(end, lines) => {
                brought.end = Some(end);
                brought.trailers = String::from_utf8_lossy(lines).into_owned();
                if end == End::Last {
                    return Ok(input.len());
                }
            }
        }
    }
}

/// The same however it is split.
fn brought(asked: Asked, input: &str) -> Brought {
    let whole = bring(asked, input.as_bytes(), input.len().max(1));
    for piece_bytes in [1, 2, 3, 7] {
        let split = bring(asked, input.as_bytes(), piece_bytes);
        // What follows a reply may come with it or later: either way the connection ends.
        let is_same = match (&whole.end, &split.end) {
            (Some(End::Last), Some(End::Reusable)) => split.fault == Some(ReplyFault::Unasked),
            _ => whole == split,
        };
        assert!(is_same, "UC1, {piece_bytes}: {whole:?} {split:?}");
    }
    whole
}

fn get(input: &str) -> Brought {
    brought(Asked::default(), input)
}

const HEAD: Asked = Asked {
    is_head: true,
    upgrade: false,
};

#[test]
fn a_reply_ends_where_its_framing_says() {
    for (input, data, end) in [
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc",
            "abc",
            End::Reusable,
        ),
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
            "",
            End::Reusable,
        ),
        (
            "HTTP/1.1 200 \r\ncontent-length: 3, 3\r\n\r\nabc",
            "abc",
            End::Reusable,
        ),
        (
            "HTTP/1.1 200\r\nContent-Length: 1\r\n\r\na",
            "a",
            End::Reusable,
        ),
        (
            "HTTP/1.1 404 Not Found\r\nConnection: close\r\nContent-Length: 1\r\n\r\na",
            "a",
            End::Last,
        ),
        (
            "HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\na",
            "a",
            End::Last,
        ),
        (
            "HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 1\r\n\r\na",
            "a",
            End::Reusable,
        ),
        ("HTTP/1.1 204 No Content\r\n\r\n", "", End::Reusable),
        (
            "HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n",
            "",
            End::Reusable,
        ),
        (
            "HTTP/1.1 304 Not Modified\r\nContent-Length: 99\r\n\r\n",
            "",
            End::Reusable,
        ),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\
             3\r\nabc\r\n1;a=b\r\nd\r\n0\r\n\r\n",
            "abcd",
            End::Reusable,
        ),
    ] {
        let got = get(input);
        let expected = (data.as_bytes(), Some(end), None);
        assert_eq!((&*got.data, got.end, got.fault), expected, "{input}");
    }
}

#[test]
fn a_reply_without_a_length_ends_with_its_connection() {
    for version in ["1.0", "1.1"] {
        let got = get(&format!("HTTP/{version} 200 OK\r\nA: b\r\n\r\nall of it"));
        assert_eq!((&*got.data, got.fault), (&b"all of it"[..], None));
        assert_eq!(got.end, None, "its connection is over");
    }
    let head = Codec::default();
    assert!(!head.is_untouched(), "nothing was asked");
}

#[test]
fn the_reply_to_head_has_no_body_whatever_it_says() {
    for framing in [
        "Content-Length: 9\r\n",
        "Transfer-Encoding: chunked\r\n",
        "",
    ] {
        let got = brought(HEAD, &format!("HTTP/1.1 200 OK\r\n{framing}\r\n"));
        assert_eq!(
            (got.end, got.fault),
            (Some(End::Reusable), None),
            "{framing}"
        );
    }
    let more = brought(HEAD, "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\na");
    assert_eq!((more.data.len(), more.end), (0, Some(End::Last)));
}

#[test]
fn interim_replies_come_before_the_reply_and_are_bounded() {
    let got = get(
        "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\n\
         HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\na",
    );
    assert_eq!((&*got.interim, got.status), (&[100, 103][..], 200));
    assert_eq!(got.end, Some(End::Reusable));
    let many = "HTTP/1.1 102 Processing\r\n\r\n".repeat(INTERIM_MAX as usize);
    let last = "HTTP/1.1 204 No Content\r\n\r\n";
    assert_eq!(get(&format!("{many}{last}")).fault, None);
    let over = format!("{many}HTTP/1.1 102 Processing\r\n\r\n{last}");
    assert_eq!(get(&over).fault, Some(ReplyFault::TooManyInterim));
}

#[test]
fn trailers_come_after_chunks() {
    let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n";
    let got = get(&format!("{head}X-Sum: 1\r\nY: 2\r\n\r\n"));
    assert_eq!(got.trailers, "X-Sum: 1\r\nY: 2\r\n\r\n");
    assert_eq!(got.end, Some(End::Reusable));
    let bad = get(&format!("{head}X Sum: 1\r\n\r\n"));
    assert_eq!(bad.fault, Some(ReplyFault::Body(Fault::Trailer)));
}

#[test]
fn a_switch_is_taken_only_where_it_was_asked_for() {
    let asked = Asked {
        is_head: false,
        upgrade: true,
    };
    let switch = "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n";
    assert!(brought(asked, switch).is_switched);
    assert_eq!(get(switch).fault, Some(ReplyFault::Upgrade));
    let without = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n";
    assert_eq!(brought(asked, without).fault, Some(ReplyFault::Upgrade));
}

/// What desyncs one reader from another: each is refused, whole and byte by byte.
#[test]
fn what_two_readers_would_read_differently_is_refused() {
    use Fault as F;
    use ReplyFault as R;
    let framing = |fault| R::Framing(fault);
    for (head, fault) in [
        (
            "Content-Length: 3\r\nTransfer-Encoding: chunked",
            framing(F::LengthAndCoding),
        ),
        ("Content-Length: 3\r\nContent-Length: 4", framing(F::Length)),
        ("Content-Length: 3, 4", framing(F::Length)),
        ("Content-Length: +3", framing(F::Length)),
        ("Content-Length: 0x3", framing(F::Length)),
        ("Content-Length: 3 3", framing(F::Length)),
        ("Content-Length:", framing(F::Length)),
        ("Content-Length: 18446744073709551616", framing(F::Length)),
        ("Transfer-Encoding: xchunked", framing(F::CodingOrder)),
        (
            "Transfer-Encoding: chunked, identity",
            framing(F::CodingOrder),
        ),
        (
            "Transfer-Encoding: gzip, chunked",
            framing(F::CodingUnknown),
        ),
        (
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
            framing(F::CodingOrder),
        ),
        ("Transfer-Encoding : chunked", R::Head(F::HeaderName)),
        ("Content-Length : 3", R::Head(F::HeaderName)),
        (" Content-Length: 3", R::Head(F::HeaderName)),
        ("A: b\r\n Content-Length: 3", R::Head(F::HeaderName)),
        ("A: b\nContent-Length: 3", R::Head(F::BareLineFeed)),
        ("A: b\rContent-Length: 3", R::Head(F::HeaderName)),
        ("A: \0b", R::Head(F::HeaderName)),
        ("A\0: b", R::Head(F::HeaderName)),
        ("no colon", R::Head(F::HeaderName)),
        (": no name", R::Head(F::HeaderName)),
    ] {
        let got = get(&format!("HTTP/1.1 200 OK\r\n{head}\r\n\r\nabc"));
        assert_eq!(got.fault, Some(fault), "{head:?}");
        assert_eq!((got.status, got.data.len()), (0, 0), "{head:?}");
    }
}

#[test]
fn what_is_no_status_line_is_refused() {
    for line in [
        "HTTP/2 200 OK",
        "HTTP/1.2 200 OK",
        "HTTP/1.1 20 OK",
        "HTTP/1.1 2000 OK",
        "HTTP/1.1 600 OK",
        "HTTP/1.1 099 OK",
        "HTTP/1.1  200 OK",
        "HTTP/1.1\t200 OK",
        "http/1.1 200 OK",
        "ICY 200 OK",
        "\r\nHTTP/1.1 200 OK",
        " HTTP/1.1 200 OK",
        "<html>",
        "\x16\x03\x01",
    ] {
        let got = get(&format!("{line}\r\nContent-Length: 0\r\n\r\n"));
        assert_eq!(got.fault, Some(ReplyFault::StatusLine), "{line:?}");
    }
    let mut codec = Codec::default();
    codec.expect(Asked::default());
    let rubbish = codec.head(b"S", |_| ()).err();
    assert_eq!(rubbish, Some(ReplyFault::StatusLine), "at the first byte");
}

#[test]
fn a_body_where_none_may_be_is_refused() {
    for (status, framing) in [
        (100, "Content-Length: 3"),
        (103, "Transfer-Encoding: chunked"),
        (204, "Content-Length: 3"),
        (204, "Transfer-Encoding: chunked"),
    ] {
        let got = get(&format!("HTTP/1.1 {status} X\r\n{framing}\r\n\r\nabc"));
        assert_eq!(
            got.fault,
            Some(ReplyFault::BodyNotAllowed),
            "{status} {framing}"
        );
    }
    let old = get("HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n");
    let fault = ReplyFault::Framing(Fault::CodingInOldVersion);
    assert_eq!(old.fault, Some(fault));
}

#[test]
fn a_second_reply_is_nobodys() {
    let one = "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\na";
    let with = bring(Asked::default(), format!("{one}{one}").as_bytes(), 1 << 20);
    assert_eq!((&*with.data, with.end), (&b"a"[..], Some(End::Last)));
    let mut codec = Codec::default();
    assert_eq!(codec.head(b"", |_| ()).map(|it| it.is_some()), Ok(false));
    let unasked = codec.head(one.as_bytes(), |_| ()).err();
    assert_eq!(unasked, Some(ReplyFault::Unasked));
}

#[test]
fn a_reply_that_is_cut_off_is_not_complete() {
    let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n";
    let sized = "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc";
    for reply in [chunked, sized] {
        let head_bytes = reply.find("\r\n\r\n").expect("a head") + 4;
        for bytes in 0..reply.len() {
            let expected = match bytes < head_bytes {
                true => ReplyFault::CutInHead,
                false => ReplyFault::CutInBody,
            };
            let got = get(&reply[..bytes]);
            assert_eq!(got.fault, Some(expected), "{:?}", &reply[..bytes]);
        }
    }
}

#[test]
fn a_head_without_end_is_refused() {
    let long = format!(
        "HTTP/1.1 200 OK\r\nA: {}\r\n",
        "b".repeat(HEADERS_BYTES_MAX)
    );
    let fault = bring(Asked::default(), long.as_bytes(), 1000).fault;
    assert_eq!(fault, Some(ReplyFault::Head(Fault::HeadersTooLong)));
    let many = format!("HTTP/1.1 200 OK\r\n{}", "A: b\r\n".repeat(HEADERS_MAX + 1));
    let fault = bring(Asked::default(), many.as_bytes(), 1000).fault;
    assert_eq!(fault, Some(ReplyFault::Head(Fault::HeadersTooMany)));
    let line = format!("HTTP/1.1 200 {}", "x".repeat(64 * 1024));
    let fault = bring(Asked::default(), line.as_bytes(), 1000).fault;
    assert_eq!(fault, Some(ReplyFault::StatusLine));
}

#[test]
fn what_has_not_been_answered_is_untouched() {
    let mut codec = Codec::default();
    codec.expect(Asked::default());
    assert!(codec.is_untouched());
    assert_eq!(codec.head(b"H", |_| ()), Ok(None));
    assert!(!codec.is_untouched());
}

#[test]
fn a_body_that_is_here_and_short_is_taken_at_once_and_of_others_nothing() {
    let length = "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n";
    let close = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 6\r\n\r\n";
    let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    let rows = [
        (length, "abcdef", 6, Some(("abcdef", End::Reusable))),
        (length, "abcdef", 5, None),
        (length, "abcde", 6, None),
        (length, "abcdefg", 6, Some(("abcdef", End::Last))),
        (close, "abcdef", 6, Some(("abcdef", End::Last))),
        (
            chunked,
            "1\r\na\r\n2\r\nbc\r\n0\r\n\r\n",
            3,
            Some(("abc", End::Reusable)),
        ),
        (chunked, "1\r\na\r\n2\r\nbc\r\n0\r\n\r\n", 2, None),
        (
            chunked,
            "3\r\nabc\r\n0\r\n\r\n",
            3,
            Some(("abc", End::Reusable)),
        ),
        (chunked, "3\r\nabc\r\n0\r\nX-A: b\r\n\r\n", 3, None),
        (chunked, "3\r\nabc\r\n0\r\n", 3, None),
        (chunked, "0\r\n\r\n", 3, Some(("", End::Reusable))),
        (chunked, "x", 3, None),
        ("HTTP/1.1 200 OK\r\n\r\n", "abc", 9, None),
    ];
    for (head, body, bytes_max, expected) in rows {
        let mut codec = Codec::default();
        codec.expect(Asked::default());
        let taken = codec.head(head.as_bytes(), |_| ()).expect("well formed");
        assert_eq!(taken.map(|(bytes, ())| bytes), Some(head.len()));
        let (before, mut rest) = (codec, body.as_bytes());
        let whole = codec.whole_body(&mut rest, bytes_max);
        let found = whole.as_ref().map(|(body, end)| (&body[..], *end));
        let expected = expected.map(|(body, end)| (body.as_bytes(), end));
        assert_eq!(found, expected, "{head}{body}");
        if found.is_none() {
            assert_eq!(
                (codec.stage, rest.len()),
                (before.stage, body.len()),
                "{body}"
            );
        } else {
            assert!(codec.awaits_head(), "{body}");
        }
    }
}
