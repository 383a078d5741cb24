//! The service: options, which clients are allowed, and which procedure a call is for.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use flatpath::DriverConfig;
use flatpath::Subnet;
use flatpath::blocking::BlockingLimit;
use flatpath::descriptors::DescriptorBudget;
use flatpath::memory::{Pipes, PoolHandle};
use flatpath::prompt::PromptRight;
use flatpath_rpc::limits::REPLY_BYTES_MIN;
use flatpath_rpc::xdr::Writer;
use flatpath_rpc::{
    Accepted, Arguments, AuthStatus, Call, CallOutcome, Credential, Found, Programs, Reply, Route,
    Rpc, Transport,
};

use crate::calls::{self, CallCounts};
use crate::exports::{Common, Exports, Picked};
use crate::groups::UserGroups;
use crate::handle::HandleKey;
use crate::identity::{Server, Who};
use crate::key::{self, KeptKey};
use crate::limits::{PIPES_MAX, RECEIVE_BUFFER_BYTES, RECEIVE_BUFFERS};
use crate::portmapper::{Offered, Portmapper};
use crate::programs::{EXPORT, MOUNT, NFS, PORTMAP, Program, needs_tls};
use crate::request::{Attempt, Request, Scope};
use crate::rights::{
    Access, ClientRule, Clients, ExportOptions, PRIVILEGED_PORTS_END, Rights, Squash,
};
use crate::status::Status;
use crate::{mount, procedures};

/// How a directory is served, or several.
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
    /// Exports in place of `directory`, `access` and `squash`, which are looked at only where this
    /// is empty. Clients mount each by its path, and may do what its rules say.
    pub exports: Vec<ExportOptions>,
    /// The groups of callers are those that this machine knows of their users, and not those that
    /// calls name, of which there are sixteen at most. The first group of a call stays. Has no
    /// effect in a server that does not run as root.
    pub manage_groups: bool,
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
    /// Only calls of NFS that come through TLS (RFC 9289): others are refused (AUTH_TOOWEAK). NULL,
    /// MOUNT and the portmapper are answered without it, which gives access to nothing. Its
    /// listener is to have TLS: [`Server::with_start_tls`](flatpath::Server).
    pub tls_required: bool,
}

