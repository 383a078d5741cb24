//! Nothing outside the served directory is reachable, whatever the bytes of the request say.

use std::os::unix::fs::symlink;
use std::process::Command;

use flatpath_testkit::deadline::patience;
use flatpath_testkit::reply::Asked;
use flatpath_testkit::{Driver, Launch, Over, Server, Site, each_driver, tools};

each_driver!(
    no_spelling_of_dot_dot_leads_out,
    dot_segments_that_stay_inside_are_removed,
    rclone_copies_a_name_with_a_colon,
    symbolic_links_that_lead_out_are_not_followed,
    a_directory_swapped_for_a_link_in_mid_walk_leads_nowhere,
    special_files_are_not_opened,
);

const SECRET: &str = "this text is outside";

/// Ways to say dot-dot, or a path from the root, that some server has fallen for.
const SPELLINGS: &[&str] = &[
    "/../secret.txt",
    "/./../secret.txt",
    "/deep/../../secret.txt",
    "/deep/er/../../../secret.txt",
    "/../public-but-longer/secret.txt",
    "/..%2fsecret.txt",
    "/%2e%2e/secret.txt",
    "/%2e%2e%2fsecret.txt",
    "/.%2e/secret.txt",
    "/%2E%2E/secret.txt",
    "/%252e%252e/secret.txt",
    "/%252e%252e%252fsecret.txt",
    "/..%5csecret.txt",
    "/..\\secret.txt",
    "/%c0%ae%c0%ae/secret.txt",
    "/%c0%ae%c0%ae%c0%afsecret.txt",
    "/%uff0e%uff0e/secret.txt",
    "/..;/secret.txt",
    "/..%00/secret.txt",
    "/inside.txt%00/../../secret.txt",
    "/....//secret.txt",
    "/..././secret.txt",
    "//../secret.txt",
    "/deep//..//..//secret.txt",
    "/%2f..%2fsecret.txt",
    "/..?/../secret.txt",
    "/..#/../secret.txt",
    "../secret.txt",
    "..",
    "secret.txt",
    "http://localhost/../secret.txt",
    "http://localhost/%2e%2e/secret.txt",
    "/../../../../../../../../etc/passwd",
    "/etc/passwd",
    "/proc/self/environ",
];

/// A directory `public` to serve, with a secret beside it.
fn site() -> Site {
    Site::new()
        .with("secret.txt", SECRET)
        .with("public/inside.txt", "inside")
        .with("public/deep/er/file.txt", "deep")
        .with("public-but-longer/secret.txt", SECRET)
}

fn no_spelling_of_dot_dot_leads_out(driver: Driver) {
    let site = site();
    let server = Launch::serve(driver).directory(&site.at("public")).start();
    let absolute = site.at("secret.txt");
    let absolute = absolute.to_str().expect("a path that is text");
    let mut targets: Vec<Vec<u8>> = SPELLINGS
        .iter()
        .map(|target| target.as_bytes().to_vec())
        .collect();
    targets.push(format!("/{absolute}").into_bytes());
    targets.push(absolute.as_bytes().to_vec());
    targets.push(format!("/%2f{}", &absolute[1..]).into_bytes());
    targets.push(b"/\xc0\xae\xc0\xae/secret.txt".to_vec());
    targets.push(b"/..\x00/secret.txt".to_vec());
    for target in targets {
        let shown = String::from_utf8_lossy(&target).into_owned();
        let mut client = server.client();
        let line = [
            b"GET ",
            target.as_slice(),
            b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
        ]
        .concat();
        client.send(&line);
        let reply = client
            .try_reply(Asked::Any)
            .unwrap_or_else(|why| panic!("{shown}: {why}"));
        assert!(
            matches!(reply.status, 400 | 403 | 404),
            "{shown}: {reply:?}"
        );
        let body = String::from_utf8_lossy(&reply.body);
        assert!(
            !body.contains(SECRET) && !body.contains("root:"),
            "{shown}: {body}"
        );
    }
    assert_eq!(server.client().get("/inside.txt").text(), "inside");
}

