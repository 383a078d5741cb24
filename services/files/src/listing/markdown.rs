//! Markdown as HTML that does nothing but show: for a README, whose author need not be trusted.
//!
//! pulldown-cmark parses, and writes the events that [`Harmless`] lets through:
//!
//! | what                | becomes                                                            |
//! |---------------------|--------------------------------------------------------------------|
//! | raw HTML            | text, escaped                                                      |
//! | links               | links, if they are relative, `http` or `https`; otherwise text     |
//! | images              | links to them, as the page may load nothing                        |
//! | headings            | headings below the two of the page                                 |
//! | alignment, classes  | nothing: no attribute but `href` and `title` has text of the file  |
//!
//! Bounds: `MARKDOWN_DEPTH_MAX` elements within each other, `MARKDOWN_BYTES_MAX` of events. Time
//! is linear in the text, but for lines within very many block quotes or lists: where a line opens
//! more than `MARKDOWN_MARKERS_MAX`, there is no HTML.

use std::collections::VecDeque;

use pulldown_cmark::{
    CodeBlockKind, CowStr, Event, HeadingLevel, LinkType, Options, Parser, Tag, TagEnd, html,
};

use crate::limits::{MARKDOWN_BYTES_MAX, MARKDOWN_DEPTH_MAX, MARKDOWN_MARKERS_MAX};
use crate::page::harmless;

/// What one event costs beside its text: its tag.
const EVENT_BYTES: usize = 16;

/// The HTML of a text, and whether it is all of it. `None`: it is too deep.
pub(super) fn html(text: &[u8]) -> Option<(String, bool)> {
    let text = String::from_utf8_lossy(text);
    if text
        .lines()
        .any(|line| markers(line) > MARKDOWN_MARKERS_MAX)
    {
        return None;
    }
    let options =
        Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH | Options::ENABLE_TASKLISTS;
    let mut events = Harmless {
        events: Parser::new_ext(&text, options),
        open: Vec::new(),
        next: VecDeque::new(),
        bytes: 0,
    };
    let mut page = String::with_capacity(text.len() * 5 / 4);
    html::push_html(&mut page, events.by_ref());
    Some((page, events.bytes <= MARKDOWN_BYTES_MAX))
}

/// How many block quotes and lists the beginning of a line may open.
fn markers(line: &str) -> usize {
    let is_marker = |it: &u8| it.is_ascii_digit() || b"> \t-+*.)".contains(it);
    let beginning: Vec<u8> = line.bytes().take_while(is_marker).chain([b' ']).collect();
    let opens = |pair: &&[u8]| match pair {
        [b'>', _] => true,
        // Those of a list have white space after them.
        [b'-' | b'+' | b'*' | b'.' | b')', b' ' | b'\t'] => true,
        _ => false,
    };
    beginning.windows(2).filter(opens).count()
}

/// The events of a text, without what would do anything.
struct Harmless<'a> {
    events: Parser<'a>,
    /// What has begun and not ended.
    open: Vec<Open<'a>>,
    /// What comes before the next event of the text.
    next: VecDeque<Event<'a>>,
    /// What was passed on so far, at least.
    bytes: usize,
}

/// An element of the text.
enum Open<'a> {
    Shown(TagEnd),
    /// What it has is shown without it.
    Bare,
    /// The link that an image became, until something of its text comes.
    Image(CowStr<'a>),
}

impl<'a> Iterator for Harmless<'a> {
    type Item = Event<'a>;

    fn next(&mut self) -> Option<Event<'a>> {
        loop {
            if let Some(event) = self.next.pop_front() {
                return Some(event);
            }
            if self.bytes > MARKDOWN_BYTES_MAX {
                return self.end();
            }
            let event = self.events.next()?;
            self.take(event);
        }
    }
}

