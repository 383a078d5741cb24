//! Random requests and random bytes: what arrives in pieces is what arrives whole, what was sent is
//! what is parsed, and nothing panics.
//!
//! Every case names its seed when it fails.

use std::time::Duration;

use flatpath::simulation::each_seed;
use flatpath_http::{
    Body, Decoder, Fault, Framing, Limits, Piece, Response, Scan, Turn, testing,
    without_dot_segments,
};

const TURN: Turn = Turn::new(1, Duration::ZERO, Duration::from_secs(784_111_777));

/// What random requests are made of.
struct Random(fastrand::Rng);

impl Random {
    fn byte(&mut self) -> u8 {
        self.0.u8(..)
    }

    fn below(&mut self, bound: usize) -> usize {
        self.0.usize(..bound)
    }

    fn pick<'a, T: ?Sized>(&mut self, from: &[&'a T]) -> &'a T {
        from[self.below(from.len())]
    }

    fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.byte()).collect()
    }

    fn text(&mut self, characters: &[u8], bytes_min: usize, bytes_max: usize) -> String {
        let count = bytes_min + self.below(bytes_max - bytes_min + 1);
        (0..count)
            .map(|_| char::from(characters[self.below(characters.len())]))
            .collect()
    }
}

fn for_seeds(count: u64, case: impl Fn(&mut Random)) {
    each_seed(count, |seed| {
        case(&mut Random(fastrand::Rng::with_seed(seed)));
    });
}

const TOKEN: &[u8] = b"ABCXYZabcxyz0189!#$%&'*+-.^_`|~";
const PATH: &[u8] = b"abcXYZ019-._~!$&'()*+,;=:@/%\"[]^{|}\\";
const VALUE: &[u8] = b"abc XYZ\t019!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~\x80\xff";

/// A request, and what has to be found in it.
struct Sent {
    bytes: Vec<u8>,
    method: String,
    target: String,
    headers: Vec<(String, Vec<u8>)>,
    body: Vec<u8>,
}

fn valid_request(random: &mut Random) -> Sent {
    let method = match random.below(3) {
        0 => random.text(TOKEN, 1, 32),
        _ => random
            .pick(&["GET", "POST", "HEAD", "DELETE", "PATCH"])
            .to_owned(),
    };
    let method = if method == "CONNECT" {
        "GET".into()
    } else {
        method
    };
    let mut target = format!("/{}", random.text(PATH, 0, 40));
    if random.below(3) == 0 {
        target += &format!("?{}", random.text(PATH, 0, 40).replace('"', "'"));
    }
    if random.below(5) == 0 {
        target = format!("http://example.org:80{target}");
    }
    let mut headers = vec![("Host".to_owned(), b"example.org".to_vec())];
    for number in 0..random.below(12) {
        let name = format!("{}-{number}", random.text(TOKEN, 1, 60));
        let value = random
            .text(VALUE, 0, 60)
            .chars()
            .map(|it| it as u32 as u8)
            .collect::<Vec<u8>>();
        headers.insert(
            random.below(headers.len() + 1),
            (name, value.trim_ascii().to_vec()),
        );
    }
    let body_bytes = random.below(300);
    let body = random.bytes(body_bytes);
    let (body, framed) = frame_body(random, body, &mut headers);
    let mut bytes = b"\r\n".repeat(random.below(3));
    bytes.extend_from_slice(format!("{method} {target} HTTP/1.1\r\n").as_bytes());
    for (name, value) in &headers {
        bytes.extend_from_slice(name.as_bytes());
        bytes.push(b':');
        bytes.extend(b" \t".iter().cycle().take(random.below(3)));
        bytes.extend_from_slice(value);
        bytes.extend(b" \t".iter().cycle().take(random.below(2)));
        bytes.extend_from_slice(b"\r\n");
    }
    bytes.extend_from_slice(b"\r\n");
    bytes.extend(framed);
    Sent {
        bytes,
        method,
        target,
        headers,
        body,
    }
}

