//! How crowds behave, and the bytes that they send.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use flate2::{Compress, Compression, FlushCompress};
use flatpath_bench_common::http;
use flatpath_testkit::nfs::{self, Connection};

use super::crowd::Manner;
use super::server::{Arena, BIG_BYTES, LARGE_MIB};

const HOST: &str = "Host: localhost\r\n";

/// Each connection sends one of the requests, and reads what comes.
pub(super) fn asking(to: SocketAddr, connections: usize, requests: &[Vec<u8>]) -> Manner {
    let requests = requests.to_vec();
    Manner {
        connections,
        opening: Box::new(move |number| requests[number % requests.len()].clone()),
        read_bytes: 4_096,
        ..Manner::to(to)
    }
}

/// Each connection sends these requests without end, and reads all that comes.
pub(super) fn flood(to: SocketAddr, connections: usize, requests: Vec<u8>) -> Manner {
    Manner {
        connections,
        chunk: requests,
        every: Duration::ZERO,
        read_bytes: usize::MAX,
        ..Manner::to(to)
    }
}

/// Heads of at least `bytes` bytes that never end.
pub(super) fn heads(arena: &Arena, connections: usize, bytes: usize) -> Manner {
    let mut head = format!("GET / HTTP/1.1\r\n{HOST}");
    let mut line = 0;
    while head.len() < bytes {
        line += 1;
        head += &format!("X-{line}: {}\r\n", "x".repeat(1_000));
    }
    Manner {
        read_bytes: 0,
        ..asking(arena.http, connections, &[head.into_bytes()])
    }
}

/// Uploads that send `at_once` bytes, then `per_second` bytes each second.
pub(super) fn uploads(
    arena: &Arena,
    connections: usize,
    at_once: usize,
    per_second: usize,
) -> Manner {
    let opening = move |number: usize| {
        let mut head = put(&format!("/upload-{number}"), BIG_BYTES);
        head.resize(head.len() + at_once, b'u');
        head
    };
    Manner {
        connections,
        opening: Box::new(opening),
        chunk: vec![b'u'; per_second],
        ..Manner::to(arena.http)
    }
}

/// Downloads of the large file; each reads `read_bytes` bytes per round.
pub(super) fn downloads(arena: &Arena, connections: usize, read_bytes: usize) -> Manner {
    Manner {
        read_bytes,
        ..asking(arena.http, connections, &[http::request("/big")])
    }
}

/// Clients that ask for one large file after the other, all they can get: on kept connections, each
/// beginning with another one.
pub(super) fn large_files(arena: &Arena, connections: usize) -> Manner {
    let requests = LARGE_MIB.map(|mib| http::request(&format!("/{mib}")));
    let chunk = requests.concat();
    Manner {
        connections,
        opening: Box::new(move |number| requests[number % requests.len()].clone()),
        chunk,
        every: Duration::ZERO,
        read_bytes: usize::MAX,
        ..Manner::to(arena.http)
    }
}

/// The opening handshake of a WebSocket that offers compression (RFC 6455 section 4.1, RFC 7692).
pub(super) fn handshake(path: &str) -> Vec<u8> {
    format!(
        "GET {path} HTTP/1.1\r\n{HOST}Connection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
         Sec-WebSocket-Extensions: permessage-deflate\r\n\r\n"
    )
    .into_bytes()
}

/// Zeros as the payload of a compressed message: without the four bytes that end each flush
/// (RFC 7692 section 7.2.1).
pub(super) fn deflated_zeros(bytes: usize) -> Vec<u8> {
    let mut deflated = Vec::with_capacity(bytes / 100);
    let mut compress = Compress::new(Compression::best(), false);
    // The output has room for all of it, so this is the only call.
    let _ = compress.compress_vec(&vec![0; bytes], &mut deflated, FlushCompress::Sync);
    deflated.truncate(deflated.len().saturating_sub(4));
    deflated
}

/// A compressed binary message in one frame, masked with zeros.
pub(super) fn masked_frame(payload: &[u8]) -> Vec<u8> {
    let length = u16::try_from(payload.len()).unwrap_or(u16::MAX);
    let head = [&[0xc2, 0x80 | 126][..], &length.to_be_bytes(), &[0; 4]];
    [&head.concat(), payload].concat()
}

pub(super) fn put(path: &str, bytes: u64) -> Vec<u8> {
    format!("PUT {path} HTTP/1.1\r\n{HOST}Content-Length: {bytes}\r\n\r\n").into_bytes()
}

/// The address of NFS, and the handle of the large file.
pub(super) fn big(arena: &Arena) -> io::Result<(SocketAddr, Vec<u8>)> {
    let to = arena.service("nfs")?;
    let mut connection = Connection::try_open(to)?;
    let root = connection.try_handle(&nfs::mount("/"))?;
    Ok((to, connection.try_handle(&nfs::lookup(&root, "big"))?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bomb_is_small_and_inflates_to_what_it_says() {
        let mut deflated = deflated_zeros(1_000_000);
        assert!(deflated.len() < 2_000, "{}", deflated.len());
        deflated.extend([0, 0, 0xff, 0xff]);
        let mut zeros = Vec::with_capacity(2 * 1_000_000);
        flate2::Decompress::new(false)
            .decompress_vec(&deflated, &mut zeros, flate2::FlushDecompress::Sync)
            .expect("inflated");
        assert_eq!(zeros, vec![0; 1_000_000]);
    }
}
