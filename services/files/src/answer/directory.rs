//! What a GET of a directory gets that has no index: a listing, or an archive of it.

use flatpath::address_limit::subscriber;
use flatpath::memory::Client;
use flatpath::{ConnectionEnd, JobConnection};
use flatpath_http::{Peer, Reader, Request, Response};
use http::StatusCode;
use http::header;
use rustix::fs::{Access, AtFlags};

use super::Answerer;
use crate::archive::plan::{Bounds, Plan, Tree};
use crate::archive::stream::{Archive, Origin};
use crate::archive::{self, ArchiveFormat, Refusal};
use crate::compress;
use crate::error::FilesError;
use crate::limits::DOWNLOAD_DESCRIPTORS;
use crate::listing::html::{self, Beside};
use crate::listing::readme::{self, Readme};
use crate::listing::view::View;
use crate::listing::{Entries, Listing, Names, json};
use crate::page::{Powers, escape, page};
use crate::responses::{busy, with};
use crate::root::{Kind, Opened};
use crate::rules::RootFiles;
use crate::target::joined;
use crate::visit::Visit;
use crate::writing::{Writing, is_writable_path};

impl Answerer<'_> {
    /// The answer with the directory at `path`, which is `directory`.
    pub(super) fn directory(
        &self,
        visit: &Visit<'_>,
        path: &[u8],
        query: Option<&[u8]>,
        directory: &Opened,
    ) -> Result<Response, FilesError> {
        let is_unlisted = directory.terms.is_some_and(|terms| !terms.is_listed);
        if self.listing == Listing::Off || is_unlisted {
            return Err(FilesError::NotFound);
        }
        if let Some(format) = self.archives.asked(query) {
            return self.archive(path, directory, (format, visit.request));
        }
        let view = View::of_query(query);
        let entries = Entries::read(self.finder(), path, directory, self.names(), &view)?;
        let is_json = self.listing == Listing::Json || json::is_wanted(visit.request.headers());
        let listing = match is_json {
            true => json::response(&entries, &view),
            false => {
                let beside = Beside {
                    readme: self.readme(path, &entries)?,
                    archives: self.archives.words(),
                    powers: self.powers(path, directory),
                };
                html::response(&entries, path, &view, &beside)
            }
        };
        let listing = match self.listing {
            Listing::On => with(listing, header::VARY, header::ACCEPT),
            Listing::Json | Listing::Off => listing,
        };
        Ok(compress::page(self.compressor, visit.request, listing))
    }

    /// Which names directories show.
    fn names(&self) -> Names {
        Names {
            hidden: self.hidden,
            root_files: self.rules.root_files,
            of_owner: RootFiles::Ignored,
        }
    }

    /// What clients may do in a directory: what a PUT there may, as far as is known without a name.
    fn powers(&self, path: &[u8], directory: &Opened) -> Powers {
        let may = Access::WRITE_OK | Access::EXEC_OK;
        let is_writable = self.writing != Writing::Refused
            && is_writable_path(path, self.hidden)
            && rustix::fs::accessat(&directory.file, c".", may, AtFlags::EACCESS).is_ok();
        match is_writable {
            true => Powers::Write,
            false => Powers::Read,
        }
    }

    fn readme(&self, path: &[u8], entries: &Entries) -> Result<Option<Readme>, FilesError> {
        let Some(name) = readme::name_among(&entries.shown) else {
            return Ok(None);
        };
        match self.find(&joined(path, name)) {
            Ok(opened) if opened.kind == Kind::File => Ok(Readme::read(name, &opened.file)),
            Err(error) if error.stops_a_list() => Err(error),
            Ok(_) | Err(_) => Ok(None),
        }
    }

    fn archive(
        &self,
        path: &[u8],
        directory: &Opened,
        (format, request): (ArchiveFormat, &Request),
    ) -> Result<Response, FilesError> {
        let connection = self.connection.as_ref();
        let client = Client {
            address: Peer::of(request).map(subscriber),
            end: connection.map_or_else(ConnectionEnd::default, JobConnection::end),
        };
        let (Some(turn), Some(hold)) = (
            self.archives.enter(client),
            self.descriptors
                .and_then(|it| it.hold(DOWNLOAD_DESCRIPTORS)),
        ) else {
            return Ok(busy());
        };
        let tree = Tree {
            finder: self.finder(),
            path,
            names: self.names(),
        };
        let plan = match Plan::read(&tree, directory, Bounds::of(format)) {
            Ok(plan) => plan,
            Err(Refusal::Other(error)) => return Err(error),
            Err(refusal) => return Ok(refused(&refusal)),
        };
        let origin = Origin {
            root: self.root.clone(),
            path: path.to_vec(),
            reach: self.reach,
            asker: self.asker.clone(),
        };
        let Ok(archive) = Archive::new(format, origin, directory, plan, turn, hold) else {
            return Ok(refused(&Refusal::NamesTooLong));
        };
        let reader = self.within_limit(Reader::new(Box::new(archive), None));
        Ok(archive::response(path, format, reader))
    }
}

/// 403, with the reason: nothing was sent yet.
fn refused(refusal: &Refusal) -> Response {
    let reason = match refusal {
        Refusal::TooManyEntries => "It has too many entries for an archive.".into(),
        Refusal::TooDeep => "Its directories are too deep for an archive.".into(),
        Refusal::NamesTooLong => "Its names are too long for an archive.".into(),
        Refusal::Unreadable(path) => {
            format!("The server may not read {}, which is in it.", escape(path))
        }
        Refusal::Other(error) => error.to_string(),
    };
    let status = StatusCode::FORBIDDEN;
    page(status, &status.to_string(), &format!("<p>{reason}</p>\n"))
}
