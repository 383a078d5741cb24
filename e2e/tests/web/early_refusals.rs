//! A refusal that comes before the end of its request reaches the client: one that sends all of its
//! body before it reads, a proxy that does, and one for which there is no place behind TLS.

use std::path::Path;
use std::process::Command;

use flatpath_http::http::StatusCode;
use flatpath_http::{Answer, Bytes, Http, Next, Request, Router, Trailers, Upload, routing};
use flatpath_testkit::deadline::patience;
use flatpath_testkit::{Client, Driver, Launch, Server, Site, each_driver, tools};

use crate::behind_nginx::{free, nginx};
use crate::http2_clients::certificate;
use flatpath_e2e::choice;
use flatpath_testkit::https::{Certificates, curl, localhost, text, url};

each_driver!(
    each_early_status_reaches_a_client_that_sends_its_body_first,
    each_early_status_passes_through_nginx,
    each_early_status_reaches_a_client_of_http2,
    each_status_of_a_layer_reaches_a_client_of_http2,
    an_upload_of_http2_finds_out_how_to_say_who_it_is,
    the_method_is_looked_at_before_the_length_and_before_100_continue,
    without_a_place_clients_of_tls_get_an_alert,
);

/// A request that is refused by its head, without its length.
struct Early {
    status: u16,
    head: &'static str,
}

const EARLY: [Early; 10] = [
    Early {
        status: 401,
        head: "PUT /file HTTP/1.1\r\nHost: secret.example\r\n",
    },
    Early {
        status: 403,
        head: "PUT /.hidden HTTP/1.1\r\nHost: large.example\r\n",
    },
    Early {
        status: 409,
        head: "PUT /none/file HTTP/1.1\r\nHost: large.example\r\n",
    },
    Early {
        status: 405,
        head: "PUT /file HTTP/1.1\r\nHost: read.example\r\n",
    },
    Early {
        status: 413,
        head: "PUT /file HTTP/1.1\r\nHost: open.example\r\n",
    },
    Early {
        status: 421,
        head: "PUT /file HTTP/1.1\r\nHost: none.example\r\n",
    },
    Early {
        status: 412,
        head: "PUT /file HTTP/1.1\r\nHost: large.example\r\nIf-None-Match: *\r\n",
    },
    Early {
        status: 415,
        head: "PUT /new HTTP/1.1\r\nHost: large.example\r\nContent-Encoding: gzip\r\n",
    },
    // By tus: an upload that is not there, and one of another version.
    Early {
        status: 404,
        head: "PATCH /.flatpath-uploads/00000000000000000000000000000000 HTTP/1.1\r\n\
               Host: large.example\r\nTus-Resumable: 1.0.0\r\nUpload-Offset: 0\r\n\
               Content-Type: application/offset+octet-stream\r\n",
    },
    Early {
        status: 412,
        head: "PATCH /.flatpath-uploads/00000000000000000000000000000000 HTTP/1.1\r\n\
               Host: large.example\r\nTus-Resumable: 0.2.0\r\nUpload-Offset: 0\r\n\
               Content-Type: application/offset+octet-stream\r\n",
    },
];

/// Sites that refuse all of these, and take no file longer than 1 MiB.
fn serve(driver: Driver, site: &Site) -> Server {
    site.write("users", flatpath_testkit::site::ADA);
    let one = |name: &str, rules: &str| {
        format!("[[site]]\nnames = \"{name}.example\"\ndir = \"root\"\n{rules}\n")
    };
    let sites = [
        one("secret", "writable = true\nauth-file = \"users\""),
        one("open", "writable = true\nput-max = \"1M\""),
        one("large", "writable = true"),
        one("read", ""),
    ]
    .concat();
    site.write("flatpath.toml", format!("http = \"127.0.0.1:0\"\n{sites}"));
    Launch::configured(driver, site.path()).start()
}

fn site() -> Site {
    Site::new().with("root/file", "contents")
}

