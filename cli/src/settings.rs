//! The settings of `serve`, once for the command line, the environment and the configuration file.
//!
//! The command line's parser reads the values of all three, so names, values and errors are the
//! same everywhere, and a misspelled limit is an error. A setting is its help, its name, its type
//! and how it is written; the macro makes the field and the argument of these. (Deriving them
//! would build six crates more.)

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{IntoResettable, ValueParser};
use clap::{Arg, ArgAction, ArgMatches, Command, ValueEnum, value_parser};
use flatpath::sockets::ListenAddress;
use flatpath::{NetworkThreads, Subnet};
use flatpath_http::{HostPattern, OriginPattern};

use crate::units::{count, delay, listen_address, network_threads, size, time, workers};

// The topics of `serve --help`.
const LISTENERS: &str = "Listeners";
const HTTP: &str = "HTTP";
const NFS: &str = "NFS";
const RELAY: &str = "Relay";
const INGEST: &str = "Ingest";
const LIMITS: &str = "Limits";
const ENGINE: &str = "Engine";

/// An option with a value, of this topic. A list may be repeated, or separated by commas.
fn option(
    topic: &'static str,
    value: &'static str,
    parser: impl IntoResettable<ValueParser>,
) -> Arg {
    let argument = Arg::new("").help_heading(topic);
    argument.value_name(value).value_parser(parser)
}

/// An option whose value, true or false, may be left out: then it is true.
fn switch(topic: &'static str) -> Arg {
    option(topic, "BOOL", value_parser!(bool))
        .num_args(0..=1)
        .require_equals(true)
        .default_missing_value("true")
        .hide_possible_values(true)
}

/// An option that `serve -h` leaves out, and `serve --help` has.
fn advanced(option: Arg) -> Arg {
    option.hide_short_help(true)
}

/// What a setting holds: nothing or one value, or a list.
trait Setting: Sized {
    fn shape(argument: Arg) -> Arg;

    /// What the matches have for it, if they name it.
    fn read(matches: &ArgMatches, name: &str) -> Option<Self>;
}

impl<T: Clone + Send + Sync + 'static> Setting for Option<T> {
    fn shape(argument: Arg) -> Arg {
        argument
    }

    fn read(matches: &ArgMatches, name: &str) -> Option<Self> {
        matches.get_one(name).cloned().map(Some)
    }
}

impl<T: Clone + Send + Sync + 'static> Setting for Vec<T> {
    fn shape(argument: Arg) -> Arg {
        argument.action(ArgAction::Append).value_delimiter(',')
    }

    fn read(matches: &ArgMatches, name: &str) -> Option<Self> {
        Some(matches.get_many(name)?.cloned().collect())
    }
}

