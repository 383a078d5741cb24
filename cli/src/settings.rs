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

/// Makes [`Settings`] of a list: the help text of each, its form, its name and its type.
///
/// | form            | on the command line       | in the file           |
/// |-----------------|---------------------------|-----------------------|
/// | `place(UNIT)`   | a value without a flag    | a string              |
/// | `plain(UNIT)`   | a flag and a value        | a string              |
/// | `text(UNIT)`    | a flag and a value        | a string or a number  |
/// | `several(UNIT)` | that, any number of times | one of them or a list |
/// | `switch`        | a flag, or `--flag=BOOL`  | true or false         |
macro_rules! settings {
    ($($(#[$help:meta])* $form:ident $(($unit:literal))? $name:ident $(: $kind:ty)?;)*) => {
        settings!(@ [] $({[$(#[$help])*] $form $(($unit))? $name $(: $kind)?})*);

        impl Settings {
            /// These settings, and those of `other` where these say nothing.
            pub(crate) fn or(self, other: Self) -> Self {
                Self { $($name: self.$name.or_of(other.$name),)* }
            }
        }
    };
    (@ [$($made:tt)*] {[$($help:tt)*] place($unit:literal) $name:ident: $kind:ty} $($rest:tt)*) => {
        settings!(@ [$($made)* $($help)* #[arg(value_name = $unit)]
            pub(crate) $name: Option<$kind>,] $($rest)*);
    };
    (@ [$($made:tt)*] {[$($help:tt)*] plain($unit:literal) $name:ident: $kind:ty} $($rest:tt)*) => {
        settings!(@ [$($made)* $($help)* #[arg(long, value_name = $unit)]
            pub(crate) $name: Option<$kind>,] $($rest)*);
    };
    (@ [$($made:tt)*] {[$($help:tt)*] text($unit:literal) $name:ident: $kind:ty} $($rest:tt)*) => {
        settings!(@ [$($made)* $($help)* #[arg(long, value_name = $unit)]
            #[serde(deserialize_with = "from_text")]
            pub(crate) $name: Option<$kind>,] $($rest)*);
    };
    (@ [$($made:tt)*]
        {[$($help:tt)*] several($unit:literal) $name:ident: $kind:ty} $($rest:tt)*) => {
        settings!(@ [$($made)* $($help)* #[arg(long, value_name = $unit)]
            #[serde(deserialize_with = "several")]
            pub(crate) $name: Vec<$kind>,] $($rest)*);
    };
    (@ [$($made:tt)*] {[$($help:tt)*] switch $name:ident} $($rest:tt)*) => {
        settings!(@ [$($made)* $($help)* #[arg(long, value_name = "BOOL", num_args = 0..=1,
            require_equals = true, default_missing_value = "true")]
            pub(crate) $name: Option<bool>,] $($rest)*);
    };
    (@ [$($made:tt)*]) => {
        /// The settings of `serve`.
        #[derive(Args, Clone, Debug, Default, Deserialize, PartialEq, Eq)]
        #[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
        pub(crate) struct Settings { $($made)* }
    };
}

settings! {
    /// The directory to serve [default: the current one]
    place("DIR") dir: PathBuf;

    /// Serve DIR over HTTP at this address; may be repeated. Port 0 picks a free one
    /// [default: 127.0.0.1:8080 unless listeners are named]
    several("ADDR") http: Address;

    /// Echo at this address: whatever comes in goes out; may be repeated
    several("ADDR") echo: Address;

    /// Relay at this address: two clients that name the same token are joined, in the words of the
    /// magic-wormhole transit relay; may be repeated
    several("ADDR") relay: Address;

    /// Relay: most clients that wait for their partner; half of the connections at most
    /// [default: 50000]
    text("N") relay_waiting: Count;

    /// Relay: longest time to wait for a partner, in seconds [default: 600]
    text("SECONDS") relay_wait: Seconds;

    /// Relay: longest time that a pair may be joined without a byte, in seconds [default: 3600]
    text("SECONDS") relay_idle: Seconds;

    /// Export DIR over NFSv3 at this address: mount with port= and mountport=. Port 0 picks a free
    /// one
    text("ADDR") nfs: Address;

    /// NFS: nothing can be changed
    switch read_only;

    /// NFS: root on a client is root here, instead of nobody
    switch no_root_squash;

    /// NFS: only clients of this network, such as 10.0.0.0/8; may be repeated [default: all]
    several("CIDR") nfs_allow: Allowed;

    /// NFS: only clients that come from a port below 1024
    switch nfs_secure_ports;

    /// NFS: register with the rpcbind of this machine, for clients that ask it for the ports
    switch nfs_register;

    /// NFS: where the key of the file handles is kept, so that they outlive the server; not below
    /// DIR [default: /var/lib/flatpath for root, else ~/.local/state/flatpath]
    plain("DIR") nfs_state: PathBuf;

    /// Ingest at this address: messages with their length in front are handed to processes that
    /// attach at --ingest-socket. Port 0 picks a free one
    text("ADDR") ingest: Address;

    /// Ingest: the Unix socket where consumers attach; made for this user only
    plain("PATH") ingest_socket: PathBuf;

    /// Ingest: memory for each network thread that messages are received to, beside --memory; a
    /// power of two times the page [default: 256M]
    text("SIZE") ingest_memory: Size;

    /// Ingest: the page, which one receive fills at most [default: 64K]
    text("SIZE") ingest_page: Size;

    /// Ingest: most consumers at once; each has an equal share of the memory [default: 4]
    text("N") ingest_consumers: Count;

    /// Ingest: the longest message [default: what half a share holds, at most 16M]
    text("SIZE") ingest_message: Size;

    /// Ingest: every receive takes a page of its own, where otherwise short messages share one if
    /// the kernel can do that
    switch no_ingest_sharing;

    /// Network threads [default: 1]
    text("N") network_threads: Count;

    /// Fewest and most worker threads [default: 2..128]
    text("MIN..MAX") workers: Workers;

    /// Workers that the requests of one listener may occupy at a time; the others wait, so that a
    /// slow one leaves workers to the rest [default: no limit for one listener; for several, all
    /// but the others' part of a quarter]
    text("N") workers_per_listener: Count;

    /// How to talk to the kernel; auto takes io_uring where it works, and else epoll
    /// [default: auto]
    plain("DRIVER") driver: Driver;

    /// One accept for all connections, or one for each [default: multishot]
    plain("HOW") accept: Accept;

    /// Accept a connection at once, not with its first bytes (HTTP)
    switch no_defer_accept;

    /// Most connections at once [default: what the descriptor limit allows, at most 100000]
    text("N") max_connections: Count;

    /// Most connections at once of one IPv4 address or IPv6 /64. With as many, its own longest idle
    /// one is closed for its next one, or that is refused; 0 for no limit [default: 0]
    text("N") connections_per_address: Amount;

    /// Memory for the whole process, such as 256M: buffers, receive memory, caches, tables and
    /// threads. Only --ingest-memory and socket buffers of the kernel come beside it. Without
    /// --max-connections, connections take an eighth at most [default: 256M]
    text("SIZE") memory: Size;

    /// Serve files and directories whose names begin with a dot
    switch hidden;

    /// Longest time for which a small file is answered from memory without looking at it again,
    /// where looking may block, in seconds: on another mount than DIR's own, or if DIR is on a
    /// network or user-space file system [default: 1]
    text("SECONDS") stat_age: Seconds;

    /// HTTP: PUT makes and replaces files, with the rights of this process
    switch writable;

    /// HTTP: the longest file that PUT makes, such as 10G [default: 1T]
    text("SIZE") put_max: Size;

    /// HTTP: answer a PUT or a finished upload when data and directory are synced to the disk
    switch durable;

    /// HTTP: resumable uploads (tus) that may be unfinished at once [default: 1024]
    text("COUNT") uploads_max: Count;

    /// HTTP: bytes that all unfinished uploads may have together [default: half of the file system]
    text("SIZE") uploads_bytes: Size;

    /// HTTP: how long an unfinished upload is kept after its last byte, in seconds [default: 86400]
    text("SECONDS") upload_expires: Seconds;

    /// Longest time from accept, or from a request's first byte, to the end of its head, in seconds
    /// [default: 30]
    text("SECONDS") head_timeout: Seconds;

    /// Longest silence within a request's body, in seconds; on average it must bring 512 bytes a
    /// second beside that [default: 60]
    text("SECONDS") body_timeout: Seconds;

    /// Longest time between requests of one connection, in seconds [default: 75]
    text("SECONDS") idle_timeout: Seconds;

    /// Longest time in which a client takes nothing of what is sent to it, in seconds [default: 30]
    text("SECONDS") write_timeout: Seconds;

    /// Longest time to finish what is in flight after the first SIGTERM or SIGINT, in seconds
    /// [default: 30]
    text("SECONDS") drain_timeout: Seconds;
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
}

/// What one source of settings says, or else another.
trait OrOf {
    fn or_of(self, other: Self) -> Self;
}

impl<T> OrOf for Option<T> {
    fn or_of(self, other: Self) -> Self {
        self.or(other)
    }
}

impl<T> OrOf for Vec<T> {
    fn or_of(self, other: Self) -> Self {
        if self.is_empty() { other } else { self }
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

    #[expect(
        clippy::too_many_lines,
        reason = "every name once as a flag and once as a key"
    )]
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
            "--network-threads",
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
            "--uploads-bytes",
            "5G",
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
            network-threads = 2
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
            uploads-bytes = "5G"
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
    fn errors_have_the_text_that_was_given_and_what_is_accepted() {
        for (key, given, accepted) in [
            ("workers", "4..2", "MIN..MAX"),
            ("workers", "two", "MIN..MAX"),
            ("memory", "1T", "K, M or G"),
            ("memory", "99999999999999999999", "such as 256M"),
            ("put-max", "18446744073709551615K", "such as 256M"),
            ("ingest-page", "", "such as 256M"),
            ("network-threads", "0", "at least 1"),
            ("max-connections", "-1", "at least 1"),
            ("connections-per-address", "some", "0 for no limit"),
            ("http", "8080", "HOST:PORT"),
            ("nfs", "localhost", "HOST:PORT"),
            ("driver", "kqueue", "uring"),
            ("accept", "twice", "multishot"),
            ("nfs-allow", "10.0.0.0/33", "ADDRESS/BITS"),
            ("idle-timeout", "0", "0.001"),
            ("stat-age", "30s", "such as 30"),
            ("hidden", "yes", "bool"),
        ] {
            // A boolean of the file is no text, and the command line names its two values.
            let accepted_there = if accepted == "bool" {
                "true, false"
            } else {
                accepted
            };
            let argument = format!("--{key}={given}");
            let error = Line::try_parse_from(["test", &argument]).expect_err(&argument);
            let error = error.to_string();
            for part in [key, given, accepted_there] {
                assert!(error.contains(part), "{argument}: {error}");
            }
            let error = file(&format!("{key} = \"{given}\"")).expect_err(given);
            for part in [key, given, accepted] {
                assert!(error.contains(part), "{key} = {given}: {error}");
            }
        }
        for (text, accepted) in [
            ("idle-timeout = 0", "0.001"),
            ("max-connections = -1", "at least 1"),
            ("network-threads = [1]", "a number, or a text"),
            ("network-threads = true", "a number, or a text"),
            ("http = [1]", "a list of them"),
        ] {
            let error = file(text).expect_err(text);
            assert!(error.contains(text) && error.contains(accepted), "{error}");
        }
    }

    #[test]
    fn the_command_line_wins() {
        let line = line(&[
            "--http",
            "127.0.0.1:1",
            "--network-threads",
            "3",
            "--hidden=false",
        ]);
        let file =
            file("http = [\"127.0.0.1:2\"]\nnetwork-threads = 4\nhidden = true\nmemory = 4096");
        let both = line.or(file.expect("a good file"));
        assert_eq!(both.http, ["127.0.0.1:1".parse().expect("an address")]);
        assert_eq!(
            (both.network_threads, both.hidden),
            (Some(Count(3)), Some(false))
        );
        assert_eq!(both.memory, Some(Size(4_096)));
    }
}
