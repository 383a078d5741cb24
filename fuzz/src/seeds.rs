//! Seeds: small inputs under version control, in files that a reader can read.
//!
//! | file   | holds                                                                             |
//! |--------|-----------------------------------------------------------------------------------|
//! | `.txt` | text; each line end is CRLF. `\r`, `\n`, `\xNN` and `\\` are bytes; a `\` at the  |
//! |        | end of a line joins it with the next, also where no next one is there             |
//! | `.hex` | bytes in hexadecimal digits and `"text"`, with blanks between; `#` to the end of  |
//! |        | a line is a comment                                                               |
//!
//! What libFuzzer finds is bytes; [`to_text`] and [`to_hex`] make a seed of it.

use std::fs;
use std::path::{Path, PathBuf};

/// A seed by the name of its file.
#[derive(Clone, Debug)]
pub struct Seed {
    /// Name of the file.
    pub name: String,
    /// The input.
    pub bytes: Vec<u8>,
}

/// Where the seeds of a target are.
#[must_use]
pub fn directory(target: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("seeds")
        .join(target)
}

/// The seeds of a target, by name.
///
/// # Panics
/// When they cannot be read: the message has the file and what is wrong with it.
#[must_use]
pub fn of(target: &str) -> Vec<Seed> {
    let directory = directory(target);
    let entries =
        fs::read_dir(&directory).unwrap_or_else(|error| panic!("{}: {error}", directory.display()));
    let mut seeds: Vec<Seed> = entries
        .map(|entry| {
            let path = entry.expect("a directory that is read").path();
            read(&path)
        })
        .collect();
    seeds.sort_by(|one, other| one.name.cmp(&other.name));
    assert!(!seeds.is_empty(), "{target} has no seeds");
    seeds
}

fn read(path: &Path) -> Seed {
    let shown = path.display();
    let text = fs::read_to_string(path).unwrap_or_else(|error| panic!("{shown}: {error}"));
    let bytes = match path.extension().and_then(|extension| extension.to_str()) {
        Some("txt") => from_text(&text),
        Some("hex") => from_hex(&text),
        _ => Err("a seed is a .txt or a .hex".into()),
    };
    Seed {
        name: path
            .file_name()
            .map_or_else(String::new, |name| name.to_string_lossy().into()),
        bytes: bytes.unwrap_or_else(|why| panic!("{shown}: {why}")),
    }
}

/// The bytes of a `.txt` seed.
///
/// # Errors
/// What is wrong with it.
pub fn from_text(text: &str) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((byte, behind)) = rest.split_first() {
        rest = behind;
        match byte {
            b'\n' => bytes.extend_from_slice(b"\r\n"),
            b'\\' => {
                let (byte, behind) = rest.split_first().ok_or("it ends with a backslash")?;
                rest = behind;
                match byte {
                    b'\n' => {}
                    b'r' => bytes.push(b'\r'),
                    b'n' => bytes.push(b'\n'),
                    b'\\' => bytes.push(b'\\'),
                    b'x' => {
                        let (digits, behind) = rest.split_at_checked(2).ok_or("a cut \\x")?;
                        rest = behind;
                        bytes.push(pair(digits)?);
                    }
                    other => return Err(format!("\\{} means nothing", char::from(*other))),
                }
            }
            byte => bytes.push(*byte),
        }
    }
    Ok(bytes)
}

/// The bytes of a `.hex` seed.
///
/// # Errors
/// What is wrong with it.
pub fn from_hex(text: &str) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    for line in text.lines() {
        let mut rest = line.trim_start();
        while !rest.is_empty() && !rest.starts_with('#') {
            if let Some(quoted) = rest.strip_prefix('"') {
                let (inside, behind) = quoted.split_once('"').ok_or("a quote is not closed")?;
                bytes.extend_from_slice(inside.as_bytes());
                rest = behind.trim_start();
            } else {
                let end = rest.find([' ', '"', '#']).unwrap_or(rest.len());
                for digits in rest.as_bytes()[..end].chunks(2) {
                    bytes.push(pair(digits)?);
                }
                rest = rest[end..].trim_start();
            }
        }
    }
    Ok(bytes)
}

fn pair(digits: &[u8]) -> Result<u8, String> {
    let text = String::from_utf8_lossy(digits).into_owned();
    match digits {
        [a, b] if a.is_ascii_hexdigit() && b.is_ascii_hexdigit() => {
            u8::from_str_radix(&text, 16).map_err(|error| format!("{text:?}: {error}"))
        }
        _ => Err(format!("{text:?} is not two hexadecimal digits")),
    }
}

/// A `.txt` seed of these bytes.
#[must_use]
pub fn to_text(bytes: &[u8]) -> String {
    let mut text = String::new();
    let mut rest = bytes;
    while let Some((byte, behind)) = rest.split_first() {
        rest = behind;
        match byte {
            b'\r' if rest.first() == Some(&b'\n') => {
                text.push('\n');
                rest = &rest[1..];
            }
            b'\r' => text.push_str("\\r"),
            b'\n' => text.push_str("\\n"),
            b'\\' => text.push_str("\\\\"),
            b' '..=b'~' => text.push(char::from(*byte)),
            other => text.push_str(&format!("\\x{other:02x}")),
        }
    }
    if !text.ends_with('\n') {
        text.push_str("\\\n");
    }
    text
}

/// A `.hex` seed of these bytes.
#[must_use]
pub fn to_hex(bytes: &[u8]) -> String {
    let line = |line: &[u8]| {
        let pairs: Vec<String> = line.iter().map(|byte| format!("{byte:02x}")).collect();
        pairs.join(" ") + "\n"
    };
    bytes.chunks(16).map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_survives_both_kinds_of_file() {
        let all: Vec<u8> = (0..=255).chain(*b"\r\n\r\r\n\n\\x41\"#").collect();
        assert_eq!(from_text(&to_text(&all)), Ok(all.clone()));
        assert_eq!(from_hex(&to_hex(&all)), Ok(all));
    }

    #[test]
    fn a_seed_is_written_as_it_is_read() {
        assert_eq!(from_text("a\n\\nb\\\n"), Ok(b"a\r\n\nb".to_vec()));
        assert_eq!(
            from_hex("00 0102 \"a b\" # c\n\n03"),
            Ok(b"\0\x01\x02a b\x03".to_vec())
        );
        for text in ["\\", "\\q", "\\x4", "\\xzz"] {
            assert!(from_text(text).is_err(), "{text:?}");
        }
        for text in ["0", "000", "zz", "\"a"] {
            assert!(from_hex(text).is_err(), "{text:?}");
        }
    }
}
