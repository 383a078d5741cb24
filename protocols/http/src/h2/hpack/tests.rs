//! HPACK by the examples of RFC 7541, and encoder and decoder against each other.

use super::*;

const BYTES_MAX: usize = 10_000;

type Fields = Vec<(String, String)>;

fn decoded(decoder: &mut Decoder, block: &[u8]) -> Result<Fields, Broken> {
    let mut list = FieldList::default();
    list.begin(BYTES_MAX);
    decoder.decode(block, &mut list)?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ok(list
        .iter()
        .map(|(name, value)| (text(name), text(value)))
        .collect())
}

fn fields(fields: &[(&str, &str)]) -> Fields {
    let fields = fields.iter();
    fields
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect()
}

/// RFC 7541 appendix C.3 and C.4: three requests of one connection, with and without Huffman.
#[test]
fn requests_are_those_of_the_rfc() {
    let plain: [&[u8]; 3] = [
        b"\x82\x86\x84\x41\x0fwww.example.com",
        b"\x82\x86\x84\xbe\x58\x08no-cache",
        b"\x82\x87\x85\xbf\x40\x0acustom-key\x0ccustom-value",
    ];
    let huffman: [&[u8]; 3] = [
        b"\x82\x86\x84\x41\x8c\xf1\xe3\xc2\xe5\xf2\x3a\x6b\xa0\xab\x90\xf4\xff",
        b"\x82\x86\x84\xbe\x58\x86\xa8\xeb\x10\x64\x9c\xbf",
        b"\x82\x87\x85\xbf\x40\x88\x25\xa8\x49\xe9\x5b\xa9\x7d\x7f\x89\x25\xa8\x49\xe9\x5b\xb8\xe8\
        \xb4\xbf",
    ];
    let host = (":authority", "www.example.com");
    let get = (":method", "GET");
    let expected = [
        fields(&[get, (":scheme", "http"), (":path", "/"), host]),
        fields(&[
            get,
            (":scheme", "http"),
            (":path", "/"),
            host,
            ("cache-control", "no-cache"),
        ]),
        fields(&[
            get,
            (":scheme", "https"),
            (":path", "/index.html"),
            host,
            ("custom-key", "custom-value"),
        ]),
    ];
    for blocks in [plain, huffman] {
        let mut decoder = Decoder::default();
        for (block, expected) in blocks.into_iter().zip(&expected) {
            assert_eq!(decoded(&mut decoder, block).as_ref(), Ok(expected));
        }
    }
}

/// RFC 7541 appendix C.1 and C.2.
#[test]
fn literals_and_numbers_are_those_of_the_rfc() {
    let mut decoder = Decoder::default();
    let mut check = |block: &[u8], name, value| {
        let found = decoded(&mut decoder, block);
        assert_eq!(found, Ok(fields(&[(name, value)])));
    };
    check(
        b"\x40\x0acustom-key\x0dcustom-header",
        "custom-key",
        "custom-header",
    );
    check(b"\x04\x0c/sample/path", ":path", "/sample/path");
    check(b"\x10\x08password\x06secret", "password", "secret");
    check(b"\x82", ":method", "GET");
    // A length of 1337, five bits of which 31 are taken: here with seven.
    let long = [b"\x04\x7f\xba\x09", &[b'x'; 1337][..]].concat();
    check(&long, ":path", &"x".repeat(1337));
}

#[test]
fn a_client_that_was_told_has_no_table() {
    let mut decoder = Decoder::default();
    assert!(decoder.may_take_table());
    assert!(decoded(&mut decoder, b"\x40\x01x\x01y\xbe").is_ok());
    assert!(decoder.has_table() && !decoder.may_take_table());
    decoder.told();
    assert!(!decoder.has_table() && !decoder.may_take_table());
    for broken in [&b"\xbe"[..], b"\x7e\x01y", b"\x40\x01x\x01y\xbe", b"\x21"] {
        assert_eq!(decoded(&mut decoder, broken), Err(Broken), "{broken:x?}");
    }
    let one = Ok(fields(&[("x", "y")]));
    for right in [&b"\x40\x01x\x01y"[..], b"\x20\x40\x01x\x01y"] {
        assert_eq!(decoded(&mut decoder, right), one);
    }
    assert!(!decoder.has_table());
}

