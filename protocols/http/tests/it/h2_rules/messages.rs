//! Requests and their headers, and how these are compressed: section 8, RFC 7541 and RFC 9110.

use super::*;

pub(super) fn cases() -> Vec<Case> {
    let mut cases = sequences();
    cases.extend(headers());
    cases.extend(pseudo_headers());
    cases.extend(tunnels());
    cases.extend(lengths());
    cases.extend(compressed());
    cases
}

/// A GET with more headers.
fn with(headers: &[(&str, &str)]) -> Vec<u8> {
    ask(1, &[GET, &block(headers)].concat())
}

/// A request with these headers alone.
fn only(headers: &[(&str, &str)]) -> Vec<u8> {
    ask(1, &block(headers))
}

fn block(headers: &[(&str, &str)]) -> Vec<u8> {
    let headers = headers.iter();
    headers
        .flat_map(|(name, value)| header(name, value))
        .collect()
}

/// Headers after a body.
fn trailers(flags: u8, headers: &[(&str, &str)]) -> Vec<u8> {
    frame(HEADERS, flags | END_HEADERS, 1, &block(headers))
}

const METHOD: (&str, &str) = (":method", "GET");
const SCHEME: (&str, &str) = (":scheme", "http");
const PATH: (&str, &str) = (":path", "/");
const AUTHORITY: (&str, &str) = (":authority", "h");

fn sequences() -> Vec<Case> {
    let body = || [post(1), data(1, b"body")].concat();
    let end = END_STREAM;
    // It is refused before its body: the rest is thrown away.
    let too_long = [POST, &header("content-length", "3000000")].concat();
    let refused = || frame(HEADERS, END_HEADERS, 1, &too_long);
    let early = Answer(1, 413, 0);
    table! { greeted:
        "8.1" "trailers": [body(), trailers(end, &[("x", "y")])] => &[Answer(1, 200, 4)];
        "8.1" "trailers without a body":
            [post(1), trailers(end, &[("x", "y")])] => &[Answer(1, 200, 0)];
        "8.1" "trailers that do not end":
            [body(), trailers(0, &[("x", "y")])] => &[Reset(1, PROTOCOL)];
        "8.1" "a second head": [post(1), post(1)] => &[Reset(1, PROTOCOL)];
        "8.1" "a pseudo-header in trailers":
            [body(), trailers(end, &[METHOD])] => &[Reset(1, PROTOCOL)];
        "8.1" "a second head when the reply is out":
            [refused(), post(1)] => &[early, Reset(1, PROTOCOL)];
        "8.1" "a pseudo-header in trailers when the reply is out":
            [refused(), trailers(end, &[METHOD])] => &[early, Reset(1, PROTOCOL)];
        "8.4" "a stream of the server's to push": [post(2)] => &[End(PROTOCOL)];
        "RFC 9110 9" "HEAD": [ask(1, HEAD)] => &[Answer(1, 200, 0)];
        "RFC 9110 9" "POST": [post(1), last_data(1, b"body")] => &[Answer(1, 200, 4)];
        "RFC 9110 9" "no path but *":
            [only(&[(":method", "OPTIONS"), SCHEME, (":path", "*"), AUTHORITY])]
            => &[Answer(1, 204, 0)];
        "RFC 9110 9" "several requests":
            [[get(1), get(3), get(5)].concat()]
            => &[Answer(1, 200, 5), Answer(3, 200, 5), Answer(5, 200, 5)];
    }
}

fn headers() -> Vec<Case> {
    let refused = &[Reset(1, PROTOCOL)];
    let answer = &[Answer(1, 200, 5)];
    table! { greeted:
        "8.2.1" "a name with an upper-case letter": [with(&[("X-y", "z")])] => refused;
        "8.2.1" "a name with a space": [with(&[("x y", "z")])] => refused;
        "8.2.1" "an empty name": [with(&[("", "z")])] => refused;
        "8.2.1" "a value with a line feed": [with(&[("x", "y\nz: 1")])] => refused;
        "8.2.1" "a value with NUL": [with(&[("x", "y\0z")])] => refused;
        "8.2.1" "a space before a value": [with(&[("x", " y")])] => &[Answer(1, 400, 0)];
        "8.2.1" "a tab after a value": [with(&[("cookie", "y\t")])] => &[Answer(1, 400, 0)];
        "8.2.2" "connection": [with(&[("connection", "close")])] => refused;
        "8.2.2" "keep-alive": [with(&[("keep-alive", "1")])] => refused;
        "8.2.2" "proxy-connection": [with(&[("proxy-connection", "close")])] => refused;
        "8.2.2" "transfer-encoding": [with(&[("transfer-encoding", "chunked")])] => refused;
        "8.2.2" "upgrade": [with(&[("upgrade", "websocket")])] => refused;
        "8.2.2" "te: trailers": [with(&[("te", "trailers")])] => answer;
        "8.2.2" "te with more": [with(&[("te", "trailers, deflate;q=0.5")])] => refused;
        "8.2.3" "cookies in parts": [with(&[("cookie", "a=1"), ("cookie", "b=2")])] => answer;
    }
}

