//! Which file answers a path: the steps of the [rules](crate::rules) from rewrites to fallbacks.
//!
//! What a step looks at in vain decides the answer as much as the file that is found, so it is an
//! observation, and a cached answer is checked for it.
//!
//! Without rules only the path itself is looked at: a file, a directory's index, a directory.
//!
//! A step never redirects to an address that a rule redirects, as a client might be sent in a
//! circle: the answer is then given at the address that was asked for.

use flatpath_http::Request;

use crate::answer::Answerer;
use crate::error::FilesError;
use crate::fallback::{Wanted, is_page};
use crate::freshness::Observation;
use crate::limits::CACHE_TARGET_BYTES_MAX;
use crate::root::{Kind, Opened, Reach};
use crate::rules::{CleanUrls, InForce, TrailingSlash, led_to};
use crate::target::{INDEX, PAGE, PathForm, Target, is_own, joined, name_of};
use crate::visit::{Found, Visit, sent};
use crate::writing::raw_target;

impl Answerer<'_> {
    /// What the target of a request leads to by the rules, but for fallbacks.
    pub(crate) fn look_up(
        &self,
        visit: &mut Visit<'_>,
        target: &Target<'_>,
    ) -> Result<Found, FilesError> {
        if !visit.has_rules {
            let seen = &mut visit.observations;
            return self.page(&InForce::of(self.rules), target, false, seen);
        }
        let rules = visit.rules.clone();
        let (seen, address) = (&mut visit.observations, &*visit.address);
        let rewritten = rules.rewriting(address).map(|hit| led_to(address, &hit));
        let Some(rewritten) = rewritten else {
            return self.try_files(&rules, (target, address), false, seen);
        };
        let rewritten = rewritten.ok_or(FilesError::NotFound)?;
        let target = Target::parse(rewritten.as_bytes(), self.hidden);
        let target = target.map_err(|_| FilesError::NotFound)?;
        self.try_files(&rules, (&target, &target.address()), true, seen)
    }

    fn try_files(
        &self,
        rules: &InForce<'_>,
        (target, address): (&Target<'_>, &[u8]),
        is_internal: bool,
        seen: &mut Vec<Observation>,
    ) -> Result<Found, FilesError> {
        let Some(hit) = rules.trying(address) else {
            return self.page(rules, target, is_internal, seen);
        };
        for file in hit.rule {
            let path = file.path(address, &hit.matched);
            let parsed = path
                .as_deref()
                .map(|path| Target::parse(path.as_bytes(), self.hidden));
            let Some(Ok(target)) = parsed else {
                continue;
            };
            match self.named(&target, seen) {
                Err(FilesError::NotFound) => {}
                found => return found,
            }
        }
        Err(FilesError::NotFound)
    }

    /// The file of a try list, or the directory if its name ends in a slash.
    fn named(&self, target: &Target<'_>, seen: &mut Vec<Observation>) -> Result<Found, FilesError> {
        let path = target.path();
        if target.form() == PathForm::Directory {
            if let Some(index) = self.file_at(joined(path, INDEX), seen)? {
                return Ok(index);
            }
            let directory = self.seek(path, seen)?;
            let directory = directory.filter(|opened| opened.kind == Kind::Directory);
            let directory = directory.ok_or(FilesError::NotFound)?;
            return Ok(Found::Directory(path.to_vec(), directory));
        }
        self.file_at(path.to_vec(), seen)?
            .ok_or(FilesError::NotFound)
    }

    /// The file that a fallback leads to, unless it is a page and the client wants something else.
    pub(crate) fn fallback(
        &self,
        visit: &mut Visit<'_>,
        file: &str,
    ) -> Result<(Vec<u8>, Opened), FilesError> {
        let target = Target::parse(file.as_bytes(), self.hidden);
        let target = target.map_err(|_| FilesError::NotFound)?;
        match self.named(&target, &mut Vec::new())? {
            Found::File(path, opened) => {
                visit.is_page_or_none = is_page(self.media_of(&path).as_bytes());
                match visit.is_page_or_none {
                    true if Wanted::by(visit.request, &visit.address) != Wanted::Page => {
                        Err(FilesError::NotFound)
                    }
                    _ => Ok((path, opened)),
                }
            }
            Found::Directory(..) | Found::Elsewhere(..) => Err(FilesError::NotFound),
        }
    }

    /// The page at a path. One that a rule led to is at no address of its own: it is served where
    /// it is asked for.
    fn page(
        &self,
        rules: &InForce<'_>,
        target: &Target<'_>,
        is_internal: bool,
        seen: &mut Vec<Observation>,
    ) -> Result<Found, FilesError> {
        let (path, is_root) = (target.path(), target.path().is_empty());
        let other = match target.form() {
            PathForm::Plain => PathForm::Directory,
            PathForm::Directory => PathForm::Plain,
        };
        let is_clean = rules.set.clean_urls == CleanUrls::Served && !is_root;
        let plain = match target.form() {
            PathForm::Plain => self.seek(path, seen)?,
            PathForm::Directory => None,
        };
        let plain = match plain {
            // It has no other address: nothing more is looked up.
            Some(opened) if opened.kind == Kind::File && (is_internal || !is_clean) => {
                return Ok(Found::File(path.to_vec(), opened));
            }
            plain => plain,
        };
        let stays = is_internal || self.is_redirected(rules, path, other);
        let slash = match stays {
            true => TrailingSlash::Leave,
            false => rules.set.trailing_slash,
        };
        if target.form() == PathForm::Directory {
            return self.directory_page(path, slash, stays, is_clean, seen);
        }
        let named = match plain {
            Some(opened) if opened.kind == Kind::File => {
                let short = clean_address(path, slash);
                let Some((short, form)) = short else {
                    return Ok(Found::File(path.to_vec(), opened));
                };
                let is_taken = self.is_redirected(rules, &short, form)
                    || self.file_at(short.clone(), seen)?.is_some();
                return Ok(match is_taken {
                    true => Found::File(path.to_vec(), opened),
                    false => Found::Elsewhere(short, form),
                });
            }
            Some(opened) => {
                seen.push(Observation::Directory(path.to_vec(), opened.identity));
                true
            }
            None => false,
        };
        if is_clean && let Some(page) = self.file_at([path, PAGE].concat(), seen)? {
            return Ok(match slash {
                TrailingSlash::Add => Found::Elsewhere(path.to_vec(), other),
                _ => page,
            });
        }
        let is_bare = matches!(slash, TrailingSlash::Remove | TrailingSlash::Leave);
        if named
            && is_bare
            && let Some(index) = self.file_at(joined(path, INDEX), seen)?
        {
            return Ok(index);
        }
        match named && !stays {
            true => Ok(Found::Elsewhere(path.to_vec(), other)),
            false => Err(FilesError::NotFound),
        }
    }

    fn is_redirected(&self, rules: &InForce<'_>, path: &[u8], form: PathForm) -> bool {
        rules.redirects() && rules.redirecting(&address(path, form)).is_some()
    }

    /// The page at a path with a slash at its end.
    fn directory_page(
        &self,
        path: &[u8],
        slash: TrailingSlash,
        stays: bool,
        is_clean: bool,
        seen: &mut Vec<Observation>,
    ) -> Result<Found, FilesError> {
        let page = |seen: &mut _| self.file_at([path, PAGE].concat(), seen);
        let has_slash = matches!(slash, TrailingSlash::Add | TrailingSlash::Leave);
        if is_clean
            && has_slash
            && let Some(page) = page(seen)?
        {
            return Ok(page);
        }
        if let Some(index) = self.file_at(joined(path, INDEX), seen)? {
            return Ok(match slash {
                TrailingSlash::Remove if !path.is_empty() => {
                    Found::Elsewhere(path.to_vec(), PathForm::Plain)
                }
                _ => index,
            });
        }
        if let Some(opened) = self.seek(path, seen)? {
            // A file with a slash after its name is not that file.
            return match opened.kind {
                Kind::Directory => Ok(Found::Directory(path.to_vec(), opened)),
                Kind::File => Err(FilesError::NotFound),
            };
        }
        if is_clean && !stays && page(seen)?.is_some() {
            return Ok(Found::Elsewhere(path.to_vec(), PathForm::Plain));
        }
        Err(FilesError::NotFound)
    }

    /// The file at a path; what else is there is remembered.
    fn file_at(
        &self,
        path: Vec<u8>,
        seen: &mut Vec<Observation>,
    ) -> Result<Option<Found>, FilesError> {
        match self.seek(&path, seen)? {
            Some(opened) if opened.kind == Kind::File => Ok(Some(Found::File(path, opened))),
            Some(opened) => {
                seen.push(Observation::Directory(path, opened.identity));
                Ok(None)
            }
            None => Ok(None),
        }
    }

    /// What is at a path; that nothing is there is remembered.
    fn seek(&self, path: &[u8], seen: &mut Vec<Observation>) -> Result<Option<Opened>, FilesError> {
        if self.is_kept_back(path) {
            return Ok(None);
        }
        match self.find(path) {
            Ok(opened) => Ok(Some(opened)),
            Err(FilesError::NotFound) => {
                seen.push(Observation::Nothing(path.to_vec()));
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Whether a path is the server's own affair, and never served.
    pub(crate) fn is_kept_back(&self, path: &[u8]) -> bool {
        path.split(|byte| *byte == b'/').any(is_own) || self.rules.root_files.keeps_back(path)
    }

    /// Sets the path that the rules of a request are for.
    ///
    /// # Errors
    /// [`FilesError::NotAtHand`] if looking for them may take long, and is not for this thread.
    pub(crate) fn enter(
        &self,
        visit: &mut Visit<'_>,
        target: &Target<'_>,
    ) -> Result<(), FilesError> {
        if !visit.has_rules {
            return Ok(());
        }
        self.enter_at(visit, target.address())
    }

    /// The same of a target that names nothing: rules see its path as it was sent.
    pub(crate) fn enter_unnamed(&self, visit: &mut Visit<'_>) -> Result<(), FilesError> {
        match visit.has_rules {
            true => self.enter_at(visit, sent(visit.request)),
            false => Ok(()),
        }
    }

    fn enter_at(&self, visit: &mut Visit<'_>, address: Vec<u8>) -> Result<(), FilesError> {
        let is_long = address.len() > CACHE_TARGET_BYTES_MAX;
        if is_long && self.reach == Reach::AtHand && visit.rules.has_expressions() {
            return Err(FilesError::NotAtHand);
        }
        visit.address = address;
        Ok(())
    }

    pub(crate) fn target_of<'t>(&self, request: &'t Request) -> Result<Target<'t>, FilesError> {
        Target::parse(raw_target(request).as_bytes(), self.hidden)
    }
}

/// The address of a path.
fn address(path: &[u8], form: PathForm) -> Vec<u8> {
    let end: &[u8] = match form {
        PathForm::Directory if !path.is_empty() => b"/",
        _ => b"",
    };
    [b"/", path, end].concat()
}

/// The address without `.html` of the page in this file; of an index that of its directory.
fn clean_address(path: &[u8], slash: TrailingSlash) -> Option<(Vec<u8>, PathForm)> {
    let stem = path.strip_suffix(PAGE)?;
    if name_of(path) == INDEX {
        let directory = &path[..path.len() - INDEX.len()];
        let directory = directory.strip_suffix(b"/").unwrap_or(directory);
        let is_bare = slash == TrailingSlash::Remove && !directory.is_empty();
        let form = if is_bare {
            PathForm::Plain
        } else {
            PathForm::Directory
        };
        return Some((directory.to_vec(), form));
    }
    let form = match slash {
        TrailingSlash::Add => PathForm::Directory,
        _ => PathForm::Plain,
    };
    (!name_of(stem).is_empty()).then(|| (stem.to_vec(), form))
}
