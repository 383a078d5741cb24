//! The service: options, which clients are allowed, and which procedure a call is for.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use flatpath::DriverConfig;
use flatpath::Subnet;
use flatpath::blocking::BlockingLimit;
use flatpath::descriptors::DescriptorBudget;
use flatpath::memory::{Pipes, PoolHandle};
use flatpath::prompt::PromptRight;
use flatpath_rpc::limits::REPLY_BYTES_MIN;
use flatpath_rpc::xdr::Writer;
use flatpath_rpc::{
    Accepted, Arguments, AuthStatus, Call, CallOutcome, Found, Programs, Reply, Route, Rpc,
};

use rustix::fs::{AtFlags, StatxFlags};

use crate::calls::{self, CallCounts};
use crate::export::Export;
use crate::handle::HandleKey;
use crate::identity::{Server, Squash};
use crate::key;
use crate::limits::{PIPES_MAX, RECEIVE_BUFFER_BYTES, RECEIVE_BUFFERS};
use crate::programs::{MOUNT, NFS, OFFERED, PORTMAP, Program};
use crate::request::{Attempt, Request, Scope};
use crate::state::{Access, State};
use crate::{mount, portmap, procedures, sweep};

/// The lowest port that does not need a privilege.
const PRIVILEGED_PORTS_END: u16 = 1024;

/// How a directory is served.
///
/// ```
/// use flatpath_nfs::{Access, Options};
///
/// let options = Options {
///     access: Access::ReadWrite,
///     allowed: vec!["10.0.0.0/8".parse().expect("a network")],
///     ..Options::new("/srv/www")
/// };
/// # let _ = options;
/// ```
#[derive(Clone, Debug)]
pub struct Options {
    /// The exported directory.
    pub directory: PathBuf,
    /// Where the key of the handles is kept. `None`: handles end with this server.
    pub state: Option<PathBuf>,
    /// The rights of clients.
    pub access: Access,
    /// Which callers become `nobody`.
    pub squash: Squash,
    /// Networks that clients may come from; empty: all.
    pub allowed: Vec<Subnet>,
    /// Only clients that come from a privileged port.
    pub secure_ports: bool,
    /// Only calls that come through TLS (RFC 9289): others are refused (AUTH_TOOWEAK), but for the
    /// one that asks for it. Its listener is to have it:
    /// [`Server::with_start_tls`](flatpath::Server).
    pub tls_required: bool,
}

impl Options {
    /// Read for every client that can reach the listener, root squashed.
    pub fn new(directory: impl Into<PathBuf>) -> Options {
        Options {
            directory: directory.into(),
            state: None,
            access: Access::default(),
            squash: Squash::Root,
            allowed: Vec::new(),
            secure_ports: false,
            tls_required: false,
        }
    }

    fn admission(&self) -> Admission {
        Admission {
            is_open: self.allowed.is_empty() && !self.secure_ports && !self.tls_required,
            allowed: self.allowed.clone(),
            secure_ports: self.secure_ports,
            tls_required: self.tls_required,
        }
    }
}

/// Which clients are served.
#[derive(Debug)]
struct Admission {
    /// All of them: nothing else is to be looked at.
    is_open: bool,
    allowed: Vec<Subnet>,
    secure_ports: bool,
    tls_required: bool,
}

impl Admission {
    /// Whether a call may come from where it comes from. Unknown counts as not allowed.
    fn admits(&self, call: &Call) -> bool {
        if self.is_open {
            return true;
        }
        if self.tls_required && !call.is_secured {
            return false;
        }
        let listed = |address| {
            let mut allowed = self.allowed.iter();
            self.allowed.is_empty() || allowed.any(|network| network.contains(address))
        };
        match call.peer {
            Some(peer) => {
                listed(peer.ip()) && (!self.secure_ports || peer.port() < PRIVILEGED_PORTS_END)
            }
            None => self.allowed.is_empty() && !self.secure_ports,
        }
    }

    /// Whether a call that does nothing may: only TLS decides.
    fn admits_null(&self, call: &Call) -> bool {
        !self.tls_required || call.is_secured
    }
}

/// The port that the portmapper names; 0 until it is known.
#[derive(Clone, Debug, Default)]
pub struct Port(Arc<AtomicU16>);

impl Port {
    /// Says where the listener is.
    pub fn announce(&self, port: u16) {
        self.0.store(port, Ordering::Relaxed);
    }
}

/// The NFS service.
///
/// ```no_run
/// use flatpath::Server;
/// use flatpath_nfs::{Nfs, Options};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let (nfs, config) = (Nfs::open(Options::new("/srv/www"))?, Nfs::driver_config());
/// Server::new().driver_config(config).listen("127.0.0.1:2049", nfs.protocol()).run()?;
/// # Ok(())
/// # }
/// ```
pub struct Nfs {
    pub(crate) state: State,
    admission: Admission,
    port: Port,
}

flatpath::opaque_debug! {
    impl[] Nfs as "Nfs";
}

