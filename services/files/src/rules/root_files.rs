//! `_redirects` and `_headers` of the root: read again when they change.
//!
//! Each request looks at both, as it does at the file that it asks for; they are read only by
//! workers, and only when they are other files than last time. A file that changed a moment ago
//! is read each time, as a second change may leave no trace, and no answer is cached meanwhile.
//! An answer that is cached has both for its checks, so an edit is seen by the next turn, and where
//! files are not looked at, when the answer is too old.
//!
//! A mistake, such as a line that leads to a file that is not there, is an error in the log, once
//! for each version of a file. A file that cannot be read, or is too long, is one as well, and
//! gives no rules.
//!
//! Links are followed as for any file: none leads out of the root.
//!
//! Cost: two lookups for each request that is not answered from the cache of a network thread, and
//! two checks more for each entry in a turn.

use std::sync::Arc;

use flatpath::lock::Lock;

use super::file_format::{self, HEADERS, Mistakes, REDIRECTS};
use super::in_force::InForce;
use super::set::{RootFiles, Rules};
use crate::content::{self, Stability};
use crate::error::FilesError;
use crate::freshness::Observation;
use crate::identity::Identity;
use crate::limits::{CHANGE_TRIES_MAX, RULE_FILE_BYTES_MAX, RULE_FILE_MISTAKES_MAX};
use crate::references::Looker;
use crate::root::{Kind, Opened, Reach, Root};
use crate::target::Hidden;

const NAMES: [&str; 2] = [REDIRECTS, HEADERS];

/// The last version of both files that was read.
#[derive(Debug, Default)]
pub(crate) struct RuleFiles {
    last: Lock<Option<Arc<Version>>>,
}

#[derive(Debug)]
struct Version {
    states: [State; 2],
    rules: Arc<Rules>,
    mistakes: Mistakes,
    /// Read when another change would have left no trace.
    is_racy: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Absent,
    Read(Identity),
    Refused(FilesError),
}

/// The rules for one request, and what an answer that depends on them has to check.
#[derive(Debug)]
pub(crate) struct Held<'a> {
    pub(crate) rules: InForce<'a>,
    pub(crate) observations: Vec<Observation>,
    /// False where no check would notice a change.
    pub(crate) is_checkable: bool,
}

impl<'a> Held<'a> {
    /// The rules that were set alone.
    pub(crate) fn of(set: &'a Rules) -> Self {
        Self {
            rules: InForce::of(set),
            observations: Vec::new(),
            is_checkable: true,
        }
    }

    /// Adds the rules of the files, and what depends on them.
    fn add(&mut self, version: &Version) {
        for (name, state) in NAMES.iter().zip(version.states) {
            let path = name.as_bytes().to_vec();
            match state {
                State::Absent => self.observations.push(Observation::Nothing(path)),
                State::Read(identity) => self.observations.push(Observation::File(path, identity)),
                State::Refused(_) => self.is_checkable = false,
            }
        }
        self.is_checkable &= !version.is_racy;
        self.rules.of_files = Some(Arc::clone(&version.rules));
    }
}

impl RootFiles {
    /// Whether a path beneath the root is one of these files, and so neither served nor written.
    pub(crate) fn keeps_back(self, path: &[u8]) -> bool {
        self == RootFiles::Read && NAMES.iter().any(|name| name.as_bytes() == path)
    }
}

impl RuleFiles {
    /// The rules as the files are now.
    ///
    /// # Errors
    /// [`FilesError::OtherMount`] and [`FilesError::NotAtHand`] where the reach is too short.
    pub(crate) fn hold<'a>(
        &self,
        root: &Root,
        set: &'a Rules,
        reach: Reach,
    ) -> Result<Held<'a>, FilesError> {
        let mut held = Held::of(set);
        if set.root_files == RootFiles::Ignored {
            return Ok(held);
        }
        held.add(&*self.version(root, set, reach)?);
        Ok(held)
    }

    fn version(&self, root: &Root, set: &Rules, reach: Reach) -> Result<Arc<Version>, FilesError> {
        let found = [look(root, REDIRECTS, reach)?, look(root, HEADERS, reach)?];
        let states = [found[0].0, found[1].0];
        let last = self.last.lock().clone();
        if let Some(last) = last.filter(|last| last.states == states && !last.is_racy) {
            return Ok(last);
        }
        if reach == Reach::AtHand {
            return Err(FilesError::NotAtHand);
        }
        let new = Arc::new(Version::read(root, set, reach, found)?);
        let mut last = self.last.lock();
        let is_known = last
            .as_ref()
            .is_some_and(|last| last.states == new.states && last.mistakes == new.mistakes);
        *last = Some(Arc::clone(&new));
        drop(last);
        if !is_known {
            new.report();
        }
        Ok(new)
    }
}

