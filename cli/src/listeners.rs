//! The listeners of `flatpath serve`: what each speaks, with its settings, as part of the server.
//!
//! Flags, and what stands above the tables of the file, name listeners that share their settings;
//! each table of the file is one with settings of its own.

use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use flatpath::Server;
use flatpath::sockets::ListenAddress;
use flatpath_cli_protocols::Spoken;
use flatpath_http::{ForwardedHeader, Hosts, Http, LiveSites, Origins};
use flatpath_nfs::{Nfs, Offer};

use crate::access;
use crate::config::Configuration;
use crate::failure::Failure;
use crate::hosts;
use crate::listener::Listener;
use crate::live::{Answers, Live};
use crate::memory::Parts;
use crate::nfs_exports::{self, Served, Source};
use crate::service_metrics::SharedMounts;
use crate::services::{Number, Services};
use crate::settings::{self, ListenerProtocol, Settings, is_on};
use crate::tls::{self, Secured};
use crate::{ingest, nfs, portmapper, proxied, reach, sites};

/// Where HTTP is served when nothing else is named.
static HTTP_DEFAULT: [ListenAddress; 1] = [ListenAddress::Internet(SocketAddr::new(
    IpAddr::V4(Ipv4Addr::LOCALHOST),
    8080,
))];

/// All listeners of these settings and the tables of a file.
///
/// # Errors
/// An address is named twice; a directory is named for nothing; two listeners are to be registered;
/// a directory and a site are both for all hosts; values of a list exclude each other.
pub(crate) fn of(settings: &Settings, file: &Configuration) -> Result<Vec<Listener>, Failure> {
    if let Some(why) = settings.conflict() {
        return Err(Failure::WrongUse(why));
    }
    let mut listeners = flat(settings)?;
    for table in &file.listeners {
        listeners.push(Listener {
            protocol: table.protocol,
            addresses: table.addresses.clone(),
            settings: table.over(settings),
            limits: table.own.listener_limits(),
            sites: Vec::new(),
            is_table: true,
            tls: match table.protocol {
                ListenerProtocol::Nfs => nfs::secured(&table.own, Secured::of(&table.own)?)?,
                _ => Secured::of(&table.own)?,
            },
            redirects: false,
        });
    }
    if listeners.is_empty() {
        listeners.push(Listener::flat(
            ListenerProtocol::Http,
            &HTTP_DEFAULT,
            settings,
        ));
    }
    if let Some(dir) = &settings.dir
        && !listeners.iter().any(Listener::serves_files)
    {
        return Err(Failure::WrongUse(format!(
            "{} would be served over HTTP, but only --echo, --relay or --ingest names a listener: \
             add --http ADDR, or leave DIR out",
            dir.display()
        )));
    }
    add_sites(&mut listeners, settings, file)?;
    reach::check(&listeners)?;
    portmapper::check(settings, &listeners)?;
    let mut taken = HashSet::new();
    let portmappers = listeners.iter().flat_map(Listener::portmappers);
    let portmappers = portmappers.map(|it| ListenAddress::from(*it));
    let addresses = listeners.iter().flat_map(|it| it.addresses.iter().cloned());
    for address in addresses.chain(portmappers) {
        let is_any = address.internet().is_some_and(|it| it.port() == 0);
        if !is_any && !taken.insert(address.clone()) {
            let why = format!("two listeners have the address {address}");
            return Err(Failure::WrongUse(why));
        }
    }
    let registers =
        |it: &&Listener| it.protocol == ListenerProtocol::Nfs && is_on(it.settings.nfs_register);
    if listeners.iter().filter(registers).count() > 1 {
        let why = "rpcbind knows one NFS server: set nfs-register for one listener";
        return Err(Failure::WrongUse(why.into()));
    }
    Ok(listeners)
}

/// The sites of the file are at each listener for HTTP without a directory or a proxy of its own.
fn add_sites(
    listeners: &mut [Listener],
    settings: &Settings,
    file: &Configuration,
) -> Result<(), Failure> {
    if file.sites.is_empty() {
        return Ok(());
    }
    sites::check_default(settings, &file.sites)?;
    let has_own = |listener: &Listener| {
        let table = file.listeners.iter();
        let mut table = table.filter(|it| it.addresses == listener.addresses);
        listener.is_table && table.any(|it| it.own.dir.is_some() || !it.own.proxy.is_empty())
    };
    let mut count = 0;
    let is_http = |it: &&mut Listener| it.protocol == ListenerProtocol::Http;
    for listener in listeners.iter_mut().filter(is_http) {
        if !has_own(listener) {
            listener.sites.clone_from(&file.sites);
            count += usize::from(listener.serves_over_http());
        }
    }
    match count {
        0 => Err(Failure::WrongUse(
            "no listener serves the [[site]] tables: name one with http = ADDR or https = ADDR, \
             or a [[listener]] for http without dir and proxy"
                .into(),
        )),
        _ => Ok(()),
    }
}

