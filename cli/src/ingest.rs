//! The ingest listener of `flatpath serve`.

use std::io;
use std::path::Path;

use flatpath::memory::SmallReceives;
use flatpath::sockets::PassedSockets;
use flatpath_ingest::{ControlThread, Error, Ingest, Settings as IngestSettings};

use crate::failure::Failure;
use crate::settings::{Settings, is_on};
use crate::units::size_text;

/// The service with these settings, and the thread that attaches its consumers.
pub(crate) fn open(
    settings: &Settings,
    passed: &PassedSockets,
) -> Result<(Ingest, ControlThread), Failure> {
    let socket = socket_of(settings)?;
    let mut ingest = plan(settings, IngestSettings::new(socket))?;
    ingest.passed = passed.clone();
    Ingest::open(ingest).map_err(|error| explain(&error))
}

/// Whether these settings fit each other.
pub(crate) fn check(settings: &Settings) -> Result<(), Failure> {
    plan(settings, IngestSettings::new(socket_of(settings)?)).map(drop)
}

fn socket_of(settings: &Settings) -> Result<&Path, Failure> {
    settings.ingest_socket.as_deref().ok_or_else(|| {
        Failure::WrongUse("--ingest needs --ingest-socket PATH, where consumers attach".into())
    })
}

/// The settings of the service.
fn plan(settings: &Settings, mut ingest: IngestSettings) -> Result<IngestSettings, Failure> {
    ingest.network_threads = settings.network_threads.unwrap_or_default().count();
    let default = u64::from(ingest.pages) * u64::from(ingest.page_bytes);
    let memory = settings.ingest_memory.unwrap_or(default);
    ingest.page_bytes = settings.ingest_page.unwrap_or(ingest.page_bytes);
    let pages = memory / u64::from(ingest.page_bytes.max(1));
    ingest.pages = pages.try_into().map_err(|_| {
        Failure::WrongUse(format!(
            "--ingest-memory {} is too much: at most {} pages of {}",
            size_text(memory as usize),
            u32::MAX,
            size_text(ingest.page_bytes as usize)
        ))
    })?;
    ingest.consumers_max = settings.ingest_consumers.unwrap_or(ingest.consumers_max);
    ingest.message_bytes_max = settings.ingest_message.unwrap_or(ingest.message_bytes_max);
    if is_on(settings.no_ingest_sharing) {
        ingest.small_receives = SmallReceives::TakePages;
    }
    Ok(ingest)
}

fn explain(error: &Error) -> Failure {
    match error {
        Error::Settings(what) => Failure::WrongUse(format!(
            "--ingest-memory, --ingest-page and --ingest-consumers do not fit each other: {what}"
        )),
        Error::Socket(path, cause) if cause.kind() == io::ErrorKind::NotFound => {
            let directory = path.parent().unwrap_or(path).display();
            Failure::Failed(format!(
                "--ingest-socket {}: there is no directory {directory}; make it, or name another \
                 path",
                path.display()
            ))
        }
        Error::Socket(path, cause) => Failure::Failed(format!(
            "--ingest-socket {}: {cause}; stop the program that listens there, or name another \
             path",
            path.display()
        )),
        _ => Failure::Failed(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_counted_in_pages() {
        let settings = Settings {
            ingest_memory: Some(64 << 20),
            ingest_page: Some(128 << 10),
            ingest_consumers: Some(2),
            ..Settings::default()
        };
        let ingest = plan(&settings, IngestSettings::new("socket")).expect("fine");
        assert_eq!(
            (ingest.pages, ingest.page_bytes, ingest.consumers_max),
            (512, 128 << 10, 2)
        );
        let ingest = plan(&Settings::default(), IngestSettings::new("socket")).expect("fine");
        assert_eq!((ingest.pages, ingest.page_bytes), (4096, 64 << 10));
    }

    #[test]
    fn a_missing_directory_of_the_socket_is_named() {
        let settings = Settings {
            ingest_socket: Some("/no/such/directory/ingest".into()),
            ..Settings::default()
        };
        let Err(Failure::Failed(why)) = open(&settings, &PassedSockets::default()) else {
            panic!("there is no such directory");
        };
        assert!(why.contains("no directory /no/such/directory;"), "{why}");
    }

    #[test]
    fn what_is_too_much_is_named_with_what_was_given() {
        let asked = || Settings {
            ingest_socket: Some("socket".into()),
            ..Settings::default()
        };
        for (settings, words) in [
            (
                Settings {
                    ingest_memory: Some(1 << 60),
                    ..asked()
                },
                "--ingest-memory 1048576T is too much: at most 4294967295 pages of 64K",
            ),
            (
                Settings {
                    ingest_page: Some(5000),
                    ..asked()
                },
                "pages of 5000 bytes: a page must be a multiple of 4096 bytes",
            ),
        ] {
            let Err(Failure::WrongUse(why)) = open(&settings, &PassedSockets::default()) else {
                panic!("it is too much: {words}");
            };
            assert!(why.contains(words), "{why}");
        }
    }

    #[test]
    fn without_a_socket_the_cure_is_named() {
        let Err(Failure::WrongUse(why)) = open(&Settings::default(), &PassedSockets::default())
        else {
            panic!("no socket");
        };
        assert!(why.contains("--ingest-socket PATH"), "{why}");
    }
}
