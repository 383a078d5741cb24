//! A directory as JSON: an array with an object for each entry that is shown ([`Listing::Json`]).
//!
//! Where there are more entries, `Link` leads to those before and after (RFC 8288).
//!
//! [`Listing::Json`]: super::Listing::Json

use std::fmt::Write;

use flatpath_http::Response;
use flatpath_http::header_values::weight_of;
use http::StatusCode;
use http::header::{self, HeaderMap, HeaderValue};
use serde_json::Value;

use super::view::View;
use super::{Entries, Entry};
use crate::headers::Headers;
use crate::responses::{bare, visible, with};
use crate::root::Kind;

/// Whether a client likes JSON better than a page: it names it, and gives it a greater weight.
pub(crate) fn is_wanted(headers: &HeaderMap) -> bool {
    let weight = |media| weight_of(headers.all(&header::ACCEPT), media).unwrap_or(0);
    weight("application/json") > weight("text/html")
}

pub(crate) fn response(entries: &Entries, view: &View) -> Response {
    let mut text = String::with_capacity(16 + 128 * entries.shown.len());
    text.push('[');
    for (number, entry) in entries.shown.iter().enumerate() {
        text.push_str(if number == 0 { "\n" } else { ",\n" });
        write_entry(entry, &mut text);
    }
    text.push_str("\n]\n");
    let mut response = bare(StatusCode::OK);
    *response.body_mut() = text.into();
    let links: Vec<_> = [("prev", entries.previous()), ("next", entries.next())]
        .into_iter()
        .filter_map(|(relation, window)| {
            let window = window?;
            let query = View {
                window,
                ..view.clone()
            };
            let query = query.to_query();
            Some(format!("<{query}>; rel=\"{relation}\""))
        })
        .collect();
    if !links.is_empty() {
        response = with(response, header::LINK, visible(links.join(", ")));
    }
    let headers = response.headers_mut();
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/json"),
    );
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    response
}

fn write_entry(entry: &Entry, text: &mut String) {
    let name = Value::from(String::from_utf8_lossy(&entry.name));
    let url = Value::from(entry.link());
    let _ = write!(text, "{{\"name\":{name},\"url\":{url}");
    let _ = match entry.kind {
        Kind::Directory => write!(text, ",\"type\":\"directory\""),
        Kind::File => write!(text, ",\"type\":\"file\",\"size\":{}", entry.size),
    };
    if let Some(time) = entry.modified.to_rfc3339() {
        let _ = write!(text, ",\"modified\":\"{time}\"");
    }
    text.push('}');
}

#[cfg(test)]
mod tests {
    use super::super::tests::entries;
    use super::super::view::Window;
    use super::*;
    use crate::target::Hidden;
    use std::fs;
    use std::os::unix::ffi::OsStrExt;

    #[test]
    fn json_is_for_those_who_name_it_and_like_it_better() {
        for (accept, is_json) in [
            ("", false),
            ("*/*", false),
            ("application/json", true),
            ("application/json, */*", true),
            ("application/json;q=0", false),
            ("text/html, application/json", false),
            ("text/html;q=0.5, application/json;q=0.9", true),
            (
                "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8",
                false,
            ),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(header::ACCEPT, HeaderValue::from_static(accept));
            assert_eq!(is_wanted(&headers), is_json, "{accept}");
        }
        assert!(!is_wanted(&HeaderMap::new()));
    }

    #[test]
    fn every_name_is_a_string_of_json_and_its_link_is_exact() {
        let folder = tempfile::tempdir().expect("tempdir");
        for name in [
            &b"a\"b\\c\n\x01"[..],
            b"\xff.txt",
            "\u{fc}</script>".as_bytes(),
        ] {
            let name = name.split(|byte| *byte == b'/').next().expect("one");
            fs::write(
                folder.path().join(std::ffi::OsStr::from_bytes(name)),
                "12345",
            )
            .expect("write");
        }
        fs::create_dir(folder.path().join("sub")).expect("mkdir");
        let entries = entries(folder.path(), "", Hidden::Refused);
        let response = response(&entries, &View::default());
        assert_eq!(response.headers()[header::CONTENT_TYPE], "application/json");
        assert!(!response.headers().contains_key(header::LINK));
        let body = response.body().to_bytes().into_owned();
        let all: Value = serde_json::from_slice(&body).expect("it is JSON");
        let all = all.as_array().expect("an array");
        assert_eq!(all.len(), 4);
        assert_eq!(all[0]["type"], "directory");
        assert_eq!(all[0]["url"], "./sub/");
        assert!(all[0].get("size").is_none());
        assert_eq!(all[1]["name"], "a\"b\\c\n\u{1}");
        assert_eq!(all[1]["url"], "./a%22b%5Cc%0A%01");
        assert_eq!(
            (&all[1]["type"], &all[1]["size"]),
            (&"file".into(), &5.into())
        );
        assert!(
            all[1]["modified"]
                .as_str()
                .is_some_and(|time| time.ends_with('Z'))
        );
        assert_eq!(
            (&all[3]["name"], &all[3]["url"]),
            (&"\u{fffd}.txt".into(), &"./%FF.txt".into())
        );
    }

    #[test]
    fn further_entries_are_linked() {
        let mut entries = Entries {
            total: 7,
            preceding: 2,
            names: 3,
            ends: Some((b"c".into(), b"e,".into())),
            ..Entries::default()
        };
        let view = View {
            window: Window::After(b"b".into()),
            ..View::default()
        };
        let links = "<?sort=name&before=c>; rel=\"prev\", <?sort=name&after=e%2C>; rel=\"next\"";
        assert_eq!(response(&entries, &view).headers()[header::LINK], links);
        entries.total = 5;
        let links = "<?sort=name&before=c>; rel=\"prev\"";
        assert_eq!(response(&entries, &view).headers()[header::LINK], links);
    }
}
