//! What can be set, once for the command line and for the configuration file.
//!
//! The file has the long names of the flags: `max-connections = 1000`. What is not a flag is an
//! error there too, so that a misspelled limit is never silently absent. Where both say something
//! the command line counts.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use serde::Deserialize;

use crate::failure::Failure;
use crate::units::{Address, Allowed, Amount, Count, Seconds, Size, Workers, from_text, several};

/// Largest configuration file that is read, in bytes.
const CONFIG_BYTES_MAX: u64 = 1 << 20;

/// The settings of `serve`.
#[derive(Args, Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct Settings {
    /// The directory to serve [default: the current one]
    #[arg(value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,

    /// Serve DIR over HTTP at this address; may be repeated. Port 0 picks a free one
    /// [default: 127.0.0.1:8080 unless listeners are named]
    #[arg(long, value_name = "ADDR")]
    #[serde(deserialize_with = "several")]
    pub(crate) http: Vec<Address>,

    /// Echo at this address: whatever comes in goes out; may be repeated
    #[arg(long, value_name = "ADDR")]
    #[serde(deserialize_with = "several")]
    pub(crate) echo: Vec<Address>,

    /// Relay at this address: two clients that name the same token are joined, in the words of the
    /// magic-wormhole transit relay; may be repeated
    #[arg(long, value_name = "ADDR")]
    #[serde(deserialize_with = "several")]
    pub(crate) relay: Vec<Address>,

    /// Relay: most clients that wait for their partner; half of the connections at most
    /// [default: 50000]
    #[arg(long, value_name = "N")]
    #[serde(deserialize_with = "from_text")]
    pub(crate) relay_waiting: Option<Count>,

    /// Relay: longest time to wait for a partner, in seconds [default: 600]
    #[arg(long, value_name = "SECONDS")]
    #[serde(deserialize_with = "from_text")]
    pub(crate) relay_wait: Option<Seconds>,

    /// Relay: longest time that a pair may be joined without a byte, in seconds [default: 3600]
    #[arg(long, value_name = "SECONDS")]
    #[serde(deserialize_with = "from_text")]
    pub(crate) relay_idle: Option<Seconds>,

    /// Export DIR over NFSv3 at this address: mount with port= and mountport=. Port 0 picks a free
    /// one
    #[arg(long, value_name = "ADDR")]
    #[serde(deserialize_with = "from_text")]
    pub(crate) nfs: Option<Address>,

    /// NFS: nothing can be changed
    #[arg(
        long,
        value_name = "BOOL",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true"
    )]
    pub(crate) read_only: Option<bool>,

    /// NFS: root on a client is root here, instead of nobody
    #[arg(
        long,
        value_name = "BOOL",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true"
    )]
    pub(crate) no_root_squash: Option<bool>,

    /// NFS: only clients of this network, such as 10.0.0.0/8; may be repeated [default: all]
    #[arg(long, value_name = "CIDR")]
    #[serde(deserialize_with = "several")]
    pub(crate) nfs_allow: Vec<Allowed>,

    /// NFS: only clients that come from a port below 1024
    #[arg(
        long,
        value_name = "BOOL",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true"
    )]
    pub(crate) nfs_secure_ports: Option<bool>,

    /// NFS: register with the rpcbind of this machine, for clients that ask it for the ports
    #[arg(
        long,
        value_name = "BOOL",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true"
    )]
    pub(crate) nfs_register: Option<bool>,

    /// NFS: where the key of the file handles is kept, so that they outlive the server; not below
    /// DIR [default: /var/lib/flatpath for root, else ~/.local/state/flatpath]
    #[arg(long, value_name = "DIR")]
    pub(crate) nfs_state: Option<PathBuf>,

    /// Ingest at this address: messages with their length in front are handed to processes that
    /// attach at --ingest-socket. Port 0 picks a free one
    #[arg(long, value_name = "ADDR")]
    #[serde(deserialize_with = "from_text")]
    pub(crate) ingest: Option<Address>,

    /// Ingest: the Unix socket where consumers attach; made for this user only
    #[arg(long, value_name = "PATH")]
    pub(crate) ingest_socket: Option<PathBuf>,

    /// Ingest: memory for each network thread that messages are received to, beside --memory; a
    /// power of two times the page [default: 256M]
    #[arg(long, value_name = "SIZE")]
    #[serde(deserialize_with = "from_text")]
    pub(crate) ingest_memory: Option<Size>,

    /// Ingest: the page, which one receive fills at most [default: 64K]
    #[arg(long, value_name = "SIZE")]
    #[serde(deserialize_with = "from_text")]
    pub(crate) ingest_page: Option<Size>,

    /// Ingest: most consumers at once; each has an equal share of the memory [default: 4]
    #[arg(long, value_name = "N")]
    #[serde(deserialize_with = "from_text")]
    pub(crate) ingest_consumers: Option<Count>,

    /// Ingest: the longest message [default: what half a share holds, at most 16M]
    #[arg(long, value_name = "SIZE")]
    #[serde(deserialize_with = "from_text")]
    pub(crate) ingest_message: Option<Size>,

    /// Ingest: every receive takes a page of its own, where otherwise short messages share one if
    /// the kernel can do that
    #[arg(
        long,
        value_name = "BOOL",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true"
    )]
    pub(crate) no_ingest_sharing: Option<bool>,

    /// Network threads [default: 1]
    #[arg(long, value_name = "N")]
    #[serde(deserialize_with = "from_text")]
    pub(crate) rings: Option<Count>,

    /// Fewest and most worker threads [default: 2..128]
    #[arg(long, value_name = "MIN..MAX")]
    #[serde(deserialize_with = "from_text")]
    pub(crate) workers: Option<Workers>,

    /// Workers that the requests of one listener may occupy at a time; the others wait, so that a
    /// slow one leaves workers to the rest [default: no limit for one listener; for several, all
    /// but the others' part of a quarter]
    #[arg(long, value_name = "N")]
    #[serde(deserialize_with = "from_text")]
    pub(crate) workers_per_listener: Option<Count>,

    /// How to talk to the kernel; auto takes io_uring where it works, and else epoll
    /// [default: auto]
    #[arg(long, value_name = "DRIVER")]
    pub(crate) driver: Option<Driver>,

    /// One accept for all connections, or one for each [default: multishot]
    #[arg(long, value_name = "HOW")]
    pub(crate) accept: Option<Accept>,

    /// Accept a connection at once, not with its first bytes (HTTP)
    #[arg(
        long,
        value_name = "BOOL",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true"
    )]
    pub(crate) no_defer_accept: Option<bool>,

    /// Most connections at once [default: what the descriptor limit allows, at most 100000]
    #[arg(long, value_name = "N")]
    #[serde(deserialize_with = "from_text")]
    pub(crate) max_connections: Option<Count>,

    /// Most connections at once of one IPv4 address or IPv6 /64. With as many, its own longest idle
    /// one is closed for its next one, or that is refused; 0 for no limit [default: 0]
    #[arg(long, value_name = "N")]
    #[serde(deserialize_with = "from_text")]
    pub(crate) connections_per_address: Option<Amount>,

    /// Memory for the whole process, such as 256M: buffers, receive memory, caches, tables and
    /// threads. Only --ingest-memory and socket buffers of the kernel come beside it. Without
    /// --max-connections, connections take an eighth at most [default: 256M]
    #[arg(long, value_name = "SIZE")]
    #[serde(deserialize_with = "from_text")]
    pub(crate) memory: Option<Size>,

    /// Serve files and directories whose names begin with a dot
    #[arg(
        long,
        value_name = "BOOL",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true"
    )]
    pub(crate) hidden: Option<bool>,

    /// Longest time for which a small file is answered from memory without looking at it again,
    /// where looking may block, in seconds: on another mount than DIR's own, or if DIR is on a
    /// network or user-space file system [default: 1]
    #[arg(long, value_name = "SECONDS")]
    #[serde(deserialize_with = "from_text")]
    pub(crate) stat_age: Option<Seconds>,

    /// HTTP: PUT makes and replaces files, with the rights of this process
    #[arg(
        long,
        value_name = "BOOL",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true"
    )]
    pub(crate) writable: Option<bool>,

    /// HTTP: the longest file that PUT makes, such as 10G [default: 1T]
    #[arg(long, value_name = "SIZE")]
    #[serde(deserialize_with = "from_text")]
    pub(crate) put_max: Option<Size>,

    /// HTTP: answer a PUT or a finished upload when data and directory are synced to the disk
    #[arg(
        long,
        value_name = "BOOL",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true"
    )]
    pub(crate) durable: Option<bool>,

    /// HTTP: resumable uploads (tus) that may be unfinished at once [default: 1024]
    #[arg(long, value_name = "COUNT")]
    #[serde(deserialize_with = "from_text")]
    pub(crate) uploads_max: Option<Count>,

    /// HTTP: how long an unfinished upload is kept after its last byte, in seconds [default: 86400]
    #[arg(long, value_name = "SECONDS")]
    #[serde(deserialize_with = "from_text")]
    pub(crate) upload_expires: Option<Seconds>,

    /// Longest time from accept, or from a request's first byte, to the end of its head, in seconds
    /// [default: 30]
    #[arg(long, value_name = "SECONDS")]
    #[serde(deserialize_with = "from_text")]
    pub(crate) head_timeout: Option<Seconds>,

    /// Longest silence within a request's body, in seconds; on average it must bring 512 bytes a
    /// second beside that [default: 60]
    #[arg(long, value_name = "SECONDS")]
    #[serde(deserialize_with = "from_text")]
    pub(crate) body_timeout: Option<Seconds>,

    /// Longest time between requests of one connection, in seconds [default: 75]
    #[arg(long, value_name = "SECONDS")]
    #[serde(deserialize_with = "from_text")]
    pub(crate) idle_timeout: Option<Seconds>,

    /// Longest time in which a client takes nothing of what is sent to it, in seconds [default: 30]
    #[arg(long, value_name = "SECONDS")]
    #[serde(deserialize_with = "from_text")]
    pub(crate) write_timeout: Option<Seconds>,

    /// Longest time to finish what is in flight after the first SIGTERM or SIGINT, in seconds
    /// [default: 30]
    #[arg(long, value_name = "SECONDS")]
    #[serde(deserialize_with = "from_text")]
    pub(crate) drain_timeout: Option<Seconds>,
}

