//! A body that is compressed while it is read.
//!
//! Cost: one buffer of `SOURCE_BYTES` beside the encoder.

use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use flatpath::memory::ShareHold;
use flatpath_http::Reader;

use super::encoder::Encoder;

/// What is read from the source at once.
pub(super) const SOURCE_BYTES: usize = 16 * 1024;

/// The number of streams, which is bounded.
#[derive(Clone)]
pub(super) struct Streams {
    open: Arc<AtomicUsize>,
    max: usize,
}

/// One of them, until it is dropped, with the memory that it takes.
pub(super) struct StreamPlace {
    open: Arc<AtomicUsize>,
    _memory: ShareHold,
}

impl Streams {
    pub(super) fn new(max: usize) -> Self {
        let open = Arc::default();
        Self { open, max }
    }

    /// `None`: there are as many as may be.
    pub(super) fn enter(&self, memory: ShareHold) -> Option<StreamPlace> {
        let more = |open| (open < self.max).then_some(open + 1);
        let entered = self
            .open
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        entered.ok().map(|_| StreamPlace {
            open: Arc::clone(&self.open),
            _memory: memory,
        })
    }
}

impl Drop for StreamPlace {
    fn drop(&mut self) {
        self.open.fetch_sub(1, Ordering::Relaxed);
    }
}

pub(super) struct Compressed {
    source: Reader,
    /// Until the source has ended.
    encoder: Option<Encoder>,
    room: Box<[u8]>,
    output: Vec<u8>,
    /// What of the output has been read.
    read_bytes: usize,
    _place: StreamPlace,
}

impl Compressed {
    pub(super) fn new(source: Reader, encoder: Encoder, place: StreamPlace) -> Self {
        Self {
            source,
            encoder: Some(encoder),
            room: vec![0; SOURCE_BYTES].into(),
            output: Vec::new(),
            read_bytes: 0,
            _place: place,
        }
    }

    /// Reads from the source until there is output, or the end.
    fn fill(&mut self) -> io::Result<()> {
        (self.output, self.read_bytes) = (Vec::new(), 0);
        let mut silent_bytes = 0;
        while self.output.is_empty() {
            let Some(encoder) = &mut self.encoder else {
                break;
            };
            let bytes = self.source.read(&mut self.room)?;
            if bytes == 0 {
                self.output = match self.encoder.take() {
                    Some(encoder) => encoder.finish()?,
                    None => Vec::new(),
                };
                break;
            }
            encoder.write(&self.room[..bytes])?;
            silent_bytes += bytes;
            // The source has no more now: what it had may be waited for. Or it has kept its worker
            // for long enough, however well it can be compressed.
            if bytes < self.room.len() || silent_bytes >= encoder.silent_bytes_max() {
                encoder.flush()?;
            }
            self.output = encoder.take_output();
        }
        Ok(())
    }
}

impl Read for Compressed {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        if self.read_bytes == self.output.len() && !room.is_empty() {
            self.fill()?;
        }
        let mut rest = &self.output[self.read_bytes..];
        let bytes = rest.read(room)?;
        self.read_bytes += bytes;
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use flatpath::memory::SharePart;
    use flatpath_http::header_values::ContentCoding;

    use super::*;
    use crate::compression::encoder::{CODINGS, Effort};

    fn memory() -> ShareHold {
        SharePart::default().hold(0).expect("without a bound")
    }

    /// Zeros without end, which are counted.
    struct Zeros(Arc<AtomicUsize>);

    impl Read for Zeros {
        fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
            self.0.fetch_add(room.len(), Ordering::Relaxed);
            room.fill(0);
            Ok(room.len())
        }
    }

    fn compressed(coding: ContentCoding, source: impl Read + Send + 'static) -> Compressed {
        let encoder = Encoder::new(coding, Effort::Balanced, None).expect("there is memory");
        let place = Streams::new(1).enter(memory()).expect("the first");
        Compressed::new(Reader::new(Box::new(source), None), encoder, place)
    }

    #[test]
    fn a_read_ends_however_well_its_content_can_be_compressed() {
        for coding in CODINGS {
            let bytes = Arc::new(AtomicUsize::new(0));
            let mut compressed = compressed(*coding, Zeros(Arc::clone(&bytes)));
            for _ in 0..50 {
                let before = bytes.load(Ordering::Relaxed);
                let read = compressed.read(&mut [0; 4096]).expect("it never fails");
                let taken = bytes.load(Ordering::Relaxed) - before;
                let most = match coding {
                    ContentCoding::Zstd => 256 * 1024,
                    _ => 32 * 1024,
                };
                assert!(read > 0 && taken <= most, "{coding:?}: {taken}");
            }
        }
    }

    #[test]
    fn a_place_is_taken_until_it_is_given_back() {
        let streams = Streams::new(2);
        let enter = || streams.enter(memory());
        let (first, second) = (enter(), enter());
        assert!(first.is_some() && second.is_some() && enter().is_none());
        drop(first);
        assert!(enter().is_some());
    }
}