impl Nfs {
    /// Opens the directory and the key.
    ///
    /// Sets the umask of the process to 0, as the kernel's NFS server does for itself: the client
    /// has applied its user's.
    ///
    /// # Errors
    /// When the directory or the key cannot be opened, when the key would lie inside the directory,
    /// where every client could read it, or when no thread can be started.
    pub fn open(options: Options) -> std::io::Result<Nfs> {
        let directory = options.directory.canonicalize()?;
        let secret = match &options.state {
            Some(state) => {
                let secret = key::stored(state).map_err(|cause| {
                    let text = format!("the directory of the key, {}: {cause}", state.display());
                    std::io::Error::new(cause.kind(), text)
                })?;
                if is_inside(&state.canonicalize()?, &directory)? {
                    let text = format!("{} lies inside the export", state.display());
                    return Err(std::io::Error::new(std::io::ErrorKind::InvalidInput, text));
                }
                secret
            }
            // It ends with this server: handles become stale at a restart.
            None => HandleKey(key::random()?),
        };
        check_kernel()?;
        rustix::process::umask(rustix::fs::Mode::empty());
        let server = Server::current()?;
        if !server.switches() {
            log::warn!("not run as root: every NFS client acts as the user of this server");
        }
        let export = Arc::new(Export::open(&directory, secret)?);
        if !export.finds_by_handle() {
            log::info!("files are found by name: the kernel does not open handles here");
        }
        let place = format!("the NFS export {}", directory.display());
        let limit = match export.files.is_local() {
            true => None,
            false => Some(BlockingLimit::of_mount(mount_of(&directory)?, &*place)),
        };
        let right = match export.files.is_local() {
            true => PromptRight::granted(place),
            false => PromptRight::refused(place),
        };
        let pipes = Pipes::new(pipes_max());
        sweep::start(&export, pipes.clone())?;
        Ok(Nfs {
            state: State {
                export,
                directory,
                right,
                limit,
                access: options.access,
                server,
                pipes,
                squash: options.squash,
            },
            admission: options.admission(),
            port: Port::default(),
        })
    }

    /// Receive buffers that suit long WRITEs, for `Server::driver_config`: a mebibyte then comes in
    /// 16 pieces and not in 128. They are 16 MiB of address space, touched as far as clients send.
    pub fn driver_config() -> DriverConfig {
        DriverConfig {
            receive_buffers: RECEIVE_BUFFERS,
            receive_buffer_bytes: RECEIVE_BUFFER_BYTES,
            ..DriverConfig::default()
        }
    }

    /// As a protocol of the engine.
    pub fn protocol(self) -> Rpc<Nfs> {
        Rpc::new(self)
    }

    /// The counters of a listener, to be read while it serves.
    pub fn call_counts(protocol: &Rpc<Nfs>) -> CallCounts {
        CallCounts::new(&protocol.programs().state.export, protocol.reply_counts())
    }

    /// Where to say which port the listener got.
    pub fn port(&self) -> Port {
        self.port.clone()
    }

    /// Whether a procedure may need no wait.
    fn is_prompt(&self, procedure: u32) -> bool {
        let files = &self.state.export.files;
        if procedures::reads(procedure) {
            files.tells_data()
        } else {
            procedures::asks(procedure)
        }
    }

    /// Answers a call on a worker.
    fn serve(
        &self,
        scope: Scope,
        call: &Call,
        arguments: Arguments<'_>,
        reply: &mut Reply,
        pool: PoolHandle<'_>,
    ) -> CallOutcome {
        let mut request = Request {
            scope,
            state: &self.state,
            who: self.state.who(&call.credential),
            reply,
            pool,
        };
        let served = if call.program == MOUNT.number {
            mount::serve(call.procedure, &mut request, arguments)
        } else {
            procedures::serve(call.procedure, &mut request, arguments)
        };
        served.unwrap_or_else(|failure| request.fail(failure))
    }
}

/// Pipes that the descriptor limit affords: an eighth of it, at two descriptors each.
fn pipes_max() -> usize {
    let all = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    all.map_or(PIPES_MAX, |all| {
        usize::try_from(all / 16).map_or(PIPES_MAX, |pipes| pipes.min(PIPES_MAX))
    })
}

/// Asking what a caller may do (`faccessat2`) needs Linux 5.8; before it the answer would silently
/// be about the server.
fn check_kernel() -> std::io::Result<()> {
    let name = rustix::system::uname();
    let release = name.release().to_string_lossy();
    let mut numbers = release.split(|byte: char| !byte.is_ascii_digit());
    let mut next = || {
        numbers
            .next()
            .and_then(|number| number.parse::<u32>().ok())
            .unwrap_or(0)
    };
    if (next(), next()) < (5, 8) {
        let text = format!("Linux {release} is too old: NFS needs 5.8");
        return Err(std::io::Error::new(std::io::ErrorKind::Unsupported, text));
    }
    Ok(())
}

