//! A connection beside what it speaks: what streams are given to send through.
//!
//! Frames gather in the core's `out`, and go to the output of the connection when a call ends, or
//! before long data, which goes there without a copy. Where there is no memory they stay, nothing
//! is read (C1), and the session looks again when there is some.

use std::ops::{Deref, DerefMut};

use bytes::Bytes;
use flatpath::NoRoom;

use super::core::Core;
use super::flow::Flow;
use super::wire::{self, END_STREAM, Kind};
use crate::connection::state::Connection;
use crate::limits::{GATHER_BYTES_MAX, SCRATCH_KEPT_MAX};
use crate::service::Service;

/// See the module.
pub(super) struct Link<'l, 'c, S: Service> {
    pub(super) connection: &'l mut Connection<'c, S>,
    pub(super) core: &'l mut Core,
}

impl<'c, S: Service> Deref for Link<'_, 'c, S> {
    type Target = Connection<'c, S>;

    fn deref(&self) -> &Connection<'c, S> {
        self.connection
    }
}

impl<'c, S: Service> DerefMut for Link<'_, 'c, S> {
    fn deref_mut(&mut self) -> &mut Connection<'c, S> {
        self.connection
    }
}

impl<S: Service> Link<'_, '_, S> {
    /// Queues what was said.
    ///
    /// # Errors
    /// There is no memory for it: it stays.
    pub(super) fn flush(&mut self) -> Result<(), NoRoom> {
        if !self.core.out.is_empty() {
            self.connection.write(&self.core.out)?;
            self.core.out.clear();
        }
        Ok(())
    }

    /// The end of a call: as [`Link::flush`], and gives back what gathered it.
    pub(super) fn end(&mut self) -> Result<(), NoRoom> {
        self.flush()?;
        let out = std::mem::take(&mut self.core.out);
        if out.capacity() <= SCRATCH_KEPT_MAX {
            self.connection.thread.h2.out = out;
        }
        Ok(())
    }

    /// Sends of a body what there is room for, at most what the windows have.
    ///
    /// # Errors
    /// There is no memory for it: nothing was sent.
    pub(super) fn send_data(
        &mut self,
        flow: &mut Flow,
        data: &Bytes,
        is_end: bool,
    ) -> Result<(), NoRoom> {
        let flags = if is_end { END_STREAM } else { 0 };
        let head = wire::head(Kind::Data, flags, flow.id, data.len());
        if data.len() <= GATHER_BYTES_MAX {
            self.core.out.extend_from_slice(&head);
            self.core.out.extend_from_slice(data);
        } else {
            self.flush()?;
            self.connection.write_piece(&head, data, b"")?;
        }
        self.core.sent(flow, data.len());
        Ok(())
    }
}
