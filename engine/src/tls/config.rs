//! What a listener with TLS is configured with, and how that is replaced while it serves.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use flatpath_structures::lock::Lock;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ResolvesServerCert, WebPkiClientVerifier};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{CipherSuite, ServerConfig, SupportedCipherSuite};

use super::clients::{TlsClients, without_tickets};
use super::tickets::TicketKeys;

/// What an authority that validates a name asks for, and nothing else (RFC 8737 section 6.2).
pub const CHALLENGE_PROTOCOL: &[u8] = b"acme-tls/1";

/// Why a [`TlsConfig`] cannot be made.
#[derive(Debug)]
#[non_exhaustive]
pub enum TlsError {
    /// A certificate or a key cannot be read.
    Pem(String),
    /// They are not for one another, or rustls refuses them.
    Refused(rustls::Error),
    /// The configuration offers a cipher whose keys cannot be kept: those with AES-128.
    Cipher(CipherSuite),
    /// It does not let secrets be taken, which the record layer here needs
    /// ([`ServerConfig::enable_secret_extraction`]).
    Secrets,
    /// It takes early data, whose replay nobody here guards against
    /// ([`ServerConfig::max_early_data_size`]).
    EarlyData,
    /// A secret of tickets has fewer than 32 bytes, or there is none.
    TicketKey,
}

impl fmt::Display for TlsError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TlsError::Pem(cause) => formatter.write_str(cause),
            TlsError::Refused(cause) => cause.fmt(formatter),
            TlsError::Cipher(suite) => write!(
                formatter,
                "{suite:?} is offered; only ciphers with AES-256-GCM and ChaCha20-Poly1305 can be"
            ),
            TlsError::Secrets => formatter.write_str("enable_secret_extraction is not set"),
            TlsError::EarlyData => formatter.write_str("max_early_data_size is not 0"),
            TlsError::TicketKey => formatter.write_str("a key of tickets has at least 32 bytes"),
        }
    }
}

impl std::error::Error for TlsError {}

/// Certificates and keys of listeners with TLS 1.2 and 1.3, for
/// [`Server::listen_tls`](crate::Server::listen_tls). A clone is the same configuration: what
/// replaces it is used by every listener that has one, for handshakes that begin from then on.
///
/// A configuration has its own cryptographic provider; none is installed for the process.
///
/// ```no_run
/// use flatpath::tls::TlsConfig;
/// use flatpath::{Protocol, Server};
///
/// # fn serve(protocol: impl Protocol) -> Result<(), Box<dyn std::error::Error>> {
/// let (certificates, key) = (std::fs::read("chain.pem")?, std::fs::read("key.pem")?);
/// let tls = TlsConfig::from_pem(&certificates, &key)?;
/// Server::new().listen_tls("127.0.0.1:8443", &tls, protocol).run()?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct TlsConfig(Arc<Shared>);

struct Shared {
    current: Lock<Arc<ServerConfig>>,
    /// What a new certificate leaves as it is, and the lock of whoever replaces the current
    /// configuration: two replacements at once must not undo one another.
    kept: Lock<Kept>,
    /// Counts replacements, for those that keep what they have made of the current one.
    version: AtomicU64,
    /// `acme-tls/1` is offered beside the listener's own protocols.
    answers_challenges: AtomicBool,
}

/// What was chosen beside the certificates.
#[derive(Clone, Default)]
struct Kept {
    /// Whom handshakes verify.
    clients: Option<TlsClients>,
    /// What sessions are resumed by; without them by keys of this configuration alone.
    tickets: Option<TicketKeys>,
}

impl TlsConfig {
    /// One certificate and its key, in PEM: the certificate first, then those that lead from it to
    /// one that clients know.
    ///
    /// # Errors
    /// They cannot be read, or are not for one another.
    pub fn from_pem(certificates: &[u8], key: &[u8]) -> Result<TlsConfig, TlsError> {
        TlsConfig::from_server_config(server_config_of(certificates, key, &Kept::default())?)
    }

    /// Certificates that are chosen for each client, when its handshake begins. What the resolver
    /// chooses among may change while it is used.
    ///
    /// # Errors
    /// None at present but those of the provider.
    pub fn from_resolver(resolver: Arc<dyn ResolvesServerCert>) -> Result<TlsConfig, TlsError> {
        TlsConfig::from_server_config(with_resolver(resolver, provider(), &Kept::default())?)
    }