/// True when clients could reach `state` through the export: it lies below it, and no mount lies
/// between, which they cannot pass.
fn is_inside(state: &Path, directory: &Path) -> std::io::Result<bool> {
    let mut at = state;
    while at.starts_with(directory) {
        if at == directory {
            return Ok(true);
        }
        let above = at.parent().unwrap_or(directory);
        if mount_of(at)? != mount_of(above)? {
            return Ok(false);
        }
        at = above;
    }
    Ok(false)
}

/// Which mount a directory lies on; also two mounts of one file system differ.
fn mount_of(directory: &Path) -> std::io::Result<u64> {
    let wanted = StatxFlags::MNT_ID;
    let found = rustix::fs::statx(rustix::fs::CWD, directory, AtFlags::empty(), wanted)?;
    Ok(found.stx_mnt_id)
}

/// The fault of a call to `program`.
fn mismatch(call: &Call, program: &Program) -> Option<Accepted> {
    if call.version != program.version {
        return Some(Accepted::ProgramMismatch {
            low: program.version,
            high: program.version,
        });
    }
    (call.procedure >= program.procedures).then_some(Accepted::ProcedureUnavailable)
}

impl Programs for Nfs {
    fn name(&self) -> &'static str {
        "nfs"
    }

    fn starts(&self, descriptors: &DescriptorBudget) {
        let budget = descriptors.clone();
        self.state
            .pipes
            .count(move || (budget.excess() == 0).then(|| Box::new(budget.cache(2)) as _));
        self.state.export.nodes.count_in(descriptors);
    }

    fn route(&self, call: &Call) -> Route {
        let program = OFFERED
            .iter()
            .find(|program| program.number == call.program);
        let wrong = match program {
            Some(program) => mismatch(call, program),
            None => Some(Accepted::ProgramUnavailable),
        };
        if let Some(status) = wrong {
            return Route::Unavailable(status);
        }
        if call.procedure == 0 && self.admission.admits_null(call) {
            return Route::Inline;
        }
        if !self.admission.admits(call) {
            return Route::Refused(AuthStatus::TooWeak);
        }
        if call.program == PORTMAP.number {
            Route::Inline
        } else if call.program == NFS.number && procedures::changes(call.procedure) {
            Route::Once
        } else if call.program == NFS.number && self.is_prompt(call.procedure) {
            Route::Prompt
        } else {
            Route::Pooled
        }
    }

    fn reply_bytes_max(&self, call: &Call, arguments: Arguments<'_>) -> usize {
        if call.program == NFS.number {
            procedures::reply_bytes_max(call.procedure, arguments)
        } else {
            REPLY_BYTES_MIN
        }
    }

    fn inline(
        &self,
        call: &Call,
        arguments: Arguments<'_>,
        results: &mut Writer<'_>,
    ) -> CallOutcome {
        if call.procedure == 0 {
            return CallOutcome::Results;
        }
        let port = self.port.0.load(Ordering::Relaxed);
        match portmap::serve(call.procedure, arguments, results, port) {
            Ok(()) => CallOutcome::Results,
            Err(_) => CallOutcome::GarbageArguments,
        }
    }

    fn prompt_right(&self) -> Option<&PromptRight> {
        Some(&self.state.right)
    }

    fn prompt(
        &self,
        call: &Call,
        arguments: Arguments<'_>,
        reply: &mut Reply,
        pool: PoolHandle<'_>,
    ) -> Result<CallOutcome, Found> {
        let mut request = Request {
            scope: Scope::Prompt(Attempt::default()),
            state: &self.state,
            who: self.state.who(&call.credential),
            reply,
            pool,
        };
        let served = procedures::serve(call.procedure, &mut request, arguments)
            .unwrap_or_else(|failure| request.fail(failure));
        request.end_attempt(served)
    }

    fn reply_classes(&self) -> usize {
        calls::CLASSES
    }

    fn reply_class(&self, call: &Call, accepted: u32, result: Option<u32>) -> Option<usize> {
        calls::class(call, accepted, result)
    }

    fn limit(&self, _: &Call) -> Option<&BlockingLimit> {
        self.state.limit.as_ref()
    }

    fn busy(
        &self,
        call: &Call,
        arguments: Arguments<'_>,
        reply: &mut Reply,
        pool: PoolHandle<'_>,
    ) -> CallOutcome {
        self.serve(Scope::Busy, call, arguments, reply, pool)
    }

    fn pooled(
        &self,
        call: &Call,
        arguments: Arguments<'_>,
        reply: &mut Reply,
        pool: PoolHandle<'_>,
    ) -> CallOutcome {
        self.pooled_after(Found::default(), call, arguments, reply, pool)
    }

    fn pooled_after(
        &self,
        found: Found,
        call: &Call,
        arguments: Arguments<'_>,
        reply: &mut Reply,
        pool: PoolHandle<'_>,
    ) -> CallOutcome {
        self.serve(Scope::after(found), call, arguments, reply, pool)
    }
}
