//! The settings of `serve`, once for the command line, the environment and the configuration file.
//!
//! The command line's parser reads the values of all three, so names, values and errors are the
//! same everywhere, and a misspelled limit is an error.

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use flatpath::Subnet;
use flatpath::sockets::ListenAddress;

use crate::units::{count, delay, listen_address, size, time, workers};

// The topics of `serve --help`.
const LISTENERS: &str = "Listeners";
const HTTP: &str = "HTTP";
const NFS: &str = "NFS";
const RELAY: &str = "Relay";
const INGEST: &str = "Ingest";
const LIMITS: &str = "Limits";
const ENGINE: &str = "Engine";

/// The settings of `serve`; `None` or empty where neither place names one. The value of a switch,
/// `--hidden=false`, may be left out: see [`is_on`].
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Settings {
    /// The directory to serve [default: the current one]
    #[arg(value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,

    /// Serve DIR over HTTP at this address; may be repeated. Port 0 picks a free one
    /// [default: 127.0.0.1:8080 unless listeners are named]
    // Other servers' names for it are understood, too.
    #[arg(
        long,
        help_heading = LISTENERS,
        value_delimiter = ',',
        alias = "port",
        short_alias = 'p',
        value_name = "ADDR",
        value_parser = listen_address
    )]
    pub(crate) http: Vec<ListenAddress>,

    /// Show metrics and health checks at this address: /metrics, /healthz, /readyz.
    /// There is no access control, so choose one that only operators reach [default: off]
    #[arg(long, help_heading = LISTENERS, value_name = "ADDR", value_parser = listen_address)]
    pub(crate) admin: Option<ListenAddress>,

    /// Serve files and directories whose names begin with a dot
    #[arg(
        long,
        help_heading = HTTP,
        require_equals = true,
        hide_possible_values = true,
        value_name = "BOOL"
    )]
    pub(crate) hidden: Option<Option<bool>>,

    /// Longest time to answer a small file from memory without checking it again, where a
    /// check may block: on another mount than DIR's own, or if DIR is on a network or user-space
    /// file system [default: 1s]
    #[arg(
        long,
        help_heading = HTTP,
        hide_short_help = true,
        value_name = "TIME",
        value_parser = time
    )]
    pub(crate) stat_age: Option<Duration>,

    /// What entity tags are made of: all that the kernel knows of a file's state, or size and
    /// modification time, as nginx has them, so that copies of a directory behind a balancer agree
    /// [default: exact]
    #[arg(long, help_heading = HTTP, hide_short_help = true, value_name = "HOW")]
    pub(crate) etag: Option<Etag>,

    /// Let PUT create and replace files, with the rights of this process
    #[arg(
        long,
        help_heading = HTTP,
        require_equals = true,
        hide_possible_values = true,
        value_name = "BOOL"
    )]
    pub(crate) writable: Option<Option<bool>>,

    /// Longest file that PUT creates, such as 10G [default: 1T]
    #[arg(
        long,
        help_heading = HTTP,
        hide_short_help = true,
        value_name = "SIZE",
        value_parser = size::<u64>
    )]
    pub(crate) put_max: Option<u64>,

    /// Answer a PUT or a finished upload after syncing data and directory to the disk
    #[arg(
        long,
        help_heading = HTTP,
        hide_short_help = true,
        require_equals = true,
        hide_possible_values = true,
        value_name = "BOOL"
    )]
    pub(crate) durable: Option<Option<bool>>,

    /// Most unfinished resumable uploads (tus) at once [default: 1024]
    #[arg(
        long,
        help_heading = HTTP,
        hide_short_help = true,
        value_name = "N",
        value_parser = count::<usize>
    )]
    pub(crate) uploads_max: Option<usize>,

    /// Most bytes of all unfinished uploads together [default: half of the file system]
    #[arg(
        long,
        help_heading = HTTP,
        hide_short_help = true,
        value_name = "SIZE",
        value_parser = size::<u64>
    )]
    pub(crate) uploads_bytes: Option<u64>,

    /// Time to keep an unfinished upload after its last byte [default: 1day]
    #[arg(
        long,
        help_heading = HTTP,
        hide_short_help = true,
        value_name = "TIME",
        value_parser = time
    )]
    pub(crate) upload_expires: Option<Duration>,

    /// Accept a connection at once, not with its first bytes
    #[arg(
        long,
        help_heading = HTTP,
        hide_short_help = true,
        require_equals = true,
        hide_possible_values = true,
        value_name = "BOOL"
    )]
    pub(crate) no_defer_accept: Option<Option<bool>>,

    /// Echo at this address: send back what is received; may be repeated
    #[arg(
        long,
        help_heading = LISTENERS,
        value_delimiter = ',',
        value_name = "ADDR",
        value_parser = listen_address
    )]
    pub(crate) echo: Vec<ListenAddress>,

    /// Relay at this address: connect two clients that name the same token, by the protocol of the
    /// magic-wormhole transit relay; may be repeated
    #[arg(
        long,
        help_heading = LISTENERS,
        value_delimiter = ',',
        value_name = "ADDR",
        value_parser = listen_address
    )]
    pub(crate) relay: Vec<ListenAddress>,

    /// Most clients that may wait for their partner, at most half of the connections
    /// [default: 50000]
    #[arg(
        long,
        help_heading = RELAY,
        hide_short_help = true,
        value_name = "N",
        value_parser = count::<u32>
    )]
    pub(crate) relay_waiting: Option<u32>,

    /// Longest time to wait for a partner [default: 10m]
    #[arg(
        long,
        help_heading = RELAY,
        hide_short_help = true,
        value_name = "TIME",
        value_parser = time
    )]
    pub(crate) relay_wait: Option<Duration>,

    /// Longest time that a connected pair may send nothing [default: 1h]
    #[arg(
        long,
        help_heading = RELAY,
        hide_short_help = true,
        value_name = "TIME",
        value_parser = time
    )]
    pub(crate) relay_idle: Option<Duration>,

    /// Export DIR over NFSv3 at this address: mount with port= and mountport=. Port 0 picks a free
    /// one
    #[arg(long, help_heading = LISTENERS, value_name = "ADDR", value_parser = listen_address)]
    pub(crate) nfs: Option<ListenAddress>,

    /// Refuse every change
    #[arg(
        long,
        help_heading = NFS,
        require_equals = true,
        hide_possible_values = true,
        value_name = "BOOL"
    )]
    pub(crate) read_only: Option<Option<bool>>,

    /// A client's root is root here, instead of the anonymous user
    #[arg(
        long,
        help_heading = NFS,
        hide_short_help = true,
        require_equals = true,
        hide_possible_values = true,
        value_name = "BOOL"
    )]
    pub(crate) no_root_squash: Option<Option<bool>>,

    /// Serve only clients of this network, such as 10.0.0.0/8; may be repeated [default: all]
    #[arg(long, help_heading = NFS, value_delimiter = ',', value_name = "CIDR")]
    pub(crate) nfs_allow: Vec<Subnet>,

    /// Serve only clients that come from a port below 1024
    #[arg(
        long,
        help_heading = NFS,
        hide_short_help = true,
        require_equals = true,
        hide_possible_values = true,
        value_name = "BOOL"
    )]
    pub(crate) nfs_secure_ports: Option<Option<bool>>,

    /// Register with the rpcbind of this machine, for clients that ask it for the ports
    #[arg(
        long,
        help_heading = NFS,
        hide_short_help = true,
        require_equals = true,
        hide_possible_values = true,
        value_name = "BOOL"
    )]
    pub(crate) nfs_register: Option<Option<bool>>,

    /// Directory of the file handles' key, so that handles outlive the server; not below DIR
    /// [default: /var/lib/flatpath for root, else ~/.local/state/flatpath]
    #[arg(long, help_heading = NFS, hide_short_help = true, value_name = "DIR")]
    pub(crate) nfs_state: Option<PathBuf>,

    /// Ingest at this address: deliver length-prefixed messages to processes that attach at
    /// --ingest-socket. Port 0 picks a free one
    #[arg(long, help_heading = LISTENERS, value_name = "ADDR", value_parser = listen_address)]
    pub(crate) ingest: Option<ListenAddress>,

    /// The Unix socket where consumers attach; only this user may open it
    #[arg(long, help_heading = INGEST, value_name = "PATH")]
    pub(crate) ingest_socket: Option<PathBuf>,

    /// Receive memory of each network thread, in addition to --memory; a power of two times
    /// the page [default: 256M]
    #[arg(
        long,
        help_heading = INGEST,
        hide_short_help = true,
        value_name = "SIZE",
        value_parser = size::<u64>
    )]
    pub(crate) ingest_memory: Option<u64>,

    /// Size of a page; one receive fills at most one [default: 64K]
    #[arg(
        long,
        help_heading = INGEST,
        hide_short_help = true,
        value_name = "SIZE",
        value_parser = size::<u32>
    )]
    pub(crate) ingest_page: Option<u32>,

    /// Most consumers at once, each with an equal share of the memory [default: 4]
    #[arg(
        long,
        help_heading = INGEST,
        hide_short_help = true,
        value_name = "N",
        value_parser = count::<u32>
    )]
    pub(crate) ingest_consumers: Option<u32>,

    /// Longest message [default: what half a share holds, at most 16M]
    #[arg(
        long,
        help_heading = INGEST,
        hide_short_help = true,
        value_name = "SIZE",
        value_parser = size::<u32>
    )]
    pub(crate) ingest_message: Option<u32>,

    /// Give every receive a page of its own. By default short messages share a page where
    /// the kernel supports it
    #[arg(
        long,
        help_heading = INGEST,
        hide_short_help = true,
        require_equals = true,
        hide_possible_values = true,
        value_name = "BOOL"
    )]
    pub(crate) no_ingest_sharing: Option<Option<bool>>,

    /// Take the listening sockets of the server that waits at this path, have it drain once this
    /// one accepts, and wait there for the next: a restart that loses no connection
    #[arg(long, help_heading = ENGINE, value_name = "PATH")]
    pub(crate) handover: Option<PathBuf>,

    /// Network threads [default: 1]
    #[arg(long, help_heading = ENGINE, value_name = "N", value_parser = count::<usize>)]
    pub(crate) network_threads: Option<usize>,

    /// Fewest and most worker threads [default: 2..128]
    #[arg(long, help_heading = ENGINE, value_name = "MIN..MAX", value_parser = workers)]
    pub(crate) workers: Option<RangeInclusive<u32>>,

    /// Most workers that the requests of one listener may occupy at once; its other requests wait,
    /// so that a slow listener leaves workers to the rest [default: no limit for one listener; for
    /// several, all but the others' part of a quarter]
    #[arg(
        long,
        help_heading = ENGINE,
        hide_short_help = true,
        value_name = "N",
        value_parser = count::<u32>
    )]
    pub(crate) workers_per_listener: Option<u32>,

    /// Kernel interface; auto uses io_uring where it works, and otherwise epoll [default: auto]
    #[arg(long, help_heading = ENGINE, value_name = "DRIVER")]
    pub(crate) driver: Option<Driver>,

    /// One accept operation for all connections, or one for each [default: multishot]
    #[arg(long, help_heading = ENGINE, hide_short_help = true, value_name = "HOW")]
    pub(crate) accept: Option<Accept>,

    /// Load balancers of this network, such as 10.0.0.0/8, name each connection's client in a
    /// header of the PROXY protocol, version 1 or 2; may be repeated. With it, every listener
    /// refuses connections from elsewhere and those without the header
    #[arg(
        long,
        help_heading = LISTENERS,
        hide_short_help = true,
        value_delimiter = ',',
        value_name = "CIDR"
    )]
    pub(crate) proxy_from: Vec<Subnet>,

    /// Most connections at once [default: what the descriptor limit allows, at most 100000]
    #[arg(long, help_heading = LIMITS, value_name = "N", value_parser = count::<usize>)]
    pub(crate) max_connections: Option<usize>,

    /// Most connections at once of one IPv4 address or IPv6 /64. At the limit, a new connection
    /// replaces the address's own longest idle one, or is refused; 0 for no limit [default: 0]
    #[arg(long, help_heading = LIMITS, hide_short_help = true, value_name = "N")]
    pub(crate) connections_per_address: Option<usize>,

    /// Memory of the whole process, such as 256M: buffers, receive memory, caches, tables and
    /// threads, but not --ingest-memory nor the kernel's socket buffers. Without
    /// --max-connections, connections take at most an eighth [default: 256M]
    #[arg(long, help_heading = LIMITS, value_name = "SIZE", value_parser = size::<usize>)]
    pub(crate) memory: Option<usize>,

    /// Longest time from accept, or from a request's first byte, to the end of its head
    /// [default: 30s]
    #[arg(
        long,
        help_heading = LIMITS,
        hide_short_help = true,
        value_name = "TIME",
        value_parser = time
    )]
    pub(crate) head_timeout: Option<Duration>,

    /// Longest silence within a request's body, which must also bring 512 bytes a second on average
    /// [default: 60s]
    #[arg(
        long,
        help_heading = LIMITS,
        hide_short_help = true,
        value_name = "TIME",
        value_parser = time
    )]
    pub(crate) body_timeout: Option<Duration>,

    /// Longest time between two requests of one connection [default: 75s]
    #[arg(
        long,
        help_heading = LIMITS,
        hide_short_help = true,
        value_name = "TIME",
        value_parser = time
    )]
    pub(crate) idle_timeout: Option<Duration>,

    /// Longest time in which a client reads nothing of what is sent to it [default: 30s]
    #[arg(
        long,
        help_heading = LIMITS,
        hide_short_help = true,
        value_name = "TIME",
        value_parser = time
    )]
    pub(crate) write_timeout: Option<Duration>,

    /// Name handlers that run for longer than this in the log, and count them in the metrics,
    /// while they still run [default: off in the log, 1s in the metrics]
    #[arg(
        long,
        help_heading = LIMITS,
        hide_short_help = true,
        value_name = "TIME",
        value_parser = time
    )]
    pub(crate) slow: Option<Duration>,

    /// From the first SIGTERM or SIGINT on still accept connections for so long, and say with each
    /// reply that it is the last: until whoever sends clients has learned of it [default: 0]
    #[arg(
        long,
        help_heading = LIMITS,
        hide_short_help = true,
        value_name = "TIME",
        value_parser = delay
    )]
    pub(crate) drain_delay: Option<Duration>,

    /// Longest time that a drain leaves a connection without a request open: the request may be on
    /// its way [default: 500ms]
    #[arg(
        long,
        help_heading = LIMITS,
        hide_short_help = true,
        value_name = "TIME",
        value_parser = time
    )]
    pub(crate) drain_idle_timeout: Option<Duration>,

    /// Longest time to finish requests in flight once the server drains [default: 30s]
    #[arg(
        long,
        help_heading = LIMITS,
        hide_short_help = true,
        value_name = "TIME",
        value_parser = time
    )]
    pub(crate) drain_timeout: Option<Duration>,
}

/// The values of `--driver`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Driver {
    /// io_uring where it works, epoll where it is refused
    Auto,
    /// io_uring or nothing
    Uring,
    /// epoll
    Epoll,
}

/// The values of `--etag`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Etag {
    /// Every change has another one; so has every copy
    Exact,
    /// Copies with the same size and time have the same
    Portable,
}

/// The values of `--accept`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Accept {
    /// One accept serves every connection
    Multishot,
    /// One accept per connection
    Single,
}

/// Whether a switch is on: without a value it is, and unset it is not.
pub(crate) fn is_on(switch: Option<Option<bool>>) -> bool {
    switch.is_some_and(|value| value.unwrap_or(true))
}
