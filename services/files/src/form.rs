//! POST of a form: what a listing's page sends to store files, or to make a directory, without a
//! script.
//!
//! It goes to the address of a directory, as `multipart/form-data`, and takes what PUT takes: each
//! file is an [`Upload`] with a name in that directory, so the same names are refused, and the same
//! bounds hold. The answer is for a person: 303 back to the listing, or a page that says why not.
//!
//! Any page may have a browser send a form, with the user's rights, and asks nobody before. So a
//! form of another origin is refused (403), whatever the listener admits: only this server's own
//! page has one. Programs send no origin, and are served.
//!
//! | field       | what it is                                                                  |
//! |-------------|-----------------------------------------------------------------------------|
//! | `file`      | a file with its name; of up to `FORM_FILES_MAX`. Without a name it is none  |
//! | `replace`   | with any text, files of the same name are replaced, which is else 412       |
//! | `directory` | the name of a directory to make; not beside files                           |
//!
//! Invariants
//! - FO1: until the form is complete, nothing is changed: its files have no names. Then each is
//!   asked whether it may have its name, and only if all may, they get them. What another client
//!   or the disk does in between is told, with the names of those that are stored.

use std::fs::File;

use flatpath_http::multipart::{FieldHead, FormSink, MultipartLimits, MultipartUpload};
use flatpath_http::{FromRequestParts, IntoResponse, Origins, Request, Response, UploadDecision};
use http::StatusCode;
use http::header::{self, HeaderMap, HeaderValue};
use percent_encoding::percent_encode;
use rustix::fs::Mode;
use rustix::io::Errno;

use crate::headers::{Headers, number};
use crate::limits::{FORM_FIELDS_MAX, FORM_FILES_MAX, FORM_HEADER_BYTES_MAX, NAME_BYTES_MAX};
use crate::listing::directory_address;
use crate::page::{escape, page};
use crate::publish::sync_directory;
use crate::put::Upload;
use crate::responses::{Refusal, Result, Stopped, bare, visible, with};
use crate::target::ENCODED;
use crate::tus::ledger::Uploads;
use crate::tus::speaks_tus;
use crate::writing::{
    directory_for, directory_found, public_address, raw_target, split_name, writable_path,
};

/// The names of the fields.
pub(crate) const FILE: &str = "file";
pub(crate) const REPLACE: &str = "replace";
pub(crate) const DIRECTORY: &str = "directory";

/// The mode of a new directory, before the umask.
const MODE_DIRECTORY: u32 = 0o777;

/// Whether a POST is a form of a listing. One for [`tus`](crate::tus) says so.
pub(crate) fn concerns(request: &Request) -> bool {
    let form = b"multipart/form-data";
    let media = request.headers().single(&header::CONTENT_TYPE);
    let is_form = media.is_some_and(|media| {
        let end = media.iter().position(|it| *it == b';');
        media[..end.unwrap_or(media.len())]
            .trim_ascii()
            .eq_ignore_ascii_case(form)
    });
    is_form && !speaks_tus(request)
}

/// Looks at the head of a form.
pub(crate) fn begin(uploads: &Uploads, request: &mut Request) -> UploadDecision {
    let address = raw_target(request).to_owned();
    let prepared = prepare(uploads, request).and_then(|form| {
        let upload = MultipartUpload::from_request_parts(request, &());
        let upload = upload.map_err(|why| Refusal(Box::new(why.into_response())))?;
        Ok(UploadDecision::from(
            upload.limits(limits(uploads)).with(form),
        ))
    });
    prepared.unwrap_or_else(|refusal| UploadDecision::Response(for_a_person(refusal, &address)))
}

/// All files of a form together may be as long as one may be.
fn limits(uploads: &Uploads) -> MultipartLimits {
    let heads = FORM_FIELDS_MAX * FORM_HEADER_BYTES_MAX;
    MultipartLimits {
        fields_max: FORM_FIELDS_MAX,
        header_bytes_max: FORM_HEADER_BYTES_MAX,
        field_bytes_max: uploads.options.bytes_max,
        total_bytes_max: uploads.options.bytes_max.saturating_add(heads as u64),
    }
}

