//! The boundary of a form, which its content type names.

use http::HeaderMap;
use http::header::CONTENT_TYPE;

use super::rejection::MultipartRejection;
use crate::header_values::parameters::parameters;

/// The boundary that the content type names.
pub(super) fn boundary(headers: &HeaderMap) -> Result<Vec<u8>, MultipartRejection> {
    let value = headers
        .get(CONTENT_TYPE)
        .ok_or(MultipartRejection::ContentType)?;
    let (of_type, mut parameters) = parameters(value.as_bytes());
    if !of_type.eq_ignore_ascii_case(b"multipart/form-data") {
        return Err(MultipartRejection::ContentType);
    }
    let mut boundary = None;
    while let Some(parameter) = parameters.next() {
        let (name, value) = parameter.map_err(|_| MultipartRejection::Boundary)?;
        if name.eq_ignore_ascii_case(b"boundary") && boundary.replace(value).is_some() {
            return Err(MultipartRejection::Boundary);
        }
    }
    let boundary = boundary.ok_or(MultipartRejection::Boundary)?;
    let is_known = |byte: &u8| byte.is_ascii_alphanumeric() || b"'()+_,-./:=? ".contains(byte);
    let is_valid = (1..=70).contains(&boundary.len())
        && boundary.iter().all(is_known)
        && boundary.last() != Some(&b' ');
    match is_valid {
        true => Ok(boundary),
        false => Err(MultipartRejection::Boundary),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boundaries_are_taken_as_they_are_written() {
        let of = |content_type: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(CONTENT_TYPE, content_type.parse().expect("valid"));
            boundary(&headers)
        };
        for (content_type, expected) in [
            ("multipart/form-data; boundary=a", "a"),
            (
                "Multipart/Form-Data;charset=utf-8; BOUNDARY = \"a b\" ",
                "a b",
            ),
            ("multipart/form-data; boundary=----=_a/b:1;", "----=_a/b:1"),
        ] {
            assert_eq!(of(content_type), Ok(expected.into()), "{content_type}");
        }
        let longest = "a".repeat(70);
        assert!(of(&format!("multipart/form-data; boundary={longest}")).is_ok());
        for content_type in [
            "multipart/form-data",
            "multipart/form-data; boundary=",
            "multipart/form-data; boundary=\"\"",
            "multipart/form-data; boundary=\"a ",
            "multipart/form-data; boundary=\"a \"",
            "multipart/form-data; boundary=a\"b",
            "multipart/form-data; boundary=\"a\tb\"",
            "multipart/form-data; boundary=a; boundary=b",
            "multipart/form-data; boundary=a b",
            "multipart/form-data; boundary",
            &format!("multipart/form-data; boundary={longest}a"),
        ] {
            assert_eq!(
                of(content_type),
                Err(MultipartRejection::Boundary),
                "{content_type}"
            );
        }
        for content_type in ["multipart/mixed; boundary=a", "application/json", ""] {
            assert_eq!(
                of(content_type),
                Err(MultipartRejection::ContentType),
                "{content_type}"
            );
        }
        assert_eq!(
            boundary(&HeaderMap::new()),
            Err(MultipartRejection::ContentType)
        );
    }
}
