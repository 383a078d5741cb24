//! Which conditions hold, of which file.

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
    let tag = |identity: &Identity, now| Validators::of(identity, now, EntityTags::Portable).tag;
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
