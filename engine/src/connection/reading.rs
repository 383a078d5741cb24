//! The receive of a connection, and the one reason why it is not read from.
//!
//! See `state.rs` for the states.

use flatpath_driver::{Lent, Quota};

use crate::limits::SPARSE_RECEIVES;
use crate::memory::pages::PageKind;
use crate::protocol::phase::{Phase, Stall};

use super::Connection;
use super::state::{Closing, Reading, Receive, Stream};

/// What is to be done about the receive of a connection.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NextReceive {
    /// Nothing, now.
    Stays,
    Arm,
    /// It is armed after those that have waited longer: it brings much.
    AwaitsTurn,
    Cancel,
}

impl Connection {
    /// True while bytes are to be received: for the protocol, or to be dropped while lingering.
    #[inline]
    pub(crate) fn wants_input(&self) -> bool {
        let is_read = match self.reading {
            Reading::Open => self.closing == Closing::No,
            Reading::Dropping => self.closing == Closing::Lingering,
            Reading::OverQuota | Reading::Stalled(_) => false,
        };
        is_read && !self.has_ended()
    }

    /// The common case: what is to be received is being received.
    #[inline]
    pub(crate) fn receives_as_wanted(&self) -> bool {
        self.receive == Receive::Many && self.goes_on_receiving() && self.wants_input()
    }

    /// True while it is this server that does not receive; the peer is not charged for that time.
    pub(super) fn waits_for_us(&self) -> bool {
        let is_paused = matches!(self.reading, Reading::OverQuota | Reading::Stalled(_));
        is_paused || self.waits.awaits_turn() || self.starves()
    }

    #[inline]
    pub(crate) fn stalled(&self) -> Option<Stall> {
        match self.reading {
            Reading::Stalled(stall) => Some(stall),
            _ => None,
        }
    }

    /// True while it is stalled without memory.
    #[inline]
    pub(crate) fn waits_for_memory(&self) -> bool {
        self.reading == Reading::Stalled(Stall::Memory)
    }

    /// Stops input for `stall`, unless the connection ends. A stall for room has one deadline from
    /// its beginning, however often it is tried again: only [`Connection::note_retry`] ends the
    /// episode. False: no stall has begun.
    pub(crate) fn stall(&mut self, stall: Stall, now_ns: u64) -> bool {
        if self.is_closing() {
            return false;
        }
        self.reading = Reading::Stalled(stall);
        if !stall.is_timed() {
            return true;
        }
        let begins = self.clocks.reading_ns == 0;
        if begins {
            self.clocks.reading_ns = now_ns.max(1);
        }
        begins
    }

    /// Ends a stall, for now: input is to be given again.
    pub(crate) fn take_stall(&mut self) -> Option<Stall> {
        let stall = self.stalled()?;
        self.reading = Reading::Open;
        Some(stall)
    }

    /// Ends a stall and its deadline.
    pub(crate) fn stall_is_over(&mut self) {
        self.take_stall();
        self.clocks.reading_ns = 0;
    }

    /// Something moved, or the connection is not stalled for room any more.
    fn stall_moved(&mut self, now_ns: u64) {
        let is_timed = self.stalled().is_some_and(Stall::is_timed);
        self.clocks.reading_ns = if is_timed { now_ns.max(1) } else { 0 };
    }

    /// A stall was tried to end since `before` had moved. False: nothing has moved since, so its
    /// deadline stays where it is.
    pub(crate) fn note_retry(&mut self, before: u32, now_ns: u64) -> bool {
        let is_stalled = self.stalled().is_some_and(Stall::is_for_room);
        let has_moved = self.moved != before || !is_stalled;
        if has_moved {
            self.stall_moved(now_ns);
        }
        has_moved
    }

    /// What counts the fragments; `make` makes it for the first one.
    pub(crate) fn quota(&mut self, make: impl FnOnce() -> Quota) -> &Quota {
        self.rare().quota.get_or_insert_with(make)
    }

    #[inline]
    fn known_quota(&self) -> Option<&Quota> {
        self.rare.as_ref()?.quota.as_ref()
    }

