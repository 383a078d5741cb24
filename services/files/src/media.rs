//! Media types by the ending of a name.
//!
//! Types are registered by IANA, or else what browsers and programs look for. Text is
//! served as UTF-8, which nearly all of it is: without a `charset` browsers guess, and a guess can
//! be steered. XML and JSON say for themselves. What is not known is `application/octet-stream`,
//! and every answer says `nosniff`, so no browser makes a page of it.
//!
//! A table of our own: crates that have one bring thousands of endings of dead programs, types that
//! browsers do not know (`application/font-woff`), and three crates to build.

/// The type of files whose ending is not known.
pub(crate) const UNKNOWN: &str = "application/octet-stream";

/// Types, and the endings that stand for them.
const TYPES: &[(&str, &[&str])] = &[
    ("text/html; charset=utf-8", &["html", "htm"]),
    ("text/css; charset=utf-8", &["css"]),
    // RFC 9239 made all other names of JavaScript obsolete.
    ("text/javascript; charset=utf-8", &["js", "mjs", "cjs"]),
    (
        "text/plain; charset=utf-8",
        &[
            "txt", "text", "log", "ini", "conf", "cfg", "diff", "patch", "c", "cc", "cpp", "h",
            "hpp", "rs", "go", "py", "rb", "java", "lua", "pl", "sh", "sql", "proto", "tex",
        ],
    ),
    ("text/markdown; charset=utf-8", &["md", "markdown"]),
    ("text/csv; charset=utf-8", &["csv"]),
    ("text/tab-separated-values; charset=utf-8", &["tsv"]),
    ("text/calendar; charset=utf-8", &["ics"]),
    ("text/vcard; charset=utf-8", &["vcf"]),
    ("text/vtt; charset=utf-8", &["vtt"]),
    ("application/json", &["json", "map", "ipynb"]),
    ("application/ld+json", &["jsonld"]),
    ("application/geo+json", &["geojson"]),
    ("application/manifest+json", &["webmanifest"]),
    ("application/yaml", &["yaml", "yml"]),
    ("application/toml", &["toml"]),
    ("application/xml", &["xml", "xsl", "xslt", "xsd"]),
    ("application/xhtml+xml", &["xhtml"]),
    ("application/rss+xml", &["rss"]),
    ("application/atom+xml", &["atom"]),
    ("application/gpx+xml", &["gpx"]),
    ("application/vnd.google-earth.kml+xml", &["kml"]),
    ("application/vnd.google-earth.kmz", &["kmz"]),
    ("application/wasm", &["wasm"]),
    ("image/svg+xml", &["svg", "svgz"]),
    ("image/png", &["png"]),
    ("image/apng", &["apng"]),
    ("image/jpeg", &["jpg", "jpeg", "jpe"]),
    ("image/gif", &["gif"]),
    ("image/webp", &["webp"]),
    ("image/avif", &["avif"]),
    ("image/heic", &["heic"]),
    ("image/heif", &["heif"]),
    ("image/jxl", &["jxl"]),
    ("image/jp2", &["jp2"]),
    ("image/bmp", &["bmp"]),
    ("image/tiff", &["tif", "tiff"]),
    ("image/x-icon", &["ico", "cur"]),
    ("image/vnd.djvu", &["djvu", "djv"]),
    ("image/vnd.adobe.photoshop", &["psd"]),
    ("font/woff", &["woff"]),
    ("font/woff2", &["woff2"]),
    ("font/ttf", &["ttf"]),
    ("font/otf", &["otf"]),
    ("font/collection", &["ttc"]),
    ("application/vnd.ms-fontobject", &["eot"]),
    ("audio/mpeg", &["mp3"]),
    ("audio/mp4", &["m4a"]),
    ("audio/aac", &["aac"]),
    ("audio/ogg", &["ogg", "oga", "opus"]),
    ("audio/flac", &["flac"]),
    ("audio/wav", &["wav"]),
    ("audio/webm", &["weba"]),
    ("audio/midi", &["mid", "midi"]),
    ("audio/aiff", &["aif", "aiff"]),
    ("video/mp4", &["mp4", "m4v"]),
    ("video/webm", &["webm"]),
    ("video/ogg", &["ogv"]),
    ("video/quicktime", &["mov", "qt"]),
    ("video/x-msvideo", &["avi"]),
    ("video/x-matroska", &["mkv"]),
    ("video/mpeg", &["mpg", "mpeg", "mpe"]),
    // RFC 3555. TypeScript, which has the same ending, is compiled before it is served.
    ("video/mp2t", &["ts", "m2ts", "mts"]),
    ("video/3gpp", &["3gp"]),
    ("video/3gpp2", &["3g2"]),
    ("video/x-flv", &["flv"]),
    ("video/x-ms-wmv", &["wmv"]),
    ("application/vnd.apple.mpegurl", &["m3u8", "m3u"]),
    ("application/dash+xml", &["mpd"]),
    ("application/x-subrip", &["srt"]),
    ("application/pdf", &["pdf"]),
    ("application/postscript", &["ps", "eps"]),
    ("application/epub+zip", &["epub"]),
    ("application/x-mobipocket-ebook", &["mobi"]),
    ("application/rtf", &["rtf"]),
    ("application/msword", &["doc", "dot"]),
    ("application/vnd.ms-excel", &["xls", "xlt"]),
    ("application/vnd.ms-powerpoint", &["ppt", "pps"]),
    (
        "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
        &["docx"],
    ),
    (
        "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
        &["xlsx"],
    ),
    (
        "application/vnd.openxmlformats-officedocument.presentationml.presentation",
        &["pptx"],
    ),
    ("application/vnd.oasis.opendocument.text", &["odt"]),
    ("application/vnd.oasis.opendocument.spreadsheet", &["ods"]),
    ("application/vnd.oasis.opendocument.presentation", &["odp"]),
    ("application/vnd.oasis.opendocument.graphics", &["odg"]),
    ("application/zip", &["zip"]),
    ("application/gzip", &["gz", "tgz"]),
    ("application/x-bzip2", &["bz2"]),
    ("application/x-xz", &["xz"]),
    ("application/zstd", &["zst"]),
    ("application/x-7z-compressed", &["7z"]),
    ("application/vnd.rar", &["rar"]),
    ("application/x-tar", &["tar"]),
    ("application/java-archive", &["jar", "war"]),
    ("application/vnd.android.package-archive", &["apk"]),
    ("application/vnd.debian.binary-package", &["deb"]),
    ("application/x-rpm", &["rpm"]),
    ("application/x-bittorrent", &["torrent"]),
    ("application/pem-certificate-chain", &["pem"]),
    ("application/x-x509-ca-cert", &["crt", "cer", "der"]),
    ("application/x-pkcs12", &["p12", "pfx"]),
    ("application/pgp-signature", &["asc", "sig"]),
    ("application/vnd.apache.parquet", &["parquet"]),
    ("application/vnd.sqlite3", &["sqlite", "sqlite3"]),
    ("model/gltf-binary", &["glb"]),
    ("model/gltf+json", &["gltf"]),
    ("model/obj", &["obj"]),
    ("model/stl", &["stl"]),
];

