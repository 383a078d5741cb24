//! The README of a directory, shown below its entries.
//!
//! `README.md` is Markdown, with the feature of that name; others are shown as the text that they
//! are: escaped, line by line. At most `README_BYTES_MAX` are shown. A file with a NUL is no text,
//! and left out.

use std::fmt::Write;
use std::fs::File;

use rustix::io::Errno;

use super::Entry;
use crate::limits::README_BYTES_MAX;
use crate::page::{escape, escape_lines};
use crate::root::Kind;

/// The names that are looked for, in any case of letters; the first that is there is shown.
const NAMES: [&str; 3] = ["README.md", "README.txt", "README"];

/// The text of a README.
#[derive(Debug)]
pub(crate) struct Readme {
    name: Vec<u8>,
    text: Vec<u8>,
    /// There is more of it.
    is_cut: bool,
}

/// The name of the README among these entries.
pub(crate) fn name_among(entries: &[Entry]) -> Option<&[u8]> {
    NAMES.iter().find_map(|name| {
        let is_it = |entry: &&Entry| {
            entry.kind == Kind::File && entry.name.eq_ignore_ascii_case(name.as_bytes())
        };
        entries.iter().find(is_it).map(|entry| &*entry.name)
    })
}

impl Readme {
    /// Reads the beginning of a file; `None` where it is no text, or empty, or cannot be read.
    pub(crate) fn read(name: &[u8], file: &File) -> Option<Self> {
        let mut text = vec![0; README_BYTES_MAX + 1];
        let mut filled = 0;
        while filled < text.len() {
            match rustix::io::pread(file, &mut text[filled..], filled as u64) {
                Ok(0) => break,
                Ok(more) => filled += more,
                Err(Errno::INTR) => {}
                Err(_) => return None,
            }
        }
        let is_cut = filled > README_BYTES_MAX;
        text.truncate(filled.min(README_BYTES_MAX));
        let is_text = !text.is_empty() && !text.contains(&0);
        let name = name.to_vec();
        is_text.then_some(Self { name, text, is_cut })
    }

    /// As HTML, and whether all of it; `None` for what is shown as text.
    #[cfg(feature = "markdown")]
    fn markup(&self) -> Option<(String, bool)> {
        let is_markdown = self.name.to_ascii_lowercase().ends_with(b".md");
        is_markdown.then(|| super::markdown::html(&self.text))?
    }

    #[cfg(not(feature = "markdown"))]
    fn markup(&self) -> Option<(String, bool)> {
        None
    }

    /// A section of the page.
    pub(crate) fn write(&self, page: &mut String) {
        let name = escape(&self.name);
        let _ = write!(page, "<section aria-label=\"{name}\">\n<h2>{name}</h2>\n");
        let is_whole = match self.markup() {
            Some((html, is_whole)) => {
                page.push_str(&html);
                is_whole
            }
            None => {
                let _ = write!(page, "<pre>\n{}</pre>\n", escape_lines(&self.text));
                true
            }
        };
        if self.is_cut || !is_whole {
            page.push_str("<p>The file is longer.</p>\n");
        }
        page.push_str("</section>\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::Stamp;
    use std::io::Write as _;

    fn section(content: &[u8]) -> Option<String> {
        section_of(b"README", content)
    }

    fn section_of(name: &[u8], content: &[u8]) -> Option<String> {
        let mut file = tempfile::tempfile().expect("tempfile");
        file.write_all(content).expect("write");
        let mut page = String::new();
        Readme::read(name, &file)?.write(&mut page);
        Some(page)
    }

    #[test]
    fn the_text_is_escaped_and_keeps_its_lines() {
        let page =
            section(b"# A & B\r\n<script>alert(1)</script>\n\tend\x1b[31m\xff").expect("text");
        assert!(page.contains("# A &amp; B\n&lt;script&gt;alert(1)&lt;/script&gt;\n\tend\u{fffd}"));
        assert!(!page.contains("<script") && !page.contains('\x1b') && !page.contains('\r'));
        assert!(!page.contains("is longer"));
    }

    #[cfg(feature = "markdown")]
    #[test]
    fn markdown_is_rendered_by_its_name_alone() {
        let text = b"# A *title*\n\n<b>raw</b>\n";
        for name in ["README.md", "ReadMe.MD"] {
            let page = section_of(name.as_bytes(), text).expect("text");
            assert!(page.contains("<h3>A <em>title</em></h3>"), "{page}");
            assert!(page.contains("&lt;b&gt;raw&lt;/b&gt;"), "{page}");
        }
        let page = section_of(b"README", text).expect("text");
        assert!(page.contains("<pre>\n# A *title*\n"), "{page}");
    }

    #[test]
    fn what_is_long_is_cut_and_what_is_no_text_is_left_out() {
        let long = section(&[b'x'; README_BYTES_MAX + 1]).expect("text");
        assert_eq!(long.matches('x').count(), README_BYTES_MAX);
        assert!(long.contains("is longer"));
        let whole = section(&[b'x'; README_BYTES_MAX]).expect("text");
        assert!(!whole.contains("is longer"));
        assert_eq!(section(b""), None);
        assert_eq!(section(b"text\0more"), None);
    }

    #[test]
    fn the_first_known_name_of_a_file_is_taken() {
        let entry = |name: &str, kind| Entry {
            name: name.into(),
            kind,
            size: 1,
            modified: Stamp {
                seconds: 0,
                nanoseconds: 0,
            },
        };
        let found = |names: &[(&str, Kind)]| {
            let entries: Vec<_> = names
                .iter()
                .map(|(name, kind)| entry(name, *kind))
                .collect();
            name_among(&entries).map(|name| String::from_utf8_lossy(name).into_owned())
        };
        let (file, directory) = (Kind::File, Kind::Directory);
        assert_eq!(found(&[("a", file), ("README", directory)]), None);
        assert_eq!(
            found(&[("README", file), ("readme.md", file)]).as_deref(),
            Some("readme.md")
        );
        assert_eq!(
            found(&[("README.md", directory), ("ReadMe.TXT", file)]).as_deref(),
            Some("ReadMe.TXT")
        );
    }
}
