//! A head of HTTP/2 that is refused has its line in the access log, with the reason, as one of
//! HTTP/1 has; so have those before and after it on the same connection.

use std::io::Write;
use std::net::TcpStream;

use flatpath_testkit::deadline::patience;
use flatpath_testkit::{Driver, Site, each_driver};

use crate::access_log::{behind_time, launch, lines_at_end};
use flatpath_testkit::h2_frames::{END_STREAM, PREFACE, SETTINGS, frame, get, next};

each_driver!(a_refused_head_of_http2_has_its_line_and_its_reason);

/// The host, the path, the status, and what the line has behind that of an answered request.
const ASKED: [(&str, &str, u16, &str); 4] = [
    ("localhost", "/a", 200, ""),
    ("localhost", "/../a", 400, " \"dot_segments\""),
    ("elsewhere", "/a", 421, " \"host_foreign\""),
    ("localhost", "/b", 404, ""),
];

fn a_refused_head_of_http2_has_its_line_and_its_reason(driver: Driver) {
    let site = Site::new().with("a", "contents");
    let directory = tempfile::tempdir().expect("a directory");
    let log = directory.path().join("access");
    let server = launch(driver, &site, &log).start();
    let mut client = TcpStream::connect(server.address("http")).expect("connected");
    client
        .set_read_timeout(Some(patience()))
        .expect("a deadline");
    let greeting = [PREFACE, &frame(SETTINGS, 0, 0, &[])].concat();
    client.write_all(&greeting).expect("sent");
    for (number, (host, path, ..)) in (0..).zip(ASKED) {
        let stream = 2 * number + 1;
        client.write_all(&get(stream, host, path)).expect("sent");
        loop {
            let frame = next(&mut client).expect("a frame");
            if frame.stream == stream && frame.flags & END_STREAM != 0 {
                break;
            }
        }
    }
    drop(client);
    let lines = lines_at_end(server, &log);
    assert_eq!(lines.len(), ASKED.len(), "{lines:#?}");
    for (line, (_, path, status, reason)) in lines.iter().zip(ASKED) {
        let line = behind_time(line);
        assert!(
            line.starts_with(&format!("\"GET {path} HTTP/2.0\" {status} ")),
            "{line}"
        );
        assert!(line.ends_with(&format!("\"-\" \"-\"{reason}")), "{line}");
    }
}
