//! Registering with the local rpcbind: SET and UNSET of portmapper version 2 (RFC 1833 section 3).
//!
//! For clients that ask port 111 where NFS and MOUNT are. Only when wanted, and only over TCP to
//! the loopback address, which is where rpcbind takes registrations from.
//!
//! Another server's registration stays, unless no server listens there any more: then it is
//! left over from one that was killed. What is registered at the port already, by a server that
//! hands over, stays as it is, also where the start fails after that.
//!
//! Cost: a few calls at the start and at the end, each within [`RPCBIND_CALL_TIME_MAX`].

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};

use flatpath_rpc::limits::INLINE_REPLY_BYTES_MAX;
use flatpath_rpc::xdr::{Malformed, Reader, Writer};

use crate::limits::RPCBIND_CALL_TIME_MAX;
use crate::portmapper::{GETADDR as GETPORT, SET, TCP, UNSET};
use crate::programs::{MOUNT, NFS, PORTMAP, Program};

const RPCBIND: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 111);

const OURS: [Program; 2] = [MOUNT, NFS];

/// Bytes of a call: marker, xid, CALL, version 2, program, version, procedure, credential and
/// verifier of two words each, and a mapping of four.
const CALL_BYTES: usize = 4 * 15;

/// NFS and MOUNT, registered until [`Registration::end`].
#[derive(Debug)]
pub struct Registration {
    rpcbind: SocketAddr,
    port: u16,
}

impl Registration {
    /// Registers NFS and MOUNT, both on `port`.
    ///
    /// # Errors
    /// No rpcbind answers at 127.0.0.1:111, it refuses, or another server that is still there has
    /// registered one of the two. Nothing of ours is registered then.
    pub fn begin(port: u16) -> io::Result<Registration> {
        Registration::begin_at(RPCBIND, port)
    }

    fn begin_at(rpcbind: SocketAddr, port: u16) -> io::Result<Registration> {
        let mut client = Client::connect(rpcbind)?;
        let mut taken = Vec::new();
        for program in OURS {
            match client.take(program, port) {
                Ok(Taken::Now) => taken.push(program),
                Ok(Taken::Before) => {}
                Err(cause) => {
                    // It is given back; the cause says more than how that went.
                    for program in taken {
                        let _ = client.ask(UNSET, program, 0);
                    }
                    return Err(cause);
                }
            }
        }
        Ok(Registration { rpcbind, port })
    }

    /// Takes both away again, where they are still ours.
    ///
    /// # Errors
    /// rpcbind does not answer, or refuses.
    pub fn end(self) -> io::Result<()> {
        let mut client = Client::connect(self.rpcbind)?;
        for program in OURS {
            if client.ask(GETPORT, program, 0)? == u32::from(self.port) {
                client.ask(UNSET, program, 0)?;
            }
        }
        Ok(())
    }
}

/// When a program came to be registered at the port.
enum Taken {
    Now,
    Before,
}

struct Client {
    stream: TcpStream,
    xid: u32,
}

impl Client {
    fn connect(rpcbind: SocketAddr) -> io::Result<Client> {
        let stream = TcpStream::connect_timeout(&rpcbind, RPCBIND_CALL_TIME_MAX);
        let stream = stream.map_err(|cause| {
            io::Error::new(
                cause.kind(),
                format!("no rpcbind answers at {rpcbind}: {cause}"),
            )
        })?;
        stream.set_read_timeout(Some(RPCBIND_CALL_TIME_MAX))?;
        stream.set_write_timeout(Some(RPCBIND_CALL_TIME_MAX))?;
        stream.set_nodelay(true)?;
        Ok(Client { stream, xid: 0 })
    }

    /// Registers one program unless another server has it.
    fn take(&mut self, program: Program, port: u16) -> io::Result<Taken> {
        let Program {
            number, version, ..
        } = program;
        let known = self.ask(GETPORT, program, 0)?;
        if known == u32::from(port) {
            return Ok(Taken::Before);
        }
        if known != 0 {
            if is_listening(known) {
                let text = format!(
                    "program {number} version {version} is registered at port {known} by another \
                     server"
                );
                return Err(io::Error::new(io::ErrorKind::AlreadyExists, text));
            }
            self.ask(UNSET, program, 0)?;
        }
        if self.ask(SET, program, u32::from(port))? == 1 {
            return Ok(Taken::Now);
        }
        let text = format!("rpcbind refused to register program {number} version {version}");
        Err(io::Error::new(io::ErrorKind::PermissionDenied, text))
    }

    /// Calls a procedure; all three of them answer with one word.
    fn ask(&mut self, procedure: u32, program: Program, port: u32) -> io::Result<u32> {
        self.exchange(procedure, program, port).map_err(|cause| {
            let text = format!("rpcbind does not answer as it should: {cause}");
            io::Error::new(cause.kind(), text)
        })
    }