fn pseudo_headers() -> Vec<Case> {
    let refused = &[Reset(1, PROTOCOL)];
    let answer = &[Answer(1, 200, 5)];
    let twice = |header| only(&[METHOD, SCHEME, PATH, AUTHORITY, header]);
    let host = ("host", "h");
    table! { greeted:
        "8.3" "an unknown one": [only(&[METHOD, SCHEME, PATH, AUTHORITY, (":x", "y")])] => refused;
        "8.3" "one of replies":
            [only(&[METHOD, SCHEME, PATH, AUTHORITY, (":status", "200")])] => refused;
        "8.3" "after a header": [only(&[METHOD, SCHEME, PATH, host, AUTHORITY])] => refused;
        "8.3.1" "all of them": [only(&[METHOD, SCHEME, PATH, AUTHORITY])] => answer;
        "8.3.1" "a host in place of the authority":
            [only(&[METHOD, SCHEME, PATH, host])] => answer;
        "8.3.1" "the same host twice": [only(&[METHOD, SCHEME, PATH, AUTHORITY, host])] => answer;
        "8.3.1" "two hosts":
            [only(&[METHOD, SCHEME, PATH, AUTHORITY, ("host", "g")])] => &[Answer(1, 400, 0)];
        "8.3.1" "no host": [only(&[METHOD, SCHEME, PATH])] => &[Answer(1, 400, 0)];
        "8.3.1" "an empty path": [only(&[METHOD, SCHEME, (":path", ""), AUTHORITY])] => refused;
        "8.3.1" "a path without a slash":
            [only(&[METHOD, SCHEME, (":path", "x"), AUTHORITY])] => refused;
        "8.3.1" "no method": [only(&[SCHEME, PATH, AUTHORITY])] => refused;
        "8.3.1" "no scheme": [only(&[METHOD, PATH, AUTHORITY])] => refused;
        "8.3.1" "no path": [only(&[METHOD, SCHEME, AUTHORITY])] => refused;
        "8.3.1" "no path and no authority": [only(&[METHOD, SCHEME, host])] => refused;
        "8.3.1" "a fragment":
            [only(&[METHOD, SCHEME, (":path", "/#f"), AUTHORITY])] => &[Answer(1, 400, 0)];
        "8.3.1" "* of GET": [only(&[METHOD, SCHEME, (":path", "*"), AUTHORITY])] => refused;
        "8.3.1" "a path with a line feed":
            [only(&[METHOD, SCHEME, (":path", "/\nx: y"), AUTHORITY])] => refused;
        "8.3.1" "two methods": [twice(METHOD)] => refused;
        "8.3.1" "two schemes": [twice(SCHEME)] => refused;
        "8.3.1" "two paths": [twice(PATH)] => refused;
        "8.3.1" "two authorities": [twice(AUTHORITY)] => refused;
    }
}

