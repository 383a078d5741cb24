//! Settings, and their consequence: how the pages of a region are divided.

use std::io;
use std::path::PathBuf;

use flatpath::NetworkThreads;
use flatpath::sockets::PassedSockets;
use flatpath_driver::{Backing, RegionConfig, SmallReceives};
use flatpath_messages::handshake::REGIONS_MAX;
use flatpath_messages::layout::ENTRIES_MAX;
use flatpath_messages::limits::{MESSAGE_BYTES_DEFAULT, MESSAGE_BYTES_MAX};

/// One page of this many is never retained, so that the kernel always has some.
const RESERVE_SHARE: u32 = 16;

/// Settings of one ingest listener.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where consumers attach. A socket that no process listens at is replaced.
    pub socket: PathBuf,
    /// Sockets that another process has passed to this one: if that one is among them, consumers
    /// attach there.
    pub passed: PassedSockets,
    /// Network threads of the server, at most: each that accepts has a region of its own.
    pub network_threads: usize,
    /// Pages of a region, a power of two from 64 to 32,768.
    pub pages: u32,
    /// Bytes of a page, a multiple of 4,096. A receive fills one page at most.
    pub page_bytes: u32,
    /// Most consumers attached at once.
    pub consumers_max: u32,
    /// The longest message in bytes; less where a window cannot hold it.
    pub message_bytes_max: u32,
    /// Whether messages that are received at different times may share a page.
    pub small_receives: SmallReceives,
}

/// Why an ingest listener cannot start.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// Settings that do not fit each other or a bound; says what would be right.
    Settings(String),
    /// The socket for consumers cannot be made.
    Socket(PathBuf, io::Error),
    /// The control thread cannot be started.
    Control(io::Error),
}

flatpath::impl_error! {
    Error {
        Self::Settings(text) => "{text}",
        Self::Socket(path, cause) => "{}: {cause}" (path.display()),
        Self::Control(cause) => "starting the control thread of ingest: {cause}",
    }
    source { Self::Socket(_, cause) | Self::Control(cause) => cause }
}

impl Settings {
    /// 4,096 pages of 64 KiB for up to four consumers, and as many network threads as a server has
    /// for which none are named.
    pub fn new(socket: impl Into<PathBuf>) -> Settings {
        Settings {
            socket: socket.into(),
            passed: PassedSockets::default(),
            network_threads: NetworkThreads::Auto.count(),
            pages: 4096,
            page_bytes: 64 << 10,
            consumers_max: 4,
            message_bytes_max: MESSAGE_BYTES_DEFAULT,
            small_receives: SmallReceives::SharePages,
        }
    }

    pub(crate) fn plan(&self) -> Result<Plan, Error> {
        let wrong = |what: String| Err(Error::Settings(what));
        let (pages, page_bytes) = (self.pages, self.page_bytes);
        if page_bytes == 0 || !page_bytes.is_multiple_of(4096) || page_bytes > 4 << 20 {
            return wrong(format!(
                "pages of {page_bytes} bytes: a page must be a multiple of 4096 bytes, and at \
                 most 4 MiB"
            ));
        }
        if !pages.is_power_of_two() || !(64..=32_768).contains(&pages) {
            return wrong(format!(
                "{pages} pages: pages must be a power of two from 64 to 32768"
            ));
        }
        let (consumers, threads) = (self.consumers_max, self.network_threads);
        if consumers == 0 || self.message_bytes_max == 0 || threads == 0 {
            let bytes = self.message_bytes_max;
            return wrong(format!(
                "{consumers} consumers, messages of {bytes} bytes, {threads} network threads: at \
                 least one of each"
            ));
        }
        if threads > REGIONS_MAX {
            return wrong(format!(
                "{threads} network threads: at most {REGIONS_MAX}, as a consumer maps the region \
                 of each"
            ));
        }
        let reserve_pages = self.pages / RESERVE_SHARE;
        let producers_max = self.pages / 2;
        let share = (self.pages - reserve_pages - producers_max) / self.consumers_max;
        if share < 8 {
            return wrong(format!(
                "{pages} pages are too few pages for {consumers} consumers: 20 for each are the \
                 least"
            ));
        }
        // The largest power of two in the share.
        let window = (1 << share.ilog2()).min(ENTRIES_MAX);
        let longest = u64::from((window - 2) / 2) * u64::from(self.page_bytes);
        // A window of `ENTRIES_MAX` pages of 4 MiB holds more than a length can say.
        let longest = u32::try_from(longest).unwrap_or(u32::MAX);
        Ok(Plan {
            region: RegionConfig {
                pages: self.pages,
                page_bytes: self.page_bytes,
                reserve_pages,
                backing: Backing::Shared,
                small_receives: self.small_receives,
                ..RegionConfig::default()
            },
            producers_max: producers_max * u32::try_from(threads).expect("at most REGIONS_MAX"),
            window,
            message_bytes_max: self.message_bytes_max.min(longest).min(MESSAGE_BYTES_MAX),
        })
    }
}

