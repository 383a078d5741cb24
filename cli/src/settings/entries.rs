//! The entries: a setting is added here, and nowhere else.
//!
//! Each is its help, its field, and a definition: the topic of the help, the name of its value and
//! its parser, then what else there is to know of it ([`Definition`]).

use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::LazyLock;
use std::time::Duration;

use clap::builder::{BoolValueParser, EnumValueParser, PathBufValueParser, TypedValueParser};
use clap::{Arg, ValueEnum};
use flatpath::sockets::ListenAddress;
use flatpath::{NetworkThreads, Subnet};
use flatpath_http::{HostPattern, OriginPattern, UpstreamServer};

use super::{
    Accept, Archive, ClientAuth, Compress, Definition, Driver, Etag, ForwardedHeader,
    ListenerProtocol, Listing, LogFormat, NfsTls, ProxyBalance, ProxyForwarded, Setting,
};
use crate::built;
use crate::logging::levels;
use crate::units::{
    ProxyHost, Rate, count, count_or_zero, delay, listen_address, network_threads,
    portmapper_address, proxy_host, rate, rate_of_bytes, size, time, tls_name, workers,
};

/// The topics of `serve --help`.
mod topic {
    pub(super) const LISTENERS: &str = "Listeners";
    pub(super) const HTTP: &str = "HTTP";
    pub(super) const TLS: &str = "TLS";
    pub(super) const NFS: &str = "NFS";
    pub(super) const RELAY: &str = "Relay";
    pub(super) const INGEST: &str = "Ingest";
    pub(super) const LIMITS: &str = "Limits";
    pub(super) const ENGINE: &str = "Engine";
}

// The listeners that look at a setting.
const ALL: &[ListenerProtocol] = ListenerProtocol::ALL;
const HTTP: &[ListenerProtocol] = &[ListenerProtocol::Http];
const NFS: &[ListenerProtocol] = &[ListenerProtocol::Nfs];
const FILES: &[ListenerProtocol] = &[ListenerProtocol::Http, ListenerProtocol::Nfs];
const RELAY: &[ListenerProtocol] = &[ListenerProtocol::Relay];
const INGEST: &[ListenerProtocol] = &[ListenerProtocol::Ingest];

/// A value without a name, in its place on the command line.
fn positional<P: TypedValueParser>(value: &'static str, parser: P) -> Definition<P> {
    Definition::new(Arg::new("").value_name(value), parser)
}

/// An option with a value, of this topic. A list may be repeated, or separated by commas.
fn option<P>(topic: &'static str, value: &'static str, parser: P) -> Definition<P>
where
    P: TypedValueParser,
{
    let argument = Arg::new("").help_heading(topic);
    Definition::new(argument.value_name(value), parser)
}

/// An option whose value, true or false, may be left out: then it is true.
fn switch(topic: &'static str) -> Definition<BoolValueParser> {
    let mut switch = option(topic, "BOOL", BoolValueParser::new());
    switch.argument = switch
        .argument
        .num_args(0..=1)
        .require_equals(true)
        .default_missing_value("true")
        .hide_possible_values(true);
    switch
}

fn path() -> PathBufValueParser {
    PathBufValueParser::new()
}

/// One of a few words.
fn word<E: ValueEnum + Clone + Send + Sync + 'static>() -> EnumValueParser<E> {
    EnumValueParser::new()
}