/// The file as it is now, open if it can be read.
fn look(root: &Root, name: &str, reach: Reach) -> Result<(State, Option<Opened>), FilesError> {
    match root.find_within(name.as_bytes(), reach) {
        Ok(opened) if opened.kind == Kind::File => Ok((State::Read(opened.identity), Some(opened))),
        Ok(_) | Err(FilesError::NotFound) => Ok((State::Absent, None)),
        Err(error @ (FilesError::OtherMount | FilesError::NotAtHand)) => Err(error),
        Err(error) => Ok((State::Refused(error), None)),
    }
}

impl Version {
    fn read(
        root: &Root,
        set: &Rules,
        reach: Reach,
        found: [(State, Option<Opened>); 2],
    ) -> Result<Self, FilesError> {
        let mut version = Self {
            states: [State::Absent; 2],
            rules: Arc::default(),
            mistakes: Mistakes::new(),
            is_racy: false,
        };
        let mut rules = Rules::new();
        for (at, found) in found.into_iter().enumerate() {
            let (state, text, is_racy) = read_stable(root, NAMES[at], reach, found)?;
            version.states[at] = state;
            version.is_racy |= is_racy;
            if let State::Refused(error) = state {
                version.mistakes.push(format!("{}: {error}", NAMES[at]));
            }
            let read: fn(&[u8], &mut Rules, &mut Mistakes) = match at {
                0 => file_format::read_redirects,
                _ => file_format::read_headers,
            };
            match text {
                Some(text) => read(&text, &mut rules, &mut version.mistakes),
                None if matches!(state, State::Read(_)) => version.mistakes.push(format!(
                    "{}: it has more than {RULE_FILE_BYTES_MAX} bytes, and gives no rules",
                    NAMES[at]
                )),
                None => {}
            }
        }
        // One that may still change is read again soon.
        if !version.is_racy {
            let looker = Looker {
                root,
                reach,
                hidden: Hidden::Served,
                set,
                rules: &rules,
            };
            let missing = looker.missing().into_iter();
            let missing = missing.map(|missing| format!("{REDIRECTS}: {missing}"));
            version.mistakes.extend(missing);
        }
        version.rules = Arc::new(rules);
        Ok(version)
    }

    fn report(&self) {
        for mistake in self.mistakes.iter().take(RULE_FILE_MISTAKES_MAX) {
            log::error!("{mistake}");
        }
        let left = self.mistakes.len().saturating_sub(RULE_FILE_MISTAKES_MAX);
        if left > 0 {
            log::error!("{REDIRECTS} and {HEADERS}: {left} more lines have no effect");
        }
    }
}

