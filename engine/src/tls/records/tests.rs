//! Records of two ends that know each other's secrets.

use rustls::crypto::cipher::{AeadKey, Iv};
use rustls::crypto::ring::cipher_suite::{
    TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384, TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
    TLS13_AES_256_GCM_SHA384, TLS13_CHACHA20_POLY1305_SHA256,
};

use super::*;
use rustls::CipherSuiteCommon;

const SUITES: [SupportedCipherSuite; 4] = [
    TLS13_AES_256_GCM_SHA384,
    TLS13_CHACHA20_POLY1305_SHA256,
    TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
    TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
];

fn secrets(number: u8) -> ConnectionTrafficSecrets {
    ConnectionTrafficSecrets::Aes256Gcm {
        key: AeadKey::from([number; 32]),
        iv: Iv::from([number; 12]),
    }
}

/// Secrets by their numbers: one side sends with those that the other receives with.
struct Numbered {
    sent: u8,
    received: u8,
}

impl Schedule for Numbered {
    fn next(&mut self, of: Direction) -> Option<ConnectionTrafficSecrets> {
        let number = match of {
            Direction::Sent => &mut self.sent,
            Direction::Received => &mut self.received,
        };
        *number += 1;
        Some(secrets(*number))
    }
}

/// Two ends of a connection.
fn pair(suite: SupportedCipherSuite) -> [Records; 2] {
    [(0, 100), (100, 0)].map(|(sent, received)| {
        let schedule = Box::new(Numbered { sent, received });
        let (sends, receives) = ((secrets(sent), 0), (secrets(received), 0));
        Records::new(suite, schedule, sends, receives).expect("a cipher that is offered")
    })
}

/// Room for one record.
fn room() -> Vec<u8> {
    vec![0xaa; PLAINTEXT_BYTES_MAX + OVERHEAD_BYTES_MAX]
}

/// Seals content as one stream, in records that are as long as can be.
fn seal(records: &mut Records, content: &[&[u8]]) -> Result<Vec<u8>, Alert> {
    let (mut all, mut room, content) = (Vec::new(), room(), content.concat());
    let mut rest = &content[..];
    while !rest.is_empty() {
        let ready = records.make_ready(&mut room)?;
        all.extend_from_slice(&room[..ready]);
        let place = records.content_place(room.len());
        let (first, others) = rest.split_at(rest.len().min(place.len()));
        room[place][..first.len()].copy_from_slice(first);
        let sealed = records.seal(&mut room, first.len())?;
        all.extend_from_slice(&room[..sealed]);
        rest = others;
    }
    Ok(all)
}

fn open(records: &mut Records, mut sealed: Vec<u8>) -> Result<Vec<u8>, Alert> {
    let (whole, _) = records.whole(&sealed)?;
    assert_eq!(whole, sealed.len(), "whole records");
    let content = records.open(&mut sealed)?;
    Ok(sealed[content].to_vec())
}

fn message(records: &mut Records, kind: ContentType, content: &[u8]) -> Vec<u8> {
    let mut room = room();
    let sealed = records.seal_words(kind, content, &mut room);
    room.truncate(sealed.expect("sealed"));
    room
}

#[test]
fn model_what_is_opened_is_what_was_sealed() {
    let mut dice = fastrand::Rng::with_seed(1);
    for suite in SUITES {
        let [mut ours, mut theirs] = pair(suite);
        for _ in 0..60 {
            let parts: Vec<Vec<u8>> = (0..dice.usize(..5))
                .map(|_| vec![dice.u8(..); dice.usize(..20_000)])
                .collect();
            let parts: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
            let sealed = seal(&mut ours, &parts).expect("sealed");
            assert_eq!(open(&mut theirs, sealed), Ok(parts.concat()));
            if dice.u8(..4) == 0 {
                ours.freeze();
                theirs.freeze();
                assert!(ours.is_frozen() && theirs.is_frozen());
            }
        }
    }
}

