//! The rules of a site as a program or a configuration sets them. The front page of this module has
//! the order in which they are tried.

use std::collections::HashMap;

use http::{HeaderValue, StatusCode};

use super::changes::HeaderChange;
use super::error::RuleError;
use super::list::RuleList;
use super::pattern::{self, Pattern};
use super::template::{Purpose, Template};
use crate::limits::{REDIRECT_HOPS_MAX, TRY_FILES_MAX};
use crate::target::{Hidden, Target, name_of};

/// What a site does with paths, beyond serving the file of that name: redirects, rewrites, clean
/// addresses, fallbacks, error pages and headers. See [`Files::rules`](crate::Files::rules).
///
/// The order in which they are tried, which is not that of the calls: redirects; rewrites; `try`
/// lists; the file itself, with clean addresses and slashes; the fallback; error pages; headers.
/// Of rules of one kind the first that is for the path wins, but headers are changed by all.
///
/// A target may have variables: `$1` and `${name}` for the groups of an expression, `$splat` and
/// `$name` for those of a glob, `$rest` for what is below a prefix, `$path` for the path, without
/// a slash at its end; `$$` is a dollar. They bring percent-encoded text.
///
/// ```
/// use flatpath_files::{CleanUrls, HeaderChange, Pattern, Rules};
/// use http::StatusCode;
///
/// # fn main() -> Result<(), flatpath_files::RuleError> {
/// let rules = Rules::new()
///     .redirect(Pattern::prefix("/old")?, "/new", StatusCode::MOVED_PERMANENTLY)?
///     .redirect(Pattern::regex(r"^/post/(\d+)$")?, "/posts/$1/", StatusCode::FOUND)?
///     .clean_urls(CleanUrls::Served)
///     .fallback(Pattern::prefix("/app")?, "/app/index.html")?
///     .error_page(StatusCode::NOT_FOUND, "/404.html")?
///     .headers(Pattern::hashed(), [HeaderChange::immutable()])?
///     .headers(
///         Pattern::any(),
///         [HeaderChange::set("Content-Security-Policy", "default-src 'self'")?],
///     )?
///     .media_type("gmi", "text/gemini; charset=utf-8")?;
/// println!("{}", rules.explain("/old/page"));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Rules {
    pub(crate) redirects: RuleList<Redirect>,
    pub(crate) rewrites: RuleList<Template>,
    pub(crate) tries: RuleList<Vec<Template>>,
    pub(crate) clean_urls: CleanUrls,
    pub(crate) trailing_slash: TrailingSlash,
    pub(crate) fallbacks: RuleList<Template>,
    /// Paths that no fallback answers.
    pub(crate) without_fallback: RuleList<()>,
    pub(crate) error_pages: HashMap<StatusCode, Vec<u8>>,
    pub(crate) headers: RuleList<Vec<HeaderChange>>,
    /// By ending, in lower case.
    pub(crate) media_types: HashMap<Vec<u8>, HeaderValue>,
    pub(crate) root_files: RootFiles,
}

#[derive(Clone, Debug)]
pub(crate) struct Redirect {
    pub(crate) status: StatusCode,
    pub(crate) to: Template,
}

/// Whether pages have addresses without `.html`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum CleanUrls {
    /// They have the names of their files.
    #[default]
    Off,
    /// `/about` is answered with `about.html`, and `/about.html` is redirected (301) to `/about`;
    /// `/docs/index.html` is redirected to `/docs/`. A file with the very name comes first, and a
    /// page before a directory of the same name.
    Served,
}

/// Whether the address of a page ends in a slash: of a directory with an index, and with
/// [`CleanUrls::Served`] of any page. A listing always has the slash, as its links need it; other
/// files never have one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum TrailingSlash {
    /// Directories have it, pages have not; the other form is redirected (301).
    #[default]
    Directories,
    /// All pages have it; without it they are redirected.
    Add,
    /// No page has it; with it they are redirected. Relative links of an index then start one
    /// directory further up.
    Remove,
    /// Both forms are answered.
    Leave,
}

