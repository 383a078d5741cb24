//! The ingest listener of `flatpath serve`.

use std::fmt::Display;
use std::io;

use flatpath::SmallReceives;
use flatpath_ingest::{Desk, Error, Ingest, Settings as IngestSettings};

use crate::failure::Failure;
use crate::settings::Settings;
use crate::units::Size;

/// The service with these settings, and the desk where its consumers attach.
pub(crate) fn open(settings: &Settings) -> Result<(Ingest, Desk), Failure> {
    let Some(socket) = &settings.ingest_socket else {
        return Err(Failure::WrongUse(
            "--ingest needs --ingest-socket PATH, where consumers attach".into(),
        ));
    };
    Ingest::open(plan(settings, IngestSettings::new(socket))?).map_err(|error| explain(&error))
}

/// The settings of the service.
fn plan(settings: &Settings, mut ingest: IngestSettings) -> Result<IngestSettings, Failure> {
    let too_much = |name: &str, given: &dyn Display, most: &dyn Display| {
        Failure::WrongUse(format!("{name} {given} is too much: at most {most}"))
    };
    ingest.network_threads = settings.network_threads.map_or(1, |count| count.0);
    let memory = u64::from(ingest.pages) * u64::from(ingest.page_bytes);
    let memory = settings.ingest_memory.map_or(memory, |size| size.0 as u64);
    let largest = Size(u32::MAX as usize);
    if let Some(size) = settings.ingest_page {
        let bytes = size.0.try_into();
        ingest.page_bytes = bytes.map_err(|_| too_much("--ingest-page", &size, &largest))?;
    }
    let pages = memory / u64::from(ingest.page_bytes.max(1));
    ingest.pages = pages.try_into().map_err(|_| {
        let given = Size(usize::try_from(memory).expect("it was a size"));
        let most = format!("{} pages of {}", u32::MAX, Size(ingest.page_bytes as usize));
        too_much("--ingest-memory", &given, &most)
    })?;
    if let Some(count) = settings.ingest_consumers {
        let consumers = count.0.try_into();
        ingest.consumers_max =
            consumers.map_err(|_| too_much("--ingest-consumers", &count.0, &u32::MAX))?;
    }
    if let Some(size) = settings.ingest_message {
        let bytes = size.0.try_into();
        ingest.message_bytes_max =
            bytes.map_err(|_| too_much("--ingest-message", &size, &largest))?;
    }
    if settings.no_ingest_sharing == Some(true) {
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
            "--ingest-socket {}: {cause}; stop who listens there, or name another path",
            path.display()
        )),
        Error::Desk(_) => Failure::Failed(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::{Count, Size};

    #[test]
    fn memory_is_counted_in_pages() {
        let settings = Settings {
            ingest_memory: Some(Size(64 << 20)),
            ingest_page: Some(Size(128 << 10)),
            ingest_consumers: Some(Count(2)),
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
        let Err(Failure::Failed(why)) = open(&settings) else {
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
        let huge = Size(5 << 40);
        for (settings, words) in [
            (
                Settings {
                    ingest_page: Some(huge),
                    ..asked()
                },
                "--ingest-page 5120G is too much: at most ",
            ),
            (
                Settings {
                    ingest_memory: Some(Size(1 << 60)),
                    ..asked()
                },
                "--ingest-memory 1073741824G is too much: at most 4294967295 pages of 64K",
            ),
            (
                Settings {
                    ingest_message: Some(huge),
                    ..asked()
                },
                "--ingest-message 5120G is too much: at most ",
            ),
            (
                Settings {
                    ingest_consumers: Some(Count(1 << 40)),
                    ..asked()
                },
                "--ingest-consumers 1099511627776 is too much: at most 4294967295",
            ),
            (
                Settings {
                    ingest_page: Some(Size(5000)),
                    ..asked()
                },
                "pages of 5000 bytes: a page must be a multiple of 4096 bytes",
            ),
        ] {
            let Err(Failure::WrongUse(why)) = open(&settings) else {
                panic!("it is too much: {words}");
            };
            assert!(why.contains(words), "{why}");
        }
    }

    #[test]
    fn without_a_socket_the_cure_is_named() {
        let Err(Failure::WrongUse(why)) = open(&Settings::default()) else {
            panic!("no socket");
        };
        assert!(why.contains("--ingest-socket PATH"), "{why}");
    }
}