fn prepare(uploads: &Uploads, request: &Request) -> Result<Form> {
    if !Origins::own().admits_write(request) {
        let reason = "a form of another site may not write here";
        return Err(Refusal::because(StatusCode::FORBIDDEN, reason));
    }
    let length = request.headers().single(&header::CONTENT_LENGTH);
    let length = length.and_then(number);
    if length.is_some_and(|length| length > limits(uploads).total_bytes_max) {
        return Err(StatusCode::PAYLOAD_TOO_LARGE.into());
    }
    let (path, _) = writable_path(raw_target(request), uploads.hidden)?;
    directory_found(uploads.finder(), &path)?;
    let address = directory_address(&path);
    Ok(Form {
        uploads: uploads.clone(),
        public: public_address(request, &address),
        address,
        files: Vec::new(),
        directory: None,
        replaces: false,
        at: Field::Other,
    })
}

/// A form that arrives.
struct Form {
    uploads: Uploads,
    /// Of its directory, below the root, with the slash at its end.
    address: String,
    /// The same, as clients reach it.
    public: String,
    files: Vec<Upload>,
    /// The name of one to make.
    directory: Option<Vec<u8>>,
    replaces: bool,
    at: Field,
}

/// The field that arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    /// The last of the files.
    File,
    /// A file without a name: a browser sends one where none is chosen.
    Unnamed,
    Directory,
    Replace,
    Other,
}

/// What a complete form asks for.
enum Wish {
    Store(Vec<Upload>),
    MakeDirectory(Vec<u8>),
}

impl FormSink for Form {
    type Refusal = Response;

    fn field(&mut self, field: &mut FieldHead) -> Result<(), Response> {
        self.begin(field).map_err(|why| self.refused(why))
    }

    fn data(&mut self, bytes: &[u8]) -> Result<(), Response> {
        self.take(bytes).map_err(|why| self.refused(why))
    }

    fn end(&mut self) -> Result<(), Response> {
        Ok(())
    }

    fn finish(self) -> Response {
        let public = self.public.clone();
        let answer = self.carry_out();
        answer.unwrap_or_else(|refusal| for_a_person(refusal, &public))
    }
}

impl Form {
    fn refused(&self, refusal: Refusal) -> Response {
        for_a_person(refusal, &self.public)
    }

    fn begin(&mut self, field: &mut FieldHead) -> Result<()> {
        let (name, file) = (
            field.name().to_owned(),
            field.file_name().map(str::to_owned),
        );
        self.at = match (&*name, file) {
            (FILE, Some(file)) if file.is_empty() => Field::Unnamed,
            (FILE, Some(file)) => {
                self.add(file.as_bytes())?;
                Field::File
            }
            (DIRECTORY, None) => {
                self.directory = Some(Vec::new());
                Field::Directory
            }
            (REPLACE, None) => Field::Replace,
            _ => Field::Other,
        };
        if self.at != Field::File {
            field.limit(NAME_BYTES_MAX as u64);
        }
        Ok(())
    }

    /// A file of this name, which must be able to get it.
    fn add(&mut self, name: &[u8]) -> Result<()> {
        if self.files.len() == FORM_FILES_MAX {
            let reason = format!("a form stores at most {FORM_FILES_MAX} files");
            return Err(Refusal::because(StatusCode::PAYLOAD_TOO_LARGE, &reason));
        }
        let file = Upload::at(&self.uploads, &self.address_of(name)?, HeaderMap::new())?;
        if self.files.iter().any(|it| it.name() == file.name()) {
            return Err(Refusal::conflict("two files of the form have one name"));
        }
        self.files.push(file);
        Ok(())
    }

    /// The address of something with this name in the directory of the form.
    fn address_of(&self, name: &[u8]) -> Result<String> {
        if name.is_empty() || name.contains(&b'/') {
            let reason = "a name has at least one character, and no slash";
            return Err(Refusal::because(StatusCode::BAD_REQUEST, reason));
        }
        Ok(format!("{}{}", self.address, percent_encode(name, ENCODED)))
    }

    fn take(&mut self, bytes: &[u8]) -> Result<()> {
        match (self.at, self.files.last_mut(), &mut self.directory) {
            (Field::File, Some(file), _) => return file.push(bytes),
            (Field::Directory, _, Some(name)) => name.extend_from_slice(bytes),
            (Field::Replace, _, _) => self.replaces = true,
            _ => {}
        }
        Ok(())
    }

