//! The head of a field: its name, file name and type.

use std::str;

use super::rejection::MultipartRejection;
use crate::header_values::parameters::parameters;

/// Headers of one field. RFC 7578 knows three.
const HEADERS_MAX: usize = 16;

/// The longest file name that Linux has.
const FILE_NAME_BYTES_MAX: usize = 255;

/// What a form says of a field before its content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldHead {
    name: String,
    file_name: Option<String>,
    content_type: Option<String>,
    pub(super) bytes_max: u64,
}

impl FieldHead {
    /// The name of the field. Several fields may have the same. Browsers write a quote in it as
    /// `%22`, and line ends as `%0D%0A`; it is not decoded.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The name of the file, as the client sent it: it may be empty, a path, or lead upwards.
    /// `None` for a field that is no file. See [`safe_file_name`](Self::safe_file_name).
    #[must_use]
    pub fn file_name(&self) -> Option<&str> {
        self.file_name.as_deref()
    }

    /// The name of the file, if it can name a file in a directory and nothing else: it is not
    /// empty, hidden (`.a`), `.` or `..`, has no slash, backslash or control character, and at most
    /// 255 bytes. Two files of a form may have the same.
    ///
    /// ```
    /// use flatpath_http::multipart::{FieldHead, MultipartUpload};
    /// use flatpath_http::http::StatusCode;
    /// use std::fs::File;
    /// use std::path::Path;
    ///
    /// fn create(directory: &Path, field: &FieldHead) -> Result<File, StatusCode> {
    ///     let name = field.safe_file_name().ok_or(StatusCode::BAD_REQUEST)?;
    ///     // It does not write over what is there.
    ///     File::create_new(directory.join(name)).map_err(|_| StatusCode::CONFLICT)
    /// }
    /// # let _ = create;
    /// ```
    #[must_use]
    pub fn safe_file_name(&self) -> Option<&str> {
        let name = self.file_name()?;
        let is_safe = !name.is_empty()
            && name.len() <= FILE_NAME_BYTES_MAX
            && !name.starts_with('.')
            && !name.contains(|it: char| matches!(it, '/' | '\\') || it.is_control());
        is_safe.then_some(name)
    }

    /// The media type that the client claims for the content, with its parameters.
    #[must_use]
    pub fn content_type(&self) -> Option<&str> {
        self.content_type.as_deref()
    }

    /// Bounds the content of this field to fewer bytes than
    /// [`MultipartLimits::field_bytes_max`](super::MultipartLimits::field_bytes_max); a longer one
    /// is refused with 413.
    pub fn limit(&mut self, bytes_max: u64) {
        self.bytes_max = self.bytes_max.min(bytes_max);
    }

    /// From the headers of a field, with the empty line at their end.
    pub(super) fn parse(headers: &[u8], bytes_max: u64) -> Result<Self, MultipartRejection> {
        let malformed = MultipartRejection::Malformed;
        let mut slots = [httparse::EMPTY_HEADER; HEADERS_MAX];
        let parsed = match httparse::parse_headers(headers, &mut slots) {
            // Less than all: a line without a carriage return would end them for httparse.
            Ok(httparse::Status::Complete((bytes, parsed))) if bytes == headers.len() => parsed,
            _ => return Err(malformed("the headers of a field")),
        };
        let (mut disposition, mut content_type) = (None, None);
        for header in parsed {
            let slot = match header.name.to_ascii_lowercase().as_str() {
                "content-disposition" => &mut disposition,
                "content-type" => &mut content_type,
                "content-transfer-encoding" => {
                    // RFC 7578 section 4.7: not used. Content that is encoded would be taken for
                    // what it stands for.
                    let plain = [&b"7bit"[..], b"8bit", b"binary"];
                    match plain.iter().any(|it| header.value.eq_ignore_ascii_case(it)) {
                        true => continue,
                        false => return Err(malformed("the transfer encoding of a field")),
                    }
                }
                _ => continue,
            };
            let value: &[u8] = header.value;
            if slot.replace(value).is_some() {
                return Err(malformed("a field has a header twice"));
            }
        }
        let content_type = content_type.map(|it| text(it.to_vec())).transpose()?;
        let disposition = disposition.ok_or(malformed("a field without Content-Disposition"))?;
        let (of_type, mut parameters) = parameters(disposition);
        if !of_type.eq_ignore_ascii_case(b"form-data") {
            return Err(malformed("a field that is not form-data"));
        }
        let (mut name, mut file_name) = (None, None);
        while let Some(parameter) = parameters.next() {
            let (known, value) = parameter?;
            let slot = match known.to_ascii_lowercase().as_slice() {
                b"name" => &mut name,
                b"filename" => &mut file_name,
                // `filename*` too: RFC 7578 section 4.2.
                _ => continue,
            };
            if slot.replace(text(value)?).is_some() {
                return Err(malformed("a field with two names"));
            }
        }
        let name = name.ok_or(malformed("a field without a name"))?;
        Ok(Self {
            name,
            file_name,
            content_type,
            bytes_max,
        })
    }
}

