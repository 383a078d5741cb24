//! Clients that ask for one file again and again on one connection, by each version of HTTP.
//!
//! That of HTTP/2 says frames as they are (RFC 9113): the preface, its SETTINGS, the answer to the
//! server's, and a GET on each next stream. It reads its replies to their ends, and opens the
//! window of its connection by as much as it has read, as clients do.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};

use anyhow::{Result, bail, ensure};
use flatpath_testkit::Client;
use flatpath_testkit::deadline::patience;

/// The file that is asked for.
pub(super) const PATH: &str = "/file";

/// A version of HTTP, in the clear.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Version {
    Http1,
    Http2,
}

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const ACK: u8 = 1;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
/// `:status: 200` of the static table (RFC 7541 appendix A).
const OK: u8 = 0x88;

/// Asks for the file so often, each time after the reply to the one before.
pub(super) fn ask(version: Version, address: SocketAddr, requests: u64) -> Result<()> {
    match version {
        Version::Http1 => {
            let mut client = Client::connect(address);
            for _ in 0..requests {
                ensure!(client.get(PATH).status == 200, "the file is not served");
            }
            Ok(())
        }
        Version::Http2 => {
            let mut stream = TcpStream::connect(address)?;
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(patience()))?;
            stream.write_all(&[PREFACE, &frame(SETTINGS, 0, 0, &[])].concat())?;
            let block = block(&address.to_string());
            (0..requests).try_for_each(|at| get(&mut stream, 2 * at as u32 + 1, &block))
        }
    }
}

/// The head of a request to this host: GET, http, and literals of the names `:path` and
/// `:authority`.
fn block(host: &str) -> Vec<u8> {
    let literal = |name: u8, value: &str| [&[name, value.len() as u8], value.as_bytes()].concat();
    [vec![0x82, 0x86], literal(0x04, PATH), literal(0x01, host)].concat()
}

/// One request on this stream, and its reply.
fn get(stream: &mut TcpStream, number: u32, block: &[u8]) -> Result<()> {
    stream.write_all(&frame(HEADERS, END_STREAM | END_HEADERS, number, block))?;
    loop {
        let mut head = [0; 9];
        stream.read_exact(&mut head)?;
        let [a, b, c, kind, flags, of @ ..] = head;
        let mut payload = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
        stream.read_exact(&mut payload)?;
        let is_reply = u32::from_be_bytes(of) == number;
        match kind {
            SETTINGS if flags & ACK == 0 => stream.write_all(&frame(SETTINGS, ACK, 0, &[]))?,
            HEADERS => ensure!(payload.first() == Some(&OK), "the file is not served"),
            DATA if !payload.is_empty() => {
                let bytes = (payload.len() as u32).to_be_bytes();
                stream.write_all(&frame(WINDOW_UPDATE, 0, 0, &bytes))?;
            }
            GOAWAY => bail!("the server ends the connection: {payload:?}"),
            _ => {}
        }
        if is_reply && matches!(kind, DATA | HEADERS) && flags & END_STREAM != 0 {
            return Ok(());
        }
    }
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let [_, length @ ..] = (payload.len() as u32).to_be_bytes();
    let head = [&length[..], &[kind, flags], &stream.to_be_bytes()].concat();
    [&head, payload].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_has_its_length_kind_flags_and_stream() {
        let framed = frame(HEADERS, END_STREAM, 0x0102_0304, b"xy");
        assert_eq!(
            framed,
            [0, 0, 2, HEADERS, END_STREAM, 1, 2, 3, 4, b'x', b'y']
        );
    }
}
