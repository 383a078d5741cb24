//! The forms of a listing, in the simulation: what they store, and what they leave as it was.

use std::fs;
use std::path::Path;

use flatpath_files::{Files, Hidden, RootFiles, Rules, WriteOptions, Writing};
use flatpath_http::{Http, Router};
use flatpath_test::{Conditions, Reply, Requests, TestServer, each_seed};

const BOUNDARY: &str = "----of-a-form";
const SEEDS: u64 = 5;

/// A field with a file name, or without.
type Field<'a> = (&'a str, Option<&'a str>, &'a str);

fn form(fields: &[Field<'_>]) -> String {
    let mut form = String::new();
    for (name, file, content) in fields {
        let file = file
            .map(|it| format!("; filename=\"{it}\""))
            .unwrap_or_default();
        form += &format!(
            "--{BOUNDARY}\r\nContent-Disposition: form-data; name=\"{name}\"{file}\r\n\r\n\
             {content}\r\n"
        );
    }
    form + &format!("--{BOUNDARY}--\r\n")
}

fn file<'a>(name: &'a str, content: &'a str) -> Field<'a> {
    ("file", Some(name), content)
}

fn post(server: &mut TestServer, target: &str, headers: &[(&str, &str)], form: &str) -> Reply {
    let media = format!("multipart/form-data; boundary={BOUNDARY}");
    let mut request = server.post(target).header("content-type", &media);
    for (name, value) in headers {
        request = request.header(name, value);
    }
    request.body(form).send()
}

fn files(directory: &Path, bytes_max: u64) -> Files {
    let files = Files::open(directory).expect("a directory");
    files.writable(Writing::Allowed(WriteOptions {
        bytes_max,
        ..WriteOptions::default()
    }))
}

fn serve(seed: u64, directory: &Path) -> TestServer {
    let service = Http::service(files(directory, 1_000));
    TestServer::new(Conditions::rough(seed), service)
}

/// All that is in a directory, with the content of its files.
fn tree(directory: &Path) -> Vec<(String, String)> {
    let mut all: Vec<_> = fs::read_dir(directory)
        .expect("readable")
        .map(|entry| {
            let entry = entry.expect("an entry");
            let name = entry.file_name().into_string().expect("UTF-8");
            let content = fs::read_to_string(entry.path());
            (name, content.unwrap_or_else(|_| "a directory".into()))
        })
        .collect();
    all.sort();
    all
}

#[test]
fn sim_a_form_stores_its_files_and_leads_back_to_the_listing() {
    each_seed(SEEDS, |seed| {
        let directory = tempfile::tempdir().expect("temporary directory");
        fs::create_dir(directory.path().join("s b")).expect("made");
        let mut server = serve(seed, directory.path());
        let long = "x".repeat(900);
        let two = form(&[file("a.txt", "one"), file("\u{e9} %22 b", &long)]);
        let reply = post(&mut server, "/s%20b/?sort=size", &[], &two).expect(303);
        assert_eq!(reply.field("location"), Some("/s%20b/"));
        let stored = [
            ("a.txt".into(), "one".into()),
            ("\u{e9} %22 b".into(), long),
        ];
        assert_eq!(tree(&directory.path().join("s b")), stored);
        // A browser sends a file without a name where none is chosen.
        let chosen = form(&[file("", ""), file("c", "")]);
        post(&mut server, "/s%20b", &[], &chosen).expect(303);
        assert_eq!(tree(&directory.path().join("s b")).len(), 3);
        assert!(server.get("/s%20b/").expect(200).text().contains("./c\""));
    });
}

#[test]
fn sim_a_file_is_replaced_only_where_the_form_says_so() {
    each_seed(SEEDS, |seed| {
        let directory = tempfile::tempdir().expect("temporary directory");
        fs::write(directory.path().join("old"), "old").expect("written");
        let mut server = serve(seed, directory.path());
        // Whatever comes first: nothing of a form is stored unless all of it may be.
        for names in [["new", "old"], ["old", "new"]] {
            let two = form(&names.map(|name| file(name, "new")));
            let refused = post(&mut server, "/", &[], &two).expect(412);
            assert!(refused.text().contains("old:"), "{}", refused.text());
            assert_eq!(tree(directory.path()), [("old".into(), "old".into())]);
        }
        for replace in [("replace", None, ""), ("other", None, "yes")] {
            let empty = form(&[replace, file("old", "new")]);
            post(&mut server, "/", &[], &empty).expect(412);
        }
        let replaced = form(&[file("old", "new"), ("replace", None, "yes")]);
        post(&mut server, "/", &[], &replaced).expect(303);
        assert_eq!(tree(directory.path()), [("old".into(), "new".into())]);
    });
}

#[test]
fn sim_a_form_makes_a_directory() {
    each_seed(SEEDS, |seed| {
        let directory = tempfile::tempdir().expect("temporary directory");
        let mut server = serve(seed, directory.path());
        let make = |name: &str| form(&[("directory", None, name)]);
        let reply = post(&mut server, "/", &[], &make("a b")).expect(303);
        assert_eq!(reply.field("location"), Some("/a%20b/"));
        post(&mut server, "/a%20b/", &[], &make("c")).expect(303);
        let refused = post(&mut server, "/a%20b/", &[], &make("c")).expect(409);
        assert!(refused.text().contains("<a href=\"/a%20b/\">Back</a>"));
        let made = [("c".into(), "a directory".into())];
        assert_eq!(tree(&directory.path().join("a b")), made);
    });
}

#[test]
fn sim_what_a_put_may_not_write_no_form_does() {
    each_seed(SEEDS, |seed| {
        let directory = tempfile::tempdir().expect("temporary directory");
        let root = directory.path().join("root");
        fs::create_dir_all(root.join("sub")).expect("made");
        fs::create_dir_all(root.join(".well-known")).expect("made");
        fs::write(root.join("file"), "").expect("written");
        std::os::unix::fs::symlink("file", root.join("link")).expect("linked");
        let rules = Rules::new().root_files(RootFiles::Read);
        let service = Http::service(files(&root, 1_000).rules(rules));
        let mut server = TestServer::new(Conditions::rough(seed), service);
        let before = tree(&root);
        let long = "n".repeat(256);
        let all = "x".repeat(1_001);
        let many: Vec<String> = (0..33).map(|number| format!("f{number}")).collect();
        let many: Vec<Field<'_>> = many.iter().map(|name| file(name, "")).collect();
        for (target, fields, status) in [
            ("/", &[file("good", ""), file(".hidden", "")][..], 403),
            ("/", &[file("good", ""), file(".flatpath-put-1", "")], 403),
            ("/", &[file("good", ""), file("_headers", "")], 403),
            ("/", &[file("good", ""), file("..", "")], 400),
            ("/", &[file("good", ""), file("../x", "")], 400),
            ("/", &[file("good", ""), file("sub", "")], 409),
            ("/", &[file("good", ""), file("link", "")], 409),
            ("/", &[file("good", ""), file("good", "")], 409),
            ("/", &[file("good", ""), file(&long, "")], 414),
            ("/", &[file("good", ""), file("long", &all)], 413),
            ("/", &[file("good", ""), ("directory", None, "d")], 400),
            ("/", &[("replace", None, "yes")], 400),
            ("/", &[("directory", None, "")], 400),
            ("/", &[("directory", None, ".")], 400),
            ("/", &[("directory", None, "..")], 400),
            ("/", &[("directory", None, "a/b")], 400),
            ("/", &[("directory", None, ".git")], 403),
            ("/", &[("directory", None, ".flatpath-uploads")], 403),
            ("/", &[("directory", None, "_redirects")], 403),
            ("/", &[("directory", None, "link")], 409),
            ("/", &[("directory", None, &long)], 413),
            ("/", &many[..], 413),
            ("/none/", &[file("good", "")], 409),
            ("/file", &[file("good", "")], 409),
            ("/.well-known/", &[file("good", "")], 403),
            ("/../", &[file("good", "")], 400),
        ] {
            let reply = post(&mut server, target, &[], &form(fields));
            assert_eq!(
                reply.status,
                status,
                "{target} {fields:?}: {}",
                reply.text()
            );
            assert_eq!(tree(&root), before, "{target} {fields:?}");
            assert!(!root.join("sub/good").exists() && !directory.path().join("x").exists());
        }
    });
}

#[test]
fn sim_a_form_of_another_site_writes_nothing_though_the_listener_admits_it() {
    each_seed(SEEDS, |seed| {
        let directory = tempfile::tempdir().expect("temporary directory");
        let mut server = serve(seed, directory.path());
        let one = form(&[file("a", "")]);
        for headers in [
            &[("origin", "http://evil.example")][..],
            &[("origin", "null")],
            &[("sec-fetch-site", "cross-site")],
            &[
                ("sec-fetch-site", "same-site"),
                ("origin", "http://b.example"),
            ],
        ] {
            post(&mut server, "/", headers, &one).expect(403);
            assert_eq!(tree(directory.path()), [], "{headers:?}");
        }
        post(&mut server, "/", &[("sec-fetch-site", "same-origin")], &one).expect(303);
    });
}

#[test]
fn sim_a_form_that_breaks_off_or_is_none_leaves_nothing() {
    each_seed(SEEDS, |seed| {
        let directory = tempfile::tempdir().expect("temporary directory");
        let mut server = serve(seed, directory.path());
        let whole = form(&[file("a", "content"), file("b", "more")]);
        for end in [whole.len() / 4, whole.len() / 2, whole.len() - 4] {
            // Its end is missing, and the body is complete.
            let reply = post(&mut server, "/", &[], &whole[..end]);
            assert_eq!(reply.status, 400, "{end}");
            // Its end is missing, and its client is gone.
            let client = server.connect();
            let head = format!(
                "POST / HTTP/1.1\r\nHost: h\r\nContent-Type: multipart/form-data; \
                 boundary={BOUNDARY}\r\nContent-Length: {}\r\n\r\n",
                whole.len()
            );
            client.write(format!("{head}{}", &whole[..end]).as_bytes());
            server.settle();
            client.vanish();
            server.settle();
        }
        assert_eq!(tree(directory.path()), []);
        let plain = server.post("/").header("content-type", "text/plain");
        assert_eq!(
            plain.body("x").send().status,
            412,
            "that is for uploads that resume"
        );
        let named = server
            .post("/")
            .header("content-type", "multipart/form-data");
        assert_eq!(named.body("x").send().status, 400, "it has no boundary");
        assert_eq!(tree(directory.path()), []);
    });
}

#[test]
fn sim_where_nothing_may_be_written_there_is_no_form() {
    each_seed(SEEDS, |seed| {
        let directory = tempfile::tempdir().expect("temporary directory");
        fs::create_dir(directory.path().join(".well-known")).expect("made");
        fs::write(directory.path().join("a"), "").expect("written");
        let read_only = Files::open(directory.path()).expect("a directory");
        let writable = files(directory.path(), 1_000);
        let all = files(directory.path(), 1_000).hidden(Hidden::Served);
        let router = Router::new()
            .nest_service("/read", read_only)
            .nest_service("/write", writable)
            .nest_service("/all", all);
        let mut server = TestServer::new(Conditions::rough(seed), Http::service(router));
        for (target, has_form) in [
            ("/read/", false),
            ("/write/", true),
            ("/write/.well-known/", false),
            ("/all/.well-known/", true),
        ] {
            let page = server.get(target).expect(200);
            let forms = page.text().matches("method=\"post\"").count();
            assert_eq!(forms, if has_form { 2 } else { 0 }, "{target}");
            let policy = page.field("content-security-policy").expect("a policy");
            assert_eq!(policy.contains("connect-src 'self'"), has_form, "{target}");
        }
        post(&mut server, "/read/", &[], &form(&[file("b", "")])).expect(405);
        // The way back has the prefix.
        let reply = post(
            &mut server,
            "/write/",
            &[],
            &form(&[("directory", None, "d")]),
        );
        assert_eq!(reply.expect(303).field("location"), Some("/write/d/"));
    });
}