/// Asks for each target over HTTP/2, as it is; returns those that were asked for.
fn asked_by_curl(server: &Server, inside: &[(&str, &str)]) -> Vec<String> {
    let Some(curl) = tools::find("curl") else {
        return Vec::new();
    };
    let ask = |&(target, contents): &(&str, &str)| {
        let mut command = Command::new(&curl);
        command.args(["-sS", "--path-as-is", "--http2-prior-knowledge"]);
        command.arg(format!("http://{}{target}", server.address("http")));
        let output = tools::run(&mut command, patience());
        let body = String::from_utf8_lossy(&output.stdout);
        assert_eq!(body, contents, "{target}: {output:?}");
        target.to_owned()
    };
    inside.iter().map(ask).collect()
}

/// As clients send them that put addresses together: over HTTP/1 and HTTP/2, to read and to write.
fn dot_segments_that_stay_inside_are_removed(driver: Driver) {
    let (site, run) = (site(), Site::new());
    let server = Launch::serve(driver)
        .with(["--writable", "--access-log"])
        .with([run.at("log")])
        .directory(&site.at("public"))
        .start();
    let inside = [
        ("/./inside.txt", "inside"),
        ("/deep/../inside.txt", "inside"),
        ("/none/../inside.txt", "inside"),
        ("/deep/%2e%2E/inside.txt", "inside"),
        ("/deep/er/../../deep/./er/file.txt", "deep"),
        ("/./deep/er/.%2e/er/file.txt?x=/../y", "deep"),
    ];
    let mut client = server.client();
    let mut targets = Vec::new();
    for (target, contents) in inside {
        // The second answer is a kept one.
        for _ in 0..2 {
            assert_eq!(client.get(target).text(), contents, "{target}");
            targets.push(target.to_owned());
        }
        let absolute = format!("http://localhost{target}");
        assert_eq!(client.get(&absolute).text(), contents, "{absolute}");
        targets.push(absolute);
    }
    // What a directory is told of is where it is.
    let reply = client.get("/none/../deep");
    assert_eq!(
        (reply.status, reply.field("location")),
        (301, Some("/deep/")),
        "{reply:?}"
    );
    client
        .send("PUT /deep/./../new.txt HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\nnew");
    assert_eq!(client.reply().status, 201);
    assert_eq!(client.get("/new.txt").text(), "new");
    targets.extend(["/none/../deep", "/deep/./../new.txt", "/new.txt"].map(str::to_owned));
    targets.extend(asked_by_curl(&server, &inside));
    for above in [
        "/..",
        "/../inside.txt",
        "/deep/../../public/inside.txt",
        "/%2e%2e/",
    ] {
        let mut client = server.client();
        assert_eq!(client.get(above).status, 400, "{above}");
        targets.push(above.to_owned());
    }
    server.end();
    // The log has what came.
    let log = std::fs::read_to_string(run.at("log")).expect("a log");
    let logged = log
        .lines()
        .map(|line| line.split(' ').nth(6).expect("a target"));
    let logged: Vec<&str> = logged.collect();
    assert_eq!(logged, targets);
}

/// rclone asks for `/./a:b`, as what is before a colon would be a scheme.
fn rclone_copies_a_name_with_a_colon(driver: Driver) {
    let Some(rclone) = tools::find("rclone") else {
        return;
    };
    let (from, to) = (
        Site::new()
            .with("log 12:30.txt", "one")
            .with("plain", "two"),
        Site::new(),
    );
    let server = Launch::serve(driver).directory(from.path()).start();
    let mut command = Command::new(rclone);
    command.args(["--config", "/dev/null", "--http-url"]);
    command.arg(format!("http://{}/", server.address("http")));
    let output = tools::run(command.args(["copy", ":http:"]).arg(to.path()), patience());
    assert!(output.status.success(), "{output:?}");
    for (name, contents) in [("log 12:30.txt", "one"), ("plain", "two")] {
        let copied = std::fs::read_to_string(to.at(name)).expect(name);
        assert_eq!(copied, contents, "{output:?}");
    }
}

