//! From the text of a file to names and hashes. Empty lines, and those that begin with `#`, count
//! for nothing, as for Apache and nginx.

use std::collections::HashMap;
use std::path::Path;

use super::hash::PasswordHash;
use super::{HtpasswdError, Users};

/// Whether a line end may be missing where a file ends.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum LastLine {
    MayHaveNoEnd,
    /// Without it the file is half written, for all that is known.
    HasItsEnd,
}

/// The names of a file; an error names its line.
pub(super) fn users(
    path: &Path,
    content: &[u8],
    last_line: LastLine,
) -> Result<Users, HtpasswdError> {
    let wrong = |line: usize, why: String| HtpasswdError::Line {
        path: path.to_owned(),
        line,
        why,
    };
    let mut hashes: HashMap<Box<str>, PasswordHash> = HashMap::new();
    let mut lines = 0;
    for (number, line) in content.split_inclusive(|byte| *byte == b'\n').enumerate() {
        lines = number + 1;
        if last_line == LastLine::HasItsEnd && !line.ends_with(b"\n") {
            let why = "the last line has no end, so the file may be half written";
            return Err(wrong(lines, why.into()));
        }
        let line = std::str::from_utf8(line);
        let line = line.map_err(|_| wrong(lines, "it is not UTF-8".into()))?;
        let line = line.trim_ascii_end();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let (name, hash) = user(line).map_err(|why| wrong(lines, why))?;
        if hashes.contains_key(name) {
            return Err(wrong(lines, format!("the name {name:?} is there twice")));
        }
        hashes.insert(name.into(), hash);
    }
    let decoy = hashes.values().next().cloned();
    let decoy = decoy.ok_or_else(|| wrong(lines.max(1), "it names nobody".into()))?;
    Ok(Users { hashes, decoy })
}

/// One name with its hash. What is wrong is said without the hash, which may be a password.
fn user(line: &str) -> Result<(&str, PasswordHash), String> {
    let (name, hash) = line.split_once(':').ok_or("a line is NAME:HASH")?;
    // RFC 7617, 2: no name has control characters.
    if name.is_empty() || name.chars().any(char::is_control) {
        return Err("a name has at least one character, and no control characters".into());
    }
    let hash = PasswordHash::parse(hash).map_err(|why| format!("{name}: {why}"))?;
    Ok((name, hash))
}