#[test]
fn sizes_of_the_table_are_kept_to() {
    for (block, is_right) in [
        (&b"\x20\x82"[..], true),
        (b"\x3f\xe1\x1f\x82", true),
        (b"\x20\x3f\xe1\x1f\x82", true),
        (b"\x3f\xe2\x1f\x82", false),
        (b"\x82\x20", false),
        (b"\x20\x40\x01x\x01y\xbe", false),
        // Room for one entry of two bytes, and for no second one.
        (b"\x3f\x03\x40\x01x\x01y\xbe", true),
        (b"\x3f\x03\x40\x01x\x01y\x40\x01x\x01z\xbf", false),
        (b"\x3f\x03\x40\x01x\x02yy\xbe", false),
    ] {
        let found = decoded(&mut Decoder::default(), block);
        assert_eq!(found.is_ok(), is_right, "{block:x?}: {found:?}");
    }
}

#[test]
fn what_is_no_block_is_refused() {
    for broken in [
        &b"\x80"[..],
        b"\x40",
        b"\x00\x01",
        b"\x00\x01x",
        b"\x00\x01x\x05ab",
        b"\xff\x81\x01",
        b"\x7f\x81\x01\x01x",
        b"\x7f\xff\xff\xff\xff\xff\x0f",
        b"\x00\x01x\x82\xf3\xff",
        b"\x00\x01x\x81\xf2",
        b"\xff\x80\x80\x80\x80\x80\x80\x80\x00",
    ] {
        assert_eq!(decoded(&mut Decoder::default(), broken), Err(Broken));
    }
}

#[test]
fn a_list_has_bounds_and_the_rest_is_read_for_the_table() {
    let mut list = FieldList::default();
    let mut decoder = Decoder::default();
    let mut bomb = b"\x82\x40\x01x\x7f\xb9\x16".to_vec();
    bomb.extend([b'v'; 3000]);
    bomb.extend([0xbe; 10_000]);
    list.begin(BYTES_MAX);
    assert_eq!(decoder.decode(&bomb, &mut list), Ok(()));
    assert!(list.is_over());
    let kept = list.iter().map(|(name, value)| name.len() + value.len());
    assert!(kept.sum::<usize>() <= BYTES_MAX && list.len() == 4);
    assert_eq!(list.iter().next(), Some((&b":method"[..], &b"GET"[..])));
    // What was added behind the bound is in the table.
    let fill = BYTES_MAX / (b":methodGET".len() + ENTRY_OVERHEAD_BYTES);
    let late = [&vec![0x82; fill + 1], &b"\x40\x01k\x01v"[..]].concat();
    list.begin(BYTES_MAX);
    assert_eq!(decoder.decode(&late, &mut list), Ok(()));
    assert!(list.is_over() && list.len() == fill);
    let newest = decoded(&mut decoder, b"\xbe");
    assert_eq!(newest, Ok(fields(&[("k", "v")])));
    list.begin(BYTES_MAX);
    assert_eq!(decoder.decode(&vec![0x82; fill], &mut list), Ok(()));
    assert!(!list.is_over());
}

#[test]
fn a_table_takes_so_much_in_all_and_no_more() {
    let entry = [b"\x40\x01a\x7f\xa1\x1e", &[b'v'; 4000][..]].concat();
    let entry_bytes = 4001 + ENTRY_OVERHEAD_BYTES;
    let mut decoder = Decoder::default();
    for at in 0..decode::TABLE_BYTES_IN_ALL / entry_bytes {
        assert!(decoded(&mut decoder, &entry).is_ok(), "{at}");
    }
    assert_eq!(decoded(&mut decoder, &entry), Err(Broken));
    // What is in no table is none of it.
    let literal = [&[0], &entry[1..]].concat();
    assert!(decoded(&mut decoder, &literal).is_ok());
    decoder.told();
    assert!(decoded(&mut decoder, &entry).is_ok());
}

