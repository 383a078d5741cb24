//! Forms with files, whole and streamed, as clients see them, in the simulation.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use flatpath_http::http::StatusCode;
use flatpath_http::multipart::{FieldHead, MultipartLimits, MultipartUpload};
use flatpath_http::{
    Answer, Either, Form, Http, Multipart, Next, Request, Router, Upload, routing,
};
use flatpath_test::{Conditions, TestServer, each_seed};
use serde::Deserialize;

use crate::extractors::{FORM, ask, last, request};

const FILES: &str = "multipart/form-data; boundary=\"a b\"";

/// A form of fields with these names, which are files if they say so, and contents.
fn form(fields: &[(&str, &str)]) -> String {
    let head = "Content-Disposition: form-data; name=";
    let fields = fields.iter();
    let fields = fields.map(|(name, it)| format!("--a b\r\n{head}{name}\r\n\r\n{it}\r\n"));
    fields.collect::<String>() + "--a b--\r\n"
}

/// A writer that is counted while it is there, and does not take everything.
struct Kept {
    content: Vec<u8>,
    open: Arc<AtomicUsize>,
}

impl Kept {
    fn new(open: &Arc<AtomicUsize>) -> Self {
        open.fetch_add(1, Ordering::Relaxed);
        let (content, open) = (Vec::new(), Arc::clone(open));
        Self { content, open }
    }
}