#[test]
fn records_are_as_few_as_can_be_and_no_longer_than_is_said() {
    for suite in SUITES {
        let [mut ours, theirs] = pair(suite);
        let content = vec![7; PLAINTEXT_BYTES_MAX * 2 + 1];
        let sealed = seal(&mut ours, &[&content]).expect("sealed");
        assert_eq!(ours.sealing.sequence, 3);
        assert!(sealed.len() <= content.len() + 3 * OVERHEAD_BYTES_MAX);
        assert_eq!(
            theirs.whole(&sealed).map(|(whole, _)| whole),
            Ok(sealed.len())
        );
    }
}

#[test]
fn model_whole_records_are_found_in_any_part_of_a_stream() {
    let mut dice = fastrand::Rng::with_seed(2);
    let [mut ours, theirs] = pair(SUITES[0]);
    let (mut stream, mut ends) = (Vec::new(), vec![0]);
    for _ in 0..8 {
        let content = vec![1; 1 + dice.usize(..3000)];
        stream.extend(seal(&mut ours, &[&content]).expect("sealed"));
        ends.push(stream.len());
    }
    for cut in 0..=stream.len() {
        let next = ends.iter().position(|end| *end > cut);
        let begin = ends[next.map_or(ends.len() - 1, |next| next - 1)];
        let needed = match next {
            Some(next) if cut - begin >= HEADER_BYTES => ends[next] - begin,
            _ => HEADER_BYTES,
        };
        assert_eq!(
            theirs.whole(&stream[..cut]),
            Ok((begin, needed)),
            "cut at {cut}"
        );
    }
}

#[test]
fn what_is_no_record_or_too_long_is_refused() {
    let [thirteen, _] = pair(SUITES[0]);
    let [twelve, _] = pair(SUITES[2]);
    for records in [&thirteen, &twelve] {
        for header in [[24, 3, 3, 0, 9], [19, 3, 3, 0, 9], [23, 2, 3, 0, 9]] {
            let refused = records.whole(&header);
            assert_eq!(refused, Err(Alert(AlertDescription::UnexpectedMessage)));
        }
    }
    let too_long = Err(Alert(AlertDescription::RecordOverflow));
    assert!(thirteen.whole(&[23, 3, 3, 0x41, 0]).is_ok());
    assert_eq!(thirteen.whole(&[23, 3, 3, 0x41, 1]), too_long);
    assert!(twelve.whole(&[23, 3, 3, 0x48, 0]).is_ok());
    assert_eq!(twelve.whole(&[23, 3, 3, 0x48, 1]), too_long);
}

#[test]
fn after_a_record_that_was_changed_nothing_is_opened() {
    for suite in SUITES {
        let [mut ours, mut theirs] = pair(suite);
        let good = seal(&mut ours, &[b"one"]).expect("sealed");
        let mut bad = seal(&mut ours, &[b"two"]).expect("sealed");
        bad[7] ^= 1;
        assert_eq!(open(&mut theirs, good), Ok(b"one".to_vec()));
        assert_eq!(
            open(&mut theirs, bad),
            Err(Alert(AlertDescription::BadRecordMac))
        );
        let next = seal(&mut ours, &[b"three"]).expect("sealed");
        assert!(open(&mut theirs, next).is_err());
    }
}

#[test]
fn a_record_that_comes_again_is_refused() {
    let [mut ours, mut theirs] = pair(SUITES[0]);
    let record = seal(&mut ours, &[b"one"]).expect("sealed");
    assert!(open(&mut theirs, record.clone()).is_ok());
    assert!(open(&mut theirs, record).is_err());
}

