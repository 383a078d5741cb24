//! Handshakes: what is asked of the library that makes them, and rustls 0.23 behind it.
//!
//! The rest of the engine knows [`Handshake`] and what it ends with. Input and replies lie in
//! buffers of the caller's, which is all that any version of rustls agrees on; the next one needs
//! another implementation of two traits, here and of [`Schedule`].
//!
//! [`Schedule`]: super::records::Schedule

use std::fmt;
use std::sync::Arc;

use rustls::kernel::KernelConnection;
use rustls::server::{ServerConnectionData, UnbufferedServerConnection};
use rustls::unbuffered::{ConnectionState, EncodeError, EncodeTlsData, UnbufferedStatus};
use rustls::{ConnectionTrafficSecrets, HandshakeKind, ProtocolVersion, ServerConfig};

use super::records::{Direction, NotOffered, Records, Schedule, split_record};

/// A handshake that a client has begun.
pub(crate) trait Handshake: Send {
    /// Takes whole records of the client's. What is to be sent is appended to `reply`, also where
    /// the handshake fails: the alert. Takes 10 to 600 µs of a processor, so a worker calls this.
    fn advance(self: Box<Self>, records: &[u8], reply: &mut Vec<u8>) -> Progress;
}

/// How far a handshake has come.
pub(crate) enum Progress {
    /// More of the client is needed.
    Waits(Box<dyn Handshake>),
    /// It is complete.
    Done(Box<Established>),
    Failed(String),
}

/// What a handshake ends with.
pub(crate) struct Established {
    pub(crate) records: Records,
    /// Whole records that came with the end of the handshake, and are not of it.
    pub(crate) left: Vec<u8>,
    pub(crate) terms: Terms,
}

impl Established {
    pub(crate) fn take(self) -> (Records, Vec<u8>) {
        (self.records, self.left)
    }
}

impl fmt::Debug for Established {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.terms.fmt(formatter)
    }
}

/// What the two sides have agreed on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Terms {
    pub(crate) is_13: bool,
    pub(crate) is_resumed: bool,
    /// The application's protocol (ALPN, RFC 7301), if one was agreed on.
    pub(crate) protocol: Option<Box<[u8]>>,
}

/// Bytes of an unfinished handshake message that are kept for a client: rustls takes 64 KiB.
const INCOMING_BYTES_MAX: usize = 128 * 1024;

/// rustls 0.23.
pub(crate) struct Rustls {
    connection: UnbufferedServerConnection,
    /// Records of a message that is not whole.
    incoming: Vec<u8>,
}

impl Rustls {
    /// A handshake by this configuration.
    ///
    /// # Errors
    /// It cannot be used.
    pub(crate) fn begin(config: Arc<ServerConfig>) -> Result<Box<dyn Handshake>, rustls::Error> {
        Ok(Box::new(Rustls {
            connection: UnbufferedServerConnection::new(config)?,
            incoming: Vec::new(),
        }))
    }

    /// Works off a record. True: the handshake is complete.
    fn work(&mut self, record: &[u8], reply: &mut Vec<u8>) -> Result<bool, String> {
        self.incoming.extend_from_slice(record);
        if self.incoming.len() > INCOMING_BYTES_MAX {
            return Err("a message is too long".into());
        }
        loop {
            let UnbufferedStatus { discard, state } =
                self.connection.process_tls_records(&mut self.incoming);
            let is_over = match state.map_err(|cause| cause.to_string())? {
                ConnectionState::EncodeTlsData(mut data) => {
                    encode(&mut data, reply)?;
                    None
                }
                ConnectionState::TransmitTlsData(data) => {
                    data.done();
                    None
                }
                ConnectionState::BlockedHandshake => Some(false),
                ConnectionState::WriteTraffic(_) => Some(true),
                ConnectionState::PeerClosed | ConnectionState::Closed => {
                    return Err("the client has closed".into());
                }
                _ => return Err("a state that was not asked for".into()),
            };
            self.incoming.drain(..discard);
            if let Some(is_complete) = is_over {
                return Ok(is_complete);
            }
        }
    }

    /// Appends the alert that a failed handshake has left.
    fn take_alert(&mut self, reply: &mut Vec<u8>) {
        loop {
            match self.connection.process_tls_records(&mut []).state {
                Ok(ConnectionState::EncodeTlsData(mut data)) => {
                    if encode(&mut data, reply).is_err() {
                        return;
                    }
                }
                Ok(ConnectionState::TransmitTlsData(data)) => data.done(),
                _ => return,
            }
        }
    }

    fn establish(self, left: &[u8]) -> Result<Box<Established>, String> {
        let said = |what: &str| format!("the handshake has left no {what}");
        let connection = &self.connection;
        let suite = connection.negotiated_cipher_suite();
        let suite = suite.ok_or_else(|| said("cipher"))?;
        let terms = Terms {
            is_13: connection.protocol_version() == Some(ProtocolVersion::TLSv1_3),
            is_resumed: connection.handshake_kind() == Some(HandshakeKind::Resumed),
            protocol: connection.alpn_protocol().map(Into::into),
        };
        let (secrets, kernel) = self
            .connection
            .dangerous_into_kernel_connection()
            .map_err(|cause| cause.to_string())?;
        let (sent, received) = (secrets.tx, secrets.rx);
        let records = Records::new(
            suite,
            Box::new(Kernel(kernel)),
            (sent.1, sent.0),
            (received.1, received.0),
        );
        Ok(Box::new(Established {
            records: records.map_err(|NotOffered| said("cipher that is offered"))?,
            left: left.to_vec(),
            terms,
        }))
    }
}

impl Handshake for Rustls {
    /// One record after the other: what comes behind the last one of the handshake is not for
    /// rustls, which would answer it.
    fn advance(mut self: Box<Self>, mut records: &[u8], reply: &mut Vec<u8>) -> Progress {
        while let Some((record, left)) = split_record(records) {
            records = left;
            match self.work(record, reply) {
                Ok(false) => {}
                Ok(true) => {
                    return match self.establish(left) {
                        Ok(established) => Progress::Done(established),
                        Err(cause) => Progress::Failed(cause),
                    };
                }
                Err(cause) => {
                    self.take_alert(reply);
                    return Progress::Failed(cause);
                }
            }
        }
        Progress::Waits(self)
    }
}

fn encode(
    data: &mut EncodeTlsData<'_, ServerConnectionData>,
    reply: &mut Vec<u8>,
) -> Result<(), String> {
    let begin = reply.len();
    let mut encoded = data.encode(&mut []);
    if let Err(EncodeError::InsufficientSize(size)) = encoded {
        reply.resize(begin + size.required_size, 0);
        encoded = data.encode(&mut reply[begin..]);
    }
    let length = encoded.map_err(|cause| cause.to_string())?;
    reply.truncate(begin + length);
    Ok(())
}

/// What rustls keeps to make further secrets.
struct Kernel(KernelConnection<ServerConnectionData>);

impl Schedule for Kernel {
    fn next(&mut self, of: Direction) -> Option<ConnectionTrafficSecrets> {
        let next = match of {
            Direction::Sent => self.0.update_tx_secret(),
            Direction::Received => self.0.update_rx_secret(),
        };
        next.ok().map(|(_, secrets)| secrets)
    }
}
