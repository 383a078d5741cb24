//! The NFS listener of `flatpath serve`.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use flatpath::Running;
use flatpath::lock::Lock;
use flatpath_nfs::{Access, Nfs, Options, Registration, Squash};

use crate::bounded_file;
use crate::config::Configuration;
use crate::failure::Failure;
use crate::nfs_exports;
use crate::services::Services;
use crate::settings::{NfsTls, Settings, is_on};
use crate::tls::Secured;

/// Where root keeps what outlives a server.
const ROOT_STATE: &str = "/var/lib/flatpath";

/// What TLS of a listener is made of, if it is to have it.
///
/// # Errors
/// What these settings say does not fit together.
pub(crate) fn secured(
    settings: &Settings,
    secured: Option<Secured>,
) -> Result<Option<Secured>, Failure> {
    let wrong = |why: &str| Err(Failure::WrongUse(why.into()));
    let (how, verifies) = (
        settings.nfs_tls,
        secured.as_ref().map(Secured::requires_clients),
    );
    match (how, verifies) {
        (None, None) => Ok(None),
        (Some(NfsTls::Required), Some(_)) | (Some(NfsTls::Offered), Some(false)) => Ok(secured),
        (None, Some(_)) => wrong(
            "a listener of NFS with a certificate begins TLS when a client asks for it: say with \
             nfs-tls whether one that does not is served, \"offered\", or refused, \"required\"",
        ),
        (Some(_), None) => wrong(
            "--nfs-tls needs a certificate: name its file and that of its key with --tls-cert \
             FILE and --tls-key FILE, or try it out with --tls-self-signed",
        ),
        (Some(NfsTls::Offered), Some(true)) => wrong(
            "--tls-client-ca would be passed by with --nfs-tls offered, as clients without TLS \
             have no certificate: say --nfs-tls required, or --tls-client-auth optional",
        ),
    }
}

/// The service with these settings and exports, which may answer calls without TLS or not.
pub(crate) fn open(
    settings: &Settings,
    file: &Configuration,
    tls_required: bool,
) -> Result<Nfs, Failure> {
    let _reading = bounded_file::begin("what NFS exports".into());
    let exports = match nfs_exports::are_named(settings, file) {
        true => nfs_exports::load(&settings.nfs_exports, file)?,
        false => Vec::new(),
    };
    let are_named = !exports.is_empty();
    let dir = settings.dir.as_deref().unwrap_or(Path::new("."));
    let state = settings.nfs_state.clone().or_else(default_state);
    if state.is_none() {
        log::warn!("no --nfs-state and no home directory: NFS handles become stale on restart");
    }
    let options = Options {
        directory: dir.to_owned(),
        exports,
        manage_groups: is_on(settings.manage_gids),
        state: state.clone(),
        access: match is_on(settings.writable) {
            true => Access::ReadWrite,
            false => Access::ReadOnly,
        },
        squash: match is_on(settings.no_root_squash) {
            true => Squash::Anonymous,
            false => Squash::Root,
        },
        allowed: settings.nfs_allow.clone(),
        secure_ports: is_on(settings.nfs_secure_ports),
        tls_required,
    };
    Nfs::open(options).map_err(|cause| {
        let dir = dir.display();
        let state = state.unwrap_or_default();
        let state = state.display();
        if are_named {
            return Failure::WrongUse(format!("NFS cannot export: {cause}"));
        }
        Failure::WrongUse(format!(
            "NFS cannot export {dir}: {cause}; name a readable directory, and with --nfs-state one \
             for the key that can be written and is not below it (now {state})"
        ))
    })
}

/// NFS and MOUNT in rpcbind's table, where that is wanted: until this is dropped, or another
/// process has taken over and what is registered is its own.
#[derive(Default)]
pub(crate) struct Rpcbind {
    bound: Option<SocketAddr>,
    registered: Arc<Registered>,
}

#[derive(Default)]
struct Registered {
    registration: Lock<Option<Registration>>,
    handed_over: Arc<AtomicBool>,
    /// It withdraws the registration.
    thread: Lock<Option<JoinHandle<()>>>,
}

impl Rpcbind {
    /// Tells rpcbind unless another server serves there until now.
    pub(crate) fn begin(
        running: &Running,
        services: &Services,
        takes_over: bool,
    ) -> Result<Rpcbind, Failure> {
        let listening = running.listeners();
        let mut rpcbind = Rpcbind::default();
        rpcbind.bound = services
            .registered
            .and_then(|number| listening[number].address.internet());
        if !takes_over {
            rpcbind.register()?;
        }
        Ok(rpcbind)
    }

    /// Tells rpcbind.
    fn register(&mut self) -> Result<(), Failure> {
        let Some(bound) = self.bound else {
            return Ok(());
        };
        let registration = Registration::begin(bound.port()).map_err(|cause| {
            Failure::Failed(format!(
                "--nfs-register: {cause}; see to that (is rpcbind running?), or leave \
                 --nfs-register out and name the port when mounting"
            ))
        })?;
        log::info!("registered with rpcbind at port {}", bound.port());
        *self.registered.registration.lock() = Some(registration);
        Ok(())
    }

    /// Tells rpcbind if that was left for later: this server has taken over, and serves whether
    /// that fails or not.
    pub(crate) fn taken_over(&mut self) {
        let is_left = self.registered.registration.lock().is_none();
        if is_left && let Err(failure) = self.register() {
            log::error!("{failure}");
        }
    }