    fn exchange(&mut self, procedure: u32, program: Program, port: u32) -> io::Result<u32> {
        self.xid += 1;
        let mut call = [0; CALL_BYTES];
        let mut writer = Writer::new(&mut call);
        let length = (CALL_BYTES - 4) as u32;
        for word in [
            length | 1 << 31,
            self.xid,
            0,
            2,
            PORTMAP.number,
            PORTMAP.version,
            procedure,
        ] {
            writer.u32(word);
        }
        // No credential, no verifier; then the mapping.
        for word in [0, 0, 0, 0, program.number, program.version, TCP, port] {
            writer.u32(word);
        }
        self.stream.write_all(&call)?;
        let mut room = [0; INLINE_REPLY_BYTES_MAX];
        let reply = self.read_record(&mut room)?;
        word_of(reply, self.xid)
            .map_err(|Malformed| io::Error::new(io::ErrorKind::InvalidData, "not its reply"))
    }

    /// One reply of any fragments, within `room`.
    fn read_record<'a>(&mut self, room: &'a mut [u8]) -> io::Result<&'a [u8]> {
        let mut filled = 0;
        loop {
            let mut marker = [0; 4];
            self.stream.read_exact(&mut marker)?;
            let marker = u32::from_be_bytes(marker);
            let length = (marker & !(1 << 31)) as usize;
            let place = room
                .get_mut(filled..)
                .and_then(|rest| rest.get_mut(..length));
            // An empty fragment that is not the last could come for ever.
            let place = place.filter(|place| !place.is_empty() || marker >> 31 == 1);
            let place = place.ok_or(io::ErrorKind::InvalidData)?;
            self.stream.read_exact(place)?;
            filled += length;
            if marker >> 31 == 1 {
                return Ok(&room[..filled]);
            }
        }
    }
}

/// The one word of an accepted reply that succeeded.
fn word_of(reply: &[u8], xid: u32) -> Result<u32, Malformed> {
    const VERIFIER_BYTES_MAX: usize = 400;
    let mut reader = Reader::new(reply);
    let head = [reader.u32()?, reader.u32()?, reader.u32()?];
    let _flavor = reader.u32()?;
    reader.opaque(VERIFIER_BYTES_MAX)?;
    let status = reader.u32()?;
    if head != [xid, 1, 0] || status != 0 {
        return Err(Malformed);
    }
    let word = reader.u32()?;
    reader.end()?;
    Ok(word)
}

