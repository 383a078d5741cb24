//! A cache that memcached's clients understand: `get`, `set` and `delete` of its text protocol.
//!
//! Commands are lines; the data of a `set` is a body, whose length its line tells.
#![forbid(unsafe_code)]

use std::collections::HashMap;

use flatpath::framing::{Framed, Handler, Lines, Next};
use flatpath::lock::Lock;
use flatpath::memory::{Part, Payload};
use flatpath::{Error, Io, NoRoom, Server};

const KEY_BYTES_MAX: usize = 250;
const DATA_BYTES_MAX: usize = 1 << 20;

/// Data by key, with its line end.
#[derive(Default)]
struct Cache(Lock<HashMap<String, Vec<u8>>>);

impl Handler for Cache {
    /// The key whose data comes next.
    type Session = String;
    /// Nothing goes to a worker.
    type Work = ();

    fn message(&self, key: &mut String, io: &mut Io<'_>, line: &[u8]) -> Result<Next, NoRoom> {
        let line = String::from_utf8_lossy(line);
        let words: Vec<&str> = line.split(' ').collect();
        let mut entries = self.0.lock();
        match words[..] {
            ["get", key] => {
                if let Some(data) = entries.get(key) {
                    io.write(format!("VALUE {key} 0 {}\r\n", data.len() - 2).as_bytes())?;
                    io.write(data)?;
                }
                io.write(b"END\r\n")?;
            }
            ["set", name, _, _, bytes] => match bytes.parse() {
                Ok(bytes @ 0..=DATA_BYTES_MAX) if name.len() <= KEY_BYTES_MAX => {
                    name.clone_into(key);
                    return Ok(Next::Body(bytes + 2));
                }
                // The data would be taken for commands.
                _ => {
                    io.write(b"SERVER_ERROR object too large for cache\r\n")?;
                    return Ok(Next::Close);
                }
            },
            ["delete", key] if entries.contains_key(key) => {
                io.write(b"DELETED\r\n")?;
                entries.remove(key);
            }
            ["delete", _] => io.write(b"NOT_FOUND\r\n")?,
            ["quit"] => return Ok(Next::Close),
            _ => io.write(b"ERROR\r\n")?,
        }
        Ok(Next::Message)
    }

    fn body(&self, key: &mut String, io: &mut Io<'_>, body: &Payload) -> Result<Next, NoRoom> {
        io.write(b"STORED\r\n")?;
        let data = body.parts().flat_map(Part::bytes).copied().collect();
        let mut entries = self.0.lock();
        entries.insert(std::mem::take(key), data);
        Ok(Next::Message)
    }
}

fn cache() -> Framed<Lines, Cache> {
    Framed::new("cache", Lines::new(1024), Cache::default()).too_long(b"CLIENT_ERROR\r\n")
}

fn main() -> Result<(), Error> {
    Server::new().listen("127.0.0.1:11211", cache()).run()
}

#[cfg(test)]
mod tests {
    use flatpath_test::{Conditions, TestServer, each_seed};

    #[test]
    fn what_is_set_is_got_until_it_is_deleted() {
        each_seed(100, |seed| {
            let mut server = TestServer::new(Conditions::rough(seed), super::cache());
            let client = server.connect();
            client.write(b"set k 0 0 5\r\nhello\r\nget k\r\ndelete k\r\nget k\r\nquit\r\n");
            let replies = server.read_to_end(&client);
            assert_eq!(
                replies.escape_ascii().to_string(),
                r"STORED\r\nVALUE k 0 5\r\nhello\r\nEND\r\nDELETED\r\nEND\r\n"
            );
        });
    }
}
