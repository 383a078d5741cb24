//! What a connection waits for, and why its input waits: the words for its deadlines and its
//! stalls.

/// What a connection is waiting for; it decides which deadline guards it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Phase {
    /// Nothing of a request has arrived. Guarded by `idle_timeout` from the start of the phase.
    Idle,
    /// Part of a request's head has arrived. Guarded by `head_timeout`, absolute: bytes that
    /// trickle in do not move it. A new connection starts here, counted from its accept. A protocol
    /// that stays here after its reply closes clients that only wait; that is logged, once.
    Head,
    /// A body is arriving. Guarded by a bound on silence, `body_timeout`, and by a minimum rate.
    Body,
    /// A request is with a worker or its reply is going out. No deadline but the one on writing.
    Work,
    /// The same, until a time that the protocol gives to
    /// [`Io::phase_until`](crate::Io::phase_until), and no longer.
    Timed,
    /// A reply goes out in pieces, as they are made elsewhere, and may rest for hours. After
    /// `push_interval` comes [`Event::Expired`](crate::Event::Expired): the protocol writes
    /// something that shows both ends that the other is there, and restarts the phase. So it does
    /// with each piece.
    Push,
    /// The client waits for something that is not its own to bring: another client, say. Guarded by
    /// `wait_timeout`.
    Wait,
    /// Spliced to another connection ([`Io::splice`](crate::Io::splice) sets it). Guarded by
    /// `spliced_timeout`, which counts from the last byte in either direction.
    Spliced,
}

impl Phase {
    /// Whether the client has begun something, and says how long it takes: a connection does not
    /// rest in it, and is not at work.
    pub(crate) fn is_for_client(self) -> bool {
        matches!(self, Phase::Body | Phase::Wait | Phase::Spliced)
    }
}

/// Why a protocol left input unconsumed that it could have understood. Receiving stops, TCP does
/// the rest, and the input is given again when the reason is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Stall {
    /// The peer does not read: until output has fallen to the low-water mark.
    Output,
    /// As many requests of this connection are under way as the protocol allows: until one is back
    /// from a worker, or the connection is woken, as it is for a reply that was made elsewhere.
    Pipeline,
    /// The input is for a job that is with a worker, and that takes no more before it is back: a
    /// body whose sink is slower than its client.
    Body,
    /// The connection has to take a step before more of it is looked at: a handshake of TLS is with
    /// a worker, or a header of the PROXY protocol has named another client. Until that is done. It
    /// belongs to every such connection, so it is not counted.
    Step,
    /// As many requests are in flight as the server allows: until one is back. Refused when
    /// nothing moves for `stall_timeout` from its beginning.
    Jobs,
    /// As many requests that last are in flight as the server allows, see
    /// [`Context::lasts`](crate::Context::lasts): until
    /// one of them has ended. Refused like `Jobs`.
    LongLived,
    /// The memory budget is used up: until buffers come back. Refused like `Jobs`.
    Memory,
    /// This connection holds its share of the memory budget: until it holds half of that. A
    /// protocol need not say so, the engine looks by itself.
    Share,
    /// The connection has had its part of the network thread's time in this turn: until the end of
    /// the next one, after what arrived of others.
    Turn,
    /// Something outside the engine is not ready: until
    /// [`ConnectionHandle::wake`](crate::ConnectionHandle::wake). It has no deadline.
    Outside,
}

/// What ends a stall.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EndedBy {
    /// Output that has fallen to the low-water mark.
    Output,
    /// A job of the connection that is back.
    Job,
    /// Room in the server, which is refused when that takes too long.
    Room(Room),
    /// Less of the memory than its share.
    Share,
    /// The end of a turn.
    Turn,
    /// A wake from outside the engine.
    Wake,
}

/// Room in the server, of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Room {
    Jobs,
    LongLived,
    Memory,
}

impl Stall {
    /// What ends it: all that the engine does about a stall follows from this.
    #[inline]
    pub(crate) fn ended_by(self) -> EndedBy {
        match self {
            Stall::Output => EndedBy::Output,
            Stall::Pipeline | Stall::Body | Stall::Step => EndedBy::Job,
            Stall::Jobs => EndedBy::Room(Room::Jobs),
            Stall::LongLived => EndedBy::Room(Room::LongLived),
            Stall::Memory => EndedBy::Room(Room::Memory),
            Stall::Share => EndedBy::Share,
            Stall::Turn => EndedBy::Turn,
            Stall::Outside => EndedBy::Wake,
        }
    }

    /// Whether it ends when the server has room again, and is refused when that takes too long.
    #[inline]
    pub(crate) fn is_for_room(self) -> bool {
        matches!(self.ended_by(), EndedBy::Room(_))
    }

    /// Whether it ends when a job of the connection is back.
    #[inline]
    pub(crate) fn is_for_job(self) -> bool {
        self.ended_by() == EndedBy::Job
    }

    /// Whether a wake of the connection may have ended it.
    #[inline]
    pub(crate) fn may_end_by_wake(self) -> bool {
        self == Stall::Pipeline || self.ended_by() == EndedBy::Wake
    }

    /// Whether it may last for `stall_timeout` only.
    #[inline]
    pub(crate) fn is_timed(self) -> bool {
        matches!(self.ended_by(), EndedBy::Room(_) | EndedBy::Share)
    }
}
