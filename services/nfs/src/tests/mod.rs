//! The procedures against a real directory, without a network; one file per topic.

mod access;
mod arguments;
mod changes;
mod data;
mod directories;
mod exports;
mod groups;
mod handles;
mod lasting;
mod promises;
mod mounting;
mod prompt;
mod reloads;
mod space;
mod whole;
