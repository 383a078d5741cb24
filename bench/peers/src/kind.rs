//! The candidates: every server that some scenario measures, and what each is started as.

use std::fmt;

use clap::ValueEnum;
use flatpath_bench_common::nginx::{AccessLog, Files};
use flatpath_bench_common::tools::{H2O, HAPROXY, LIGHTTPD, NGINX, Tool};

/// A server the bench can start. Its name is the one of the command line, in tables too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum Kind {
    /// nginx as Debian configures it for files: sendfile, one worker process.
    Nginx,
    /// The cheapest way found for a small file: no sendfile, descriptors kept open.
    NginxTuned,
    /// nginx as its manual tunes it for large files, sent and stored; over TLS also with HTTP/2.
    NginxLarge,
    /// lighttpd with `sendfile`.
    Lighttpd,
    /// h2o on one thread.
    H2o,
    /// nginx with its access log, a write for each line.
    NginxLog,
    /// The same with a buffer of 64 KiB.
    NginxLogBuffered,
    /// The `flatpath` command.
    Flatpath,
    /// The `flatpath` command on io_uring, whatever `--driver` says.
    FlatpathUring,
    /// The same on epoll.
    FlatpathEpoll,
    /// The `flatpath` command with `--access-log FILE`.
    FlatpathLog,
    /// The same with JSON lines.
    FlatpathLogJson,
    /// The `flatpath` command with `--admin`, which is asked for its metrics each second.
    FlatpathScraped,
    /// That with an access log, while many other connections do nothing.
    FlatpathOperated,
    /// A fixed reply through the library, on the network thread.
    FlatpathInline,
    /// The same reply through workers, so that it may block.
    FlatpathPooled,
    /// That on io_uring, whatever `--driver` says.
    PooledUring,
    /// That on epoll.
    PooledEpoll,
    /// `/sleep` through workers, the rest on the network thread.
    FlatpathRouted,
    /// JSON and SQLite by workers, on io_uring, whatever `--driver` says.
    RestUring,
    /// That on epoll.
    RestEpoll,
    /// The same work in axum: two tokio threads, and `spawn_blocking` for SQLite.
    RestAxum,
    /// The example `bookmarks` on io_uring, whatever `--driver` says.
    AppUring,
    /// That on epoll.
    AppEpoll,
    /// The same application in axum, and `spawn_blocking` for SQLite.
    AppAxum,
    /// An echo of WebSocket messages on io_uring, whatever `--driver` says.
    SocketsUring,
    /// That on epoll.
    SocketsEpoll,
    /// That by workers, so that a handler may block.
    SocketsPooled,
    /// The same in tokio-tungstenite, on one thread.
    SocketsTungstenite,
    /// Server-sent events to all on io_uring, whatever `--driver` says.
    SseUring,
    /// That on epoll.
    SseEpoll,
    /// axum's `Sse` over a tokio broadcast, on two tokio threads.
    SseAxum,
    /// hyper over tokio-rustls, on one tokio thread.
    HttpsHyper,
    /// nginx with HTTP/2, without `sendfile`.
    Http2Nginx,
    /// tokio and hyper on one thread.
    Hyper,
    /// Two tokio threads, and every request through `spawn_blocking`.
    HyperBlocking,
    /// The same, but only `/sleep` through `spawn_blocking`.
    HyperRouted,
    /// `tiny_http` with a fixed number of threads.
    TinyHttp,
    /// The `flatpath` command of `--before`.
    FlatpathBefore,
    /// The same server as the other row's, through the library of `--before-peers`.
    LibraryBefore,
    /// nfs-ganesha with its VFS back end.
    Ganesha,
    /// A tokio server that copies messages into the consumer's memory, on one thread.
    TokioCopying,
    /// The same on two threads.
    TokioCopyingTwo,
    /// A tokio server that reads straight into the consumer's memory, on one thread.
    TokioStraight,
    /// The Python transit relay.
    Python,
    /// socat.
    Socat,
    /// haproxy in TCP mode.
    Haproxy,
    /// nginx as a reverse proxy, with as many idle connections as the load has.
    ProxyNginx,
    /// haproxy as one, on one thread.
    ProxyHaproxy,
    /// The `flatpath` command as one on io_uring, whatever `--driver` says.
    ProxyUring,
    /// The same on epoll.
    ProxyEpoll,
    /// No relay: the least that any relay has to ask of the kernel.
    Bare,
}

