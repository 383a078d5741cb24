//! SIGHUP: reads certificates and the configuration file again, and takes over what can change
//! without a restart.
//!
//! Exports of NFS are loaded again, too, those of `--nfs-exports FILE` and DIR also without a
//! configuration file. Clients that keep their right keep their handles, unless another directory
//! has the path of theirs. The paths of directories that HTTP serves are looked at at once.
//!
//! Taken over is what [is reloaded](Setting::is_reloaded): deadlines, times of the drain, the
//! bounds of addresses and listeners, access rules, `slow` and `log`; and the tables of sites
//! with their rules, at listeners that were started with some ([`live`]). Of everything else that
//! has changed since the start there is a line in the log each time, because only a restart brings
//! it. A file with a mistake changes nothing.
//!
//! On a thread of its own, which ends with the reload: the file may lie on a disk that does not
//! answer, and other signals do not wait. Signals that come before a reload begins are one reload.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use clap::ArgMatches;
use flatpath::lock::Lock;
use flatpath::{Handle, Limits, ListenerLimits, ServerState};
use flatpath_admin::Admin;
use flatpath_nfs::PreparedExports;

use crate::access::Accesses;
use crate::bounded_file;
use crate::config::site::SiteTable;
use crate::config::{Configuration, Entry, ListenerTable};
use crate::effect;
use crate::failure::Failure;
use crate::listener::Listener;
use crate::listeners;
use crate::live::{self, Live};
use crate::logging;
use crate::memory::Parts;
use crate::nfs_exports::{self, Served};
use crate::owners::{self, SiteOwners};
use crate::roots::Roots;
use crate::serve::demands;
use crate::service_manager::ServiceManager;
use crate::settings::{Part, SETTINGS, Setting, Settings};
use crate::slow::SlowWatch;
use crate::tls::Certificates;

/// How long the drain of the server may take by now. Clones are the same.
#[derive(Clone, Debug)]
pub(crate) struct DrainTimes(Arc<Lock<(Duration, Duration)>>);

impl DrainTimes {
    pub(crate) fn new(limits: &Limits) -> DrainTimes {
        let times = (limits.drain_delay, limits.drain_timeout);
        DrainTimes(Arc::new(Lock::new(times)))
    }

    /// The thread to ask for it, with the delay.
    pub(crate) fn whole(&self) -> impl Fn() -> Duration + Send + use<> {
        let times = self.clone();
        move || {
            let (delay, timeout) = *times.0.lock();
            delay.saturating_add(timeout)
        }
    }

    /// The same without the delay.
    pub(crate) fn timeout(&self) -> impl Fn() -> Duration + Send + use<> {
        let times = self.clone();
        move || times.0.lock().1
    }
}

/// What a reload has read and opened, and changes nothing yet.
struct Loaded {
    /// The file, if there is one, and the listeners that it names.
    file: Option<(Configuration, Vec<Listener>)>,
    exports: Vec<PreparedExports>,
    sites: Vec<live::Prepared>,
}

/// State that a reload needs and changes.
pub(crate) struct Reload {
    /// The configuration file, if there is one.
    pub(crate) path: Option<PathBuf>,
    /// The command line and the environment, which replace what the file says.
    pub(crate) matches: ArgMatches,
    /// The file that the server was started with.
    pub(crate) started: Configuration,
    /// The listeners that it was started with, those of tables last, with their limits by now.
    pub(crate) listeners: Vec<Listener>,
    pub(crate) server: Handle,
    pub(crate) drain_times: DrainTimes,
    pub(crate) slow: SlowWatch,
    pub(crate) admin: Admin,
    pub(crate) certificates: Certificates,
    pub(crate) exports: Vec<Served>,
    pub(crate) accesses: Accesses,
    pub(crate) live: Vec<Live>,
    pub(crate) roots: Roots,
    /// As they were divided at the start.
    pub(crate) parts: Parts,
    pub(crate) manager: ServiceManager,
}

