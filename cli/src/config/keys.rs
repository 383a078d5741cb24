//! The keys that tables of the file have beside settings: the parsers take these and no others, the
//! manual page describes them, and an error says where a misplaced key belongs.
//!
//! A key that another part of the file has belongs there; an option of `/etc/exports` is one of an
//! `[[export]]`; and one that is similar to a key is meant to be the most similar one of all parts.

use flatpath_nfs::ExportsFile;

use crate::settings::{ListenerProtocol, SETTINGS, Setting};
use crate::units::most_similar;

/// From this similarity on a key counts as a misspelling of another one of its part.
const SIMILAR: f64 = 0.8;

/// The same of a key of another part.
const SIMILAR_ELSEWHERE: f64 = 0.9;

/// A key of a table.
#[cfg_attr(
    not(any(feature = "generate", test)),
    expect(dead_code, reason = "the manual page has the rest")
)]
#[derive(Debug)]
pub(crate) struct Key {
    pub(crate) name: &'static str,
    /// As it may be written.
    pub(crate) example: &'static str,
    pub(crate) help: &'static str,
}

const fn key(name: &'static str, example: &'static str, help: &'static str) -> Key {
    Key {
        name,
        example,
        help,
    }
}

/// Of `[[listener]]`, beside the settings of its protocol.
pub(crate) const LISTENER: &[Key] = &[
    key(
        "protocol",
        "protocol = \"http\"",
        "What it speaks: http, nfs, echo, relay or ingest",
    ),
    key(
        "address",
        "address = [\"127.0.0.1:8080\", \"[::1]:8080\"]",
        "Where it listens: an address as of --http, or a list of them",
    ),
];

/// Of `[[site]]`, beside settings, `dir` among them, which it needs.
pub(crate) const SITE: &[Key] = &[
    key(
        "names",
        "names = [\"example.org\", \"*.example.org\"]",
        "The hosts that it is for, *.DOMAIN for all below one [default: those of no other site]",
    ),
    key(
        "prefix",
        "prefix = \"/downloads\"",
        "The path below which it is; of several sites the longest counts [default: /]",
    ),
    key(
        "redirect",
        "redirect = [{ from = \"/old/*\", to = \"/new\", status = 301 }]",
        "Tables [[site.redirect]]: clients that ask for from are sent to to, with status 301, 302, \
         303, 307 or 308 [default: 301]",
    ),
    key(
        "rewrite",
        "rewrite = [{ from = \"/api\", to = \"/api.json\" }]",
        "Tables [[site.rewrite]]: from is answered with what to has, unseen by the client",
    ),
    key(
        "try",
        "try = [\"$path\", \"$path.html\"]",
        "The first of these files that exists is the answer",
    ),
    key(
        "clean-urls",
        "clean-urls = true",
        "/about is about.html, and /about.html redirects there",
    ),
    key(
        "trailing-slash",
        "trailing-slash = \"add\"",
        "Of pages, a slash at the end: directories, add, remove or leave [default: directories]",
    ),
    key(
        "spa",
        "spa = \"/index.html\"",
        "The page of an application, where nothing is found; true is /index.html",
    ),
    key(
        "spa-except",
        "spa-except = [\"/assets/*\"]",
        "Paths for which that page is no answer; one that is asked for a script, a style, an image \
         or a font never gets it",
    ),
    key(
        "error-pages",
        "error-pages = { 404 = \"/404.html\" }",
        "A file for each status: the table [site.error-pages]",
    ),
    key(
        "header",
        "header = [{ path = \"/a/*\", set = { X-A = \"1\" }, append = { X-B = \"2\" }, remove = \
         \"X-C\", immutable = true }]",
        "Tables [[site.header]]: for answers below path set and append headers and their values, \
         remove names, or say that they are immutable",
    ),
    key(
        "types",
        "types = { gmi = \"text/gemini\" }",
        "A media type for each ending: the table [site.types]",
    ),
    key(
        "root-files",
        "root-files = true",
        "Read rules from _redirects and _headers in its directory, too",
    ),
];