#[test]
fn cookies_are_put_together_if_there_are_several() {
    let mut list = FieldList::default();
    let mut joined_of = |names: &[(&str, &str)], spelled: &[u8]| {
        list.begin(BYTES_MAX);
        let mut block = Vec::new();
        for (name, value) in names {
            put_field(&mut block, name.as_bytes(), value.as_bytes());
        }
        block.extend_from_slice(spelled);
        assert_eq!(Decoder::default().decode(&block, &mut list), Ok(()));
        let joined = list.join_cookies().map(|field| {
            let (name, value) = list.at(field);
            (name.to_vec(), value.to_vec())
        });
        let text: usize = list
            .iter()
            .map(|(name, value)| name.len() + value.len())
            .sum();
        assert_eq!(list.text_bytes(), text, "what was joined is beside them");
        joined
    };
    let some = [("cookie", "a=1"), ("x", "y"), ("cookie", "b=2")];
    let joined = |value: &[u8]| Some((b"cookie".to_vec(), value.to_vec()));
    assert_eq!(joined_of(&some, b""), joined(b"a=1; b=2"));
    // One is called so by the table, and one by its letters.
    let spelled = b"\x00\x06cookie\x03c=3";
    assert_eq!(joined_of(&some[..2], spelled), joined(b"a=1; c=3"));
    assert_eq!(joined_of(&some[..2], b""), None);
    assert_eq!(joined_of(&[], spelled), None);
}

#[test]
fn a_name_is_known_by_its_entry_of_the_static_table_alone() {
    let mut list = FieldList::default();
    list.begin(BYTES_MAX);
    // From the table whole, its name from there, added, spelled out, and from the client's table.
    let block = b"\x82\x04\x02/a\x51\x01b\x00\x06accept\x01c\xbe";
    assert_eq!(Decoder::default().decode(block, &mut list), Ok(()));
    let named = |(entry, name, value): (Option<Entry>, &[u8], &[u8])| {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (entry.map(Entry::index), text(name), text(value))
    };
    let expected = [
        (Some(2), ":method", "GET"),
        (Some(4), ":path", "/a"),
        (Some(17), "accept-language", "b"),
        (None, "accept", "c"),
        (None, "accept-language", "b"),
    ];
    let expected = expected.map(|(entry, name, value)| (entry, name.into(), value.into()));
    assert_eq!(list.entries().map(named).collect::<Vec<_>>(), expected);
}

#[test]
fn each_status_comes_back() {
    for status in 100..600 {
        let mut block = Vec::new();
        put_status(&mut block, status);
        let expected = fields(&[(":status", &status.to_string())]);
        assert_eq!(decoded(&mut Decoder::default(), &block), Ok(expected));
        let is_known = [200, 204, 206, 304, 400, 404, 500].contains(&status);
        assert_eq!(block.len() == 1, is_known, "{status}");
    }
}

#[test]
fn model_fields_come_back_as_they_were_in_small_letters() {
    let mut random = fastrand::Rng::with_seed(3);
    let names = [
        "Date",
        "content-length",
        "X-Own",
        "WWW-Authenticate",
        "a",
        "access-control-allow-origin",
        "a-name-that-is-longer-than-any-of-the-static-table-has",
    ];
    for _ in 0..2000 {
        let mut block = Vec::new();
        let mut expected = Vec::new();
        for _ in 0..random.usize(..8) {
            let name = names[random.usize(..names.len())];
            let length = [0, 1, 7, 8, 30, 126, 127, 128, 400][random.usize(..9)];
            let value: String = (0..length).map(|_| random.char(' '..='~')).collect();
            put_field(&mut block, name.as_bytes(), value.as_bytes());
            expected.push((name.to_ascii_lowercase(), value));
        }
        let mut decoder = Decoder::default();
        decoder.told();
        assert_eq!(decoded(&mut decoder, &block), Ok(expected));
    }
}
