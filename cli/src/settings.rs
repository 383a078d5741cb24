//! The settings of `serve`, once for the command line and for the configuration file.
//!
//! The file has the long names of the flags, and `dir`: `max-connections = 1000`. The command
//! line's parser reads each of its values, so names, values and errors are the same in both places,
//! and a misspelled limit is an error. What the command line sets replaces what the file sets.

use std::fmt::Display;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{ArgMatches, Args, CommandFactory, FromArgMatches, Parser, ValueEnum};
use flatpath_nfs::Network;
use toml_span::Value;
use toml_span::value::ValueInner;

use crate::failure::Failure;
use crate::units::{address, count, delay, size, time, workers};

/// Largest configuration file that is read, in bytes.
const CONFIG_BYTES_MAX: u64 = 1 << 20;

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
    #[arg(long, help_heading = LISTENERS, value_delimiter = ',', alias = "port", short_alias = 'p', value_name = "ADDR", value_parser = address)]
    pub(crate) http: Vec<SocketAddr>,

    /// Serve files and directories whose names begin with a dot
    #[arg(long, help_heading = HTTP, require_equals = true, hide_possible_values = true, value_name = "BOOL")]
    pub(crate) hidden: Option<Option<bool>>,

    /// Longest time to answer a small file from memory without checking it again, where a
    /// check may block: on another mount than DIR's own, or if DIR is on a network or user-space
    /// file system [default: 1s]
    #[arg(long, help_heading = HTTP, hide_short_help = true, value_name = "TIME", value_parser = time)]
    pub(crate) stat_age: Option<Duration>,

    /// Let PUT create and replace files, with the rights of this process
    #[arg(long, help_heading = HTTP, require_equals = true, hide_possible_values = true, value_name = "BOOL")]
    pub(crate) writable: Option<Option<bool>>,

    /// Longest file that PUT creates, such as 10G [default: 1T]
    #[arg(long, help_heading = HTTP, hide_short_help = true, value_name = "SIZE", value_parser = size::<u64>)]
    pub(crate) put_max: Option<u64>,

    /// Answer a PUT or a finished upload after syncing data and directory to the disk
    #[arg(long, help_heading = HTTP, hide_short_help = true, require_equals = true, hide_possible_values = true, value_name = "BOOL")]
    pub(crate) durable: Option<Option<bool>>,

    /// Most unfinished resumable uploads (tus) at once [default: 1024]
    #[arg(long, help_heading = HTTP, hide_short_help = true, value_name = "N", value_parser = count::<usize>)]
    pub(crate) uploads_max: Option<usize>,

    /// Most bytes of all unfinished uploads together [default: half of the file system]
    #[arg(long, help_heading = HTTP, hide_short_help = true, value_name = "SIZE", value_parser = size::<u64>)]
    pub(crate) uploads_bytes: Option<u64>,

    /// Time to keep an unfinished upload after its last byte [default: 1day]
    #[arg(long, help_heading = HTTP, hide_short_help = true, value_name = "TIME", value_parser = time)]
    pub(crate) upload_expires: Option<Duration>,

    /// Accept a connection at once, not with its first bytes
    #[arg(long, help_heading = HTTP, hide_short_help = true, require_equals = true, hide_possible_values = true, value_name = "BOOL")]
    pub(crate) no_defer_accept: Option<Option<bool>>,

    /// Echo at this address: send back what is received; may be repeated
    #[arg(long, help_heading = LISTENERS, value_delimiter = ',', value_name = "ADDR", value_parser = address)]
    pub(crate) echo: Vec<SocketAddr>,

    /// Relay at this address: connect two clients that name the same token, by the protocol of the
    /// magic-wormhole transit relay; may be repeated
    #[arg(long, help_heading = LISTENERS, value_delimiter = ',', value_name = "ADDR", value_parser = address)]
    pub(crate) relay: Vec<SocketAddr>,

    /// Most clients that may wait for their partner, at most half of the connections
    /// [default: 50000]
    #[arg(long, help_heading = RELAY, hide_short_help = true, value_name = "N", value_parser = count::<u32>)]
    pub(crate) relay_waiting: Option<u32>,

    /// Longest time to wait for a partner [default: 10m]
    #[arg(long, help_heading = RELAY, hide_short_help = true, value_name = "TIME", value_parser = time)]
    pub(crate) relay_wait: Option<Duration>,

    /// Longest time that a connected pair may send nothing [default: 1h]
    #[arg(long, help_heading = RELAY, hide_short_help = true, value_name = "TIME", value_parser = time)]
    pub(crate) relay_idle: Option<Duration>,

    /// Export DIR over NFSv3 at this address: mount with port= and mountport=. Port 0 picks a free
    /// one
    #[arg(long, help_heading = LISTENERS, value_name = "ADDR", value_parser = address)]
    pub(crate) nfs: Option<SocketAddr>,

    /// Refuse every change
    #[arg(long, help_heading = NFS, require_equals = true, hide_possible_values = true, value_name = "BOOL")]
    pub(crate) read_only: Option<Option<bool>>,

    /// A client's root is root here, instead of the anonymous user
    #[arg(long, help_heading = NFS, hide_short_help = true, require_equals = true, hide_possible_values = true, value_name = "BOOL")]
    pub(crate) no_root_squash: Option<Option<bool>>,

    /// Serve only clients of this network, such as 10.0.0.0/8; may be repeated [default: all]
    #[arg(long, help_heading = NFS, value_delimiter = ',', value_name = "CIDR")]
    pub(crate) nfs_allow: Vec<Network>,

    /// Serve only clients that come from a port below 1024
    #[arg(long, help_heading = NFS, hide_short_help = true, require_equals = true, hide_possible_values = true, value_name = "BOOL")]
    pub(crate) nfs_secure_ports: Option<Option<bool>>,

    /// Register with the rpcbind of this machine, for clients that ask it for the ports
    #[arg(long, help_heading = NFS, hide_short_help = true, require_equals = true, hide_possible_values = true, value_name = "BOOL")]
    pub(crate) nfs_register: Option<Option<bool>>,

    /// Directory of the file handles' key, so that handles outlive the server; not below DIR
    /// [default: /var/lib/flatpath for root, else ~/.local/state/flatpath]
    #[arg(long, help_heading = NFS, hide_short_help = true, value_name = "DIR")]
    pub(crate) nfs_state: Option<PathBuf>,

    /// Ingest at this address: deliver length-prefixed messages to processes that attach at
    /// --ingest-socket. Port 0 picks a free one
    #[arg(long, help_heading = LISTENERS, value_name = "ADDR", value_parser = address)]
    pub(crate) ingest: Option<SocketAddr>,

    /// The Unix socket where consumers attach; only this user may open it
    #[arg(long, help_heading = INGEST, value_name = "PATH")]
    pub(crate) ingest_socket: Option<PathBuf>,

    /// Receive memory of each network thread, in addition to --memory; a power of two times
    /// the page [default: 256M]
    #[arg(long, help_heading = INGEST, hide_short_help = true, value_name = "SIZE", value_parser = size::<u64>)]
    pub(crate) ingest_memory: Option<u64>,

    /// Size of a page; one receive fills at most one [default: 64K]
    #[arg(long, help_heading = INGEST, hide_short_help = true, value_name = "SIZE", value_parser = size::<u32>)]
    pub(crate) ingest_page: Option<u32>,

    /// Most consumers at once, each with an equal share of the memory [default: 4]
    #[arg(long, help_heading = INGEST, hide_short_help = true, value_name = "N", value_parser = count::<u32>)]
    pub(crate) ingest_consumers: Option<u32>,

    /// Longest message [default: what half a share holds, at most 16M]
    #[arg(long, help_heading = INGEST, hide_short_help = true, value_name = "SIZE", value_parser = size::<u32>)]
    pub(crate) ingest_message: Option<u32>,

    /// Give every receive a page of its own. By default short messages share a page where
    /// the kernel supports it
    #[arg(long, help_heading = INGEST, hide_short_help = true, require_equals = true, hide_possible_values = true, value_name = "BOOL")]
    pub(crate) no_ingest_sharing: Option<Option<bool>>,

    /// Network threads [default: 1]
    #[arg(long, help_heading = ENGINE, value_name = "N", value_parser = count::<usize>)]
    pub(crate) network_threads: Option<usize>,

    /// Fewest and most worker threads [default: 2..128]
    #[arg(long, help_heading = ENGINE, value_name = "MIN..MAX", value_parser = workers)]
    pub(crate) workers: Option<RangeInclusive<u32>>,

    /// Most workers that the requests of one listener may occupy at once; its other requests wait,
    /// so that a slow listener leaves workers to the rest [default: no limit for one listener; for
    /// several, all but the others' part of a quarter]
    #[arg(long, help_heading = ENGINE, hide_short_help = true, value_name = "N", value_parser = count::<u32>)]
    pub(crate) workers_per_listener: Option<u32>,

    /// Kernel interface; auto uses io_uring where it works, and otherwise epoll [default: auto]
    #[arg(long, help_heading = ENGINE, value_name = "DRIVER")]
    pub(crate) driver: Option<Driver>,

    /// One accept operation for all connections, or one for each [default: multishot]
    #[arg(long, help_heading = ENGINE, hide_short_help = true, value_name = "HOW")]
    pub(crate) accept: Option<Accept>,

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
    #[arg(long, help_heading = LIMITS, hide_short_help = true, value_name = "TIME", value_parser = time)]
    pub(crate) head_timeout: Option<Duration>,

    /// Longest silence within a request's body, which must also bring 512 bytes a second on average
    /// [default: 60s]
    #[arg(long, help_heading = LIMITS, hide_short_help = true, value_name = "TIME", value_parser = time)]
    pub(crate) body_timeout: Option<Duration>,

    /// Longest time between two requests of one connection [default: 75s]
    #[arg(long, help_heading = LIMITS, hide_short_help = true, value_name = "TIME", value_parser = time)]
    pub(crate) idle_timeout: Option<Duration>,

    /// Longest time in which a client reads nothing of what is sent to it [default: 30s]
    #[arg(long, help_heading = LIMITS, hide_short_help = true, value_name = "TIME", value_parser = time)]
    pub(crate) write_timeout: Option<Duration>,

    /// From the first SIGTERM or SIGINT on still accept connections for so long, and say with each
    /// reply that it is the last: until whoever sends clients has learned of it [default: 0]
    #[arg(long, help_heading = LIMITS, hide_short_help = true, value_name = "TIME", value_parser = delay)]
    pub(crate) drain_delay: Option<Duration>,

    /// Longest time that a drain leaves a connection without a request open: the request may be on
    /// its way [default: 500ms]
    #[arg(long, help_heading = LIMITS, hide_short_help = true, value_name = "TIME", value_parser = time)]
    pub(crate) drain_idle_timeout: Option<Duration>,

    /// Longest time to finish requests in flight once the server drains [default: 30s]
    #[arg(long, help_heading = LIMITS, hide_short_help = true, value_name = "TIME", value_parser = time)]
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

