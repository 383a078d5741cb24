//! The exports of a server: which one a call is for, with which rights, and how they are replaced.
//!
//! A call is for the export that its handle names. The handle is read there with the key, so one
//! that was forged is refused, and one of another export too: a client's rights are those of the
//! export that it was given the handle in, whatever else it may mount. Which rights a client has is
//! looked up with each call, by the address that the engine names: behind a load balancer, the
//! client's.
//!
//! | a client that                             | gets                                        |
//! |-------------------------------------------|---------------------------------------------|
//! | has no rule in the export of its handle   | NFS3ERR_STALE, as from Linux's server       |
//! | mounts what no rule lets it mount         | MNT3ERR_ACCES                               |
//! | must come from a port below 1024          | NFS3ERR_PERM, MNT3ERR_ACCES                 |
//! | must come through TLS                     | NFS3ERR_ACCES, MNT3ERR_ACCES                |
//! | names two exports in one RENAME or LINK   | NFS3ERR_XDEV                                |
//!
//! MNT is for the export with the longest path that leads to what is mounted and that has a rule
//! for the client.
//!
//! A reload makes a new table. An export that stays, by its path and its directory, stays open,
//! with new rules: its handles, open files and its write verifier are the same. A call ends by the
//! table with which it began. What is gone is closed when the last such call has ended. `renewal`
//! says what becomes of a directory that was removed.
//!
//! Invariants
//! - X1: of two exports in a table the numbers differ, so a handle names one of them. The number is
//!   that of the root's inode and time of birth; where two roots have the same, as two file systems
//!   that were made in the same second may, a newcomer's is made with its path as well. So a handle
//!   is good after a restart, an upgrade from one export to several, and a reload; after a restart
//!   with such a twin the older one's handles are stale.
//! - X2: no network thread is the last to hold a table that was replaced: closing its files may
//!   wait.
//!
//! Cost of a call: one wait-free load, a search among at most
//! [`EXPORTS_MAX`](crate::limits::EXPORTS_MAX) numbers, and [`Rules::find`].

mod loading;
mod renewal;

use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use arc_swap::{ArcSwap, Guard as Loaded};
use flatpath::descriptors::DescriptorBudget;
use flatpath::housekeeper::Task;
use flatpath::lock::{Guard, Lock};
use flatpath::memory::Pipes;
use flatpath_rpc::xdr::Writer;
use flatpath_rpc::{Arguments, Call};

use crate::export::Export;
use crate::groups::UserGroups;
use crate::handle::{self, HandleKey};
use crate::identity::Server;
use crate::key::KeptKey;
use crate::limits::{
    EXPORT_LIST_BYTES_MAX, MOUNT_PATH_BYTES_MAX, NODES_PER_EXPORT_MIN, RETIRE_PAUSE,
    RETIRE_TIME_MAX,
};
use crate::names::components;
use crate::procedures;
use crate::programs::{MNT, MOUNT};
use crate::request::read_handle;
use crate::rights::{ExportOptions, Rights, Rules};
use crate::state::State;
use crate::status::Status;

/// What the paths that clients mount mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Naming {
    /// Paths are those of the machine.
    Paths,
    /// There is one export, which `/` names as well.
    Single,
}

/// An export with the rights of its clients.
struct Entry {
    state: Arc<State>,
    rules: Rules,
    /// The directory without links in its path, and as it was written.
    names: Vec<PathBuf>,
}

/// All exports at one time.
pub(crate) struct Table {
    entries: Vec<Entry>,
    naming: Naming,
    /// The results of EXPORT.
    list: Vec<u8>,
}

/// The export that a call is for, and the rights of its client there.
pub(crate) struct Picked<'a> {
    pub(crate) state: &'a State,
    pub(crate) rights: Rights,
    /// Why the call is not served.
    pub(crate) denied: Option<Status>,
    /// Of the path to mount: the components that name the export.
    pub(crate) components: usize,
}

/// The parts that all exports of a server have in common.
pub(crate) struct Common {
    pub(crate) secret: HandleKey,
    pub(crate) server: Arc<Server>,
    pub(crate) pipes: Pipes,
    pub(crate) groups: Option<Arc<UserGroups>>,
    /// The secret in its directory, which no client may reach.
    pub(crate) kept: Option<Arc<KeptKey>>,
}

/// The exports of an NFS service, to be replaced while it serves. Clones are the same.
#[derive(Clone)]
pub struct Exports(Arc<Shared>);

flatpath::opaque_debug! {
    impl[] Exports as "Exports";
}

