//! What handlers take through serde, and how a request is refused that does not fit, as clients see
//! it, in the simulation.

use std::collections::BTreeMap;

use flatpath_http::http::StatusCode;
use flatpath_http::{
    Answer, Extension, Form, FormRejection, Http, Json, JsonRejection, Next, Path, PathRejection,
    Query, Request, Router,
};
use flatpath_test::{Conditions, TestServer, each_seed};
use serde::{Deserialize, Serialize};

pub(crate) const FORM: &str = "application/x-www-form-urlencoded";

/// A connection that sends this in several parts, and is closed by the last reply.
pub(crate) fn ask_under(conditions: Conditions, router: Router, requests: &[String]) -> String {
    let mut server = TestServer::new(conditions, Http::service(router));
    let client = server.connect();
    for request in requests {
        client.write(request.as_bytes());
    }
    String::from_utf8(server.read_to_end(&client)).expect("UTF-8")
}

/// One request with a body, and its content type unless that is empty.
pub(crate) fn request(line: &str, of_type: &str, body: &str) -> String {
    let of_type = match of_type {
        "" => String::new(),
        of_type => format!("Content-Type: {of_type}\r\n"),
    };
    let length = body.len();
    format!("{line} HTTP/1.1\r\nHost: h\r\n{of_type}Content-Length: {length}\r\n\r\n{body}")
}

pub(crate) fn last(request: &str) -> String {
    request.replacen("Host: h\r\n", "Host: h\r\nConnection: close\r\n", 1)
}

/// Status and content of the reply.
pub(crate) fn ask(
    router: &dyn Fn() -> Router,
    line: &str,
    of_type: &str,
    body: &str,
) -> (u16, String) {
    let sent = last(&request(line, of_type, body));
    let reply = ask_under(Conditions::rough(11), router(), &[sent]);
    let (head, content) = reply.split_once("\r\n\r\n").expect("a whole head");
    (head[9..12].parse().expect("a status"), content.to_owned())
}

#[derive(Debug, Deserialize, Serialize)]
struct Order {
    name: String,
    items: Vec<Item>,
}

