//! Conditional requests: entity tags, modification dates and what they decide (RFC 9110, 13).
//!
//! A validator is given out only if the next change is certain to bring another one:
//! - The entity tag is made of device, inode, size, modification time and change time, both in
//!   nanoseconds. No process can set the last, so a file that was replaced by another of the
//!   same size and given the same date has another tag (and, which is the price, so has one whose
//!   mode or link count changed). The tag is always strong, and held back for the moment
//!   in which a second write would leave all of these as they are ([`Identity::last_change`]).
//! - With [`EntityTags::Portable`] it is made of size and modification time alone, and held back
//!   during the second of that. A file without a known one has the other tag.
//! - `Last-Modified` has whole seconds, so it is held back until its second is over, which makes it
//!   strong in the sense of 8.8.2.2.
//! - Of a file that is dated in the future it is the last second that is over: "the origin server
//!   MUST replace that value with the message origination date" (8.8.2.1), which may be of the
//!   moment before. It moves, so no cache of this crate keeps it; dates of conditions are compared
//!   with the change time, by which the content was as it is.
//! - A modification time at the epoch (0, or 1 as Nix has it) says that there is none: archives and
//!   images have it that are to be the same each time they are made. It is never sent.
//!
//! Cost: linear in the length of the headers. Nothing is allocated to compare. Why not the crate
//! `headers`: `docs/headers.md`.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use flatpath_http::header_values::{Comparison, ContentCoding, lists_tag};
use http::header::HeaderValue;
use http::header::{IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, IF_UNMODIFIED_SINCE};

use crate::headers::Headers;
use crate::identity::Identity;
use crate::limits::RACY_NS;
use crate::responses::visible;

/// The first second that an HTTP date cannot say: the year 10000.
const DATE_SECONDS_END: u64 = 253_402_300_800;

/// Up to here a modification time stands for none.
const EPOCH_SECONDS_MAX: u64 = 1;

/// The source of the entity tags of files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum EntityTags {
    /// What no change leaves as it is, as far as the kernel knows of it: device, inode, size, and
    /// both times of change in nanoseconds. A copy of the file has another tag.
    #[default]
    Exact,
    /// Size and modification time in whole seconds, as nginx has them, so that servers with copies
    /// of a directory agree: what one has sent, another one continues or confirms. Not given out
    /// during the second of the modification. A file whose time is unknown (at the epoch, or
    /// before) has the exact tag.
    ///
    /// It does not tell apart contents of the same size whose files have the same time: versions
    /// that were given one time on purpose (`touch -r`, `cp -p`, reproducible builds and archives
    /// with one date for all). Replace such files with others of another size or time.
    Portable,
}

/// A value that differs between two states of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Validators {
    /// The entity tag, which is strong, once it can be trusted.
    pub(crate) tag: Option<HeaderValue>,
    pub(crate) modified: Modified,
}

/// When a file's content last changed, in whole seconds since the epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Modified {
    /// In a second that is over.
    At(u64),
    /// In the present second, by a clock that is a tick behind: not sent, as a second change may
    /// have the same.
    ThisSecond(u64),
    /// In the future, as somebody has set it. It was not changed later than in the second
    /// `changed`; the last second that was over is `past`.
    Ahead { changed: u64, past: u64 },
    /// At no time that says anything.
    Unknown,
}

/// The outcome of the conditions of a GET or HEAD.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Proceed,
    /// 304: the client has it already.
    NotModified,
    PreconditionFailed,
}

impl Validators {
    /// Of a file that was in this state at `now` or later.
    pub(crate) fn of(identity: &Identity, now: SystemTime, tags: EntityTags) -> Self {
        let this_second = seconds_since_epoch(now).unwrap_or_default();
        // A file written now may get the time of the last tick.
        let last_tick = now.checked_sub(Duration::from_nanos(RACY_NS));
        let over = last_tick.and_then(seconds_since_epoch).unwrap_or_default();
        let modified = match u64::try_from(identity.modified.seconds) {
            Err(_) | Ok(..=EPOCH_SECONDS_MAX) => Modified::Unknown,
            Ok(seconds) if seconds < over => Modified::At(seconds),
            Ok(seconds) if seconds <= this_second => Modified::ThisSecond(seconds),
            Ok(_) => Modified::Ahead {
                changed: u64::try_from(identity.changed.seconds).unwrap_or_default(),
                past: over.saturating_sub(1),
            },
        };
        let is_certain = identity.last_change(now).is_certain();
        let tag = || match (tags, modified) {
            (EntityTags::Portable, Modified::ThisSecond(_)) => None,
            (EntityTags::Portable, Modified::At(_) | Modified::Ahead { .. }) => {
                Some(portable_tag(identity.modified.seconds, identity.size))
            }
            (EntityTags::Exact, _) | (_, Modified::Unknown) => Some(exact_tag(identity)),
        };
        Self {
            tag: is_certain.then(tag).flatten(),
            modified,
        }
    }

    /// Whether they are the same for as long as the file is.
    pub(crate) fn are_final(&self) -> bool {
        let is_final = matches!(self.modified, Modified::At(_) | Modified::Unknown);
        self.tag.is_some() && is_final
    }

