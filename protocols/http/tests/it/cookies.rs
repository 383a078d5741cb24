//! Cookies, typed headers and problems as clients see them, in the simulation.

use std::sync::Arc;

use flatpath_http::cookies::{CookieJar, HasKeys, Keys, PrivateJar, SignedJar};
use flatpath_http::headers::UserAgent;
use flatpath_http::http::StatusCode;
use flatpath_http::{
    Http, Json, JsonRejection, MultipartUpload, Path, Problem, Request, Router, State, TypedHeader,
    Upload, routing,
};
use flatpath_test::{Conditions, TestServer};
use serde_json::{Value, json};

use crate::extractors::{ask, ask_under, last, request};

struct App {
    keys: Keys,
    name: &'static str,
}

impl HasKeys for App {
    fn keys(&self) -> &Keys {
        &self.keys
    }
}

fn sessions(keys: &Keys) -> Router {
    let log_in = |signed: SignedJar, private: PrivateJar, plain: CookieJar| {
        let plain = plain.add(("theme", "dark"));
        (
            signed.add(("user", "bob")),
            (private.add(("cart", "tea")), (plain, "in\n")),
        )
    };
    let show = |signed: SignedJar, private: PrivateJar, State(app): State<Arc<App>>| {
        let (user, cart) = (signed.value("user"), private.value("cart"));
        format!("{}: {user:?} {cart:?}\n", app.name)
    };
    let (keys, name) = (keys.clone(), "app");
    Router::new()
        .post("/", log_in)
        .route("/", routing::get(show).inline())
        .with_state(Arc::new(App { keys, name }))
}

/// The cookies of a reply, as a browser sends them back.
fn cookies(reply: &str) -> Vec<String> {
    let lines = reply.lines();
    let cookies = lines.filter_map(|line| line.strip_prefix("Set-Cookie: "));
    let cookies = cookies.map(|line| line.split(';').next().expect("a cookie").to_owned());
    cookies.collect()
}

#[test]
fn sim_sessions_are_kept_by_the_client_and_cannot_be_changed() {
    let keys = Keys::random();
    let sent = last(&request("POST /", "", ""));
    let reply = ask_under(Conditions::rough(3), sessions(&keys), &[sent]);
    let kept = cookies(&reply);
    assert_eq!(kept.len(), 3, "{reply}");
    let shown = |line: &str, keys: &Keys| {
        let sent = last(&request("GET /", "", ""));
        let sent = sent.replace("Host: h\r\n", &format!("Host: h\r\nCookie: {line}\r\n"));
        let reply = ask_under(Conditions::rough(4), sessions(keys), &[sent]);
        reply.split("\r\n\r\n").last().expect("content").to_owned()
    };
    let line = kept.join("; ");
    assert_eq!(shown(&line, &keys), "app: Some(\"bob\") Some(\"tea\")\n");
    let nothing = "app: None None\n";
    assert_eq!(
        shown(&line.replace("bob", "eve"), &keys),
        "app: None Some(\"tea\")\n"
    );
    assert_eq!(shown(&line, &Keys::random()), nothing);
    assert_eq!(shown("user=bob; cart=tea", &keys), nothing);
    // One name's cookie is not another's.
    let value = |name: &str| {
        let found = kept
            .iter()
            .find_map(|it| it.strip_prefix(&format!("{name}=")));
        found.expect("there").to_owned()
    };
    let swapped = format!("user={}; cart={}", value("cart"), value("user"));
    assert_eq!(shown(&swapped, &keys), nothing);
}

#[test]
fn a_typed_header_is_taken_or_refused() {
    let router = || {
        Router::new()
            .get("/", |TypedHeader(agent): TypedHeader<UserAgent>| {
                agent.to_string()
            })
            .get("/maybe", |agent: Option<TypedHeader<UserAgent>>| {
                agent.is_some().to_string()
            })
    };
    let missing = "the header user-agent is missing\n".to_owned();
    assert_eq!(ask(&router, "GET /", "", ""), (400, missing));
    assert_eq!(
        ask(&router, "GET /maybe", "", ""),
        (200, "false".to_owned())
    );
    let sent = last(&request("GET /", "", "")).replace("Host: h", "Host: h\r\nUser-Agent: me/1");
    let reply = ask_under(Conditions::calm(1), router(), &[sent]);
    assert!(reply.ends_with("\r\n\r\nme/1"), "{reply}");
}

/// A router with all kinds of errors.
fn errors() -> Router {
    let order = |order: Result<Json<u8>, JsonRejection>| -> Result<String, Problem> {
        let Json(order) = order?;
        Ok(order.to_string())
    };
    let upload = |form: MultipartUpload| -> Upload {
        form.to(|_| Ok::<_, StatusCode>(Vec::new()), |_| "taken\n")
    };
    let panics = |_: Request| -> &'static str { panic!("as a test wants it") };
    Router::new()
        .post("/alone", order)
        .get("/number/{a}", |Path(number): Path<u8>| number.to_string())
        .get("/page", || {
            (StatusCode::NOT_FOUND, flatpath_http::Html("<p>"))
        })
        .get("/panics", panics)
        .route("/form", routing::post(upload).streamed())
        .layer(Problem::layer)
        .post("/without", order)
}

#[test]
fn errors_are_problems_whoever_finds_them() {
    let json = "application/json";
    let form = "multipart/form-data; boundary=b";
    for (line, of_type, body, status, title, detail) in [
        (
            "POST /alone",
            json,
            "256",
            422,
            "Unprocessable Entity",
            "the body does not fit: invalid value: integer `256`, expected u8 at line 1 column 3",
        ),
        (
            "POST /without",
            "",
            "",
            415,
            "Unsupported Media Type",
            "the content type of the body is not application/json",
        ),
        (
            "GET /number/x",
            "",
            "",
            400,
            "Bad Request",
            "the path does not fit: a: \"x\": invalid digit found in string",
        ),
        (
            "GET /nothing",
            "",
            "",
            404,
            "Not Found",
            "there is nothing here",
        ),
        (
            "GET /panics",
            "",
            "",
            500,
            "Internal Server Error",
            "The request could not be handled.",
        ),
        (
            "POST /form",
            form,
            "--b\r\n",
            400,
            "Bad Request",
            "the form is malformed: its last boundary is missing",
        ),
    ] {
        let (found, content) = ask(&errors, line, of_type, body);
        let content: Value = serde_json::from_str(&content).expect("JSON");
        let expected = json!({"status": status, "title": title, "detail": detail});
        assert_eq!((found, content), (status, expected), "{line}");
    }
}

#[test]
fn what_is_no_error_or_has_a_page_is_left_alone() {
    let form = "multipart/form-data; boundary=b";
    assert_eq!(ask(&errors, "GET /page", "", ""), (404, "<p>".to_owned()));
    assert_eq!(
        ask(&errors, "POST /form", form, "--b--"),
        (200, "taken\n".to_owned())
    );
    let mut server = TestServer::new(Conditions::calm(1), Http::service(errors()));
    let client = server.connect();
    client.write(last(&request("PUT /page", "", "")).as_bytes());
    let reply = String::from_utf8(server.read_to_end(&client)).expect("UTF-8");
    assert!(
        reply.contains("\r\nAllow: GET, HEAD, OPTIONS\r\n"),
        "{reply}"
    );
    assert!(
        reply.contains("\r\nContent-Type: application/problem+json\r\n"),
        "{reply}"
    );
}