#[test]
fn keys_are_changed_before_they_are_used_up() {
    for suite in SUITES {
        let [mut ours, mut theirs] = pair(suite);
        let limit = ours.suite_limit();
        let before = limit - LIMIT_MARGIN - 1;
        ours.sealing.sequence = before;
        theirs.opening.sequence = before;
        for word in [b"one", b"two"] {
            match seal(&mut ours, &[word]) {
                Ok(sealed) => assert_eq!(open(&mut theirs, sealed), Ok(word.to_vec())),
                Err(alert) => {
                    assert!(!ours.is_13() && word == b"two");
                    assert_eq!(alert, Alert::CLOSE_NOTIFY);
                    // There is room for the closing alert.
                    assert!(ours.closing_alert(alert, &mut room()).is_some());
                }
            }
        }
        if ours.is_13() {
            assert_eq!((ours.sealing.sequence, theirs.opening.sequence), (1, 1));
        }
        ours.sealing.sequence = limit;
        assert_eq!(
            ours.closing_alert(Alert::CLOSE_NOTIFY, &mut room()),
            None,
            "no nonce is left"
        );
    }
}

#[test]
fn an_update_that_is_asked_for_is_answered_once_and_before_the_next_content() {
    let [mut ours, mut theirs] = pair(SUITES[0]);
    for _ in 0..3 {
        let asked = message(
            &mut theirs,
            ContentType::Handshake,
            &[KEY_UPDATE, 0, 0, 1, 1],
        );
        theirs.sealing = Keys::new(&theirs.schedule.next(Direction::Sent).expect("more"), 0)
            .expect("a cipher that is offered");
        assert_eq!(open(&mut ours, asked), Ok(Vec::new()));
    }
    assert!(ours.owes_answer());
    let mut answer = room();
    let answered = ours.answer(&mut answer).expect("sealed");
    answer.truncate(answered);
    assert!(!ours.owes_answer());
    assert_eq!(open(&mut theirs, answer), Ok(Vec::new()));
    assert!(!theirs.owes_answer(), "the answer asks for none");
    let word = seal(&mut ours, &[b"word"]).expect("sealed");
    assert_eq!(open(&mut theirs, word), Ok(b"word".to_vec()));
    let word = seal(&mut theirs, &[b"word"]).expect("sealed");
    assert_eq!(open(&mut ours, word), Ok(b"word".to_vec()));
}

#[test]
fn messages_that_have_no_place_are_refused() {
    let unexpected = AlertDescription::UnexpectedMessage;
    let handshake = ContentType::Handshake;
    for (suite, kind, content, alert) in [
        (
            SUITES[0],
            handshake,
            &[KEY_UPDATE, 0, 0, 1, 2][..],
            unexpected,
        ),
        (SUITES[0], handshake, &[KEY_UPDATE, 0, 0], unexpected),
        (SUITES[0], handshake, &[1, 0, 0, 0], unexpected),
        (SUITES[0], handshake, &[4, 0, 0, 0], unexpected),
        (SUITES[0], ContentType::ChangeCipherSpec, &[1], unexpected),
        (
            SUITES[0],
            ContentType::Alert,
            &[2, 40],
            AlertDescription::CloseNotify,
        ),
        (
            SUITES[0],
            ContentType::Alert,
            &[1, 41],
            AlertDescription::CloseNotify,
        ),
        (
            SUITES[0],
            ContentType::Alert,
            &[1],
            AlertDescription::CloseNotify,
        ),
        (
            SUITES[2],
            handshake,
            &[1, 0, 0, 0],
            AlertDescription::NoRenegotiation,
        ),
        (
            SUITES[2],
            handshake,
            &[KEY_UPDATE, 0, 0, 1, 0],
            AlertDescription::NoRenegotiation,
        ),
        (SUITES[2], ContentType::ChangeCipherSpec, &[1], unexpected),
        (
            SUITES[2],
            ContentType::Alert,
            &[2, 40],
            AlertDescription::CloseNotify,
        ),
    ] {
        let [mut ours, mut theirs] = pair(suite);
        let sealed = message(&mut theirs, kind, content);
        assert_eq!(
            open(&mut ours, sealed),
            Err(Alert(alert)),
            "{kind:?} {content:?}"
        );
    }
}