impl fmt::Display for Kind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.to_possible_value();
        formatter.pad(value.as_ref().map_or("", |value| value.get_name()))
    }
}

/// What a candidate is started as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Program {
    /// nginx, which may have to be installed.
    Nginx(Files, AccessLog),
    /// The `flatpath` command, which may have to be built, with these arguments. `{state}` is the
    /// directory of what it keeps.
    Command(&'static [&'static str]),
    /// A server in this binary.
    Own,
    /// The `flatpath-peers` of another build.
    OwnBefore,
    /// A server with this configuration, whose places in braces are filled in.
    Configured(Tool, &'static str),
    Ganesha,
    Python,
    Socat,
    Haproxy,
}

impl Kind {
    /// What it is started as.
    pub(crate) fn program(self) -> Program {
        use Program::{Command, Nginx};
        const LOG: &str = "--access-log={state}/access.log";
        const ADMIN: &str = "--admin=127.0.0.1:0";
        match self {
            Self::Nginx => Nginx(Files::Debian, AccessLog::Off),
            Self::NginxTuned => Nginx(Files::Tuned, AccessLog::Off),
            Self::NginxLarge => Nginx(Files::Large, AccessLog::Off),
            Self::Lighttpd => {
                Program::Configured(LIGHTTPD, include_str!("candidates/lighttpd.conf"))
            }
            Self::H2o => Program::Configured(H2O, include_str!("candidates/h2o.yaml")),
            Self::NginxLog => Nginx(Files::Debian, AccessLog::Lines),
            Self::NginxLogBuffered => Nginx(Files::Debian, AccessLog::Buffered),
            Self::Http2Nginx => Nginx(Files::Streamed, AccessLog::Off),
            Self::Flatpath | Self::FlatpathBefore | Self::FlatpathUring | Self::FlatpathEpoll => {
                Command(&[])
            }
            Self::FlatpathLog => Command(&[LOG]),
            Self::FlatpathLogJson => Command(&[LOG, "--access-log-format=json"]),
            Self::FlatpathScraped => Command(&[ADMIN]),
            Self::FlatpathOperated => Command(&[LOG, ADMIN]),
            Self::ProxyUring | Self::ProxyEpoll => Command(&["--proxy=http://{upstream}"]),
            Self::ProxyNginx => {
                Program::Configured(NGINX, include_str!("candidates/proxy-nginx.conf"))
            }
            Self::ProxyHaproxy => {
                Program::Configured(HAPROXY, include_str!("candidates/proxy-haproxy.cfg"))
            }
            Self::LibraryBefore => Program::OwnBefore,
            Self::Ganesha => Program::Ganesha,
            Self::Python => Program::Python,
            Self::Socat => Program::Socat,
            Self::Haproxy => Program::Haproxy,
            _ => Program::Own,
        }
    }

    /// Whether it is the `flatpath` command.
    pub(crate) fn is_command(self) -> bool {
        matches!(self.program(), Program::Command(_))
    }

    /// Whether it is of the build that this one is compared with.
    pub(crate) fn is_before(self) -> bool {
        matches!(self, Self::LibraryBefore | Self::FlatpathBefore)
    }

    /// The driver that it is about, whatever `--driver` says: its name ends with it.
    pub(crate) fn driver(self) -> Option<&'static str> {
        let name = self.to_string();
        let mut drivers = ["uring", "epoll"].into_iter();
        drivers.find(|driver| name.ends_with(&format!("-{driver}")))
    }

    /// Whether nginx is told to speak HTTP/2: without TLS it then speaks nothing else.
    pub(crate) fn speaks_http2(self, is_secured: bool) -> bool {
        self == Self::Http2Nginx || (self == Self::NginxLarge && is_secured)
    }

    /// Whether it writes an access log.
    pub(crate) fn logs(self) -> bool {
        match self.program() {
            Program::Nginx(_, log) => log != AccessLog::Off,
            Program::Command(arguments) => {
                arguments.iter().any(|it| it.starts_with("--access-log="))
            }
            _ => false,
        }
    }
}
