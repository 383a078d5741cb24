//! Headers as balancers send them, each cut and bent at every byte.

use super::*;

fn v2(command: u8, family: u8, rest: &[u8]) -> Vec<u8> {
    let length = u16::try_from(rest.len()).expect("short enough");
    let mut header = SIGNATURE.to_vec();
    header.extend([command, family]);
    header.extend(length.to_be_bytes());
    header.extend(rest);
    header
}

fn field(kind: u8, value: &[u8]) -> Vec<u8> {
    let length = u16::try_from(value.len()).expect("short enough");
    let mut field = vec![kind];
    field.extend(length.to_be_bytes());
    field.extend(value);
    field
}

/// 192.0.2.1:56324 to 198.51.100.7:443.
const V4: [u8; 12] = [192, 0, 2, 1, 198, 51, 100, 7, 0xdc, 0x04, 1, 0xbb];

fn v6() -> Vec<u8> {
    let mut addresses = [0x20, 1, 0xd, 0xb8].to_vec();
    addresses.resize(15, 0);
    addresses.push(7);
    addresses.resize(32, 9);
    addresses.extend([0xdc, 4, 1, 0xbb]);
    addresses
}

fn client(text: &str) -> Option<SocketAddr> {
    Some(text.parse().expect("an address"))
}

/// Checks that `header` is one with this client, however much follows, and none before its last
/// byte.
fn is_header(header: &[u8], client: Option<SocketAddr>) {
    for end in 0..header.len() {
        let part = &header[..end];
        assert_eq!(parse(part), Ok(None), "{}", part.escape_ascii());
    }
    let bytes = header.len();
    for more in [&b""[..], b"GET / HTTP/1.1\r\n", b"PROXY ", b"\r\n", b"\n"] {
        let whole = [header, more].concat();
        let expected = Ok(Some(Header { client, bytes }));
        assert_eq!(parse(&whole), expected, "{}", whole.escape_ascii());
    }
}

/// Checks that `header` is refused with what follows, and that a part of it is either refused for
/// the same reason or may still become a header.
fn is_refused(header: &[u8], error: HeaderError) {
    let whole = [header, b"GET / HTTP/1.1\r\n\r\n"].concat();
    assert_eq!(parse(&whole), Err(error), "{}", header.escape_ascii());
    for end in 0..header.len() {
        let found = parse(&header[..end]);
        assert!(found == Ok(None) || found == Err(error), "{end}: {found:?}");
    }
}

#[test]
fn lines_name_the_client() {
    let line = b"PROXY TCP4 192.0.2.1 198.51.100.7 56324 443\r\n";
    is_header(line, client("192.0.2.1:56324"));
    let line = b"PROXY TCP4 255.255.255.255 255.255.255.255 65535 65535\r\n";
    is_header(line, client("255.255.255.255:65535"));
    is_header(b"PROXY TCP4 0.0.0.0 0.0.0.0 0 0\r\n", client("0.0.0.0:0"));
    let line = b"PROXY TCP6 2001:DB8::1 ::ffff:10.0.0.1 1 2\r\n";
    is_header(line, client("[2001:db8::1]:1"));
    let long = "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff";
    let line = format!("PROXY TCP6 {long} {long} 65535 65535\r\n");
    is_header(line.as_bytes(), client(&format!("[{long}]:65535")));
    for rest in [
        "",
        " ",
        " \u{e9} whatever",
        &format!(" {long} {long} 65535 65535"),
    ] {
        is_header(format!("PROXY UNKNOWN{rest}\r\n").as_bytes(), None);
    }
}

#[test]
fn lines_that_are_not_as_they_should_be_are_refused() {
    let address = HeaderError::Malformed("address");
    for (line, error) in [
        ("PROXY TCP4 192.0.2.01 198.51.100.7 1 2\r\n", address),
        ("PROXY TCP4 192.0.2 198.51.100.7 1 2\r\n", address),
        ("PROXY TCP4 192.0.2.1 2001:db8::1 1 2\r\n", address),
        ("PROXY TCP4 2001:db8::1 192.0.2.1 1 2\r\n", address),
        ("PROXY TCP6 192.0.2.1 192.0.2.1 1 2\r\n", address),
        ("PROXY TCP6 fe80::1%eth0 ::1 1 2\r\n", address),
        ("PROXY TCP6 :: 0::x 1 2\r\n", address),
    ] {
        is_refused(line.as_bytes(), error);
    }
    for ports in ["01 2", "1 65536", "1 +2", "-1 2", "1 ", " 1", "1", "1  2"] {
        let line = format!("PROXY TCP4 192.0.2.1 192.0.2.1 {ports}\r\n");
        is_refused(line.as_bytes(), HeaderError::Malformed("port"));
    }
    let more = b"PROXY TCP4 192.0.2.1 192.0.2.1 1 2 3\r\n";
    is_refused(more, HeaderError::Malformed("line"));
    is_refused(
        b"PROXY TCP4 \xff 192.0.2.1 1 2\r\n",
        HeaderError::Malformed("line"),
    );
    for family in ["TCP5 192.0.2.1 192.0.2.1 1 2", "tcp4 :: :: 1 2", "UNKNOWNS"] {
        let line = format!("PROXY {family}\r\n");
        is_refused(line.as_bytes(), HeaderError::Malformed("family"));
    }
    is_refused(b"PROXY UNKNOWN\n", HeaderError::Malformed("line end"));
    is_refused(b"PROXY \r\n", HeaderError::Malformed("family"));
    is_refused(b"PROXY UNKNOWN \r \n", HeaderError::Malformed("line end"));
}