settings! {
    /// The directory to serve [default: the current one]
    dir: Option<PathBuf> = positional("DIR", path()).of(FILES).of_sites();

    /// Serve DIR over HTTP at this address; may be repeated. Port 0 picks a free one
    /// [default: 127.0.0.1:8080 unless listeners are named]
    // Other servers' names for it are understood, too.
    http: Vec<ListenAddress> = option(topic::LISTENERS, "ADDR", listen_address)
        .known_as("port", 'p');

    /// Serve DIR over HTTPS at this address, with the certificates of --tls-cert; may be repeated.
    /// Port 0 picks a free one
    https: Vec<ListenAddress> = option(topic::LISTENERS, "ADDR", listen_address)
        .built_with(built::TLS);

    /// Show metrics and health checks at this address: /metrics, /healthz, /readyz.
    /// There is no access control, so choose one that only operators reach [default: off]
    admin: Option<ListenAddress> = option(topic::LISTENERS, "ADDR", listen_address);

    /// Serve files and directories whose names begin with a dot
    hidden: Option<bool> = switch(topic::HTTP).of(HTTP).of_sites();

    /// What a directory without index.html gets: a page with its entries, or JSON for clients that
    /// want it; JSON alone; or nothing (404) [default: on]
    listing: Option<Listing> = option(topic::HTTP, "HOW", word())
        .advanced()
        .of(HTTP)
        .of_sites();

    /// Let clients download a directory, with all that is below it, as an archive of these formats,
    /// where it has a listing; may be repeated [default: none]
    archive: Vec<Archive> = option(topic::HTTP, "FORMAT", word().try_map(built::archive))
        .advanced()
        .of(HTTP)
        .of_sites();

    /// Compress files while they are served, with these codings: zstd, br or gzip, the best first;
    /// or off. Files that were compressed before (.br, .gz) are sent in any case [default: off]
    compress: Vec<Compress> = option(topic::HTTP, "CODING", word().try_map(built::coding))
        .advanced()
        .alone("off", |it| *it == Compress::Off)
        .of(HTTP)
        .of_sites();

    /// Answer requests for these hosts, such as files.example.org, *.example.org or * for all, and
    /// refuse others (421); localhost, addresses and this machine's name are always answered. Holds
    /// for --admin too, but for * [default: * ; on a loopback address without --proxy-from, none]
    hosts: Vec<HostPattern> = option(topic::HTTP, "NAME", str::parse::<HostPattern>)
        .of(HTTP)
        .in_sites("names");

    /// Let pages of these origins, SCHEME://HOST or SCHEME://HOST:PORT, or * for all, read answers
    /// (CORS) and send requests that write; others may not (403) [default: the server's own pages]
    allow_origin: Vec<OriginPattern> = option(topic::HTTP, "ORIGIN", str::parse::<OriginPattern>)
        .advanced()
        .of(HTTP)
        .of_sites();

    /// Ask servers, http(s)://ADDRESS:PORT or unix:/PATH, instead of DIR
    proxy: Vec<UpstreamServer> = option(topic::HTTP, "SERVER", str::parse::<UpstreamServer>)
        .of(HTTP)
        .of_sites();

    /// Which server of --proxy has a request [default: least-of-two]
    proxy_balance: Option<ProxyBalance> = option(topic::HTTP, "HOW", word())
        .advanced()
        .of(HTTP)
        .of_sites();

    /// The Host that a server of --proxy receives: the one that the client has named; its own
    /// address; or this name [default: client]
    proxy_host: Option<ProxyHost> = option(topic::HTTP, "client|server|NAME", proxy_host)
        .advanced()
        .of(HTTP)
        .of_sites();

    /// What Forwarded and X-Forwarded-* name to a server of --proxy [default: new]
    proxy_forwarded: Option<ProxyForwarded> = option(topic::HTTP, "HOW", word())
        .advanced()
        .of(HTTP)
        .of_sites();

    /// Ask a server of --proxy for the whole path, the prefix of the site included
    proxy_keep_prefix: Option<bool> = switch(topic::HTTP).advanced().of(HTTP).of_sites();

    /// Answer 504 when a server of --proxy says nothing for so long [default: 60s]
    proxy_timeout: Option<Duration> = option(topic::HTTP, "TIME", time)
        .advanced()
        .of(HTTP)
        .of_sites();

    /// Authority, in PEM, that servers of --proxy with https:// have their certificates of; may be
    /// repeated [default: those that the machine trusts]
    proxy_tls_ca: Vec<PathBuf> = option(topic::HTTP, "FILE", path())
        .built_with(built::TLS).advanced().of(HTTP).of_sites();

    /// The name that their certificates are for, and that they are asked for [default: the address]
    proxy_tls_name: Option<String> = option(topic::HTTP, "NAME", tls_name)
        .built_with(built::TLS).advanced().of(HTTP).of_sites();

    /// Certificate to show to them, in PEM, with --proxy-tls-key
    proxy_tls_cert: Option<PathBuf> = option(topic::HTTP, "FILE", path())
        .built_with(built::TLS).advanced().of(HTTP).of_sites();

    /// Its private key, in PEM, without a password
    proxy_tls_key: Option<PathBuf> = option(topic::HTTP, "FILE", path())
        .built_with(built::TLS).advanced().of(HTTP).of_sites();

    /// Trust HTTP proxies of this network, such as 10.0.0.0/8, to name the client of each request,
    /// for the access log; may be repeated. On a Unix socket, every peer is trusted
    forwarded_from: Vec<Subnet> = option(topic::HTTP, "CIDR", str::parse::<Subnet>)
        .advanced()
        .of(HTTP);

    /// The header that names it, which they must write or add to [default: x-forwarded-for]
    forwarded_header: Option<ForwardedHeader> = option(topic::HTTP, "HEADER", word())
        .advanced()
        .of(HTTP);

    /// Answer only clients of this network, such as 10.0.0.0/8, and those of others named so; may
    /// be repeated. Of networks that are allowed or denied the longest that has an address
    /// decides; other clients get 403 [default: all]
    allow: Vec<Subnet> = option(topic::HTTP, "CIDR", str::parse::<Subnet>)
        .advanced()
        .of(HTTP)
        .of_sites()
        .reloaded_everywhere();

    /// Refuse clients of this network (403), unless a longer one that they are in is allowed; may
    /// be repeated
    deny: Vec<Subnet> = option(topic::HTTP, "CIDR", str::parse::<Subnet>)
        .advanced()
        .of(HTTP)
        .of_sites()
        .reloaded_everywhere();

    /// Ask for a password of this file, as `htpasswd -B` makes it
    auth_file: Option<PathBuf> = option(topic::HTTP, "FILE", path())
        .built_with(built::PASSWORDS)
        .of(HTTP)
        .of_sites()
        .reloaded_everywhere();

    /// Most requests of one IPv4 address or IPv6 /64 in a time, such as 10/s, 600/m or 1000/1h, all
    /// of them at once if it likes; others get 429 [default: any number]
    rate: Option<Rate> = option(topic::HTTP, "N/TIME", rate)
        .advanced()
        .of(HTTP)
        .of_sites()
        .reloaded_everywhere();

    /// Most bytes of answers to one address in a time, such as 100M/m or 10G/1day: a request after
    /// them gets 429 [default: any number]
    rate_bytes: Option<Rate> = option(topic::HTTP, "SIZE/TIME", rate_of_bytes)
        .advanced()
        .of(HTTP)
        .of_sites()
        .reloaded_everywhere();

    /// Longest time to answer a small file from memory without checking it again, where a
    /// check may block: on another mount than DIR's own, or if DIR is on a network or user-space
    /// file system [default: 1s]
    stat_age: Option<Duration> = option(topic::HTTP, "TIME", time).advanced().of(HTTP).of_sites();

    /// What entity tags are made of: all that the kernel knows of a file's state, or size and
    /// modification time, as nginx has them, so that copies of a directory behind a balancer agree
    /// [default: exact]
    etag: Option<Etag> = option(topic::HTTP, "HOW", word())
        .advanced()
        .of(HTTP)
        .of_sites();

    /// Longest file that PUT creates, such as 10G [default: 1T]
    put_max: Option<u64> = option(topic::HTTP, "SIZE", size::<u64>)
        .advanced()
        .of(HTTP)
        .of_sites()
        .for_writing();

    /// Answer a PUT or a finished upload after syncing data and directory to the disk
    durable: Option<bool> = switch(topic::HTTP).advanced().of(HTTP).of_sites().for_writing();

    /// Most unfinished resumable uploads (tus) at once [default: 1024]
    uploads_max: Option<usize> = option(topic::HTTP, "N", count::<usize>)
        .advanced()
        .of(HTTP)
        .of_sites()
        .for_writing();

    /// Most bytes of all unfinished uploads together [default: half of the file system]
    uploads_bytes: Option<u64> = option(topic::HTTP, "SIZE", size::<u64>)
        .advanced()
        .of(HTTP)
        .of_sites()
        .for_writing();

    /// Time to keep an unfinished upload after its last byte [default: 1day]
    upload_expires: Option<Duration> = option(topic::HTTP, "TIME", time)
        .advanced()
        .of(HTTP)
        .of_sites()
        .for_writing();

    /// Accept a connection at once, not with its first bytes
    no_defer_accept: Option<bool> = switch(topic::HTTP).advanced();

    /// Certificate for --https and --nfs-tls, in PEM: first it, then those that lead from it to one
    /// that clients know; may be repeated, each with its --tls-key. A client gets the one with the
    /// name it asks for, else the first. Read again when the file changes, and on SIGHUP
    tls_cert: Vec<PathBuf> = option(topic::TLS, "FILE", path())
        .built_with(built::TLS)
        .of(ALL)
        .not_inherited();

    /// Its private key, in PEM, without a password
    tls_key: Vec<PathBuf> = option(topic::TLS, "FILE", path())
        .built_with(built::TLS)
        .of(ALL)
        .not_inherited();

    /// To try out TLS without a certificate: make one for localhost and this machine's name,
    /// which no client trusts unasked
    tls_self_signed: Option<bool> = switch(topic::TLS)
        .built_with(built::TLS)
        .of(ALL)
        .not_inherited();

    /// Authority, in PEM, whose certificates clients are to have; may be repeated, and a file may
    /// have several. Read again as --tls-cert is
    tls_client_ca: Vec<PathBuf> = option(topic::TLS, "FILE", path())
        .built_with(built::TLS)
        .advanced()
        .of(ALL)
        .not_inherited();

    /// What an authority has revoked, in PEM or DER; may be repeated. With it, each authority that
    /// leads to a client's certificate must have a list that is not outdated
    tls_client_crl: Vec<PathBuf> = option(topic::TLS, "FILE", path())
        .built_with(built::TLS)
        .advanced()
        .of(ALL)
        .not_inherited();

    /// Whether clients must have a certificate of --tls-client-ca [default: required]
    tls_client_auth: Option<ClientAuth> = option(topic::TLS, "HOW", word())
        .advanced()
        .of(ALL)
        .not_inherited();

    /// Key of session tickets, 80 random bytes (or 32, 48, 64), that several servers share: clients
    /// resume at any. May be repeated: the first seals, all open. Read again like --tls-cert
    tls_ticket_key: Vec<PathBuf> = option(topic::TLS, "FILE", path())
        .built_with(built::TLS)
        .advanced()
        .of(ALL)
        .not_inherited();

    /// How often to see whether certificates or keys have changed; 0 for never, then SIGHUP alone
    /// has them read again [default: 60]
    tls_reload_seconds: Option<u64> = option(topic::TLS, "N", count_or_zero::<u64>).advanced();

    /// Order a certificate of these names for --https of an ACME authority, and renew it
    /// (--acme-accept-terms, --acme-storage). It connects to port 443 or 80 of each
    acme: Vec<String> = option(topic::TLS, "NAME", str::parse::<String>)
        .built_with(built::ACME)
        .advanced();

    /// Agree to the authority's terms of service, without which it issues nothing. Read them first:
    /// the directory names their address, and Let's Encrypt's is letsencrypt.org/repository
    acme_accept_terms: Option<bool> = switch(topic::TLS)
        .built_with(built::ACME)
        .advanced();

    /// Directory for the account's key, certificates and their keys, which this user alone may
    /// read. Servers of the same names may share it, also through NFS: one of them orders
    acme_storage: Option<PathBuf> = option(topic::TLS, "DIR", path())
        .built_with(built::ACME)
        .advanced();

    /// Where the authority may write to, such as mailto:admin@example.org; may be repeated
    acme_contact: Vec<String> = option(topic::TLS, "URL", str::parse::<String>)
        .built_with(built::ACME)
        .advanced();

    /// The authority's directory (RFC 8555 section 7.1.1)
    /// [default: https://acme-v02.api.letsencrypt.org/directory]
    acme_directory: Option<String> = option(topic::TLS, "URL", str::parse::<String>)
        .built_with(built::ACME)
        .advanced();

    /// Authorities, in PEM, by which the directory's own HTTPS is verified
    /// [default: the machine's]
    acme_ca: Option<PathBuf> = option(topic::TLS, "FILE", path())
        .built_with(built::ACME)
        .advanced();

    /// Answer every request at --http with a redirect (308) to --https
    http_redirect: Option<bool> = switch(topic::TLS);

    /// Echo at this address: send back what is received; may be repeated
    echo: Vec<ListenAddress> = option(topic::LISTENERS, "ADDR", listen_address).advanced();

    /// Relay at this address: connect two clients that name the same token, by the protocol of the
    /// magic-wormhole transit relay; may be repeated
    relay: Vec<ListenAddress> = option(topic::LISTENERS, "ADDR", listen_address);

    /// Most clients that may wait for their partner, at most half of the connections
    /// [default: 50000]
    relay_waiting: Option<u32> = option(topic::RELAY, "N", count::<u32>).advanced().of(RELAY);

    /// Longest time to wait for a partner [default: 10m]
    relay_wait: Option<Duration> = option(topic::RELAY, "TIME", time)
        .advanced()
        .of(RELAY)
        .server_limit(|limits| &mut limits.wait_timeout)
        .listener_limit(|limits| &mut limits.wait_timeout);

    /// Longest time that a connected pair may send nothing [default: 1h]
    relay_idle: Option<Duration> = option(topic::RELAY, "TIME", time)
        .advanced()
        .of(RELAY)
        .server_limit(|limits| &mut limits.spliced_timeout)
        .listener_limit(|limits| &mut limits.spliced_timeout);

    /// Let clients change files: over HTTP by PUT, forms and uploads, with the rights of this
    /// process, and over NFS as the user that the client names
    writable: Option<bool> = switch(topic::LISTENERS).of(FILES).of_sites();

    /// Export DIR over NFSv3 at this address: mount with port= and mountport=. Port 0 picks a free
    /// one
    nfs: Option<ListenAddress> = option(topic::LISTENERS, "ADDR", listen_address);

    /// Export the directories of this file, in the format of /etc/exports, in place of DIR; may be
    /// repeated. Read again on SIGHUP
    nfs_exports: Vec<PathBuf> = option(topic::NFS, "FILE", path()).advanced().of(NFS);

    /// Take the groups of a caller from this machine's list of users, not those that a call names,
    /// which are sixteen at most
    manage_gids: Option<bool> = switch(topic::NFS).advanced().of(NFS);

    /// A client's root is root here, instead of the anonymous user
    no_root_squash: Option<bool> = switch(topic::NFS).advanced().of(NFS);

    /// Serve only clients of this network, such as 10.0.0.0/8; may be repeated [default: all]
    nfs_allow: Vec<Subnet> = option(topic::NFS, "CIDR", str::parse::<Subnet>).of(NFS);

    /// Serve only clients that come from a port below 1024
    nfs_secure_ports: Option<bool> = switch(topic::NFS).advanced().of(NFS);

    /// TLS for NFS (RFC 9289), with the certificates of --tls-cert: a client asks for it in its
    /// first call. With --tls-client-ca and `required`, only clients with a certificate are served
    /// [default: without TLS]
    nfs_tls: Option<NfsTls> = option(topic::NFS, "HOW", word())
        .built_with(built::TLS)
        .of(NFS)
        .not_inherited();

    /// Register with the rpcbind of this machine, for clients that ask it for the ports
    nfs_register: Option<bool> = switch(topic::NFS).advanced().of(NFS);

    /// Serve a portmapper (rpcbind versions 2 to 4) over TCP and UDP at this address, for clients
    /// that have no option for ports, and MOUNT over UDP; may be repeated. Without a port it is
    /// 111, where clients ask. Not beside rpcbind or --nfs-register
    nfs_portmapper: Vec<SocketAddr> = option(topic::NFS, "ADDR", portmapper_address)
        .advanced()
        .of(NFS)
        .not_inherited();

    /// Directory of the file handles' key, so that handles outlive the server; not below DIR
    /// [default: /var/lib/flatpath for root, else ~/.local/state/flatpath]
    nfs_state: Option<PathBuf> = option(topic::NFS, "DIR", path()).advanced().of(NFS);

    /// Ingest at this address: deliver length-prefixed messages to processes that attach at
    /// --ingest-socket. Port 0 picks a free one
    ingest: Option<ListenAddress> = option(topic::LISTENERS, "ADDR", listen_address);

    /// The Unix socket where consumers attach; only this user may open it
    ingest_socket: Option<PathBuf> = option(topic::INGEST, "PATH", path()).of(INGEST);

    /// Receive memory of each network thread, in addition to --memory; a power of two times
    /// the page [default: 256M]
    ingest_memory: Option<u64> = option(topic::INGEST, "SIZE", size::<u64>).advanced().of(INGEST);

    /// Size of a page; one receive fills at most one [default: 64K]
    ingest_page: Option<u32> = option(topic::INGEST, "SIZE", size::<u32>).advanced().of(INGEST);

    /// Most consumers at once, each with an equal share of the memory [default: 4]
    ingest_consumers: Option<u32> = option(topic::INGEST, "N", count::<u32>).advanced().of(INGEST);

    /// Longest message [default: what half a share holds, at most 16M]
    ingest_message: Option<u32> = option(topic::INGEST, "SIZE", size::<u32>).advanced().of(INGEST);

    /// Give every receive a page of its own. By default short messages share a page where
    /// the kernel supports it
    no_ingest_sharing: Option<bool> = switch(topic::INGEST).advanced().of(INGEST);

    /// Take the listening sockets of the server that waits at this path, have it drain once this
    /// one accepts, and wait there for the next: a restart that loses no connection
    handover: Option<PathBuf> = option(topic::ENGINE, "PATH", path());

    /// Network threads; auto chooses by the processors that this process may use: one for up to
    /// seven, then one for every four [default: auto]
    network_threads: Option<NetworkThreads> = option(topic::ENGINE, "N|auto", network_threads);

    /// Fewest and most worker threads [default: 2..128]
    workers: Option<RangeInclusive<u32>> = option(topic::ENGINE, "MIN..MAX", workers);

    /// Most workers that the requests of one listener may occupy at once; its other requests wait,
    /// so that a slow listener leaves workers to the rest [default: all; of several listeners each
    /// keeps its part of a quarter of the workers, so with two one may have 112 of 128]
    workers_per_listener: Option<u32> = option(topic::ENGINE, "N", count::<u32>)
        .advanced()
        .of(ALL)
        .bounding()
        .server_limit(|limits| &mut limits.workers_per_listener)
        .listener_limit(|limits| &mut limits.workers_max);

    /// Kernel interface; auto uses io_uring where it works, and otherwise epoll [default: auto]
    driver: Option<Driver> = option(topic::ENGINE, "DRIVER", word());

    /// One accept operation for all connections, or one for each [default: multishot]
    accept: Option<Accept> = option(topic::ENGINE, "HOW", word())
        .advanced();

    /// Write a line for each HTTP request, and for each connection of other protocols, to this
    /// file, or to standard output: `-`. SIGHUP opens the file again
    access_log: Option<PathBuf> = option(topic::LISTENERS, "PATH", path()).of_sites();

    /// How its lines look [default: combined]
    access_log_format: Option<LogFormat> = option(topic::LISTENERS, "FORMAT", word())
        .advanced();

    /// Load balancers of this network, such as 10.0.0.0/8, name each connection's client in a
    /// header of the PROXY protocol, version 1 or 2; may be repeated. With it, every listener
    /// refuses connections from elsewhere and those without the header; on a Unix socket, the
    /// socket's permissions decide who may connect
    proxy_from: Vec<Subnet> = option(topic::LISTENERS, "CIDR", str::parse::<Subnet>)
        .advanced()
        .of(ALL);

    /// Most connections at once [default: what the descriptor limit allows, at most 100000]
    max_connections: Option<usize> = option(topic::LIMITS, "N", count::<usize>)
        .of(ALL)
        .bounding()
        .listener_limit(|limits| &mut limits.connections_max);

    /// Most connections at once of one IPv4 address or IPv6 /64. At the limit, a new connection
    /// replaces the address's own longest idle one, or is refused; 0 for no limit [default: 0]
    connections_per_address: Option<usize> = option(topic::LIMITS, "N", count_or_zero::<usize>)
        .advanced()
        .server_limit(|limits| &mut limits.connections_per_address);

    /// Memory of the whole process, such as 256M: buffers, receive memory, caches, tables and
    /// threads, but not --ingest-memory nor the kernel's socket buffers. Without
    /// --max-connections, connections take at most an eighth [default: 256M]
    memory: Option<usize> = option(topic::LIMITS, "SIZE", size::<usize>);

    /// Longest time from accept, or from a request's first byte, to the end of its head
    /// [default: 30s]
    head_timeout: Option<Duration> = option(topic::LIMITS, "TIME", time)
        .advanced()
        .of(ALL)
        .server_limit(|limits| &mut limits.head_timeout)
        .listener_limit(|limits| &mut limits.head_timeout);

    /// Longest silence within a request's body, which must also bring 512 bytes a second on average
    /// [default: 60s]
    body_timeout: Option<Duration> = option(topic::LIMITS, "TIME", time)
        .advanced()
        .of(ALL)
        .server_limit(|limits| &mut limits.body_timeout)
        .listener_limit(|limits| &mut limits.body_timeout)
        .of_sites();

    /// Longest time between two requests of one connection [default: 75s]
    idle_timeout: Option<Duration> = option(topic::LIMITS, "TIME", time)
        .advanced()
        .of(ALL)
        .server_limit(|limits| &mut limits.idle_timeout)
        .listener_limit(|limits| &mut limits.idle_timeout)
        .of_sites();

    /// Longest time in which a client reads nothing of what is sent to it; ten times as long if its
    /// receive buffer is full and its TCP still answers [default: 60s]
    write_timeout: Option<Duration> = option(topic::LIMITS, "TIME", time)
        .advanced()
        .of(ALL)
        .server_limit(|limits| &mut limits.write_timeout)
        .listener_limit(|limits| &mut limits.write_timeout)
        .of_sites();

    /// Name handlers that run for longer than this in the log, and count them in the metrics,
    /// while they still run [default: off in the log, 1s in the metrics]
    slow: Option<Duration> = option(topic::LIMITS, "TIME", time).advanced().reloaded();

    /// How long to keep accepting after SIGTERM or SIGINT, so that balancers notice; meanwhile each
    /// reply says that it is the last of its connection [default: 0]
    drain_delay: Option<Duration> = option(topic::LIMITS, "TIME", delay)
        .advanced()
        .server_limit(|limits| &mut limits.drain_delay);

    /// Longest time that a drain leaves a connection without a request open: the request may be on
    /// its way [default: 500ms]
    drain_idle_timeout: Option<Duration> = option(topic::LIMITS, "TIME", time)
        .advanced()
        .server_limit(|limits| &mut limits.drain_idle_timeout);

    /// Longest time to finish requests in flight once the server drains [default: 30s]
    drain_timeout: Option<Duration> = option(topic::LIMITS, "TIME", time)
        .advanced()
        .server_limit(|limits| &mut limits.drain_timeout);

    /// What is logged to standard error: error, warn, info, debug, trace or off; TARGET=LEVEL for
    /// a part, such as warn,flatpath_http=debug [default: RUST_LOG, else info]
    log: Option<String> = option("Log", "LEVELS", levels).of_all_commands().reloaded();
}
