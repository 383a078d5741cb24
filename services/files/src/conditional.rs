//! Conditional requests: entity tags, modification dates and what they decide (RFC 9110, 13).
//!
//! A validator is given out only if the next change is certain to bring another one:
//! - The entity tag is made of device, inode, size, modification time and change time, both in
//!   nanoseconds. No process can set the last, so a file that was replaced by another of the
//!   same size and given the same date has another tag (and, which is the price, so has one whose
//!   mode or link count changed). The tag is always strong, and held back for the two clock ticks
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
    /// during the second of the modification. A file whose time is unknown (at the epoch, or before)
    /// has the exact tag.
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
mod tests {
    use super::*;
    use crate::identity::Stamp;
    use http::HeaderMap;
    use http::header::HeaderName;

    /// Sunday, 06 Nov 1994 08:49:37 GMT, the date of RFC 9110's examples.
    const SECONDS: u64 = 784_111_777;
    const DATE: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
    const BEFORE: &str = "Sun, 06 Nov 1994 08:49:36 GMT";
    const AFTER: &str = "Sun, 06 Nov 1994 08:49:38 GMT";

    fn identity() -> Identity {
        let stamp = Stamp {
            seconds: 784_111_777,
            nanoseconds: 5,
        };
        Identity {
            device: 7,
            inode: 8,
            size: 9,
            modified: stamp,
            changed: stamp,
        }
    }

    fn after(seconds: u64, ns: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(seconds) + Duration::from_nanos(ns)
    }

    fn validators() -> Validators {
        of(after(SECONDS + 60, 0))
    }

    fn of(now: SystemTime) -> Validators {
        Validators::of(&identity(), now, EntityTags::Exact)
    }

    fn tag() -> String {
        String::from_utf8(validators().tag.expect("stable").as_bytes().to_vec()).expect("ASCII")
    }

    fn headers(pairs: &[(HeaderName, &str)]) -> HeaderMap {
        let pairs = pairs.iter();
        pairs
            .map(|(name, value)| (name.clone(), value.parse().expect("a value")))
            .collect()
    }

    fn verdict(pairs: &[(HeaderName, &str)]) -> Verdict {
        let mut map = HeaderMap::new();
        for (name, value) in pairs {
            map.append(name.clone(), value.parse().expect("a value"));
        }
        validators().evaluate(&map)
    }

    #[test]
    fn tags_are_quoted_strong_and_different_for_every_change() {
        let own = tag();
        assert!(own.starts_with('"') && own.ends_with('"'));
        let changes: [fn(&mut Identity); 7] = [
            |identity| identity.device += 1,
            |identity| identity.inode += 1,
            |identity| identity.size += 1,
            |identity| identity.modified.seconds -= 1,
            |identity| identity.modified.nanoseconds += 1,
            |identity| identity.changed.seconds += 1,
            |identity| identity.changed.nanoseconds += 1,
        ];
        for change in changes {
            let mut other = identity();
            change(&mut other);
            assert_ne!(exact_tag(&other), exact_tag(&identity()));
        }
    }

    #[test]
    fn every_state_has_a_tag() {
        let stamp = Stamp {
            seconds: i64::MAX,
            nanoseconds: 999_999_999,
        };
        for seconds in [i64::MIN, -1, i64::MAX] {
            let modified = Stamp { seconds, ..stamp };
            let (device, inode, size) = (u64::MAX, u64::MAX, u64::MAX);
            let extreme = Identity {
                device,
                inode,
                size,
                modified,
                changed: stamp,
            };
            assert!(exact_tag(&extreme).as_bytes().ends_with(b"\""));
        }
    }

    #[test]
    fn a_file_that_may_still_change_unseen_has_no_tag() {
        assert_eq!(of(after(SECONDS, 6)).tag, None);
        assert_ne!(of(after(SECONDS, 20_000_005)).tag, None);
    }

    #[test]
    fn a_portable_tag_is_that_of_every_copy_and_of_no_other_state() {
        let tag =
            |identity: &Identity, now| Validators::of(identity, now, EntityTags::Portable).tag;
        let later = after(SECONDS + 60, 0);
        let own = tag(&identity(), later);
        // As nginx: seconds and size in hexadecimal.
        assert_eq!(own, Some(HeaderValue::from_static("\"2ebc98a1-9\"")));
        let copy = |change: fn(&mut Identity)| {
            let mut other = identity();
            change(&mut other);
            tag(&other, later)
        };
        let same: [fn(&mut Identity); 4] = [
            |identity| identity.device += 1,
            |identity| identity.inode += 1,
            |identity| identity.changed.seconds += 1,
            |identity| identity.modified.nanoseconds = 0,
        ];
        assert!(same.into_iter().all(|change| copy(change) == own));
        let other: [fn(&mut Identity); 2] = [
            |identity| identity.size += 1,
            |identity| identity.modified.seconds -= 1,
        ];
        assert!(other.into_iter().all(|change| copy(change) != own));
        // A time without meaning makes no tag of its own.
        let mut unknown = identity();
        unknown.modified.seconds = 0;
        assert_eq!(tag(&unknown, later), Some(exact_tag(&unknown)));
        // In the future it is a time like any other.
        let mut ahead = identity();
        ahead.modified.seconds += 1_000_000;
        let ahead = tag(&ahead, later).expect("it is known");
        assert_eq!(
            ahead.as_bytes(),
            format!("\"{:x}-9\"", SECONDS + 1_000_000).as_bytes()
        );
        // Within its second another change may leave it as it is.
        assert_eq!(tag(&identity(), after(SECONDS, 999_999_999)), None);
        assert_eq!(tag(&identity(), after(SECONDS + 1, RACY_NS)), own);
        // A change of what is no content, right now, holds it back as well.
        let mut touched = identity();
        touched.changed.seconds = i64::try_from(SECONDS).expect("it fits") + 60;
        assert_eq!(tag(&touched, later), None);
    }