/// Sends a request with so much of a body, all of it before anything is read.
fn send_first(client: &mut Client, head: &str, mebibytes: usize) {
    let piece = vec![b'x'; 1 << 20];
    let length = mebibytes << 20;
    client.send(format!("{head}Content-Length: {length}\r\n\r\n"));
    for sent in 0..mebibytes {
        let sending = client.try_send(&piece);
        assert!(
            sending.is_ok(),
            "{head}: cut off after {sent} MiB: {sending:?}"
        );
    }
}

fn each_early_status_reaches_a_client_that_sends_its_body_first(driver: Driver) {
    let site = site();
    let server = serve(driver, &site);
    for Early { status, head } in EARLY {
        let sizes: &[usize] = match status {
            401 | 405 | 413 => &[50, 300],
            _ => &[50],
        };
        for mebibytes in sizes {
            let mut client = server.client();
            send_first(&mut client, head, *mebibytes);
            let reply = client.reply();
            assert_eq!(reply.status, status, "{mebibytes} MiB: {reply:?}");
            assert!(reply.says_close(), "{reply:?}");
            client.finish();
            client.expect_closed();
        }
    }
    assert_eq!(
        server
            .client()
            .ask("/file", &[("Host", "read.example")])
            .text(),
        "contents"
    );
}

/// With its default, which sends a request once it has all of it. What it sends is what its client
/// has sent; a connection that is reset becomes a 502.
fn each_early_status_passes_through_nginx(driver: Driver) {
    const TIMES: usize = 2;
    let (site, run) = (site(), Site::new());
    let server = serve(driver, &site);
    let listen = free();
    let configuration = format!(
        "HEADhttp {{\n    access_log off;\n    client_max_body_size 0;\n\
         \x20   server {{ listen {listen}; location / {{ proxy_pass http://{to}; \
         proxy_set_header Host $http_host; }} }}\n}}\n",
        to = server.address("http"),
    );
    let Some(mut nginx) = nginx(run.path(), &configuration) else {
        return;
    };
    nginx.await_port(listen.port()).expect("it listens");
    for Early { status, head } in EARLY {
        for time in 0..TIMES {
            let mut client = Client::connect(listen);
            send_first(&mut client, head, 50);
            let reply = client.reply();
            assert_eq!(reply.status, status, "time {time}: {reply:?}");
        }
    }
}

/// One that stops sending when its stream is reset, and then knows of no answer (RFC 9113 section
/// 8.1 has the reset after the answer).
fn each_early_status_reaches_a_client_of_http2(driver: Driver) {
    const TIMES: usize = 3;
    let site = site();
    let server = serve(driver, &site);
    let address = server.address("http");
    let elsewhere = Site::new();
    for bytes in [2 << 10, 100 << 10, 5 << 20] {
        elsewhere.write(&bytes.to_string(), vec![b'x'; bytes]);
        for Early { status, head } in EARLY {
            let mut lines = head.lines();
            let line: Vec<&str> = lines.next().expect("a line").split(' ').collect();
            let host = lines.next().and_then(|it| it.strip_prefix("Host: "));
            let host = host.expect("its host comes first");
            let fields: Vec<&str> = lines.flat_map(|field| ["-H", field]).collect();
            if status == 413 && bytes < 1 << 20 {
                continue;
            }
            for time in 0..TIMES {
                let Some(mut curl) = tools::find("curl").map(Command::new) else {
                    return;
                };
                curl.args(["-q", "-sS", "--http2-prior-knowledge", "-o", "/dev/null"]);
                curl.args(["-w", "%{http_code}", "--connect-to"]);
                curl.arg(format!("::{address}")).arg("-T");
                curl.arg(elsewhere.at(&bytes.to_string()));
                curl.args(["-X", line[0]]).args(&fields);
                let url = format!("http://{host}:{}{}", address.port(), line[1]);
                let said = text(curl.arg(url));
                let status = status.to_string();
                assert_eq!(said, status, "{bytes} bytes to {host}, time {time}");
            }
        }
    }
}

/// Those that layers, handlers and redirects may answer a head with.
const STATUSES: [u16; 17] = [
    301, 302, 303, 307, 308, 401, 403, 404, 405, 409, 411, 412, 413, 415, 421, 429, 503,
];

