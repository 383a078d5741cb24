//! The page of a directory: clean HTML, which works without its script.
//!
//! Names are escaped for HTML and percent-encoded for links, byte by byte, so no file name can
//! break out of the page or point anywhere else. The heads of the columns are links that sort;
//! exact sizes and times are in `title` and `datetime`. It is a table with heads, so that screen
//! readers say which column a cell is of.

use std::fmt::Write;

use flatpath_http::Response;
use http::header::{self, HeaderValue};

use super::order::Column;
use super::readme::Readme;
use super::view::{View, Window};
use super::{Entries, Entry, tools};
use crate::limits::LISTING_ENTRIES_MAX;
use crate::page::{Powers, escape, listing};
use crate::responses::with;
use crate::root::Kind;

/// What a page shows beside the entries.
#[derive(Debug, Default)]
pub(crate) struct Beside<'a> {
    pub(crate) readme: Option<Readme>,
    /// The formats in which the directory can be downloaded, as the query names them.
    pub(crate) archives: &'a [&'static str],
    /// What its clients may do.
    pub(crate) powers: Powers,
}

/// The page, for a directory at `path` beneath the root.
pub(crate) fn response(
    entries: &Entries,
    path: &[u8],
    view: &View,
    beside: &Beside<'_>,
) -> Response {
    let mut body = String::with_capacity(1_024 + 240 * entries.shown.len());
    let title = if path.is_empty() {
        "Index of /".into()
    } else {
        format!("Index of /{}/", escape(path))
    };
    let _ = writeln!(body, "<p>{}</p>", summary(entries, view));
    tools::write_filter(entries, view, &mut body);
    if beside.powers == Powers::Write {
        tools::write_forms(&mut body);
    }
    write_archives(beside.archives, &mut body);
    write_pages(entries, view, &mut body);
    body.push_str("<table>\n<thead>\n<tr>");
    for column in Column::ALL {
        write_head(column, view, &mut body);
    }
    body.push_str("</tr>\n</thead>\n");
    if !path.is_empty() {
        body.push_str(
            "<tbody>\n<tr><td><a href=\"../\" aria-label=\"Parent directory\">../</a></td>\
             <td></td><td></td></tr>\n</tbody>\n",
        );
    }
    body.push_str("<tbody id=\"entries\">\n");
    for entry in &entries.shown {
        write_row(entry, &mut body);
    }
    body.push_str("</tbody>\n</table>\n");
    write_pages(entries, view, &mut body);
    if let Some(readme) = &beside.readme {
        readme.write(&mut body);
    }
    let no_cache = HeaderValue::from_static("no-cache");
    let response = listing(&title, &body, beside.powers);
    with(response, header::CACHE_CONTROL, no_cache)
}

/// The number of entries, and the bytes of those that are shown.
fn summary(entries: &Entries, view: &View) -> String {
    let shown = entries.shown.len();
    let count = match entries.total {
        total if total > LISTING_ENTRIES_MAX => {
            let (first, last) = (entries.preceding + 1, entries.preceding + entries.names);
            match entries.names {
                0 => format!("None of {total} entries"),
                _ => format!("Entries {first} to {last} by name, of {total}"),
            }
        }
        _ if shown == 1 => "1 entry".into(),
        _ => format!("{shown} entries"),
    };
    let sizes = entries.shown.iter().map(Entry::shown_size);
    let bytes = readable_size(sizes.fold(0, u64::saturating_add));
    match view.filter.is_set() {
        true => {
            let text = escape(view.filter.text());
            format!("{count} with \u{201c}{text}\u{201d}, {bytes}")
        }
        false => format!("{count}, {bytes}"),
    }
}

fn write_archives(formats: &[&str], page: &mut String) {
    if formats.is_empty() {
        return;
    }
    page.push_str("<nav aria-label=\"Download\">All of it:");
    for format in formats {
        let _ = write!(page, " <a href=\"?archive={format}\" download>{format}</a>");
    }
    page.push_str("</nav>\n");
}