impl<'a> Harmless<'a> {
    /// Ends what is open, from the innermost on.
    fn end(&mut self) -> Option<Event<'a>> {
        while let Some(open) = self.open.pop() {
            match open {
                Open::Shown(end) => return Some(Event::End(end)),
                Open::Image(_) => return Some(Event::End(TagEnd::Link)),
                Open::Bare => {}
            }
        }
        None
    }

    fn take(&mut self, event: Event<'a>) {
        self.bytes += EVENT_BYTES;
        match event {
            Event::Start(tag) => self.begin(tag),
            Event::End(_) => match self.open.pop() {
                Some(Open::Shown(end)) => self.next.push_back(Event::End(end)),
                Some(Open::Image(address)) => {
                    // A link without text is none that anyone could follow.
                    self.put(Event::Text(address));
                    self.next.push_back(Event::End(TagEnd::Link));
                }
                Some(Open::Bare) | None => {}
            },
            Event::Html(text) | Event::InlineHtml(text) | Event::Text(text) => {
                self.put(Event::Text(clean(text)));
            }
            Event::Code(text) => self.put(Event::Code(clean(text))),
            Event::SoftBreak | Event::HardBreak | Event::Rule | Event::TaskListMarker(_) => {
                self.put(event);
            }
            // Not asked for.
            Event::InlineMath(text) | Event::DisplayMath(text) | Event::FootnoteReference(text) => {
                self.put(Event::Text(clean(text)));
            }
        }
    }

    /// Something to see.
    fn put(&mut self, event: Event<'a>) {
        if let Event::Text(text) | Event::Code(text) = &event {
            self.bytes += text.len();
        }
        if let Some(open @ Open::Image(_)) = self.open.last_mut() {
            *open = Open::Shown(TagEnd::Link);
        }
        self.next.push_back(event);
    }

    fn begin(&mut self, tag: Tag<'a>) {
        let is_deep = self.open.len() >= MARKDOWN_DEPTH_MAX;
        let is_linked = self.open.iter().any(|it| match it {
            Open::Shown(end) => *end == TagEnd::Link,
            Open::Image(_) => true,
            Open::Bare => false,
        });
        let (tag, open) = match shown(tag) {
            Shown::Element(tag) => {
                let open = Open::Shown(tag.to_end());
                (tag, open)
            }
            Shown::Image(tag, address) => (tag, Open::Image(address)),
            Shown::Nothing => return self.open.push(Open::Bare),
        };
        // A link within a link is no HTML.
        let is_second = is_linked && tag.to_end() == TagEnd::Link;
        if is_deep || is_second {
            return self.open.push(Open::Bare);
        }
        self.bytes += bytes_of(&tag);
        if !matches!(open, Open::Image(_)) {
            // An element within the text of an image is something to see.
            if let Some(outer @ Open::Image(_)) = self.open.last_mut() {
                *outer = Open::Shown(TagEnd::Link);
            }
        }
        self.next.push_back(Event::Start(tag));
        self.open.push(open);
    }
}

/// How an element is shown.
enum Shown<'a> {
    Element(Tag<'a>),
    /// As a link to this address.
    Image(Tag<'a>, CowStr<'a>),
    Nothing,
}