/// A command line of settings alone.
#[derive(Debug, Default, Parser)]
#[command(no_binary_name = true, disable_help_flag = true)]
struct Line {
    #[command(flatten)]
    settings: Settings,
}

impl Settings {
    /// Reads a configuration file.
    pub(crate) fn from_file(path: &Path) -> Result<Self, Failure> {
        let wrong = |cause: &dyn Display| {
            Failure::WrongUse(format!("--config {}: {cause}", path.display()))
        };
        let size = std::fs::metadata(path)
            .map_err(|cause| wrong(&cause))?
            .len();
        if size > CONFIG_BYTES_MAX {
            return Err(wrong(&format!(
                "it is larger than {CONFIG_BYTES_MAX} bytes"
            )));
        }
        let text = std::fs::read_to_string(path).map_err(|cause| wrong(&cause))?;
        Self::from_text(&text).map_err(|cause| wrong(&cause))
    }

    fn from_text(text: &str) -> Result<Self, String> {
        let document = toml_span::parse(text).map_err(|error| {
            let (line, column) = place(text, error.span.start);
            let shown = text.lines().nth(line - 1).unwrap_or_default();
            format!("line {line}, column {column}: {error}: {shown}")
        })?;
        let mut file = Line::default();
        for (name, value) in document.as_table().into_iter().flatten() {
            let (line, _) = place(text, name.span.start);
            let read = arguments(&name.name, value)
                .and_then(|arguments| file.try_update_from(arguments).map_err(in_short));
            read.map_err(|cause| format!("line {line}: {cause}"))?;
        }
        Ok(file.settings)
    }