    /// To be set when another process takes over, before the drain.
    pub(crate) fn handed_over(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.registered.handed_over)
    }

    /// A function that begins to remove the registration, without waiting for that.
    pub(crate) fn withdrawal(&self) -> impl Fn() + Send + 'static {
        let registered = Arc::clone(&self.registered);
        move || Registered::begin_withdrawal(&registered)
    }
}

impl Registered {
    /// On a thread: rpcbind may take seconds. Without one, the end of the server waits for it.
    fn begin_withdrawal(self: &Arc<Self>) {
        if self.registration.lock().is_none() {
            return;
        }
        let registered = Arc::clone(self);
        let thread = thread::Builder::new().name("flatpath-rpcbind".into());
        let started = thread.spawn(move || registered.withdraw());
        // The first one has what there is to do.
        self.thread.lock().get_or_insert(match started {
            Ok(thread) => thread,
            Err(cause) => return log::warn!("cannot start a thread: {cause}"),
        });
    }

    fn withdraw(&self) {
        let Some(registration) = self.registration.lock().take() else {
            return;
        };
        // ORDER: Relaxed: set before the drain that ends the registration.
        if self.handed_over.load(Ordering::Relaxed) {
            return log::info!("rpcbind registration now belongs to the new server");
        }
        match registration.end() {
            Ok(()) => log::info!("no longer registered with rpcbind"),
            Err(cause) => log::warn!("the registration with rpcbind could not be removed: {cause}"),
        }
    }
}

impl Drop for Rpcbind {
    /// Waits for the end of the withdrawal, which takes seconds at most.
    fn drop(&mut self) {
        self.registered.withdraw();
        let thread = self.registered.thread.lock().take();
        if thread.is_some_and(|thread| thread.join().is_err()) {
            log::error!("the thread that talks to rpcbind panicked; this is a bug");
        }
    }
}

/// As the base directory specification has it, without its rarer cases.
fn default_state() -> Option<PathBuf> {
    if rustix::process::geteuid().is_root() {
        return Some(ROOT_STATE.into());
    }
    let own = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let base = own("XDG_STATE_HOME").map(PathBuf::from);
    let home = || own("HOME").map(|home| Path::new(&home).join(".local/state"));
    base.or_else(home).map(|base| base.join("flatpath"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::listeners;
    use crate::settings::{ClientAuth, ListenerProtocol};

    fn settings(nfs_tls: Option<NfsTls>, has_certificate: bool) -> Settings {
        let address = SocketAddr::from(([127, 0, 0, 1], 2049));
        Settings {
            nfs: Some(address.into()),
            nfs_tls,
            tls_self_signed: has_certificate.then_some(true),
            ..Settings::default()
        }
    }

    fn verifying(settings: Settings, auth: Option<ClientAuth>) -> Settings {
        Settings {
            tls_client_ca: vec!["ca".into()],
            tls_client_auth: auth,
            ..settings
        }
    }

    /// Whether the listener for NFS has TLS.
    fn has_tls(settings: &Settings) -> Result<bool, String> {
        let listeners = listeners::of(settings, &Configuration::default())
            .map_err(|failure| failure.to_string())?;
        let mut nfs = listeners
            .iter()
            .filter(|it| it.protocol == ListenerProtocol::Nfs);
        Ok(nfs.next().expect("it is named").tls.is_some())
    }

    #[test]
    fn tls_is_asked_for_with_a_certificate_and_passes_no_authority_by() {
        let (required, offered) = (Some(NfsTls::Required), Some(NfsTls::Offered));
        assert_eq!(has_tls(&settings(None, false)), Ok(false));
        for how in [required, offered] {
            assert_eq!(has_tls(&settings(how, true)), Ok(true));
            let why = has_tls(&settings(how, false)).expect_err("there is none");
            assert!(why.contains("--nfs-tls needs a certificate"), "{why}");
        }
        let why = has_tls(&settings(None, true)).expect_err("for what?");
        assert!(why.contains("--https ADDR or --nfs-tls"), "{why}");
        let https = Settings {
            https: vec![SocketAddr::from(([127, 0, 0, 1], 443)).into()],
            ..settings(None, true)
        };
        assert_eq!(has_tls(&https), Ok(false), "the certificate is for HTTPS");
        for auth in [None, Some(ClientAuth::Required)] {
            assert_eq!(
                has_tls(&verifying(settings(required, true), auth)),
                Ok(true)
            );
            let passed_by = has_tls(&verifying(settings(offered, true), auth));
            let why = passed_by.expect_err("clients without TLS have none");
            assert!(why.contains("would be passed by"), "{why}");
        }
        let optional = verifying(settings(offered, true), Some(ClientAuth::Optional));
        assert_eq!(has_tls(&optional), Ok(true));
    }

    #[test]
    fn a_table_with_a_certificate_says_what_it_is_for() {
        let of = |text: &str| {
            let table = "[[listener]]\nprotocol = \"nfs\"\naddress = 2049\n";
            let file = Configuration::from_text(&format!("{table}{text}"));
            let file = file.expect("it can be read");
            let listeners = listeners::of(&file.settings, &file);
            let listeners = listeners.map_err(|failure| failure.to_string())?;
            Ok::<_, String>(listeners[0].tls.is_some())
        };
        assert_eq!(of(""), Ok(false));
        let both = "tls-self-signed = true\nnfs-tls = \"required\"\n";
        assert_eq!(of(both), Ok(true));
        let why = of("tls-self-signed = true\n").expect_err("for what?");
        assert!(why.contains("say with nfs-tls"), "{why}");
        of("nfs-tls = \"offered\"\n").expect_err("there is no certificate");
    }
}