impl Reload {
    /// A function that asks for a reload, from any thread, without waiting. It calls `reopen` at
    /// once: log files are opened again whatever the configuration file says.
    pub(crate) fn on_signal(
        self,
        reopen: impl Fn() + Send + 'static,
    ) -> impl FnMut() + Send + 'static {
        let last = self.started.clone();
        let state = Arc::new(Lock::new((self, last)));
        let is_asked = Arc::new(AtomicBool::new(false));
        move || {
            reopen();
            for what in bounded_file::silent() {
                log::error!("reload: it waits for {what}, which does not answer");
            }
            // ORDER: AcqRel: a reload that was asked for before and has not begun reads what this
            // one would.
            if is_asked.swap(true, Ordering::AcqRel) {
                return;
            }
            let (state, begun) = (Arc::clone(&state), Arc::clone(&is_asked));
            let thread = thread::Builder::new().name("flatpath-reload".into());
            let started = thread.spawn(move || {
                // One after the other.
                let (reload, last) = &mut *state.lock();
                let _reading = bounded_file::begin("the reload of the configuration".into());
                // ORDER: AcqRel: see above.
                begun.swap(false, Ordering::AcqRel);
                reload.reload(last);
            });
            if let Err(cause) = started {
                // ORDER: Relaxed: nothing was begun.
                is_asked.store(false, Ordering::Relaxed);
                log::error!("reload: cannot start a thread: {cause}; nothing is changed");
            }
        }
    }

    fn reload(&mut self, last: &mut Configuration) {
        self.manager.reloading();
        // Whatever the configuration file says: they are good or wrong by themselves.
        self.certificates.reload();
        self.accesses.reload_passwords();
        flatpath_files::look_again();
        match self.load() {
            Ok(Loaded {
                file: None,
                exports,
                ..
            }) => {
                log::info!("reload: there is no --config FILE to read again");
                nfs_exports::apply(exports);
            }
            Ok(Loaded {
                file: Some((file, listeners)),
                exports,
                sites,
            }) => {
                for line in self.differences(last, &file) {
                    line.log();
                }
                let before = live::after(&self.listeners, &self.live, &[]);
                live::apply(&mut self.live, sites);
                let after = live::after(&self.listeners, &self.live, &[]);
                self.roots.set(&after);
                self.accesses.logs.keep(&logs_of(&after));
                for what in owners::unasked(&before, &after) {
                    Difference::pending(&what).log();
                }
                self.take(&file, &listeners);
                nfs_exports::apply(exports);
                *last = file;
                log::info!("reloaded");
            }
            Err(cause) => log::error!("reload: {cause}; nothing is changed"),
        }
        if self.server.state() == ServerState::Running {
            self.manager.ready("Serving");
        }
    }

    /// The file as it is now, and what is served by it.
    fn load(&mut self) -> Result<Loaded, Failure> {
        let file = self.read()?;
        let named = file.as_ref().map_or(&self.started, |(file, _)| file);
        let exports = nfs_exports::prepare(&self.exports, named)?;
        let sites = match &file {
            Some((_, listeners)) => self.prepare_sites(listeners)?,
            None => Vec::new(),
        };
        Ok(Loaded {
            file,
            exports,
            sites,
        })
    }

    fn prepare_sites(&mut self, listeners: &[Listener]) -> Result<Vec<live::Prepared>, Failure> {
        let changed = live::changed(&self.live, listeners);
        if changed.is_empty() {
            return Ok(Vec::new());
        }
        let settings = self.started.settings.clone().replaced_by(&self.matches);
        let after = live::after(&self.listeners, &self.live, &changed);
        let parts = self.parts.of_reload(&demands(&settings, &after))?;
        let owners = SiteOwners::of(&after, &mut self.accesses)?;
        live::prepare(&self.live, changed, &parts, &mut self.accesses, &owners)
    }

    /// The file as it is now with its listeners, found good as `serve` and `check` find it.
    fn read(&self) -> Result<Option<(Configuration, Vec<Listener>)>, Failure> {
        let Some(path) = &self.path else {
            return Ok(None);
        };
        let file = Configuration::from_settled(path)?;
        let settings = file.settings.clone().replaced_by(&self.matches);
        let listeners = listeners::named_in(&settings, &file)?;
        demands(&settings, &listeners).divide()?;
        listeners.iter().try_for_each(Listener::check)?;
        effect::warn(&listeners, &file);
        Ok(Some((file, listeners)))
    }

    fn take(&mut self, file: &Configuration, named: &[Listener]) {
        let settings = file.settings.clone().replaced_by(&self.matches);
        let first_table = self.listeners.len() - self.started.listeners.len();
        let tables = self.listeners[first_table..].iter_mut();
        for (listener, started) in tables.zip(&self.started.listeners) {
            if let Some(table) = same_listener(&file.listeners, started) {
                listener.limits = table.own.listener_limits();
            }
        }
        let limits = settings.limits();
        let of_listeners: Vec<ListenerLimits> = self
            .listeners
            .iter()
            .flat_map(|it| it.addresses.iter().map(|_| it.limits.clone()))
            .collect();
        self.server.change_limits(&limits, &of_listeners);
        self.take_access(named);
        *self.drain_times.0.lock() = (limits.drain_delay, limits.drain_timeout);
        self.slow.set(settings.slow);
        self.admin.slow(settings.slow);
        logging::set_levels(settings.log.as_deref());
    }

    fn take_access(&mut self, named: &[Listener]) {
        let served = live::after(&self.listeners, &self.live, &[]);
        self.accesses.forget(&served, named);
        match self.accesses.renew(named) {
            Ok(sites) => {
                for site in sites {
                    let site = match &*site {
                        "" => "the directory".into(),
                        site => format!("[[site]] {site}"),
                    };
                    let what = format!("{site} has rules of access for the first time");
                    Difference::pending(&what).log();
                }
            }
            Err(cause) => log::error!("reload: {cause}; access rules are as before"),
        }
    }

    /// Warnings about a file that is about to be applied.
    fn differences(&self, last: &Configuration, file: &Configuration) -> Vec<Difference> {
        let name = self.path.as_deref().map(|path| path.display().to_string());
        let name = name.unwrap_or_default();
        let mut found = Vec::new();
        let files = [&self.started, last, file];
        let written = files.map(|it| (&it.settings, &it.entries[..]));
        compare(Part::AboveTables, written, |setting, change| {
            let what = setting.name();
            found.push(match change {
                _ if setting.is_given(&self.matches) => Difference::Note(format!(
                    "{what} changed in {name}, but the command line or the environment sets it"
                )),
                Change::To(value) => Difference::Note(format!("{what} is {value} now")),
                Change::Pending => Difference::pending(&format!("{what} changed in {name}")),
            });
        });
        for started in &self.started.listeners {
            let listener = words_of(started);
            let Some(table) = same_listener(&file.listeners, started) else {
                let gone = format!("{listener} is no longer in {name}");
                found.push(Difference::pending(&gone));
                continue;
            };
            let before = same_listener(&last.listeners, started).unwrap_or(started);
            let written = [started, before, table].map(|it| (&it.own, &it.entries[..]));
            compare(Part::Table, written, |setting, change| {
                let what = format!("{} of {listener}", setting.name());
                found.push(match change {
                    Change::To(value) => Difference::Note(format!("{what} is {value} now")),
                    Change::Pending => Difference::pending(&format!("{what} changed in {name}")),
                });
            });
        }
        if !self.exports.iter().any(Served::is_named) && !file.exports.is_empty() {
            found.push(Difference::pending(&format!("[[export]] is new in {name}")));
        }
        self.site_differences(last, file, &mut found);
        for table in &file.listeners {
            if same_listener(&self.started.listeners, table).is_none() {
                let new = format!("{} is new in {name}", words_of(table));
                found.push(Difference::pending(&new));
            }
        }
        found
    }
}

