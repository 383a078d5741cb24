//! What is there of TLS without the feature `tls`: no value of any of its types.

use std::ops::Range;
use std::sync::Arc;

use crate::protocol::tls_terms::TlsTerms;

pub(crate) const PLAINTEXT_BYTES_MAX: usize = 1 << 14;
pub(crate) const OVERHEAD_BYTES_MAX: usize = 32;

#[derive(Clone, Debug)]
pub(crate) enum TlsConfig {}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Alert;

impl Alert {
    pub(crate) const CLOSE_NOTIFY: Alert = Alert;
}

#[derive(Debug)]
pub(crate) enum Records {}

#[derive(Debug)]
pub(crate) enum Established {}

impl Established {
    pub(crate) fn take(self) -> (Records, Vec<u8>, Arc<TlsTerms>) {
        match self {}
    }
}

impl Records {
    pub(crate) fn freeze(&mut self) {
        match *self {}
    }

    pub(crate) fn peer_has_closed(&self) -> bool {
        match *self {}
    }

    pub(crate) fn owes_answer(&self) -> bool {
        match *self {}
    }

    pub(crate) fn whole(&self, _bytes: &[u8]) -> Result<(usize, usize), Alert> {
        match *self {}
    }

    pub(crate) fn open(&mut self, _records: &mut [u8]) -> Result<Range<usize>, Alert> {
        match *self {}
    }

    pub(crate) fn content_place(&self, _room_bytes: usize) -> Range<usize> {
        match *self {}
    }

    pub(crate) fn make_ready(&mut self, _room: &mut [u8]) -> Result<usize, Alert> {
        match *self {}
    }

    pub(crate) fn seal(&mut self, _room: &mut [u8], _content_bytes: usize) -> Result<usize, Alert> {
        match *self {}
    }

    pub(crate) fn answer(&mut self, _room: &mut [u8]) -> Result<usize, Alert> {
        match *self {}
    }

    pub(crate) fn closing_alert(&mut self, _alert: Alert, _room: &mut [u8]) -> Option<usize> {
        match *self {}
    }
}