    fn wish(&mut self) -> Result<Wish> {
        let files = std::mem::take(&mut self.files);
        match (files.is_empty(), self.directory.take()) {
            (false, None) => Ok(Wish::Store(files)),
            (true, Some(name)) => Ok(Wish::MakeDirectory(name)),
            (true, None) => Err(Refusal::because(
                StatusCode::BAD_REQUEST,
                "no file is chosen",
            )),
            (false, Some(_)) => {
                let reason = "a form stores files or makes a directory";
                Err(Refusal::because(StatusCode::BAD_REQUEST, reason))
            }
        }
    }

    /// Does what the form asks for, or changes nothing (FO1).
    fn carry_out(mut self) -> Result<Response> {
        match self.wish()? {
            Wish::Store(files) => {
                store(files, self.replaces)?;
                Ok(see(&self.public))
            }
            Wish::MakeDirectory(name) => {
                self.make_directory(&name)?;
                Ok(see(&format!(
                    "{}{}/",
                    self.public,
                    percent_encode(&name, ENCODED)
                )))
            }
        }
    }

    fn make_directory(&self, name: &[u8]) -> Result<()> {
        let (path, _) = writable_path(&self.address_of(name)?, self.uploads.hidden)?;
        self.uploads.allow_path(&path)?;
        let (parent, name) = split_name(&path);
        let directory: File = directory_for(self.uploads.finder(), parent, name)?;
        match rustix::fs::mkdirat(&directory, name, Mode::from_raw_mode(MODE_DIRECTORY)) {
            Ok(()) => sync_directory(&directory, self.uploads.options.durability),
            Err(Errno::EXIST) => Err(Refusal::conflict("something of this name is there already")),
            Err(errno) => Err(errno.into()),
        }
    }
}

/// Gives all files their names, or none (FO1).
fn store(mut files: Vec<Upload>, replaces: bool) -> Result<()> {
    let mut conditions = HeaderMap::new();
    if !replaces {
        conditions.insert(header::IF_NONE_MATCH, HeaderValue::from_static("*"));
    }
    for file in &mut files {
        let allowed = file.on(conditions.clone());
        allowed.map_err(|why| why.about(&String::from_utf8_lossy(file.name())))?;
    }
    for at in 0..files.len() {
        if let Err(why) = files[at].store() {
            let names = |files: &[Upload]| {
                let names = files.iter().map(|it| String::from_utf8_lossy(it.name()));
                names.collect::<Vec<_>>().join(", ")
            };
            return Err(match at {
                0 => why.about(&names(&files)),
                _ => why.about(&format!(
                    "stored: {}; not stored: {}",
                    names(&files[..at]),
                    names(&files[at..])
                )),
            });
        }
    }
    Ok(())
}

/// 303: the browser shows this page next, and sends nothing again when it is loaded again.
fn see(address: &str) -> Response {
    let location = visible(address.to_owned());
    with(bare(StatusCode::SEE_OTHER), header::LOCATION, location)
}

/// A refusal as a page that leads back.
fn for_a_person(refusal: Refusal, back: &str) -> Response {
    // Another service has to be asked first, whose directory this is.
    if refusal.0.extensions().get::<Stopped>().is_some() {
        return *refusal.0;
    }
    let (status, text) = (refusal.0.status(), refusal.0.body().to_bytes());
    let status_text = status.to_string();
    let reason = match text.trim_ascii() {
        // It says no more than its status.
        text if text == status_text.as_bytes() => match status {
            StatusCode::FORBIDDEN => "This may not be stored here.".into(),
            StatusCode::PAYLOAD_TOO_LARGE => "That is longer than a file may be.".into(),
            StatusCode::PRECONDITION_FAILED => "A file of this name is there already.".into(),
            StatusCode::INSUFFICIENT_STORAGE => "There is no room left.".into(),
            _ => "It cannot be stored.".into(),
        },
        text => escape(text),
    };
    let back = escape(back.as_bytes());
    let body = format!("<p>{reason}</p>\n<p><a href=\"{back}\">Back</a></p>\n");
    page(status, &status_text, &body)
}
