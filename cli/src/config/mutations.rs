//! Texts of a configuration with sites and rules, changed at random: the same each time.
//!
//! Holds of every text
//! - It is a configuration, or an error that begins with a place in the text.
//! - Rules that are written anew, as they are compared for a reload, are the same rules.

use super::*;
use flatpath_files::Explanation;

/// Texts to start from. The last one has mistakes.
const TEXTS: &[&str] = &[
    r#"
hosts = "*"
[[site]]
names = ["a.example", "*.a.example"]
prefix = "/p"
dir = "a"
clean-urls = true
trailing-slash = "leave"
spa = "/index.html"
try = ["$path", "$path.html"]
root-files = true
[[site.redirect]]
from = "/old/*"
to = "/new"
status = 308
[[site.rewrite]]
from = "~^/user/([0-9]+)$"
to = "/users/$1.json"
[[site.header]]
path = "hashed"
immutable = true
[[site.header]]
set = { Cache-Control = "max-age=3600", X-B = "\"quoted\"\t\\" }
append = { Vary = "cookie" }
remove = ["X-C"]
[site.error-pages]
404 = "/404.html"
[site.types]
gmi = "text/gemini"
"#,
    r#"
[[site]]
dir = "b"
auth-file = "users"
allow = ["10.0.0.0/8"]
rate = "10/s"
redirect = [{ from = '/a', to = "https://h.example/b?x=1#y" }, { from = "/:x/*", to = "/$x" }]
[[site]]
dir = "c"
prefix = "/c"
header = [{ set = { "X-A" = "1" }, path = "/*.png" }]
error-pages = { 503 = "/503.html" }
[[export]]
path = "/srv"
clients = "*(ro)"
"#,
    "[[site]]\ndir = 1\n[[site.redirect]]\nfrom = \"~(\"\n[[site]]\n[site.types]\nx = \"\u{e9}\"\n",
];

/// What a text is changed with.
const TOKENS: &[&str] = &[
    "\n",
    "\"",
    "'",
    "=",
    "[",
    "]",
    "[[site]]\n",
    "[site.header]\n",
    "{",
    "}",
    ",",
    ".",
    "#",
    "true",
    "-1",
    "0",
    "99999999999999999999",
    "1.5",
    "\\",
    "\\u0000",
    "\\n",
    "$1",
    "/*",
    "~",
    "\u{e9}",
    "\u{2028}",
    "\"\"\"",
];

/// As many texts are tried.
const ROUNDS: usize = 6_000;

/// A text with one to three changes: of lines, which often leave it good, or of anything.
fn mutated(random: &mut fastrand::Rng) -> String {
    let any = |random: &mut fastrand::Rng| TEXTS[random.usize(..TEXTS.len())];
    let mut text = any(random).to_owned();
    for _ in 0..random.usize(1..4) {
        text = match random.bool() {
            true => with_other_lines(&text, any(random), random),
            false => with_other_characters(&text, any(random), random),
        };
    }
    text
}

/// Without a line, or with one of another text.
fn with_other_lines(text: &str, other: &str, random: &mut fastrand::Rng) -> String {
    let mut lines: Vec<&str> = text.split('\n').collect();
    let at = random.usize(..lines.len());
    match random.u8(..3) {
        0 => drop(lines.remove(at)),
        1 => lines.truncate(at),
        _ => {
            let others: Vec<&str> = other.split('\n').collect();
            lines.insert(at, others[random.usize(..others.len())]);
        }
    }
    lines.join("\n")
}

fn with_other_characters(text: &str, other: &str, random: &mut fastrand::Rng) -> String {
    let mut text: Vec<char> = text.chars().collect();
    let at = random.usize(..=text.len());
    let end = (at + random.usize(..12)).min(text.len());
    let token = TOKENS[random.usize(..TOKENS.len())];
    match random.u8(..5) {
        0 => drop(text.drain(at..end)),
        1 => {
            let part = text[at..end].to_vec();
            text.splice(at..at, part);
        }
        2 => drop(text.splice(at..end, token.chars())),
        3 => drop(text.splice(at..at, token.chars())),
        _ => {
            let other: Vec<char> = other.chars().collect();
            let from = random.usize(..=other.len());
            let end = (from + random.usize(..64)).min(other.len());
            text.splice(at..at, other[from..end].iter().copied());
        }
    }
    text.into_iter().collect()
}

/// The error begins with a line and a column of the text.
fn assert_place(text: &str, error: &str) {
    let mut parts = error.splitn(3, ':');
    let mut number = || parts.next().and_then(|part| part.parse::<usize>().ok());
    let (Some(line), Some(column)) = (number(), number()) else {
        panic!("{error}\n{text}");
    };
    let shown = text.split('\n').nth(line - 1);
    let shown = shown.unwrap_or_else(|| panic!("{error}\n{text}"));
    assert!(
        (1..=shown.chars().count() + 1).contains(&column),
        "{error}\n{text}"
    );
}

fn explained(site: &SiteTable) -> Vec<Explanation> {
    let targets = [
        "/",
        "/old/a?q",
        "/user/7",
        "/a",
        "/x/y",
        "/app.3f2a9c1b.js",
        "/b.png",
    ];
    let explain = |target: &&str| site.rules.rules.explain(target);
    targets.iter().map(explain).collect()
}

#[test]
fn model_a_text_is_a_configuration_or_an_error_with_its_place() {
    let mut random = fastrand::Rng::with_seed(25);
    let (mut good, mut bad) = (0, 0);
    for _ in 0..ROUNDS {
        let text = mutated(&mut random);
        let file = match Configuration::from_text(&text) {
            Ok(file) => file,
            Err(error) => {
                assert_place(&text, &error);
                bad += 1;
                continue;
            }
        };
        for site in &file.sites {
            let anew = format!("[[site]]\ndir = \"d\"\n{}", site.rules.text);
            let again = Configuration::from_text(&anew);
            let again = again.unwrap_or_else(|error| panic!("{error}\n{anew}"));
            assert_eq!(again.sites[0].rules, site.rules, "{text}\n{anew}");
            assert_eq!(
                explained(&again.sites[0]),
                explained(site),
                "{text}\n{anew}"
            );
            good += 1;
        }
    }
    // Both kinds are met often.
    assert!(good > ROUNDS / 20 && bad > ROUNDS / 20, "{good} and {bad}");
}
