//! Files that rules name, and that are not there.
//!
//! A rule with such a file does nothing, or answers with 404, and no request says why. So a program
//! asks once, when it has its rules: a file may come later, and is served then.
//!
//! Looked at is what a rule names by fixed text; what has a variable depends on the request. It is
//! looked for as `lookup` does, without the steps that come after it.

use std::fmt;

use http::StatusCode;

use crate::error::FilesError;
use crate::root::{Kind, Reach, Root};
use crate::rules::{CleanUrls, Rules};
use crate::target::{Hidden, INDEX, PAGE, PathForm, Target, is_own, joined};

/// A file that a rule names and that cannot be served: it is not there, hidden, or not readable.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MissingFile {
    /// The kind of the rule.
    pub rule: NamedBy,
    /// The path below the directory, from its slash, as the rule has it.
    pub path: String,
}

/// A kind of rules that name files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NamedBy {
    /// [`Rules::rewrite`].
    Rewrite,
    /// [`Rules::try_files`].
    Try,
    /// [`Rules::fallback`].
    Fallback,
    /// [`Rules::error_page`] for this status.
    ErrorPage(StatusCode),
}

impl fmt::Display for MissingFile {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = &self.path;
        match self.rule {
            NamedBy::Rewrite => write!(formatter, "a rewrite leads to {path}"),
            NamedBy::Try => write!(formatter, "a list of files to try has {path}"),
            NamedBy::Fallback => write!(formatter, "the page where nothing is found is {path}"),
            NamedBy::ErrorPage(status) => {
                write!(formatter, "the page for {} is {path}", status.as_u16())
            }
        }?;
        formatter.write_str(", and there is no such file that can be served")
    }
}

/// Looks at files that rules name.
pub(crate) struct Looker<'a> {
    pub(crate) root: &'a Root,
    /// What is beyond it counts as there.
    pub(crate) reach: Reach,
    pub(crate) hidden: Hidden,
    /// The rules that say how addresses lead to files, and which files are kept back.
    pub(crate) set: &'a Rules,
    /// Those that name files.
    pub(crate) rules: &'a Rules,
}