/// Answers the head with the status that the query is.
fn as_asked(request: Request, next: &Next<'_>) -> Result<Answer, StatusCode> {
    let query = request.uri().query().unwrap_or_default();
    match StatusCode::from_bytes(query.as_bytes()) {
        Ok(status) => Err(status),
        Err(_) => Ok(next.run(request)),
    }
}

/// Of routes that take a body as a whole, and piece by piece. Over TLS one upload comes after the
/// other on a connection; in the clear curl 7.88 fails at a second request, whatever the server.
fn each_status_of_a_layer_reaches_a_client_of_http2(driver: Driver) {
    let whole = |body: Bytes| body.len().to_string();
    let finish = |bytes: Vec<u8>, _: Trailers| bytes.len().to_string();
    let upload = move || Upload::with_trailers(Vec::new(), finish);
    let router = || {
        let router = Router::new().put("/whole", whole);
        let pieces = routing::put(upload).streamed();
        Http::service(router.route("/pieces", pieces).layer(as_asked))
    };
    let running = flatpath::Server::new()
        .driver(choice(driver))
        .listen("127.0.0.1:0", router())
        .with_tls(&certificate())
        .listen("127.0.0.1:0", router())
        .start()
        .expect("started");
    let [https, http] = [0, 1].map(|at| running.addresses()[at].address);
    let elsewhere = Site::new();
    for bytes in [2 << 10, 100 << 10, 5 << 20] {
        elsewhere.write("body", vec![b'x'; bytes]);
        for path in ["/whole", "/pieces"] {
            let url = |base: &str, status| format!("{base}{path}?{status}");
            let secured = format!("https://{https}");
            let urls = STATUSES.map(|status| url(&secured, status));
            let Some(said) = uploads(&elsewhere, "--http2", &urls) else {
                return;
            };
            assert_eq!(said, STATUSES, "{bytes} bytes to {path}, over TLS");
            for status in STATUSES {
                let urls = [url(&format!("http://{http}"), status)];
                let said = uploads(&elsewhere, "--http2-prior-knowledge", &urls);
                assert_eq!(said, Some(vec![status]), "{bytes} bytes to {path}");
            }
        }
    }
    running.handle().drain();
    running.wait().expect("it ends");
}

/// The statuses of curl's uploads of `body`, one after the other.
fn uploads(site: &Site, version: &str, urls: &[String]) -> Option<Vec<u16>> {
    let mut curl = Command::new(tools::find("curl")?);
    curl.args(["-q", "-sS", "-k", version, "-w", "%{http_code}\n"]);
    for url in urls {
        curl.arg("-T").arg(site.at("body"));
        curl.args(["-o", "/dev/null", url]);
    }
    let said = text(&mut curl);
    let said = said.lines().map(|status| status.parse().expect("a status"));
    Some(said.collect())
}

/// `--anyauth` is a request without credentials, and one with those that the 401 asks for. With a
/// body that is longer than a window curl 7.88 never ends, beside nginx too.
fn an_upload_of_http2_finds_out_how_to_say_who_it_is(driver: Driver) {
    let (site, settings) = (Site::new(), Site::new());
    settings.write("users", flatpath_testkit::site::ADA);
    let users = settings.at("users").display().to_string();
    let options = ["--writable", "--auth-file", &users];
    let (server, authority) = localhost(driver, &site, &options);
    let elsewhere = Site::new();
    for bytes in [2 << 10, 100 << 10] {
        let content = vec![b'x'; bytes];
        elsewhere.write("body", &content);
        let Some(mut curl) = curl(&authority.at("site.crt")) else {
            return;
        };
        curl.args(["--http2", "--anyauth", "-u", "ada:pass:word"]);
        curl.args([
            "-o",
            "/dev/null",
            "-w",
            "%{http_code} %{http_version}",
            "-T",
        ]);
        curl.arg(elsewhere.at("body"));
        let new = format!("new{bytes}");
        let said = text(curl.arg(url(&server, &format!("/{new}"))));
        assert_eq!(said, "201 2", "{bytes} bytes");
        let stored = std::fs::read(site.at(&new)).expect("stored");
        assert!(stored == content, "{bytes} bytes");
    }
}

