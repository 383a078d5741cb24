//! Enough of an HTTP/2 client to ask for a small file, again and again (RFC 9113).
//!
//! One request at a time; fields are sent without compression (RFC 7541 section 6.2.2), and of the
//! reply's fields only the status is read. Windows are never updated: what is asked here in all is
//! less than the 65,535 bytes that a server may send at first.

use std::io::{self, Read, Write};

use flatpath_bench_common::wrk::Scheme;

/// Section 3.4, and an empty SETTINGS frame.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
const FRAME_HEAD: usize = 9;
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const ACK: u8 = 1;
/// Entries of the static table (RFC 7541 appendix A).
const METHOD_GET: u8 = 0x82;
const SCHEME_HTTP: u8 = 0x86;
const SCHEME_HTTPS: u8 = 0x87;
pub(crate) const STATUS_200: u8 = 0x88;
pub(crate) const STATUS_404: u8 = 0x8d;
/// Fields without indexing whose names are in that table.
const AUTHORITY: u8 = 1;
const PATH: u8 = 4;
/// The longest payload of a frame that may come (RFC 9113 section 4.2).
const FRAME_MAX: usize = 16 * 1024;

/// What bytes go over.
pub(crate) type Stream = Box<dyn ReadWrite>;

pub(crate) trait ReadWrite: Read + Write {}

impl<T: Read + Write> ReadWrite for T {}

/// See the module.
pub(crate) struct Connection {
    stream: Stream,
    scheme: u8,
    /// The stream of the next request.
    next: u32,
}

/// What came for one request.
pub(crate) struct Reply {
    pub(crate) body: Vec<u8>,
    /// Of the frames with head and body.
    pub(crate) bytes: usize,
}

struct Frame {
    kind: u8,
    flags: u8,
    stream: u32,
    payload: Vec<u8>,
}

impl Connection {
    /// Says that it speaks HTTP/2.
    ///
    /// # Errors
    /// What the stream reports.
    pub(crate) fn begin(mut stream: Stream, scheme: Scheme) -> io::Result<Self> {
        stream.write_all(PREFACE)?;
        let scheme = match scheme {
            Scheme::Http => SCHEME_HTTP,
            Scheme::Https => SCHEME_HTTPS,
        };
        let next = 1;
        Ok(Self {
            stream,
            scheme,
            next,
        })
    }

    /// Asks once, for a reply with this status.
    ///
    /// # Errors
    /// `InvalidData` for another reply, and for a connection that the server ends; what the stream
    /// reports otherwise.
    pub(crate) fn ask(&mut self, path: &str, expected: u8) -> io::Result<Reply> {
        let asked = self.next;
        self.next += 2;
        let mut fields = vec![METHOD_GET, self.scheme];
        put_field(&mut fields, AUTHORITY, "localhost");
        put_field(&mut fields, PATH, path);
        self.send(HEADERS, END_STREAM | END_HEADERS, asked, &fields)?;
        let (mut body, mut bytes) = (Vec::new(), 0);
        loop {
            let frame = self.receive()?;
            match frame.kind {
                SETTINGS if frame.flags & ACK == 0 => self.send(SETTINGS, ACK, 0, &[])?,
                HEADERS if frame.stream == asked => {
                    if status(&frame.payload) != Some(expected) {
                        return Err(invalid("another status than expected"));
                    }
                }
                DATA if frame.stream == asked => body.extend_from_slice(&frame.payload),
                kind if frame.stream == asked || kind == GOAWAY => {
                    return Err(invalid(&format!("a frame of type {kind} for a reply")));
                }
                _ => continue,
            }
            if frame.stream == asked {
                bytes += FRAME_HEAD + frame.payload.len();
                if frame.flags & END_STREAM != 0 {
                    return Ok(Reply { body, bytes });
                }
            }
        }
    }

    fn send(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) -> io::Result<()> {
        let length = u32::try_from(payload.len()).map_err(io::Error::other)?;
        let mut frame = length.to_be_bytes()[1..].to_vec();
        frame.extend([kind, flags]);
        frame.extend(stream.to_be_bytes());
        frame.extend(payload);
        self.stream.write_all(&frame)
    }

    fn receive(&mut self) -> io::Result<Frame> {
        let mut head = [0; FRAME_HEAD];
        self.stream.read_exact(&mut head)?;
        let [a, b, c, kind, flags, stream @ ..] = head;
        let length = u32::from_be_bytes([0, a, b, c]) as usize;
        if length > FRAME_MAX {
            return Err(invalid("a frame that is too long"));
        }
        let mut payload = vec![0; length];
        self.stream.read_exact(&mut payload)?;
        let stream = u32::from_be_bytes(stream);
        Ok(Frame {
            kind,
            flags,
            stream,
            payload,
        })
    }
}

/// The index of a reply's status in the static table: the status is the first field. Updates of the
/// dynamic table's size may come before it (RFC 7541 section 6.3).
fn status(fields: &[u8]) -> Option<u8> {
    fields.iter().copied().find(|byte| byte & 0xe0 != 0x20)
}

/// A field whose value is short and not compressed.
fn put_field(fields: &mut Vec<u8>, name: u8, value: &str) {
    let length = u8::try_from(value.len()).ok().filter(|it| *it < 0x7f);
    fields.extend([name, length.expect("a short value")]);
    fields.extend(value.as_bytes());
}

fn invalid(message: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Cursor;

    struct Script {
        replies: Cursor<Vec<u8>>,
    }

    impl Read for Script {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            self.replies.read(buffer)
        }
    }

    impl Write for Script {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn frame(kind: u8, flags: u8, stream: u8, payload: &[u8]) -> Vec<u8> {
        let length = u8::try_from(payload.len()).expect("short");
        let mut frame = vec![0, 0, length, kind, flags, 0, 0, 0, stream];
        frame.extend(payload);
        frame
    }

    fn asked(frames: &[Vec<u8>]) -> io::Result<Reply> {
        let replies = Cursor::new(frames.concat());
        let stream = Box::new(Script { replies });
        Connection::begin(stream, Scheme::Http)?.ask("/small.txt", STATUS_200)
    }

    #[test]
    fn a_reply_ends_with_its_stream() {
        let reply = asked(&[
            frame(SETTINGS, 0, 0, &[]),
            frame(HEADERS, END_HEADERS, 1, &[0x20, STATUS_200]),
            frame(DATA, 0, 1, b"one "),
            frame(DATA, END_STREAM, 1, b"two"),
        ]);
        let reply = reply.expect("a reply");
        assert_eq!(reply.body, b"one two");
        assert_eq!(reply.bytes, 3 * FRAME_HEAD + 2 + 7);
    }

    #[test]
    fn other_replies_are_errors() {
        let not_found = frame(HEADERS, END_HEADERS | END_STREAM, 1, &[0x8d]);
        let reset = frame(3, 0, 1, &[0; 4]);
        let goaway = frame(GOAWAY, 0, 0, &[0; 8]);
        for frames in [not_found, reset, goaway, Vec::new()] {
            assert!(asked(&[frames]).is_err());
        }
    }
}