#[test]
fn warnings_that_say_nothing_are_passed_over() {
    for (suite, code) in [(SUITES[0], 90), (SUITES[2], 90), (SUITES[2], 100)] {
        let [mut ours, mut theirs] = pair(suite);
        let warning = message(&mut theirs, ContentType::Alert, &[WARNING, code]);
        assert_eq!(open(&mut ours, warning), Ok(Vec::new()));
        let word = seal(&mut theirs, &[b"word"]).expect("sealed");
        assert_eq!(open(&mut ours, word), Ok(b"word".to_vec()));
    }
}

#[test]
fn so_many_records_may_be_empty_in_a_row() {
    for suite in SUITES {
        for (count, holds) in [
            (u32::from(EMPTY_MAX), true),
            (u32::from(EMPTY_MAX) + 1, false),
        ] {
            let [mut ours, mut theirs] = pair(suite);
            let mut sealed = Vec::new();
            for _ in 0..2 {
                for _ in 0..count {
                    sealed.extend(message(&mut theirs, ContentType::ApplicationData, &[]));
                }
                sealed.extend(message(&mut theirs, ContentType::ApplicationData, b"."));
            }
            assert_eq!(open(&mut ours, sealed).is_ok(), holds, "{count}");
        }
    }
}

#[test]
fn behind_the_end_nothing_is_opened() {
    for suite in SUITES {
        let [mut ours, mut theirs] = pair(suite);
        let mut sealed = seal(&mut theirs, &[b"word"]).expect("sealed");
        let (mut words, alert) = (room(), Alert::CLOSE_NOTIFY);
        let bytes = theirs.closing_alert(alert, &mut words).expect("sealed");
        sealed.extend_from_slice(&words[..bytes]);
        sealed.extend(seal(&mut theirs, &[b"more"]).expect("sealed"));
        assert!(!ours.peer_has_closed());
        assert_eq!(open(&mut ours, sealed), Ok(b"word".to_vec()));
        assert!(ours.peer_has_closed());
    }
}

#[test]
fn secrets_of_another_cipher_are_not_taken_and_none_are_shown() {
    let key = AeadKey::from([1; 32]);
    let iv = Iv::from([1; 12]);
    let refused = Keys::<Sealer>::new(&ConnectionTrafficSecrets::Aes128Gcm { key, iv }, 0);
    assert!(refused.is_err());
    let [ours, _] = pair(SUITES[0]);
    let shown = format!("{ours:?}");
    assert!(
        shown.contains("AES_256_GCM") && !shown.contains("key"),
        "{shown}"
    );
}

/// Suites of another provider, with ring's ciphers.
#[test]
fn another_providers_ciphers_seal_the_same_records() {
    // Not the constants above: each crate has a copy of what they refer to.
    for suite in crate::tls::provider().cipher_suites {
        let foreign = match suite {
            SupportedCipherSuite::Tls13(one) => {
                SupportedCipherSuite::Tls13(Box::leak(Box::new(rustls::Tls13CipherSuite {
                    common: CipherSuiteCommon { ..one.common },
                    ..*one
                })))
            }
            SupportedCipherSuite::Tls12(one) => {
                SupportedCipherSuite::Tls12(Box::leak(Box::new(rustls::Tls12CipherSuite {
                    common: CipherSuiteCommon { ..one.common },
                    ..*one
                })))
            }
        };
        let ([mut ours, _], [mut others, mut theirs]) = (pair(suite), pair(foreign));
        for content in [&b"word"[..], &[7; PLAINTEXT_BYTES_MAX + 1]] {
            let sealed = seal(&mut ours, &[content]).expect("sealed");
            let same = seal(&mut others, &[content]).expect("sealed");
            assert!(sealed == same, "{suite:?}");
            assert!(open(&mut theirs, sealed).is_ok_and(|opened| opened == content));
        }
        let cipher = |records: &Records| {
            let cipher = records.sealing.cipher.as_deref();
            matches!(cipher, Some(Sealer::InPlace { .. }))
        };
        assert!(cipher(&ours) && !cipher(&others), "{suite:?}");
    }
}