/// The values of `--driver`.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Driver {
    /// io_uring where it works, epoll where it is refused
    Auto,
    /// io_uring or nothing
    Uring,
    /// epoll
    Epoll,
}

/// The values of `--accept`.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Accept {
    /// One accept serves every connection
    Multishot,
    /// One accept per connection
    Single,
}

impl Settings {
    /// Reads a configuration file.
    pub(crate) fn from_file(path: &Path) -> Result<Self, Failure> {
        let explained = |cause: &dyn std::fmt::Display| {
            Failure::WrongUse(format!("--config {}: {cause}", path.display()))
        };
        let size = std::fs::metadata(path)
            .map_err(|cause| explained(&cause))?
            .len();
        if size > CONFIG_BYTES_MAX {
            return Err(explained(&format!(
                "it is larger than {CONFIG_BYTES_MAX} bytes"
            )));
        }
        let text = std::fs::read_to_string(path).map_err(|cause| explained(&cause))?;
        toml::from_str(&text).map_err(|cause| explained(&cause))
    }

    /// These settings, and those of `other` where these say nothing.
    pub(crate) fn or(self, other: Self) -> Self {
        let first = |own: Vec<Address>, other| if own.is_empty() { other } else { own };
        Self {
            dir: self.dir.or(other.dir),
            http: first(self.http, other.http),
            echo: first(self.echo, other.echo),
            relay: first(self.relay, other.relay),
            relay_waiting: self.relay_waiting.or(other.relay_waiting),
            relay_wait: self.relay_wait.or(other.relay_wait),
            relay_idle: self.relay_idle.or(other.relay_idle),
            nfs: self.nfs.or(other.nfs),
            read_only: self.read_only.or(other.read_only),
            no_root_squash: self.no_root_squash.or(other.no_root_squash),
            nfs_allow: if self.nfs_allow.is_empty() {
                other.nfs_allow
            } else {
                self.nfs_allow
            },
            nfs_secure_ports: self.nfs_secure_ports.or(other.nfs_secure_ports),
            nfs_register: self.nfs_register.or(other.nfs_register),
            nfs_state: self.nfs_state.or(other.nfs_state),
            ingest: self.ingest.or(other.ingest),
            ingest_socket: self.ingest_socket.or(other.ingest_socket),
            ingest_memory: self.ingest_memory.or(other.ingest_memory),
            ingest_page: self.ingest_page.or(other.ingest_page),
            ingest_consumers: self.ingest_consumers.or(other.ingest_consumers),
            ingest_message: self.ingest_message.or(other.ingest_message),
            no_ingest_sharing: self.no_ingest_sharing.or(other.no_ingest_sharing),
            rings: self.rings.or(other.rings),
            workers: self.workers.or(other.workers),
            workers_per_listener: self.workers_per_listener.or(other.workers_per_listener),
            driver: self.driver.or(other.driver),
            accept: self.accept.or(other.accept),
            no_defer_accept: self.no_defer_accept.or(other.no_defer_accept),
            max_connections: self.max_connections.or(other.max_connections),
            connections_per_address: self
                .connections_per_address
                .or(other.connections_per_address),
            memory: self.memory.or(other.memory),
            hidden: self.hidden.or(other.hidden),
            stat_age: self.stat_age.or(other.stat_age),
            writable: self.writable.or(other.writable),
            put_max: self.put_max.or(other.put_max),
            durable: self.durable.or(other.durable),
            uploads_max: self.uploads_max.or(other.uploads_max),
            upload_expires: self.upload_expires.or(other.upload_expires),
            head_timeout: self.head_timeout.or(other.head_timeout),
            body_timeout: self.body_timeout.or(other.body_timeout),
            idle_timeout: self.idle_timeout.or(other.idle_timeout),
            write_timeout: self.write_timeout.or(other.write_timeout),
            drain_timeout: self.drain_timeout.or(other.drain_timeout),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{CommandFactory, Parser};

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        settings: Settings,
    }

    fn line(arguments: &[&str]) -> Settings {
        let arguments = ["test"].iter().chain(arguments);
        Line::try_parse_from(arguments)
            .expect("a good command line")
            .settings
    }

    fn file(text: &str) -> Result<Settings, String> {
        toml::from_str(text).map_err(|error| error.to_string())
    }

    // LONG: every name once as a flag and once as a key.
    #[test]
    fn flags_and_file_say_the_same_in_the_same_words() {
        let by_line = line(&[
            "site",
            "--http",
            "127.0.0.1:80",
            "--http",
            "[::1]:0",
            "--echo",
            "127.0.0.1:7",
            "--relay",
            "127.0.0.1:4001",
            "--relay-waiting",
            "9",
            "--relay-wait",
            "60",
            "--relay-idle",
            "61",
            "--nfs",
            "127.0.0.1:2049",
            "--read-only",
            "--no-root-squash",
            "--nfs-allow",
            "10.0.0.0/8",
            "--nfs-allow",
            "::1",
            "--nfs-secure-ports",
            "--nfs-register",
            "--nfs-state",
            "/state",
            "--ingest",
            "127.0.0.1:9000",
            "--ingest-socket",
            "/run/ingest",
            "--ingest-memory",
            "64M",
            "--ingest-page",
            "32K",
            "--ingest-consumers",
            "2",
            "--ingest-message",
            "1M",
            "--no-ingest-sharing",
            "--rings",
            "2",
            "--workers",
            "2..64",
            "--workers-per-listener",
            "32",
            "--driver",
            "epoll",
            "--accept",
            "single",
            "--no-defer-accept",
            "--max-connections",
            "1000",
            "--connections-per-address",
            "0",
            "--memory",
            "64M",
            "--hidden",
            "--stat-age",
            "0.25",
            "--writable",
            "--put-max",
            "2G",
            "--durable",
            "--uploads-max",
            "9",
            "--upload-expires",
            "3600",
            "--head-timeout",
            "5",
            "--body-timeout",
            "6",
            "--idle-timeout",
            "0.5",
            "--write-timeout",
            "7",
            "--drain-timeout",
            "8",
        ]);
        let by_file = file(
            r#"
            dir = "site"
            http = ["127.0.0.1:80", "[::1]:0"]
            echo = "127.0.0.1:7"
            relay = "127.0.0.1:4001"
            relay-waiting = 9
            relay-wait = 60
            relay-idle = 61
            nfs = "127.0.0.1:2049"
            read-only = true
            no-root-squash = true
            nfs-allow = ["10.0.0.0/8", "::1"]
            nfs-secure-ports = true
            nfs-register = true
            nfs-state = "/state"
            ingest = "127.0.0.1:9000"
            ingest-socket = "/run/ingest"
            no-ingest-sharing = true
            ingest-memory = "64M"
            ingest-page = "32K"
            ingest-consumers = 2
            ingest-message = "1M"
            rings = 2
            workers = "2..64"
            workers-per-listener = 32
            driver = "epoll"
            accept = "single"
            no-defer-accept = true
            max-connections = 1000
            connections-per-address = 0
            memory = "64M"
            hidden = true
            stat-age = 0.25
            writable = true
            put-max = "2G"
            durable = true
            uploads-max = 9
            upload-expires = 3600
            head-timeout = 5
            body-timeout = 6
            idle-timeout = 0.5
            write-timeout = "7"
            drain-timeout = 8
            "#,
        );
        assert_eq!(by_file, Ok(by_line));
    }

    #[test]
    fn every_flag_can_stand_in_the_file_and_nothing_else_can() {
        let command = Line::command();
        let error = file("no-such-flag = 1").expect_err("an unknown key");
        for argument in command.get_arguments() {
            let name = argument.get_id().as_str().replace('_', "-");
            if name != "help" {
                assert!(
                    error.contains(&format!("`{name}`")),
                    "{name} is missing in {error}"
                );
            }
        }
        for text in [
            "max_connections = 1",
            "config = \"x\"",
            "[http]",
            "resp = \"127.0.0.1:1\"",
        ] {
            assert!(file(text).is_err(), "{text}");
        }
    }

    #[test]
    fn wrong_values_are_named() {
        for text in [
            "workers = \"4..2\"",
            "memory = \"1T\"",
            "rings = 0",
            "http = \"8080\"",
            "driver = \"kqueue\"",
            "hidden = \"yes\"",
            "nfs-allow = \"10.0.0.0/33\"",
            "idle-timeout = 0",
            "rings = [1]",
            "http = [1]",
            "max-connections = -1",
        ] {
            let key = text.split_once(' ').expect("a key").0;
            let error = file(text).expect_err(text);
            assert!(error.contains(key), "{error}");
        }
    }

    #[test]
    fn the_command_line_wins() {
        let line = line(&["--http", "127.0.0.1:1", "--rings", "3", "--hidden=false"]);
        let file = file("http = [\"127.0.0.1:2\"]\nrings = 4\nhidden = true\nmemory = 4096");
        let both = line.or(file.expect("a good file"));
        assert_eq!(both.http, ["127.0.0.1:1".parse().expect("an address")]);
        assert_eq!((both.rings, both.hidden), (Some(Count(3)), Some(false)));
        assert_eq!(both.memory, Some(Size(4_096)));
    }
}