    /// Of the same file compressed with this coding: a tag of its own, and a weak one, as the bytes
    /// are those of the encoder's version, too.
    pub(crate) fn of_coding(self, coding: ContentCoding) -> Self {
        let token = coding.token().unwrap_or_default();
        let tag = self.tag.as_ref().map(|tag| {
            let text = tag.to_str().unwrap_or_default().trim_matches('"');
            visible(format!("W/\"{text}-{token}\""))
        });
        Self { tag, ..self }
    }

    /// The conditions in their order of precedence (RFC 9110, 13.2.2), for GET and HEAD.
    pub(crate) fn evaluate(&self, headers: &impl Headers) -> Verdict {
        // "1. When recipient is the origin server and If-Match is present, evaluate":
        if headers.holds(&IF_MATCH) {
            if !self.matches(headers.all(&IF_MATCH), Comparison::Strong) {
                return Verdict::PreconditionFailed;
            }
        // "2. When recipient is the origin server, If-Match is not present, and
        // If-Unmodified-Since is present, evaluate":
        } else if self.changed_since(headers) {
            return Verdict::PreconditionFailed;
        }
        // "3. When If-None-Match is present, evaluate"; "4. [...] is not present":
        let is_known = if headers.holds(&IF_NONE_MATCH) {
            self.matches(headers.all(&IF_NONE_MATCH), Comparison::Weak)
        } else {
            let since = headers.single(&IF_MODIFIED_SINCE).and_then(parse_date);
            match (self.modified, since) {
                (Modified::At(modified), Some(since)) => modified <= since,
                // What the client has got then was in a second that was over.
                (Modified::Ahead { changed, past }, Some(since)) => {
                    changed <= since && since <= past
                }
                _ => false,
            }
        };
        if is_known {
            Verdict::NotModified
        } else {
            Verdict::Proceed
        }
    }

    /// Step 5: whether `Range` counts. True to 13.1.5 an exact match is asked for, of dates too.
    pub(crate) fn honours_range(&self, headers: &impl Headers) -> bool {
        if !headers.holds(&IF_RANGE) {
            return true;
        }
        let Some(value) = headers.single(&IF_RANGE) else {
            return false;
        };
        if value.starts_with(b"\"") || value.starts_with(b"W/") {
            return self.matches([value].into_iter(), Comparison::Strong);
        }
        matches!((self.modified, parse_date(value)), (Modified::At(modified), Some(date))
            if modified == date)
    }

    /// `If-Unmodified-Since`; a header that is no date, or for which there is none, is ignored.
    fn changed_since(&self, headers: &impl Headers) -> bool {
        let Some(since) = headers.single(&IF_UNMODIFIED_SINCE).and_then(parse_date) else {
            return false;
        };
        match self.modified {
            Modified::At(modified) | Modified::ThisSecond(modified) => modified > since,
            Modified::Ahead { changed, .. } => changed > since,
            Modified::Unknown => false,
        }
    }

    /// Whether a list has our tag, or stands for any.
    fn matches<'a>(&self, values: impl Iterator<Item = &'a [u8]>, comparison: Comparison) -> bool {
        lists_tag(
            values,
            self.tag.as_ref().map(HeaderValue::as_bytes),
            comparison,
        )
    }
}

/// The tag that a copy has, too: the same text as nginx gives.
fn portable_tag(seconds: i64, size: u64) -> HeaderValue {
    visible(format!("\"{seconds:x}-{size:x}\""))
}

/// The tag of a file in one state. Not a secret, but device and inode are folded into one number
/// with a time that no response contains: inode numbers are half a file handle.
fn exact_tag(identity: &Identity) -> HeaderValue {
    let Identity {
        modified, changed, ..
    } = identity;
    let time = modified.seconds.wrapping_mul(1_000_000_000);
    let time = time.wrapping_add(i64::from(modified.nanoseconds));
    let changed = mix(changed.seconds.cast_unsigned()) ^ u64::from(changed.nanoseconds);
    let which = mix(mix(mix(identity.device) ^ identity.inode) ^ changed);
    visible(format!("\"{time:x}-{:x}-{which:x}\"", identity.size))
}

impl Modified {
    /// The value of `Last-Modified`, where there is one.
    pub(crate) fn to_header(self) -> Option<HeaderValue> {
        match self {
            Self::At(seconds) | Self::Ahead { past: seconds, .. } => {
                let seconds = seconds.min(DATE_SECONDS_END - 1);
                Some(date_header(UNIX_EPOCH + Duration::from_secs(seconds)))
            }
            Self::ThisSecond(_) | Self::Unknown => None,
        }
    }
}

/// An HTTP date; `time` is between 1970 and the year 10000.
pub(crate) fn date_header(time: SystemTime) -> HeaderValue {
    visible(httpdate::fmt_http_date(time))
}

fn parse_date(value: &[u8]) -> Option<u64> {
    let date = httpdate::parse_http_date(std::str::from_utf8(value).ok()?).ok()?;
    seconds_since_epoch(date)
}

fn seconds_since_epoch(time: SystemTime) -> Option<u64> {
    time.duration_since(UNIX_EPOCH)
        .ok()
        .map(|since| since.as_secs())
}

/// The finaliser of SplitMix64: each bit of the input moves half of the output's.
fn mix(bits: u64) -> u64 {
    let bits = bits.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

#[cfg(test)]
mod tests;