impl Options {
    /// Read for every client that can reach the listener, root squashed.
    pub fn new(directory: impl Into<PathBuf>) -> Options {
        Options {
            directory: directory.into(),
            exports: Vec::new(),
            manage_groups: false,
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

    /// The directory as an export for all.
    fn single(&self) -> ExportOptions {
        let rights = Rights {
            access: self.access,
            squash: self.squash,
            ..Rights::default()
        };
        let rule = ClientRule {
            clients: Clients::Any,
            rights,
            place: String::new(),
        };
        ExportOptions {
            directory: self.directory.clone(),
            rules: vec![rule],
            place: String::new(),
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
        if self.tls_required && !call.is_secured && needs_tls(call) {
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
    exports: Exports,
    admission: Admission,
    portmapper: Portmapper,
}

flatpath::opaque_debug! {
    impl[] Nfs as "Nfs";
}

impl Nfs {
    /// Opens the exports and the key.
    ///
    /// Sets the umask of the process to 0, as the kernel's NFS server does for itself: the client
    /// has applied its user's.
    ///
    /// # Errors
    /// When a directory or the key cannot be opened, when the key would lie inside an export,
    /// where every client could read it, when the host of a rule has no address, or when no thread
    /// can be started.
    pub fn open(options: Options) -> std::io::Result<Nfs> {
        let kept = options.state.as_deref().map(kept_key).transpose()?;
        let secret = match &kept {
            Some(kept) => kept.key,
            // It ends with this server: handles become stale at a restart.
            None => HandleKey(key::random()?),
        };
        check_kernel()?;
        rustix::process::umask(rustix::fs::Mode::empty());
        let server = Server::current()?;
        if !server.switches() {
            log::warn!("not run as root: every NFS client acts as the user of this server");
        }
        let manages_groups = options.manage_groups && server.switches();
        let common = Common {
            secret,
            server: Arc::new(server),
            pipes: Pipes::new(pipes_max()),
            groups: manages_groups.then(|| Arc::new(UserGroups::of_machine())),
            kept,
        };
        let exports = match options.exports.is_empty() {
            true => Exports::single(common, options.single())?,
            false => Exports::several(common, options.exports.clone())?,
        };
        Ok(Nfs {
            exports,
            admission: options.admission(),
            portmapper: Portmapper::new(&Offered::default()),
        })
    }

    /// The same with another source of groups.
    #[cfg(test)]
    pub(crate) fn with_groups(mut self, groups: UserGroups) -> Nfs {
        self.exports
            .change_common(|common| common.groups = Some(Arc::new(groups)));
        self
    }

    /// The exports, which may be replaced while the server runs.
    pub fn exports(&self) -> Exports {
        self.exports.clone()
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
        CallCounts::new(&protocol.programs().exports, protocol.reply_counts())
    }

    /// What its portmapper lists, to be told as soon as it is known where it listens.
    pub fn offered(&self) -> Offered {
        self.portmapper.offered().clone()
    }

    /// The same with a table that others share, in a server with several listeners for NFS.
    pub fn offering(self, offered: &Offered) -> Nfs {
        Nfs {
            portmapper: Portmapper::new(offered),
            ..self
        }
    }

    /// The user whose groups a call needs that this machine is to know.
    fn user_to_look_up(&self, call: &Call, picked: &Picked<'_>) -> Option<(u32, &UserGroups)> {
        let groups = self.exports.common().groups.as_deref()?;
        let is_itself = picked.denied.is_none() && picked.rights.squash != Squash::All;
        match call.credential {
            Credential::System { user, .. } if is_itself => Some((user, groups)),
            _ => None,
        }
    }

    /// The caller for the file system. `None`: its groups are not known by now.
    fn who(&self, call: &Call, picked: &Picked<'_>, scope: &Scope) -> Option<Who> {
        let known = match self.user_to_look_up(call, picked) {
            None => None,
            Some((user, groups)) => Some(match scope {
                Scope::Prompt(_) => groups.find_now(user)?,
                _ => groups.find(user)?,
            }),
        };
        let who = Who::new(&call.credential, &picked.rights, known);
        Some(picked.state.server.acting(who))
    }

    /// Answers a call: `None` for a try that has to wait for the groups of its caller.
    fn serve(
        &self,
        scope: Scope,
        call: &Call,
        arguments: Arguments<'_>,
        reply: &mut Reply,
        pool: PoolHandle<'_>,
    ) -> Option<Result<CallOutcome, Found>> {
        let table = self.exports.table();
        let picked = table.pick_any(call, arguments);
        let (scope, who) = match (picked.denied, self.who(call, &picked, &scope)) {
            (Some(status), who) => (Scope::Denied(status), who.unwrap_or_default()),
            (None, Some(who)) => (scope, who),
            (None, None) if matches!(scope, Scope::Prompt(_)) => return None,
            (None, None) => (Scope::Denied(Status::Later), Who::default()),
        };
        let mut request = Request {
            scope,
            state: picked.state,
            rights: picked.rights,
            who,
            reply,
            pool,
        };
        let served = if call.program == MOUNT.number {
            let mounting = (&**table, picked.components);
            mount::serve(call.procedure, &mut request, arguments, mounting)
        } else {
            procedures::serve(call.procedure, &mut request, arguments)
        };
        let served = served.unwrap_or_else(|failure| request.fail(failure));
        Some(request.end_attempt(served))
    }

    /// The same on a worker.
    fn serve_there(
        &self,
        scope: Scope,
        call: &Call,
        arguments: Arguments<'_>,
        reply: &mut Reply,
        pool: PoolHandle<'_>,
    ) -> CallOutcome {
        let served = self.serve(scope, call, arguments, reply, pool);
        // What is no try always ends with an outcome.
        served
            .and_then(Result::ok)
            .unwrap_or(CallOutcome::SystemError)
    }
}

/// The key that is kept in a directory, looked after.
fn kept_key(state: &Path) -> std::io::Result<Arc<KeptKey>> {
    let kept = KeptKey::open(state).map_err(|cause| {
        let text = format!("the directory of the key, {}: {cause}", state.display());
        std::io::Error::new(cause.kind(), text)
    })?;
    let kept = Arc::new(kept);
    kept.keep()?;
    Ok(kept)
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
        let pipes = &self.exports.common().pipes;
        pipes.count(move || (budget.excess() == 0).then(|| Box::new(budget.cache(2)) as _));
        self.exports.begin(descriptors);
    }

    fn route(&self, call: &Call) -> Route {
        let wrong = match (call.program, call.transport) {
            (number, _) if number == MOUNT.number => mismatch(call, &MOUNT),
            // A datagram would have to hold a READ, and its sender may be forged.
            (number, Transport::Stream) if number == NFS.number => mismatch(call, &NFS),
            (number, _) if number == PORTMAP.number => match self.portmapper.route(call) {
                Route::Unavailable(status) => Some(status),
                _ => None,
            },
            _ => Some(Accepted::ProgramUnavailable),
        };
        if let Some(status) = wrong {
            return Route::Unavailable(status);
        }
        // It does nothing, so everybody may.
        if call.procedure == 0 {
            return Route::Inline;
        }
        if !self.admission.admits(call) {
            return Route::Refused(AuthStatus::TooWeak);
        }
        if call.program == PORTMAP.number {
            self.portmapper.route(call)
        } else if call.program == NFS.number && procedures::changes(call.procedure) {
            Route::Once
        } else if call.program == NFS.number && procedures::is_prompt(call.procedure) {
            Route::Prompt
        } else {
            Route::Pooled
        }
    }

    fn reply_bytes_max(&self, call: &Call, arguments: Arguments<'_>) -> usize {
        match (call.program, call.procedure) {
            (program, procedure) if program == NFS.number => {
                procedures::reply_bytes_max(procedure, arguments)
            }
            (program, _) if program == PORTMAP.number => {
                self.portmapper.reply_bytes_max(call, arguments)
            }
            (_, EXPORT) => REPLY_BYTES_MIN + self.exports.table().list().len(),
            _ => REPLY_BYTES_MIN,
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
        self.portmapper.inline(call, arguments, results)
    }

    fn prompt_right(&self, call: &Call, arguments: Arguments<'_>) -> Option<Arc<PromptRight>> {
        let table = self.exports.table();
        let state = table.state(call, arguments);
        let reads = procedures::reads(call.procedure);
        let may_try = !reads || state.export.files.tells_data();
        may_try.then(|| Arc::clone(&state.right))
    }

    fn prompt(
        &self,
        call: &Call,
        arguments: Arguments<'_>,
        reply: &mut Reply,
        pool: PoolHandle<'_>,
    ) -> Result<CallOutcome, Found> {
        let scope = Scope::Prompt(Attempt::default());
        let served = self.serve(scope, call, arguments, reply, pool);
        served.unwrap_or_else(|| Err(Found::default()))
    }

    fn reply_classes(&self) -> usize {
        calls::CLASSES
    }

    fn reply_class(&self, call: &Call, accepted: u32, result: Option<u32>) -> Option<usize> {
        calls::class(call, accepted, result)
    }

    fn preparation(&self, call: &Call, arguments: Arguments<'_>) -> Option<BlockingLimit> {
        self.exports.common().groups.as_ref()?;
        if call.program == PORTMAP.number {
            return None;
        }
        let table = self.exports.table();
        let picked = table.pick_any(call, arguments);
        let (user, groups) = self.user_to_look_up(call, &picked)?;
        groups.needs_lookup(user).then(|| groups.limit().clone())
    }

    fn prepare(&self, call: &Call) {
        if let (Some(groups), Credential::System { user, .. }) =
            (&self.exports.common().groups, call.credential)
        {
            groups.look_up(user);
        }
    }

    fn limit(&self, call: &Call, arguments: Arguments<'_>) -> Option<BlockingLimit> {
        if call.program == PORTMAP.number {
            return None;
        }
        self.exports.table().state(call, arguments).limit.clone()
    }

    fn busy(
        &self,
        call: &Call,
        arguments: Arguments<'_>,
        reply: &mut Reply,
        pool: PoolHandle<'_>,
    ) -> CallOutcome {
        self.serve_there(Scope::Busy, call, arguments, reply, pool)
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
        if call.program == PORTMAP.number {
            return self.portmapper.pooled(call, arguments, reply, pool);
        }
        self.serve_there(Scope::after(found), call, arguments, reply, pool)
    }
}
