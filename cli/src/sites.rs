//! What a listener for HTTP serves: one directory, or several sites, each with a directory or with
//! servers that are asked.
//!
//! The sites of the file are at every listener that has no directory in its own table. A directory
//! that stands above the tables, or on the command line, is there for all hosts that no site has.

use std::path::Path;

use flatpath::ListenerLimits;
use flatpath_files::limits::CACHE_ENTRIES_MAX;
use flatpath_files::{
    Durability, EntityTags, Files, Hidden, MountLimits, Owner, Rules, WriteOptions, Writing,
};
use flatpath_http::{HostPattern, InvalidSite, Origins, SiteTerms, Sites};
use flatpath_layers::{AccessHandle, Cors, Guard};

use crate::access::{self, Accesses};
use crate::bounded_file;
use crate::config::site::SiteTable;
use crate::cross_origin::{self, CrossOrigin};
use crate::directories;
use crate::failure::Failure;
use crate::listener::Listener;
use crate::memory::Parts;
use crate::owners::SiteOwners;
use crate::proxied;
use crate::redirect::Redirect;
use crate::settings::{Etag, Settings, is_on};

/// The default names of a site.
const ALL: &str = "*";

/// A site at a listener.
#[derive(Clone, Debug)]
pub(crate) struct Served<'a> {
    /// What tells it from the others of the listener.
    pub(crate) label: String,
    pub(crate) names: Vec<HostPattern>,
    pub(crate) prefix: &'a str,
    pub(crate) settings: Settings,
    pub(crate) rules: Rules,
    /// Deadlines of its own.
    pub(crate) limits: ListenerLimits,
}

impl Served<'_> {
    /// Whether it has a directory. Otherwise other servers are asked.
    pub(crate) fn has_directory(&self) -> bool {
        self.settings.proxy.is_empty()
    }
}

impl Listener {
    /// Those of its sites that have a directory.
    pub(crate) fn directories(&self) -> impl Iterator<Item = Served<'_>> {
        self.served().into_iter().filter(Served::has_directory)
    }

    /// The sites that it serves over HTTP, at least one.
    pub(crate) fn served<'a>(&'a self) -> Vec<Served<'a>> {
        let of_table = |site: &'a SiteTable| Served {
            label: site.label(),
            names: site.names.clone(),
            prefix: &site.prefix,
            settings: site.over(&self.settings),
            rules: site.rules.rules.clone(),
            limits: site.own.listener_limits(),
        };
        let mut served: Vec<_> = self.sites.iter().map(of_table).collect();
        if served.is_empty() || self.settings.dir.is_some() || !self.settings.proxy.is_empty() {
            served.push(Served {
                label: String::new(),
                names: vec![ALL.parse().expect("it is for every host")],
                prefix: "/",
                settings: self.settings.clone(),
                rules: Rules::new(),
                limits: ListenerLimits::default(),
            });
        }
        served
    }

    /// Whether its clients may change files, of any site.
    pub(crate) fn is_writable(&self) -> bool {
        self.directories().any(|it| is_on(it.settings.writable))
    }
}

/// A directory and a site that are both for all hosts.
///
/// # Errors
/// There are two.
pub(crate) fn check_default(settings: &Settings, sites: &[SiteTable]) -> Result<(), Failure> {
    let other = match (&settings.dir, settings.proxy.is_empty()) {
        (Some(dir), _) => dir.display().to_string(),
        (None, false) => "proxy".into(),
        (None, true) => return Ok(()),
    };
    match sites.iter().any(SiteTable::is_default) {
        true => Err(Failure::WrongUse(format!(
            "{other} and a [[site]] would both be for every host without a site: give the site \
             names, or leave {other} out"
        ))),
        false => Ok(()),
    }
}

/// What a listener answers with.
pub(crate) enum Service {
    /// The files of a directory, and nothing else.
    Files(Box<Files>),
    Sites(Sites),
}