macro_rules! settings {
    ($($(#[doc = $help:literal])+ $name:ident: $type:ty = $argument:expr;)+) => {
        /// The settings of `serve`; `None` or empty where neither place names one.
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub(crate) struct Settings {
            $($(#[doc = $help])+ pub(crate) $name: $type,)+
        }

        impl Settings {
            /// The command line with an argument for each.
            pub(crate) fn added_to(command: Command) -> Command {
                command.args([$({
                    let argument = named($argument, stringify!($name));
                    <$type>::shape(argument.help(concat!($($help),+).trim_start()))
                },)+])
            }

            /// Takes over those that a command line has.
            pub(crate) fn update(&mut self, matches: &ArgMatches) {
                $(if let Some(value) = <$type>::read(matches, stringify!($name)) {
                    self.$name = value;
                })+
            }
        }
    };
}

/// The argument with its identity, and its name with dashes; `DIR` has no name.
fn named(argument: Arg, name: &'static str) -> Arg {
    let argument = argument.id(name);
    match name {
        "dir" => argument,
        name => argument.long(name.replace('_', "-")),
    }
}

settings! {
    /// The directory to serve [default: the current one]
    dir: Option<PathBuf> = Arg::new("").value_name("DIR").value_parser(value_parser!(PathBuf));

    /// Serve DIR over HTTP at this address; may be repeated. Port 0 picks a free one
    /// [default: 127.0.0.1:8080 unless listeners are named]
    // Other servers' names for it are understood, too.
    http: Vec<ListenAddress> = option(LISTENERS, "ADDR", listen_address)
        .alias("port")
        .short_alias('p');

    /// Show metrics and health checks at this address: /metrics, /healthz, /readyz.
    /// There is no access control, so choose one that only operators reach [default: off]
    admin: Option<ListenAddress> = option(LISTENERS, "ADDR", listen_address);

    /// Serve files and directories whose names begin with a dot
    hidden: Option<bool> = switch(HTTP);

    /// Answer requests for these hosts, such as files.example.org, *.example.org or * for all, and
    /// refuse others (421); localhost, addresses and this machine's name are always answered. Holds
    /// for --admin too, but for * [default: * ; on a loopback address without --proxy-from, none]
    hosts: Vec<HostPattern> = option(HTTP, "NAME", value_parser!(HostPattern));

    /// Let pages of these origins, SCHEME://HOST or SCHEME://HOST:PORT, or * for all, send requests
    /// that write. Those of other sites are refused (403) [default: the server's own pages]
    allow_origin: Vec<OriginPattern> =
        advanced(option(HTTP, "ORIGIN", value_parser!(OriginPattern)));

    /// Longest time to answer a small file from memory without checking it again, where a
    /// check may block: on another mount than DIR's own, or if DIR is on a network or user-space
    /// file system [default: 1s]
    stat_age: Option<Duration> = advanced(option(HTTP, "TIME", time));

    /// What entity tags are made of: all that the kernel knows of a file's state, or size and
    /// modification time, as nginx has them, so that copies of a directory behind a balancer agree
    /// [default: exact]
    etag: Option<Etag> = advanced(option(HTTP, "HOW", value_parser!(Etag)));

    /// Longest file that PUT creates, such as 10G [default: 1T]
    put_max: Option<u64> = advanced(option(HTTP, "SIZE", size::<u64>));

    /// Answer a PUT or a finished upload after syncing data and directory to the disk
    durable: Option<bool> = advanced(switch(HTTP));

    /// Most unfinished resumable uploads (tus) at once [default: 1024]
    uploads_max: Option<usize> = advanced(option(HTTP, "N", count::<usize>));

    /// Most bytes of all unfinished uploads together [default: half of the file system]
    uploads_bytes: Option<u64> = advanced(option(HTTP, "SIZE", size::<u64>));

    /// Time to keep an unfinished upload after its last byte [default: 1day]
    upload_expires: Option<Duration> = advanced(option(HTTP, "TIME", time));

    /// Accept a connection at once, not with its first bytes
    no_defer_accept: Option<bool> = advanced(switch(HTTP));

    /// Echo at this address: send back what is received; may be repeated
    echo: Vec<ListenAddress> = option(LISTENERS, "ADDR", listen_address);

    /// Relay at this address: connect two clients that name the same token, by the protocol of the
    /// magic-wormhole transit relay; may be repeated
    relay: Vec<ListenAddress> = option(LISTENERS, "ADDR", listen_address);

    /// Most clients that may wait for their partner, at most half of the connections
    /// [default: 50000]
    relay_waiting: Option<u32> = advanced(option(RELAY, "N", count::<u32>));

    /// Longest time to wait for a partner [default: 10m]
    relay_wait: Option<Duration> = advanced(option(RELAY, "TIME", time));

    /// Longest time that a connected pair may send nothing [default: 1h]
    relay_idle: Option<Duration> = advanced(option(RELAY, "TIME", time));

    /// Let clients change files: over HTTP by PUT and uploads, with the rights of this process, and
    /// over NFS as the user that the client names
    writable: Option<bool> = switch(LISTENERS);

    /// Export DIR over NFSv3 at this address: mount with port= and mountport=. Port 0 picks a free
    /// one
    nfs: Option<ListenAddress> = option(LISTENERS, "ADDR", listen_address);

    /// A client's root is root here, instead of the anonymous user
    no_root_squash: Option<bool> = advanced(switch(NFS));

    /// Serve only clients of this network, such as 10.0.0.0/8; may be repeated [default: all]
    nfs_allow: Vec<Subnet> = option(NFS, "CIDR", value_parser!(Subnet));

    /// Serve only clients that come from a port below 1024
    nfs_secure_ports: Option<bool> = advanced(switch(NFS));

    /// Register with the rpcbind of this machine, for clients that ask it for the ports
    nfs_register: Option<bool> = advanced(switch(NFS));

    /// Directory of the file handles' key, so that handles outlive the server; not below DIR
    /// [default: /var/lib/flatpath for root, else ~/.local/state/flatpath]
    nfs_state: Option<PathBuf> = advanced(option(NFS, "DIR", value_parser!(PathBuf)));

    /// Ingest at this address: deliver length-prefixed messages to processes that attach at
    /// --ingest-socket. Port 0 picks a free one
    ingest: Option<ListenAddress> = option(LISTENERS, "ADDR", listen_address);

    /// The Unix socket where consumers attach; only this user may open it
    ingest_socket: Option<PathBuf> = option(INGEST, "PATH", value_parser!(PathBuf));

    /// Receive memory of each network thread, in addition to --memory; a power of two times
    /// the page [default: 256M]
    ingest_memory: Option<u64> = advanced(option(INGEST, "SIZE", size::<u64>));

    /// Size of a page; one receive fills at most one [default: 64K]
    ingest_page: Option<u32> = advanced(option(INGEST, "SIZE", size::<u32>));

    /// Most consumers at once, each with an equal share of the memory [default: 4]
    ingest_consumers: Option<u32> = advanced(option(INGEST, "N", count::<u32>));

    /// Longest message [default: what half a share holds, at most 16M]
    ingest_message: Option<u32> = advanced(option(INGEST, "SIZE", size::<u32>));

    /// Give every receive a page of its own. By default short messages share a page where
    /// the kernel supports it
    no_ingest_sharing: Option<bool> = advanced(switch(INGEST));

    /// Take the listening sockets of the server that waits at this path, have it drain once this
    /// one accepts, and wait there for the next: a restart that loses no connection
    handover: Option<PathBuf> = option(ENGINE, "PATH", value_parser!(PathBuf));

    /// Network threads; auto chooses by the processors that this process may use: one for up to
    /// seven, then one for every four [default: auto]
    network_threads: Option<NetworkThreads> = option(ENGINE, "N|auto", network_threads);

    /// Fewest and most worker threads [default: 2..128]
    workers: Option<RangeInclusive<u32>> = option(ENGINE, "MIN..MAX", workers);

    /// Most workers that the requests of one listener may occupy at once; its other requests wait,
    /// so that a slow listener leaves workers to the rest [default: all; of several listeners each
    /// keeps its part of a quarter of the workers, so with two one may have 112 of 128]
    workers_per_listener: Option<u32> = advanced(option(ENGINE, "N", count::<u32>));

    /// Kernel interface; auto uses io_uring where it works, and otherwise epoll [default: auto]
    driver: Option<Driver> = option(ENGINE, "DRIVER", value_parser!(Driver));

    /// One accept operation for all connections, or one for each [default: multishot]
    accept: Option<Accept> = advanced(option(ENGINE, "HOW", value_parser!(Accept)));

    /// Write a line for each HTTP request, and for each connection of other protocols, to this
    /// file, or to standard output: `-`. SIGHUP opens the file again
    access_log: Option<PathBuf> = option(LISTENERS, "PATH", value_parser!(PathBuf));

    /// How its lines look [default: combined]
    access_log_format: Option<LogFormat> =
        advanced(option(LISTENERS, "FORMAT", value_parser!(LogFormat)));

    /// Load balancers of this network, such as 10.0.0.0/8, name each connection's client in a
    /// header of the PROXY protocol, version 1 or 2; may be repeated. With it, every listener
    /// refuses connections from elsewhere and those without the header; on a Unix socket, the
    /// socket's permissions decide who may connect
    proxy_from: Vec<Subnet> = advanced(option(LISTENERS, "CIDR", value_parser!(Subnet)));

    /// Most connections at once [default: what the descriptor limit allows, at most 100000]
    max_connections: Option<usize> = option(LIMITS, "N", count::<usize>);

    /// Most connections at once of one IPv4 address or IPv6 /64. At the limit, a new connection
    /// replaces the address's own longest idle one, or is refused; 0 for no limit [default: 0]
    connections_per_address: Option<usize> = advanced(option(LIMITS, "N", value_parser!(usize)));

    /// Memory of the whole process, such as 256M: buffers, receive memory, caches, tables and
    /// threads, but not --ingest-memory nor the kernel's socket buffers. Without
    /// --max-connections, connections take at most an eighth [default: 256M]
    memory: Option<usize> = option(LIMITS, "SIZE", size::<usize>);

    /// Longest time from accept, or from a request's first byte, to the end of its head
    /// [default: 30s]
    head_timeout: Option<Duration> = advanced(option(LIMITS, "TIME", time));

    /// Longest silence within a request's body, which must also bring 512 bytes a second on average
    /// [default: 60s]
    body_timeout: Option<Duration> = advanced(option(LIMITS, "TIME", time));

    /// Longest time between two requests of one connection [default: 75s]
    idle_timeout: Option<Duration> = advanced(option(LIMITS, "TIME", time));

    /// Longest time in which a client reads nothing of what is sent to it; ten times as long if its
    /// receive buffer is full and its TCP still answers [default: 60s]
    write_timeout: Option<Duration> = advanced(option(LIMITS, "TIME", time));

    /// Name handlers that run for longer than this in the log, and count them in the metrics,
    /// while they still run [default: off in the log, 1s in the metrics]
    slow: Option<Duration> = advanced(option(LIMITS, "TIME", time));

    /// How long to keep accepting after SIGTERM or SIGINT, so that balancers notice; meanwhile each
    /// reply says that it is the last of its connection [default: 0]
    drain_delay: Option<Duration> = advanced(option(LIMITS, "TIME", delay));

    /// Longest time that a drain leaves a connection without a request open: the request may be on
    /// its way [default: 500ms]
    drain_idle_timeout: Option<Duration> = advanced(option(LIMITS, "TIME", time));

    /// Longest time to finish requests in flight once the server drains [default: 30s]
    drain_timeout: Option<Duration> = advanced(option(LIMITS, "TIME", time));
}

/// A setting with few values: each is its help, its variant and its word.
macro_rules! values {
    (
        $(#[$about:meta])*
        $name:ident { $(#[doc = $help:literal] $variant:ident = $word:literal,)+ }
    ) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum $name {
            $(#[doc = $help] $variant,)+
        }

        impl ValueEnum for $name {
            fn value_variants<'a>() -> &'a [Self] {
                &[$(Self::$variant),+]
            }

            fn to_possible_value(&self) -> Option<clap::builder::PossibleValue> {
                let (word, help) = match self {
                    $(Self::$variant => ($word, $help),)+
                };
                Some(clap::builder::PossibleValue::new(word).help(help.trim_start()))
            }
        }
    };
}
pub(crate) use values;

values! {
    /// The values of `--driver`.
    Driver {
        /// io_uring where it works, epoll where it is refused
        Auto = "auto",
        /// io_uring or nothing
        Uring = "uring",
        /// epoll
        Epoll = "epoll",
    }
}

values! {
    /// The values of `--etag`.
    Etag {
        /// Every change has another one; so has every copy
        Exact = "exact",
        /// Copies with the same size and time have the same
        Portable = "portable",
    }
}

values! {
    /// The values of `--access-log-format`.
    LogFormat {
        /// As Apache and nginx write it
        Combined = "combined",
        /// An object on each line
        Json = "json",
    }
}

values! {
    /// The values of `--accept`.
    Accept {
        /// One accept serves every connection
        Multishot = "multishot",
        /// One accept per connection
        Single = "single",
    }
}

/// Whether a switch is on: unset it is not.
pub(crate) fn is_on(switch: Option<bool>) -> bool {
    switch.unwrap_or(false)
}
