//! The command as it is operated: settings, reloads, logs, metrics; and ingest and the relay.
#![forbid(unsafe_code)]

mod access_log;
mod admin;
mod bench;
mod command;
mod configuration;
mod dashboards;
mod h2_refused;
mod ingest;
mod ingest_handover;
mod kubernetes;
mod leftovers;
mod log;
mod logrotate;
mod names;
mod relay;
mod relay_tls;
mod reload;
mod reloaded_settings;
mod report;
mod silent_files;
mod statistics;
mod top;