type ReplyHeaders = Vec<(String, Vec<u8>)>;

fn frame_body(
    random: &mut Random,
    body: Vec<u8>,
    headers: &mut ReplyHeaders,
) -> (Vec<u8>, Vec<u8>) {
    match random.below(3) {
        0 => (Vec::new(), Vec::new()),
        1 => {
            headers.push((
                "content-Length".to_owned(),
                body.len().to_string().into_bytes(),
            ));
            (body.clone(), body)
        }
        _ => {
            headers.push(("Transfer-encoding".to_owned(), b"chunked".to_vec()));
            let mut framed = Vec::new();
            let mut rest = body.as_slice();
            while !rest.is_empty() {
                let (chunk, after) = rest.split_at(1 + random.below(rest.len()));
                let extension = random.pick(&["", ";a", ";a=b", "; a = \"b\""]);
                framed.extend(format!("{:x}{extension}\r\n", chunk.len()).into_bytes());
                framed.extend_from_slice(chunk);
                framed.extend_from_slice(b"\r\n");
                rest = after;
            }
            framed.extend_from_slice(random.pick(&[&b"0\r\n\r\n"[..], b"000;x\r\nA: b\r\n\r\n"]));
            (body, framed)
        }
    }
}

/// Something between a valid request and noise.
fn damaged_request(random: &mut Random) -> Vec<u8> {
    let mut bytes = valid_request(random).bytes;
    for _ in 0..1 + random.below(3) {
        let at = random.below(bytes.len());
        match random.below(5) {
            0 => bytes[at] = random.byte(),
            1 => bytes[at] = *random.pick(&[&b'\r', &b'\n', &b' ', &b':', &0, &b',', &b';']),
            2 if bytes.len() > 1 => drop(bytes.remove(at)),
            3 => bytes.insert(at, random.byte()),
            _ => bytes.truncate(at.max(1)),
        }
    }
    bytes
}

type Found = Result<Option<(String, Vec<u8>, usize)>, Fault>;

fn found_whole(input: &[u8]) -> Found {
    let found = testing::request(input)?;
    Ok(found.map(|(request, bytes)| {
        let summary = format!(
            "{} {} {:?}",
            request.method(),
            request.uri(),
            request.headers()
        );
        (
            summary,
            request.into_body().into_vec().expect("in memory"),
            bytes,
        )
    }))
}

/// What is found when the input arrives in random pieces, as a connection offers it.
fn found_in_pieces(random: &mut Random, input: &[u8]) -> Found {
    let limits = Limits::default();
    let mut scan = Scan::new();
    let mut arrived = 0;
    let head_bytes = loop {
        if let Some(head_bytes) = scan.advance(&input[..arrived], &limits)? {
            break head_bytes;
        }
        if arrived == input.len() {
            return Ok(None);
        }
        arrived = (arrived + 1 + random.below(40)).min(input.len());
    };
    let found = testing::with_head(&input[..arrived], |head| (head.framing(), head.bytes()))?;
    let (framing, found_bytes) = found.expect("complete");
    assert_eq!(found_bytes, head_bytes);
    let mut decoder = Decoder::new(framing);
    let (mut at, mut body) = (head_bytes, Vec::new());
    loop {
        let mut rest = &input[at..arrived];
        match decoder.next(&mut rest)? {
            Piece::Data(data) => body.extend_from_slice(data),
            Piece::More if arrived == input.len() => return Ok(None),
            Piece::More => {
                at = arrived;
                arrived = (arrived + 1 + random.below(40)).min(input.len());
                continue;
            }
            Piece::End => {
                let whole = found_whole(input)?.expect("the pieces were complete");
                return Ok(Some((whole.0, body, arrived - rest.len())));
            }
        }
        at = arrived - rest.len();
    }
}