    pub(crate) fn fragments_held(&self) -> u32 {
        self.known_quota().map_or(0, Quota::held)
    }

    /// Receives nothing from now on if users hold `fragments_max`, until they have given back half.
    /// True: that has begun.
    pub(crate) fn heed_quota(&mut self, fragments_max: u32) -> bool {
        let Some(quota) = self.known_quota() else {
            return false;
        };
        let begins = self.reading == Reading::Open
            && quota.held() >= fragments_max
            && quota.wait_below(fragments_max / 2 + 1);
        if begins {
            self.reading = Reading::OverQuota;
        }
        begins
    }

    /// Users hold few fragments again.
    pub(crate) fn quota_has_room(&mut self) {
        if self.reading == Reading::OverQuota {
            self.reading = Reading::Open;
        }
    }

    /// Bytes have arrived, at any time.
    pub(crate) fn has_received(&self) -> bool {
        self.stream > Stream::Silent
    }

    #[inline]
    pub(crate) fn has_ended(&self) -> bool {
        self.stream >= Stream::Ended
    }

    /// The end of the stream has come, and the protocol does not know.
    #[inline]
    pub(crate) fn end_is_due(&self) -> bool {
        self.stream == Stream::Ended
    }

    pub(crate) fn end_is_reported(&self) -> bool {
        self.stream == Stream::EndReported
    }

    /// The kernel has said that the stream has ended.
    pub(crate) fn end_came(&mut self) {
        self.stream = self.stream.max(Stream::Ended);
    }

    /// The protocol knows that the stream has ended, or is not to be told any more.
    pub(crate) fn end_reported(&mut self) {
        self.stream = Stream::EndReported;
    }

    /// Bytes have arrived.
    #[inline]
    pub(crate) fn note_received(&mut self) {
        self.stream = self.stream.max(Stream::Live);
    }

    /// What the next receive goes to.
    #[inline]
    pub(crate) fn pages(&self) -> PageKind {
        self.pages
    }

    /// Chooses what the next receive goes to.
    pub(crate) fn receive_into(&mut self, pages: PageKind) {
        self.pages = pages;
        if let Some(rare) = &mut self.rare {
            rare.piped = None;
        }
    }

    /// Has what comes next come in a pipe, if so much of it is there; `None`: no more.
    pub(crate) fn receive_piped(&mut self, bytes: Option<(u32, u32)>) {
        if bytes.is_some() || self.rare.is_some() {
            self.rare().piped = bytes;
        }
    }

    /// What it receives is a job's until that is back.
    pub(crate) fn lend(&mut self, lent: Lent) {
        self.rare().lent = Some(lent);
    }

    /// Takes back what was lent, unless it waits for the job: nothing is received here before. That
    /// it ends has ended its stall.
    pub(crate) fn take_back(&mut self) {
        let is_waited_for = self.stalled() == Some(Stall::Body);
        if let Some(rare) = &mut self.rare
            && let Some(lent) = rare.lent.take_if(|_| !is_waited_for)
        {
            lent.take_back();
        }
    }

    /// What may come in a pipe now, where it would be received next: nothing is before it, and it
    /// is given as it comes.
    pub(crate) fn wants_piped(&self) -> Option<(u32, u32)> {
        let rare = self.rare.as_ref()?;
        let is_next = self.inbox.is_empty() && self.takes_input();
        let is_own = rare.pair.is_none() && rare.secured.is_none() && rare.becomes.is_none();
        let may_be_armed = self.next_receive(self.wants_input()) == NextReceive::Arm;
        rare.piped.filter(|_| is_next && is_own && may_be_armed)
    }

    pub(crate) fn receive(&self) -> Receive {
        self.receive
    }

    /// A receive is outstanding.
    pub(crate) fn is_receiving(&self) -> bool {
        !matches!(self.receive, Receive::Off | Receive::Starves(_))
    }

    #[inline]
    pub(crate) fn receive_operation(&self) -> u8 {
        self.receive_operation
    }

