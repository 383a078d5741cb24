//! Sites that a reload replaces: those of each listener that was started with some.
//!
//! A table `[[site]]` is taken over as it is. What it inherits is as its listener was started, but
//! for the settings that a reload takes over above the tables.

use flatpath_files::MountLimits;
use flatpath_http::{Hosts, LiveSitesHandle, Sites};

use crate::access::Accesses;
use crate::failure::Failure;
use crate::hosts;
use crate::listener::Listener;
use crate::memory::Parts;
use crate::owners::SiteOwners;
use crate::redirect::Redirect;
use crate::service_metrics::SharedMounts;
use crate::settings::{Part, SETTINGS, Settings};
use crate::sites;

/// The sites at one address.
#[derive(Clone, Debug)]
pub(crate) struct Live {
    /// The listener as it was started, with its sites and their settings by now.
    pub(crate) listener: Listener,
    /// See [`hosts::of`].
    pub(crate) is_exposed: bool,
    pub(crate) handle: LiveSitesHandle,
    pub(crate) answers: Answers,
}

/// What the sites at an address answer with.
#[derive(Clone, Debug)]
pub(crate) enum Answers {
    /// Their files, which are on these mounts.
    Files(SharedMounts),
    /// The way to the listener with TLS.
    Redirects(Redirect),
}

/// Sites that can be served.
pub(crate) struct Prepared {
    /// The number of what they replace.
    number: usize,
    listener: Listener,
    sites: Sites,
    hosts: Hosts,
    mounts: Option<MountLimits>,
}

impl Live {
    /// The listener with the sites of a new file; `None` if the file has none for it.
    fn renewed(&self, listeners: &[Listener]) -> Option<Listener> {
        let mut listeners = listeners.iter();
        let new = listeners.find(|it| it.is_same(&self.listener) && !it.sites.is_empty())?;
        let part = match new.is_table {
            true => Part::Table,
            false => Part::AboveTables,
        };
        Some(Listener {
            sites: new.sites.clone(),
            settings: reloaded(&self.listener.settings, &new.settings, part),
            ..self.listener.clone()
        })
    }
}

/// These settings, with those of new ones that a reload takes over.
fn reloaded(settings: &Settings, new: &Settings, part: Part) -> Settings {
    let mut settings = settings.clone();
    for setting in SETTINGS.iter().filter(|it| it.is_reloaded(part)) {
        setting.assign(new, &mut settings);
    }
    settings
}

/// The listeners whose sites a new file changes, each with the number of what it replaces.
pub(crate) fn changed(all: &[Live], listeners: &[Listener]) -> Vec<(usize, Listener)> {
    let changed = all.iter().enumerate().filter_map(|(number, live)| {
        let (new, before) = (live.renewed(listeners)?, &live.listener);
        let is_same = new.sites == before.sites && new.settings == before.settings;
        (!is_same).then_some((number, new))
    });
    changed.collect()
}

/// All listeners of the server as they will be: of those that it was started with, these are
/// changed.
pub(crate) fn after(
    started: &[Listener],
    all: &[Live],
    changed: &[(usize, Listener)],
) -> Vec<Listener> {
    let by_now = |listener: &Listener| {
        let changed = changed.iter().map(|(_, new)| new);
        let mut by_now = changed.chain(all.iter().map(|live| &live.listener));
        let by_now = by_now.find(|it| it.is_same(listener));
        by_now.unwrap_or(listener).clone()
    };
    started.iter().map(by_now).collect()
}

/// Opens what changed sites serve.
///
/// # Errors
/// A directory or a file of passwords cannot be opened.
pub(crate) fn prepare(
    all: &[Live],
    changed: Vec<(usize, Listener)>,
    parts: &Parts,
    accesses: &mut Accesses,
    owners: &SiteOwners,
) -> Result<Vec<Prepared>, Failure> {
    let prepared = changed.into_iter().map(|(number, listener)| {
        let (sites, mounts) = match &all[number].answers {
            Answers::Files(_) => {
                let (sites, mounts) = sites::all(&listener, parts, accesses, owners)?;
                (sites, Some(mounts))
            }
            Answers::Redirects(redirect) => (sites::redirecting(&listener, redirect)?, None),
        };
        Ok(Prepared {
            number,
            hosts: hosts::of(&listener, all[number].is_exposed),
            listener,
            sites,
            mounts,
        })
    });
    prepared.collect()
}

/// Serves them.
pub(crate) fn apply(all: &mut [Live], prepared: Vec<Prepared>) {
    for new in prepared {
        let live = &mut all[new.number];
        if let (Answers::Files(mounts), Some(new)) = (&live.answers, new.mounts) {
            mounts.replace(new);
        }
        live.handle.replace(new.sites, new.hosts);
        live.listener = new.listener;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_reload_does_not_take_over_above_the_tables_stays_for_sites_too() {
        let started = Settings {
            hidden: Some(true),
            slow: None,
            auth_file: Some("users".into()),
            ..Settings::default()
        };
        let new = Settings {
            auth_file: None,
            allow: vec!["10.0.0.0/8".parse().expect("a network")],
            ..Settings::default()
        };
        let now = reloaded(&started, &new, Part::AboveTables);
        assert_eq!((now.hidden, &now.auth_file), (Some(true), &None));
        assert_eq!(now.allow, new.allow);
    }
}
