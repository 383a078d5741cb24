//! What a network thread keeps of an answer, and how it answers with that, whole or in part.
//!
//! A small file is kept as its bytes; of a larger one the open file is, so that a request for it,
//! or for a part of it, needs no worker and opens nothing. Both are entries of one cache
//! ([`crate::cache`]), checked by one rule ([`crate::freshness`]): a kept file is the one that the
//! path led to, of the home of its cache, and its length is the one that was seen with its
//! validators.
//!
//! A kept file's descriptor is held for no address (`flatpath::descriptors`), so few are kept, and
//! none while much is held for others. The file itself is held by its home ([`KeptFiles`]), and a
//! cache has a way to it: nothing comes to a thread that is idle, and a file that was removed is to
//! give its space back also there. What is not asked for in [`UNASKED_MAX`] is closed.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use flatpath::files::{FileRange, SentFile};
use flatpath::housekeeper::{Next, Task};
use flatpath::lock::Lock;
use flatpath_http::{Disposition, FileBody, Head, KnownHeader, PrebuiltHead, Reply};
use http::StatusCode;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};

use crate::cache::{Conditional, Prebuilt};
use crate::conditional::Verdict;
use crate::content::{Multipart, fresh_boundary, slice};
use crate::limits::CACHE_FILE_BYTES_MAX;
use crate::range::{Part, Ranges};
use crate::responses::{of_each_form, unsatisfiable, visible};

/// How long a file stays open without a request for it, or twice as long.
const UNASKED_MAX: Duration = Duration::from_secs(10);

/// The files of a home that are kept open for the next request.
#[derive(Debug, Default)]
pub(crate) struct KeptFiles(Lock<Vec<Arc<KeptFile>>>);

/// An open file, for as long as it is asked for.
pub(crate) struct KeptFile {
    file: Arc<dyn SentFile>,
    bytes: u64,
    /// Since the last look.
    was_asked: AtomicBool,
}

impl fmt::Debug for KeptFile {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "KeptFile({} bytes)", self.bytes)
    }
}

impl KeptFiles {
    /// An empty table, and the task that closes what is not asked for. `None`: the task cannot
    /// begin, so no file is to be kept.
    pub(crate) fn begin() -> Option<(Arc<Self>, Task)> {
        let files = Arc::new(Self::default());
        let looked_at = Arc::downgrade(&files);
        let close = move |_| {
            let Some(files) = looked_at.upgrade() else {
                return Next::Ended;
            };
            let unasked = files.take_unasked();
            if !unasked.is_empty() {
                // A close frees the pages of a file that was removed: not for the housekeeper.
                let closer = std::thread::Builder::new().name("flatpath-closer".into());
                let _ = closer.spawn(move || drop(unasked));
            }
            Next::After(UNASKED_MAX)
        };
        match Task::begin("files that are kept open", close) {
            Ok(task) => Some((files, task)),
            Err(cause) => {
                log::warn!("no file is kept open: {cause}");
                None
            }
        }
    }

    /// Keeps a file of this length, whose descriptor is counted.
    pub(crate) fn keep(&self, file: Arc<dyn SentFile>, bytes: u64) -> Content {
        let file = Arc::new(KeptFile {
            file,
            bytes,
            was_asked: AtomicBool::new(true),
        });
        let way = Arc::downgrade(&file);
        self.0.lock().push(file);
        Content::File { file: way, bytes }
    }

    /// Takes out those that were not asked for since the last call, or that no cache knows. A
    /// connection that sends one of them holds it.
    pub(crate) fn take_unasked(&self) -> Vec<Arc<KeptFile>> {
        let is_unasked = |kept: &mut Arc<KeptFile>| {
            // ORDER: Relaxed: the flag alone counts. One that is asked for now is opened anew.
            let was_asked = kept.was_asked.swap(false, Ordering::Relaxed);
            !was_asked || Arc::weak_count(kept) == 0
        };
        self.0.lock().extract_if(.., is_unasked).collect()
    }
}

