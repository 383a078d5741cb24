//! Rule `denied`: README's section "What it is not" says what is so.
//!
//! Each of its sentences has a check in [`CHECKS`], which looks at the facts that it is about:
//! dependencies, settings, kernel operations, public items, other documents. A feature that a
//! sentence denies breaks its check, and so does a document that it promises and that is gone. A
//! sentence without a check is a fault, and so is a check without its sentence.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context, Result};

use super::Fault;
use super::layering::PRODUCT;
use super::source::Source;
use crate::{process, workspace};

const README: &str = "README.md";
const HEADING: &str = "## What it is not\n";
const ENTRIES: &str = "cli/src/settings/entries.rs";

/// What sentences are about.
struct Facts<'a> {
    root: &'a Path,
    sources: Vec<&'a Source>,
    /// What the published crates depend on, with all their features, but not for tests.
    crates: BTreeSet<String>,
    /// The settings of `serve`, as the file has them.
    settings: BTreeSet<String>,
}

/// Why a sentence is not so.
type Outcome = std::result::Result<(), String>;

/// Whether a sentence is so.
type Check = fn(&Facts<'_>) -> Outcome;

/// Each sentence, in its order, and what shows that it is so.
const CHECKS: &[(&str, Check)] = &[
    (
        "A test ties each of these sentences to what it denies (xtask/src/style/denied.rs).",
        |facts| facts.has_file("xtask/src/style/denied.rs"),
    ),
    ("No HTTP/3.", |facts| {
        facts.has_no_crate(&[
            "h3", "quinn", "quiche", "s2n-quic", "neqo", "msquic", "tquic",
        ])?;
        facts.has_no_literal("h3")
    }),
    (
        "A proxy on the same machine can add it; encrypt puts HAProxy and nginx in front, tested.",
        |facts| {
            let page = "book/src/encrypt.md";
            facts.says(page, "```haproxy,file=haproxy.cfg\n")?;
            facts.says(page, "$ haproxy -f haproxy.cfg")?;
            facts.says(page, "```nginx,file=nginx.conf\n")?;
            facts.says(page, "-c nginx.conf &\n")
        },
    ),
    ("No async handlers.", |facts| {
        facts.spells("protocols/http/src/handler.rs", &["trait", "Handler"])?;
        facts.spells_nowhere("protocols/http/src/handler.rs", &["Future"])?;
        facts.spells_nowhere("protocols/http/src/router/methods.rs", &["Future"])
    }),
    (
        "A handler is a function that may block, and no crate of ours starts a runtime.",
        |facts| {
            facts.spells_nowhere("", &["Runtime", ":", ":", "new"])?;
            facts.spells_nowhere("", &["runtime", ":", ":", "Builder"])?;
            facts.spells_nowhere("", &["block_on"])?;
            let others = ["async-std", "smol", "async-executor", "futures-executor"];
            facts.has_no_crate(&others)?;
            facts.has_no_crate(&["glommio", "monoio", "compio", "tokio-uring", "actix-rt"])
        },
    ),
    (
        "One that waits for others returns a Deferred, whose response any thread makes later, or a \
         future on a runtime of yours.",
        |facts| {
            let face = "docs/face/flatpath-http.txt";
            facts.says(face, "pub struct flatpath_http::Deferred")?;
            facts.says(face, "pub struct flatpath_http::Responder")?;
            facts.says(face, "flatpath_http::Deferred::spawn")
        },
    ),
    (
        "Layers of tower work if their futures are ready when they are polled.",
        |facts| {
            facts.says(
                "docs/face/flatpath-layers.txt",
                "pub struct flatpath_layers::Tower<",
            )?;
            facts.has_file("protocols/layers/tests/it/tower.rs")
        },
    ),
    ("Linux only.", |facts| {
        facts.has_no_crate(&["mio", "kqueue", "polling", "windows-sys"])?;
        facts.names_no_other_system()
    }),
    (
        "It uses io_uring where the kernel offers what is needed (flatpath doctor), else epoll.",
        |facts| facts.has_drivers(&["Epoll", "Simulation", "Uring"]),
    ),
    ("No sign-on but passwords and certificates.", |facts| {
        facts.has_no_crate(&["openidconnect", "oauth2", "jsonwebtoken", "ldap3", "samael"])?;
        facts.has_no_crate(&["libgssapi", "cross-krb5", "pam", "webauthn-rs"])?;
        facts.sign_on_is(&["auth-file", "tls-client-auth"])
    }),
    (
        "--auth-file takes files of htpasswd, and --tls-client-ca certificates of clients.",
        |facts| {
            facts.has_setting("auth-file")?;
            facts.has_setting("tls-client-ca")?;
            facts.has_file("protocols/layers/src/htpasswd.rs")
        },
    ),
    (
        "For another service that knows the users, use the proxy, or a program's own layers.",
        |facts| {
            facts.says("book/src/encrypt.md", "auth_request")?;
            facts.says("book/src/layers.md", "## Passwords and tokens\n")
        },
    ),
    ("No files over UDP.", |facts| {
        let may = [
            "services/nfs/src/portmapper/mod.rs",
            "cli/protocols/src/lib.rs",
        ];
        facts.only_these_spell(&["services", "cli"], &["listen_datagrams"], &may)?;
        facts.only_these_spell(&["services", "cli"], &["DatagramService"], &may)?;
        facts.only_these_spell(&["services", "cli"], &[".", "datagrams", "("], &may)
    }),
    (
        "Datagrams answer short questions, as of a portmapper.",
        |facts| {
            facts.spells("cli/protocols/src/lib.rs", &["listen_datagrams"])?;
            facts.has_setting("nfs-portmapper")
        },
    ),
    ("No client.", |facts| {
        // ureq is the command's own, which asks an authority for certificates (`--acme`).
        facts.has_no_crate(&["reqwest", "hyper-util", "curl", "attohttpc"])?;
        facts.only_these_spell(&[""], &["use", "ureq"], &["cli/src/tls/acme/client.rs"])
    }),
    ("Take any client in a handler.", |facts| {
        facts.has_file("examples/fan-out/src/lib.rs")
    }),
    ("Not a framework.", |facts| {
        facts.has_no_crate(&["axum", "actix-web", "rocket", "warp", "poem", "salvo"])
    }),
    ("It has no templates, sessions or database.", |facts| {
        facts.has_no_crate(&[
            "askama",
            "tera",
            "minijinja",
            "handlebars",
            "liquid",
            "maud",
        ])?;
        facts.has_no_crate(&["tower-sessions", "actix-session", "async-session"])?;
        facts.has_no_crate(&[
            "rusqlite", "sqlx", "diesel", "sea-orm", "redis", "sled", "redb",
        ])?;
        facts.has_no_crate(&["postgres", "tokio-postgres", "mysql", "rocksdb"])
    }),
    (
        "It runs your function, which may use any of them.",
        |facts| facts.says("examples/bookmarks/Cargo.toml", "rusqlite"),
    ),
    ("Not a remedy for the kernel's costs.", |facts| {
        facts.has_file("docs/figures.md")
    }),
    (
        "TCP takes nine tenths of a short reply on a kept connection.",
        |facts| {
            facts.says(
                "docs/figures.md",
                "Nine tenths of the cost are the kernel's TCP",
            )
        },
    ),
    (
        "Flatpath keeps the rest constant as connections, workers and waiting clients grow in \
         number: docs/figures.md.",
        |facts| facts.has_file("docs/figures.md"),
    ),
];

pub(super) fn check(root: &Path, sources: &[Source], faults: &mut Vec<Fault>) -> Result<()> {
    let facts = Facts {
        root,
        sources: sources.iter().collect(),
        crates: dependencies(root)?,
        settings: settings(&workspace::text(&root.join(ENTRIES))?),
    };
    anyhow::ensure!(facts.crates.contains("http"), "cargo tree names no crate");
    anyhow::ensure!(facts.settings.contains("dir"), "{ENTRIES} has no setting");
    compare(&workspace::text(&root.join(README))?, &facts, faults);
    Ok(())
}

fn compare(readme: &str, facts: &Facts<'_>, faults: &mut Vec<Fault>) {
    let line = 1 + readme
        .split(HEADING)
        .next()
        .map_or(0, |it| it.matches('\n').count());
    let mut report = |message: &str| faults.push(Fault::new(README, line, "denied", message));
    let said = sentences(section(readme));
    for sentence in &said {
        match CHECKS.iter().find(|(checked, _)| checked == sentence) {
            None => report(&format!(
                "no check in xtask/src/style/denied.rs for: {sentence}"
            )),
            Some((_, check)) => {
                if let Err(why) = check(facts) {
                    report(&format!("{sentence} It is not so: {why}"));
                }
            }
        }
    }
    for (checked, _) in CHECKS {
        if !said.iter().any(|sentence| sentence == checked) {
            report(&format!("a check has no sentence: {checked}"));
        }
    }
}

/// The text of the section, or nothing.
fn section(readme: &str) -> &str {
    let rest = readme.split_once(HEADING).map_or("", |(_, rest)| rest);
    rest.split_once("\n## ")
        .map_or(rest, |(section, _)| section)
}

/// The sentences of a text in Markdown, without what marks it up.
fn sentences(text: &str) -> Vec<String> {
    let mut plain = String::new();
    let mut rest = text;
    // `[words](address)` is its words.
    while let Some((before, link)) = rest.split_once('[') {
        plain += before;
        let Some((words, after)) = link.split_once("](") else {
            rest = link;
            continue;
        };
        plain += words;
        rest = after.split_once(')').map_or("", |(_, after)| after);
    }
    plain += rest;
    let plain = plain.replace(['*', '`'], "");
    let words: Vec<&str> = plain.split_whitespace().filter(|it| *it != "-").collect();
    let (mut all, mut sentence) = (Vec::new(), Vec::new());
    for word in words {
        sentence.push(word);
        if word.ends_with('.') {
            all.push(sentence.join(" "));
            sentence.clear();
        }
    }
    if !sentence.is_empty() {
        all.push(sentence.join(" "));
    }
    all
}

/// The names of all crates that the published ones depend on.
fn dependencies(root: &Path) -> Result<BTreeSet<String>> {
    let is_manifest = |path: &Path| path.ends_with("Cargo.toml");
    let mut command = process::cargo(&["tree", "--locked", "--all-features", "--prefix", "none"]);
    command.args(["--edges", "normal", "--format", "{p}"]);
    for manifest in workspace::files(root, is_manifest)? {
        let text = workspace::text(&root.join(&manifest))?;
        let is_ours = PRODUCT.iter().any(|layer| manifest.starts_with(layer));
        let name = text.lines().find_map(|line| line.strip_prefix("name = \""));
        if let Some(name) = name.filter(|_| is_ours) {
            command.args(["--package", name.trim_end_matches('"')]);
        }
    }
    let text = process::output(&mut command).context("cargo tree fails")?;
    let names = text.lines().filter_map(|line| line.split(' ').next());
    Ok(names.map(str::to_owned).collect())
}

/// The names in lines such as `max_connections: Option<usize> = option(...`.
fn settings(entries: &str) -> BTreeSet<String> {
    let names = entries.lines().filter_map(|line| {
        let (name, rest) = line.strip_prefix("    ")?.split_once(": ")?;
        let is_name = name.chars().all(|it| it.is_ascii_lowercase() || it == '_');
        (is_name && rest.contains(" = ")).then(|| name.replace('_', "-"))
    });
    names.collect()
}

impl Facts<'_> {
    fn text(&self, file: &str) -> std::result::Result<String, String> {
        workspace::text(&self.root.join(file)).map_err(|_| format!("there is no {file}"))
    }

    fn has_file(&self, file: &str) -> Outcome {
        self.text(file).map(drop)
    }

    fn says(&self, file: &str, words: &str) -> Outcome {
        match self.text(file)?.contains(words) {
            true => Ok(()),
            false => Err(format!("{file} does not say {words:?}")),
        }
    }

    /// None of these, nor one that begins with its name and a dash.
    fn has_no_crate(&self, names: &[&str]) -> Outcome {
        let is_one = |it: &&String| {
            let mut names = names.iter();
            names.any(|name| it == name || it.starts_with(&format!("{name}-")))
        };
        match self.crates.iter().find(is_one) {
            None => Ok(()),
            Some(name) => Err(format!("there is a dependency on {name}")),
        }
    }

    fn has_setting(&self, name: &str) -> Outcome {
        match self.settings.contains(name) {
            true => Ok(()),
            false => Err(format!("there is no --{name}")),
        }
    }

    /// The settings whose name is that of a way to sign on.
    fn sign_on_is(&self, expected: &[&str]) -> Outcome {
        const WORDS: [&str; 12] = [
            "auth", "login", "user", "password", "token", "oidc", "oauth", "jwt", "saml", "ldap",
            "krb", "sso",
        ];
        let is_one = |it: &&String| it.split('-').any(|part| WORDS.contains(&part));
        let found: Vec<&str> = self
            .settings
            .iter()
            .filter(is_one)
            .map(|it| &**it)
            .collect();
        match found == expected {
            true => Ok(()),
            false => Err(format!("the settings are {found:?}")),
        }
    }

    /// Where the code of the published crates, without their tests, has this word below this path.
    fn places(&self, below: &str, word: &str) -> impl Iterator<Item = (&Source, usize)> {
        let has_it = move |source: &&Source| {
            let path = Path::new(&source.path);
            let is_product = PRODUCT.iter().any(|layer| path.starts_with(layer));
            let is_ours = is_product && path.starts_with(below) && source.path.contains("src/");
            is_ours && source.text.contains(word)
        };
        let sources = self.sources.iter().copied().filter(has_it);
        sources.flat_map(move |source| {
            let all = source.tokens.iter().enumerate();
            let code = all.filter(move |(_, it)| it.text == word && !source.is_test(it.line));
            code.map(move |(at, _)| (source, at))
        })
    }

    fn place_of(&self, below: &str, words: &[&str]) -> Option<String> {
        let mut code = self.places(below, words[0]);
        let found = code.find(|(source, at)| source.spells(*at, words));
        found.map(|(source, at)| format!("{}:{}", source.path, source.tokens[at].line))
    }

    fn spells(&self, below: &str, words: &[&str]) -> Outcome {
        match self.place_of(below, words) {
            Some(_) => Ok(()),
            None => Err(format!("{below} has no {}", words.concat())),
        }
    }

    fn spells_nowhere(&self, below: &str, words: &[&str]) -> Outcome {
        match self.place_of(below, words) {
            None => Ok(()),
            Some(place) => Err(format!("{} is at {place}", words.concat())),
        }
    }

    /// No file in these directories spells the words but these.
    fn only_these_spell(&self, below: &[&str], words: &[&str], files: &[&str]) -> Outcome {
        let all = below.iter().flat_map(|below| self.places(below, words[0]));
        let mut others =
            all.filter(|(source, at)| !files.contains(&&*source.path) && source.spells(*at, words));
        match others.next() {
            None => Ok(()),
            Some((source, _)) => Err(format!("{} is in {}", words.concat(), source.path)),
        }
    }

    /// No literal of the protocols and of TLS is this, as a name for ALPN would be.
    fn has_no_literal(&self, text: &str) -> Outcome {
        let forms = [format!("\"{text}\""), format!("b\"{text}\"")];
        for below in ["protocols", "engine", "cli"] {
            let mut found = forms.iter().flat_map(|form| self.places(below, form));
            if let Some((source, at)) = found.next() {
                let line = source.tokens[at].line;
                return Err(format!("{text:?} is at {}:{line}", source.path));
            }
        }
        Ok(())
    }

    fn names_no_other_system(&self) -> Outcome {
        let words = ["target_os", "cfg", "not"];
        let mut places = words.iter().flat_map(|word| self.places("", word));
        let other = places.find(|(source, at)| {
            let is_os = source.spells(*at, &["target_os", "="]);
            let is_family = ["windows", "unix"].iter().any(|it| {
                source.spells(*at, &["cfg", "(", it]) || source.spells(*at, &["not", "(", it])
            });
            is_family || is_os && source.literal(at + 2) != Some("linux")
        });
        match other {
            None => Ok(()),
            Some((source, at)) => {
                let line = source.tokens[at].line;
                Err(format!("another system is at {}:{line}", source.path))
            }
        }
    }

    fn has_drivers(&self, expected: &[&str]) -> Outcome {
        let drivers = self
            .places("driver/src", "impl")
            .filter_map(|(source, at)| {
                let is_one = source.spells(at, &["impl", "Driver", "for"]);
                is_one.then(|| source.word(at + 3))
            });
        let drivers: BTreeSet<&str> = drivers.collect();
        match drivers.iter().eq(expected) {
            true => Ok(()),
            false => Err(format!("the drivers are {drivers:?}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What differs from this repository.
    #[derive(Clone, Copy, Debug, Default)]
    struct More<'a> {
        krate: Option<&'a str>,
        setting: Option<&'a str>,
        /// A file and its code.
        code: Option<(&'a str, &'a str)>,
    }

    /// The faults of a README beside this repository, with more in it.
    fn faults(readme: &str, more: More<'_>) -> Vec<String> {
        let root = workspace::root();
        let code = more
            .code
            .map(|(path, text)| Source::new(Path::new(path), text));
        let code = code.map(|source| source.expect("Rust"));
        let own = super::super::source::all().expect("readable");
        let entries = workspace::text(&root.join(ENTRIES)).expect("readable");
        let mut known = settings(&entries);
        known.extend(more.setting.map(str::to_owned));
        let crates = ["http", "h2", "tokio"].into_iter().chain(more.krate);
        let facts = Facts {
            root: &root,
            sources: own.iter().chain(&code).collect(),
            crates: crates.map(str::to_owned).collect(),
            settings: known,
        };
        let mut faults = Vec::new();
        compare(readme, &facts, &mut faults);
        faults.into_iter().map(|fault| fault.message).collect()
    }

    fn readme() -> String {
        workspace::text(&workspace::root().join(README)).expect("readable")
    }

    #[test]
    fn a_feature_that_a_sentence_denies_breaks_its_check() {
        let krate = |name| More {
            krate: Some(name),
            ..More::default()
        };
        let setting = |name| More {
            setting: Some(name),
            ..More::default()
        };
        let code = |path, text| More {
            code: Some((path, text)),
            ..More::default()
        };
        let methods = "protocols/http/src/router/methods.rs";
        for (sentence, more) in [
            ("No HTTP/3.", krate("quinn-proto")),
            (
                "No HTTP/3.",
                code("protocols/http/src/x.rs", "const A: &[u8] = b\"h3\";"),
            ),
            (
                "No async handlers.",
                code(methods, "impl<F: Future> Handler for F {}"),
            ),
            (
                "A handler is a function",
                code("services/x/src/lib.rs", "fn a() { Runtime::new(); }"),
            ),
            ("Linux only.", krate("mio")),
            (
                "Linux only.",
                code("sys/src/x.rs", "#[cfg(target_os = \"macos\")] mod a {}"),
            ),
            (
                "It uses io_uring",
                code("driver/src/x.rs", "impl Driver for Kqueue {}"),
            ),
            ("No sign-on", setting("oidc-issuer")),
            ("No sign-on", krate("ldap3")),
            (
                "No files over UDP.",
                code("services/x/src/x.rs", "fn a() { it.listen_datagrams(b); }"),
            ),
            ("No client.", krate("reqwest")),
            ("It has no templates", krate("minijinja")),
        ] {
            let found = faults(&readme(), more);
            let [one] = &found[..] else {
                panic!("{sentence} {more:?}: {found:?}");
            };
            assert!(one.starts_with(sentence) && one.contains("not so"), "{one}");
        }
    }

    #[test]
    fn a_sentence_needs_a_check_and_a_check_its_sentence() {
        let readme = readme();
        let found = |readme: &str| faults(readme, More::default());
        let more = readme.replace(
            HEADING,
            &format!("{HEADING}\n- **No mail.** It sends none.\n"),
        );
        let unchecked = found(&more);
        assert_eq!(unchecked.len(), 2, "{unchecked:?}");
        assert!(unchecked.iter().all(|it| it.starts_with("no check")));
        let less = readme.replace("**No client.**", "");
        assert_eq!(found(&less), ["a check has no sentence: No client."]);
        assert_eq!(found("# Nothing\n").len(), CHECKS.len(), "it is gone");
    }

    #[test]
    fn sentences_are_read_without_their_markup() {
        let text = "- **No `x`.** It [is so](a.md), and\n  more: *yes*.\n- Linux 5.8 only\n";
        assert_eq!(
            sentences(text),
            ["No x.", "It is so, and more: yes.", "Linux 5.8 only"]
        );
    }
}
