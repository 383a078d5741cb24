//! Which of a file's forms to send: as it is, or compressed before, in a sibling.
//!
//! `a.css.br` and `a.css.gz` beside `a.css` are the same content, compressed before. The client's
//! weights decide; where they are equal, the smaller form wins: br, then gzip, then plain. Without
//! the header, or with an empty one, the file is sent plain. A sibling is only looked at when the
//! file itself is there, and is trusted to be up to date.
//!
//! A service that compresses has more forms: its own codings first, in its order, and `a.css.zst`
//! too. Where it does not, that is no form, as each costs a check per turn of each cached file.

use flatpath_http::header_values::{AcceptEncoding, ContentCoding};

/// The forms that siblings have, in the order that a server without compression would choose.
const SIBLINGS: [ContentCoding; 2] = [ContentCoding::Brotli, ContentCoding::Gzip];

/// The forms that a file may have, in the order that this server would choose.
#[derive(Clone, Debug)]
pub(crate) struct Forms(Vec<ContentCoding>);

impl Default for Forms {
    fn default() -> Self {
        let plain = [ContentCoding::Identity];
        Self(SIBLINGS.into_iter().chain(plain).collect())
    }
}

impl Forms {
    /// Those of a server that compresses with these codings, best first.
    #[cfg_attr(
        not(feature = "_compression"),
        allow(dead_code, reason = "nothing compresses")
    )]
    pub(crate) fn compressed(offered: impl Iterator<Item = ContentCoding>) -> Self {
        let mut forms: Vec<_> = offered.collect();
        for coding in [
            ContentCoding::Brotli,
            ContentCoding::Zstd,
            ContentCoding::Gzip,
        ] {
            if !forms.contains(&coding) {
                forms.push(coding);
            }
        }
        forms.push(ContentCoding::Identity);
        Self(forms)
    }

    /// The forms that a client takes, by all of its `Accept-Encoding` headers.
    pub(crate) fn accepted<'a>(&self, values: impl Iterator<Item = &'a [u8]>) -> AcceptEncoding {
        AcceptEncoding::parse(values, &self.0)
    }
}

/// How the name of a sibling ends; `None` for what is no sibling.
pub(crate) fn suffix(form: ContentCoding) -> Option<&'static [u8]> {
    match form {
        ContentCoding::Brotli => Some(b".br"),
        ContentCoding::Zstd => Some(b".zst"),
        ContentCoding::Gzip => Some(b".gz"),
        _ => None,
    }
}
