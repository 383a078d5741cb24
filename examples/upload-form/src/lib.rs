//! An upload form: a browser's `multipart/form-data`, taken to a directory while it arrives.
//!
//! | request            | answer                                                             |
//! |--------------------|--------------------------------------------------------------------|
//! | `GET /`            | a page with a form, and the files that are there                   |
//! | `POST /`           | 303 to the page, once all files of the form are there; 400, 413, 415 |
//! | `GET /files/NAME`  | the file, for the disk and not as a page; 404                      |
//!
//! A file is written under another name, and gets its own when the whole form is complete; it
//! replaces one of that name. A form that breaks off leaves nothing. No thread waits for the
//! client, and no file is in memory.
#![forbid(unsafe_code)]

use std::fmt::{Display, Write};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use flatpath_http::http::StatusCode;
use flatpath_http::multipart::MultipartUpload;
use flatpath_http::{
    Body, Either, Html, IntoResponse, Parameters, Redirect, Response, Router, State, Upload,
    routing,
};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

/// The longest form: 100 GiB.
const FORM_BYTES_MAX: u64 = 100 << 30;

/// What a file is called until its form is complete: hidden, as no upload is.
const PART_PREFIX: &str = ".part-";

/// The service, for the files of this directory.
pub fn upload_form(directory: PathBuf) -> Router {
    let store = routing::post(store)
        .streamed()
        .body_bytes_max(FORM_BYTES_MAX);
    Router::new()
        .route("/", store.get(page))
        .get("/files/{name}", download)
        .with_state(Arc::<Path>::from(directory))
}

/// A request that failed here: the reason is for the log.
struct Failure;

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        log::error!("{error}");
        Self
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        StatusCode::INTERNAL_SERVER_ERROR.into_response()
    }
}

/// Called when the head has arrived.
fn store(State(directory): State<Arc<Path>>, form: MultipartUpload) -> Upload {
    let parts = Arc::clone(&directory);
    let limits = flatpath_http::multipart::MultipartLimits {
        total_bytes_max: FORM_BYTES_MAX,
        ..Default::default()
    };
    form.limits(limits).to(
        move |field| {
            if field.file_name().is_none_or(str::is_empty) {
                // No file was chosen, or the field is none.
                return Ok(Either::Right(io::sink()));
            }
            let refused = (StatusCode::BAD_REQUEST, "a file cannot have this name\n");
            field.safe_file_name().ok_or(Either::Left(refused))?;
            let part = tempfile::Builder::new()
                .prefix(PART_PREFIX)
                .tempfile_in(&parts);
            part.map(Either::Left)
                .map_err(|error| Either::Right(Failure::from(error)))
        },
        move |fields| {
            for (field, part) in fields {
                if let (Some(name), Either::Left(part)) = (field.safe_file_name(), part) {
                    part.as_file().sync_all()?;
                    let kept = part.persist(directory.join(name));
                    kept.map_err(|failed| failed.error)?;
                }
            }
            Ok::<_, Failure>(Redirect::to("/"))
        },
    )
}

/// Text that is no markup.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            other => escaped.push(other),
        }
    }
    escaped
}

fn page(State(directory): State<Arc<Path>>) -> Result<Html<String>, Failure> {
    let mut files = Vec::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let name = entry.file_name().into_string().unwrap_or_default();
        if is_shown(&name) {
            files.push((name, entry.metadata()?.len()));
        }
    }
    files.sort_unstable();
    let mut items = String::new();
    for (name, bytes) in &files {
        let link = utf8_percent_encode(name, NON_ALPHANUMERIC);
        item(&mut items, &link, name, *bytes);
    }
    Ok(Html(include_str!("page.html").replace("{files}", &items)))
}

fn item(items: &mut String, link: &dyn Display, name: &str, bytes: u64) {
    let name = escaped(name);
    // Strings take everything.
    let _ = writeln!(
        items,
        "<li><a href=\"/files/{link}\">{name}</a>, {bytes} bytes"
    );
}

/// Whether a file of this name is one of this directory, and an upload.
fn is_shown(name: &str) -> bool {
    !name.is_empty() && !name.starts_with('.') && !name.contains('/')
}

/// A file of a stranger is nothing to show as a page of ours.
fn download(
    State(directory): State<Arc<Path>>,
    parameters: Parameters,
) -> Option<impl IntoResponse> {
    let name = parameters.get("name").filter(|name| is_shown(name))?;
    let file = File::open(directory.join(name)).ok()?;
    let bytes = file.metadata().ok().filter(fs::Metadata::is_file)?.len();
    let headers = [
        ("content-type", "application/octet-stream"),
        ("content-disposition", "attachment"),
        ("x-content-type-options", "nosniff"),
    ];
    Some((headers, Body::reader(file, Some(bytes))))
}