struct Shared {
    table: ArcSwap<Table>,
    common: Common,
    /// Of the server, once it starts.
    budget: OnceLock<DescriptorBudget>,
    /// Tables that were replaced while calls were still in them.
    retired: Lock<Vec<Arc<Table>>>,
    /// What the table was made of. One who replaces it at a time.
    options: Lock<Vec<ExportOptions>>,
    /// It looks at the directories.
    watch: OnceLock<Option<Task>>,
}

/// Exports that were found good, and are not served yet.
#[must_use = "they are served when they are applied"]
pub struct PreparedExports {
    exports: Exports,
    options: Vec<ExportOptions>,
    /// The table that they were compared with.
    before: Arc<Table>,
    table: Table,
    change: ExportChange,
}

flatpath::opaque_debug! {
    impl[] PreparedExports as "PreparedExports";
}

/// How exports have changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ExportChange {
    /// Exports that stay open: their handles are as good as before, for clients that have rights.
    pub kept: usize,
    /// Exports that are new.
    pub opened: usize,
    /// Exports that are gone: their handles are stale.
    pub closed: usize,
}

impl Exports {
    /// Opens one directory, which is also named `/`.
    pub(crate) fn single(common: Common, export: ExportOptions) -> io::Result<Exports> {
        Exports::open(common, vec![export], Naming::Single)
    }

    /// Opens several, under their paths.
    pub(crate) fn several(common: Common, exports: Vec<ExportOptions>) -> io::Result<Exports> {
        Exports::open(common, exports, Naming::Paths)
    }

    fn open(common: Common, exports: Vec<ExportOptions>, naming: Naming) -> io::Result<Exports> {
        let table = Table::load(&common, exports.clone(), naming, &[])?;
        Ok(Exports(Arc::new(Shared {
            table: ArcSwap::from_pointee(table),
            common,
            budget: OnceLock::new(),
            retired: Lock::default(),
            options: Lock::new(exports),
            watch: OnceLock::new(),
        })))
    }

    /// Loads other exports, without an effect on those that are served. May wait: for the look-up
    /// of names, and for directories.
    ///
    /// # Errors
    /// What cannot be exported, with its place.
    pub fn prepare(&self, exports: Vec<ExportOptions>) -> io::Result<PreparedExports> {
        let shared = &self.0;
        let current = shared.table.load_full();
        let loaded = exports.clone();
        let table = Table::load(&shared.common, loaded, current.naming, &current.entries)?;
        let is_kept = |entry: &&Entry| {
            let mut before = current.entries.iter();
            before.any(|known| Arc::ptr_eq(&known.state, &entry.state))
        };
        let kept = table.entries.iter().filter(is_kept).count();
        let change = ExportChange {
            kept,
            opened: table.entries.len() - kept,
            closed: current.entries.len() - kept,
        };
        Ok(PreparedExports {
            exports: self.clone(),
            options: exports,
            before: current,
            table,
            change,
        })
    }

    /// The same exports once more: their paths may lead to other directories by now, and the names
    /// of their hosts to other addresses.
    ///
    /// # Errors
    /// As [`Exports::prepare`].
    pub fn prepare_again(&self) -> io::Result<PreparedExports> {
        let options = self.0.options.lock().clone();
        self.prepare(options)
    }

    /// Whether clients may change files in any of them.
    pub fn is_writable(&self) -> bool {
        let table = self.table();
        table.entries.iter().any(|entry| entry.rules.is_writable())
    }

    /// Files and directories that are kept open for calls to come.
    pub(crate) fn files_open(&self) -> usize {
        let table = self.table();
        let open = table.entries.iter().map(|it| it.state.export.nodes.len());
        open.sum()
    }

    pub(crate) fn table(&self) -> Loaded<Arc<Table>> {
        self.0.table.load()
    }

    pub(crate) fn common(&self) -> &Common {
        &self.0.common
    }

    /// The server starts: counts descriptors in this budget, and looks at the directories from now
    /// on.
    pub(crate) fn begin(&self, budget: &DescriptorBudget) {
        let _ = self.0.budget.set(budget.clone());
        self.table().count_in(budget);
        self.0.watch.get_or_init(|| self.watch());
    }

    /// Before anything else has these exports.
    #[cfg(test)]
    pub(crate) fn change_common(&mut self, change: impl FnOnce(&mut Common)) {
        let shared = Arc::get_mut(&mut self.0).expect("nothing else has them");
        change(&mut shared.common);
    }

    /// The only export, as most tests have it.
    #[cfg(test)]
    pub(crate) fn only(&self) -> Arc<State> {
        let table = self.table();
        assert_eq!(table.entries.len(), 1);
        Arc::clone(&table.entries[0].state)
    }