/// The services of a listener, and what they count together.
pub(crate) fn service(
    listener: &Listener,
    parts: &Parts,
    accesses: &mut Accesses,
    owners: &SiteOwners,
) -> Result<(Service, MountLimits), Failure> {
    let served = listener.served();
    if let [one] = &served[..]
        && listener.sites.is_empty()
        && one.has_directory()
        && !access::is_limited(&one.settings)
        && one.settings.allow_origin.is_empty()
    {
        let files = beside(files(one, parts)?, one, &owners.at(listener))?;
        let mounts = files.mount_limits();
        return Ok((Service::Files(Box::new(files)), mounts));
    }
    let (sites, mounts) = all(listener, parts, accesses, owners)?;
    Ok((Service::Sites(sites), mounts))
}

/// All sites of a listener, each with its access rules, and what they count together.
pub(crate) fn all(
    listener: &Listener,
    parts: &Parts,
    accesses: &mut Accesses,
    owners: &SiteOwners,
) -> Result<(Sites, MountLimits), Failure> {
    let (mut sites, mut mounts) = (Sites::new(), MountLimits::default());
    let owners = owners.at(listener);
    for site in &listener.served() {
        let at = (&*site.label, site.prefix);
        let handle = accesses.of(&listener.name(), at, &site.settings)?;
        let added = if site.has_directory() {
            let files = beside(files(site, parts)?, site, &owners)?;
            mounts = mounts.and(files.mount_limits());
            with_files(sites, site, files, handle)
        } else {
            let proxy = proxied::proxy(&site.label, &site.settings)?;
            let (names, prefix) = (&site.names, site.prefix);
            match handle {
                Some(handle) => sites.add(names, prefix, Guard::with(proxy, &handle)),
                None => sites.add(names, prefix, proxy),
            }
        };
        sites = added.map_err(|why| Failure::WrongUse(why.to_string()))?;
        if let Some(terms) = terms(site, listener, accesses)? {
            sites = sites.terms(terms);
        }
    }
    Ok((sites, mounts))
}

/// The sites with this one, whose files are served by its rules of access.
fn with_files(
    sites: Sites,
    site: &Served<'_>,
    files: Files,
    handle: Option<AccessHandle>,
) -> Result<Sites, InvalidSite> {
    let origins = &site.settings.allow_origin;
    let cors = (!origins.is_empty()).then(|| cross_origin::policy(origins, &files));
    match handle {
        Some(handle) => {
            let changed = Guard::<Files>::REFUSALS.into_iter();
            let changed = changed.filter(|status| site.rules.changes_refusal(*status));
            let guarded = Guard::with(files, &handle);
            let guarded = guarded.refusals(changed, Files::with_error_page);
            add(sites, site, guarded, cors)
        }
        None => add(sites, site, files, cors),
    }
}

/// The sites with this one, for pages of other origins where they are allowed.
fn add(
    sites: Sites,
    site: &Served<'_>,
    service: impl flatpath_http::Service,
    cors: Option<Cors>,
) -> Result<Sites, InvalidSite> {
    let (names, prefix) = (&site.names, site.prefix);
    match cors {
        Some(cors) => sites.add(names, prefix, CrossOrigin::new(service, cors)),
        None => sites.add(names, prefix, service),
    }
}

/// What the protocol does otherwise for a site than for its listener, if anything.
fn terms(
    site: &Served<'_>,
    listener: &Listener,
    accesses: &Accesses,
) -> Result<Option<SiteTerms>, Failure> {
    let (own, of_listener) = (&site.settings, &listener.settings);
    let mut terms = SiteTerms::new().log(accesses.logs.number_of(own)?);
    if !site.has_directory() {
        // The servers that are asked know their own pages.
        terms = terms.origins(Origins::any());
    } else if own.allow_origin != of_listener.allow_origin {
        terms = terms.origins(Origins::own().and(own.allow_origin.iter().cloned()));
    }
    if site.limits != ListenerLimits::default() {
        terms = terms.timeouts(site.limits.clone());
    }
    Ok((terms != SiteTerms::new()).then_some(terms))
}

