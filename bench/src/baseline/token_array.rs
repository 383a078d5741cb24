//! Counter array per socket: one counter per page of the region for each socket; the token is the
//! page number.
//!
//! Original: `urefs` of the first version of the devmem token series, its "after". Quick, but two
//! megabytes for each socket and region of 2 GiB, and a dead socket's array is walked as a whole.
//!
//! With the fix its reviewers asked for: a counter is decremented only if it is positive.

use std::sync::Arc;

use crate::tokens::{Counters, GivesBack, Holds, Opens};

/// A region whose sockets keep an array each.
#[derive(Debug)]
pub(crate) struct ArrayRegion(Arc<Counters>);

/// One socket's references.
#[derive(Debug)]
pub(crate) struct ArraySocket(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    region: Arc<Counters>,
    own: Counters,
}

impl Opens for ArrayRegion {
    type Holder = ArraySocket;

    fn open(pages: u32) -> Self {
        Self(Arc::new(Counters::new(pages)))
    }

    fn join(&self) -> ArraySocket {
        ArraySocket(Arc::new(Shared {
            region: Arc::clone(&self.0),
            own: Counters::new(self.0.pages()),
        }))
    }
}

impl Holds for ArraySocket {
    type Token = u32;
    type Remote = Self;

    fn take(&mut self, page: u32) -> Option<u32> {
        self.0.region.count(page);
        self.0.own.count(page);
        Some(page)
    }

    fn give_back(&mut self, page: u32) -> bool {
        GivesBack::give_back(self, page)
    }

    fn remote(&mut self) -> Self {
        Self(Arc::clone(&self.0))
    }

    fn bytes(&self) -> usize {
        size_of::<Shared>() + self.0.own.pages() as usize * size_of::<u32>()
    }
}

impl GivesBack<u32> for ArraySocket {
    fn give_back(&self, page: u32) -> bool {
        let held = self.0.own.uncount_if_positive(page);
        if held {
            self.0.region.uncount(page);
        }
        held
    }
}

/// The socket dies: every counter is looked at.
impl Drop for Shared {
    fn drop(&mut self) {
        for page in 0..self.own.pages() {
            for _ in 0..self.own.take_count(page) {
                self.region.uncount(page);
            }
        }
    }
}
