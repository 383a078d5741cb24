//! Target `password_files`: a file of names and passwords, as `htpasswd` writes it.
//!
//! Holds of every input
//! - It is taken or refused, and a refusal names a line of the file.
//! - No refusal has the text of a hash, which may be a password.
//! - What follows the line of a refusal changes nothing of it.
//! - A file that is taken has a name and a hash of a kind that protects it in each of its lines.
//! - Read again, it is taken if its last line has its end; else it may be half written. What is
//!   there stays in force.

use std::fs;
use std::path::Path;

use flatpath_layers::{Htpasswd, HtpasswdError};

/// Shorter texts, and words without a digit, are in messages by themselves.
const SECRET_BYTES_MIN: usize = 8;

pub(crate) fn run(data: &[u8]) {
    let folder = tempfile::tempdir().expect("a directory");
    let path = folder.path().join("users");
    match open(&path, data) {
        Ok(file) => taken(&file, data),
        Err((number, why)) => {
            let lines: Vec<&[u8]> = data.split_inclusive(|byte| *byte == b'\n').collect();
            assert!(
                (1..=lines.len().max(1)).contains(&number),
                "{number}: {why}"
            );
            let line = lines.get(number - 1).copied().unwrap_or_default();
            assert_keeps(line, &why);
            let so_far = lines[..number.min(lines.len())].concat();
            let again = open(&path, &so_far).expect_err("it is refused without the rest");
            assert_eq!(again, (number, why), "what follows counts");
        }
    }
}

/// Not over the file that is there: to replace one, some file systems wait for the disk.
fn write_new(path: &Path, data: &[u8]) {
    if path.exists() {
        fs::remove_file(path).expect("removed");
    }
    fs::write(path, data).expect("written");
}

/// The file, or the line of the mistake and what it is.
fn open(path: &Path, data: &[u8]) -> Result<Htpasswd, (usize, String)> {
    write_new(path, data);
    Htpasswd::open(path).map_err(|error| match error {
        HtpasswdError::Line { line, why, .. } => (line, why),
        other => panic!("{other}"),
    })
}

fn lines(data: &[u8]) -> impl Iterator<Item = &str> {
    let text = std::str::from_utf8(data).expect("what is taken is text");
    let lines = text.split('\n').map(str::trim_ascii_end);
    lines.filter(|line| !line.is_empty() && !line.starts_with('#'))
}

fn taken(file: &Htpasswd, data: &[u8]) {
    let mut names = Vec::new();
    for line in lines(data) {
        let (name, hash) = line.split_once(':').expect("a name and a hash");
        let kinds = [
            "$2y$",
            "$2b$",
            "$2a$",
            "$argon2id$",
            "$argon2i$",
            "$5$",
            "$6$",
        ];
        assert!(kinds.iter().any(|kind| hash.starts_with(kind)), "{line}");
        assert!(!name.is_empty() && !names.contains(&name), "{line}");
        names.push(name);
    }
    assert!(!names.is_empty(), "it names nobody");
    // Another file in its place, so that it is read whatever its times say.
    write_new(file.path(), data);
    let again = file.reload();
    assert_eq!(again.is_ok(), data.ends_with(b"\n"), "{again:?}");
}

/// What may be a password is not in the message.
fn assert_keeps(line: &[u8], why: &str) {
    let Ok(line) = std::str::from_utf8(line) else {
        return;
    };
    let line = line.trim_ascii_end();
    let (name, hash) = line.split_once(':').unwrap_or(("", line));
    // A name may be told, and may be a part of anything.
    let told = why.replace(&format!("{name:?}"), "").replace(name, "");
    let is_own = hash.len() >= SECRET_BYTES_MIN && hash.contains(|it: char| it.is_ascii_digit());
    assert!(!is_own || !told.contains(hash), "{why}");
}