    /// What rustls is to be configured with in any other way. Sessions are resumed, certificates
    /// chosen and clients verified as it says. Its `alpn_protocols`, if there are any, replace
    /// those of the listener's protocol.
    ///
    /// # Errors
    /// What it has or lacks: see [`TlsError`].
    pub fn from_server_config(config: ServerConfig) -> Result<TlsConfig, TlsError> {
        let current = Lock::new(checked(config)?);
        Ok(TlsConfig(Arc::new(Shared {
            current,
            kept: Lock::new(Kept::default()),
            version: AtomicU64::new(0),
            answers_challenges: AtomicBool::new(false),
        })))
    }

    /// Lets an ACME authority prove the names of its certificates in a handshake (TLS-ALPN-01,
    /// RFC 8737), from the next one on: `acme-tls/1` is offered after the listener's own protocols,
    /// where that has names for ALPN. The certificate comes from the resolver, which has to refuse
    /// a hello with this name and no other while no challenge is pending. A connection that has
    /// come to this protocol ends with its handshake (RFC 8737 section 4), and no
    /// [`Protocol`](crate::Protocol) sees it.
    pub fn answer_challenges(&self) {
        // ORDER: Relaxed: published by the version.
        self.0.answers_challenges.store(true, Ordering::Relaxed);
        // ORDER: Release: see `put`.
        self.0.version.fetch_add(1, Ordering::Release);
    }

    /// Has clients prove that they have a certificate, from the next handshake on; where it is
    /// called again, that of other authorities. Connections that are there are not asked again.
    /// Sessions are not resumed from then on, so what was removed or revoked is refused at the
    /// next connection.
    ///
    /// Of a [`ServerConfig`] that was given, the certificates, the provider and the ALPN protocols
    /// are kept, and nothing else: let its own builder have the verifier.
    ///
    /// # Errors
    /// Those of rustls; nothing is replaced.
    pub fn verify_clients(&self, clients: &TlsClients) -> Result<(), TlsError> {
        self.keep(|kept| kept.clients = Some(clients.clone()))
    }

    /// Has sessions resumed by tickets that every server with these keys opens, from the next
    /// handshake on. Where clients are verified there are no tickets, and so it stays.
    ///
    /// What is kept of a [`ServerConfig`] that was given is as for [`TlsConfig::verify_clients`].
    ///
    /// # Errors
    /// Those of rustls; nothing is replaced.
    pub fn share_tickets(&self, keys: &TicketKeys) -> Result<(), TlsError> {
        self.keep(|kept| kept.tickets = Some(keys.clone()))
    }

    /// Chooses something beside the certificates, which stay.
    fn keep(&self, choose: impl FnOnce(&mut Kept)) -> Result<(), TlsError> {
        let mut kept = self.0.kept.lock();
        let mut chosen = kept.clone();
        choose(&mut chosen);
        let before = Arc::clone(&self.0.current.lock());
        let resolver = Arc::clone(&before.cert_resolver);
        let provider = CryptoProvider::clone(before.crypto_provider());
        let mut config = with_resolver(resolver, provider, &chosen)?;
        config.alpn_protocols.clone_from(&before.alpn_protocols);
        self.put(config)?;
        *kept = chosen;
        Ok(())
    }

    /// What is used from the next handshake on. Clients are verified and sessions resumed as it
    /// says, whatever [`TlsConfig::verify_clients`] and [`TlsConfig::share_tickets`] were told.
    ///
    /// # Errors
    /// As for the first one; nothing is replaced.
    pub fn replace(&self, config: ServerConfig) -> Result<(), TlsError> {
        let mut kept = self.0.kept.lock();
        self.put(config)?;
        *kept = Kept::default();
        Ok(())
    }

    /// With what is kept locked.
    fn put(&self, config: ServerConfig) -> Result<(), TlsError> {
        let config = checked(config)?;
        let before = std::mem::replace(&mut *self.0.current.lock(), config);
        // ORDER: Release: who sees the number finds the configuration, too.
        self.0.version.fetch_add(1, Ordering::Release);
        drop(before); // After the unlock.
        Ok(())
    }

    /// The same with a certificate and key in PEM. Clients are verified and sessions resumed as
    /// before.
    ///
    /// # Errors
    /// As for the first ones; nothing is replaced.
    pub fn replace_pem(&self, certificates: &[u8], key: &[u8]) -> Result<(), TlsError> {
        let kept = self.0.kept.lock();
        self.put(server_config_of(certificates, key, &kept)?)
    }

