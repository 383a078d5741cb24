//! HPACK, how HTTP/2 writes fields (RFC 7541): a decoder that keeps as little as the RFC lets it,
//! and an encoder that keeps nothing.
//!
//! | file       | what it does                                               |
//! |------------|------------------------------------------------------------|
//! | `huffman`  | strings in fewer bits                                      |
//! | `table`    | the static table, and a client's dynamic one               |
//! | `repeated` | values that come again                                     |
//! | `decode`   | a block to the fields of a list                            |
//! | `encode`   | fields to a block                                          |
//!
//! A server of HTTP/2 announces that it keeps no dynamic table (RFC 9113 section 6.5.2). Until its
//! client has acknowledged that, the client may use one of 4,096 bytes; afterwards it is freed.
//! Replies use no dynamic table, which every client takes (section 4.1 leaves it to the encoder).
//!
//! Errors: all that is wrong with a block is an error of its connection, COMPRESSION_ERROR (RFC
//! 9113 section 4.3), because what follows would be read with another table.

mod huffman;
mod table;
mod repeated;
mod decode;
mod encode;

pub(crate) use decode::{Decoder, Field, FieldList};
pub(crate) use encode::{put_field, put_status};
pub(crate) use table::Entry;
pub(super) use table::{ENTRY_OVERHEAD_BYTES, TABLE_HELD_BYTES};

/// A block that breaks a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Broken;

impl From<huffman::Broken> for Broken {
    fn from(_: huffman::Broken) -> Broken {
        Broken
    }
}

#[cfg(test)]
mod tests;
