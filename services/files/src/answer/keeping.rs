//! What a network thread keeps of an answer: its bytes, or the open file.

use std::sync::Arc;

use bytes::Bytes;
use flatpath::files::SentFile;
use flatpath_http::{Body, PrebuiltHead, Response};
use http::StatusCode;
use http::header::HeaderMap;

use super::heads::kept_headers;
use super::{Answerer, Asked, Chosen};
use crate::cache::{Conditional, NewEntry, Prebuilt};
use crate::conditional::Validators;
use crate::freshness::{FreshnessCheck, Lookup, Observation};
use crate::kept::{Content, Parts};
use crate::limits::{CACHE_FILE_BYTES_MAX, DOWNLOAD_DESCRIPTORS};
use crate::root::Locality;
use crate::visit::Visit;

impl Answerer<'_> {
    /// A file that is sent while it is open, and the cache's part of the answer, where it is kept
    /// open. `None`: there is no descriptor for it.
    pub(super) fn open_to_send(
        &self,
        asked: &Asked<'_>,
        (mut chosen, validators): (Chosen, Validators),
        headers: &HeaderMap,
    ) -> Option<(Arc<dyn SentFile>, Option<NewEntry>)> {
        let descriptors = self.descriptors?;
        let size = chosen.opened.identity.size;
        // What is small is kept in memory, when it is next asked for as a whole. What is asked for
        // in part is not compressed, and as a whole it may be.
        let may_be_kept = chosen.opened.locality == Locality::Local
            && size > CACHE_FILE_BYTES_MAX as u64
            && (self.compressor.is_none() || asked.compressor.is_some());
        let kept = self.kept.filter(|_| may_be_kept);
        let cached = kept.and_then(|kept| {
            let checked = self.checks(asked, &mut chosen, &validators)?;
            // Until its home closes it and no connection sends it.
            Some((kept, checked, descriptors.keep(DOWNLOAD_DESCRIPTORS)?))
        });
        let Some((kept, checked, hold)) = cached else {
            let hold = self.hold()?;
            let file = chosen.opened.into_sent(self.root, &chosen.path, hold);
            return Some((file, None));
        };
        let file = chosen.opened.into_sent(self.root, &chosen.path, hold);
        let content = kept.keep(Arc::clone(&file), size);
        let entry = self.new_entry(asked, (content, validators), checked, headers);
        Some((file, Some(entry)))
    }

    /// The cache's part: enough to answer the same request without a worker.
    pub(super) fn entry(
        &self,
        asked: &Asked<'_>,
        mut chosen: Chosen,
        validators: Validators,
        headers: &HeaderMap,
        content: &[u8],
    ) -> Option<NewEntry> {
        let checked = self.checks(asked, &mut chosen, &validators)?;
        let content = Content::Bytes(Bytes::copy_from_slice(content));
        Some(self.new_entry(asked, (content, validators), checked, headers))
    }

    /// The cache's part of a 404 where nothing was found. A page of a rule is a file that may
    /// change, so only the built-in one is kept.
    pub(super) fn absence(&self, visit: &Visit<'_>, response: &Response) -> Option<NewEntry> {
        let Body::Static(page) = *response.body() else {
            return None;
        };
        let locality = self.root.locality();
        let is_kept = visit.is_absent
            && visit.is_checkable
            && !self.asker.was_asked()
            && locality == Locality::Local
            && self.root.stays_on_mount(self.reach);
        if !is_kept {
            return None;
        }
        // Whether a name is hidden its text says.
        let checks = match &*visit.observations {
            [] => Box::default(),
            seen => FreshnessCheck::of_direct(self.root, seen)?,
        };
        let headers = response.headers();
        Some(NewEntry {
            target: visit.request.uri().path().as_bytes().into(),
            preference: self.asked(visit).preference,
            answer: Prebuilt {
                found: PrebuiltHead::new(response.status(), headers, Some(page.len() as u64)),
                content: Content::Bytes(Bytes::from_static(page)),
                parts: Parts::None,
                conditional: None,
                checks,
            },
            lookup: Lookup {
                began: self.began,
                locality,
            },
        })
    }

    /// What has to hold for an answer that is kept, and where it lies; `None`: it is not kept.
    fn checks(
        &self,
        asked: &Asked<'_>,
        chosen: &mut Chosen,
        validators: &Validators,
    ) -> Option<(Box<[FreshnessCheck]>, Locality)> {
        if !validators.are_final() {
            return None;
        }
        let visit = asked.visit;
        if !visit.is_checkable || self.asker.was_asked() {
            return None;
        }
        let mut observations = std::mem::take(&mut chosen.observations);
        let file = Observation::File(chosen.path.clone(), chosen.opened.identity);
        observations.push(file);
        observations.extend_from_slice(&visit.observations);
        // Where nothing was found may be another mount, which a network thread must not ask.
        let is_near = visit.observations.is_empty() || self.root.stays_on_mount(self.reach);
        let locality = if is_near {
            chosen.locality
        } else {
            Locality::Remote
        };
        let checks = match chosen.is_direct && locality == Locality::Local {
            true => FreshnessCheck::of_direct(self.root, &observations)?,
            false => FreshnessCheck::of_observations(self.root, &observations)?,
        };
        Some((checks, locality))
    }

    fn new_entry(
        &self,
        asked: &Asked<'_>,
        (content, validators): (Content, Validators),
        (checks, locality): (Box<[FreshnessCheck]>, Locality),
        headers: &HeaderMap,
    ) -> NewEntry {
        NewEntry {
            target: asked.visit.request.uri().path().as_bytes().into(),
            preference: asked.preference,
            answer: Prebuilt {
                found: PrebuiltHead::new(StatusCode::OK, headers, Some(content.bytes())),
                content,
                parts: match asked.visit.has_rules {
                    true => Parts::Own,
                    false => Parts::All,
                },
                conditional: Some(Conditional {
                    validators,
                    not_modified: PrebuiltHead::new(
                        StatusCode::NOT_MODIFIED,
                        kept_headers(headers),
                        None,
                    ),
                }),
                checks,
            },
            lookup: Lookup {
                began: self.began,
                locality,
            },
        }
    }
}