fn symbolic_links_that_lead_out_are_not_followed(driver: Driver) {
    let site = site();
    let link = |target: &str, name: &str| symlink(target, site.at(name)).expect("a link");
    link("../secret.txt", "public/relative");
    link(
        site.at("secret.txt").to_str().expect("text"),
        "public/absolute",
    );
    link("..", "public/up");
    link("/", "public/root");
    link("relative", "public/twice");
    link("/proc/self/root", "public/magic");
    link("loop", "public/loop");
    link("missing", "public/dangling");
    let server = Launch::serve(driver).directory(&site.at("public")).start();
    let mut client = server.client();
    for target in [
        "/relative",
        "/absolute",
        "/up/secret.txt",
        "/root/etc/passwd",
        "/twice",
        "/up/",
        "/up",
        "/magic/etc/passwd",
        "/loop",
        "/dangling",
        "/up/public/inside.txt",
    ] {
        let reply = client.get(target);
        assert!(matches!(reply.status, 403 | 404), "{target}: {reply:?}");
        assert!(
            !String::from_utf8_lossy(&reply.body).contains(SECRET),
            "{target}"
        );
    }
    assert_eq!(client.get("/inside.txt").status, 200);
}

fn a_directory_swapped_for_a_link_in_mid_walk_leads_nowhere(driver: Driver) {
    const REQUESTS: usize = 3000;
    let site = site();
    // Inside and outside have a file of the same name; a thread swaps a directory and a link.
    site.write("outside/file.txt", SECRET);
    site.write("public/swap/file.txt", "inside");
    symlink(site.at("outside"), site.at("public/other")).expect("a link");
    let server = Launch::serve(driver).directory(&site.at("public")).start();
    let is_over = Over::default();
    std::thread::scope(|scope| {
        let _ends = is_over.at_end();
        scope.spawn(|| {
            let (swap, other) = (site.at("public/swap"), site.at("public/other"));
            let directory = rustix::fs::CWD;
            while !is_over.is_set() {
                let exchange = rustix::fs::RenameFlags::EXCHANGE;
                rustix::fs::renameat_with(directory, &swap, directory, &other, exchange)
                    .expect("both names are there");
            }
        });
        let mut seen = [0_usize; 2];
        let mut client = server.client();
        for _ in 0..REQUESTS {
            let reply = client.get("/swap/file.txt");
            let body = String::from_utf8_lossy(&reply.body).into_owned();
            let wrong = body.contains(SECRET) || !matches!(reply.status, 200 | 403 | 404 | 503);
            if wrong {
                is_over.set();
            }
            assert!(!wrong, "{}: {body}", reply.status);
            seen[usize::from(reply.status == 200)] += 1;
        }
        is_over.set();
        assert!(
            seen[0] > 0 && seen[1] > 0,
            "both were met, so the race was run: {seen:?}"
        );
    });
}

fn special_files_are_not_opened(driver: Driver) {
    let site = site();
    let pipe = site.at("public/pipe");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &pipe,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
        0,
    )
    .expect("a pipe can be made");
    let socket = std::os::unix::net::UnixListener::bind(site.at("public/socket"));
    let _socket = socket.expect("a socket can be made");
    let server = Launch::serve(driver).directory(&site.at("public")).start();
    let mut client = server.client();
    // Opening a pipe for reading would wait for a writer for ever.
    for target in ["/pipe", "/socket"] {
        let reply = client.get(target);
        assert!(matches!(reply.status, 403 | 404), "{target}: {reply:?}");
    }
    assert_eq!(client.get("/inside.txt").status, 200);
}
