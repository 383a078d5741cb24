//! The record of an upload: a small text file.
//!
//! It is replaced as a whole (`store`), so a reader sees one state or the next. Lines are `KEY
//! VALUE`, values that may hold any byte are percent-encoded, and the last line says that it is
//! complete: what a power failure cut off is no record.

use std::net::IpAddr;

use http::header::{HeaderMap, HeaderName, HeaderValue};
use percent_encoding::{NON_ALPHANUMERIC, percent_decode, percent_encode};

const FIRST: &str = "flatpath-upload 1";
const LAST: &str = "end";

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Record {
    /// Bytes of the complete file; `None` until the client knows.
    pub(super) length: Option<u64>,
    /// Where the file goes: a directory beneath the root, and a name in it.
    pub(super) directory: Vec<u8>,
    pub(super) name: Vec<u8>,
    /// `Upload-Metadata` as it was sent, for HEAD.
    pub(super) metadata: Vec<u8>,
    /// The address that began it; `None` for a client without one.
    pub(super) from: Option<IpAddr>,
    /// Conditions on the file that is replaced.
    pub(super) conditions: HeaderMap,
    /// Raised by each PATCH: T3.
    pub(super) epoch: u64,
    /// The offset from which bytes still wait for their checksum.
    pub(super) verified: Option<u64>,
    /// All bytes are there: without its hidden file the upload has been published.
    pub(super) is_publishing: bool,
}

impl Record {
    pub(super) fn to_text(&self) -> String {
        let encoded = |bytes: &[u8]| percent_encode(bytes, NON_ALPHANUMERIC).to_string();
        let mut text = format!("{FIRST}\n");
        let mut line = |key: &str, value: &str| text += &format!("{key} {value}\n");
        if let Some(length) = self.length {
            line("length", &length.to_string());
        }
        line("directory", &encoded(&self.directory));
        line("name", &encoded(&self.name));
        line("metadata", &encoded(&self.metadata));
        if let Some(from) = self.from {
            line("from", &from.to_string());
        }
        for (name, value) in &self.conditions {
            let value = encoded(value.as_bytes());
            line("condition", &format!("{name} {value}"));
        }
        line("epoch", &self.epoch.to_string());
        if let Some(verified) = self.verified {
            line("verified", &verified.to_string());
        }
        if self.is_publishing {
            line("publishing", "");
        }
        text + LAST + "\n"
    }

    pub(super) fn parse(text: &str) -> Option<Self> {
        let body = text.strip_prefix(FIRST)?.strip_prefix('\n')?;
        let body = body.strip_suffix('\n')?.strip_suffix(LAST)?;
        let mut record = Self {
            length: None,
            directory: Vec::new(),
            name: Vec::new(),
            metadata: Vec::new(),
            from: None,
            conditions: HeaderMap::new(),
            epoch: 0,
            verified: None,
            is_publishing: false,
        };
        let decoded = |value: &str| percent_decode(value.as_bytes()).collect::<Vec<u8>>();
        for line in body.lines() {
            let (key, value) = line.split_once(' ')?;
            match key {
                "length" => record.length = Some(value.parse().ok()?),
                "directory" => record.directory = decoded(value),
                "name" => record.name = decoded(value),
                "metadata" => record.metadata = decoded(value),
                "from" => record.from = Some(value.parse().ok()?),
                "condition" => {
                    let (name, value) = value.split_once(' ')?;
                    let name = HeaderName::from_bytes(name.as_bytes()).ok()?;
                    let value = HeaderValue::from_bytes(&decoded(value)).ok()?;
                    record.conditions.append(name, value);
                }
                "epoch" => record.epoch = value.parse().ok()?,
                "verified" => record.verified = Some(value.parse().ok()?),
                "publishing" => record.is_publishing = true,
                _ => return None,
            }
        }
        (!record.name.is_empty()).then_some(record)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::header;

    fn record() -> Record {
        let mut conditions = HeaderMap::new();
        let all = "\"a b\", W/\"c\"";
        conditions.append(header::IF_MATCH, HeaderValue::from_static(all));
        conditions.append(header::IF_MATCH, HeaderValue::from_static("*"));
        Record {
            length: Some(7),
            directory: b"a b/\xff\n/c".to_vec(),
            name: b"end\n".to_vec(),
            metadata: b"filename YQ==".to_vec(),
            from: "2001:db8::".parse().ok(),
            conditions,
            epoch: 12,
            verified: Some(3),
            is_publishing: true,
        }
    }

    #[test]
    fn a_record_reads_as_it_was_written() {
        let full = record();
        let bare = Record {
            length: None,
            directory: Vec::new(),
            metadata: Vec::new(),
            from: None,
            conditions: HeaderMap::new(),
            verified: None,
            is_publishing: false,
            ..record()
        };
        for record in [full, bare] {
            assert_eq!(Record::parse(&record.to_text()), Some(record));
        }
    }

    #[test]
    fn a_record_that_was_cut_is_none() {
        let text = record().to_text();
        for length in 0..text.len() {
            assert_eq!(Record::parse(&text[..length]), None, "{length} bytes");
        }
    }
}
