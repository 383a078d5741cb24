//! HTTP as clients and proxies speak it: versions, TLS, WebSockets, refusals.
#![forbid(unsafe_code)]

mod acme;
mod acme_orders;
mod attacks;
mod behind_nginx;
mod behind_proxy;
mod cross_origin;
mod early_refusals;
mod first_page;
mod header_names;
mod health;
mod hosts;
mod http2;
mod http2_clients;
mod log_lines;
mod logged_requests;
mod pipelining;
mod proxied;
mod proxied_tls;
mod proxied_upgrades;
mod refusals;
mod resets;
mod slow;
mod tls;
mod tls_clients;
mod tls_keys;
mod websocket;
#[path = "../../../protocols/websocket/tests/it/frames.rs"]
mod websocket_frames;
mod websocket_streams;
mod wide_sockets;
