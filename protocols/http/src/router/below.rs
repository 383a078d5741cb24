//! What answers below prefixes.

use std::sync::Arc;

use super::spelling;
use crate::router::methods::Endpoint;

/// What follows a prefix, in the tree of prefixes.
const REST: &str = "/{*rest of the path}";

/// Its name, which no parameter has that is an identifier.
const REST_NAME: &str = "rest of the path";

/// Prefixes, and what answers the paths that begin with them.
pub(super) struct Below<S> {
    prefixes: Vec<Prefix<S>>,
    tree: matchit::Router<usize>,
}

/// What answers below a prefix.
pub(super) struct Prefix<S> {
    /// Without a slash at its end.
    pub(super) pattern: Arc<str>,
    pub(super) endpoint: Endpoint<S>,
    /// What answers in its place below the routers that are nested in the one that it is the
    /// fallback of: the same, within their layers.
    pub(super) nested: Below<S>,
}

impl<S: 'static> Prefix<S> {
    pub(super) fn new(pattern: &str, endpoint: Endpoint<S>) -> Self {
        let (pattern, nested) = (pattern.into(), Below::default());
        Self {
            pattern,
            endpoint,
            nested,
        }
    }

    /// Answers as a fallback does, within the layers of what answered.
    pub(super) fn inherit(&mut self, fallback: &Endpoint<S>) {
        self.endpoint = fallback.within(&self.endpoint.layers);
    }

    /// Its router becomes part of another, below a prefix, which has services already.
    pub(super) fn moved(mut self, prefix: &str, services_before: usize) -> Self {
        self.endpoint.renumber(services_before);
        self.pattern = format!("{prefix}{}", self.pattern).into();
        self.nested = self.nested.moved(prefix, services_before);
        self
    }
}

/// Why a prefix is not added.
pub(super) enum Refused {
    /// Something answers below this path already.
    Taken(String),
    Malformed(String),
}

impl<S> Default for Below<S> {
    fn default() -> Self {
        let (prefixes, tree) = (Vec::new(), matchit::Router::new());
        Self { prefixes, tree }
    }
}

impl<S> Below<S> {
    /// Adds one.
    ///
    /// # Errors
    /// It is taken or not well formed: then nothing is added.
    pub(super) fn add(&mut self, prefix: Prefix<S>) -> Result<(), Refused> {
        let malformed = |why: &dyn std::fmt::Display| Refused::Malformed(why.to_string());
        let spelled = spelling::of_route(&prefix.pattern).map_err(|why| malformed(&why))?;
        let paths = ["", "/", REST].map(|end| format!("{spelled}{end}"));
        for (count, path) in paths.iter().enumerate() {
            if let Err(error) = self.tree.insert(path, self.prefixes.len()) {
                for inserted in &paths[..count] {
                    self.tree.remove(inserted);
                }
                return Err(match error {
                    matchit::InsertError::Conflict { with } => Refused::Taken(with),
                    why => malformed(&why),
                });
            }
        }
        self.prefixes.push(prefix);
        Ok(())
    }

    /// Adds one, unless its place is taken.
    pub(super) fn add_last(&mut self, prefix: Prefix<S>) {
        let _is_taken = self.add(prefix);
    }

    /// The longest prefix of a path, and how many bytes of the path it is.
    #[inline]
    pub(super) fn find(&self, path: &str) -> Option<(&Prefix<S>, usize)> {
        match self.prefixes.is_empty() {
            true => None,
            false => self.walk(path),
        }
    }

    fn walk(&self, path: &str) -> Option<(&Prefix<S>, usize)> {
        let found = self.tree.at(path).ok()?;
        let prefix_bytes = match found.params.get(REST_NAME) {
            Some(rest) => path.len() - rest.len() - 1,
            None => path.trim_end_matches('/').len(),
        };
        Some((&self.prefixes[*found.value], prefix_bytes))
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Prefix<S>> {
        self.prefixes.iter()
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Prefix<S>> {
        self.prefixes.iter_mut()
    }

    pub(super) fn into_prefixes(self) -> impl Iterator<Item = Prefix<S>> {
        self.prefixes.into_iter()
    }
}

impl<S: 'static> Below<S> {
    /// See [`Prefix::moved`].
    pub(super) fn moved(self, prefix: &str, services_before: usize) -> Self {
        let mut moved = Self::default();
        for below in self.prefixes {
            moved.add_last(below.moved(prefix, services_before));
        }
        moved
    }

    /// Shows what answers below each prefix, and below those of nested routers.
    pub(super) fn each(&self, show: &mut dyn FnMut(&Endpoint<S>)) {
        for prefix in &self.prefixes {
            show(&prefix.endpoint);
            prefix.nested.each(show);
        }
    }

    /// The same, to change it.
    pub(super) fn each_mut(&mut self, change: &mut dyn FnMut(&mut Endpoint<S>)) {
        for prefix in &mut self.prefixes {
            change(&mut prefix.endpoint);
            prefix.nested.each_mut(change);
        }
    }

    pub(super) fn with_state<T: 'static>(self, state: &Arc<S>) -> Below<T>
    where
        S: Send + Sync,
    {
        let with_state = |prefix: Prefix<S>| Prefix {
            pattern: prefix.pattern,
            endpoint: prefix.endpoint.with_state(state),
            nested: prefix.nested.with_state(state),
        };
        Below {
            prefixes: self.prefixes.into_iter().map(with_state).collect(),
            tree: self.tree,
        }
    }
}
