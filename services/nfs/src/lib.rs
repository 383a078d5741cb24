//! Directories over NFSv3 (RFC 1813): portmapper, MOUNT and all 22 procedures on one port; a
//! portmapper at port 111 and MOUNT over UDP beside it, for clients that need them.
//!
//! A reader's way through: `handle` is what clients hold, `exports` finds the export and the rights
//! of its client (`rights`, from `exports_file`), `export` turns it into an open file inside the
//! directory (`nodes`, `path_hints`, `tree_scan` help, `sweep` closes again), `identity` lets a
//! worker act as the caller (with the groups that `groups` knows), `request` is a call on its
//! worker, `procedures` has one file per group of procedures, and `service` routes calls to them.
//! What a call sets is decided in `setting`, done in `applying`, and on disk by `syncing`.
//!
//! ```no_run
//! use flatpath::Server;
//! use flatpath_nfs::{Access, Nfs, Options};
//!
//! fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let options = Options {
//!         access: Access::ReadWrite, // without this, clients only read
//!         state: Some("/var/lib/nfs-key".into()), // handles outlive the server
//!         ..Options::new("/srv/www")
//!     };
//!     let (nfs, config) = (Nfs::open(options)?, Nfs::driver_config());
//!     Server::new().driver_config(config).listen("127.0.0.1:2049", nfs.protocol()).run()?;
//!     Ok(())
//! }
//! ```
//!
//! Not here: NFSv4, locks (mount with `nolock`), NFSACL, Kerberos, NFS over UDP, netgroups.
#![forbid(unsafe_code)]

pub mod limits;

mod key;
mod identity;
mod status;
mod attributes;
mod handle;
mod node;
mod nodes;
mod names;
mod path_hints;
mod tree_scan;
mod whole;
mod mounts;
mod export;
mod exports;
mod exports_file;
mod groups;
mod rights;
mod sweep;
mod verifier;
mod programs;
mod portmapper;
mod rpcbind;
mod mount;
mod state;
mod request;
mod setting;
mod applying;
mod syncing;
mod procedures;
mod calls;
mod service;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;

pub use calls::{CallCounts, METRICS};
pub use exports::{ExportChange, Exports, PreparedExports};
pub use exports_file::{BadExports, ExportsFile};
pub use portmapper::{Offer, Offered, Portmapper};
pub use rights::{Access, ClientRule, Clients, ExportOptions, Rights, Squash};
pub use rpcbind::Registration;
pub use service::{Nfs, Options};
