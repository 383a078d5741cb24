//! Lists, paths, one of two, and the host of a request, as clients see them, in the simulation.

use flatpath_http::Bytes;
use flatpath_http::{Either, Form, Host, Http, Json, Path, Query, Router};
use flatpath_test::{Conditions, TestServer};
use serde::{Deserialize, Serialize};

use crate::extractors::{FORM, ask, ask_under};

#[derive(Debug, Deserialize, Serialize)]
struct Item {
    cups: u32,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Kind {
    Tea,
}

#[derive(Debug, Deserialize)]
struct Percent(u8);

#[derive(Debug, Deserialize)]
struct Lists {
    #[serde(default)]
    id: Vec<u32>,
    #[serde(default)]
    kind: Vec<Kind>,
    name: Option<String>,
    sort: Option<Vec<String>>,
}

#[test]
fn lists_of_queries_and_forms_are_filled_by_repeated_names() {
    let show = |lists: Lists| {
        let Lists {
            id,
            kind,
            name,
            sort,
        } = lists;
        format!("{id:?} {kind:?} {name:?} {sort:?}")
    };
    let router = || {
        Router::new()
            .get("/", move |Query(lists): Query<Lists>| show(lists))
            .post("/", move |Form(lists): Form<Lists>| show(lists))
    };
    for (fields, shown) in [
        ("", "[] [] None None"),
        ("id=7", "[7] [] None None"),
        (
            "id=7&name=a&id=8&kind=tea&kind=tea",
            "[7, 8] [Tea, Tea] Some(\"a\") None",
        ),
        ("sort=a", "[] [] None Some([\"a\"])"),
        ("name=", "[] [] Some(\"\") None"),
        // The names of other frameworks are names like any other.
        ("id[]=7&id%5B0%5D=8", "[] [] None None"),
    ] {
        let by_query = ask(&router, &format!("GET /?{fields}"), "", "");
        assert_eq!(by_query, (200, shown.to_owned()), "{fields}");
        let by_form = ask(&router, "POST /", FORM, fields);
        assert_eq!(by_form, (200, shown.to_owned()), "{fields}");
    }
    for (fields, reason) in [
        ("id=7&id=x", "id[1]: invalid digit found in string"),
        (
            "kind=tea&kind=cocoa",
            "kind[1]: unknown variant `cocoa`, expected `tea`",
        ),
        ("name=a&name=b", "name: unsupported value"),
    ] {
        let reply = ask(&router, "POST /", FORM, fields);
        let refused = format!("the form does not fit: {reason}\n");
        assert_eq!(reply, (422, refused), "{fields}");
    }
}

#[derive(Debug, Deserialize)]
struct Place(u8, Kind);

#[derive(Debug, Deserialize)]
struct Named {
    row: Percent,
    kind: Kind,
    #[serde(default)]
    missing: Option<u8>,
}

#[test]
fn paths_are_taken_into_structs_tuples_and_newtypes() {
    let router = || {
        Router::new()
            .get(
                "/place/{row}/{kind}",
                |Path(Place(row, kind)): Path<Place>| format!("{row} {kind:?}"),
            )
            .get("/named/{kind}/{row}", |Path(named): Path<Named>| {
                format!("{} {:?} {:?}", named.row.0, named.kind, named.missing)
            })
            .get(
                "/mixed/{row}/{kind}",
                |Path((row, kind)): Path<(Percent, Kind)>| format!("{} {kind:?}", row.0),
            )
            .get("/list/{a}/{b}", |Path(pairs): Path<Vec<(String, u8)>>| {
                format!("{pairs:?}")
            })
    };
    for (path, content) in [
        ("/place/7/tea", "7 Tea"),
        ("/named/tea/7", "7 Tea None"),
        ("/mixed/7/tea", "7 Tea"),
        ("/list/1/2", "[(\"a\", 1), (\"b\", 2)]"),
    ] {
        let reply = ask(&router, &format!("GET {path}"), "", "");
        assert_eq!(reply, (200, content.to_owned()), "{path}");
    }
    let reply = ask(&router, "GET /list/1/x", "", "");
    let refused = "the path does not fit: b: \"x\": invalid digit found in string\n";
    assert_eq!(reply, (400, refused.to_owned()));
}

#[test]
fn either_takes_what_is_there_and_refuses_as_the_one_that_fits() {
    let router = || {
        Router::new()
            .post("/", |either: Either<Json<Item>, Form<Item>>| match either {
                Either::Left(Json(item)) => Either::Left(Json(item)),
                Either::Right(Form(item)) => Either::Right(item.cups.to_string()),
            })
            .post(
                "/text",
                |either: Either<Either<Json<Item>, String>, Bytes>| match either {
                    Either::Left(Either::Left(Json(item))) => format!("json {}", item.cups),
                    Either::Left(Either::Right(text)) => format!("text {text}"),
                    Either::Right(bytes) => format!("bytes {}", bytes.len()),
                },
            )
            .get(
                "/head/{a}",
                |either: Either<Path<u8>, Query<Item>>| match either {
                    Either::Left(Path(number)) => format!("path {number}"),
                    Either::Right(Query(item)) => format!("query {}", item.cups),
                },
            )
    };
    let json = "application/json";
    let ok = |content: &str| (200, content.to_owned());
    assert_eq!(
        ask(&router, "POST /", json, "{\"cups\":2}"),
        ok("{\"cups\":2}")
    );
    assert_eq!(ask(&router, "POST /", FORM, "cups=2"), ok("2"));
    for (of_type, body, status, reason) in [
        (json, "{", 400, "the body is not JSON: "),
        (json, "{}", 422, "the body does not fit: "),
        (FORM, "cups=x", 422, "the form does not fit: cups: "),
        (
            "text/plain",
            "2",
            415,
            "the content type of the body is not application/x-www",
        ),
    ] {
        let (found, text) = ask(&router, "POST /", of_type, body);
        assert!(
            found == status && text.starts_with(reason),
            "{found} {text}"
        );
    }
    assert_eq!(
        ask(&router, "POST /text", json, "{\"cups\":2}"),
        ok("json 2")
    );
    assert_eq!(
        ask(&router, "POST /text", json, "{\"cups\""),
        ok("text {\"cups\"")
    );
    assert_eq!(ask(&router, "GET /head/7?cups=2", "", ""), ok("path 7"));
    assert_eq!(ask(&router, "GET /head/x?cups=2", "", ""), ok("query 2"));
    let (status, reason) = ask(&router, "GET /head/x?cups=x", "", "");
    assert!(
        status == 400 && reason.starts_with("the path does not fit: "),
        "{reason}"
    );
}

#[test]
fn a_body_that_is_refused_is_left_to_the_other() {
    let router = Router::new().post("/", |either: Either<String, Bytes>| match either {
        Either::Left(text) => text,
        Either::Right(bytes) => format!("{} bytes", bytes.len()),
    });
    let mut server = TestServer::new(Conditions::rough(3), Http::service(router));
    let client = server.connect();
    client.write(b"POST / HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Length: 2\r\n\r\n");
    client.write(b"\xff\xfe");
    assert!(server.read_to_end(&client).ends_with(b"\r\n\r\n2 bytes"));
}

#[test]
fn the_host_is_the_authority_that_was_admitted() {
    let router = || {
        let inner: Router = Router::new().get("/b", |Host(host): Host| host);
        Router::new()
            .get("/", |Host(host): Host| host)
            .get("/maybe", |host: Option<Host>| format!("{host:?}"))
            .nest_service("/a", inner)
    };
    let ask = |request: &str| ask_under(Conditions::rough(5), router(), &[request.to_owned()]);
    let end = "Connection: close\r\nX-Forwarded-Host: evil\r\n\r\n";
    for (request, content) in [
        (
            format!("GET / HTTP/1.1\r\nHost: a.example:80\r\n{end}"),
            "a.example:80",
        ),
        (
            format!("GET http://b.example/ HTTP/1.1\r\nHost: a.example\r\n{end}"),
            "b.example",
        ),
        (
            format!("GET http://b.example/a/b HTTP/1.1\r\nHost: a\r\n{end}"),
            "b.example",
        ),
        (format!("GET /a/b HTTP/1.1\r\nHost: a\r\n{end}"), "a"),
        (
            "GET / HTTP/1.0\r\n\r\n".to_owned(),
            "this request names no host\n",
        ),
        ("GET /maybe HTTP/1.0\r\n\r\n".to_owned(), "None"),
    ] {
        let reply = ask(&request);
        assert!(
            reply.ends_with(&format!("\r\n\r\n{content}")),
            "{request} {reply}"
        );
        let status = if content.starts_with("this") {
            " 400 "
        } else {
            " 200 "
        };
        assert!(reply.contains(status), "{reply}");
    }
}
