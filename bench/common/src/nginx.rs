//! The configuration nginx runs with.
//!
//! One worker process, no access log unless it is asked for, connections that last: what the
//! others do too. Everything nginx writes goes into a directory of its own.
//!
//! | files | says | why |
//! |---|---|---|
//! | Debian | `sendfile on; tcp_nopush on` | the package's own; the competitor of the targets |
//! | streamed | `sendfile off` | with it HTTP/2 without TLS waits 40 ms for each reply |
//! | stored | `dav_methods PUT` | the package's own |
//! | large | `sendfile on; tcp_nopush on; open_file_cache`; PUT by 1 MiB | as its manual says |
//! | tuned | `sendfile off; open_file_cache` | the cheapest found for a file of 1 KiB: one write |
//!
//! Over TLS: versions 1.2 and 1.3, sessions in tickets and none in a cache. All else is as nginx
//! has it by default.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::{fs, io};

use crate::tools::NGINX;
use flatpath_testkit::child;

/// Path of the fixed reply, answered by `return 200`.
pub const HELLO_PATH: &str = "/hello";
/// Body of the fixed reply of every server.
pub const HELLO_BODY: &str = "Hello, World!";
/// nginx closes idle connections once fewer than a sixteenth of its places are free, and needs
/// some for listeners and logs.
const PLACES_PER_CONNECTION: u32 = 2;
const SPARE_PLACES: u32 = 64;

/// The connections for which nginx gets this many places.
pub const fn connections_of(places: u32) -> u32 {
    (places - SPARE_PLACES) / PLACES_PER_CONNECTION
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Files {
    /// As the package does.
    Debian,
    /// As the package does, but for what makes each reply of HTTP/2 wait.
    Streamed,
    /// As cheaply as nginx can a small one.
    Tuned,
    /// Sent as the package does, and stored by PUT.
    Stored,
    /// As cheaply as nginx can large ones, sent and stored.
    Large,
}

/// Its access log, in the combined format, in [`ACCESS_LOG`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessLog {
    Off,
    /// Each line is written by itself, as the package does.
    Lines,
    /// As many lines as fit, and those of a second at the latest.
    Buffered,
}

/// The file of the access log in nginx' directory.
pub const ACCESS_LOG: &str = "access.log";

/// A certificate and its key, in PEM.
#[derive(Clone, Copy, Debug)]
pub struct Tls<'a> {
    pub certificate: &'a Path,
    pub key: &'a Path,
}

pub struct Config<'a> {
    /// For everything nginx writes.
    pub directory: &'a Path,
    pub documents: &'a Path,
    pub address: SocketAddr,
    /// How many connections must be possible.
    pub connections: u32,
    pub files: Files,
    pub access_log: AccessLog,
    /// Serves over TLS alone.
    pub tls: Option<Tls<'a>>,
    /// Serves HTTP/2: without TLS that alone.
    pub http2: bool,
    /// More lines of its `server` block.
    pub server: &'a str,
}

impl Config<'_> {
    /// Writes the configuration: the command that starts nginx with it on these cores.
    pub fn command(&self, cores: &[usize]) -> io::Result<Command> {
        let file = self.directory.join("nginx.conf");
        fs::write(&file, self.render())?;
        let mut command = child::command(NGINX.find()?, cores);
        command.args(["-e", "stderr", "-p"]).arg(self.directory);
        command.arg("-c").arg(&file);
        Ok(command)
    }

    fn render(&self) -> String {
        let directory = self.directory.display();
        let documents = self.documents.display();
        let (address, server) = (self.address, self.server);
        // As root its worker must be root too, to read the documents.
        let is_root = rustix::process::geteuid().is_root();
        let user = if is_root { "user root;\n" } else { "" };
        let places = self.connections * PLACES_PER_CONNECTION + SPARE_PLACES;
        let descriptors = places * 2;
        let files = match self.files {
            Files::Debian => "    sendfile on;\n    tcp_nopush on;\n",
            Files::Streamed => "    sendfile off;\n",
            Files::Stored => "    dav_methods PUT;\n    client_max_body_size 0;\n",
            Files::Large => {
                "    sendfile on;\n    tcp_nopush on;\n    open_file_cache max=1000 \
                 inactive=10m;\n    open_file_cache_valid 10m;\n    dav_methods PUT;\n    \
                 client_max_body_size 0;\n    client_body_buffer_size 1m;\n"
            }
            Files::Tuned => {
                "    sendfile off;\n    open_file_cache max=1000 inactive=10m;\n    \
                 open_file_cache_valid 10m;\n"
            }
        };
        let log = format!("\"{directory}/{ACCESS_LOG}\" combined");
        let access_log = match self.access_log {
            AccessLog::Off => "off".to_owned(),
            AccessLog::Lines => log,
            AccessLog::Buffered => format!("{log} buffer=64k flush=1s"),
        };
        let (ssl, tls) = match self.tls {
            None => ("", String::new()),
            Some(tls) => (" ssl", tls.render()),
        };
        let http2 = if self.http2 { " http2" } else { "" };
        let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .iter()
            .map(|name| format!("    {name}_temp_path \"{directory}/{name}\";\n"))
            .collect();
        format!(
            "{user}daemon off;
worker_processes 1;
worker_rlimit_nofile {descriptors};
pid \"{directory}/nginx.pid\";
error_log stderr warn;
events {{
    use epoll;
    worker_connections {places};
}}
http {{
{temporary}    access_log {access_log};
    server_tokens off;
{files}    keepalive_requests 1000000000;
    keepalive_timeout 600s;
    types {{ text/plain txt; }}
    default_type application/octet-stream;
    server {{
        listen {address}{ssl}{http2} backlog=4096;
{tls}        root \"{documents}\";
        location = {HELLO_PATH} {{
            default_type text/plain;
            return 200 \"{HELLO_BODY}\";
        }}
{server}    }}
}}
"
        )
    }
}