/// Whether the files `_redirects` and `_headers` of the root are rules.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum RootFiles {
    /// They are files like any other.
    #[default]
    Ignored,
    /// They are read again when they change, and neither served nor written.
    Read,
}

impl Default for Rules {
    fn default() -> Self {
        Self::new()
    }
}

impl Rules {
    /// No rules: each path is the file of that name.
    #[must_use]
    pub fn new() -> Self {
        Self {
            redirects: RuleList::new("redirects"),
            rewrites: RuleList::new("rewrites"),
            tries: RuleList::new("try lists"),
            clean_urls: CleanUrls::default(),
            trailing_slash: TrailingSlash::default(),
            fallbacks: RuleList::new("fallbacks"),
            without_fallback: RuleList::new("paths without a fallback"),
            error_pages: HashMap::new(),
            headers: RuleList::new("rules for headers"),
            media_types: HashMap::new(),
            root_files: RootFiles::default(),
        }
    }

    /// Sends clients elsewhere: to a path of this service, or an address with `http://` or
    /// `https://` whose host is fixed text. What is below a [prefix](Pattern::prefix) is appended,
    /// unless the target has a variable. The query is kept unless the target has one.
    ///
    /// # Errors
    /// [`RuleError::RedirectStatus`] unless it is 301, 302, 303, 307 or 308;
    /// [`RuleError::Target`] and [`RuleError::Variable`] for the target; [`RuleError::Loop`] if it
    /// leads back to itself, as far as paths and prefixes show it; [`RuleError::TooMany`].
    pub fn redirect(
        mut self,
        from: Pattern,
        to: &str,
        status: StatusCode,
    ) -> Result<Self, RuleError> {
        let to = Template::parse(to, &from, Purpose::Redirect)?;
        self.add_redirect(from, to, status)?;
        Ok(self)
    }

