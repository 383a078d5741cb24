//! RFC 9112 section 3.2: request targets and hosts.

use flatpath_http::{Fault, TargetForm};

use crate::vectors::{refused, taken};

/// 3.2.1 and RFC 3986: what is not in the grammar of targets must be percent-encoded.
#[test]
fn s3_2_1_origin_form() {
    let seen = taken("GET /where?q=now HTTP/1.1\r\nHost: www.example.org\r\n\r\n");
    assert_eq!(
        (seen.form, seen.path.as_str()),
        (TargetForm::Origin, "/where")
    );
    for target in ["/\u{e9}", "/a#b", "/<a>", "a", "/a\u{7f}", "?a"] {
        refused(
            format!("GET {target} HTTP/1.1\r\nHost: h\r\n\r\n"),
            Fault::Target,
            400,
        );
    }
}

/// 3.2.2: "a server MUST accept the absolute-form in requests" and "When an origin server receives
/// a request with an absolute-form of request-target, the origin server MUST ignore the received
/// Host header field (if any) and instead use the host information of the request-target."
#[test]
fn s3_2_2_absolute_form_overrides_host() {
    let seen = taken("GET http://www.example.org/pub/a HTTP/1.1\r\nHost: other\r\n\r\n");
    assert_eq!(
        (seen.form, seen.path.as_str()),
        (TargetForm::Absolute, "/pub/a")
    );
    assert_eq!(seen.authority, "www.example.org");
    let root = taken("GET HTTP://h:80 HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_eq!((root.path.as_str(), root.authority.as_str()), ("/", "h:80"));
    for target in [
        "http://",
        "http:///a",
        "ftp://h/",
        "http://u:p@h/",
        "http://h:x/",
        "http:a",
    ] {
        refused(
            format!("GET {target} HTTP/1.1\r\nHost: h\r\n\r\n"),
            Fault::Target,
            400,
        );
    }
}

/// 3.2.3: authority-form "is only used for CONNECT requests", which an origin server does not
/// implement.
#[test]
fn s3_2_3_authority_form_opens_no_tunnel() {
    refused(
        "CONNECT h:80 HTTP/1.1\r\nHost: h:80\r\n\r\n",
        Fault::Tunnel,
        501,
    );
    refused(
        "GET h:80 HTTP/1.1\r\nHost: h:80\r\n\r\n",
        Fault::Target,
        400,
    );
}

/// 3.2.4: "The asterisk-form of request-target is only used for a server-wide OPTIONS request".
#[test]
fn s3_2_4_asterisk_form_is_for_options() {
    let seen = taken("OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_eq!((seen.form, seen.path.as_str()), (TargetForm::Asterisk, "*"));
    for method in ["GET", "HEAD", "options"] {
        refused(
            format!("{method} * HTTP/1.1\r\nHost: h\r\n\r\n"),
            Fault::Target,
            400,
        );
    }
}

/// 3.2: "A server MUST respond with a 400 (Bad Request) status code to any HTTP/1.1 request message
/// that lacks a Host header field".
#[test]
fn s3_2_host_must_be_there() {
    refused("GET / HTTP/1.1\r\n\r\n", Fault::HostMissing, 400);
    refused(
        "GET http://h/ HTTP/1.1\r\nA: b\r\n\r\n",
        Fault::HostMissing,
        400,
    );
    assert_eq!(taken("GET / HTTP/1.0\r\n\r\n").authority, "");
}

/// 3.2: "and to any request message that contains more than one Host header field line".
#[test]
fn s3_2_host_must_be_there_once() {
    refused(
        "GET / HTTP/1.1\r\nHost: h\r\nHost: h\r\n\r\n",
        Fault::HostTwice,
        400,
    );
    refused(
        "GET / HTTP/1.0\r\nHost: h\r\nhost: i\r\n\r\n",
        Fault::HostTwice,
        400,
    );
}

/// 3.2: "or a Host header field with an invalid field value". Empty is for target URIs without an
/// authority, and RFC 9110 4.2.1 says of http: "A recipient that processes such a URI reference
/// MUST reject it as invalid."
#[test]
fn s3_2_host_must_be_valid() {
    for host in [
        "example.org",
        "example.org:8080",
        "[::1]:80",
        "127.0.0.1",
        "a_b.c",
    ] {
        assert_eq!(
            taken(format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n")).authority,
            host
        );
    }
    for host in [
        "", ":80", "a b", "a/b", "u@h", "h:80:80", "h:http", "[::1", "[x]", "h?a", "a%zz",
        "h\u{e9}", "http://h",
    ] {
        refused(
            format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n"),
            Fault::HostInvalid,
            400,
        );
    }
}