/// The content of an answer.
#[derive(Clone, Debug)]
pub(crate) enum Content {
    Bytes(Bytes),
    /// All of a file, for as long as it is kept open.
    File {
        file: Weak<KeptFile>,
        bytes: u64,
    },
}

/// Which parts of an answer a network thread gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Parts {
    /// None: it was compressed for its answer, which has no parts.
    None,
    /// Those that it has. On what is said of others rules have a say.
    Own,
    /// Those, and that there are no others.
    All,
}

impl Content {
    pub(crate) fn bytes(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::File { bytes, .. } => *bytes,
        }
    }

    /// What it weighs in the cache: a file as much as the largest bytes, for its descriptor.
    pub(crate) fn weight(&self) -> usize {
        match self {
            Self::Bytes(bytes) => bytes.len(),
            Self::File { .. } => CACHE_FILE_BYTES_MAX,
        }
    }
}

/// What the conditions of a request come to for an answer that is kept.
pub(crate) enum Evaluated<'a> {
    Proceed,
    /// The head of the 304.
    NotModified(&'a PrebuiltHead),
    PreconditionFailed,
}

impl Prebuilt {
    /// Answers with all of it.
    #[inline]
    pub(crate) fn send(&self, head: &Head<'_>, reply: &mut Reply<'_>) -> Disposition<'static> {
        match &self.content {
            Content::Bytes(bytes) => reply.prebuilt(&self.found, bytes),
            // Its file may be closed by now.
            Content::File { .. } if head.is_head() => reply.prebuilt(&self.found, &Bytes::new()),
            Content::File { file, bytes } => match range_of(file, 0..*bytes) {
                Some(range) => reply.prebuilt_file(&self.found, range),
                None => Disposition::Pooled,
            },
        }
    }

    /// What the conditions of a request come to.
    #[cold]
    pub(crate) fn evaluate(&self, head: &Head<'_>) -> Evaluated<'_> {
        let Some(conditional) = &self.conditional else {
            return Evaluated::Proceed;
        };
        match conditional.validators.evaluate(head) {
            Verdict::Proceed => Evaluated::Proceed,
            Verdict::NotModified => Evaluated::NotModified(&conditional.not_modified),
            Verdict::PreconditionFailed => Evaluated::PreconditionFailed,
        }
    }

    /// Answers with what a `Range` asks for.
    #[cold]
    pub(crate) fn send_part(&self, head: &Head<'_>, reply: &mut Reply<'_>) -> Disposition<'static> {
        let Some(Conditional { validators, .. }) = &self.conditional else {
            return self.send(head, reply);
        };
        if self.parts == Parts::None {
            return Disposition::Pooled;
        }
        let mut values = head.values("range");
        let ranges = match (values.next(), values.next()) {
            (Some(value), None) if validators.honours_range(head) => {
                Ranges::parse(value, self.content.bytes())
            }
            _ => Ranges::Whole,
        };
        let answered = match ranges {
            Ranges::Whole => Some(self.send(head, reply)),
            Ranges::Single(part) => self.send_one(part, reply),
            Ranges::Several(parts) => self.send_several(&parts, reply),
            Ranges::Unsatisfiable if self.parts == Parts::All => {
                Some(reply.response(unsatisfiable(self.content.bytes(), &mut of_each_form())))
            }
            Ranges::Unsatisfiable => None,
        };
        answered.unwrap_or(Disposition::Pooled)
    }

    /// A 206 with one part; `None`: that is for a worker.
    fn send_one(&self, part: Part, reply: &mut Reply<'_>) -> Option<Disposition<'static>> {
        let range = part.content_range(self.content.bytes());
        let head = self.partial_head(header::CONTENT_RANGE, visible(range), part.length());
        Some(match &self.content {
            Content::Bytes(bytes) => reply.prebuilt(&head, &slice(bytes, part)),
            Content::File { file, .. } => {
                reply.prebuilt_file(&head, range_of(file, part.start..part.end)?)
            }
        })
    }

    /// A 206 with several; `None`: that is for a worker.
    fn send_several(&self, parts: &[Part], reply: &mut Reply<'_>) -> Option<Disposition<'static>> {
        let media = self.found.value(&header::CONTENT_TYPE)?;
        let boundary = fresh_boundary();
        let multipart = Multipart {
            parts,
            size: self.content.bytes(),
            media: std::str::from_utf8(media).ok()?,
            boundary: &boundary,
        };
        let head = |length| {
            let own = visible(multipart.media());
            self.partial_head(header::CONTENT_TYPE, own, length)
        };
        Some(match &self.content {
            Content::Bytes(bytes) => {
                let body = multipart.of_bytes(bytes);
                reply.prebuilt(&head(body.len() as u64), &body)
            }
            Content::File { file, .. } => {
                let body = multipart.of_file(&asked(file)?);
                reply.prebuilt_file(&head(body.length()), body)
            }
        })
    }

    /// The head of a 206 with this header in place of its own, and a body of that length.
    fn partial_head(&self, name: HeaderName, value: HeaderValue, length: u64) -> PrebuiltHead {
        let by = HeaderMap::from_iter([(name, value)]);
        self.found
            .amended(StatusCode::PARTIAL_CONTENT, &by, Some(length))
    }
}

/// A file that is asked for; `None`: it was closed, and a worker opens it anew.
fn asked(file: &Weak<KeptFile>) -> Option<Arc<dyn SentFile>> {
    let kept = file.upgrade()?;
    // ORDER: Relaxed: the flag alone counts.
    kept.was_asked.store(true, Ordering::Relaxed);
    Some(Arc::clone(&kept.file))
}

/// These bytes of it.
fn range_of(file: &Weak<KeptFile>, bytes: std::ops::Range<u64>) -> Option<FileBody> {
    Some(FileRange::new(asked(file)?, bytes).into())
}

/// Whether a part of a file is asked for. Ranges are for GET alone; of HEAD they are ignored (RFC
/// 9110, 14.2).
#[inline]
pub(crate) fn asks_part(head: &Head<'_>) -> bool {
    head.is_get() && head.known(KnownHeader::Range).is_some()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use flatpath::files::OpenFile;
    use flatpath::prompt::FileSystem;

    use super::*;

    fn open() -> Arc<dyn SentFile> {
        let file = tempfile::tempfile().expect("a file");
        let system = Arc::new(FileSystem::of(&file));
        Arc::new(OpenFile::new(file, system, *b"file", None))
    }

    fn way(content: &Content) -> &Weak<KeptFile> {
        match content {
            Content::File { file, .. } => file,
            Content::Bytes(_) => panic!("a file is kept as one"),
        }
    }

    #[test]
    fn a_file_is_closed_when_nobody_asked_for_it_from_one_look_to_the_next() {
        let (files, file) = (KeptFiles::default(), open());
        let content = files.keep(Arc::clone(&file), 10);
        assert_eq!(content.bytes(), 10);
        assert!(files.take_unasked().is_empty(), "it is new");
        assert!(range_of(way(&content), 2..5).is_some());
        assert!(files.take_unasked().is_empty(), "it was asked for");
        let sent = range_of(way(&content), 0..10);
        assert!(files.take_unasked().is_empty());
        assert_eq!(files.take_unasked().len(), 1);
        assert!(range_of(way(&content), 0..10).is_none(), "it was taken");
        assert_eq!(Arc::strong_count(&file), 2, "who sends it has it");
        drop(sent);
        assert_eq!(Arc::strong_count(&file), 1);
    }

    #[test]
    fn a_file_that_no_cache_knows_is_closed_at_the_next_look() {
        let files = KeptFiles::default();
        drop(files.keep(open(), 10));
        assert_eq!(files.take_unasked().len(), 1);
    }
}