    /// After an error the rules are as they were.
    pub(crate) fn add_redirect(
        &mut self,
        from: Pattern,
        to: Template,
        status: StatusCode,
    ) -> Result<(), RuleError> {
        if !matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308) {
            return Err(RuleError::RedirectStatus(status));
        }
        let error = RuleError::Loop {
            from: from.as_str().to_owned(),
            to: to.as_str().to_owned(),
        };
        let mut probes = from.probes();
        probes.extend(to.fixed_path());
        self.redirects.push(from, Redirect { status, to })?;
        if probes.iter().any(|probe| self.leads_back(probe)) {
            self.redirects.pop();
            return Err(error);
        }
        Ok(())
    }

    /// Whether redirects lead from this path to it again, or on and on.
    fn leads_back(&self, start: &[u8]) -> bool {
        let mut seen = vec![start.to_vec()];
        for _ in 0..REDIRECT_HOPS_MAX {
            let path = &seen[seen.len() - 1];
            let hit = self
                .redirects
                .find(path)
                .filter(|hit| hit.rule.to.is_local());
            let next = hit.and_then(|hit| hit.rule.to.path(path, &hit.matched));
            let parsed = next
                .as_deref()
                .map(|next| Target::parse(next.as_bytes(), Hidden::Served));
            let Some(Ok(next)) = parsed else {
                return false;
            };
            let next = next.address();
            if seen.contains(&next) {
                return true;
            }
            seen.push(next);
        }
        true
    }

    /// Answers with what another path has, which the client does not see. What is below a
    /// [prefix](Pattern::prefix) is appended, unless the target has a variable. Done once: what it
    /// leads to is not rewritten again.
    ///
    /// # Errors
    /// [`RuleError::Target`] and [`RuleError::Variable`] for the target, which is a path without a
    /// query; [`RuleError::TooMany`].
    pub fn rewrite(mut self, from: Pattern, to: &str) -> Result<Self, RuleError> {
        let to = Template::parse(to, &from, Purpose::Rewrite)?;
        self.rewrites.push(from, to)?;
        Ok(self)
    }

    /// Answers with the first of these files that exists, such as `$path`, `$path.html`,
    /// `$path/index.html`, `/index.html`. One that ends in a slash is a directory: its index, or
    /// its listing. If none exists, nothing is found: a [fallback](Rules::fallback) may follow.
    ///
    /// # Errors
    /// [`RuleError::Target`] and [`RuleError::Variable`] for a file, [`RuleError::TooMany`] rules
    /// or files.
    pub fn try_files<T: AsRef<str>>(
        mut self,
        on: Pattern,
        files: impl IntoIterator<Item = T>,
    ) -> Result<Self, RuleError> {
        let files = files.into_iter();
        let parse = |file: T| Template::parse(file.as_ref(), &on, Purpose::File);
        let files = files.map(parse).collect::<Result<Vec<_>, _>>()?;
        if files.len() > TRY_FILES_MAX {
            return Err(RuleError::TooMany {
                what: "files in a try list",
                limit: TRY_FILES_MAX,
            });
        }
        self.tries.push(on, files)?;
        Ok(self)
    }

    /// Sets whether pages have addresses without `.html`: [`CleanUrls::Off`] by default.
    #[must_use]
    pub fn clean_urls(self, clean_urls: CleanUrls) -> Self {
        Self { clean_urls, ..self }
    }

    /// Sets whether the addresses of pages end in a slash: [`TrailingSlash::Directories`] by
    /// default.
    #[must_use]
    pub fn trailing_slash(self, trailing_slash: TrailingSlash) -> Self {
        Self {
            trailing_slash,
            ..self
        }
    }

    /// Answers with this file, and status 200, where nothing is found: the page of an application
    /// that looks at the address itself (a single-page application).
    ///
    /// A page is no answer to a request for something else: one whose `Sec-Fetch-Dest` says that a
    /// browser loads a script, a style, an image or another part of a page; one whose `Accept` has
    /// no HTML; and, where those do not decide, one for a name with the ending of another type,
    /// such as `.js`. Those get a 404. A fallback of another type is for every request.
    ///
    /// # Errors
    /// [`RuleError::Target`] and [`RuleError::Variable`] for the file, [`RuleError::TooMany`].
    pub fn fallback(mut self, on: Pattern, file: &str) -> Result<Self, RuleError> {
        let file = Template::parse(file, &on, Purpose::File)?;
        self.fallbacks.push(on, file)?;
        Ok(self)
    }

    /// Leaves out these paths from all fallbacks, those of `_redirects` too: what is not found
    /// there is a 404.
    ///
    /// # Errors
    /// [`RuleError::TooMany`].
    pub fn without_fallback(mut self, on: Pattern) -> Result<Self, RuleError> {
        self.without_fallback.push(on, ())?;
        Ok(self)
    }

    /// The file that is the body of an error with this status: of any type, whatever the client
    /// accepts. It has no validators, as they would be taken for those of the path that was asked
    /// for, and is never kept. Where there is no such file, the built-in page is sent.
    ///
    /// # Errors
    /// [`RuleError::ErrorStatus`] unless the status is 400 to 599; [`RuleError::Path`] if the file
    /// is no path.
    pub fn error_page(mut self, status: StatusCode, file: &str) -> Result<Self, RuleError> {
        if !status.is_client_error() && !status.is_server_error() {
            return Err(RuleError::ErrorStatus(status));
        }
        self.error_pages.insert(status, pattern::file_path(file)?);
        Ok(self)
    }

    /// Changes headers of the responses to requests for these paths, as the client asked for them,
    /// whatever their method and status: see [`HeaderChange`]. On an error, on an answer to a
    /// write, and on the page of a fallback, a `Cache-Control` counts only if it has `no-store` or
    /// `no-cache`, so that nothing is kept under the name of a file that is not there.
    ///
    /// # Errors
    /// [`RuleError::Header`] if a value names a variable, which values do not have;
    /// [`RuleError::TooMany`].
    pub fn headers(
        mut self,
        on: Pattern,
        changes: impl IntoIterator<Item = HeaderChange>,
    ) -> Result<Self, RuleError> {
        self.add_headers(on, changes.into_iter().collect())?;
        Ok(self)
    }

    pub(crate) fn add_headers(
        &mut self,
        on: Pattern,
        changes: Vec<HeaderChange>,
    ) -> Result<(), RuleError> {
        changes
            .iter()
            .try_for_each(|change| change.check_for(&on))?;
        self.headers.push(on, changes)
    }

    /// The media type of files whose names end in a dot and this, in either case.
    ///
    /// # Errors
    /// [`RuleError::Extension`] unless it is letters and digits, [`RuleError::MediaType`] unless it
    /// is a type such as `text/plain; charset=utf-8`.
    pub fn media_type(mut self, extension: &str, media_type: &str) -> Result<Self, RuleError> {
        let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"+-_".contains(&byte);
        if extension.is_empty() || !extension.bytes().all(is_part) {
            return Err(RuleError::Extension(extension.to_owned()));
        }
        let value = media_value(media_type);
        let value = value.ok_or_else(|| RuleError::MediaType(media_type.to_owned()))?;
        let extension = extension.to_ascii_lowercase().into_bytes();
        self.media_types.insert(extension, value);
        Ok(self)
    }

    /// Sets whether `_redirects` and `_headers` in the root are rules: [`RootFiles::Ignored`] by
    /// default. They come after the rules that are set here.
    #[must_use]
    pub fn root_files(self, root_files: RootFiles) -> Self {
        Self { root_files, ..self }
    }

    /// Whether nothing of them concerns a request.
    pub(crate) fn is_empty(&self) -> bool {
        let Self {
            redirects,
            rewrites,
            tries,
            clean_urls,
            trailing_slash,
            fallbacks,
            without_fallback: _,
            error_pages,
            headers,
            media_types,
            root_files,
        } = self;
        let leads = [redirects.is_empty(), rewrites.is_empty(), tries.is_empty()];
        let answers = [
            fallbacks.is_empty(),
            error_pages.is_empty(),
            headers.is_empty(),
        ];
        let is_plain = *clean_urls == CleanUrls::Off
            && *trailing_slash == TrailingSlash::Directories
            && *root_files == RootFiles::Ignored;
        is_plain && media_types.is_empty() && leads.into_iter().chain(answers).all(|it| it)
    }

    /// The type that was set for a name of this ending.
    pub(crate) fn media_of(&self, path: &[u8]) -> Option<&HeaderValue> {
        let name = name_of(path);
        let dot = name
            .iter()
            .rposition(|byte| *byte == b'.')
            .filter(|at| *at > 0)?;
        self.media_types.get(&name[dot + 1..].to_ascii_lowercase())
    }
}

/// RFC 9110, 8.3.1: type, slash, subtype, and perhaps parameters.
fn media_value(text: &str) -> Option<HeaderValue> {
    let is_token = |part: &str| {
        let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$&-^_.+".contains(&byte);
        !part.is_empty() && part.bytes().all(is_part)
    };
    let (kind, parameters) = text.split_once(';').unwrap_or((text, "a=b"));
    let (main, sub) = kind.trim_end().split_once('/')?;
    let are_parameters = parameters.split(';').all(|parameter| {
        let pair = parameter.trim().split_once('=');
        pair.is_some_and(|(name, value)| is_token(name) && !value.is_empty())
    });
    let is_type = is_token(main) && is_token(sub) && are_parameters;
    let is_visible = text.bytes().all(|byte| matches!(byte, b' '..=b'~'));
    (is_type && is_visible).then(|| HeaderValue::from_str(text).ok())?
}
