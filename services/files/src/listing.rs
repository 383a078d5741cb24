//! Directory listings: clean HTML without scripts.
//!
//! Names are escaped for HTML and percent-encoded for links, byte by byte, so no file name can
//! break out of the page or point anywhere else. Every link starts with `./`: a file called `a:b`
//! is no scheme. Directories come first, then names in byte order, unless the query says
//! otherwise: `?sort=name`, `size` or `modified`, with a `-` in front for the reverse, as the heads
//! of the columns link to. Hidden names, links that lead to
//! nothing served, FIFOs, sockets and devices are left out. Links are shown as what they lead to.
//! Of a large directory the first `LISTING_ENTRIES_MAX` names are shown, and how many there are.
//!
//! A mount point is shown without asking its file system, which may hang.
//!
//! Cost: each name is read; one `statx` per entry that is shown, and one lookup per link.

use std::collections::BinaryHeap;
use std::fmt::Write;
use std::os::fd::AsFd;
use std::time::{Duration, UNIX_EPOCH};

use flatpath_http::Response;
use http::StatusCode;
use http::header::{self, HeaderValue};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};
use rustix::fs::{AtFlags, Dir, FileType};

use crate::error::FilesError;
use crate::identity::{Identity, Stamp};
use crate::limits::LISTING_ENTRIES_MAX;
use crate::order::{Column, Order};
use crate::page::{escape, page};
use crate::responses::with;
use crate::root::{Kind, Opened, Reach, Root};
use crate::target::{Hidden, is_hidden, joined};
use crate::writing::is_own;

/// Everything but `unreserved` (RFC 3986, 2.3) is encoded in links.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// The same for whole paths: slashes stay.
pub(crate) const ENCODED_PATH: &AsciiSet = &ENCODED.remove(b'/');

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) name: Vec<u8>,
    /// Its kind, or the kind of its target.
    pub(crate) kind: Kind,
    /// Bytes; of a directory not shown.
    pub(crate) size: u64,
    pub(crate) modified: Stamp,
}

/// The entries of a directory, sorted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Entries {
    pub(crate) shown: Vec<Entry>,
    /// How many names there are, if they are more than `LISTING_ENTRIES_MAX`: then the first of
    /// them are shown.
    pub(crate) total: Option<usize>,
}

impl Entries {
    /// Reads a directory; `path` is where it lies beneath the root. Links are followed no further
    /// than `reach`.
    ///
    /// # Errors
    /// [`FilesError::OtherMount`] when a link leads beyond the reach.
    pub(crate) fn read(
        root: &Root,
        path: &[u8],
        directory: &Opened,
        hidden: Hidden,
        reach: Reach,
        order: Order,
    ) -> Result<Self, FilesError> {
        let (names, count) = first_names(directory, hidden)?;
        let mut entries = Self {
            shown: Vec::with_capacity(names.len()),
            total: (count > LISTING_ENTRIES_MAX).then_some(count),
        };
        for name in names {
            entries
                .shown
                .extend(stat_of(root, path, directory, &name, reach)?);
        }
        entries
            .shown
            .sort_unstable_by(|left, right| order.compare(left, right));
        Ok(entries)
    }

    /// The same without names that are kept back.
    #[must_use]
    pub(crate) fn without(mut self, is_kept_back: impl Fn(&[u8]) -> bool) -> Self {
        self.shown.retain(|entry| !is_kept_back(&entry.name));
        self
    }

    /// The page, for a directory at `path` beneath the root.
    pub(crate) fn to_page(&self, path: &[u8], order: Order) -> Response {
        let mut body = String::with_capacity(1_024 + 160 * self.shown.len());
        let title = if path.is_empty() {
            "Index of /".into()
        } else {
            format!("Index of /{}/", escape(path))
        };
        let _ = write!(body, "<p>{}</p>\n<table>\n<tr>", self.summary());
        for column in Column::ALL {
            column.write_head(order, &mut body);
        }
        body.push_str("</tr>\n");
        if !path.is_empty() {
            body.push_str("<tr><td><a href=\"../\">../</a></td><td></td><td></td></tr>\n");
        }
        for entry in &self.shown {
            entry.write_row(&mut body);
        }
        body.push_str("</table>\n");
        let no_cache = HeaderValue::from_static("no-cache");
        with(
            page(StatusCode::OK, &title, &body),
            header::CACHE_CONTROL,
            no_cache,
        )
    }

