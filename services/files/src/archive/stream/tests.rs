//! Archives as other programs read them, and what breaks them off.

use std::fs;
use std::io::Cursor;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use flatpath::descriptors::DescriptorBudget;

use super::*;
use crate::archive::Archives;
use crate::archive::plan::{Bounds, Tree};
use crate::target::Hidden;

struct Site {
    folder: tempfile::TempDir,
    root: Arc<Root>,
    archives: Archives,
    descriptors: DescriptorBudget,
}

impl Site {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("tempdir");
        Self {
            root: Arc::new(Root::open(folder.path()).expect("open")),
            folder,
            archives: Archives::default(),
            descriptors: DescriptorBudget::default(),
        }
    }

    fn write(&self, name: impl AsRef<Path>, content: impl AsRef<[u8]>) {
        let path = self.folder.path().join(name);
        fs::create_dir_all(path.parent().expect("a parent")).expect("mkdir");
        fs::write(path, content).expect("write");
    }

    fn archive(&self, format: ArchiveFormat, path: &str) -> Archive {
        let path = path.as_bytes().to_vec();
        let reach = Reach::Everywhere;
        let asker = Asker::default();
        let tree = Tree {
            finder: Finder {
                root: &self.root,
                reach,
                asker: &asker,
            },
            path: &path,
            names: Hidden::Refused.into(),
        };
        let directory = self.root.find(&path).expect("find");
        let plan = Plan::read(&tree, &directory, Bounds::of(format)).expect("a plan");
        let root = Arc::clone(&self.root);
        let origin = Origin {
            root,
            path,
            reach,
            asker: asker.clone(),
        };
        let place = self.archives.enter_any().expect("a place");
        let hold = self.descriptors.hold(1).expect("a descriptor");
        Archive::new(format, origin, &directory, plan, place, hold).expect("an archive")
    }

    fn bytes(&self, format: ArchiveFormat, path: &str) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.archive(format, path)
            .read_to_end(&mut bytes)
            .expect("it is whole");
        bytes
    }
}

/// The paths of a tar archive and what they have; directories end in a slash.
fn of_tar(bytes: &[u8]) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut archive = ::tar::Archive::new(bytes);
    let entries = archive.entries().expect("an archive");
    let read = |entry: io::Result<::tar::Entry<'_, &[u8]>>| {
        let mut entry = entry.expect("an entry");
        let mut content = Vec::new();
        entry.read_to_end(&mut content).expect("its content");
        (entry.path_bytes().into_owned(), content)
    };
    entries.map(read).collect()
}

fn of_zip(bytes: &[u8]) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut archive = ::zip::ZipArchive::new(Cursor::new(bytes)).expect("an archive");
    let mut all = Vec::new();
    for number in 0..archive.len() {
        let mut entry = archive.by_index(number).expect("an entry");
        let mut content = Vec::new();
        entry.read_to_end(&mut content).expect("its content");
        all.push((entry.name().expect("a name").as_bytes().to_vec(), content));
    }
    all
}

fn entry(path: &str, content: impl AsRef<[u8]>) -> (Vec<u8>, Vec<u8>) {
    (path.as_bytes().to_vec(), content.as_ref().to_vec())
}

#[test]
fn a_tree_comes_out_as_it_is() {
    let site = Site::new();
    let long: Vec<u8> = (0..300_000_u32).map(|at| (at % 251) as u8).collect();
    let deep = "a-name-of-fifty-characters-which-is-longer-than-is/".repeat(4) + "end";
    for (name, content) in [
        ("d/empty", &b""[..]),
        ("d/block", &[7; 512]),
        ("d/sub/long", &long),
        ("d/sub/x", b"x"),
    ] {
        site.write(name, content);
    }
    site.write(format!("d/{deep}"), "deep");
    for (format, read) in [
        (ArchiveFormat::Tar, of_tar as fn(&[u8]) -> Vec<_>),
        (ArchiveFormat::Zip, of_zip),
    ] {
        let bytes = site.bytes(format, "d");
        let all = read(&bytes);
        assert_eq!(all[0], entry("d/", ""), "{format:?}");
        for (path, content) in [
            ("d/empty", &b""[..]),
            ("d/block", &[7; 512]),
            ("d/sub/", b""),
            ("d/sub/long", &long),
            ("d/sub/x", b"x"),
            (&format!("d/{deep}"), b"deep"),
        ] {
            assert!(all.contains(&entry(path, content)), "{format:?} {path}");
        }
        assert_eq!(all.len(), 11, "{format:?}");
        let of_root = read(&site.bytes(format, ""));
        assert_eq!(of_root[0], entry("files/", ""));
        assert!(of_root.contains(&entry("files/d/sub/x", "x")));
    }
    assert_eq!(site.bytes(ArchiveFormat::Tar, "d").len() % 512, 0);
}