    /// Puts another state in the place of the only one.
    #[cfg(test)]
    pub(crate) fn replace_only(&self, change: impl FnOnce(&State) -> State) {
        let current = self.0.table.load_full();
        let [entry] = &current.entries[..] else {
            panic!("one export");
        };
        self.0.table.store(Arc::new(Table {
            entries: vec![Entry {
                state: Arc::new(change(&entry.state)),
                rules: entry.rules.clone(),
                names: entry.names.clone(),
            }],
            naming: current.naming,
            list: current.list.clone(),
        }));
    }
}

impl PreparedExports {
    /// Serves them from now on; what they were before is served to calls that have begun. Waits for
    /// these for a few seconds, so that what is gone is closed.
    pub fn apply(self) -> ExportChange {
        let shared = Arc::clone(&self.exports.0);
        let options = shared.options.lock();
        self.apply_over(options)
    }

    /// The same, unless others have been applied since they were prepared.
    fn apply_unless_replaced(self) -> Option<ExportChange> {
        let shared = Arc::clone(&self.exports.0);
        let options = shared.options.lock();
        let is_current = Arc::ptr_eq(&self.before, &shared.table.load());
        is_current.then(|| self.apply_over(options))
    }

    fn apply_over(self, mut options: Guard<'_, Vec<ExportOptions>>) -> ExportChange {
        let shared = &self.exports.0;
        if let Some(budget) = shared.budget.get() {
            self.table.count_in(budget);
        }
        self.table.share_nodes();
        if let Some(groups) = &shared.common.groups {
            groups.forget();
        }
        let before = shared.table.swap(Arc::new(self.table));
        *options = self.options;
        drop(options);
        drop(self.before);
        shared.retire(before);
        self.change
    }
}

impl Shared {
    /// X2: a table is dropped by the thread that reloads, once no call has it.
    fn retire(&self, table: Arc<Table>) {
        let end = Instant::now() + RETIRE_TIME_MAX;
        let mut retired = self.retired.lock();
        retired.push(table);
        loop {
            let free = |table: &mut Arc<Table>| Arc::strong_count(table) == 1;
            let dropped: Vec<_> = retired.extract_if(.., free).collect();
            let is_done = retired.is_empty() || Instant::now() >= end;
            drop(retired);
            // Files are closed without the lock.
            drop(dropped);
            if is_done {
                return;
            }
            std::thread::sleep(RETIRE_PAUSE);
            retired = self.retired.lock();
        }
    }
}

impl Table {
    fn count_in(&self, budget: &DescriptorBudget) {
        for entry in &self.entries {
            entry.state.export.nodes.count_in(budget);
        }
    }

    /// Gives each export its part of the files that may be open.
    fn share_nodes(&self) {
        let count = self.entries.len();
        for entry in &self.entries {
            let export = &entry.state.export;
            let part = Export::nodes_affordable() / count;
            export.nodes.set_max(part.max(NODES_PER_EXPORT_MIN));
        }
    }

    /// The results of EXPORT.
    pub(crate) fn list(&self) -> &[u8] {
        &self.list
    }

    fn entry(&self, number: u32) -> Option<&Entry> {
        let mut entries = self.entries.iter();
        entries.find(|entry| entry.state.export.number == number)
    }

    /// The export of a call to NFS or MOUNT, whatever its client may do there.
    pub(crate) fn state(&self, call: &Call, arguments: Arguments<'_>) -> &State {
        if call.program == MOUNT.number {
            return self.pick_to_mount(call, arguments).state;
        }
        let mut reader = arguments.reader;
        let handle = read_handle(&mut reader).unwrap_or_default();
        let entry = self.claimed(handle).unwrap_or(&self.entries[0]);
        &entry.state
    }

    /// The export that a handle says it is of.
    fn claimed(&self, handle: &[u8]) -> Option<&Entry> {
        handle::claimed(handle).and_then(|number| self.entry(number))
    }