impl Tls<'_> {
    fn render(&self) -> String {
        let (certificate, key) = (self.certificate.display(), self.key.display());
        format!(
            "        ssl_certificate \"{certificate}\";
        ssl_certificate_key \"{key}\";
        ssl_protocols TLSv1.2 TLSv1.3;
        ssl_session_tickets on;
        ssl_session_cache off;
"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(files: Files) -> String {
        Config {
            directory: Path::new("/tmp/with space"),
            documents: Path::new("/srv"),
            address: SocketAddr::from(([127, 0, 0, 1], 8080)),
            connections: 200,
            files,
            access_log: AccessLog::Off,
            tls: None,
            http2: false,
            server: "",
        }
        .render()
    }

    #[test]
    fn the_configuration_says_what_the_table_claims() {
        let text = config(Files::Debian);
        for line in [
            "worker_processes 1;",
            "access_log off;",
            "sendfile on;",
            "keepalive_requests 1000000000;",
            "worker_connections 464;",
            "listen 127.0.0.1:8080 backlog=4096;",
            "pid \"/tmp/with space/nginx.pid\";",
            "return 200 \"Hello, World!\";",
        ] {
            assert!(text.contains(line), "{line} is missing in\n{text}");
        }
        assert!(!text.contains("open_file_cache"));
        assert_eq!(text.matches('{').count(), text.matches('}').count());
    }

    #[test]
    fn the_tuned_configuration_keeps_files_open_and_sends_them_in_one_write() {
        let text = config(Files::Tuned);
        assert!(text.contains("open_file_cache max=1000"));
        assert!(text.contains("    sendfile off;\n") && !text.contains("tcp_nopush"));
    }

    #[test]
    fn what_is_served_over_tls_has_a_certificate() {
        let text = config(Files::Debian);
        assert!(!text.contains("ssl"), "{text}");
        let (certificate, key) = (Path::new("/tmp/a pair/c"), Path::new("/tmp/a pair/k"));
        let text = Tls { certificate, key }.render();
        assert!(
            text.contains("ssl_certificate \"/tmp/a pair/c\";"),
            "{text}"
        );
        assert!(
            text.contains("ssl_certificate_key \"/tmp/a pair/k\";"),
            "{text}"
        );
    }

    #[test]
    fn only_what_serves_http2_says_so() {
        let address = SocketAddr::from(([127, 0, 0, 1], 8080));
        let text = |http2| {
            let config = Config {
                directory: Path::new("/tmp/x"),
                documents: Path::new("/srv"),
                address,
                connections: 200,
                files: Files::Debian,
                access_log: AccessLog::Off,
                tls: None,
                http2,
                server: "",
            };
            config.render()
        };
        assert!(text(true).contains("listen 127.0.0.1:8080 http2 backlog"));
        assert!(!text(false).contains("http2"));
    }

    #[test]
    fn nginx_itself_accepts_the_configuration() {
        let directory = tempfile::tempdir().expect("temporary directory");
        let config = Config {
            directory: directory.path(),
            documents: directory.path(),
            // Port 0 is refused by nginx; `-t` does not bind.
            address: SocketAddr::from(([127, 0, 0, 1], 8089)),
            connections: 200,
            files: Files::Tuned,
            access_log: AccessLog::Buffered,
            tls: None,
            http2: false,
            server: "",
        };
        // Without nginx there is nothing to ask; a bench then names the package.
        let Ok(mut command) = config.command(&[]) else {
            return;
        };
        let output = command.arg("-t").output().expect("nginx runs");
        let log = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{log}");
    }
}