/// Of `[[export]]`: all that it has.
pub(crate) const EXPORT: &[Key] = &[
    key(
        "path",
        "path = \"/srv/www\"",
        "The directory, by its whole path, by which clients mount it",
    ),
    key(
        "clients",
        "clients = [\"192.0.2.0/24(rw,no_root_squash)\", \"*\"]",
        "Each a host, a network or * for all, with its options in parentheses, as in exports(5)",
    ),
    key(
        "options",
        "options = \"ro,insecure\"",
        "Those of clients that do not say more",
    ),
];

/// Whether a table with these keys has one of this name.
pub(super) fn has(keys: &[Key], name: &str) -> bool {
    keys.iter().any(|key| key.name == name)
}

/// The settings that a table `[[site]]` may have.
#[cfg_attr(
    not(any(feature = "generate", test)),
    expect(dead_code, reason = "the manual page has them")
)]
pub(crate) fn settings_of_sites() -> impl Iterator<Item = &'static Setting> {
    SETTINGS.iter().filter(|it| it.is_of_sites())
}

/// Tables, which stand above none.
const TABLES: &[&str] = &["listener", "site", "export"];

/// A part of the file that has keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    AboveTables,
    Listener(ListenerProtocol),
    Site,
    Export,
}

impl Place {
    /// Those that have keys of their own, beside settings.
    const TABLES: [Self; 3] = [
        Self::Site,
        Self::Listener(ListenerProtocol::Http),
        Self::Export,
    ];

    fn keys(self) -> Vec<String> {
        let settings = SETTINGS.iter().filter(|it| self.takes(it));
        let (tables, own): (&[&str], &[Key]) = match self {
            Self::AboveTables => (TABLES, &[]),
            Self::Listener(_) => (&[], LISTENER),
            Self::Site => (&[], SITE),
            Self::Export => (&[], EXPORT),
        };
        let own = tables.iter().copied().chain(own.iter().map(|key| key.name));
        own.chain(settings.map(Setting::name))
            .map(str::to_owned)
            .collect()
    }

    fn takes(self, setting: &Setting) -> bool {
        match self {
            Self::AboveTables => true,
            Self::Listener(protocol) => protocol.takes(setting),
            Self::Site => setting.is_of_sites(),
            Self::Export => false,
        }
    }

    /// As errors call it.
    fn words(self) -> &'static str {
        match self {
            Self::AboveTables => "above the tables",
            Self::Listener(_) => "in a [[listener]]",
            Self::Site => "in a [[site]]",
            Self::Export => "in an [[export]]",
        }
    }
}

/// Why a key is refused that is no setting, in one line.
pub(super) fn unknown(name: &str, place: Place) -> String {
    let here = place.words();
    if let Some(setting) = Setting::named(name) {
        return format!("there is no {name} {here}: it stands {}", setting.stands());
    }
    if let Some(elsewhere) = elsewhere(name) {
        return format!("there is no {name} {here}: {elsewhere}");
    }
    match meant(name, place) {
        Some((meant, there)) if there == place => {
            format!("there is no {name} {here}: did you mean {meant}?")
        }
        Some((meant, there)) => {
            let there = there.words();
            format!("there is no {name} {here}: did you mean {meant}, which stands {there}?")
        }
        None => format!("there is no {name} {here}"),
    }
}

/// The key that is most similar to this one, of all parts, and its part; of several this one, and
/// then that which is named first.
fn meant(name: &str, place: Place) -> Option<(String, Place)> {
    let others = Place::TABLES.into_iter().filter(|it| *it != place);
    let parts = others.map(|it| (it, SIMILAR_ELSEWHERE)).rev();
    let parts = parts.chain([(place, SIMILAR)]);
    let similar = parts.filter_map(|(part, least)| {
        let (similarity, key) = most_similar(name, part.keys().into_iter(), least)?;
        Some((similarity, key, part))
    });
    let best = similar.max_by(|(one, ..), (other, ..)| one.total_cmp(other));
    best.map(|(_, key, part)| (key, part))
}