/// Values that follow from the settings.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) region: RegionConfig,
    pub(crate) producers_max: u32,
    /// Fragments that one consumer may have, held or promised; entries of its rings.
    pub(crate) window: u32,
    pub(crate) message_bytes_max: u32,
}

impl Plan {
    /// Fragments that a message may take: the first may lie in a shared page, however short; pages
    /// after it are at least half full on average, but for the last one; and a fragment has a byte
    /// at least.
    #[inline]
    pub(crate) fn need(&self, message_bytes: u32) -> u32 {
        let pages = message_bytes.div_ceil(self.region.page_bytes);
        (2 * pages + 2).min(message_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pages_are_enough_for_all_that_was_promised() {
        for pages in [64, 256, 4096, 32_768] {
            for consumers_max in [1, 2, 3, 4, 16, 100] {
                let settings = Settings {
                    pages,
                    consumers_max,
                    ..Settings::new("socket")
                };
                let Ok(plan) = settings.plan() else {
                    assert!(pages / consumers_max < 20, "{pages} pages, {consumers_max}");
                    continue;
                };
                let promised = plan.producers_max + plan.window * consumers_max;
                assert!(promised + plan.region.reserve_pages <= pages);
                assert!(plan.window.is_power_of_two() && plan.window <= ENTRIES_MAX);
                assert!(plan.need(plan.message_bytes_max) <= plan.window);
            }
        }
    }

    #[test]
    fn a_message_needs_no_more_fragments_than_it_has_bytes() {
        let plan = Settings::new("socket").plan().expect("the defaults");
        assert_eq!(plan.need(1), 1);
        assert_eq!(plan.need(2), 2);
        assert_eq!(plan.need(100), 4);
        assert_eq!(plan.need(65_536), 4);
        assert_eq!(plan.need(65_537), 6);
        assert_eq!(plan.need(1 << 20), 34);
    }

    #[test]
    fn settings_that_cannot_be_are_refused_in_words() {
        let settings = Settings::new("socket");
        for (wrong, word) in [
            (
                Settings {
                    pages: 100,
                    ..settings.clone()
                },
                "100 pages: pages must be a power of two",
            ),
            (
                Settings {
                    page_bytes: 1000,
                    ..settings.clone()
                },
                "pages of 1000 bytes: a page must be a multiple of 4096",
            ),
            (
                Settings {
                    consumers_max: 0,
                    ..settings.clone()
                },
                "0 consumers, ",
            ),
            (
                Settings {
                    network_threads: 65,
                    ..settings.clone()
                },
                "65 network threads: at most 64",
            ),
            (
                Settings {
                    consumers_max: 1000,
                    ..settings.clone()
                },
                "4096 pages are too few pages for 1000 consumers",
            ),
        ] {
            let error = wrong.plan().expect_err(word).to_string();
            assert!(error.contains(word), "{error}");
        }
    }
}