    /// What is to be done about the receive, if it is `wanted`.
    pub(crate) fn next_receive(&self, wanted: bool) -> NextReceive {
        match self.receive {
            // Offered first: a connection holds no more pages than it has to.
            Receive::Off if self.waits.awaits_turn() => NextReceive::Stays,
            Receive::Off if wanted && self.is_bulk() => NextReceive::AwaitsTurn,
            Receive::Off if wanted => NextReceive::Arm,
            Receive::Many if !wanted || !self.goes_on_receiving() => NextReceive::Cancel,
            // A single receive brings one piece at most; it is cancelled only to close.
            Receive::Once if self.is_closing() && !wanted => NextReceive::Cancel,
            Receive::Off
            | Receive::Starves(_)
            | Receive::Once
            | Receive::Many
            | Receive::Cancelling => NextReceive::Stays,
        }
    }

    /// Whether a receive of many pieces still goes where the next one would.
    #[inline]
    fn goes_on_receiving(&self) -> bool {
        self.pages.region_id() == 0 && self.bulk.is_none()
    }

    /// Its receive has found no page.
    #[inline]
    pub(crate) fn starves(&self) -> bool {
        matches!(self.receive, Receive::Starves(_))
    }

    /// Notes that the receive that has ended found no page: it waits for one of this kind.
    pub(crate) fn begin_starving(&mut self) -> PageKind {
        debug_assert!(!self.is_receiving(), "a receive without a page is over");
        self.receive = Receive::Starves(self.pages);
        self.pages
    }

    /// It waits for no page any more: for one of which kind it did.
    pub(crate) fn end_starving(&mut self) -> Option<PageKind> {
        let Receive::Starves(pages) = self.receive else {
            return None;
        };
        self.receive = Receive::Off;
        Some(pages)
    }

    /// Whether the page that it waits for is not wanted any more, or not one of that kind.
    pub(crate) fn starves_in_vain(&self, wanted: bool) -> bool {
        self.starves() && (!wanted || self.receive != Receive::Starves(self.pages))
    }

    /// Whether the next receive may bring more than one piece.
    ///
    /// One at a time where what comes next may be for another: its room is asked for each time.
    /// Into a listener's pages, too: what arrives is likely to be kept.
    pub(crate) fn may_receive_many(&self) -> bool {
        self.has_received() && self.phase != Phase::Wait && self.goes_on_receiving()
    }

    /// Notes that a receive is outstanding; its number.
    pub(crate) fn begin_receive(&mut self, receive: Receive) -> u8 {
        self.receive = receive;
        self.receive_operation = self.receive_operation.wrapping_add(1);
        self.receive_operation
    }

    /// Notes that the receive is being cancelled; its number.
    pub(crate) fn cancel_receive(&mut self) -> u8 {
        self.receive = Receive::Cancelling;
        self.receive_operation
    }

    /// The receive is over.
    #[inline]
    pub(crate) fn receive_ended(&mut self) {
        // A final completion that comes twice may find it starving.
        if self.is_receiving() {
            self.receive = Receive::Off;
        }
    }

    /// It takes more than its part: see `network/long_input.rs`, also for the following.
    #[inline]
    pub(crate) fn is_bulk(&self) -> bool {
        self.bulk.is_some()
    }

    pub(crate) fn begin_bulk(&mut self) {
        self.bulk = Some(0);
    }

