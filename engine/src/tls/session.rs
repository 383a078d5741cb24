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
use rustls::pki_types::CertificateDer;
use rustls::server::{ServerConnectionData, UnbufferedServerConnection};
use rustls::unbuffered::{ConnectionState, EncodeError, EncodeTlsData, UnbufferedStatus};
use rustls::{
    CipherSuite, CommonState, ConnectionTrafficSecrets, Error, ExtractedSecrets, HandshakeKind,
    ProtocolVersion, ServerConfig, SupportedCipherSuite,
};
use x509_cert::Certificate;
use x509_cert::der::Decode;

use super::config::CHALLENGE_PROTOCOL;
use super::records::{Direction, NotOffered, Records, Schedule, split_record};
use crate::protocol::tls_terms::{PeerCertificate, TlsTerms};
use crate::server::options::TlsVersion;

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
    /// It is complete, and was all that its client came for: the validation of a name (RFC 8737).
    /// What ends the connection is in the reply.
    Answered,
    Failed(Failure),
}

/// Why a handshake has failed, for the log and the metrics.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) cause: FailureCause,
    pub(crate) words: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FailureCause {
    /// The client does not speak TLS.
    NoTls,
    /// There is no version, cipher or protocol that both have.
    NothingInCommon,
    /// The client has no certificate, or one that does not hold.
    ClientCertificate,
    /// The client has said that it ends: it does not take the certificate, for one.
    Refused,
    Other,
}

impl Failure {
    pub(crate) fn other(words: impl Into<String>) -> Failure {
        let (cause, words) = (FailureCause::Other, words.into());
        Failure { cause, words }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        let cause = match &error {
            Error::InvalidCertificate(_)
            | Error::InvalidCertRevocationList(_)
            | Error::NoCertificatesPresented => FailureCause::ClientCertificate,
            Error::PeerIncompatible(_) | Error::NoApplicationProtocol => {
                FailureCause::NothingInCommon
            }
            Error::AlertReceived(_) => FailureCause::Refused,
            _ => FailureCause::Other,
        };
        let words = error.to_string();
        Failure { cause, words }
    }
}

/// What a handshake ends with.
pub(crate) struct Established {
    pub(crate) records: Records,
    /// Whole records that came with the end of the handshake, and are not of it.
    pub(crate) left: Vec<u8>,
    pub(crate) terms: Arc<TlsTerms>,
}

impl Established {
    pub(crate) fn take(self) -> (Records, Vec<u8>, Arc<TlsTerms>) {
        (self.records, self.left, self.terms)
    }

    /// The client's certificate, until the terms are shared.
    pub(crate) fn certificate(&mut self) -> Option<&mut PeerCertificate> {
        Arc::get_mut(&mut self.terms)?.certificate.as_mut()
    }
}

impl fmt::Debug for Established {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.terms.fmt(formatter)
    }
}

/// The longest certificate of a client that is taken: it is kept for as long as the connection.
const CERTIFICATE_BYTES_MAX: usize = 16 * 1024;

/// Bytes of an unfinished handshake message that are kept for a client: rustls takes 64 KiB, and
/// here there are the heads of its records, too, of which a client may make many.
const INCOMING_BYTES_MAX: usize = 128 * 1024;

/// The record of the alert that no version in common can be had (RFC 8446 section 6.2): fatal,
/// `protocol_version`.
const ALERT_OF_VERSION: [u8; 7] = [21, 3, 3, 0, 2, 2, 70];

/// Room for the record of an alert, sealed with any cipher.
const CLOSE_BYTES_MAX: usize = 64;

/// rustls 0.23.
pub(crate) struct Rustls {
    connection: UnbufferedServerConnection,
    /// The oldest version that its listener's protocol allows.
    oldest: TlsVersion,
    incoming: Incoming,
}

/// rustls in the role of a server or of a client.
pub(super) trait Machine {
    type Data;

    fn process<'c, 'i>(&'c mut self, records: &'i mut [u8])
    -> UnbufferedStatus<'c, 'i, Self::Data>;
}

impl Machine for UnbufferedServerConnection {
    type Data = ServerConnectionData;

    fn process<'c, 'i>(
        &'c mut self,
        records: &'i mut [u8],
    ) -> UnbufferedStatus<'c, 'i, ServerConnectionData> {
        self.process_tls_records(records)
    }
}

/// Records of a message that is not whole.
#[derive(Default)]
pub(super) struct Incoming(Vec<u8>);