/// Links to the pages before and after this one; the order stays.
fn write_pages(entries: &Entries, view: &View, page: &mut String) {
    let (previous, next) = (entries.previous(), entries.next());
    if previous.is_none() && next.is_none() {
        return;
    }
    page.push_str("<nav aria-label=\"Pages\">");
    let links = [
        (
            Some(Window::First).filter(|_| previous.is_some()),
            "",
            "First",
        ),
        (previous, " rel=\"prev\"", "Previous"),
        (next, " rel=\"next\"", "Next"),
    ];
    for (window, relation, text) in links {
        if let Some(window) = window {
            let query = View {
                window,
                ..view.clone()
            };
            let query = escape(query.to_query().as_bytes());
            let _ = write!(page, "<a href=\"{query}\"{relation}>{text}</a> ");
        }
    }
    page.push_str("</nav>\n");
}

/// The head of a column, which links to the page sorted by it.
fn write_head(column: Column, view: &View, page: &mut String) {
    let (sorted, arrow) = match (column == view.order.column, view.order.is_reversed) {
        (false, _) => ("", ""),
        (true, false) => (" aria-sort=\"ascending\"", "\u{2191}"),
        (true, true) => (" aria-sort=\"descending\"", "\u{2193}"),
    };
    let sorting = View {
        order: view.order.after_click(column),
        ..view.clone()
    };
    let query = escape(sorting.to_query().as_bytes());
    let title = column.title();
    let _ = write!(
        page,
        "<th scope=\"col\"{sorted}><a href=\"{query}\">{title}</a>"
    );
    if !arrow.is_empty() {
        let _ = write!(page, " <span aria-hidden=\"true\">{arrow}</span>");
    }
    page.push_str("</th>");
}