#[test]
fn names_of_any_bytes_stay_or_are_escaped_and_lead_nowhere_else() {
    let site = Site::new();
    for name in [&b"d/\xff"[..], b"d/x..\\up", b"d/C:x", b"d/a\nb"] {
        site.write(std::ffi::OsStr::from_bytes(name), "x");
    }
    let mut tar = of_tar(&site.bytes(ArchiveFormat::Tar, "d"));
    tar.sort();
    let names: Vec<_> = tar.iter().map(|(name, _)| name.as_slice()).collect();
    assert_eq!(
        names,
        [&b"d/"[..], b"d/C:x", b"d/a\nb", b"d/x..\\up", b"d/\xff"]
    );
    let mut zip = of_zip(&site.bytes(ArchiveFormat::Zip, "d"));
    zip.sort();
    let names: Vec<_> = zip.iter().map(|(name, _)| name.as_slice()).collect();
    assert_eq!(
        names,
        [&b"d/"[..], b"d/%FF", b"d/C%3Ax", b"d/a%0Ab", b"d/x..%5Cup"]
    );
}

#[test]
fn a_file_that_changes_meanwhile_does_not_break_the_framing() {
    for format in [ArchiveFormat::Tar, ArchiveFormat::Zip] {
        let site = Site::new();
        for (name, bytes) in [("d/1", 200_000), ("d/2", 200_000), ("d/3", 5), ("d/4", 9)] {
            site.write(name, vec![b'x'; bytes]);
        }
        let mut archive = site.archive(format, "d");
        let mut bytes = vec![0; 1_000];
        let mut read = 0;
        // Into the content of the first file, which is open now.
        while read < bytes.len() {
            read += archive.read(&mut bytes[read..]).expect("read");
        }
        let file = |name: &str| {
            let path = site.folder.path().join(name);
            fs::File::options().write(true).open(path).expect("open")
        };
        file("d/1").set_len(100_000).expect("truncate");
        file("d/2").set_len(300_000).expect("extend");
        fs::remove_file(site.folder.path().join("d/3")).expect("remove");
        archive.read_to_end(&mut bytes).expect("it is whole");
        let all = match format {
            ArchiveFormat::Tar => of_tar(&bytes),
            ArchiveFormat::Zip => of_zip(&bytes),
        };
        let lengths: Vec<_> = all.iter().map(|(_, content)| content.len()).collect();
        let names: Vec<_> = all.iter().map(|(name, _)| &name[2..]).collect();
        assert_eq!(names, [&b""[..], b"1", b"2", b"4"]);
        let first = &all[1].1;
        let kept = first.iter().take_while(|byte| **byte == b'x').count();
        assert!((1_000..200_000).contains(&kept), "{format:?}: {kept}");
        assert!(first[kept..].iter().all(|byte| *byte == 0));
        match format {
            ArchiveFormat::Tar => assert_eq!(lengths, [0, 200_000, 300_000, 9]),
            ArchiveFormat::Zip => assert_eq!(lengths, [0, kept, 300_000, 9]),
        }
    }
}

#[test]
fn what_cannot_be_read_any_more_breaks_the_archive_off() {
    let site = Site::new();
    site.write("d/1", "x");
    let mut archive = site.archive(ArchiveFormat::Tar, "d");
    // Beyond its reach now: an archive without it would lack what is there.
    archive.origin.reach = Reach::AtHand;
    archive.origin.root =
        Arc::new(Root::open_with(site.folder.path(), crate::Resolution::Walk).expect("open"));
    let mut bytes = Vec::new();
    assert!(archive.read_to_end(&mut bytes).is_err());
}

#[test]
fn a_huge_sparse_file_costs_no_memory_and_each_read_a_chunk() {
    let site = Site::new();
    site.write("d/sparse", "");
    let file = fs::File::options()
        .write(true)
        .open(site.folder.path().join("d/sparse"))
        .expect("open");
    file.set_len(1 << 40).expect("it is sparse");
    for format in [ArchiveFormat::Tar, ArchiveFormat::Zip] {
        let mut archive = site.archive(format, "d");
        let mut room = vec![0; 4 * READ_BYTES];
        for _ in 0..50 {
            assert!(archive.read(&mut room).expect("read") > 0);
            assert!(archive.output.capacity() <= 4 * READ_BYTES, "{format:?}");
        }
        assert!(
            archive
                .open
                .as_ref()
                .is_some_and(|open| open.offset <= 51 * READ_BYTES as u64)
        );
    }
}

#[test]
fn what_is_dropped_in_the_middle_gives_back_its_place() {
    let site = Site::new();
    site.write("d/1", vec![0; 200_000]);
    for _ in 0..2 * crate::limits::ARCHIVES_MAX {
        let mut archive = site.archive(ArchiveFormat::Zip, "d");
        archive.read_exact(&mut [0; 1_000]).expect("read");
        assert!(archive.open.is_some());
    }
}