#[test]
fn a_line_ends_within_107_bytes() {
    let line = |spaces: usize| format!("PROXY UNKNOWN{}\r\n", " ".repeat(spaces));
    is_header(line(92).as_bytes(), None);
    is_refused(line(93).as_bytes(), HeaderError::TooLong);
}

#[test]
fn what_begins_otherwise_is_refused_at_its_first_wrong_byte() {
    for text in [
        &b"GET / HTTP/1.1\r\n"[..],
        b"proxy UNKNOWN\r\n",
        b"PROXYTCP4",
        b"\r\n\r\n\0\r\nQUIT\r",
        b"\n",
        b"\x16\x03\x01",
        b"\x80\0\0\x28",
    ] {
        let same = |words: &[u8]| {
            let pairs = text.iter().zip(words);
            pairs.take_while(|(one, other)| one == other).count()
        };
        let wrong = same(SIGNATURE).max(same(LINE_BEGINS));
        assert_eq!(parse(&text[..wrong]), Ok(None));
        assert_eq!(parse(&text[..=wrong]), Err(HeaderError::Absent));
        assert_eq!(parse(text), Err(HeaderError::Absent));
    }
}

#[test]
fn binary_headers_name_the_client() {
    is_header(&v2(0x21, 0x11, &V4), client("192.0.2.1:56324"));
    is_header(&v2(0x21, 0x12, &V4), client("192.0.2.1:56324"));
    is_header(&v2(0x21, 0x21, &v6()), client("[2001:db8::7]:56324"));
    let fields = [field(1, b"h2"), field(2, b"example.com"), field(4, b"")];
    let fields = fields.concat();
    let rest = [&V4[..], &fields].concat();
    is_header(&v2(0x21, 0x11, &rest), client("192.0.2.1:56324"));
    // As long as is accepted.
    let space = HEADER_BYTES_MAX - FIXED_BYTES - V4.len() - 3;
    let rest = [&V4[..], &field(0xe0, &vec![7; space])].concat();
    let header = v2(0x21, 0x11, &rest);
    assert_eq!(header.len(), HEADER_BYTES_MAX);
    is_header(&header, client("192.0.2.1:56324"));
}

#[test]
fn without_an_internet_address_the_connections_own_counts() {
    is_header(&v2(0x20, 0, &[]), None);
    // "The receiver must discard the protocol block including the family", whatever is in it.
    for family in [0x11, 0x21, 0x31, 0xff] {
        is_header(&v2(0x20, family, &V4), None);
        is_header(&v2(0x20, family, b"\xff\xff\xff"), None);
    }
    for family in [0x00, 0x01, 0x02] {
        is_header(&v2(0x21, family, &[]), None);
        is_header(&v2(0x21, family, b"whatever"), None);
    }
    is_header(&v2(0x21, 0x10, &V4), None);
    for family in [0x30, 0x31, 0x32] {
        is_header(&v2(0x21, family, &[b'/'; 216]), None);
    }
}

#[test]
fn binary_headers_that_are_not_as_they_should_be_are_refused() {
    for (command, wrong) in [
        (0x11, "version"),
        (0x31, "version"),
        (0x01, "version"),
        (0x22, "command"),
        (0x2f, "command"),
    ] {
        is_refused(&v2(command, 0x11, &V4), HeaderError::Malformed(wrong));
    }
    for family in [0x13, 0x1f, 0x41, 0xf1, 0x03, 0x33] {
        is_refused(
            &v2(0x21, family, &[0; 300]),
            HeaderError::Malformed("family"),
        );
    }
    for (family, length) in [(0x11, 11), (0x11, 0), (0x21, 35), (0x31, 215)] {
        let header = v2(0x21, family, &vec![0; length]);
        is_refused(&header, HeaderError::Malformed("length"));
    }
    let long = v2(0x21, 0x11, &vec![0; HEADER_BYTES_MAX]);
    is_refused(&long, HeaderError::TooLong);
    for cut in [&b"\x04"[..], b"\x04\0", b"\x04\0\x01", b"\x02\xff\xffabc"] {
        let rest = [&V4[..], &field(1, b"h2"), cut].concat();
        is_refused(&v2(0x21, 0x11, &rest), HeaderError::Malformed("field"));
    }
}

#[test]
fn a_checksum_must_be_right() {
    // RFC 3720, appendix B.4.
    assert_eq!(crc32c(&[&[0; 32]]), 0x8a91_36aa);
    let ascending: Vec<u8> = (0..32).collect();
    assert_eq!(crc32c(&[&ascending[..5], &ascending[5..]]), 0x46dd_794e);
    let with = |sum: u32| {
        let fields = [
            field(1, b"h2"),
            field(TYPE_CRC32C, &sum.to_be_bytes()),
            field(4, b"more"),
        ];
        v2(0x21, 0x11, &[&V4[..], &fields.concat()].concat())
    };
    let sum = crc32c(&[&with(0)]);
    is_header(&with(sum), client("192.0.2.1:56324"));
    for bit in 0..32 {
        let wrong = with(sum ^ 1 << bit);
        is_refused(&wrong, HeaderError::Malformed("checksum"));
    }
    let rest = [&V4[..], &field(TYPE_CRC32C, b"123")].concat();
    is_refused(&v2(0x21, 0x11, &rest), HeaderError::Malformed("field"));
}