fn write_row(entry: &Entry, page: &mut String) {
    let (link, name) = (entry.link(), escape(&entry.name));
    let _ = match entry.kind {
        Kind::Directory => write!(page, "<tr><td><a href=\"{link}\">{name}/</a></td><td>"),
        Kind::File => write!(page, "<tr><td><a href=\"{link}\">{name}</a></td><td"),
    };
    if entry.kind == Kind::File {
        let (bytes, text) = (entry.size, readable_size(entry.size));
        let _ = write!(page, " title=\"{bytes} bytes\">{text}");
    }
    page.push_str("</td><td>");
    // `2026-11-21T04:05:06Z`
    if let Some(exact) = entry.modified.to_rfc3339() {
        let (date, time) = (&exact[..10], &exact[11..16]);
        let _ = write!(
            page,
            "<time datetime=\"{exact}\">{date}<span> {time}</span></time>"
        );
    }
    page.push_str("</td></tr>\n");
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

#[cfg(test)]
mod tests {
    use super::super::tests::{entries, entries_of, names};
    use super::*;
    use crate::target::Hidden;
    use std::fs;
    use std::os::unix::ffi::OsStrExt;

    fn html(entries: &Entries, path: &str) -> String {
        text(entries, path, &View::default(), &Beside::default())
    }

    fn text(entries: &Entries, path: &str, view: &View, beside: &Beside<'_>) -> String {
        let page = response(entries, path.as_bytes(), view, beside);
        String::from_utf8(page.body().to_bytes().into_owned()).expect("text")
    }

    #[test]
    fn no_name_breaks_out_of_the_page() {
        let folder = tempfile::tempdir().expect("tempdir");
        let evil = [
            &b"<script>alert(1)<"[..],
            b"\" onclick=\"x",
            b"a&b",
            b"it's",
            b"javascript:alert(1)",
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
            page.matches("<script").count() == 1 && !page.contains("onclick=\""),
            "{page}"
        );
        assert!(!page.contains("new\nline") && !page.contains('\u{202e}'));
        for link in [
            "./%3Cscript%3Ealert%281%29%3C",
            "./%22%20onclick%3D%22x",
            "./a%26b",
            "./it%27s",
            "./javascript%3Aalert%281%29",
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
    fn a_large_directory_has_pages_in_the_order_of_names() {
        const MORE: usize = 500;
        let folder = tempfile::tempdir().expect("tempdir");
        let name = |number: usize| format!("file-{number:05}");
        let total = 2 * LISTING_ENTRIES_MAX + MORE;
        for number in (0..total).rev() {
            fs::write(folder.path().join(name(number)), "").expect("write");
        }
        let (mut view, mut first) = (View::default(), 0);
        loop {
            let shown = entries_of(folder.path(), "", Hidden::Refused, &view);
            let last = (first + LISTING_ENTRIES_MAX).min(total);
            let expected: Vec<_> = (first..last).map(name).collect();
            assert_eq!(names(&shown), expected);
            let page = text(&shown, "", &view, &Beside::default());
            let note = format!("Entries {} to {last} by name, of {total}", first + 1);
            assert!(
                page.find(&note) < page.find("<table>") && page.contains(&note),
                "on top"
            );
            assert_eq!(page.contains("rel=\"prev\""), first > 0);
            first = last;
            let Some(next) = shown.next() else {
                assert!(!page.contains("rel=\"next\""));
                let window = shown.previous().expect("pages before this one");
                let before =
                    entries_of(folder.path(), "", Hidden::Refused, &View { window, ..view });
                assert_eq!(names(&before)[0], name(LISTING_ENTRIES_MAX));
                assert_eq!(
                    (before.shown.len(), before.preceding),
                    (LISTING_ENTRIES_MAX, LISTING_ENTRIES_MAX)
                );
                break;
            };
            let query = View {
                window: next.clone(),
                ..view.clone()
            }
            .to_query();
            let link = query.replace('&', "&amp;");
            assert!(
                page.contains(&format!("<a href=\"{link}\" rel=\"next\">")),
                "{link}"
            );
            view.window = next;
        }
        assert_eq!(first, total);
    }

    #[test]
    fn a_listing_says_how_many_entries_there_are() {
        let folder = tempfile::tempdir().expect("tempdir");
        fs::write(folder.path().join("a"), "").expect("write");
        let page = || html(&entries(folder.path(), "", Hidden::Refused), "");
        assert!(page().contains("<p>1 entry, 0 B</p>"));
        fs::write(folder.path().join("b"), "x".repeat(1_587)).expect("write");
        let page = page();
        assert!(page.contains("<p>2 entries, 1.5 KiB</p>"));
        assert!(page.contains("<td title=\"1587 bytes\">1.5 KiB</td>"));
        assert!(
            page.contains("Z\">20") && page.contains("<time datetime=\"20"),
            "{page}"
        );
    }

    #[test]
    fn the_heads_lead_to_the_other_orders_and_show_the_present_one() {
        let heads = |query: &str| {
            let view = View::of_query(Some(query.as_bytes()));
            text(&Entries::default(), "", &view, &Beside::default())
        };
        let by_name = heads("");
        for part in [
            "<th scope=\"col\" aria-sort=\"ascending\"><a href=\"?sort=name&amp;order=desc\">",
            "\"?sort=size&amp;order=desc\"",
            "\"?sort=modified&amp;order=desc\"",
        ] {
            assert!(by_name.contains(part), "{part} in {by_name}");
        }
        assert_eq!(by_name.matches("aria-sort").count(), 1);
        let by_size = heads("sort=size&order=desc&after=a%22");
        for part in [
            "descending",
            "\"?sort=name&amp;after=a%22\"",
            "\"?sort=size&amp;after=a%22\"",
            "\"?sort=modified&amp;order=desc&amp;after=a%22\"",
        ] {
            assert!(by_size.contains(part), "{part} in {by_size}");
        }
    }

    #[test]
    fn archives_are_linked_where_there_are_any() {
        let beside = Beside {
            archives: &["tar", "zip"],
            ..Beside::default()
        };
        let page = text(&Entries::default(), "", &View::default(), &beside);
        assert!(page.contains("<a href=\"?archive=zip\" download>zip</a>"));
        assert!(!html(&Entries::default(), "").contains("archive"));
    }

    #[test]
    fn sizes_are_readable() {
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
    }
}