/// The media type of a file with this name, as the value of `Content-Type`.
pub(crate) fn of_name(name: &[u8]) -> &'static str {
    // A dot at the beginning hides a file, and begins no ending.
    let dot = name
        .iter()
        .rposition(|byte| *byte == b'.')
        .filter(|at| *at > 0);
    let Some(ending) = dot.map(|at| &name[at + 1..]) else {
        return UNKNOWN;
    };
    let is_it = |known: &&str| known.as_bytes().eq_ignore_ascii_case(ending);
    let found = TYPES.iter().find(|(_, endings)| endings.iter().any(is_it));
    found.map_or(UNKNOWN, |(media, _)| media)
}

/// Whether a file with this name is gzip-coded already, though its type is that of the plain form:
/// browsers show an SVGZ only with `Content-Encoding`.
pub(crate) fn is_gzipped(name: &[u8]) -> bool {
    let ending = name.len().checked_sub(b".svgz".len()).map(|at| &name[at..]);
    ending.is_some_and(|ending| ending.eq_ignore_ascii_case(b".svgz"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_utf_8() {
        assert_eq!(of_name(b"index.html"), "text/html; charset=utf-8");
        assert_eq!(of_name(b"a.txt"), "text/plain; charset=utf-8");
        assert_eq!(of_name(b"A.TXT"), "text/plain; charset=utf-8");
        assert_eq!(of_name(b"a.css"), "text/css; charset=utf-8");
        assert_eq!(of_name(b"a.js"), "text/javascript; charset=utf-8");
        assert_eq!(of_name(b"a.mjs"), "text/javascript; charset=utf-8");
    }

    #[test]
    fn other_types_stand_alone() {
        for (name, essence) in [
            (&b"a.png"[..], "image/png"),
            (b"a.json", "application/json"),
            (b"a.svg", "image/svg+xml"),
            (b"a.wasm", "application/wasm"),
            (b"a.tar.gz", "application/gzip"),
            (b"a.ts", "video/mp2t"),
            (b"a.svgz", "image/svg+xml"),
        ] {
            assert_eq!(of_name(name), essence);
        }
    }

    #[test]
    fn of_svgz_the_coding_is_named() {
        assert!(is_gzipped(b"a.svgz") && is_gzipped(b"A.SVGZ"));
        assert!(!is_gzipped(b"a.svg") && !is_gzipped(b"svgz") && !is_gzipped(b"a.gz"));
    }

    #[test]
    fn what_is_not_known_is_only_bytes() {
        for name in [
            &b"README"[..],
            b"a.nosuchtype",
            b".txt",
            b"a.",
            b"",
            b"a.\xff",
            b"html",
        ] {
            assert_eq!(of_name(name), UNKNOWN, "{name:?}");
        }
    }

    #[test]
    fn every_ending_stands_for_one_type_that_is_a_header_s_value() {
        let mut endings: Vec<&str> = TYPES.iter().flat_map(|(_, all)| *all).copied().collect();
        endings.sort_unstable();
        let twice = endings.windows(2).find(|pair| pair[0] == pair[1]);
        assert_eq!(twice, None);
        for (media, _) in TYPES {
            assert!(http::HeaderValue::try_from(*media).is_ok(), "{media}");
            assert_eq!(media.matches('/').count(), 1, "{media}");
            assert_eq!(
                media.starts_with("text/"),
                media.ends_with("; charset=utf-8")
            );
        }
    }
}
