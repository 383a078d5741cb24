//! Routes in a real server, asked by curl.

use std::io::ErrorKind;
use std::process::Command;

use flatpath::DriverChoice;
use flatpath_http::http::{HeaderMap, HeaderValue, StatusCode};
use flatpath_http::{Answer, Http, Next, Parameters, Request, Router, Trailers, routing};
use flatpath_testkit::Client;
use flatpath_testkit::skipped::not_run;

use crate::on_each_driver;
use crate::serve::{post, serve};

on_each_driver!(
    curl_gets_what_the_routes_say,
    curl_gets_trailers_over_both_versions,
    a_body_that_is_too_long_counts_where_its_client_hears_of_that,
);

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

fn curl_gets_trailers_over_both_versions(choice: DriverChoice) {
    let sum = || {
        let sum = [("x-sum".parse().expect("a name"), HeaderValue::from(7))];
        Trailers(HeaderMap::from_iter(sum)).after("seven\n")
    };
    let (_server, address) = serve(choice, Http::service(Router::new().get("/", sum)));
    let url = format!("http://{address}/");
    for (version, said) in [
        ("--http1.1", "\r\n\r\nseven\nX-Sum: 7\r\n"),
        ("--http2-prior-knowledge", "\r\n\r\nseven\nx-sum: 7\r\n"),
    ] {
        let Some(found) = curl(&[version, "-H", "TE: trailers"], &url) else {
            return;
        };
        assert!(
            found.ends_with(said) || found.ends_with(&format!("{said}\r\n")),
            "{found}"
        );
        assert!(
            found.to_lowercase().contains("\r\ntrailer: x-sum\r\n"),
            "{found}"
        );
    }
}

/// Lets those in who say who they are.
fn guard(request: Request, next: &Next<'_>) -> Result<Answer, StatusCode> {
    match request.headers().contains_key("authorization") {
        true => Ok(next.run(request)),
        false => Err(StatusCode::UNAUTHORIZED),
    }
}

fn a_body_that_is_too_long_counts_where_its_client_hears_of_that(choice: DriverChoice) {
    let short = routing::post(|body: String| body).body_bytes_max(10);
    let router = Router::new().route("/", short.layer(guard));
    let (server, address) = serve(choice, Http::service(router));
    let counted = || {
        let figures = server.handle().figures();
        let refusals = figures.listeners[0].refusals.iter();
        refusals.map(|(_, count)| count).sum::<u64>()
    };
    let asked = post("/", "more than ten bytes");
    let known = asked.replace("\r\nHost", "\r\nAuthorization: it is me\r\nHost");
    for (request, status, count) in [(&asked, 401, 0), (&known, 413, 1), (&asked, 401, 1)] {
        let reply = Client::connect(address).exchange(request);
        assert_eq!((reply.status, counted()), (status, count), "{request}");
    }
}