impl Looker<'_> {
    /// What of the files that the rules name is not there.
    pub(crate) fn missing(&self) -> Vec<MissingFile> {
        let rules = self.rules;
        let mut missing = Vec::new();
        let mut note = |rule, path: String| missing.push(MissingFile { rule, path });
        for template in rules.rewrites.iter() {
            if let Some(path) = template.fixed().filter(|path| !self.is_page(path)) {
                note(NamedBy::Rewrite, path);
            }
        }
        let tried = rules.tries.iter().flatten().map(|it| (NamedBy::Try, it));
        let fallbacks = rules.fallbacks.iter().map(|it| (NamedBy::Fallback, it));
        for (rule, template) in tried.chain(fallbacks) {
            if let Some(path) = template.fixed().filter(|path| !self.is_named(rule, path)) {
                note(rule, path);
            }
        }
        let mut pages: Vec<_> = rules.error_pages.iter().collect();
        pages.sort_unstable_by_key(|(status, _)| status.as_u16());
        for (status, path) in pages {
            if !self.is_file(path) {
                let path = format!("/{}", String::from_utf8_lossy(path));
                note(NamedBy::ErrorPage(*status), path);
            }
        }
        missing
    }

    /// Whether this is there, of this kind, and served.
    fn is(&self, kind: Kind, path: &[u8]) -> bool {
        let is_kept_back =
            path.split(|byte| *byte == b'/').any(is_own) || self.set.root_files.keeps_back(path);
        match self.root.find_within(path, self.reach) {
            Ok(opened) => opened.kind == kind && !is_kept_back,
            Err(error) => matches!(error, FilesError::OtherMount | FilesError::NotAtHand),
        }
    }

    fn is_file(&self, path: &[u8]) -> bool {
        self.is(Kind::File, path)
    }

    /// What a try list or a fallback names: a file, or of a directory its index. A try list may
    /// name a directory to be listed.
    fn is_named(&self, rule: NamedBy, path: &str) -> bool {
        let Ok(target) = Target::parse(path.as_bytes(), self.hidden) else {
            return false;
        };
        match target.form() {
            PathForm::Plain => self.is_file(target.path()),
            PathForm::Directory => {
                let is_listed = || self.is(Kind::Directory, target.path());
                self.is_file(&joined(target.path(), INDEX)) || rule == NamedBy::Try && is_listed()
            }
        }
    }

    /// What a rewrite leads to: a page by its address. Where a list of files comes next, that has
    /// the last word.
    fn is_page(&self, path: &str) -> bool {
        let Ok(target) = Target::parse(path.as_bytes(), self.hidden) else {
            return false;
        };
        if self.set.tries.find(&target.address()).is_some() {
            return true;
        }
        let path = target.path();
        let is_clean = self.set.clean_urls == CleanUrls::Served;
        self.is_file(&joined(path, INDEX))
            || is_clean && self.is_file(&[path, PAGE].concat())
            || match target.form() {
                PathForm::Plain => self.is_file(path),
                PathForm::Directory => self.is(Kind::Directory, path),
            }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::Files;
    use crate::rules::{Pattern, RootFiles};

    fn site() -> tempfile::TempDir {
        let folder = tempfile::tempdir().expect("a directory");
        for directory in ["with-index", "bare"] {
            fs::create_dir(folder.path().join(directory)).expect("made");
        }
        for file in [
            "page.html",
            ".hidden.html",
            "with-index/index.html",
            "_headers",
        ] {
            fs::write(folder.path().join(file), "").expect("written");
        }
        folder
    }

    #[test]
    fn files_that_rules_name_by_fixed_text_are_looked_at() {
        let site = site();
        let any = Pattern::any;
        let page = |rules: Rules, file| rules.error_page(StatusCode::NOT_FOUND, file);
        let of = |rules: Result<Rules, crate::RuleError>| {
            let files = Files::open(site.path())
                .expect("open")
                .rules(rules.expect("rules"));
            let missing = files.missing_files().into_iter();
            missing.map(|it| (it.rule, it.path)).collect::<Vec<_>>()
        };
        let exact = || Pattern::exact("/a").expect("a path");
        for (path, [rewrite, tried, fallback, error]) in [
            ("/page.html", [true; 4]),
            ("/no.html", [false; 4]),
            ("/page", [false; 4]),
            ("/page.html/", [false; 4]),
            ("/with-index/", [true, true, true, false]),
            ("/with-index", [true, false, false, false]),
            ("/bare/", [true, true, false, false]),
            ("/bare", [false; 4]),
            ("/.hidden.html", [false, false, false, true]),
            ("/p%61ge.html", [true; 4]),
            ("/$path.html", [true, true, true, false]),
        ] {
            let rules = Rules::new;
            let found = of(rules().rewrite(exact(), path));
            assert_eq!(found.is_empty(), rewrite, "{path}: {found:?}");
            let found = of(rules().try_files(any(), ["$path", path]));
            assert_eq!(found.is_empty(), tried, "{path}: {found:?}");
            let found = of(rules().fallback(any(), path));
            assert_eq!(found.is_empty(), fallback, "{path}: {found:?}");
            if path != "/page.html/" {
                let found = of(page(rules(), path));
                assert_eq!(found.is_empty(), error, "{path}: {found:?}");
            }
        }
        let clean = Rules::new().clean_urls(CleanUrls::Served);
        assert!(of(clean.rewrite(exact(), "/page")).is_empty());
        let kept_back = Rules::new().root_files(RootFiles::Read);
        let missing = of(kept_back.fallback(any(), "/_headers"));
        assert_eq!(missing, [(NamedBy::Fallback, "/_headers".into())]);
        let first = Rules::new().rewrite(exact(), "/no");
        let tried = first.and_then(|rules| rules.try_files(any(), ["$path.html"]));
        assert!(of(tried).is_empty(), "the list has the last word");
    }

    #[test]
    fn a_missing_file_is_told_in_a_line() {
        let missing = MissingFile {
            rule: NamedBy::ErrorPage(StatusCode::NOT_FOUND),
            path: "/404.html".into(),
        };
        let words = "the page for 404 is /404.html, and there is no such file that can be served";
        assert_eq!(missing.to_string(), words);
    }
}
