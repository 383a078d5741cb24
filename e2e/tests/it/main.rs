//! The program as users run it, with real clients: one binary, so that it is linked once.
//! What counts allocations or takes most of the machine is in `alone`, beside this folder.
mod access_log;
mod acme;
mod activation;
mod addresses;
mod admin;
mod attacks;
mod behind_nginx;
mod behind_proxy;
mod bench;
mod by_address;
mod command;
mod configuration;
mod cross_origin;
mod dashboards;
mod deadlines;
mod descriptors;
mod directories;
mod download;
mod drain;
mod early_refusals;
mod echo;
mod file_errors;
mod file_systems;
mod files;
mod first_page;
mod h2_frames;
mod h2_refused;
mod handlers;
mod handover;
mod handover_crowd;
mod handover_ends;
mod handover_h2;
mod handover_streams;
mod handover_tls;
mod hangs;
mod health;
mod header_names;
mod hosts;
mod http2;
mod http2_clients;
mod hung_mount;
mod ingest;
mod ingest_handover;
mod kept_work;
mod kubernetes;
mod lasting;
mod leftovers;
mod listing;
mod log;
mod log_lines;
mod logged_requests;
mod logrotate;
mod memory;
mod nfs;
mod names;
mod pipelining;
mod refusals;
mod refused;
mod relay;
mod relay_tls;
mod reload;
mod reloaded_settings;
mod report;
mod resets;
mod rolling;
mod roots;
mod scarcity;
mod sent_files;
mod sent_files_ends;
mod owners;
mod owners_elsewhere;
mod site_settings;
mod silent_files;
mod sites;
mod slow;
mod statistics;
mod threads;
mod tls;
mod tls_clients;
mod tls_keys;
mod top;
mod traversal;
mod tus;
mod uploads;
mod wide_sockets;
mod websocket;
#[path = "../../../protocols/websocket/tests/it/frames.rs"]
mod websocket_frames;
mod websocket_streams;

use flatpath::DriverChoice;
use flatpath_testkit::Driver;

/// The driver of a server within the test.
fn choice(driver: Driver) -> DriverChoice {
    match driver {
        Driver::Uring => DriverChoice::Uring,
        Driver::Epoll => DriverChoice::Epoll,
    }
}