/// Of a request for which a server waits no more than for its head.
fn the_method_is_looked_at_before_the_length_and_before_100_continue(driver: Driver) {
    let site = site();
    let server = serve(driver, &site);
    let lengths = [
        "Content-Length: 10",
        "Content-Length: 100000",
        "Content-Length: 100000000000",
        "Transfer-Encoding: chunked",
    ];
    for length in lengths {
        for (method, host, status) in [
            ("PUT", "read", 405),
            ("POST", "read", 405),
            ("DELETE", "read", 405),
            ("BREW", "open", 405),
            ("DELETE", "open", 405),
            ("PUT", "secret", 401),
            ("BREW", "secret", 401),
        ] {
            let request = format!(
                "{method} /file HTTP/1.1\r\nHost: {host}.example\r\n{length}\r\n\
                 Expect: 100-continue\r\n\r\n"
            );
            let mut client = server.client();
            client.send(&request);
            let head = String::from_utf8(client.until("\r\n\r\n")).expect("ASCII");
            let expected = format!("HTTP/1.1 {status} ");
            assert!(head.starts_with(&expected), "{request}: {head}");
            assert_eq!(head.contains("Allow: "), status == 405, "{request}: {head}");
        }
    }
    // What is served waits for its body, and is refused by its length only then.
    let mut client = server.client();
    let put = |length: &str| {
        format!(
            "PUT /new HTTP/1.1\r\nHost: open.example\r\nContent-Length: {length}\r\n\
             Expect: 100-continue\r\n\r\n"
        )
    };
    client.send(put("3"));
    assert_eq!(client.until("\r\n\r\n"), b"HTTP/1.1 100 Continue");
    client.send("new");
    assert_eq!(client.reply().status, 201);
    client.send(put("100000000000"));
    assert_eq!(client.reply().status, 413);
    // A short body that is on its way costs no connection.
    let mut client = server.client();
    for _ in 0..2 {
        client.send("PUT /file HTTP/1.1\r\nHost: read.example\r\nContent-Length: 3\r\n\r\nnew");
        let reply = client.reply();
        assert!(reply.status == 405 && !reply.says_close(), "{reply:?}");
    }
}

/// Takes all places, with replies that are not read.
fn take_places(server: &Server, count: usize) -> Vec<Client> {
    let clients = (0..count).map(|_| {
        let mut client = Client::connect_with_window(server.address("http"), 8192);
        client.request("GET", "/large", &[]);
        assert!(client.exactly(15).starts_with(b"HTTP/1.1 200 OK"));
        client
    });
    clients.collect()
}

fn without_a_place_clients_of_tls_get_an_alert(driver: Driver) {
    const ALERT: &[u8] = &[21, 3, 3, 0, 2, 2, 80];
    let site = Site::new()
        .with("large", vec![b'x'; 30_000_000])
        .with("file", "contents");
    let options = ["--http", "127.0.0.1:0", "--max-connections", "4"];
    let (server, authority): (Server, Certificates) = localhost(driver, &site, &options);
    let busy = take_places(&server, 4);
    let mut silent = Client::connect(server.address("https"));
    assert_eq!(silent.exactly(ALERT.len()), ALERT);
    drop(silent);
    let certificate = authority.at("site.crt");
    if let Some(mut curl) = curl(&certificate) {
        let output = tools::run(curl.arg(url(&server, "/file")), patience());
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.contains("alert internal error"), "{said}");
    }
    if let Some(said) = openssl(&server, &certificate) {
        assert!(said.contains("SSL alert number 80"), "{said}");
    }
    drop(busy);
}

/// What openssl's client says of a connection.
fn openssl(server: &Server, certificate: &Path) -> Option<String> {
    let mut command = Command::new(tools::find("openssl")?);
    let address = server.address("https").to_string();
    command.args(["s_client", "-connect", &address, "-CAfile"]);
    let output = tools::run(command.arg(certificate), patience());
    Some(String::from_utf8_lossy(&output.stderr).into_owned())
}