impl Reload {
    /// The same of the sites: a reload takes them over, unless there were none at the start, or are
    /// none now.
    fn site_differences(
        &self,
        last: &Configuration,
        file: &Configuration,
        found: &mut Vec<Difference>,
    ) {
        let name = self.path.as_deref().map(|path| path.display().to_string());
        let name = name.unwrap_or_default();
        if self.live.is_empty() || file.sites.is_empty() {
            for site in &file.sites {
                let new = format!("[[site]] {} is new in {name}", site.label());
                found.push(Difference::pending(&new));
            }
            if !self.live.is_empty() {
                let gone = format!("no [[site]] is left in {name}");
                found.push(Difference::pending(&gone));
            }
            return;
        }
        let of = |sites: &[SiteTable], wanted: &SiteTable| {
            sites.iter().position(|it| it.label() == wanted.label())
        };
        let mut note = |words: String| found.push(Difference::Note(words));
        for gone in last.sites.iter().filter(|it| of(&file.sites, it).is_none()) {
            note(format!("[[site]] {} is no longer served", gone.label()));
        }
        for now in &file.sites {
            let site = format!("[[site]] {}", now.label());
            let Some(before) = of(&last.sites, now).map(|at| &last.sites[at]) else {
                note(format!("{site} is served now"));
                continue;
            };
            if before.rules != now.rules {
                note(format!("the rules of {site} are new"));
            }
            let written = [before, before, now].map(|it| (&it.own, &it.entries[..]));
            compare(Part::Site, written, |setting, change| {
                if let Change::To(value) = change {
                    note(format!("{} of {site} is {value} now", setting.name()));
                }
            });
        }
    }
}

