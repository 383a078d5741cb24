//! Counter array per region: one counter per page, shared by all sockets; the token is the page.
//!
//! Original: later versions of the devmem token series. The least that can be done, and it reclaims
//! nothing: what a dead socket held stays counted until the region itself ends, and any socket may
//! give back what another one holds. A floor for the others, not an alternative.

use std::sync::Arc;

use crate::tokens::{Counters, GivesBack, Holds, Opens};

/// A region that alone knows of references.
#[derive(Debug)]
pub(crate) struct CountedRegion(Arc<Counters>);

/// A socket that knows nothing.
#[derive(Debug)]
pub(crate) struct CountedSocket(Arc<Counters>);

impl Opens for CountedRegion {
    type Holder = CountedSocket;

    fn open(pages: u32) -> Self {
        Self(Arc::new(Counters::new(pages)))
    }

    fn join(&self) -> CountedSocket {
        CountedSocket(Arc::clone(&self.0))
    }
}

impl Holds for CountedSocket {
    type Token = u32;
    type Remote = Self;

    fn take(&mut self, page: u32) -> Option<u32> {
        self.0.count(page);
        Some(page)
    }

    fn give_back(&mut self, page: u32) -> bool {
        GivesBack::give_back(self, page)
    }

    fn remote(&mut self) -> Self {
        Self(Arc::clone(&self.0))
    }

    fn bytes(&self) -> usize {
        0
    }
}

impl GivesBack<u32> for CountedSocket {
    fn give_back(&self, page: u32) -> bool {
        self.0.uncount_if_positive(page)
    }
}