fn tunnels() -> Vec<Case> {
    let refused = &[Reset(1, PROTOCOL)];
    let connect = (":method", "CONNECT");
    let protocol = (":protocol", "websocket");
    table! { greeted:
        "8.5" "CONNECT with a path": [only(&[connect, PATH, AUTHORITY])] => refused;
        "8.5" "CONNECT with a scheme": [only(&[connect, SCHEME, AUTHORITY])] => refused;
        "8.5" "CONNECT to another host":
            [only(&[connect, (":authority", "h:443")])] => &[Answer(1, 501, 0)];
        "RFC 8441 4" "a protocol without CONNECT":
            [only(&[METHOD, protocol, SCHEME, PATH, AUTHORITY])] => refused;
        "RFC 8441 4" "a protocol without a path":
            [only(&[connect, protocol, SCHEME, AUTHORITY])] => refused;
        "RFC 8441 4" "a protocol without a scheme":
            [only(&[connect, protocol, PATH, AUTHORITY])] => refused;
        "8.2.1" "a protocol that is more than a word":
            [only(&[connect, (":protocol", "x y"), SCHEME, PATH, AUTHORITY])]
            => &[Answer(1, 400, 0)];
        "8.2.1" "a protocol of two lines":
            [only(&[connect, (":protocol", "x\r\nreferer: y"), SCHEME, PATH, AUTHORITY])]
            => refused;
        "RFC 9110 9.3.6" "a tunnel to what is none":
            [only(&[connect, protocol, SCHEME, PATH, AUTHORITY])] => &[Answer(1, 501, 0)];
    }
}

fn lengths() -> Vec<Case> {
    let announced = |length| {
        let head = [POST, &header("content-length", length)].concat();
        frame(HEADERS, END_HEADERS, 1, &head)
    };
    let refused = &[Reset(1, PROTOCOL)];
    table! { greeted:
        "8.1.1" "a length that holds":
            [announced("4"), data(1, b"bo"), last_data(1, b"dy")] => &[Answer(1, 200, 4)];
        "8.1.1" "less than its length": [announced("5"), last_data(1, b"body")] => refused;
        "8.1.1" "more than its length": [announced("3"), last_data(1, b"body")] => refused;
        "8.1.1" "more in several frames":
            [announced("3"), data(1, b"bo"), last_data(1, b"dy")] => refused;
        "8.1.1" "less, then trailers":
            [announced("5"), data(1, b"body"), trailers(END_STREAM, &[("x", "y")])] => refused;
        "8.1.1" "a length and no body": [with(&[("content-length", "5")])] => refused;
        "8.1" "a body of length 0 whose end is to come": [announced("0")] => &[Answer(1, 200, 0)];
        "8.1" "a body of length 0 that ends":
            [announced("0"), last_data(1, b"")] => &[Answer(1, 200, 0)];
        "8.1.1" "a body of length 0 with a byte":
            [announced("0"), data(1, b"x")] => &[Answer(1, 200, 0), Reset(1, PROTOCOL)];
        "8.1.1" "a length that is none": [announced("x"), last_data(1, b"body")] => refused;
        "8.1.1" "two lengths":
            [with(&[("content-length", "0"), ("content-length", "1")])] => refused;
    }
}

fn compressed() -> Vec<Case> {
    let broken = &[End(COMPRESSION)];
    let ends = |rest: &[u8]| [ask(1, &[GET, rest].concat())];
    let begins = |first: &[u8]| [ask(1, &[first, GET].concat())];
    table! { greeted:
        "RFC 7541 2.3.3" "a header that no table has": ends(b"\xff\x81\x01")
            => broken;
        "RFC 7541 2.3.3" "a name that no table has": ends(b"\x7f\x81\x01\x01x")
            => broken;
        "RFC 7541 4.2" "a size of the table": begins(b"\x20") => &[Answer(1, 200, 5)];
        "RFC 7541 4.2" "a size after a header": ends(b"\x20") => broken;
        "RFC 7541 5.1" "a number without an end": ends(b"\x7f\xff\xff\xff\xff\xff\x0f")
            => broken;
        "RFC 7541 5.2" "Huffman's code": ends(b"\x00\x81\xf3\x81\xf3") => &[Answer(1, 200, 5)];
        "RFC 7541 5.2" "padding of more than seven bits": ends(b"\x00\x01x\x82\xf3\xff")
            => broken;
        "RFC 7541 5.2" "padding of zeros": ends(b"\x00\x01x\x81\xf2") => broken;
        "RFC 7541 5.2" "the code that ends a string":
            ends(b"\x00\x01x\x84\xff\xff\xff\xff") => broken;
        "RFC 7541 5.2" "a string longer than its block": ends(b"\x00\x01x\x05ab")
            => broken;
        "RFC 7541 6.1" "the header of index 0": ends(b"\x80") => broken;
        "RFC 7541 6.3" "a table larger than agreed": begins(b"\x3f\xe2\x1f")
            => broken;
    }
}
