//! Files over HTTP: downloads, uploads, listings, sites and their owners.
#![forbid(unsafe_code)]

mod directories;
mod download;
mod file_errors;
mod files;
mod kept_work;
mod listing;
mod owners;
mod owners_elsewhere;
mod roots;
mod sent_files;
mod sent_files_ends;
mod site_settings;
mod sites;
mod traversal;
mod tus;
mod uploads;