    /// These settings, but for those that the command line sets.
    pub(crate) fn replaced_by(mut self, command_line: &ArgMatches) -> Self {
        self.update_from_arg_matches(command_line)
            .expect("it was read before");
        self
    }
}

/// A setting of the file as the command line has it: an argument for each value.
fn arguments(name: &str, value: &Value<'_>) -> Result<Vec<String>, String> {
    // Of an argument, the identity is its name with underscores.
    if name.contains('_')
        && Line::command()
            .get_arguments()
            .any(|it| it.get_id() == name)
    {
        return Err(format!("{name}: write {}", name.replace('_', "-")));
    }
    let values = value
        .as_array()
        .map_or(std::slice::from_ref(value), Vec::as_slice);
    let mut arguments = Vec::new();
    for value in values {
        let value = match value.as_ref() {
            ValueInner::String(text) => text.to_string(),
            ValueInner::Integer(number) => number.to_string(),
            ValueInner::Float(number) => number.to_string(),
            ValueInner::Boolean(switch) => switch.to_string(),
            _ => {
                return Err(format!(
                    "{name} is no table and no list of lists: write {name} = VALUE, or \
                     {name} = [VALUE, VALUE]"
                ));
            }
        };
        match name {
            "dir" => arguments.extend(["--".into(), value]),
            _ => arguments.push(format!("--{name}={value}")),
        }
    }
    Ok(arguments)
}

