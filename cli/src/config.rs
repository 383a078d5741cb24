//! The configuration file of `serve`.
//!
//! It has the long names of the flags, and `dir`: `max-connections = 1000`. What the command line
//! sets replaces what the file sets.

use std::fmt::Display;
use std::path::Path;

use clap::{ArgMatches, CommandFactory, FromArgMatches, Parser};
use toml_span::Value;
use toml_span::value::ValueInner;

use crate::failure::Failure;
use crate::settings::Settings;

/// Largest configuration file that is read, in bytes.
const CONFIG_BYTES_MAX: u64 = 1 << 20;

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
    use crate::settings::is_on;

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
            --no-root-squash=true --nfs-allow 10.0.0.0/8 --nfs-allow ::1 --nfs-secure-ports=true \
            --nfs-register=true --nfs-state /state --ingest 127.0.0.1:9000 \
            --ingest-socket /run/ingest --ingest-memory 64M \
            --ingest-page 32K --ingest-consumers 2 --ingest-message 1M \
            --no-ingest-sharing=true --network-threads 2 --workers 2..64 \
            --workers-per-listener 32 --driver epoll --accept single \
            --no-defer-accept=true --proxy-from 10.0.0.0/8,::1 --max-connections 1000 \
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
            proxy-from = ["10.0.0.0/8", "::1"]
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
            ("proxy-from", "balancer", "ADDRESS/BITS"),
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
