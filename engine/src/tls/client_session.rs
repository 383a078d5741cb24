//! Handshakes of connections that this server opens, as rustls makes them: its client.
//!
//! What is alike for both roles is in `session.rs`. A client speaks first, so it is asked for its
//! hello before anything has come; and a server of TLS 1.3 sends tickets when the handshake is
//! complete, which rustls' store of sessions is given ([`Schedule::ticket`]).

use std::sync::Arc;

use rustls::client::{ClientConnectionData, UnbufferedClientConnection};
use rustls::kernel::KernelConnection;
use rustls::pki_types::ServerName;
use rustls::unbuffered::UnbufferedStatus;
use rustls::{ClientConfig, ConnectionTrafficSecrets};

use super::records::{Direction, Schedule, split_record};
use super::session::{
    Established, Failure, Handshake, Incoming, Machine, Progress, established, terms_of,
};

/// A configuration of which secrets can be taken, and that sends nothing before the server has
/// answered: this one, or a copy.
pub(crate) fn fit(config: Arc<ClientConfig>) -> Arc<ClientConfig> {
    if config.enable_secret_extraction && !config.enable_early_data {
        return config;
    }
    let mut config = (*config).clone();
    config.enable_secret_extraction = true;
    config.enable_early_data = false;
    Arc::new(config)
}

/// rustls 0.23.
pub(crate) struct RustlsClient {
    connection: UnbufferedClientConnection,
    incoming: Incoming,
}

impl Machine for UnbufferedClientConnection {
    type Data = ClientConnectionData;

    fn process<'c, 'i>(
        &'c mut self,
        records: &'i mut [u8],
    ) -> UnbufferedStatus<'c, 'i, ClientConnectionData> {
        self.process_tls_records(records)
    }
}

impl RustlsClient {
    /// A handshake with a server of this name; what it says first is appended to `reply`.
    ///
    /// # Errors
    /// The configuration cannot be used.
    pub(crate) fn begin(
        config: Arc<ClientConfig>,
        name: ServerName<'static>,
        reply: &mut Vec<u8>,
    ) -> Result<Box<dyn Handshake>, Failure> {
        let mut begun = RustlsClient {
            connection: UnbufferedClientConnection::new(config, name)?,
            incoming: Incoming::default(),
        };
        begun.incoming.work(&mut begun.connection, &[], reply)?;
        Ok(Box::new(begun))
    }

    fn establish(self, left: &[u8]) -> Result<Box<Established>, Failure> {
        let (suite, terms) = terms_of(&self.connection)?;
        let (secrets, kernel) = self
            .connection
            .dangerous_into_kernel_connection()
            .map_err(Failure::from)?;
        established((suite, terms), secrets, Box::new(Kernel(kernel)), left)
    }
}

impl Handshake for RustlsClient {
    fn advance(mut self: Box<Self>, mut records: &[u8], reply: &mut Vec<u8>) -> Progress {
        while let Some((record, left)) = split_record(records) {
            records = left;
            match self.incoming.work(&mut self.connection, record, reply) {
                Ok(false) => {}
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

/// What rustls keeps to make further secrets, and to remember sessions.
struct Kernel(KernelConnection<ClientConnectionData>);

impl Schedule for Kernel {
    fn next(&mut self, of: Direction) -> Option<ConnectionTrafficSecrets> {
        let next = match of {
            Direction::Sent => self.0.update_tx_secret(),
            Direction::Received => self.0.update_rx_secret(),
        };
        next.ok().map(|(_, secrets)| secrets)
    }

    fn ticket(&mut self, ticket: &[u8]) -> bool {
        self.0.handle_new_session_ticket(ticket).is_ok()
    }
}
