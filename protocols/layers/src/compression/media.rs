//! Which media types shrink.

/// Whether content of this type, in lower case and without parameters, is text or the like. What is
/// not known is taken to be compressed already: most formats are.
pub(super) fn is_fit(media: &str) -> bool {
    let Some((kind, subtype)) = media.split_once('/') else {
        return false;
    };
    let is_text_inside = ["+json", "+xml", "+text", "+yaml"]
        .iter()
        .any(|suffix| subtype.ends_with(suffix));
    match kind {
        _ if is_text_inside => true,
        "text" => true,
        "application" => matches!(
            subtype,
            "javascript"
                | "json"
                | "json-seq"
                | "ld+json"
                | "ndjson"
                | "rtf"
                | "sql"
                | "toml"
                | "wasm"
                | "x-javascript"
                | "x-ndjson"
                | "x-sh"
                | "x-yaml"
                | "xml"
                | "yaml"
        ),
        // As they are in files; WOFF is compressed.
        "font" => matches!(subtype, "collection" | "otf" | "sfnt" | "ttf"),
        "image" => matches!(
            subtype,
            "bmp" | "vnd.microsoft.icon" | "x-icon" | "x-ms-bmp"
        ),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_fit_and_what_is_compressed_is_not() {
        for media in [
            "text/html",
            "text/csv",
            "application/json",
            "application/problem+json",
            "application/xhtml+xml",
            "image/svg+xml",
            "application/wasm",
            "font/ttf",
            "image/x-icon",
        ] {
            assert!(is_fit(media), "{media}");
        }
        for media in [
            "",
            "text",
            "image/png",
            "video/mp4",
            "audio/ogg",
            "font/woff2",
            "application/zip",
            "application/gzip",
            "application/pdf",
            "application/octet-stream",
            "multipart/byteranges",
        ] {
            assert!(!is_fit(media), "{media}");
        }
    }
}