#[derive(Debug, Deserialize, Serialize)]
struct Item {
    cups: u32,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Kind {
    Tea,
}

fn orders() -> Router {
    Router::new()
        .post("/orders", |Json(order): Json<Order>| Json(order))
        .post("/any", |Json(any): Json<serde_json::Value>| Json(any))
        .post("/maybe", |order: Option<Json<Order>>| {
            order.is_some().to_string()
        })
        .post(
            "/result",
            |order: Result<Json<Order>, JsonRejection>| match order {
                Err(refused) => (StatusCode::IM_A_TEAPOT, refused.to_string()),
                Ok(Json(order)) => (StatusCode::OK, order.name),
            },
        )
}

#[test]
fn json_is_taken_and_given() {
    let order = r#"{"name":"é","items":[{"cups":2}]}"#;
    for of_type in [
        "application/json",
        "APPLICATION/JSON; charset=utf-8",
        "application/a+json",
    ] {
        assert_eq!(
            ask(&orders, "POST /orders", of_type, order),
            (200, order.to_owned())
        );
    }
    let sent = last(&request("POST /orders", "application/json", order));
    let reply = ask_under(Conditions::calm(1), orders(), &[sent]);
    assert!(
        reply.contains("\r\nContent-Type: application/json\r\n"),
        "{reply}"
    );
}

#[test]
fn json_that_does_not_fit_is_refused_by_what_is_wrong() {
    let other_type = "the content type of the body is not application/json\n";
    for (of_type, body, status, content) in [
        ("", "{}", 415, other_type),
        ("text/plain", "{}", 415, other_type),
        (
            "application/json",
            "{\"name\": tea}",
            400,
            "the body is not JSON: expected ident at line 1 column 11\n",
        ),
        (
            "application/json",
            "",
            400,
            "the body is not JSON: EOF while parsing a value at line 1 column 0\n",
        ),
        (
            "application/json",
            "{\"name\":\"a\",\"items\":[]} x",
            400,
            "the body is not JSON: trailing characters at line 1 column 25\n",
        ),
        (
            "application/json",
            "{\"name\":\"a\",\"items\":[{\"cups\":1},{\"cups\":-1}]}",
            422,
            "the body does not fit: items[1].cups: invalid value: integer `-1`, expected u32 \
             at line 1 column 42\n",
        ),
        (
            "application/json",
            "{\"name\":\"a\"}",
            422,
            "the body does not fit: missing field `items` at line 1 column 12\n",
        ),
        (
            "application/json",
            "[]",
            422,
            "the body does not fit: invalid length 0, expected struct Order with 2 elements \
             at line 1 column 2\n",
        ),
    ] {
        let reply = ask(&orders, "POST /orders", of_type, body);
        assert_eq!(reply, (status, content.to_owned()), "{of_type} {body}");
    }
    let nested = "[".repeat(100_000);
    let reply = ask(&orders, "POST /any", "application/json", &nested);
    let reason = "the body is not JSON: recursion limit exceeded at line 1 column 128\n";
    assert_eq!(reply, (400, reason.to_owned()));
    let bytes = "POST /orders HTTP/1.1\r\nHost: h\r\nContent-Length: 9999999\r\n\r\n".to_owned();
    let refused = ask_under(Conditions::calm(1), orders(), &[bytes]);
    assert!(refused.starts_with("HTTP/1.1 413 "), "{refused}");
}

#[test]
fn a_handler_may_decide_about_json_by_itself() {
    assert_eq!(
        ask(&orders, "POST /maybe", "", ""),
        (200, "false".to_owned())
    );
    assert_eq!(ask(&orders, "POST /maybe", "text/plain", "").0, 415);
    assert_eq!(ask(&orders, "POST /maybe", "application/json", "{").0, 400);
    let order = r#"{"name":"a","items":[]}"#;
    assert_eq!(
        ask(&orders, "POST /maybe", "application/json", order),
        (200, "true".to_owned())
    );
    assert_eq!(
        ask(&orders, "POST /result", "application/json", order),
        (200, "a".to_owned())
    );
    let (status, reason) = ask(&orders, "POST /result", "application/json", "{");
    assert!(
        status == 418 && reason.starts_with("the body is not JSON: "),
        "{reason}"
    );
}

#[derive(Debug, Deserialize)]
struct Page {
    after: Option<u64>,
    #[serde(default)]
    tag: Vec<String>,
}

fn pages() -> Router {
    let of_form = |form: Result<Form<Page>, FormRejection>| match form {
        Ok(Form(page)) => Ok(format!("{:?} {:?}", page.after, page.tag)),
        Err(refused) => Err(refused),
    };
    Router::new()
        .get("/pages", |Query(page): Query<Page>| {
            format!("{:?} {:?}", page.after, page.tag)
        })
        .get("/all", |Query(all): Query<BTreeMap<String, String>>| {
            format!("{all:?}")
        })
        .get("/maybe", |page: Option<Query<Page>>| {
            page.is_some().to_string()
        })
        .get("/form", of_form)
        .post("/form", of_form)
        .any("/maybe-form", |page: Option<Form<Page>>| {
            page.is_some().to_string()
        })
}

#[test]
fn queries_and_forms_are_taken() {
    let page = "Some(7) [\"a b\", \"é&\"]".to_owned();
    let query = "after=7&tag=a+b&tag=%C3%A9%26&more=x";
    for line in [format!("GET /pages?{query}"), format!("GET /form?{query}")] {
        assert_eq!(ask(&pages, &line, "", ""), (200, page.clone()), "{line}");
    }
    assert_eq!(
        ask(&pages, "POST /form?after=x", FORM, query),
        (200, page.clone())
    );
    let with_charset = format!("{FORM}; charset=utf-8");
    assert_eq!(ask(&pages, "POST /form", &with_charset, query), (200, page));
    assert_eq!(
        ask(&pages, "GET /pages", "", ""),
        (200, "None []".to_owned())
    );
    assert_eq!(
        ask(&pages, "GET /all?b=1&a", "", ""),
        (200, r#"{"a": "", "b": "1"}"#.to_owned())
    );
    for (line, of_type, is_there) in [
        ("GET /maybe", "", "false"),
        ("GET /maybe?", "", "true"),
        ("GET /maybe-form", "", "false"),
        ("GET /maybe-form?tag=a", "", "true"),
        ("PUT /maybe-form?tag=a", "", "false"),
        ("PUT /maybe-form", FORM, "true"),
    ] {
        assert_eq!(
            ask(&pages, line, of_type, ""),
            (200, is_there.to_owned()),
            "{line}"
        );
    }
}

#[test]
fn queries_and_forms_that_do_not_fit_are_refused_by_their_field() {
    let number = "after: invalid digit found in string\n";
    for (line, of_type, body, status, content) in [
        (
            "GET /pages?after=x",
            "",
            "",
            400,
            format!("the query does not fit: {number}"),
        ),
        (
            "GET /maybe?after=x",
            "",
            "",
            400,
            format!("the query does not fit: {number}"),
        ),
        (
            "GET /form?after=x",
            "",
            "",
            400,
            format!("the query does not fit: {number}"),
        ),
        (
            "POST /form",
            FORM,
            "after=x",
            422,
            format!("the form does not fit: {number}"),
        ),
        (
            "POST /form",
            "",
            "",
            415,
            format!("the content type of the body is not {FORM}\n"),
        ),
        (
            "PUT /maybe-form",
            "application/json",
            "{}",
            415,
            format!("the content type of the body is not {FORM}\n"),
        ),
    ] {
        assert_eq!(
            ask(&pages, line, of_type, body),
            (status, content),
            "{line}"
        );
    }
}

#[derive(Debug, Deserialize)]
struct Cell {
    row: u8,
    column: char,
}

#[derive(Debug, Deserialize)]
struct Percent(u8);

#[derive(Debug, Deserialize)]
struct Wrong {
    #[expect(dead_code, reason = "the route has no such parameter")]
    name: String,
}

fn paths() -> Router {
    let cell = |Path(Cell { row, column }): Path<Cell>| format!("{row} {column}");
    Router::new()
        .get("/one/{number}", |Path(number): Path<i64>| {
            number.to_string()
        })
        .get("/text/{text}", |Path(text): Path<String>| text)
        .get("/maybe/{number}", |Path(number): Path<Option<u8>>| {
            format!("{number:?}")
        })
        .get("/new/{number}", |Path(Percent(number)): Path<Percent>| {
            number.to_string()
        })
        .get("/kind/{kind}", |Path(kind): Path<Kind>| format!("{kind:?}"))
        .get("/cell/{row}/{column}", cell)
        .get("/pair/{a}/{b}", |Path(pair): Path<(f64, bool)>| {
            format!("{pair:?}")
        })
        .get("/list/{a}/{b}", |Path(list): Path<Vec<String>>| {
            list.join(",")
        })
        .get("/map/{a}/{b}", |Path(map): Path<BTreeMap<String, u8>>| {
            format!("{map:?}")
        })
        .get("/none", |path: Option<Path<u8>>| format!("{path:?}"))
        .get("/some/{a}", |path: Option<Path<u8>>| format!("{path:?}"))
        .get("/result/{a}", |path: Result<Path<u8>, PathRejection>| {
            path.is_err().to_string()
        })
        .get("/wrong/none", |Path(number): Path<u8>| number.to_string())
        .get("/wrong/two/{a}/{b}", |Path(number): Path<u8>| {
            number.to_string()
        })
        .get(
            "/wrong/three/{a}/{b}",
            |Path((a, _, _)): Path<(u8, u8, u8)>| a.to_string(),
        )
        .get("/wrong/name/{a}", |Path(wrong): Path<Wrong>| {
            format!("{wrong:?}")
        })
}

#[test]
fn parameters_of_a_path_are_taken() {
    for (path, content) in [
        ("/one/-7", "-7"),
        ("/text/a%20b%2Fc%C3%A9", "a b/cé"),
        ("/maybe/7", "Some(7)"),
        ("/new/100", "100"),
        ("/kind/tea", "Tea"),
        ("/cell/7/%C3%A9", "7 é"),
        ("/pair/2.5/true", "(2.5, true)"),
        ("/list/b/a", "b,a"),
        ("/map/2/1", "{\"a\": 2, \"b\": 1}"),
        ("/none", "None"),
        ("/some/7", "Some(Path(7))"),
        ("/result/x", "true"),
    ] {
        let reply = ask(&paths, &format!("GET {path}"), "", "");
        assert_eq!(reply, (200, content.to_owned()), "{path}");
    }
}

#[test]
fn parameters_that_do_not_fit_are_refused_by_their_name() {
    let refused = |reason: &str| (400, format!("the path does not fit: {reason}\n"));
    for (path, reason) in [
        (
            "/one/a%20b",
            "number: \"a b\": invalid digit found in string",
        ),
        (
            "/some/256",
            "a: \"256\": number too large to fit in target type",
        ),
        (
            "/kind/cocoa",
            "kind: unknown variant `cocoa`, expected `tea`",
        ),
        (
            "/cell/7/ab",
            "column: \"ab\": too many characters in string",
        ),
        (
            "/pair/2.5/yes",
            "b: \"yes\": provided string was not `true` or `false`",
        ),
        ("/map/1/b", "b: \"b\": invalid digit found in string"),
    ] {
        assert_eq!(
            ask(&paths, &format!("GET {path}"), "", ""),
            refused(reason),
            "{path}"
        );
    }
    for path in [
        "/wrong/none",
        "/wrong/two/1/2",
        "/wrong/three/1/2",
        "/wrong/name/1",
    ] {
        let reply = ask(&paths, &format!("GET {path}"), "", "");
        assert_eq!(reply, (500, String::new()), "{path}");
    }
}

#[derive(Clone)]
struct User(String);

#[test]
fn a_layer_hands_values_to_handlers() {
    let identify = |mut request: Request, next: &Next<'_>| -> Answer {
        request.extensions_mut().insert(User("me".to_owned()));
        next.run(request)
    };
    let router = || {
        Router::new()
            .get(
                "/{id}",
                |Extension(User(name)): Extension<User>, Path(id): Path<u8>| format!("{name} {id}"),
            )
            .layer(identify)
            .get("/outside", |Extension(User(name)): Extension<User>| name)
    };
    assert_eq!(ask(&router, "GET /7", "", ""), (200, "me 7".to_owned()));
    assert_eq!(ask(&router, "GET /outside", "", ""), (500, String::new()));
}

#[test]
fn sim_what_fits_and_what_does_not_is_answered_in_order() {
    each_seed(20, |seed| {
        let mut sent = Vec::new();
        for cups in 0..8 {
            let order = format!("{{\"name\":\"a\",\"items\":[{{\"cups\":{}}}]}}", cups - 4);
            sent.push(request("POST /orders", "application/json", &order));
        }
        let end = sent.pop().expect("the last");
        sent.push(last(&end));
        let replies = ask_under(Conditions::rough(seed), orders(), &sent);
        let statuses = replies.split("HTTP/1.1 ").skip(1).map(|reply| &reply[..3]);
        let statuses: Vec<&str> = statuses.collect();
        assert_eq!(
            statuses,
            ["422", "422", "422", "422", "200", "200", "200", "200"]
        );
    });
}