/// The access logs of all sites.
fn logs_of(listeners: &[Listener]) -> HashSet<PathBuf> {
    let over_http = listeners.iter().filter(|it| it.serves_over_http());
    let served = over_http.flat_map(Listener::served);
    served.filter_map(|it| it.settings.access_log).collect()
}

/// A line for the log.
#[derive(Debug, PartialEq, Eq)]
enum Difference {
    Note(String),
    Pending(String),
}

impl Difference {
    fn pending(what: &str) -> Difference {
        Difference::Pending(format!("{what}: takes effect at the next restart"))
    }

    fn log(&self) {
        match self {
            Difference::Note(words) => log::info!("{words}"),
            Difference::Pending(words) => log::warn!("{words}"),
        }
    }
}

/// The effect of a setting that has changed.
enum Change {
    /// A reload takes it over: its value.
    To(String),
    /// A restart does.
    Pending,
}

/// Compares what was written at the start, at the last reload and at this one.
fn compare(
    part: Part,
    [started, last, now]: [(&Settings, &[Entry]); 3],
    mut visit: impl FnMut(&Setting, Change),
) {
    for setting in SETTINGS.iter() {
        let is_reloaded = setting.is_reloaded(part);
        let (before, _) = if is_reloaded { last } else { started };
        if setting.is_same(before, now.0) {
            continue;
        }
        let value = now.1.iter().rfind(|entry| entry.setting == setting);
        let value = value.map_or("at its default".into(), |entry| entry.value.clone());
        visit(
            setting,
            match is_reloaded {
                true => Change::To(value),
                false => Change::Pending,
            },
        );
    }
}

/// The table of a listener: that with its protocol and addresses.
fn same_listener<'a>(
    tables: &'a [ListenerTable],
    wanted: &ListenerTable,
) -> Option<&'a ListenerTable> {
    let is_same =
        |it: &&ListenerTable| it.protocol == wanted.protocol && it.addresses == wanted.addresses;
    tables.iter().find(is_same)
}

fn words_of(table: &ListenerTable) -> String {
    let addresses = table.addresses.iter().map(ToString::to_string);
    let addresses: Vec<String> = addresses.collect();
    format!(
        "[[listener]] {} {}",
        table.protocol.name(),
        addresses.join(", ")
    )
}