    /// A bulk connection has received something; it is sparse when that was short for a while.
    pub(crate) fn note_length(&mut self, is_short: bool) {
        let short = match is_short {
            true => self.bulk.unwrap_or(0) + 1,
            false => 0,
        };
        self.bulk = (short < SPARSE_RECEIVES).then_some(short);
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::connection;
    use super::*;

    #[test]
    fn a_kind_of_page_is_a_region_and_whether_pages_are_shared() {
        for index in 0..10 {
            let kind = PageKind::of_index(index);
            assert_eq!(kind.index(), index);
            assert_eq!(PageKind::new(kind.region_id(), kind.shares()), kind);
        }
        assert_eq!(PageKind::COMMON, PageKind::new(0, false));
    }

    #[test]
    fn a_stall_for_room_that_is_tried_in_vain_is_the_same_stall() {
        let mut connection = connection(0);
        assert!(connection.stall(Stall::Memory, 10));
        assert_eq!(connection.take_stall(), Some(Stall::Memory));
        assert!(!connection.stall(Stall::Memory, 20), "nothing has moved");
        let before = connection.moved();
        assert!(!connection.note_retry(before, 30));
        assert_eq!(connection.clocks.reading_ns, 10);
        connection.progress(1);
        assert!(connection.note_retry(before, 30));
        assert_eq!(connection.clocks.reading_ns, 30);
    }

    #[test]
    fn a_connection_that_ends_does_not_stall() {
        let mut connection = connection(0);
        connection.close(Closing::Lingering);
        assert!(!connection.stall(Stall::Jobs, 10));
        assert_eq!(connection.stalled(), None);
        assert!(connection.drop_input(20));
        assert!(!connection.drop_input(30), "it does already");
        assert!(connection.wants_input());
        connection.close(Closing::Abort);
        assert!(!connection.wants_input());
    }

    #[test]
    fn a_multishot_receive_is_cancelled_where_the_next_goes_elsewhere() {
        let mut connection = connection(0);
        let number = connection.begin_receive(Receive::Many);
        assert_eq!(connection.next_receive(true), NextReceive::Stays);
        assert!(connection.receives_as_wanted());
        connection.receive_into(PageKind::new(1, false));
        assert!(!connection.receives_as_wanted());
        assert_eq!(connection.next_receive(true), NextReceive::Cancel);
        assert_eq!(connection.cancel_receive(), number);
        assert_eq!(connection.next_receive(true), NextReceive::Stays);
        connection.receive_ended();
        assert_eq!(connection.next_receive(true), NextReceive::Arm);
        assert_ne!(connection.begin_receive(Receive::Once), number);
    }

    #[test]
    fn one_that_starves_waits_for_a_page_of_the_kind_that_it_wants() {
        let mut connection = connection(0);
        let (common, own) = (PageKind::COMMON, PageKind::new(1, true));
        connection.begin_receive(Receive::Once);
        connection.receive_ended();
        assert_eq!(connection.begin_starving(), common);
        assert!(connection.starves() && !connection.is_receiving());
        assert!(connection.waits_for_us(), "the peer is not charged");
        assert_eq!(connection.next_receive(true), NextReceive::Stays);
        assert!(!connection.starves_in_vain(true));
        assert!(connection.starves_in_vain(false), "no input is wanted");
        connection.receive_into(own);
        assert!(connection.starves_in_vain(true), "not one of that kind");
        connection.receive_ended();
        assert!(connection.starves(), "that it ended came twice");
        assert_eq!(connection.end_starving(), Some(common));
        assert_eq!(connection.end_starving(), None);
        assert_eq!(connection.next_receive(true), NextReceive::Arm);
        assert_eq!(connection.begin_starving(), own);
    }

    #[test]
    fn a_single_receive_is_cancelled_to_close_only() {
        let mut connection = connection(0);
        connection.begin_receive(Receive::Once);
        connection.stall(Stall::Jobs, 0);
        let wanted = connection.wants_input();
        assert!(!wanted);
        assert_eq!(connection.next_receive(wanted), NextReceive::Stays);
        connection.close(Closing::AfterOutput);
        assert_eq!(connection.next_receive(wanted), NextReceive::Cancel);
    }

    #[test]
    fn one_that_is_bulk_waits_its_turn_until_it_has_been_sparse() {
        let mut connection = connection(0);
        connection.begin_bulk();
        assert_eq!(connection.next_receive(true), NextReceive::AwaitsTurn);
        for _ in 1..SPARSE_RECEIVES {
            connection.note_length(true);
        }
        connection.note_length(false);
        for _ in 1..SPARSE_RECEIVES {
            connection.note_length(true);
            assert!(connection.is_bulk());
        }
        connection.note_length(true);
        assert_eq!(connection.next_receive(true), NextReceive::Arm);
    }
}
