//! Names in zip archives: what every system takes for one name of one file.
//!
//! A name on Linux is bytes without a slash. In a zip archive names are UTF-8, and programs on
//! other systems take `\` for a slash and `C:` for a drive. So in a name that has one of these, or
//! a control character, or bytes that are no UTF-8, each such byte and each `%` is written as `%`
//! and two digits. A name that looks as if it were written so is, too: no two names become one.

use std::borrow::Cow;
use std::fmt::Write;

/// One name of a path, as an archive has it.
pub(crate) fn safe_name(name: &[u8]) -> Cow<'_, str> {
    match std::str::from_utf8(name) {
        Ok(text) if text.chars().all(is_harmless) && !has_escape(name) => Cow::Borrowed(text),
        _ => Cow::Owned(escaped(name)),
    }
}

/// A path of several names.
pub(crate) fn safe_path(path: &[u8]) -> String {
    let names = path.split(|byte| *byte == b'/').map(safe_name);
    names.collect::<Vec<_>>().join("/")
}

fn is_harmless(character: char) -> bool {
    !character.is_control() && !matches!(character, '\\' | ':')
}

/// Whether there is a `%` with two digits of a hexadecimal number after it.
fn has_escape(name: &[u8]) -> bool {
    let is_escape =
        |it: &[u8]| it[0] == b'%' && it[1].is_ascii_hexdigit() && it[2].is_ascii_hexdigit();
    name.windows(3).any(is_escape)
}

fn escaped(name: &[u8]) -> String {
    let mut escaped = String::with_capacity(name.len() + 16);
    for chunk in name.utf8_chunks() {
        for character in chunk.valid().chars() {
            if is_harmless(character) && character != '%' {
                escaped.push(character);
            } else {
                let mut bytes = [0; 4];
                push_bytes(character.encode_utf8(&mut bytes).as_bytes(), &mut escaped);
            }
        }
        push_bytes(chunk.invalid(), &mut escaped);
    }
    escaped
}

fn push_bytes(bytes: &[u8], escaped: &mut String) {
    for byte in bytes {
        let _ = write!(escaped, "%{byte:02X}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn usual_names_stay_and_others_are_escaped() {
        for (name, safe) in [
            (&b"a.txt"[..], "a.txt"),
            ("\u{fc}ber.txt".as_bytes(), "\u{fc}ber.txt"),
            (b"100%", "100%"),
            (b"..\\..\\evil.exe", "..%5C..%5Cevil.exe"),
            (b"C:evil", "C%3Aevil"),
            (b"a\nb%", "a%0Ab%25"),
            (b"\xff%", "%FF%25"),
            (b"%FF", "%25FF"),
            ("\u{85}".as_bytes(), "%C2%85"),
        ] {
            assert_eq!(safe_name(name), safe);
        }
        assert_eq!(safe_path(b"a\\b/c:d/e"), "a%5Cb/c%3Ad/e");
    }

    #[test]
    fn model_no_two_names_become_one() {
        const BYTES: &[u8] = b"%F2a\xff\\\xc3\xbc";
        let mut random = fastrand::Rng::with_seed(5);
        let (mut names, mut safe) = (HashSet::new(), HashSet::new());
        for _ in 0..20_000 {
            let length = random.usize(1..7);
            let name: Vec<u8> = (0..length)
                .map(|_| BYTES[random.usize(..BYTES.len())])
                .collect();
            safe.insert(safe_name(&name).into_owned());
            names.insert(name);
        }
        assert_eq!(safe.len(), names.len());
    }
}