    pub(crate) fn version(&self) -> u64 {
        // ORDER: Acquire: see `replace`.
        self.0.version.load(Ordering::Acquire)
    }

    /// The current configuration, for a listener whose protocol has these names.
    pub(crate) fn current(&self, protocols: &[&str]) -> Arc<ServerConfig> {
        let current = Arc::clone(&self.0.current.lock());
        // ORDER: Relaxed: see `answer_challenges`.
        let challenges = self.0.answers_challenges.load(Ordering::Relaxed);
        let has_own = !current.alpn_protocols.is_empty();
        if has_own && !challenges || !has_own && protocols.is_empty() {
            return current;
        }
        let mut own = ServerConfig::clone(&current);
        if !has_own {
            let names = protocols.iter().map(|name| name.as_bytes().into());
            own.alpn_protocols = names.collect();
        }
        if challenges {
            // The last one: who offers another one as well gets that.
            own.alpn_protocols.push(CHALLENGE_PROTOCOL.into());
        }
        Arc::new(own)
    }
}

/// Without keys.
impl fmt::Debug for TlsConfig {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("TlsConfig")
            .field("version", &self.version())
            .finish_non_exhaustive()
    }
}

fn checked(config: ServerConfig) -> Result<Arc<ServerConfig>, TlsError> {
    let suites = &config.crypto_provider().cipher_suites;
    if let Some(suite) = suites.iter().find(|suite| !is_kept(suite)) {
        return Err(TlsError::Cipher(suite.suite()));
    }
    if !config.enable_secret_extraction {
        return Err(TlsError::Secrets);
    }
    if config.max_early_data_size > 0 {
        return Err(TlsError::EarlyData);
    }
    Ok(Arc::new(config))
}

/// Whether its keys can be kept without what is made of them: rustls 0.23 takes those of 32 bytes.
fn is_kept(suite: &SupportedCipherSuite) -> bool {
    !matches!(
        suite.suite(),
        CipherSuite::TLS13_AES_128_GCM_SHA256
            | CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256
            | CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256
    )
}

/// What cryptography a configuration here is made with: ring's, with the ciphers that are offered.
pub fn provider() -> CryptoProvider {
    let mut provider = rustls::crypto::ring::default_provider();
    provider.cipher_suites.retain(is_kept);
    provider
}

fn server_config_of(
    certificates: &[u8],
    key: &[u8],
    kept: &Kept,
) -> Result<ServerConfig, TlsError> {
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(certificates).collect();
    let chain = chain.map_err(|cause| TlsError::Pem(format!("the certificates: {cause}")))?;
    if chain.is_empty() {
        return Err(TlsError::Pem("the certificates: there is none".into()));
    }
    let key = PrivateKeyDer::from_pem_slice(key)
        .map_err(|cause| TlsError::Pem(format!("the key: {cause}")))?;
    let provider = provider();
    let own = CertifiedKey::from_der(chain, key, &provider).map_err(TlsError::Refused)?;
    with_resolver(Arc::new(SingleCertAndKey::from(own)), provider, kept)
}

fn with_resolver(
    resolver: Arc<dyn ResolvesServerCert>,
    provider: CryptoProvider,
    kept: &Kept,
) -> Result<ServerConfig, TlsError> {
    let clients = kept.clients.as_ref();
    let verifier = clients.map_or_else(WebPkiClientVerifier::no_client_auth, TlsClients::verifier);
    let mut config = ServerConfig::builder_with_provider(Arc::new(provider))
        .with_safe_default_protocol_versions()
        .map_err(TlsError::Refused)?
        .with_client_cert_verifier(verifier)
        .with_cert_resolver(resolver);
    config.enable_secret_extraction = true;
    // One is enough for a client that comes again; each costs as much as the next.
    config.send_tls13_tickets = 1;
    config.ticketer = match &kept.tickets {
        Some(keys) => keys.ticketer(),
        None => rustls::crypto::ring::Ticketer::new().map_err(TlsError::Refused)?,
    };
    // Tickets hold all that is needed: nothing is kept here for clients that may never come again.
    config.session_storage = Arc::new(rustls::server::NoServerSessionStorage {});
    if clients.is_some() {
        without_tickets(&mut config);
    }
    Ok(config)
}
