//! Files over HTTP for Flatpath: a directory, and nothing outside it.
//!
//! ```no_run
//! use flatpath::Server;
//! use flatpath_files::Files;
//! use flatpath_http::{Http, Router};
//!
//! fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let files = Files::open("public".as_ref())?;
//!     // What has no route is a file; or `Http::service(files)`, for files alone; or
//!     // `nest_service("/static", files)`, for those below a prefix.
//!     let router = Router::new().get("/api/hello", || "hello\n");
//!     let service = Http::service(router.fallback_service(files));
//!     Server::new().listen("127.0.0.1:8080", service).run()?;
//!     Ok(())
//! }
//! ```
//!
//! With [`Files::writable`] PUT replaces files (`put`), the forms of listings store some and make
//! directories (`form`), and uploads that can be resumed do (`tus`); all give files their names by
//! `publish`.
//!
//! What is compressed before (`.br` and `.gz` beside a file) is sent to clients that take it; with
//! the feature of a coding, `Files::compress` compresses the rest. Directories are listed
//! ([`Files::listing`]), with their README as Markdown (feature `markdown`), and sent as archives
//! ([`Files::archives`]). [`Files::rules`] sets redirects, rewrites, clean addresses, fallbacks,
//! error pages and headers; with [`RootFiles::Read`] the files `_redirects` and `_headers` of the
//! root set them, too.
//!
//! Deliberately absent: DELETE and other writing, server-side includes, configuration files below
//! the root, users and passwords (a `Guard` of `flatpath-layers` asks for them).
#![forbid(unsafe_code)]

// In the order of a request's way:
//
// | step | module |
// |------|--------|
// | which directory its path leads to by now | `homes`, `followed` |
// | a cached file is answered on the network thread | `cache`, `freshness` |
// | else a worker takes the request | `answer` |
// | which file it gets by the rules of the site | `visit`, `lookup`, `rules` |
// | or in its place | `fallback`, `error_pages` |
// | what rules name in vain | `references` |
// | target → path: decoded once, no dots, no hidden names | `target` |
// | path → file: beneath the root whatever is renamed or linked | `root`, `walk` |
// | whose file it is, and whether the request may have it | `asker`, `owners` |
// | which state of the file it is | `identity` |
// | plain, compressed before, or now | `siblings`, `media`, `compress` |
// | has the client got it already | `conditional` |
// | all of it or parts | `range` |
// | the bytes | `content` |
// | or a directory: a page, JSON, an archive | `listing`, `page`, `archive` |

pub mod limits;

mod service;
mod homes;
mod versions;
mod followed;
mod cache;
mod freshness;
mod mounts;
mod mount_limits;
mod responses;
mod answer;
mod visit;
mod lookup;
mod error_pages;
mod references;
mod fallback;
mod writing;
mod kept;
mod keyed;
mod publish;
mod form;
mod leftovers;
mod put;
mod tus;
mod deferred_close;
mod target;
mod rules;
mod root;
mod owners;
mod asker;
mod terms;
mod walk;
mod stat;
mod identity;
mod headers;
mod siblings;
mod media;
mod compress;
mod conditional;
pub mod range;
mod content;
mod listing;
mod archive;
mod page;
mod error;
#[cfg(test)]
mod tests;

pub use archive::ArchiveFormat;
pub use conditional::EntityTags;
pub use followed::{look_again, missing_directories};
pub use listing::Listing;
pub use mount_limits::{METRICS, MountLimits};
pub use owners::{Gate, Owner};
pub use references::{MissingFile, NamedBy};
pub use root::Resolution;
pub use rules::{
    CleanUrls, Explanation, HeaderChange, Outcome, Pattern, RootFiles, RuleError, Rules, Step,
    TrailingSlash,
};
pub use service::{Files, FilesState, Vocabulary};
pub use target::Hidden;

pub use writing::{Durability, WriteOptions, Writing};
