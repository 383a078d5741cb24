//! Which site each directory belongs to: that site decides which requests may have a file of it,
//! whatever path led to it, at every listener for HTTP.
//!
//! NFS asks nothing of its clients but their address, so an export that shows what a site protects
//! is only named, in a warning: the operator has said who its clients are.

use std::path::{Path, PathBuf};

use flatpath::WorkerScope;
use flatpath_files::{Gate, Listing, Owner};
use flatpath_http::{Request, Response};
use flatpath_layers::AccessHandle;

use crate::access::Accesses;
use crate::bounded_file;
use crate::config::Configuration;
use crate::directories;
use crate::failure::Failure;
use crate::listener::Listener;
use crate::nfs_exports;
use crate::settings::{ListenerProtocol, Settings, is_on};
use crate::sites::{self, Served};

/// The directories of all sites.
#[derive(Clone, Debug, Default)]
pub(crate) struct SiteOwners(Vec<SiteOwner>);

#[derive(Clone, Debug)]
struct SiteOwner {
    /// The name of its listener, and its label there.
    at: (String, String),
    owner: Owner,
}

/// The rules of access of a site.
struct SiteGate(AccessHandle);

impl Gate for SiteGate {
    fn admit(
        &self,
        request: &mut Request,
        scope: &mut WorkerScope<'_>,
    ) -> Result<(), Box<Response>> {
        self.0.admit(request, scope)
    }

    fn charge(&self, request: &Request, response: Response) -> Response {
        self.0.charge(request, response)
    }
}

impl SiteOwners {
    /// Of the sites of these listeners, with the rules by which they are served.
    pub(crate) fn of(listeners: &[Listener], accesses: &mut Accesses) -> Result<Self, Failure> {
        let mut owners: Vec<SiteOwner> = Vec::new();
        for listener in listeners.iter().filter(|it| it.serves_over_http()) {
            for site in listener.directories() {
                let at = (listener.name(), site.label.clone());
                if owners.iter().any(|known| known.at == at) {
                    continue;
                }
                let own = (&*site.label, site.prefix);
                let handle = accesses.of(&listener.name(), own, &site.settings)?;
                let owner = owner(&site)?;
                let owner = match handle {
                    Some(handle) => owner.gate(SiteGate(handle)),
                    None => owner,
                };
                owners.push(SiteOwner { at, owner });
            }
        }
        Ok(Self(owners))
    }

    /// As a listener asks them: a directory that it has a site for itself is that site's.
    pub(crate) fn at(&self, listener: &Listener) -> Vec<Owner> {
        let name = listener.name();
        let is_here = |it: &&SiteOwner| it.at.0 == name;
        let here = self.0.iter().filter(is_here).map(|it| it.owner.clone());
        let others = self.0.iter().filter(|it| !is_here(it));
        let others = others.map(|it| it.owner.clone().giving_way());
        here.chain(others).collect()
    }
}

fn owner(site: &Served<'_>) -> Result<Owner, Failure> {
    let settings = &site.settings;
    let directory = sites::directory(settings);
    let owner = Owner::of(directory).map_err(|cause| sites::not_served(directory, &cause))?;
    let owner = owner.hidden(sites::hidden(settings)).rules(&site.rules);
    let owner = match directories::listing(settings) {
        Listing::Off => owner.unlisted(),
        _ => owner,
    };
    Ok(match is_on(settings.writable) {
        true => owner.writable(),
        false => owner,
    })
}

/// Which listeners have to be started again to ask sites that a reload has brought: those with a
/// directory of their own, which stay as they were.
pub(crate) fn unasked(before: &[Listener], after: &[Listener]) -> Vec<String> {
    let sites = |all: &[Listener]| -> Vec<(PathBuf, String)> {
        let tables = all.iter().filter(|it| !it.sites.is_empty());
        let served = tables.flat_map(Listener::directories);
        let named = served.filter(|it| !it.label.is_empty());
        let found = named.filter_map(|it| {
            let directory = bounded_file::canonical(sites::directory(&it.settings)).ok()?;
            Some((directory, it.label))
        });
        found.collect()
    };
    let known = sites(before);
    let mut new = sites(after);
    new.retain(|(directory, _)| !known.iter().any(|(known, _)| known == directory));
    new.dedup();
    let mut lines = Vec::new();
    let fixed = after
        .iter()
        .filter(|it| it.serves_over_http() && it.sites.is_empty())
        .filter(|it| it.settings.proxy.is_empty());
    for listener in fixed {
        let Ok(own) = bounded_file::canonical(sites::directory(&listener.settings)) else {
            continue;
        };
        let below = new
            .iter()
            .filter(|(it, _)| *it != own && it.starts_with(&own));
        let line =
            |(_, label): &(_, String)| format!("http {} asks [[site]] {label}", listener.name());
        lines.extend(below.map(line));
    }
    lines
}

/// A line for each export of NFS that shows what a site protects.
pub(crate) fn exposed(listeners: &[Listener], file: &Configuration) -> Vec<String> {
    let mut protected: Vec<(PathBuf, String)> = Vec::new();
    for listener in listeners.iter().filter(|it| it.serves_over_http()) {
        for site in listener.directories() {
            let rules = rules(&site.settings);
            let directory = bounded_file::canonical(sites::directory(&site.settings));
            if let (Ok(directory), false) = (directory, rules.is_empty()) {
                let of = match site.label.trim() {
                    "" => "HTTP".to_owned(),
                    label => format!("[[site]] {label}"),
                };
                protected.push((directory, format!("{of} protects with {rules}")));
            }
        }
    }
    let mut lines = Vec::new();
    for listener in listeners {
        if listener.protocol != ListenerProtocol::Nfs {
            continue;
        }
        for export in nfs_exports::directories(&listener.settings, file) {
            let Ok(directory) = bounded_file::canonical(&export) else {
                continue;
            };
            for (inner, words) in &protected {
                let is_shown = inner.starts_with(&directory) || directory.starts_with(inner);
                let line = is_shown.then(|| line(&export, inner, words));
                lines.extend(line.filter(|line| !lines.contains(line)));
            }
        }
    }
    lines
}

fn line(export: &Path, inner: &Path, words: &str) -> String {
    format!(
        "nfs: clients of the export {} read {} without what {words}: NFS asks for no password",
        export.display(),
        inner.display()
    )
}

/// The access rules, by their names.
fn rules(settings: &Settings) -> String {
    let all = [
        ("auth-file", settings.auth_file.is_some()),
        ("allow", !settings.allow.is_empty()),
        ("deny", !settings.deny.is_empty()),
    ];
    let set = all.into_iter().filter(|(_, is_set)| *is_set);
    set.map(|(name, _)| name).collect::<Vec<_>>().join(", ")
}
