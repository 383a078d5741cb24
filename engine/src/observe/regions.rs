//! Where the pages of receive memory are, for display: the regions of all network threads that run.
//!
//! A network thread enters its regions when it starts, and they leave with it. Their counts are
//! read only when asked for.

use std::sync::Arc;

use flatpath_driver::Region;
use flatpath_structures::lock::Lock;

/// The pages of one region at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryFigures {
    /// Whose region it is: the protocol of its listener, or `common`.
    pub name: &'static str,
    /// The network thread, from 0.
    pub thread: usize,
    /// How many pages there are.
    pub pages: u32,
    /// Bytes of a page.
    pub page_bytes: u32,
    /// Pages with handlers or consumers; the others can be received into.
    pub pages_retained: u32,
}

/// The regions of all network threads that run.
#[derive(Debug, Default)]
pub(crate) struct Regions(Arc<Lock<Vec<Entry>>>);

#[derive(Debug)]
struct Entry {
    name: &'static str,
    thread: usize,
    region: Region,
}

/// Regions of one network thread; dropped, they leave.
#[derive(Debug)]
pub(crate) struct Entered {
    entries: Arc<Lock<Vec<Entry>>>,
    thread: usize,
}

impl Regions {
    pub(crate) fn enter(
        &self,
        thread: usize,
        regions: impl Iterator<Item = (&'static str, Region)>,
    ) -> Entered {
        self.0.lock().extend(regions.map(|(name, region)| Entry {
            name,
            thread,
            region,
        }));
        Entered {
            entries: Arc::clone(&self.0),
            thread,
        }
    }

    /// The counts now, in the order of the network threads.
    pub(crate) fn read(&self) -> Vec<MemoryFigures> {
        let entries = self.0.lock();
        let figures = entries.iter().map(|entry| MemoryFigures {
            name: entry.name,
            thread: entry.thread,
            pages: entry.region.pages(),
            page_bytes: entry.region.page_bytes(),
            pages_retained: entry.region.retained(),
        });
        let mut figures: Vec<_> = figures.collect();
        figures.sort_by_key(|figures| figures.thread);
        figures
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        self.entries
            .lock()
            .retain(|entry| entry.thread != self.thread);
    }
}