/// Line and column of a byte, from 1.
fn place(text: &str, byte: usize) -> (usize, usize) {
    let before = text.get(..byte).unwrap_or(text);
    let start = before.rfind('\n').map_or(0, |end| end + 1);
    (
        1 + before.matches('\n').count(),
        1 + before[start..].chars().count(),
    )
}

/// Without what concerns the command line as a whole.
fn in_short(error: clap::Error) -> String {
    let text = error.to_string();
    let text = text.strip_prefix("error: ").unwrap_or(&text);
    let end = text.find("\n\nUsage").unwrap_or(text.len());
    text[..end].trim_end().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(arguments: &[&str]) -> Settings {
        let line = Line::try_parse_from(arguments).expect("a good command line");
        line.settings
    }

    fn file(text: &str) -> Result<Settings, String> {
        Settings::from_text(text)
    }

    #[test]
    fn flags_and_file_say_the_same_in_the_same_words() {
        let by_line = "site --http 127.0.0.1:80 --http [::1]:0 --echo 127.0.0.1:7 \
            --relay 127.0.0.1:4001 --relay-waiting 9 --relay-wait 60 \
            --relay-idle 61 --nfs 127.0.0.1:2049 --read-only=true \
            --no-root-squash=true --nfs-allow 10.0.0.0/8 \
            --nfs-allow ::1 --nfs-secure-ports=true \
            --nfs-register=true --nfs-state /state --ingest 127.0.0.1:9000 \
            --ingest-socket /run/ingest --ingest-memory 64M \
            --ingest-page 32K --ingest-consumers 2 --ingest-message 1M \
            --no-ingest-sharing=true --network-threads 2 --workers 2..64 \
            --workers-per-listener 32 --driver epoll --accept single \
            --no-defer-accept=true --max-connections 1000 \
            --connections-per-address 0 --memory 64M --hidden=true \
            --stat-age 0.25 --writable=true --put-max 2G \
            --durable=true --uploads-max 9 --uploads-bytes 5G \
            --upload-expires 3600 --head-timeout 5 --body-timeout 6 \
            --idle-timeout 0.5 --write-timeout 7 --drain-timeout 8 \
            --drain-delay 0 --drain-idle-timeout 9";
        let by_line = line(&by_line.split(' ').collect::<Vec<_>>());
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
            drain-delay = 0
            drain-idle-timeout = 9
            "#,
        );
        assert_eq!(by_file, Ok(by_line));
    }

    #[test]
    fn the_file_has_the_names_of_the_flags_and_no_others() {
        for argument in Line::command().get_arguments() {
            let name = argument.get_id().as_str().replace('_', "-");
            for value in [
                "1",
                "true",
                "\"127.0.0.1:1\"",
                "\"::1\"",
                "\"auto\"",
                "\"single\"",
            ] {
                if file(&format!("{name} = {value}")).is_ok() {
                    break;
                }
                assert_ne!(value, "\"single\"", "{name} takes no value");
            }
        }
        for text in [
            "no-such-flag = 1",
            "max_connections = 1",
            "config = \"x\"",
            "help = true",
            "help = \"\"",
            "version = true",
            "[http]",
            "http = [[\"127.0.0.1:1\"]]",
            "dir = [\"a\", \"b\"]",
            "resp = \"127.0.0.1:1\"",
        ] {
            assert!(file(text).is_err(), "{text}");
        }
        let odd = file("dir = \"--hidden\"").map(|settings| settings.dir);
        assert_eq!(odd, Ok(Some("--hidden".into())), "a value is never a flag");
    }

    #[test]
    fn help_is_grouped_by_topic_and_short_where_asked_for() {
        for argument in Line::command().get_arguments() {
            let has_topic = argument.get_help_heading().is_some();
            assert_eq!(
                has_topic,
                argument.get_id() != "dir",
                "{}",
                argument.get_id()
            );
        }
        let lines = |help: String| help.lines().count();
        let short = lines(Line::command().render_help().to_string());
        let long = lines(Line::command().render_long_help().to_string());
        assert!(short < 50 && long > 100, "{short} and {long} lines");
    }

    #[test]
    fn errors_have_the_text_that_was_given_and_what_is_accepted() {
        for (key, given, accepted) in [
            ("workers", "4..2", "MIN..MAX"),
            ("workers", "two", "MIN..MAX"),
            ("memory", "1Q", "K, M, G or T"),
            ("memory", "99999999999999999999", "such as 256M"),
            ("put-max", "18446744073709551615K", "such as 256M"),
            ("ingest-page", "", "SIZE"),
            ("ingest-page", "5120G", "at most 4294967295 bytes"),
            ("ingest-message", "5120G", "at most 4294967295 bytes"),
            ("ingest-consumers", "1099511627776", "at most 4294967295"),
            ("network-threads", "0", "at least 1"),
            ("max-connections", "-1", "at least 1"),
            ("connections-per-address", "some", "invalid digit"),
            ("http", "8080x", "HOST:PORT"),
            ("nfs", "localhost", "HOST:PORT"),
            ("driver", "kqueue", "uring"),
            ("accept", "twice", "multishot"),
            ("nfs-allow", "10.0.0.0/33", "ADDRESS/BITS"),
            ("idle-timeout", "0", "1ms"),
            ("stat-age", "30x", "such as 30"),
            ("hidden", "yes", "true, false"),
        ] {
            let argument = format!("--{key}={given}");
            let error = Line::try_parse_from([&argument]).expect_err(&argument);
            let error = error.to_string();
            for part in [key, given, accepted] {
                assert!(error.contains(part), "{argument}: {error}");
            }
            let error = file(&format!("\n{key} = \"{given}\"")).expect_err(given);
            for part in ["line 2: ", key, given, accepted] {
                assert!(error.contains(part), "{key} = {given}: {error}");
            }
        }
        for (text, parts) in [
            ("idle-timeout = 0", ["'0'", "1ms"]),
            ("max-connections = -1", ["'-1'", "at least 1"]),
            (
                "network-threads = [1, 2]",
                ["network-threads", "multiple times"],
            ),
            ("network-threads = true", ["'true'", "at least 1"]),
            ("http = [true]", ["'true'", "HOST:PORT"]),
            (
                "memory = { size = 1 }",
                ["memory is no table", "write memory = VALUE"],
            ),
            (
                "[http]\nport = 1",
                ["http is no table", "write http = VALUE"],
            ),
            ("max_connections = 1", ["line 1", "write max-connections"]),
            ("\nmemory = 1 2", ["memory = 1 2", "line 2, column 12"]),
        ] {
            let error = file(text).expect_err(text);
            for part in parts {
                assert!(error.contains(part), "{text}: {error}");
            }
        }
    }

    #[test]
    fn the_command_line_replaces_what_the_file_sets() {
        let arguments = [
            "--http=127.0.0.1:1",
            "--network-threads=3",
            "--hidden=false",
            "--durable",
        ];
        let matches = Line::command().get_matches_from(arguments);
        let file = file(
            "http = [\"127.0.0.1:2\"]\nnetwork-threads = 4\nhidden = true\nmemory = 4096\n\
             writable = true\ndurable = false",
        );
        let both = file.expect("a good file").replaced_by(&matches);
        assert_eq!(both.http, ["127.0.0.1:1".parse().expect("an address")]);
        assert_eq!((both.network_threads, both.memory), (Some(3), Some(4_096)));
        let switches = [both.hidden, both.durable, both.writable, both.read_only];
        assert_eq!(switches.map(is_on), [false, true, true, false]);
    }
}