/// The target that a service gets: without the dot segments of its path.
fn without_dots(target: &str) -> Result<String, Fault> {
    let (before, query) = target.split_at(target.find('?').unwrap_or(target.len()));
    let authority = match before.starts_with('/') {
        true => 0,
        false => before.find("://").map_or(0, |at| at + 3),
    };
    let at = before[authority..].find('/').map(|at| authority + at);
    let (begin, path) = before.split_at(at.unwrap_or(before.len()));
    Ok(format!("{begin}{}{query}", without_dot_segments(path)?))
}

#[test]
fn model_random_requests_are_parsed_as_they_were_sent() {
    for_seeds(3000, |random| {
        let sent = valid_request(random);
        let Ok(expected) = without_dots(&sent.target) else {
            let refused = testing::request(&sent.bytes).map(drop);
            return assert_eq!(refused, Err(Fault::DotSegments), "{}", sent.target);
        };
        let (request, bytes) = testing::request(&sent.bytes)
            .unwrap_or_else(|fault| panic!("{fault:?}: {:?}", String::from_utf8_lossy(&sent.bytes)))
            .expect("complete");
        assert_eq!(bytes, sent.bytes.len());
        assert_eq!(request.method().as_str(), sent.method);
        let target = request.uri().to_string();
        // `http://h` alone means its root, which the http crate writes out.
        assert!(
            target == expected || target == format!("{expected}/"),
            "{target}"
        );
        assert_eq!(request.headers().len(), sent.headers.len());
        for (name, value) in &sent.headers {
            let mut values = request.headers().get_all(name.as_str()).iter();
            assert!(values.any(|found| found.as_bytes() == value), "{name}");
        }
        assert_eq!(
            request.into_body().into_vec().expect("in memory"),
            sent.body
        );
    });
}

#[test]
fn model_pieces_are_parsed_like_the_whole() {
    for_seeds(3000, |random| {
        let mut input = match random.below(3) {
            0 => valid_request(random).bytes,
            _ => damaged_request(random),
        };
        if random.below(3) == 0 {
            input.extend(valid_request(random).bytes);
        }
        let whole = found_whole(&input);
        for _ in 0..4 {
            assert_eq!(
                found_in_pieces(random, &input),
                whole,
                "{:?}",
                String::from_utf8_lossy(&input)
            );
        }
    });
}

#[test]
fn model_pieces_near_a_limit_are_parsed_like_the_whole() {
    for_seeds(200, |random| {
        let path = "a".repeat(8150 + random.below(100));
        let filler = "v".repeat(16_300 + random.below(120));
        let input = match random.below(4) {
            0 => format!("GET /{path} HTTP/1.1\r\nHost: h\r\n\r\n"),
            1 => format!("GET / HTTP/1.1\r\nHost: h\r\nA: {filler}\r\n\r\n"),
            2 => format!("{path} / HTTP/1.1\r\nHost: h\r\n\r\n"),
            _ => format!(
                "GET / HTTP/1.1\r\nHost: h\r\n{}\r\n",
                "A: b\r\n".repeat(95 + random.below(10))
            ),
        };
        let mut damaged = input.into_bytes();
        if random.below(2) == 0 {
            let at = random.below(damaged.len());
            damaged[at] = b'\n';
        }
        let whole = found_whole(&damaged);
        for _ in 0..3 {
            assert_eq!(found_in_pieces(random, &damaged), whole);
        }
    });
}

#[test]
fn model_random_bytes_panic_nowhere() {
    for_seeds(20_000, |random| {
        let count = random.below(200);
        let noise = random.bytes(count);
        let _ = testing::request(&noise);
        let mut decoder = Decoder::new(Framing::Chunked);
        let mut rest = noise.as_slice();
        while let Ok(Piece::Data(_)) = decoder.next(&mut rest) {}
    });
}