/// The content of a file, none if it is too long, and whether another change may go unnoticed.
fn read_stable(
    root: &Root,
    name: &str,
    reach: Reach,
    found: (State, Option<Opened>),
) -> Result<(State, Option<Vec<u8>>, bool), FilesError> {
    let (mut state, mut opened) = found;
    for tries in 1..=CHANGE_TRIES_MAX {
        let Some(file) = opened.take() else {
            break;
        };
        let size = usize::try_from(file.identity.size).unwrap_or(usize::MAX);
        let is_racy = !file.identity.last_change(file.looked_at).is_certain();
        if size > RULE_FILE_BYTES_MAX {
            return Ok((state, None, is_racy));
        }
        let mut text = vec![0; size];
        match content::read_whole(&file.file, None, &file.identity, &mut text) {
            Ok(Stability::Same) => return Ok((state, Some(text), is_racy)),
            // It is written all the time: what there is now, until the next look.
            Ok(_) if tries == CHANGE_TRIES_MAX => return Ok((state, Some(text), true)),
            Ok(_) => (state, opened) = look(root, name, reach)?,
            Err(error) => return Ok((State::Refused(error), None, true)),
        }
    }
    Ok((state, None, false))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::Duration;

    use super::*;

    /// A root with `_headers`.
    fn root_with(text: &str) -> (tempfile::TempDir, Root) {
        let folder = tempfile::tempdir().expect("a directory");
        fs::write(folder.path().join(HEADERS), text).expect("written");
        let root = Root::open(folder.path()).expect("a root");
        (folder, root)
    }

    #[test]
    fn a_line_that_leads_to_a_file_that_is_not_there_is_a_mistake_of_its_version() {
        let (folder, root) = root_with("");
        let lines = "/a /page.html 200\n/b/* /no.html 200\n/c /gone.html 200!\n";
        fs::write(folder.path().join(REDIRECTS), lines).expect("written");
        fs::write(folder.path().join("page.html"), "").expect("written");
        let set = Rules::new().root_files(RootFiles::Read);
        let mut found = [REDIRECTS, HEADERS]
            .map(|name| look(&root, name, Reach::Everywhere).expect("in reach"));
        // As it is looked at long after its last change.
        for opened in found.iter_mut().filter_map(|(_, opened)| opened.as_mut()) {
            opened.looked_at += Duration::from_secs(3600);
        }
        let version = Version::read(&root, &set, Reach::Everywhere, found).expect("in reach");
        let missing = "and there is no such file that can be served";
        assert_eq!(
            version.mistakes,
            [
                format!("_redirects: a rewrite leads to /gone.html, {missing}"),
                format!("_redirects: the page where nothing is found is /no.html, {missing}"),
            ]
        );
    }

    /// The rules that hold where nothing was changed before a version that was read of no file;
    /// whether there is one of `_headers`, and whether an answer may be kept.
    fn held_after(root: &Root, is_racy: bool) -> (bool, bool) {
        let set = Rules::new().root_files(RootFiles::Read);
        let found = |name| look(root, name, Reach::Everywhere).expect("in reach").0;
        let files = RuleFiles::default();
        *files.last.lock() = Some(Arc::new(Version {
            states: [found(REDIRECTS), found(HEADERS)],
            rules: Arc::default(),
            mistakes: Mistakes::new(),
            is_racy,
        }));
        let held = files.hold(root, &set, Reach::Everywhere).expect("in reach");
        let of_files = held.rules.of_files.expect("they are read");
        (!of_files.headers.is_empty(), held.is_checkable)
    }

    #[test]
    fn what_was_read_a_moment_after_its_change_is_read_again() {
        let (_folder, root) = root_with("/*\n  X-A: 1\n");
        assert!(held_after(&root, true).0, "as it is now");
        assert_eq!(held_after(&root, false), (false, true), "of the same state");
    }

    #[test]
    fn what_may_have_changed_unseen_is_not_kept() {
        let (_folder, root) = root_with("/*\n  X-A: 1\n");
        let is_racy = |after: Duration| {
            let (state, opened) = look(&root, HEADERS, Reach::Everywhere).expect("in reach");
            let opened = opened.map(|opened| {
                let changed = opened.identity.changed.to_system_time();
                let looked_at = changed.expect("a time") + after;
                Opened {
                    looked_at,
                    ..opened
                }
            });
            let read = read_stable(&root, HEADERS, Reach::Everywhere, (state, opened));
            read.expect("in reach").2
        };
        assert!(is_racy(Duration::ZERO));
        assert!(!is_racy(Duration::from_secs(3600)));
        let version = |is_racy| Version {
            states: [State::Absent; 2],
            rules: Arc::default(),
            mistakes: Mistakes::new(),
            is_racy,
        };
        let set = Rules::new().root_files(RootFiles::Read);
        for is_racy in [false, true] {
            let mut held = Held {
                rules: InForce::of(&set),
                observations: Vec::new(),
                is_checkable: true,
            };
            held.add(&version(is_racy));
            assert_eq!(held.is_checkable, !is_racy);
        }
    }
}