fn shown(tag: Tag<'_>) -> Shown<'_> {
    Shown::Element(match tag {
        Tag::Link {
            link_type,
            dest_url,
            title,
            ..
        } => match leads_well(&dest_url) && link_type != LinkType::Email {
            true => link(dest_url, title),
            false => return Shown::Nothing,
        },
        Tag::Image {
            dest_url, title, ..
        } => match leads_well(&dest_url) {
            true => return Shown::Image(link(dest_url.clone(), title), clean(dest_url)),
            false => return Shown::Nothing,
        },
        Tag::Heading { level, .. } => Tag::Heading {
            level: match level {
                HeadingLevel::H1 => HeadingLevel::H3,
                HeadingLevel::H2 => HeadingLevel::H4,
                HeadingLevel::H3 => HeadingLevel::H5,
                _ => HeadingLevel::H6,
            },
            id: None,
            classes: Vec::new(),
            attrs: Vec::new(),
        },
        Tag::CodeBlock(_) => Tag::CodeBlock(CodeBlockKind::Indented),
        Tag::Table(columns) => {
            let columns = columns.iter().map(|_| pulldown_cmark::Alignment::None);
            Tag::Table(columns.collect())
        }
        Tag::HtmlBlock => Tag::Paragraph,
        Tag::BlockQuote(_) => Tag::BlockQuote(None),
        tag @ (Tag::Paragraph
        | Tag::List(_)
        | Tag::Item
        | Tag::TableHead
        | Tag::TableRow
        | Tag::TableCell
        | Tag::Emphasis
        | Tag::Strong
        | Tag::Strikethrough) => tag,
        // Not asked for.
        _ => return Shown::Nothing,
    })
}

fn link<'a>(address: CowStr<'a>, title: CowStr<'a>) -> Tag<'a> {
    Tag::Link {
        link_type: LinkType::Inline,
        dest_url: address,
        title: clean(title),
        id: CowStr::Borrowed(""),
    }
}

/// Text of an element's attributes.
fn bytes_of(tag: &Tag<'_>) -> usize {
    match tag {
        Tag::Link {
            dest_url, title, ..
        } => dest_url.len() + title.len(),
        _ => 0,
    }
}

/// Whether a link leads to a page: it is relative, or its scheme is that of one, letter by letter.
/// What a browser would leave out of a scheme, a line end say, makes it another one here.
fn leads_well(address: &str) -> bool {
    let end = address.find(['/', '?', '#', '\\']).unwrap_or(address.len());
    match address[..end].split_once(':') {
        Some((scheme, _)) => ["http", "https"]
            .iter()
            .any(|it| scheme.eq_ignore_ascii_case(it)),
        None => true,
    }
}

/// Text without characters that do something unseen.
fn clean(text: CowStr<'_>) -> CowStr<'_> {
    let seen = |it: char| match it {
        '\n' | '\t' => it,
        other => harmless(other),
    };
    match text.chars().any(|it| seen(it) != it) {
        true => text.chars().map(seen).collect::<String>().into(),
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::README_BYTES_MAX;

    fn page(text: &str) -> String {
        html(text.as_bytes()).expect("it is not deep").0
    }

    #[test]
    fn what_people_write_is_shown_as_they_mean_it() {
        let text = "# Title\n\nSome *words*, `code & more` and ~~none~~.\n\n- [x] one\n- two\n\n\
            | a | b |\n|:--|--:|\n| 1 | 2 |\n\n> quoted\n\n```rust\nfn main() {}\n```\n\
            [there](docs/a%20b.md \"a title\"), <https://example.org/?a=1&b=2>\n";
        let page = page(text);
        for part in [
            "<h3>Title</h3>",
            "<em>words</em>",
            "<code>code &amp; more</code>",
            "<del>none</del>",
            "<input disabled=\"\" type=\"checkbox\" checked=\"\"/>",
            "<table><thead><tr><th>a</th><th>b</th></tr></thead>",
            "<blockquote>\n<p>quoted</p>",
            "<pre><code>fn main() {}\n</code></pre>",
            "<a href=\"docs/a%20b.md\" title=\"a title\">there</a>",
            "<a href=\"https://example.org/?a=1&amp;b=2\">",
        ] {
            assert!(page.contains(part), "{part} in {page}");
        }
    }

    /// The tags of a page, and its attributes with their values.
    fn markup(page: &str) -> Vec<&str> {
        let tags = page.split('<').skip(1);
        tags.map(|tag| tag.split_once('>').expect("a tag ends").0)
            .collect()
    }

    #[test]
    fn nothing_of_a_file_becomes_a_tag_or_an_attribute() {
        for text in [
            "<script>alert(1)</script>",
            "a <img src=x onerror=alert(1)> b",
            "<p align=center>\n<a href=\"javascript:alert(1)\">x</a>\n</p>",
            "<!-- a --> <style>*{}</style>",
            "&lt;script&gt;alert(1)&lt;/script&gt;",
            "`<script>`",
            "```\"><script>\n<b>\n```",
            "[<b>](a \"\\\"><script>\")",
            "![<i onload=x>](a)",
            "# a {onclick=alert(1) #told .drop}",
            "<x@y.z> <mailto:x@y.z>",
            "| <b> |\n|---|\n| </td><script> |",
        ] {
            let page = page(text);
            for tag in markup(&page) {
                let name = tag
                    .trim_start_matches('/')
                    .split([' ', '/'])
                    .next()
                    .unwrap_or_default();
                let is_known = [
                    "p", "a", "h3", "code", "pre", "table", "thead", "tbody", "tr", "th", "td",
                ];
                assert!(is_known.contains(&name), "{tag} of {text}: {page}");
                let attribute = tag.split_once(' ').map_or("", |(_, rest)| rest);
                assert!(
                    attribute.is_empty() || attribute.starts_with("href=\""),
                    "{tag} of {text}: {page}"
                );
            }
        }
    }

    #[test]
    fn links_lead_to_pages_alone() {
        for (address, leads) in [
            ("https://example.org/a", true),
            ("HTTP://example.org", true),
            ("//example.org", true),
            ("docs/a:b.md", true),
            ("./a:b", true),
            ("?a:b", true),
            ("#a:b", true),
            ("", true),
            ("javascript:alert(1)", false),
            ("JavaScript:alert(1)", false),
            ("&#106;avascript:alert(1)", false),
            ("java&#10;script:alert(1)", false),
            ("&#1;javascript:alert(1)", false),
            ("javascript&colon;alert(1)", false),
            ("<  javascript:alert(1)>", false),
            ("data:text/html,x", false),
            ("vbscript:x", false),
            ("file:///etc/passwd", false),
            ("mailto:x@y.z", false),
            ("blob:x", false),
        ] {
            for text in [
                format!("[words]({address})"),
                format!("![words]({address})"),
                format!("[words]\n\n[words]: {address}"),
            ] {
                let page = page(&text);
                if address.is_empty() && text.ends_with(' ') {
                    continue;
                }
                assert_eq!(page.contains("<a href="), leads, "{text}: {page}");
                assert!(page.contains("words"), "{text}: {page}");
            }
        }
    }

    #[test]
    fn an_image_is_a_link_to_it_unless_it_is_in_one() {
        assert_eq!(
            page("![a *b*](c.png)"),
            "<p><a href=\"c.png\">a <em>b</em></a></p>\n"
        );
        assert_eq!(page("![](c.png)"), "<p><a href=\"c.png\">c.png</a></p>\n");
        assert_eq!(
            page("[![badge](c.svg)](d)"),
            "<p><a href=\"d\">badge</a></p>\n"
        );
        assert_eq!(page("![a [b](c) d](e)").matches("<a ").count(), 1);
    }

    #[test]
    fn characters_that_do_something_unseen_are_replaced_however_they_are_written() {
        for text in [
            "a\u{202e}b",
            "a&#x202e;b",
            "a&#27;b",
            "`a\u{1b}b`",
            "[x](y \"a&#x2066;b\")",
        ] {
            let page = page(text);
            assert!(page.contains("a\u{fffd}b"), "{text}: {page}");
        }
    }

    #[test]
    fn what_is_long_or_deep_is_bounded_and_every_element_is_ended() {
        let many = README_BYTES_MAX;
        let table = format!(
            "{}\n{}\n{}",
            "|a".repeat(8_000),
            "|-".repeat(8_000),
            "|\n".repeat(16_000)
        );
        let references = format!(
            "[a]: /{}\n\n{}",
            "x".repeat(many / 2),
            "[a]".repeat(many / 6)
        );
        let nested = (0..200).map(|deep| format!("{}- a\n", "  ".repeat(deep)));
        for text in [
            "*a*".repeat(many / 3),
            "[a](b)".repeat(many / 6),
            "**a *b ".repeat(many / 7),
            "> - ".repeat(MARKDOWN_MARKERS_MAX / 2) + "a",
            nested.collect(),
            table,
            references,
        ] {
            let (page, _) = html(text.as_bytes()).expect("few markers in each line");
            // Each event is a tag or text, which has at most six bytes for one.
            assert!(page.len() <= 6 * MARKDOWN_BYTES_MAX, "{}", page.len());
            let (mut open, mut deepest) = (Vec::new(), 0);
            for tag in markup(&page) {
                let name = tag
                    .trim_start_matches('/')
                    .split(' ')
                    .next()
                    .unwrap_or_default();
                match (tag.starts_with('/'), tag.ends_with('/') || name == "br") {
                    (true, _) => assert_eq!(open.pop(), Some(name)),
                    (false, true) => {}
                    (false, false) => open.push(name),
                }
                deepest = deepest.max(open.len());
            }
            assert_eq!(open, Vec::<&str>::new(), "each is ended");
            // One of ours may be two of HTML.
            assert!(deepest <= 2 * MARKDOWN_DEPTH_MAX, "{deepest}");
        }
        let (_, is_whole) = html("*a*".repeat(many / 3).as_bytes()).expect("not deep");
        assert!(!is_whole);
        let (_, is_whole) = html("some words\n\n".repeat(many / 12).as_bytes()).expect("not deep");
        assert!(is_whole);
    }

    #[test]
    fn a_line_with_very_many_markers_is_no_markdown() {
        for text in [
            ">".repeat(20_000),
            "- ".repeat(20_000),
            "1. ".repeat(20_000),
        ] {
            assert!(html(format!("a\n{text}b").as_bytes()).is_none());
        }
        for text in [
            "-".repeat(500),
            "| - ".repeat(500),
            "2026-11-29 ".repeat(500),
        ] {
            assert!(html(text.as_bytes()).is_some(), "{text}");
        }
    }
}