    /// The number of entries, and the bytes of those that are shown.
    pub(crate) fn summary(&self) -> String {
        let shown = self.shown.len();
        let count = match self.total {
            Some(total) => format!("The first {shown} by name of {total} entries"),
            None if shown == 1 => "1 entry".into(),
            None => format!("{shown} entries"),
        };
        let sizes = self.shown.iter().map(Entry::shown_size);
        let bytes = sizes.fold(0, u64::saturating_add);
        format!("{count}, {}", readable_size(bytes))
    }
}

impl Entry {
    /// Bytes of a file.
    pub(crate) fn shown_size(&self) -> u64 {
        match self.kind {
            Kind::Directory => 0,
            Kind::File => self.size,
        }
    }

    fn write_row(&self, page: &mut String) {
        let (slash, size) = match self.kind {
            Kind::Directory => ("/", String::new()),
            Kind::File => ("", readable_size(self.size)),
        };
        let link = percent_encode(&self.name, ENCODED);
        let name = escape(&self.name);
        let time = readable_time(self.modified);
        let _ = writeln!(
            page,
            "<tr><td><a href=\"./{link}{slash}\">{name}{slash}</a></td>\
             <td>{size}</td><td>{time}</td></tr>"
        );
    }
}

/// Where a directory lies, with the slash that its address ends in: for `Location`.
pub(crate) fn directory_address(path: &[u8]) -> String {
    match path {
        [] => "/".to_owned(),
        path => format!("/{}/", percent_encode(path, ENCODED_PATH)),
    }
}

/// Where a file lies: for `Location`.
pub(crate) fn file_address(path: &[u8]) -> String {
    format!("/{}", percent_encode(path, ENCODED_PATH))
}

/// The first names of a directory in byte order, and how many there are. Memory: the names that
/// are kept.
fn first_names(directory: &Opened, hidden: Hidden) -> Result<(Vec<Vec<u8>>, usize), FilesError> {
    let mut first = BinaryHeap::new();
    let mut count = 0;
    for item in Dir::read_from(directory.file.as_fd())? {
        let item = item?;
        let name = item.file_name().to_bytes();
        let is_dot = name == b"." || name == b"..";
        if is_dot || is_own(name) || (hidden == Hidden::Refused && is_hidden(name)) {
            continue;
        }
        count += 1;
        if first.len() < LISTING_ENTRIES_MAX {
            first.push(name.to_vec());
        } else if let Some(mut last) = first.peek_mut()
            && name < last.as_slice()
        {
            *last = name.to_vec();
        }
    }
    Ok((first.into_vec(), count))
}

/// The entry of this name in a directory, if it is served.
fn stat_of(
    root: &Root,
    path: &[u8],
    directory: &Opened,
    name: &[u8],
    reach: Reach,
) -> Result<Option<Entry>, FilesError> {
    // A mount point is another file system's directory: it must not be asked.
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT | AtFlags::STATX_DONT_SYNC;
    let Ok(statx) = rustix::fs::statx(&directory.file, name, flags, Identity::MASK) else {
        return Ok(None);
    };
    let (kind, identity) = match FileType::from_raw_mode(u32::from(statx.stx_mode)) {
        FileType::RegularFile => (Kind::File, Identity::from_statx(&statx)),
        FileType::Directory => (Kind::Directory, Identity::from_statx(&statx)),
        FileType::Symlink => {
            // Looked up from the root, as a request for it would be: links that lead out of it show
            // nothing here, not even the size of what they lead to.
            match root.find_within(&joined(path, name), reach) {
                Ok(opened) => (opened.kind, opened.identity),
                Err(FilesError::OtherMount) => return Err(FilesError::OtherMount),
                Err(_) => return Ok(None),
            }
        }
        _ => return Ok(None),
    };
    let (size, modified) = (identity.size, identity.modified);
    Ok(Some(Entry {
        name: name.to_vec(),
        kind,
        size,
        modified,
    }))
}

