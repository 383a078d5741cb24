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

impl Files {
    /// An error that was made around this service, by a layer that asks for a password or limits
    /// requests, with the page that [`Rules::error_page`](crate::Rules::error_page) has for its
    /// status. Its own headers stay. Other responses are given back as they are. Reads a file, so
    /// not for a network thread.
    #[must_use]
    pub fn with_error_page(
        &self,
        request: &Request,
        response: Response,
        scope: &mut WorkerScope<'_>,
    ) -> Response {
        let status = response.status();
        if !self.rules.error_pages.contains_key(&status) {
            return response;
        }
        let (version, Some(home)) = self.homes.numbered() else {
            return response;
        };
        let stay = Stay {
            version,
            home: &home,
        };
        let asker = Asker::new(&home.owners);
        let page = self.answer_with(request, scope, (stay, &asker), |answerer| {
            answerer.page_for(request, status)
        });
        match page.flatten() {
            Some(page) => in_place_of(response, page),
            None => response,
        }
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

    /// The statuses for which the rules have a page.
    pub fn error_page_statuses(&self) -> impl Iterator<Item = StatusCode> + '_ {
        self.rules.error_pages.keys().copied()
    }
}