/// The same of a file with these settings above its tables, and its exports of NFS found good.
///
/// # Errors
/// As [`of`]; an export cannot be read, or is for nothing.
pub(crate) fn named_in(
    settings: &Settings,
    file: &Configuration,
) -> Result<Vec<Listener>, Failure> {
    let listeners = of(settings, file)?;
    nfs_exports::check(&listeners, file)?;
    Ok(listeners)
}

/// The listeners that flags name.
fn flat(settings: &Settings) -> Result<Vec<Listener>, Failure> {
    let secured = Secured::of(settings)?;
    let https = https(settings, secured.as_ref())?;
    let nfs_tls = match settings.nfs_tls {
        Some(_) => nfs::secured(settings, secured)?,
        None => None,
    };
    let redirects = is_on(settings.http_redirect);
    if redirects && (settings.http.is_empty() || https.is_none()) {
        return Err(Failure::WrongUse(
            "--http-redirect needs --http ADDR, which redirects, and --https ADDR, where to".into(),
        ));
    }
    let (nfs, ingest) = (settings.nfs.as_slice(), settings.ingest.as_slice());
    let named = [
        (ListenerProtocol::Http, settings.http.as_slice()),
        (ListenerProtocol::Nfs, nfs),
        (ListenerProtocol::Ingest, ingest),
        (ListenerProtocol::Echo, settings.echo.as_slice()),
        (ListenerProtocol::Relay, settings.relay.as_slice()),
    ];
    let named = named
        .into_iter()
        .filter(|(_, addresses)| !addresses.is_empty());
    let named = named.map(|(protocol, addresses)| Listener {
        redirects: redirects && protocol == ListenerProtocol::Http,
        tls: nfs_tls
            .clone()
            .filter(|_| protocol == ListenerProtocol::Nfs),
        ..Listener::flat(protocol, addresses, settings)
    });
    Ok(named.chain(https).collect())
}

/// The listeners with HTTPS that flags name.
fn https(settings: &Settings, secured: Option<&Secured>) -> Result<Option<Listener>, Failure> {
    let wrong = |why: &str| Err(Failure::WrongUse(why.into()));
    match (secured, settings.https.as_slice()) {
        (None, []) => Ok(None),
        (None, _) => wrong(
            "--https needs a certificate: name its file and that of its key with --tls-cert FILE \
             and --tls-key FILE, have an authority issue one with --acme NAME, or try it out with \
             --tls-self-signed",
        ),
        (Some(_), []) if settings.nfs_tls.is_some() => Ok(None),
        (Some(_), []) => wrong(
            "--tls-cert, --tls-key, --tls-self-signed and --acme are for --https ADDR or \
             --nfs-tls, which are not given; a [[listener]] of the file has its own",
        ),
        (Some(secured), addresses) => Ok(Some(Listener {
            tls: Some(secured.clone()),
            ..Listener::flat(ListenerProtocol::Http, addresses, settings)
        })),
    }
}

