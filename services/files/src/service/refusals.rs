//! What is told of [`Files`] besides their answers: the pages of errors that were made around them,
//! and files that their rules name in vain.

use flatpath_http::{Request, Response, WorkerScope};
use http::StatusCode;

use super::Files;
use crate::asker::Asker;
use crate::error_pages::in_place_of;
use crate::homes::Stay;
use crate::references::{Looker, MissingFile};
use crate::root::Reach;
use crate::rules::{Held, RootFiles, Rules};
use crate::visit::Visit;

impl Files {
    /// An error that was made around this service, by a layer that asks for a password or limits
    /// requests, with the headers that rules change, and with the page that
    /// [`Rules::error_page`](crate::Rules::error_page) has for its status. Its own headers stay.
    /// May read files, so not for a network thread.
    #[must_use]
    pub fn with_error_page(
        &self,
        request: &Request,
        response: Response,
        scope: &mut WorkerScope<'_>,
    ) -> Response {
        let status = response.status();
        let (version, Some(home)) = self.homes.numbered() else {
            return self.without_home(request, response);
        };
        let stay = Stay {
            version,
            home: &home,
        };
        let asker = Asker::new(&home.owners);
        let made = self.answer_with(request, scope, (stay, &asker), |answerer| {
            answerer.refusal_for(request, status)
        });
        let Some((page, changes)) = made else {
            return response;
        };
        changes.made(match page {
            Some(page) => in_place_of(response, page),
            None => response,
        })
    }

    /// An answer while there is no home, with the headers that the rules of the settings change.
    pub(super) fn without_home(&self, request: &Request, response: Response) -> Response {
        let visit = Visit::of(request, Held::of(&self.rules));
        visit.changes(self.hidden).made(response)
    }

    /// The files that the rules name and that are not there now. `_redirects` and `_headers`, where
    /// they are [read](crate::RootFiles::Read), are read for it, and the log names those of theirs
    /// with their other mistakes. Looks at each, so not for a network thread.
    #[must_use]
    pub fn missing_files(&self) -> Vec<MissingFile> {
        let Some(home) = self.homes.current() else {
            return Vec::new();
        };
        let held = home
            .rule_files
            .hold(&home.root, &self.rules, Reach::Everywhere);
        // What is wrong is in the log.
        drop(held);
        let looker = Looker {
            root: &home.root,
            reach: Reach::Everywhere,
            hidden: self.hidden,
            set: &self.rules,
            rules: &self.rules,
        };
        looker.missing()
    }
}

impl Rules {
    /// Of the errors that may be made around a service with these rules, those that
    /// [`Files::with_error_page`] changes: all where there are rules of headers, or may be
    /// ([`RootFiles::Read`]), else those with a page.
    #[must_use]
    pub fn changes_refusal(&self, status: StatusCode) -> bool {
        let has_headers = !self.headers.is_empty() || self.root_files == RootFiles::Read;
        has_headers || self.error_pages.contains_key(&status)
    }
}
