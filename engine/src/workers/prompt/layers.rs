//! The layers of an overlay, as the kernel's table of mounts has them.
//!
//! An overlay asks its layers for nearly everything, so it is as local as the least local of them:
//! images that are loaded while they are used have a FUSE file system below. A layer counts as
//! local only where that can be seen: its path is absolute and leads to it from here. Those of a
//! container's own root do not, and a bind mount is seen through, since it is the file system's
//! number that is asked for.
//!
//! Does not: notice what is mounted over a layer's path later; the overlay does not either.
//!
//! Cost: one look at the table and two system calls for each layer, once for a directory that is
//! served. They wait as the layers do.

use std::ffi::OsStr;
use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use flatpath_sys::mount_table::unescape;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, StatxFlags};

/// The kernel's table of mounts, as this process sees it (proc(5)).
const TABLE: &str = "/proc/self/mountinfo";

/// More than the kernel allows (`OVL_MAX_STACK` of fs/overlayfs/params.h is 500).
const LAYERS_MAX: usize = 512;

/// The layers of the overlay that an open file is on. `None`: not all of them can be seen.
pub(super) fn layers_of(file: impl AsFd) -> Option<Vec<OwnedFd>> {
    let found = rustix::fs::statx(file, c"", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID).ok()?;
    let is_known = found.stx_mask & StatxFlags::MNT_ID.bits() != 0;
    let table = is_known.then(|| fs::read(TABLE).ok()).flatten()?;
    let open = |path: &PathBuf| {
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        rustix::fs::openat(CWD, path, flags, Mode::empty()).ok()
    };
    paths_in(&table, found.stx_mnt_id)?
        .iter()
        .map(open)
        .collect()
}

/// The paths of the layers of the overlay with this number. `None`: it is not there, is no overlay,
/// or has a layer whose path is not known.
fn paths_in(table: &[u8], number: u64) -> Option<Vec<PathBuf>> {
    let id = number.to_string();
    let mut lines = table.split(|byte| *byte == b'\n');
    // 24 21 0:41 / /merged rw,relatime shared:1 - overlay overlay rw,lowerdir=/a:/b,upperdir=/c
    let line = lines.find(|line| line.split(|byte| *byte == b' ').next() == Some(id.as_bytes()))?;
    let fields = line.split(|byte| *byte == b' ');
    let mut system = fields.skip(6).skip_while(|field| *field != b"-").skip(1);
    let options = (system.next() == Some(b"overlay")).then(|| system.nth(1))??;
    let mut paths = Vec::new();
    let mut has_lower = false;
    for option in options.split(|byte| *byte == b',') {
        let mut halves = option.splitn(2, |byte| *byte == b'=');
        let (name, value) = (halves.next()?, unescape(halves.next().unwrap_or_default()));
        match &*unescape(name) {
            b"lowerdir" => paths.extend(split_layers(&value)),
            b"lowerdir+" | b"datadir+" | b"upperdir" => paths.push(value),
            _ => continue,
        }
        has_lower |= name != b"upperdir";
    }
    let is_seen = |path: &Vec<u8>| path.starts_with(b"/") && !path.contains(&0);
    let all_seen = has_lower && paths.len() <= LAYERS_MAX && paths.iter().all(is_seen);
    let path = |path: &Vec<u8>| Path::new(OsStr::from_bytes(path)).to_path_buf();
    all_seen.then(|| paths.iter().map(path).collect())
}

/// The value of `lowerdir`: paths between colons, two before those that have data alone. A
/// backslash takes its meaning from the next byte.
fn split_layers(value: &[u8]) -> Vec<Vec<u8>> {
    let mut layers = vec![Vec::new()];
    let mut bytes = value.iter().copied();
    while let Some(byte) = bytes.next() {
        let plain = match byte {
            b':' => {
                layers.push(Vec::new());
                continue;
            }
            b'\\' => bytes.next().unwrap_or(byte),
            _ => byte,
        };
        if let Some(layer) = layers.last_mut() {
            layer.push(plain);
        }
    }
    let has_any = layers.iter().any(|layer| !layer.is_empty());
    layers.retain(|layer| !has_any || !layer.is_empty());
    layers
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(kind: &str, options: &str) -> Option<Vec<String>> {
        let table = format!(
            "241 21 0:41 / /other rw - overlay overlay rw,lowerdir=/wrong\n\
             24 21 0:41 / /a\\040-\\040b rw,relatime shared:1 master:2 - {kind} overlay {options}\n"
        );
        let paths = paths_in(table.as_bytes(), 24)?;
        let text = |path: &PathBuf| path.to_string_lossy().into_owned();
        Some(paths.iter().map(text).collect())
    }

    #[test]
    fn all_layers_are_found_however_they_are_written() {
        let cases: [(&str, &[&str]); 6] = [
            (
                "rw,lowerdir=/a:/b,upperdir=/c,workdir=/w,index=off",
                &["/a", "/b", "/c"],
            ),
            ("ro,lowerdir=/a\\040b:/c\\054d", &["/a b", "/c,d"]),
            ("ro,lowerdir=/a\\134:b:/c\\134\\134d", &["/a:b", "/c\\d"]),
            ("ro,lowerdir=/a::/data::/more", &["/a", "/data", "/more"]),
            (
                "ro,lowerdir+=/a:b,lowerdir+=/c,datadir+=/d",
                &["/a:b", "/c", "/d"],
            ),
            ("ro,lowerdir=/a\\012b", &["/a\nb"]),
        ];
        for (options, layers) in cases {
            let found = paths("overlay", options).expect("all are known");
            assert_eq!(found, layers, "{options}");
        }
    }

    #[test]
    fn layers_that_cannot_be_seen_make_none_of_them_known() {
        for options in [
            "",
            "rw",
            "rw,lowerdir",
            "rw,lowerdir=",
            "rw,lowerdir=:",
            "rw,upperdir=/c,workdir=/w",
            "rw,lowerdir=a:/b",
            "rw,lowerdir=/a:b",
            "rw,lowerdir=/a,upperdir=c",
            "rw,lowerdir=/a,lowerdir+=",
            "rw,lowerdir=/a\\000b",
            "rw,lowerdir=\\134",
        ] {
            assert_eq!(paths("overlay", options), None, "{options}");
        }
        assert_eq!(paths("ext4", "rw,lowerdir=/a"), None);
        for table in [
            "",
            "24",
            "24 ",
            "24 21 0:41 / /m rw -",
            "24 1 1 / / rw - overlay x",
        ] {
            assert_eq!(paths_in(table.as_bytes(), 24), None, "{table}");
        }
        let many = format!("rw,lowerdir=/a{}", ":/a".repeat(LAYERS_MAX));
        assert_eq!(paths("overlay", &many), None);
    }
}
