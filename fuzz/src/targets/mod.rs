//! The targets, one module each.

mod http;
mod rpc;
mod nfs;
mod nfs_exports;
mod rule_files;
mod password_files;
mod ingest;
mod relay;
mod ranges;
mod proxy_header;
mod multipart;
mod uploads;
mod tls;
mod websocket;

/// One target.
#[derive(Debug)]
pub struct Target {
    /// Also the name of its folder of seeds and of its libFuzzer program.
    pub name: &'static str,
    /// Panics when a promise is broken.
    pub body: fn(&[u8]),
    /// Mutations that `cargo test` tries.
    pub mutations: u64,
}

/// All targets.
pub const TARGETS: &[Target] = &[
    Target {
        name: "http_requests",
        body: http::requests::run,
        mutations: 20_000,
    },
    Target {
        name: "http_connection",
        body: http::connection::run,
        mutations: 2_000,
    },
    Target {
        name: "http2_frames",
        body: http::frames::run,
        mutations: 10_000,
    },
    Target {
        name: "hpack_blocks",
        body: http::hpack::run,
        mutations: 20_000,
    },
    Target {
        name: "rpc_records",
        body: rpc::run,
        mutations: 20_000,
    },
    Target {
        name: "nfs_arguments",
        body: nfs::run,
        mutations: 20_000,
    },
    Target {
        name: "nfs_exports",
        body: nfs_exports::run,
        mutations: 20_000,
    },
    Target {
        name: "rule_files",
        body: rule_files::run,
        mutations: 10_000,
    },
    Target {
        name: "password_files",
        body: password_files::run,
        mutations: 4_000,
    },
    Target {
        name: "ingest_handshake",
        body: ingest::run,
        mutations: 20_000,
    },
    Target {
        name: "relay_handshake",
        body: relay::run,
        mutations: 2_000,
    },
    Target {
        name: "ranges",
        body: ranges::run,
        mutations: 20_000,
    },
    Target {
        name: "proxy_header",
        body: proxy_header::run,
        mutations: 10_000,
    },
    Target {
        name: "tls_records",
        body: tls::run,
        mutations: 1_000,
    },
    Target {
        name: "multipart_forms",
        body: multipart::run,
        mutations: 1_000,
    },
    Target {
        name: "uploads",
        body: uploads::run,
        mutations: 1_000,
    },
    Target {
        name: "websocket_frames",
        body: websocket::run,
        mutations: 20_000,
    },
];