    #[test]
    fn a_date_is_told_when_its_second_is_over() {
        let at = |now| of(now).modified;
        assert_eq!(
            at(after(SECONDS, 999_999_999)),
            Modified::ThisSecond(SECONDS)
        );
        assert_eq!(at(after(SECONDS, 999_999_999)).to_header(), None);
        let this = Modified::ThisSecond(SECONDS);
        assert_eq!(
            at(after(SECONDS + 1, RACY_NS - 1)),
            this,
            "by the last tick"
        );
        assert_eq!(at(after(SECONDS + 1, RACY_NS)), Modified::At(SECONDS));
        let date = HeaderValue::from_static(DATE);
        assert_eq!(at(after(SECONDS + 1, RACY_NS)).to_header(), Some(date));
    }

    /// A file whose modification time was set to the future in the second `SECONDS`, a minute ago.
    fn ahead() -> Validators {
        let mut file = identity();
        file.modified.seconds = 16_000_000_000;
        Validators::of(&file, after(SECONDS + 60, RACY_NS), EntityTags::Exact)
    }

    #[test]
    fn a_file_dated_in_the_future_has_its_tag_and_the_present_for_its_date() {
        let found = ahead();
        assert!(found.tag.is_some());
        let past = SECONDS + 59;
        assert_eq!(
            found.modified,
            Modified::Ahead {
                changed: SECONDS,
                past
            }
        );
        let date = date_header(UNIX_EPOCH + Duration::from_secs(past));
        assert_eq!(found.modified.to_header(), Some(date));
        assert!(!found.are_final(), "its date moves");
    }

    #[test]
    fn dates_of_conditions_are_those_of_its_last_change() {
        let now = httpdate::fmt_http_date(after(SECONDS + 59, 0));
        let later = httpdate::fmt_http_date(after(SECONDS + 3_600, 0));
        for (date, is_known) in [(BEFORE, false), (DATE, true), (&now, true), (&later, false)] {
            let since = headers(&[(IF_MODIFIED_SINCE, date)]);
            let verdict = if is_known {
                Verdict::NotModified
            } else {
                Verdict::Proceed
            };
            assert_eq!(ahead().evaluate(&since), verdict, "{date}");
        }
        let unmodified = |date| ahead().evaluate(&headers(&[(IF_UNMODIFIED_SINCE, date)]));
        assert_eq!(unmodified(BEFORE), Verdict::PreconditionFailed);
        assert_eq!(unmodified(DATE), Verdict::Proceed);
        let range = headers(&[(IF_RANGE, &now)]);
        assert!(
            !ahead().honours_range(&range),
            "a date that moves is no validator"
        );
    }

    #[test]
    fn times_without_a_date_do_no_harm() {
        for seconds in [i64::MIN, -1, 0, 1] {
            let mut odd = identity();
            odd.modified.seconds = seconds;
            let validators = Validators::of(&odd, SystemTime::now(), EntityTags::Portable);
            assert_eq!(validators.modified, Modified::Unknown);
            assert!(validators.modified.to_header().is_none() && validators.are_final());
            let map = headers(&[(IF_UNMODIFIED_SINCE, BEFORE)]);
            assert_eq!(validators.evaluate(&map), Verdict::Proceed);
        }
    }

    #[test]
    fn no_condition_means_proceed() {
        assert_eq!(verdict(&[]), Verdict::Proceed);
    }

    #[test]
    fn if_none_match_answers_304_on_any_tag_of_the_list() {
        let own = tag();
        for value in [
            own.clone(),
            format!("W/{own}"),
            format!("\"other\", {own}"),
            format!("\"a,b\",,\t W/\"c\" , {own}, \"d\""),
            "*".into(),
        ] {
            assert_eq!(
                verdict(&[(IF_NONE_MATCH, &value)]),
                Verdict::NotModified,
                "{value}"
            );
        }
        for value in [
            "\"other\"",
            "",
            "\"",
            "W/",
            "nonsense",
            "\"a\" \"b\"",
            "\"*\"",
        ] {
            assert_eq!(
                verdict(&[(IF_NONE_MATCH, value)]),
                Verdict::Proceed,
                "{value}"
            );
        }
        let second_line = [(IF_NONE_MATCH, "\"other\""), (IF_NONE_MATCH, own.as_str())];
        assert_eq!(verdict(&second_line), Verdict::NotModified);
    }