/// A server accepts connections at this port of this machine.
fn is_listening(port: u32) -> bool {
    u16::try_from(port).is_ok_and(|port| {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        match TcpStream::connect_timeout(&address, RPCBIND_CALL_TIME_MAX) {
            Err(cause) => cause.kind() != io::ErrorKind::ConnectionRefused,
            Ok(_) => true,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;
    use std::net::TcpListener;
    use std::sync::Arc;

    use flatpath::lock::Lock;

    type Mappings = Arc<Lock<HashMap<(u32, u32), u32>>>;

    /// The behaviour of the portmapper, in addition to its table.
    #[derive(Clone, Copy, PartialEq)]
    enum Manner {
        Usual,
        /// Replies in fragments of one word.
        Fragments,
        /// SET of this program is refused.
        Refuses(u32),
        /// The reply is another call's.
        Confused,
    }

    fn word(bytes: &[u8], at: usize) -> u32 {
        u32::from_be_bytes(bytes[at * 4..][..4].try_into().expect("four bytes"))
    }

    fn answer(call: &[u8], manner: Manner, mappings: &Mappings) -> Vec<u8> {
        // The call is opened by the crate that opens them in the server.
        let (opened, arguments) = flatpath_rpc::open(call, None).expect("a call");
        assert_eq!(
            (opened.program, opened.version),
            (PORTMAP.number, PORTMAP.version)
        );
        assert_eq!((arguments.len(), word(arguments, 2)), (16, TCP));
        let program = (word(arguments, 0), word(arguments, 1));
        let mut mappings = mappings.lock();
        let result = match opened.procedure {
            SET if manner == Manner::Refuses(program.0) || mappings.contains_key(&program) => 0,
            SET => {
                mappings.insert(program, word(arguments, 3));
                1
            }
            UNSET => u32::from(mappings.remove(&program).is_some()),
            GETPORT => mappings.get(&program).copied().unwrap_or(0),
            other => panic!("procedure {other}"),
        };
        let xid = opened.xid + u32::from(manner == Manner::Confused);
        let words: [u32; 7] = [xid, 1, 0, 0, 0, 0, result];
        words.iter().flat_map(|word| word.to_be_bytes()).collect()
    }

    fn converse(mut stream: TcpStream, manner: Manner, mappings: &Mappings) {
        let mut marker = [0; 4];
        while stream.read_exact(&mut marker).is_ok() {
            let mut call = vec![0; (u32::from_be_bytes(marker) & 0x7fff_ffff) as usize];
            stream.read_exact(&mut call).expect("a whole call");
            let reply = answer(&call, manner, mappings);
            let fragment = if manner == Manner::Fragments { 4 } else { 28 };
            for (number, part) in reply.chunks(fragment).enumerate() {
                let last = u32::from((number + 1) * fragment >= reply.len()) << 31;
                let marker = last | u32::try_from(part.len()).expect("short");
                let bytes = [&marker.to_be_bytes(), part].concat();
                stream.write_all(&bytes).expect("read");
            }
        }
    }

    fn portmapper(manner: Manner) -> (SocketAddr, Mappings) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("bound");
        let mappings = Mappings::default();
        let kept = Arc::clone(&mappings);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                converse(stream.expect("a connection"), manner, &kept);
            }
        });
        (address, mappings)
    }

    fn table(mappings: &Mappings) -> Vec<((u32, u32), u32)> {
        let mut table: Vec<_> = mappings
            .lock()
            .iter()
            .map(|(program, port)| (*program, *port))
            .collect();
        table.sort_unstable();
        table
    }

    #[test]
    fn both_programs_are_there_from_begin_to_end() {
        for manner in [Manner::Usual, Manner::Fragments] {
            let (address, mappings) = portmapper(manner);
            let registration = Registration::begin_at(address, 4049).expect("registered");
            let ours = [((100_003, 3), 4049), ((100_005, 3), 4049)];
            assert_eq!(table(&mappings), ours);
            registration.end().expect("taken away");
            assert_eq!(table(&mappings), []);
        }
    }

    #[test]
    fn another_server_that_is_there_keeps_its_place_and_one_that_is_gone_does_not() {
        let (address, mappings) = portmapper(Manner::Usual);
        let other = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = u32::from(other.local_addr().expect("bound").port());
        let theirs = ((100_003, 3), port);
        mappings.lock().insert(theirs.0, port);
        let refused = Registration::begin_at(address, 4049).expect_err("it is taken");
        assert_eq!(refused.kind(), io::ErrorKind::AlreadyExists);
        assert!(refused.to_string().contains(&port.to_string()), "{refused}");
        assert_eq!(table(&mappings), [theirs], "theirs stays, ours is gone");
        drop(other);
        let registration = Registration::begin_at(address, 4049).expect("no server is there");
        assert_eq!(table(&mappings).len(), 2);
        mappings.lock().insert(theirs.0, 7);
        registration.end().expect("taken away");
        assert_eq!(table(&mappings), [(theirs.0, 7)], "no longer ours");
    }

    #[test]
    fn what_a_server_before_has_registered_at_the_port_stays_while_it_is_taken_over() {
        let (address, mappings) = portmapper(Manner::Refuses(NFS.number));
        let before = ((MOUNT.number, MOUNT.version), 4049);
        mappings.lock().insert(before.0, before.1);
        Registration::begin_at(address, 4049).expect_err("the other one is refused");
        assert_eq!(table(&mappings), [before]);
        let (address, mappings) = portmapper(Manner::Usual);
        let _first = Registration::begin_at(address, 4049).expect("registered");
        let next = Registration::begin_at(address, 4049).expect("found");
        assert_eq!(table(&mappings).len(), 2);
        next.end().expect("taken away");
        assert_eq!(table(&mappings), []);
    }

    #[test]
    fn a_refusal_leaves_nothing_registered() {
        let (address, mappings) = portmapper(Manner::Refuses(NFS.number));
        let refused = Registration::begin_at(address, 4049).expect_err("refused");
        assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied);
        assert_eq!(table(&mappings), []);
    }

    #[test]
    fn where_no_rpcbind_answers_the_error_says_so() {
        let address = {
            let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
            listener.local_addr().expect("bound")
        };
        let refused = Registration::begin_at(address, 1).expect_err("no rpcbind is there");
        let text = refused.to_string();
        assert!(text.contains("no rpcbind answers") && text.contains(&address.to_string()));
        let (confused, _) = portmapper(Manner::Confused);
        let refused = Registration::begin_at(confused, 1).expect_err("no reply of ours");
        assert_eq!(refused.kind(), io::ErrorKind::InvalidData, "{refused}");
    }

    #[test]
    fn a_reply_longer_than_any_or_of_empty_fragments_is_refused() {
        for marker in [u32::MAX, 1 << 20, 0] {
            let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
            let address = listener.local_addr().expect("bound");
            let server = std::thread::spawn(move || {
                let (mut stream, _) = listener.accept().expect("a connection");
                let mut call = [0; CALL_BYTES];
                stream.read_exact(&mut call).expect("a call");
                stream.write_all(&marker.to_be_bytes()).expect("read");
                // The rest is never asked for.
                drop(listener);
            });
            let refused = Registration::begin_at(address, 1).expect_err("no reply");
            assert_eq!(refused.kind(), io::ErrorKind::InvalidData, "{marker:x}");
            server.join().expect("no panic");
        }
    }
}
