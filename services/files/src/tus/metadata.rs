//! `Upload-Metadata`: pairs of a key and a base64 value, of which one names the file.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// Keys that may name the file, the usual one first.
const NAME_KEYS: [&[u8]; 2] = [b"filename", b"name"];

/// The file's name in the metadata; `None` inside where it is not named.
///
/// # Errors
/// The metadata is malformed: "The key MUST NOT contain spaces and commas and MUST NOT be empty.
/// [...] All keys MUST be unique."
pub(super) fn file_name(value: &[u8]) -> Result<Option<Vec<u8>>, Malformed> {
    let mut pairs = Vec::new();
    for pair in value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii) {
        if pair.is_empty() && value.trim_ascii().is_empty() {
            return Ok(None);
        }
        let mut words = pair.split(|byte| *byte == b' ');
        let key = words.next().unwrap_or_default();
        let encoded = words.next().unwrap_or_default();
        let decoded = STANDARD.decode(encoded).map_err(|_| Malformed)?;
        let is_known = pairs.iter().any(|(known, _)| *known == key);
        if key.is_empty() || is_known || words.next().is_some() {
            return Err(Malformed);
        }
        pairs.push((key, decoded));
    }
    let named = NAME_KEYS
        .iter()
        .find_map(|wanted| pairs.iter().position(|(key, _)| key == wanted));
    Ok(named.map(|at| pairs.swap_remove(at).1))
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Malformed;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_is_found_among_the_pairs() {
        let name = |value: &str| file_name(value.as_bytes());
        assert_eq!(name("filename YS50eHQ="), Ok(Some(b"a.txt".to_vec())));
        assert_eq!(
            name("type dGV4dA==,filename YS50eHQ=,is_private"),
            Ok(Some(b"a.txt".to_vec()))
        );
        assert_eq!(name("name Yg==, filename YQ=="), Ok(Some(b"a".to_vec())));
        assert_eq!(name("name Yg=="), Ok(Some(b"b".to_vec())));
        assert_eq!(name("filename"), Ok(Some(Vec::new())));
        assert_eq!(name(""), Ok(None));
        assert_eq!(name("type dGV4dA=="), Ok(None));
    }

    #[test]
    fn what_breaks_the_rules_is_malformed() {
        for value in [
            "filename YQ,x",
            "filename YQ==,",
            ",filename YQ==",
            "filename  YQ==",
            "filename YQ== YQ==",
            "filename YQ==,filename Yg==",
            "filename %",
        ] {
            assert_eq!(file_name(value.as_bytes()), Err(Malformed), "{value}");
        }
    }
}