/// Where a key belongs that is no setting: to tables, or to the options of an export.
pub(crate) fn elsewhere(name: &str) -> Option<String> {
    let table = Place::TABLES.into_iter().find(|it| {
        let is_setting = Setting::named(name).is_some();
        !is_setting && it.keys().iter().any(|key| key == name)
    });
    if let Some(table) = table {
        return Some(format!("{name} stands {}", table.words()));
    }
    let option = ExportsFile::option_named(name)?;
    Some(format!("write options = \"{option}\" in an [[export]]"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Configuration;

    /// Tables in which a key of each kind is enough.
    const TABLES: [(&str, &[Key], &str); 3] = [
        (
            "listener",
            LISTENER,
            "protocol = \"http\"\naddress = \"1\"\n",
        ),
        ("site", SITE, "dir = \"a\"\n"),
        ("export", EXPORT, "path = \"/a\"\nclients = \"*\"\n"),
    ];

    #[test]
    fn every_key_may_be_written_as_its_example_says() {
        for (table, keys, needed) in TABLES {
            for key in keys {
                assert!(key.example.starts_with(&format!("{} = ", key.name)));
                let others = needed.lines().filter(|line| !line.starts_with(key.name));
                let others: Vec<_> = others.collect();
                let text = format!("[[{table}]]\n{}\n{}\n", others.join("\n"), key.example);
                Configuration::from_text(&text).expect(key.name);
            }
        }
    }

    #[test]
    fn the_help_of_a_rule_names_all_that_its_tables_have() {
        for name in ["redirect", "rewrite", "header"] {
            let text = format!("[[site]]\ndir = \"a\"\n[[site.{name}]]\nnone = 1\n");
            let why = Configuration::from_text(&text).expect_err("it has none");
            let (_, known) = why.split_once("it has ").expect("what it has");
            let key = SITE.iter().find(|key| key.name == name).expect("a key");
            for known in known.trim_end().split(", ") {
                let in_example = key.example.contains(&format!("{known} = "));
                assert!(in_example && key.help.contains(known), "{known} of {name}");
            }
        }
    }

    #[test]
    fn no_key_is_a_setting_and_a_site_has_some() {
        for (_, keys, _) in TABLES {
            assert!(keys.iter().all(|key| Setting::named(key.name).is_none()));
        }
        assert!(settings_of_sites().any(|it| it.name() == "writable"));
    }

    /// What is wrong with a key of a part, whatever its value.
    fn refusal(table: &str, key: &str) -> String {
        let read = Configuration::from_text(&format!("{table}\n{key} = []\n"));
        read.err().unwrap_or_default()
    }

    #[test]
    fn a_key_that_is_none_is_meant_to_be_the_most_similar_of_all_parts() {
        let site = "[[site]]\ndir = \"a\"";
        for (table, key, meant) in [
            // `acme` is similar to it as well, and stands there.
            (
                "",
                "name",
                "did you mean names, which stands in a [[site]]?",
            ),
            ("", "acm", "did you mean acme?"),
            (site, "name", "did you mean names?"),
            ("", "htpp", "did you mean http?"),
        ] {
            let why = refusal(table, key);
            assert!(why.contains(meant), "{table} {key}: {why}");
        }
        assert!(!refusal("", "no-such").contains("did you mean"));
        // None is as similar as itself: the part that it stands in comes first.
        assert_eq!(
            meant("clientz", Place::Export).map(|it| it.1),
            Some(Place::Export)
        );
    }

    #[test]
    fn the_keys_of_a_part_are_those_that_it_takes() {
        let listener = "[[listener]]\nprotocol = \"http\"\naddress = 80";
        for (place, table) in [
            (Place::AboveTables, ""),
            (Place::Site, "[[site]]"),
            (Place::Listener(ListenerProtocol::Http), listener),
            (Place::Export, "[[export]]"),
        ] {
            for key in place.keys() {
                let why = refusal(table, &key);
                assert!(!why.contains("there is no "), "{table} {key}: {why}");
            }
            assert!(
                refusal(table, "no-such").contains("there is no "),
                "{table}"
            );
        }
    }
}
