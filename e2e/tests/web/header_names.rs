//! Names of headers have one spelling over HTTP/1, whatever made the reply: `Content-Type`, and
//! `ETag` and `WWW-Authenticate` as RFCs have them.

use flatpath_testkit::reply::{Asked, Reply};
use flatpath_testkit::{Client, Driver, Launch, Server, Site, each_driver};

each_driver!(replies_of_every_kind_spell_the_names_of_headers_alike);

/// Whether each word of a name begins with a capital letter.
fn is_spelled(name: &str) -> bool {
    let mut words = name.split('-');
    words.all(|word| {
        word.starts_with(|first: char| first.is_ascii_uppercase() || first.is_ascii_digit())
    })
}

fn serve(driver: Driver) -> (Server, Site) {
    let site = Site::new()
        .with("users", flatpath_testkit::site::ADA)
        .with("root/file.txt", "contents ".repeat(400))
        .with("root/page.html", "<p>page")
        .with("root/sub/inside", "inside")
        .with("root/lost.html", "lost");
    let one = |name: &str, rules: &str| {
        format!("[[site]]\nnames = \"{name}.example\"\ndir = \"root\"\n{rules}\n")
    };
    let sites = [
        one("secret", "auth-file = \"users\""),
        one("slow", "rate = \"1/1h\""),
        one(
            "open",
            "writable = true\nput-max = \"1M\"\ncompress = \"gzip\"\n\
             archive = \"tar\"\n\
             clean-urls = true\nerror-pages = { 404 = \"/lost.html\" }\n\
             allow-origin = \"http://a.example\"\n\
             [[site.redirect]]\nfrom = \"/old\"\nto = \"/new\"\n\
             [[site.header]]\nset = { x-own-header = \"1\" }",
        ),
    ];
    let settings = format!(
        "http = \"127.0.0.1:0\"\nadmin = \"127.0.0.1:0\"\narchive = \"tar\"\n{}",
        sites.concat()
    );
    site.write("flatpath.toml", settings);
    (Launch::configured(driver, site.path()).start(), site)
}

/// Requests, their hosts, more of their heads, and the status of each reply.
const KINDS: &[(&str, &str, &str, u16)] = &[
    ("GET /file.txt", "open", "", 200),
    // From the cache.
    ("GET /file.txt", "open", "", 200),
    ("HEAD /file.txt", "open", "", 200),
    ("GET /file.txt", "open", "If-None-Match: *\r\n", 304),
    ("GET /file.txt", "open", "If-Match: \"none\"\r\n", 412),
    ("GET /file.txt", "open", "Range: bytes=0-3\r\n", 206),
    ("GET /file.txt", "open", "Range: bytes=0-3,9-11\r\n", 206),
    ("GET /file.txt", "open", "Range: bytes=9999-\r\n", 416),
    ("GET /file.txt", "open", "Accept-Encoding: gzip\r\n", 200),
    ("GET /", "open", "", 200),
    ("GET /", "open", "Accept: application/json\r\n", 200),
    ("GET /?archive=tar", "open", "", 200),
    ("GET /sub", "open", "", 301),
    ("GET /page.html", "open", "", 301),
    ("GET /old", "open", "", 301),
    ("GET /none", "open", "", 404),
    ("GET /none", "secret", "", 401),
    ("GET /none", "none", "", 421),
    ("GET /../a", "open", "", 400),
    ("BREW /file.txt", "open", "", 405),
    ("OPTIONS /file.txt", "open", "", 204),
    ("OPTIONS *", "open", "", 204),
    ("GET /file.txt", "slow", "", 200),
    ("GET /file.txt", "slow", "", 429),
    ("PUT /new.txt", "open", "Content-Length: 0\r\n", 201),
    (
        "PUT /new.txt",
        "open",
        "Content-Length: 0\r\nIf-Match: *\r\n",
        204,
    ),
    ("PUT /new.txt", "open", "Content-Length: 9999999\r\n", 413),
    ("PUT /new.txt", "open", "Content-Length: x\r\n", 400),
    (
        "PUT /new.txt",
        "open",
        "Content-Length: 1\r\nOrigin: http://evil\r\n",
        403,
    ),
    ("OPTIONS /", "open", "Tus-Resumable: 1.0.0\r\n", 204),
    (
        "POST /up",
        "open",
        "Tus-Resumable: 1.0.0\r\nUpload-Length: 4\r\nContent-Length: 0\r\n",
        201,
    ),
];

fn check(what: &str, reply: &Reply) {
    for (name, _) in &reply.fields {
        assert!(is_spelled(name), "{what}: {name} of {reply:?}");
    }
}

fn replies_of_every_kind_spell_the_names_of_headers_alike(driver: Driver) {
    let (server, _site) = serve(driver);
    let http = server.listeners().iter().find(|(name, _)| name == "http");
    let (_, http) = http.expect("a listener");
    for (line, host, headers, status) in KINDS {
        let mut client = Client::connect(*http);
        client.send(format!(
            "{line} HTTP/1.1\r\nHost: {host}.example\r\n{headers}\r\n"
        ));
        let asked = if line.starts_with("HEAD") {
            Asked::Head
        } else {
            Asked::Any
        };
        let reply = client.try_reply(asked).expect("a reply");
        assert_eq!(reply.status, *status, "{line} {host} {headers}: {reply:?}");
        check(line, &reply);
    }
    let mut admin = Client::connect(server.address("admin"));
    for path in ["/", "/metrics", "/healthz", "/status.json", "/none"] {
        let reply = admin.get(path);
        check(path, &reply);
    }
}