/// A size in the largest unit that leaves a number above one.
fn readable_size(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if bytes < 1_024 {
        return format!("{bytes} B");
    }
    let power = (bytes.ilog2() / 10).min(6);
    let unit = 1_u64 << (10 * power);
    let tenths = (u128::from(bytes) * 10 / u128::from(unit)) as u64;
    format!(
        "{}.{} {}",
        tenths / 10,
        tenths % 10,
        UNITS[power as usize - 1]
    )
}

/// `2026-11-21 04:05`, in UTC; empty before 1970 and for years that have not four digits.
fn readable_time(stamp: Stamp) -> String {
    let since_epoch = u64::try_from(stamp.seconds).map(Duration::from_secs);
    let time = since_epoch
        .ok()
        .and_then(|since| UNIX_EPOCH.checked_add(since));
    let mut text = String::new();
    let written = time.map(|time| write!(text, "{}", humantime::format_rfc3339_seconds(time)));
    match written {
        // `2026-11-21T04:05:06Z`
        Some(Ok(())) => format!("{} {}", &text[..10], &text[11..16]),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::symlink;
    use std::path::Path;

    fn entries(directory: &Path, path: &str, hidden: Hidden) -> Entries {
        let root = Root::open(directory).expect("open root");
        let opened = root.find(path.as_bytes()).expect("find");
        let path = path.as_bytes();
        let order = Order::default();
        Entries::read(&root, path, &opened, hidden, Reach::Everywhere, order).expect("read")
    }

    fn html(entries: &Entries, path: &str) -> String {
        let page = entries.to_page(path.as_bytes(), Order::default());
        String::from_utf8(page.body().to_bytes().into_owned()).expect("text")
    }

    fn names(entries: &Entries) -> Vec<String> {
        let text = |entry: &Entry| String::from_utf8_lossy(&entry.name).into_owned();
        entries.shown.iter().map(text).collect()
    }

    #[test]
    fn directories_come_first_then_names_in_order() {
        let folder = tempfile::tempdir().expect("tempdir");
        for name in ["b.txt", "a.txt", "B.txt", ".hidden"] {
            fs::write(folder.path().join(name), "12345").expect("write");
        }
        for name in ["z", "y", ".git"] {
            fs::create_dir(folder.path().join(name)).expect("mkdir");
        }
        let shown = entries(folder.path(), "", Hidden::Refused);
        assert_eq!(names(&shown), ["y", "z", "B.txt", "a.txt", "b.txt"]);
        assert_eq!(shown.shown[2].size, 5);
        let all = entries(folder.path(), "", Hidden::Served);
        assert_eq!(
            names(&all),
            [".git", "y", "z", ".hidden", "B.txt", "a.txt", "b.txt"]
        );
    }

    #[test]
    fn only_what_would_be_served_is_shown() {
        let folder = tempfile::tempdir().expect("tempdir");
        let served = folder.path().join("served");
        fs::create_dir_all(served.join("sub")).expect("mkdir");
        fs::write(folder.path().join("secret"), "12345").expect("write");
        fs::write(served.join("sub/file"), "123").expect("write");
        for (target, name) in [
            ("../../secret", "sub/out"),
            ("/etc/passwd", "sub/absolute"),
            ("nothing", "sub/dangling"),
            ("file", "sub/inside"),
            ("../sub", "sub/folder"),
        ] {
            symlink(target, served.join(name)).expect("symlink");
        }
        let _socket = std::os::unix::net::UnixListener::bind(served.join("sub/socket"));
        let shown = entries(&served, "sub", Hidden::Served);
        assert_eq!(names(&shown), ["folder", "file", "inside"]);
        assert_eq!(
            shown.shown[2].size, 3,
            "a link is shown as what it leads to"
        );
    }

    #[test]
    fn no_name_breaks_out_of_the_page() {
        let folder = tempfile::tempdir().expect("tempdir");
        let evil = [
            &b"<script>alert(1)<"[..],
            b"\" onclick=\"x",
            b"a&b",
            b"it's",
            b"a:b",
            b"100%",
            b"a?b#c",
            b"new\nline",
            b"\xff\xfe",
            "rtl\u{202e}txt".as_bytes(),
            b"back\\slash",
        ];
        for name in evil {
            fs::write(folder.path().join(std::ffi::OsStr::from_bytes(name)), "").expect("write");
        }
        let page = html(&entries(folder.path(), "", Hidden::Refused), "");
        assert!(
            !page.contains("<script") && !page.contains("onclick=\""),
            "{page}"
        );
        assert!(!page.contains("new\nline") && !page.contains('\u{202e}'));
        for link in [
            "./%3Cscript%3Ealert%281%29%3C",
            "./%22%20onclick%3D%22x",
            "./a%26b",
            "./it%27s",
            "./a%3Ab",
            "./100%25",
            "./a%3Fb%23c",
            "./new%0Aline",
            "./%FF%FE",
            "./back%5Cslash",
        ] {
            assert!(
                page.contains(&format!("href=\"{link}\"")),
                "{link} in {page}"
            );
        }
        assert_eq!(page.matches("<tr>").count(), 1 + evil.len());
    }

    #[test]
    fn the_title_is_escaped_and_only_the_root_has_no_way_up() {
        let page = html(&Entries::default(), "a<b>/c");
        assert!(page.contains("<title>Index of /a&lt;b&gt;/c/</title>"));
        assert!(page.contains("href=\"../\""));
        assert!(!html(&Entries::default(), "").contains("../"));
    }

    #[test]
    fn of_a_large_directory_the_first_names_are_shown_and_how_many_there_are() {
        const MORE: usize = 500;
        let folder = tempfile::tempdir().expect("tempdir");
        let name = |number: usize| format!("file-{number:05}");
        for number in (0..LISTING_ENTRIES_MAX + MORE).rev() {
            fs::write(folder.path().join(name(number)), "").expect("write");
        }
        fs::create_dir(folder.path().join("directory")).expect("mkdir");
        let shown = entries(folder.path(), "", Hidden::Refused);
        let mut expected: Vec<_> = (0..LISTING_ENTRIES_MAX - 1).map(name).collect();
        expected.insert(0, "directory".into());
        assert_eq!(names(&shown), expected);
        let page = html(&shown, "");
        let note = page.find("The first 10000 by name of 10501 entries");
        assert!(note < page.find("<table>") && note.is_some(), "on top");
    }

    #[test]
    fn a_listing_says_how_many_entries_there_are() {
        let folder = tempfile::tempdir().expect("tempdir");
        fs::write(folder.path().join("a"), "").expect("write");
        let page = || html(&entries(folder.path(), "", Hidden::Refused), "");
        assert!(page().contains("<p>1 entry, 0 B</p>"));
        fs::write(folder.path().join("b"), "").expect("write");
        assert!(page().contains("<p>2 entries, 0 B</p>"));
    }

    #[test]
    fn sizes_and_times_are_readable() {
        for (bytes, text) in [
            (0, "0 B"),
            (1_023, "1023 B"),
            (1_024, "1.0 KiB"),
            (1_587, "1.5 KiB"),
            (1_048_575, "1023.9 KiB"),
            (5 << 30, "5.0 GiB"),
            (u64::MAX, "15.9 EiB"),
        ] {
            assert_eq!(readable_size(bytes), text);
        }
        for (seconds, text) in [
            (0, "1970-01-01 00:00"),
            (951_782_400, "2000-02-29 00:00"),
            (784_111_777, "1994-11-06 08:49"),
            (4_107_542_399, "2100-02-28 23:59"),
            (-1, ""),
            (253_402_300_799, "9999-12-31 23:59"),
            (253_402_300_800, ""),
            (i64::MAX, ""),
            (i64::MIN, ""),
        ] {
            assert_eq!(
                readable_time(Stamp {
                    seconds,
                    nanoseconds: 0
                }),
                text
            );
        }
    }

    #[test]
    fn addresses_of_directories_stay_on_this_server() {
        assert_eq!(directory_address(b"a b/c"), "/a%20b/c/");
        assert_eq!(
            directory_address(b"\r\nSet-Cookie: x"),
            "/%0D%0ASet-Cookie%3A%20x/"
        );
        assert_eq!(directory_address(b"\\evil.com"), "/%5Cevil.com/");
    }
}