fn text(bytes: Vec<u8>) -> Result<String, MultipartRejection> {
    let not_text = MultipartRejection::Malformed("a field with headers that are not UTF-8");
    String::from_utf8(bytes).map_err(|_| not_text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(headers: &str) -> Result<FieldHead, MultipartRejection> {
        FieldHead::parse(format!("{headers}\r\n\r\n").as_bytes(), u64::MAX)
    }

    fn names(disposition: &str) -> (String, Option<String>) {
        let head = head(&format!("Content-Disposition: {disposition}")).expect("valid");
        (head.name, head.file_name)
    }

    #[test]
    fn names_are_what_was_sent() {
        for (disposition, name, file_name) in [
            ("form-data; name=\"a\"", "a", None),
            ("FORM-DATA ;\tNAME = a ; ", "a", None),
            ("form-data; name=\"\"", "", None),
            ("form-data; filename=\"x\"; name=\"a\"", "a", Some("x")),
            // A name within a name is none.
            (
                "form-data; filename=\"x; name=b\"; name=\"a\"",
                "a",
                Some("x; name=b"),
            ),
            ("form-data; name=\"a\"; filename*=UTF-8''x", "a", None),
            ("form-data; name=\"a\\\"b\\\\c\"", "a\"b\\c", None),
            (
                "form-data; name=\"a\"; filename=\"C:\\x\\y\"",
                "a",
                Some("C:\\x\\y"),
            ),
            (
                "form-data; name=\"%22%2e\"; filename=\"\"",
                "%22%2e",
                Some(""),
            ),
            ("form-data; name=\"é;=\"; filename=é", "é;=", Some("é")),
        ] {
            let expected = (name.to_owned(), file_name.map(str::to_owned));
            assert_eq!(names(disposition), expected, "{disposition}");
        }
    }

    #[test]
    fn heads_that_could_mean_two_things_are_refused() {
        let named = "Content-Disposition: form-data; name=\"a\"";
        for (headers, what) in [
            (
                "Content-Type: text/plain",
                "a field without Content-Disposition",
            ),
            ("Content-Disposition: form-data", "a field without a name"),
            (
                "Content-Disposition: attachment; name=a",
                "a field that is not form-data",
            ),
            (
                "Content-Disposition: form-data; name=a; name=b",
                "a field with two names",
            ),
            (
                "Content-Disposition: form-data; name=\"a",
                "a parameter of a header",
            ),
            (
                "Content-Disposition: form-data; name",
                "a parameter of a header",
            ),
            (
                "Content-Disposition: form-data; na me=a",
                "a parameter of a header",
            ),
            (
                "Content-Disposition: form-data; name=\"a\"b",
                "a parameter of a header",
            ),
            (
                "Content-Disposition: form-data; name=a\"b\"",
                "a parameter of a header",
            ),
            (&format!("{named}\r\n{named}"), "a field has a header twice"),
            (
                &format!("{named}\r\nContent-Type: a\r\nContent-Type: b"),
                "a field has a header twice",
            ),
            (
                &format!("{named}\r\nContent-Transfer-Encoding: base64"),
                "the transfer encoding of a field",
            ),
            (
                "Content-Disposition: form-data; name=\"a\0b\"",
                "the headers of a field",
            ),
            (&format!("{named}\n\nA: b"), "the headers of a field"),
            (&format!("{named}\r\n folded"), "the headers of a field"),
            (
                &format!("{named}{}", "\r\nA: b".repeat(HEADERS_MAX)),
                "the headers of a field",
            ),
        ] {
            assert_eq!(
                head(headers),
                Err(MultipartRejection::Malformed(what)),
                "{headers}"
            );
        }
    }

    #[test]
    fn a_head_has_a_name_in_utf_8_and_may_have_more() {
        let none = MultipartRejection::Malformed("a field without Content-Disposition");
        assert_eq!(FieldHead::parse(b"\r\n", 0), Err(none));
        let latin = FieldHead::parse(b"Content-Disposition: form-data; name=\"\xe9\"\r\n\r\n", 0);
        let not_text = MultipartRejection::Malformed("a field with headers that are not UTF-8");
        assert_eq!(latin, Err(not_text));
        let named = "Content-Disposition: form-data; name=\"a\"";
        let whole =
            format!("{named}\r\nContent-Transfer-Encoding: BINARY\r\ncontent-type: a/b;c=d");
        assert_eq!(head(&whole).expect("valid").content_type(), Some("a/b;c=d"));
    }

    #[test]
    fn a_safe_file_name_is_one_entry_of_a_directory() {
        let longest = "a".repeat(FILE_NAME_BYTES_MAX);
        for (file_name, is_safe) in [
            ("a b.txt", true),
            ("a..b", true),
            ("é", true),
            (&*longest, true),
            (&*format!("{longest}a"), false),
            ("", false),
            (".", false),
            ("..", false),
            (".ssh", false),
            ("../a", false),
            ("/etc/passwd", false),
            ("a/b", false),
            ("a\\\\b", false),
            ("C:\\a", false),
            ("a\tb", false),
            ("a\u{85}b", false),
        ] {
            let disposition = format!("form-data; name=a; filename=\"{file_name}\"");
            let head = head(&format!("Content-Disposition: {disposition}")).expect("valid");
            assert_eq!(head.safe_file_name().is_some(), is_safe, "{file_name}");
        }
        let no_file = head("Content-Disposition: form-data; name=a").expect("valid");
        assert_eq!(no_file.safe_file_name(), None);
    }

    #[test]
    fn a_bound_of_one_field_is_only_lowered() {
        let mut head = head("Content-Disposition: form-data; name=a").expect("valid");
        for (limit, bytes_max) in [(7, 7), (8, 7), (0, 0)] {
            head.limit(limit);
            assert_eq!(head.bytes_max, bytes_max);
        }
    }
}
