//! File systems: NFS with its real clients, disks that fail, hang or forget.
#![forbid(unsafe_code)]

mod file_systems;
mod hung_mount;
mod lasting;
mod nfs;