impl Listener {
    /// Whether its directory, if it has one, can be served.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        match self.protocol {
            ListenerProtocol::Http if self.redirects => Ok(()),
            ListenerProtocol::Http => self.served().iter().try_for_each(|site| {
                access::check(&site.settings)?;
                match site.has_directory() {
                    true => sites::open(&site.settings).map(drop),
                    false => proxied::proxy(&site.label, &site.settings).map(drop),
                }
            }),
            ListenerProtocol::Nfs => sites::open(&self.settings).map(drop),
            ListenerProtocol::Ingest => ingest::check(&self.settings),
            ListenerProtocol::Echo | ListenerProtocol::Relay => Ok(()),
        }
    }

    /// The server with this listener as well.
    pub(crate) fn add_to(
        &self,
        mut server: Server,
        parts: &Parts,
        services: &mut Services,
    ) -> Result<Server, Failure> {
        let settings = &self.settings;
        let relay = services.relay(settings);
        if self.protocol == ListenerProtocol::Relay {
            services.relays.push(relay.clone());
            let numbers = services.count..services.count + self.addresses.len();
            services.counting.relays.push((numbers, relay.clone()));
        }
        let secured = self.tls.as_ref();
        let tls = secured.map(|secured| services.certificates.add(secured));
        let tls = tls.transpose()?;
        for address in self.addresses.iter().cloned() {
            server = match self.protocol {
                ListenerProtocol::Http => self.add_http_to(server, address, parts, services)?,
                ListenerProtocol::Nfs => self.add_nfs_to(server, address, parts, services)?,
                ListenerProtocol::Ingest => {
                    let (ingest, control) = ingest::open(settings, &services.passed)?;
                    services.ingests.push(ingest.clone());
                    let numbers = services.count..services.count + 1;
                    services.counting.ingests.push((numbers, ingest.clone()));
                    services.controls.push(control);
                    Spoken::Ingest(ingest).at(server, address)
                }
                ListenerProtocol::Echo => Spoken::Echo.at(server, address),
                ListenerProtocol::Relay => Spoken::Relay(relay.clone()).at(server, address),
            };
            server = server.listener_limits(self.limits.clone());
            if !settings.proxy_from.is_empty() {
                server = server.behind_proxy(settings.proxy_from.iter().copied());
            }
            if let Some(tls) = &tls {
                server = tls::added_to(server, tls, self.protocol);
                services.secured.push(services.count);
                if !self.requires_tls() {
                    services.offers_tls.push(services.count);
                }
                if self.protocol == ListenerProtocol::Http {
                    services.redirect.get_or_insert(services.count);
                }
            }
            if self.serves_over_http() && self.is_writable() {
                services.writable.push(services.count);
            }
            services.count += 1;
        }
        Ok(portmapper::add_to(server, self, services))
    }

    fn add_nfs_to(
        &self,
        server: Server,
        address: ListenAddress,
        parts: &Parts,
        services: &mut Services,
    ) -> Result<Server, Failure> {
        if let ListenAddress::Unix(_) = address {
            let why = format!("nfs: no client mounts {address}; name a port");
            return Err(Failure::WrongUse(why));
        }
        let settings = &self.settings;
        let nfs = nfs::open(settings, &services.file, self.requires_tls())?;
        let exports = nfs.exports();
        if exports.is_writable() {
            services.writable.push(services.count);
        }
        let source = match nfs_exports::are_named(settings, &services.file) {
            true => Source::Named(settings.nfs_exports.clone()),
            false => Source::Directory,
        };
        services.exports.push(Served { exports, source });
        if is_on(settings.nfs_register) {
            services.registered = Some(services.count);
        }
        let offered = portmapper::table_of(self, services);
        let protocol = nfs.offering(&offered).protocol();
        services.offer(Offer::Nfs, Number::Stream(services.count), offered);
        let protocol = protocol.bounded(parts.nfs_page_bytes, parts.nfs_replies);
        let numbers = services.count..services.count + 1;
        let counts = Nfs::call_counts(&protocol);
        services.counting.nfs.push((numbers, counts));
        let mount = (&address, &protocol);
        let server = portmapper::add_mount_to(server, self, mount, services);
        Ok(Spoken::Nfs(protocol).at(server, address))
    }

    fn add_http_to(
        &self,
        server: Server,
        address: ListenAddress,
        parts: &Parts,
        services: &mut Services,
    ) -> Result<Server, Failure> {
        let is_exposed = hosts::is_exposed(self, &address, &services.passed);
        let hosts = hosts::of(self, is_exposed);
        if self.redirects && self.sites.is_empty() {
            let sites = sites::redirecting_all(&services.redirected)?;
            let http = Http::service(sites).hosts(hosts);
            let http = self.answering(http, services);
            return Ok(Spoken::Sites(http).at(server, address));
        }
        if self.redirects {
            let redirect = services.redirected.clone();
            let sites = LiveSites::new(sites::redirecting(self, &redirect)?, hosts);
            services.live.push(Live {
                listener: self.clone(),
                is_exposed,
                handle: sites.handle(),
                answers: Answers::Redirects(redirect),
            });
            let http = self.answering(Http::service(sites), services);
            return Ok(Spoken::LiveSites(http).at(server, address));
        }
        let (service, mounts) =
            sites::service(self, parts, &mut services.accesses, &services.owners)?;
        let mounts = SharedMounts::new(mounts);
        let numbers = services.count..services.count + 1;
        services.counting.mounts.push((numbers, mounts.clone()));
        let spoken = match service {
            sites::Service::Files(files) => {
                Spoken::Files(self.answering(self.http(*files, hosts), services))
            }
            sites::Service::Sites(sites) if self.sites.is_empty() => {
                Spoken::Sites(self.answering(self.http(sites, hosts), services))
            }
            sites::Service::Sites(sites) => {
                let sites = LiveSites::new(sites, hosts);
                services.live.push(Live {
                    listener: self.clone(),
                    is_exposed,
                    handle: sites.handle(),
                    answers: Answers::Files(mounts),
                });
                // They have their hosts themselves, as these change with them.
                Spoken::LiveSites(self.answering(self.http(sites, Hosts::any()), services))
            }
        };
        Ok(spoken.at(server, address))
    }

    /// It answers the challenges of an authority, too, if there is one and they come in the clear.
    fn answering<S>(&self, http: Http<S>, services: &Services) -> Http<S> {
        match services.certificates.http_challenges() {
            Some(challenges) if self.tls.is_none() && !self.settings.acme.is_empty() => {
                http.challenges(challenges)
            }
            _ => http,
        }
    }

    /// A service at this listener.
    fn http<S: flatpath_http::Service>(&self, service: S, hosts: Hosts) -> Http<S> {
        let settings = &self.settings;
        let origins = Origins::own().and(settings.allow_origin.iter().cloned());
        let http = Http::service(service).hosts(hosts).origins(origins);
        // Files have no WebSockets, and servers of a proxy take theirs over HTTP/1.1.
        #[cfg(feature = "http2")]
        let http = http.without_tunnels();
        if settings.forwarded_from.is_empty() {
            return http;
        }
        let header = match settings.forwarded_header {
            Some(settings::ForwardedHeader::Forwarded) => ForwardedHeader::Forwarded,
            None | Some(settings::ForwardedHeader::XForwardedFor) => ForwardedHeader::XForwardedFor,
        };
        http.behind_proxies(header, settings.forwarded_from.iter().copied())
    }
}