#[test]
fn model_the_http_crate_takes_every_head_that_is_taken_here() {
    for_seeds(20_000, |random| {
        let input = damaged_request(random);
        let has_no_body = testing::with_head(&input, |head| head.framing() == Framing::Empty);
        if has_no_body == Ok(Some(true)) {
            assert!(
                matches!(testing::request(&input), Ok(Some(_))),
                "{:?}",
                String::from_utf8_lossy(&input)
            );
        }
    });
}

#[test]
fn model_random_responses_are_read_as_they_were_made() {
    const STATUSES: &[u16] = &[200, 201, 204, 206, 205, 304, 301, 404, 416, 500, 503, 599];
    for_seeds(3000, |random| {
        let status = STATUSES[random.below(STATUSES.len())];
        let count = random.below(5000);
        let content = random.bytes(count);
        let body = match random.below(3) {
            0 => Body::Empty,
            1 => content.clone().into(),
            _ => Body::reader(std::io::Cursor::new(content.clone()), None),
        };
        let expected = if matches!(body, Body::Empty) {
            Vec::new()
        } else {
            content
        };
        let mut response = Response::new(body);
        *response.status_mut() = http::StatusCode::from_u16(status).expect("valid");
        for number in 0..random.below(8) {
            let name = http::HeaderName::try_from(format!("x-{number}")).expect("a token");
            let value = random.text(b"abc XYZ=;\"", 0, 30).trim().to_owned();
            response
                .headers_mut()
                .insert(name, value.try_into().expect("visible"));
        }
        let headers = response.headers().clone();
        let request = random.pick(&[
            "GET / HTTP/1.1\r\nHost: h\r\n\r\n",
            "GET / HTTP/1.0\r\n\r\n",
            "HEAD / HTTP/1.1\r\nHost: h\r\n\r\n",
        ]);
        let wire = testing::with_head(request.as_bytes(), |head| {
            testing::encoded(head, TURN, response)
        });
        let wire = wire.expect("valid").expect("complete");
        check_wire(
            &wire,
            status,
            &headers,
            &expected,
            request.starts_with("HEAD"),
        );
    });
}

/// Reads a reply as a client does, and compares.
fn check_wire(wire: &[u8], status: u16, headers: &http::HeaderMap, body: &[u8], is_head: bool) {
    let mut room = [httparse::EMPTY_HEADER; 32];
    let mut reply = httparse::Response::new(&mut room);
    let httparse::Status::Complete(head_bytes) = reply.parse(wire).expect("a valid head") else {
        panic!("the head is not complete");
    };
    assert_eq!(reply.code, Some(status));
    let value = |name: &str| {
        let mut same = reply
            .headers
            .iter()
            .filter(|header| header.name.eq_ignore_ascii_case(name));
        let value = same.next().map(|header| header.value);
        assert!(same.next().is_none(), "{name} is there twice");
        value
    };
    for (name, expected) in headers {
        assert_eq!(value(name.as_str()), Some(expected.as_bytes()));
    }
    assert_eq!(value("date"), Some(&b"Sun, 06 Nov 1994 08:49:37 GMT"[..]));
    let rest = &wire[head_bytes..];
    if is_head || matches!(status, 204 | 205 | 304) {
        assert!(rest.is_empty(), "no body may follow");
        return;
    }
    if value("transfer-encoding").is_some() {
        assert_eq!(value("content-length"), None);
        let mut decoder = Decoder::new(Framing::Chunked);
        let (mut rest, mut found) = (rest, Vec::new());
        while let Piece::Data(data) = decoder.next(&mut rest).expect("well framed") {
            found.extend_from_slice(data);
        }
        assert!(decoder.is_complete() && rest.is_empty());
        assert_eq!(found, body);
    } else {
        let stated =
            value("content-length").map(|length| String::from_utf8_lossy(length).into_owned());
        let closes = value("connection") == Some(b"close");
        assert!(stated == Some(body.len().to_string()) || (stated.is_none() && closes));
        assert_eq!(rest, body);
    }
}
