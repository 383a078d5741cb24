//! Target `hpack_blocks`: blocks of one connection (RFC 7541), each with its length in two bytes
//! before it. The first byte says whether the client has been told that there is no table.
//!
//! Holds of every input
//! - What our decoder takes another's (`httlib-hpack`) takes as well, and reads the same fields.
//! - The fields written by our encoder are read by both as they were, after a client that was told.

use flatpath_http::testing::{Blocks, put_block};
use httlib_hpack::Decoder;

/// What a table has that is not told otherwise.
const TABLE_BYTES: u32 = 4096;

type Fields = Vec<(Vec<u8>, Vec<u8>)>;

pub(crate) fn run(data: &[u8]) {
    let Some((options, mut rest)) = data.split_first() else {
        return;
    };
    let is_told = options % 2 == 1;
    let mut ours = Blocks::default();
    if is_told {
        ours.told();
    }
    let table_bytes = if is_told { 0 } else { TABLE_BYTES };
    let mut theirs = Decoder::with_dynamic_size(table_bytes);
    while let Some((length, after)) = rest.split_first_chunk() {
        let length = usize::from(u16::from_be_bytes(*length)).min(after.len());
        let (block, after) = after.split_at(length);
        rest = after;
        let Some(fields) = ours.fields(block) else {
            return;
        };
        assert_eq!(theirs_of(&mut theirs, block).as_ref(), Some(&fields));
        written_again(&fields);
    }
}

fn theirs_of(decoder: &mut Decoder<'_>, block: &[u8]) -> Option<Fields> {
    let mut fields = Vec::new();
    decoder.decode(&mut block.to_vec(), &mut fields).ok()?;
    let fields = fields.into_iter();
    Some(fields.map(|(name, value, _)| (name, value)).collect())
}

fn written_again(fields: &Fields) {
    let block = put_block(fields.iter().map(|(name, value)| (&name[..], &value[..])));
    let small = |(name, value): &(Vec<u8>, Vec<u8>)| (name.to_ascii_lowercase(), value.clone());
    let expected: Fields = fields.iter().map(small).collect();
    let mut ours = Blocks::default();
    ours.told();
    assert_eq!(ours.fields(&block).as_ref(), Some(&expected));
    let mut theirs = Decoder::with_dynamic_size(0);
    assert_eq!(theirs_of(&mut theirs, &block), Some(expected));
}