impl Incoming {
    /// Works off a record. True: the handshake is complete.
    pub(super) fn work(
        &mut self,
        machine: &mut impl Machine,
        record: &[u8],
        reply: &mut Vec<u8>,
    ) -> Result<bool, Failure> {
        self.0.extend_from_slice(record);
        if self.0.len() > INCOMING_BYTES_MAX {
            return Err(Failure::other("a message is too long"));
        }
        loop {
            let UnbufferedStatus { discard, state } = machine.process(&mut self.0);
            let state = match state {
                Ok(state) => state,
                Err(error) => {
                    self.0.drain(..discard);
                    return Err(error.into());
                }
            };
            let is_over = match state {
                ConnectionState::EncodeTlsData(mut data) => {
                    encode(&mut data, reply).map_err(Failure::other)?;
                    None
                }
                ConnectionState::TransmitTlsData(data) => {
                    data.done();
                    None
                }
                ConnectionState::BlockedHandshake => Some(false),
                ConnectionState::WriteTraffic(_) => Some(true),
                ConnectionState::PeerClosed | ConnectionState::Closed => {
                    return Err(Failure {
                        cause: FailureCause::Refused,
                        words: "the peer has closed".into(),
                    });
                }
                _ => return Err(Failure::other("a state that was not asked for")),
            };
            self.0.drain(..discard);
            if let Some(is_complete) = is_over {
                return Ok(is_complete);
            }
        }
    }

    /// Appends the alert that a failed handshake has left. rustls panics if it is not given what it
    /// has not discarded yet: it may look for the next message there.
    pub(super) fn take_alert(&mut self, machine: &mut impl Machine, reply: &mut Vec<u8>) {
        loop {
            let UnbufferedStatus { discard, state } = machine.process(&mut self.0);
            match state {
                Ok(ConnectionState::EncodeTlsData(mut data)) => {
                    if encode(&mut data, reply).is_err() {
                        return;
                    }
                }
                Ok(ConnectionState::TransmitTlsData(data)) => data.done(),
                _ => return,
            }
            self.0.drain(..discard);
        }
    }
}

impl Rustls {
    /// A handshake by this configuration, to this version or a later one.
    ///
    /// # Errors
    /// It cannot be used.
    pub(crate) fn begin(
        config: Arc<ServerConfig>,
        oldest: TlsVersion,
    ) -> Result<Box<dyn Handshake>, Error> {
        Ok(Box::new(Rustls {
            connection: UnbufferedServerConnection::new(config)?,
            oldest,
            incoming: Incoming::default(),
        }))
    }

    /// Why the version that they have come to is none for this listener, if so. Its configuration
    /// may be another listener's, too, or the program's own, so it cannot say this before.
    fn refused_version(&self) -> Option<Failure> {
        let version = version_of(&self.connection).filter(|version| *version < self.oldest)?;
        let (oldest, version) = (self.oldest.as_str(), version.as_str());
        Some(Failure {
            cause: FailureCause::NothingInCommon,
            words: format!("the client has TLS {version}, and this needs {oldest}"),
        })
    }

    /// Whether client and server have come to the protocol of challenges.
    fn is_challenge(&self) -> bool {
        self.connection.alpn_protocol() == Some(CHALLENGE_PROTOCOL)
    }

    /// Appends the end of a connection whose handshake is complete.
    fn close(&mut self, reply: &mut Vec<u8>) {
        let UnbufferedStatus { state, .. } =
            self.connection.process_tls_records(&mut self.incoming.0);
        let Ok(ConnectionState::WriteTraffic(mut traffic)) = state else {
            return;
        };
        let begin = reply.len();
        reply.resize(begin + CLOSE_BYTES_MAX, 0);
        let written = traffic.queue_close_notify(&mut reply[begin..]);
        reply.truncate(begin + written.unwrap_or(0));
    }

    fn establish(self, left: &[u8]) -> Result<Box<Established>, Failure> {
        let agreed = terms_of(&self.connection)?;
        let (secrets, kernel) = self
            .connection
            .dangerous_into_kernel_connection()
            .map_err(Failure::from)?;
        established(agreed, secrets, Box::new(Kernel(kernel)), left)
    }
}

fn said(what: &str) -> Failure {
    Failure::other(format!("the handshake has left no {what}"))
}

