//! Uploads to disk: an HTTP service that takes bodies of any length, for a program that depends on
//! the crate `flatpath-http` and nothing else.
//!
//! | request            | answer                                                            |
//! |--------------------|-------------------------------------------------------------------|
//! | `GET /`            | a greeting, from the network thread                               |
//! | `PUT /files/NAME`  | 201 and the number of bytes, once the file is there as a whole    |
//! | `GET /files/NAME`  | the file, read while it is sent; 404                              |
//!
//! A body is written to the disk while it arrives, under another name, and gets its own when it is
//! complete and synced. No thread waits for the client; a client that is faster than the disk has
//! to wait. What breaks off leaves nothing. The tests run it on real sockets and in the simulation.
#![forbid(unsafe_code)]

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use flatpath_http::http::StatusCode;
use flatpath_http::{Body, Parameters, Router, State, Upload, routing};

/// The service, for the files of this directory.
pub fn uploads(directory: PathBuf) -> Router {
    let file = routing::put(put).streamed().get(get);
    Router::new()
        .route("/", routing::get(|| "hello\n").inline())
        .route("/files/{name}", file)
        .with_state(Arc::<Path>::from(directory))
}

/// A file under construction, which is removed unless it is finished.
struct Part {
    file: File,
    path: PathBuf,
    bytes: u64,
}

impl Part {
    fn create(directory: &Path) -> io::Result<Self> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = directory.join(format!(".part-{}-{number}", std::process::id()));
        Ok(Self {
            file: File::create_new(&path)?,
            path,
            bytes: 0,
        })
    }

    /// Gives the file its name: from now on it is found, and it is whole.
    fn finish(self, target: &Path) -> io::Result<u64> {
        self.file.sync_all()?;
        fs::rename(&self.path, target)?;
        Ok(self.bytes)
    }
}

impl Write for Part {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write(bytes)?;
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        // After `finish` there is nothing of this name. What broke off may be dropped on the
        // network thread: where files are slow to remove, hand the path to a thread of your own.
        let _ = fs::remove_file(&self.path);
    }
}

/// Where a file of this name is; none for what would lead elsewhere, or is hidden.
fn find(directory: &Path, parameters: &Parameters) -> Option<PathBuf> {
    let name = parameters.get("name")?;
    let is_plain = !name.starts_with('.') && !name.contains(['/', '\0']);
    is_plain.then(|| directory.join(name))
}

/// Called when the head has arrived.
fn put(
    State(directory): State<Arc<Path>>,
    parameters: Parameters,
) -> Result<Upload, (StatusCode, String)> {
    let failed = |error: io::Error| (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n"));
    let refused = || (StatusCode::FORBIDDEN, "no name for a file\n".to_owned());
    let target = find(&directory, &parameters).ok_or_else(refused)?;
    let part = Part::create(&directory).map_err(failed)?;
    Ok(Upload::to(part, move |part| {
        let bytes = part.finish(&target).map_err(failed)?;
        Ok::<_, (StatusCode, String)>((StatusCode::CREATED, format!("{bytes}\n")))
    }))
}

fn get(State(directory): State<Arc<Path>>, parameters: Parameters) -> Option<Body> {
    let file = File::open(find(&directory, &parameters)?).ok()?;
    let length = file.metadata().ok().filter(fs::Metadata::is_file)?.len();
    Some(Body::reader(file, Some(length)))
}