    #[test]
    fn a_tag_inside_another_tags_quotes_does_not_count() {
        let own = tag();
        let bare = own.trim_matches('"');
        for value in [bare.to_string(), format!("\"x{bare}\""), format!("w/{own}")] {
            assert_eq!(
                verdict(&[(IF_NONE_MATCH, &value)]),
                Verdict::Proceed,
                "{value}"
            );
        }
    }

    #[test]
    fn if_match_fails_unless_a_strong_tag_matches() {
        let own = tag();
        let weak = format!("W/{own}");
        let listed = format!("\"x\", {own}");
        for value in [own.as_str(), "*", &listed] {
            assert_eq!(verdict(&[(IF_MATCH, value)]), Verdict::Proceed, "{value}");
        }
        for value in [weak.as_str(), "\"x\"", "", "nonsense"] {
            assert_eq!(
                verdict(&[(IF_MATCH, value)]),
                Verdict::PreconditionFailed,
                "{value}"
            );
        }
    }

    #[test]
    fn if_modified_since_compares_whole_seconds() {
        for (date, outcome) in [
            (BEFORE, Verdict::Proceed),
            (DATE, Verdict::NotModified),
            (AFTER, Verdict::NotModified),
            ("Sunday, 06-Nov-94 08:49:37 GMT", Verdict::NotModified),
            ("Sun Nov  6 08:49:37 1994", Verdict::NotModified),
            ("yesterday", Verdict::Proceed),
            ("", Verdict::Proceed),
        ] {
            assert_eq!(verdict(&[(IF_MODIFIED_SINCE, date)]), outcome, "{date}");
        }
        let twice = [(IF_MODIFIED_SINCE, DATE), (IF_MODIFIED_SINCE, DATE)];
        assert_eq!(verdict(&twice), Verdict::Proceed, "two dates are no date");
    }

    #[test]
    fn a_file_of_this_second_counts_as_modified() {
        let validators = of(after(SECONDS, 900_000_000));
        let since = headers(&[(IF_MODIFIED_SINCE, DATE)]);
        assert_eq!(validators.evaluate(&since), Verdict::Proceed);
        let unmodified = headers(&[(IF_UNMODIFIED_SINCE, BEFORE)]);
        assert_eq!(
            validators.evaluate(&unmodified),
            Verdict::PreconditionFailed
        );
    }

    #[test]
    fn if_unmodified_since_fails_on_a_later_change() {
        assert_eq!(
            verdict(&[(IF_UNMODIFIED_SINCE, BEFORE)]),
            Verdict::PreconditionFailed
        );
        assert_eq!(verdict(&[(IF_UNMODIFIED_SINCE, DATE)]), Verdict::Proceed);
        assert_eq!(verdict(&[(IF_UNMODIFIED_SINCE, "never")]), Verdict::Proceed);
    }

    #[test]
    fn the_precedence_is_that_of_the_rfc() {
        let own = tag();
        let own = own.as_str();
        let other = "\"other\"";
        for (pairs, outcome) in [
            // If-Match decides, and If-Unmodified-Since is not looked at.
            (
                vec![(IF_MATCH, own), (IF_UNMODIFIED_SINCE, BEFORE)],
                Verdict::Proceed,
            ),
            (
                vec![(IF_MATCH, other), (IF_UNMODIFIED_SINCE, DATE)],
                Verdict::PreconditionFailed,
            ),
            // If-None-Match decides, and If-Modified-Since is not looked at.
            (
                vec![(IF_NONE_MATCH, other), (IF_MODIFIED_SINCE, AFTER)],
                Verdict::Proceed,
            ),
            (
                vec![(IF_NONE_MATCH, own), (IF_MODIFIED_SINCE, BEFORE)],
                Verdict::NotModified,
            ),
            // The first two come before the other two.
            (
                vec![(IF_MATCH, other), (IF_NONE_MATCH, own)],
                Verdict::PreconditionFailed,
            ),
            (
                vec![(IF_MATCH, own), (IF_NONE_MATCH, own)],
                Verdict::NotModified,
            ),
            (
                vec![(IF_UNMODIFIED_SINCE, BEFORE), (IF_MODIFIED_SINCE, AFTER)],
                Verdict::PreconditionFailed,
            ),
        ] {
            assert_eq!(verdict(&pairs), outcome, "{pairs:?}");
        }
    }

    #[test]
    fn if_range_wants_the_very_tag_or_the_very_date() {
        let own = tag();
        let weak = format!("W/{own}");
        let two = format!("\"x\" {own}");
        for (value, outcome) in [
            (own.as_str(), true),
            (&weak, false),
            (&two, false),
            ("\"other\"", false),
            (DATE, true),
            (AFTER, false),
            (BEFORE, false),
            ("nonsense", false),
        ] {
            let map = headers(&[(IF_RANGE, value)]);
            assert_eq!(validators().honours_range(&map), outcome, "{value}");
        }
        assert!(validators().honours_range(&HeaderMap::new()));
    }
}