    /// The export of a call to NFS or MOUNT.
    pub(crate) fn pick_any(&self, call: &Call, arguments: Arguments<'_>) -> Picked<'_> {
        match call.program == MOUNT.number {
            true => self.pick_to_mount(call, arguments),
            false => self.pick(call, arguments),
        }
    }

    /// The export of a call to NFS: that of its first handle.
    fn pick(&self, call: &Call, arguments: Arguments<'_>) -> Picked<'_> {
        let mut reader = arguments.reader;
        let handle = read_handle(&mut reader).unwrap_or_default();
        let Some(entry) = self.claimed(handle) else {
            let made = self.entries[0].state.export.check(handle);
            return self.denied(made.err().unwrap_or(Status::Stale));
        };
        let mut picked = entry.picked(call, Status::Stale, Status::NotOwner);
        if picked.denied.is_none()
            && let Some(second) = procedures::second_handle(call.procedure, reader)
            && handle::claimed(second) != Some(entry.state.export.number)
        {
            picked.denied = Some(self.crossing(call, handle, second));
        }
        picked
    }

    /// The status of a call with handles of two exports.
    fn crossing(&self, call: &Call, first: &[u8], second: &[u8]) -> Status {
        let export = &self.entries[0].state.export;
        if let Err(status) = export.check(first).and_then(|()| export.check(second)) {
            return status;
        }
        let other = self.claimed(second);
        let denied = other.map(|it| it.picked(call, Status::Stale, Status::NotOwner).denied);
        match denied {
            Some(None) => Status::CrossDevice,
            Some(Some(denied)) => denied,
            None => Status::Stale,
        }
    }

    /// The export of a call to MOUNT. Only MNT is for one.
    fn pick_to_mount(&self, call: &Call, arguments: Arguments<'_>) -> Picked<'_> {
        let mut reader = arguments.reader;
        let path = match call.procedure {
            MNT => reader.opaque(MOUNT_PATH_BYTES_MAX).ok(),
            _ => None,
        };
        let Some(path) = path else {
            return self.served_first();
        };
        let mut best: Option<Picked<'_>> = None;
        for entry in &self.entries {
            let Some(components) = entry.leads_to(path, self.naming) else {
                continue;
            };
            let mut picked = entry.picked(call, Status::Access, Status::Access);
            picked.components = components;
            let rank = |it: &Picked<'_>| (it.denied.is_none(), it.components);
            if best.as_ref().is_none_or(|best| rank(best) < rank(&picked)) {
                best = Some(picked);
            }
        }
        best.unwrap_or_else(|| self.denied(Status::Access))
    }

    /// For a call that is answered without looking at an export.
    fn served_first(&self) -> Picked<'_> {
        Picked {
            state: &self.entries[0].state,
            rights: Rights::default(),
            denied: None,
            components: 0,
        }
    }

    fn denied(&self, status: Status) -> Picked<'_> {
        Picked {
            denied: Some(status),
            ..self.served_first()
        }
    }
}

impl Entry {
    /// This export with the rights of the call's client, or the status for one without any, or from
    /// a port that is too high.
    fn picked(&self, call: &Call, no_rule: Status, bad_port: Status) -> Picked<'_> {
        let rights = self.rules.find(call.peer.map(|peer| peer.ip()));
        let denied = match rights {
            None => Some(no_rule),
            Some(rights) if !rights.admits_port(call) => Some(bad_port),
            Some(rights) if !rights.admits_wire(call) => Some(Status::Access),
            Some(_) => None,
        };
        Picked {
            state: &self.state,
            rights: rights.copied().unwrap_or_default(),
            denied,
            components: 0,
        }
    }

    /// Whether a path leads into the export: the number of its components that name the export.
    fn leads_to(&self, path: &[u8], naming: Naming) -> Option<usize> {
        let leads = |name: &PathBuf| {
            let mut rest = components(path);
            let mut count = 0;
            for component in components(name.as_os_str().as_bytes()) {
                count += 1;
                if rest.next() != Some(component) {
                    return None;
                }
            }
            Some(count)
        };
        let longest = self.names.iter().filter_map(leads).max();
        longest.or_else(|| (naming == Naming::Single).then_some(0))
    }
}

/// The results of EXPORT (RFC 1813 section 5.2.5): each export with its clients, which are left out
/// where the list would be too long; then exports are, too.
fn list_of(entries: &[Entry]) -> Vec<u8> {
    let write = |count: usize, with_clients: bool| {
        let mut bytes = vec![0; EXPORT_LIST_BYTES_MAX];
        let mut writer = Writer::new(&mut bytes);
        for entry in &entries[..count] {
            writer.boolean(true);
            let name = entry.names.last().unwrap_or(&entry.state.directory);
            writer.opaque(name.as_os_str().as_bytes());
            for clients in entry.rules.names().iter().filter(|_| with_clients) {
                writer.boolean(true);
                writer.opaque(clients.as_bytes());
            }
            writer.boolean(false);
        }
        writer.boolean(false);
        let (written, fits) = (writer.written(), !writer.overflowed());
        bytes.truncate(written);
        fits.then_some(bytes)
    };
    if let Some(list) = write(entries.len(), true) {
        return list;
    }
    log::warn!("the list of exports is too long for MOUNT: it has no clients, and not all exports");
    let mut counts = (0..=entries.len()).rev();
    let shorter = counts.find_map(|count| write(count, false));
    shorter.unwrap_or_default()
}