/// What was agreed on in a handshake that is complete.
pub(super) fn terms_of(state: &CommonState) -> Result<(SupportedCipherSuite, TlsTerms), Failure> {
    let suite = state.negotiated_cipher_suite();
    let suite = suite.ok_or_else(|| said("cipher"))?;
    let first = state.peer_certificates().and_then(<[_]>::first);
    let terms = TlsTerms {
        version: version_of(state).unwrap_or_default().as_str(),
        cipher: name_of(suite.suite()),
        is_resumed: state.handshake_kind() == Some(HandshakeKind::Resumed),
        protocol: state.alpn_protocol().map(Into::into),
        certificate: first.map(certificate_of).transpose()?,
    };
    Ok((suite, terms))
}

/// The version that both sides have come to; `None` before.
fn version_of(state: &CommonState) -> Option<TlsVersion> {
    state.protocol_version().map(|it| match it {
        ProtocolVersion::TLSv1_3 => TlsVersion::V1_3,
        _ => TlsVersion::V1_2,
    })
}

/// The record layer of a handshake that is complete, and what came behind it.
pub(super) fn established(
    (suite, terms): (SupportedCipherSuite, TlsTerms),
    secrets: ExtractedSecrets,
    schedule: Box<dyn Schedule>,
    left: &[u8],
) -> Result<Box<Established>, Failure> {
    let (sent, received) = (secrets.tx, secrets.rx);
    let sent = (sent.1, sent.0);
    let records = Records::new(suite, schedule, sent, (received.1, received.0));
    Ok(Box::new(Established {
        records: records.map_err(|NotOffered| said("cipher that is offered"))?,
        left: left.to_vec(),
        terms: terms.share(),
    }))
}

impl Handshake for Rustls {
    /// One record after the other: what comes behind the last one of the handshake is not for
    /// rustls, which would answer it.
    fn advance(mut self: Box<Self>, mut records: &[u8], reply: &mut Vec<u8>) -> Progress {
        while let Some((record, left)) = split_record(records) {
            records = left;
            let begin = reply.len();
            let worked = self.incoming.work(&mut self.connection, record, reply);
            if let Some(refused) = self.refused_version() {
                // Of the answer in that version the client gets nothing.
                reply.truncate(begin);
                reply.extend(ALERT_OF_VERSION);
                return Progress::Failed(refused);
            }
            match worked {
                Ok(false) => {}
                Ok(true) if self.is_challenge() => {
                    self.close(reply);
                    return Progress::Answered;
                }
                Ok(true) => {
                    return match self.establish(left) {
                        Ok(established) => Progress::Done(established),
                        Err(failure) => Progress::Failed(failure),
                    };
                }
                Err(cause) => {
                    self.incoming.take_alert(&mut self.connection, reply);
                    return Progress::Failed(cause);
                }
            }
        }
        Progress::Waits(self)
    }
}

fn certificate_of(der: &CertificateDer<'_>) -> Result<PeerCertificate, Failure> {
    let wrong = |words| Failure {
        cause: FailureCause::ClientCertificate,
        words,
    };
    if der.len() > CERTIFICATE_BYTES_MAX {
        let why = "the client's certificate is too long";
        return Err(wrong(format!("{why}: over {CERTIFICATE_BYTES_MAX} bytes")));
    }
    // rustls has verified it, and reads less of it than is read here.
    let read = Certificate::from_der(der);
    let read = read.map_err(|cause| wrong(format!("the client's certificate: {cause}")))?;
    let subject = read.tbs_certificate().subject().to_string();
    Ok(PeerCertificate::new(der, subject))
}

/// As IANA has it; rustls tells the suites of TLS 1.3 apart by a prefix.
fn name_of(suite: CipherSuite) -> &'static str {
    match suite {
        CipherSuite::TLS13_AES_256_GCM_SHA384 => "TLS_AES_256_GCM_SHA384",
        CipherSuite::TLS13_CHACHA20_POLY1305_SHA256 => "TLS_CHACHA20_POLY1305_SHA256",
        other => other.as_str().unwrap_or("?"),
    }
}

fn encode<Data>(data: &mut EncodeTlsData<'_, Data>, reply: &mut Vec<u8>) -> Result<(), String> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_that_is_too_long_is_not_kept() {
        for (bytes, words) in [
            (CERTIFICATE_BYTES_MAX + 1, "too long"),
            (CERTIFICATE_BYTES_MAX, "the client's certificate: "),
        ] {
            let refused = certificate_of(&CertificateDer::from(vec![0; bytes]));
            let failure = refused.expect_err("it is none");
            assert_eq!(failure.cause, FailureCause::ClientCertificate);
            assert!(failure.words.contains(words), "{failure:?}");
        }
    }
}