/// The hosts of all sites of a listener, each of which is redirected.
pub(crate) fn redirecting(listener: &Listener, redirect: &Redirect) -> Result<Sites, Failure> {
    let served = listener.served();
    let mut hosts: Vec<&HostPattern> = Vec::new();
    for host in served.iter().flat_map(|site| &site.names) {
        if !hosts.contains(&host) {
            hosts.push(host);
        }
    }
    let hosts: Vec<_> = hosts.into_iter().cloned().collect();
    redirecting_hosts(&hosts, redirect)
}

/// The same of a listener without sites: every host that it is for.
pub(crate) fn redirecting_all(redirect: &Redirect) -> Result<Sites, Failure> {
    redirecting_hosts(&[ALL.parse().expect("a pattern")], redirect)
}

fn redirecting_hosts(hosts: &[HostPattern], redirect: &Redirect) -> Result<Sites, Failure> {
    // Paths are looked at there.
    let sites = Sites::new().add(hosts, "/", redirect.clone());
    sites.map_err(|why| Failure::WrongUse(why.to_string()))
}

/// The directory that is served with these settings.
pub(crate) fn directory(settings: &Settings) -> &Path {
    settings.dir.as_deref().unwrap_or(Path::new("."))
}

pub(crate) fn open(settings: &Settings) -> Result<Files, Failure> {
    let dir = directory(settings);
    let _reading = bounded_file::begin(dir.display().to_string());
    Files::open(dir).map_err(|cause| not_served(dir, &cause))
}

pub(crate) fn not_served(dir: &Path, cause: &std::io::Error) -> Failure {
    let dir = dir.display();
    Failure::WrongUse(format!(
        "cannot serve directory {dir}: {cause}; name a readable directory"
    ))
}

/// The same files among the directories of all sites.
fn beside(files: Files, site: &Served<'_>, owners: &[Owner]) -> Result<Files, Failure> {
    let beside = files.beside(owners);
    beside.map_err(|cause| not_served(directory(&site.settings), &cause))
}

/// Whether names with a leading dot are served.
pub(crate) fn hidden(settings: &Settings) -> Hidden {
    match is_on(settings.hidden) {
        true => Hidden::Served,
        false => Hidden::Refused,
    }
}

/// A directory with its settings and rules.
pub(crate) fn files(site: &Served<'_>, parts: &Parts) -> Result<Files, Failure> {
    let settings = &site.settings;
    let rules = cross_origin::rules(&settings.allow_origin, site.rules.clone());
    let rules = rules.map_err(|why| Failure::WrongUse(why.to_string()))?;
    let files = open(settings)?.rules(rules);
    let files = files.cache(CACHE_ENTRIES_MAX, parts.cache_each);
    let files = match settings.stat_age {
        Some(age) => files.stat_age(age),
        None => files,
    };
    let files = files.entity_tags(match settings.etag {
        None | Some(Etag::Exact) => EntityTags::Exact,
        Some(Etag::Portable) => EntityTags::Portable,
    });
    let files = directories::with_settings(files, settings, parts);
    let files = files.writable(match is_on(settings.writable) {
        true => Writing::Allowed(write_options(settings)),
        false => Writing::Refused,
    });
    Ok(files.hidden(hidden(settings)))
}

fn write_options(settings: &Settings) -> WriteOptions {
    let usual = WriteOptions::default();
    WriteOptions {
        bytes_max: settings.put_max.unwrap_or(usual.bytes_max),
        durability: match is_on(settings.durable) {
            true => Durability::Disk,
            false => Durability::Kernel,
        },
        unfinished_max: settings.uploads_max.unwrap_or(usual.unfinished_max),
        unfinished_bytes_max: settings.uploads_bytes,
        expires: settings.upload_expires.unwrap_or(usual.expires),
    }
}