impl Write for Kept {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match bytes.contains(&b'\0') {
            true => Err(io::ErrorKind::StorageFull.into()),
            false => self.content.write(&bytes[..bytes.len().min(1000)]),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// `name (file name): length of its content, and the number of its x`
fn shown(head: &FieldHead, content: &[u8]) -> String {
    let xs = content.iter().filter(|byte| **byte == b'x').count();
    let file_name = head.file_name().unwrap_or("-");
    format!("{} ({file_name}): {}, {xs}\n", head.name(), content.len())
}

/// Takes fields while they arrive, or whole.
fn routes(open: &Arc<AtomicUsize>) -> Router {
    let open = Arc::clone(open);
    let streamed = move |form: MultipartUpload| -> Upload {
        let open = Arc::clone(&open);
        let limits = MultipartLimits {
            total_bytes_max: 1 << 20,
            ..MultipartLimits::default()
        };
        form.limits(limits).to(
            move |field| match field.name() {
                "forbidden" => Err((StatusCode::FORBIDDEN, "not this\n")),
                "short" => {
                    field.limit(3);
                    Ok(Kept::new(&open))
                }
                _ => Ok(Kept::new(&open)),
            },
            |fields| {
                let fields = fields.iter();
                let fields = fields.map(|(head, kept)| shown(head, &kept.content));
                fields.collect::<String>()
            },
        )
    };
    let whole = |form: Multipart| {
        let fields = form.into_iter();
        let fields = fields.map(|field| shown(&field.head, &field.data));
        fields.collect::<String>()
    };
    Router::new()
        .route("/streamed", routing::post(streamed).streamed())
        .post("/whole", whole)
        .post("/maybe", |form: Option<Multipart>| {
            form.is_some().to_string()
        })
        .post("/text", |form: Multipart| {
            format!(
                "{:?} {:?}",
                form.text("b"),
                form.field("c").and_then(|it| it.text())
            )
        })
}

#[test]
fn sim_fields_are_taken_whole_and_streamed_alike() {
    let long = "x\r\n--a".repeat(40_000);
    let fields = [
        ("title", "x\r\n"),
        ("\"file\"; filename=\"../a; name=b\"", &*long),
        ("title", ""),
        ("empty; filename=\"\"", ""),
    ];
    let expected = "title (-): 3, 1\nfile (../a; name=b): 240000, 40000\ntitle (-): 0, 0\n\
                    empty (): 0, 0\n";
    for path in ["/streamed", "/whole"] {
        each_seed(10, |seed| {
            let open = Arc::default();
            let service = Http::service(routes(&open));
            let mut server = TestServer::new(Conditions::rough(seed), service);
            let client = server.connect();
            let sent = last(&request(&format!("POST {path}"), FILES, &form(&fields)));
            client.write(sent.as_bytes());
            let reply = server.read_to_end(&client);
            let reply = String::from_utf8(reply).expect("UTF-8");
            let (head, content) = reply.split_once("\r\n\r\n").expect("a head");
            assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
            assert_eq!(content, expected, "{path}");
            server.settle();
            assert_eq!(open.load(Ordering::Relaxed), 0);
        });
    }
}

#[test]
fn forms_that_do_not_fit_are_refused_by_what_is_wrong() {
    let open = Arc::default();
    let router = || routes(&open);
    let other = (
        415,
        "the content type of the body is not multipart/form-data\n",
    );
    let boundary = (400, "the content type of the form has no valid boundary\n");
    let broken_off = (400, "the form is malformed: its last boundary is missing\n");
    let whole = form(&[("n", "x")]);
    let many = form(&vec![("n", ""); 10_000]);
    let nul = form(&[("n\0", "")]);
    let bomb = format!("--a b\r\nA: {}", "a".repeat(100_000));
    let nested = format!("--a b\r\nContent-Type: {FILES}\r\n\r\n{whole}");
    for (of_type, body, (status, content)) in [
        ("", &*whole, other),
        (FORM, "n=x", other),
        ("multipart/mixed; boundary=a", &*whole, other),
        ("multipart/form-data", &*whole, boundary),
        (FILES, "", broken_off),
        (FILES, "n=x", broken_off),
        (FILES, &whole[..whole.len() - 4], broken_off),
        (FILES, &*many, (413, "the form has more than 128 fields\n")),
        (
            FILES,
            &*bomb,
            (413, "the headers of a field are longer than 8192 bytes\n"),
        ),
        (
            FILES,
            &*nul,
            (400, "the form is malformed: the headers of a field\n"),
        ),
        (
            FILES,
            &*nested,
            (
                400,
                "the form is malformed: a field without Content-Disposition\n",
            ),
        ),
    ] {
        for path in ["/whole", "/streamed"] {
            let reply = ask(&router, &format!("POST {path}"), of_type, body);
            assert_eq!(reply, (status, content.to_owned()), "{path} {of_type}");
        }
    }
}

#[test]
fn what_a_handler_refuses_or_cannot_write_ends_the_form() {
    let open = Arc::default();
    let router = || routes(&open);
    let whole = form(&[("n", "x")]);
    let asked = |fields: &[(&str, &str)]| ask(&router, "POST /streamed", FILES, &form(fields));
    let too_long = "the field \"short\" is longer than 3 bytes\n";
    assert_eq!(
        asked(&[("n", "long"), ("short", "long")]),
        (413, too_long.to_owned())
    );
    assert_eq!(asked(&[("short", "xxx")]).0, 200);
    assert_eq!(
        asked(&[("n", "x"), ("forbidden", "x")]),
        (403, "not this\n".to_owned())
    );
    assert_eq!(asked(&[("n", "x\0")]), (500, String::new()));
    let too_long = "the form is longer than 1048576 bytes\n".to_owned();
    assert_eq!(asked(&[("n", &"x".repeat(1 << 20))]), (413, too_long));
    assert_eq!(open.load(Ordering::Relaxed), 0, "what was opened is closed");
    // Two fields of a form may have one name; texts are UTF-8.
    let fields = form(&[("b", "é"), ("b", "2"), ("c", "")]);
    let reply = ask(&router, "POST /text", FILES, &fields);
    assert_eq!(reply, (200, "Some(\"é\") Some(\"\")".to_owned()));
    assert_eq!(
        ask(&router, "POST /maybe", "", ""),
        (200, "false".to_owned())
    );
    assert_eq!(
        ask(&router, "POST /maybe", FILES, &whole),
        (200, "true".to_owned())
    );
    assert_eq!(ask(&router, "POST /maybe", FORM, "n=x").0, 415);
}

#[test]
fn sim_a_form_that_breaks_off_closes_what_it_has_opened() {
    each_seed(20, |seed| {
        let open = Arc::default();
        let mut server = TestServer::new(Conditions::rough(seed), Http::service(routes(&open)));
        let body = form(&[("n", "x"), ("m", &"x".repeat(200_000))]);
        let sent = request("POST /streamed", FILES, &body);
        let client = server.connect();
        client.write(&sent.as_bytes()[..sent.len() - 100_000]);
        server.run_until(|| open.load(Ordering::Relaxed) == 2);
        client.shutdown_write();
        server.read_to_end(&client);
        server.settle();
        assert_eq!(open.load(Ordering::Relaxed), 0, "seed {seed}");
    });
}

#[derive(Deserialize)]
struct Note {
    title: String,
}

#[test]
fn a_form_is_one_of_two_and_layers_see_its_answer() {
    let note = |request: Request, next: &Next<'_>| -> ([(&'static str, &'static str); 1], Answer) {
        ([("x-seen", "yes")], next.run(request))
    };
    let either = |form: Either<Multipart, Form<Note>>| match form {
        Either::Left(form) => form.text("title").unwrap_or_default().to_owned(),
        Either::Right(Form(note)) => note.title,
    };
    let open = Arc::default();
    let router = || {
        Router::new()
            .post("/either", either)
            .merge(routes(&open))
            .layer(note)
    };
    let files = form(&[("title", "a")]);
    assert_eq!(
        ask(&router, "POST /either", FILES, &files),
        (200, "a".to_owned())
    );
    assert_eq!(
        ask(&router, "POST /either", FORM, "title=b"),
        (200, "b".to_owned())
    );
    assert_eq!(ask(&router, "POST /either", FILES, "x").0, 400);
    assert_eq!(ask(&router, "POST /either", "text/plain", "x").0, 415);
    for body in [&*files, "x"] {
        let sent = last(&request("POST /streamed", FILES, body));
        let mut server = TestServer::new(Conditions::calm(1), Http::service(router()));
        let client = server.connect();
        client.write(sent.as_bytes());
        let reply = String::from_utf8(server.read_to_end(&client)).expect("UTF-8");
        assert!(
            reply.to_ascii_lowercase().contains("\r\nx-seen: yes\r\n"),
            "{reply}"
        );
    }
}
