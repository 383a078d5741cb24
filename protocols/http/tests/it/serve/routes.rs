//! Routes in a real server, asked by curl.

use std::io::ErrorKind;
use std::process::Command;

use flatpath::DriverChoice;
use flatpath_http::{Http, Parameters, Router, routing};
use flatpath_testkit::skipped::not_run;

use crate::on_each_driver;
use crate::serve::serve;

on_each_driver!(curl_gets_what_the_routes_say);

/// What curl prints for these arguments: heads and contents. None without curl.
fn curl(arguments: &[&str], url: &str) -> Option<String> {
    let mut curl = Command::new("curl");
    curl.args(["-s", "-i", "--max-time", "60", "--noproxy", "*"]);
    match curl.args(arguments).arg(url).output() {
        Ok(output) => Some(String::from_utf8(output.stdout).expect("ASCII")),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            not_run("curl is not installed");
            None
        }
        Err(error) => panic!("curl does not start: {error}"),
    }
}

fn curl_gets_what_the_routes_say(choice: DriverChoice) {
    let user = |parameters: Parameters| format!("user {}", parameters.get("id").unwrap_or("?"));
    let router = Router::new()
        .get("/users/{id}", user)
        .route("/fast", routing::get(|| "fast").inline());
    let (_server, address) = serve(choice, Http::service(router));
    for path in ["users/7", "fast"] {
        let url = format!("http://{address}/{path}");
        let Some(found) = curl(&[], &url) else {
            return;
        };
        assert!(found.starts_with("HTTP/1.1 200 "), "{found}");
        let head = curl(&["--head"], &url).expect("it is installed");
        assert!(
            head.starts_with("HTTP/1.1 200 ") && head.ends_with("\r\n\r\n"),
            "{head}"
        );
        for (method, status) in [("DELETE", "405"), ("OPTIONS", "204")] {
            let reply = curl(&["-X", method], &url).expect("it is installed");
            assert!(reply.starts_with(&format!("HTTP/1.1 {status} ")), "{reply}");
            assert!(reply.contains("Allow: GET, HEAD, OPTIONS\r\n"), "{reply}");
        }
    }
    let missing = curl(&[], &format!("http://{address}/none")).expect("it is installed");
    assert!(missing.starts_with("HTTP/1.1 404 "), "{missing}");
}
