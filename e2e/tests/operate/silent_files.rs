//! Files of the configuration that are none, or that do not answer: a reload does not wait for ever
//! without a word, and the next one is done; and a start says what it waits for.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use flatpath_testkit::child::Child;
use flatpath_testkit::deadline::patience;
use flatpath_testkit::fuse::{self, Content};
use flatpath_testkit::site::ADA;
use flatpath_testkit::{Client, Driver, Issued, Launch, Server, Site, each_driver, until_true};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::process::Signal;

each_driver!(
    a_file_that_is_none_is_named_and_the_next_reload_is_done,
    a_file_that_does_not_answer_is_told_until_it_does,
    a_start_says_what_it_waits_for,
);

const FILES: [&str; 6] = [
    "site.crt", "site.key", "ca.crt", "ticket", "users", "exports",
];

struct Scene {
    run: Site,
}

impl Scene {
    fn new() -> Self {
        let run = Site::new().with("dir/file", "contents");
        let scene = Self { run };
        for name in FILES {
            scene.write(name);
        }
        scene.configure(75);
        scene
    }

    /// A good file, as it is replaced.
    fn write(&self, name: &str) {
        let Issued { certificate, key } = Issued::for_localhost();
        let site = self.run.at("site.crt");
        let text = match name {
            "site.crt" | "site.key" => {
                // They are a pair.
                self.put("site.key", key.as_bytes());
                fs::remove_file(&site).unwrap_or_default();
                self.put("site.crt", certificate.as_bytes());
                return;
            }
            "ca.crt" => certificate.into_bytes(),
            "ticket" => vec![7; 48],
            "users" => ADA.into(),
            _ => format!("{} *(ro)\n", self.run.at("dir").display()).into(),
        };
        self.put(name, &text);
    }

    fn put(&self, name: &str, content: &[u8]) {
        let path = self.run.at(name);
        fs::remove_file(&path).unwrap_or_default();
        fs::write(path, content).expect("written");
    }

    fn configure(&self, seconds: u32) {
        let text = format!(
            "https = \"127.0.0.1:0\"\nnfs = \"127.0.0.1:0\"\nadmin = \"127.0.0.1:0\"\n\
             idle-timeout = {seconds}\ndir = \"dir\"\nauth-file = \"users\"\n\
             tls-cert = \"site.crt\"\ntls-key = \"site.key\"\n\
             tls-client-ca = \"ca.crt\"\ntls-client-auth = \"optional\"\n\
             nfs-exports = \"exports\"\ntls-reload-seconds = 0\n\
             [[listener]]\nprotocol = \"http\"\naddress = \"127.0.0.2:0\"\ndir = \"dir\"\n\
             tls-cert = \"site.crt\"\ntls-key = \"site.key\"\ntls-ticket-key = \"ticket\"\n"
        );
        self.put("flatpath.toml", text.as_bytes());
    }

    fn start(&self, driver: Driver) -> Server {
        Launch::configured(driver, self.run.path()).start()
    }
}

/// Sends SIGHUP, and waits for one more of these words.
fn hang_up(server: &Server, words: &str) {
    let before = server.log().matches(words).count();
    server.process().signal(Signal::HUP);
    until_true(words, || server.log().matches(words).count() > before);
}

fn replace_by_fifo(path: &Path) {
    fs::remove_file(path).expect("it was there");
    let mode = Mode::from_raw_mode(0o600);
    mknodat(CWD, path, FileType::Fifo, mode, 0).expect("a FIFO");
}

fn a_file_that_is_none_is_named_and_the_next_reload_is_done(driver: Driver) {
    let scene = Scene::new();
    let server = scene.start(driver);
    let mut seconds = 75;
    for name in FILES {
        replace_by_fifo(&scene.run.at(name));
        hang_up(&server, "it is not a regular file");
        let log = server.log();
        let line = log
            .lines()
            .rfind(|it| it.contains("it is not a regular file"));
        assert!(
            line.is_some_and(|line| line.contains(name)),
            "{name}: {log}"
        );
        scene.write(name);
        seconds += 1;
        scene.configure(seconds);
        hang_up(&server, &format!("idle-timeout is {seconds} now"));
    }
    // The file of settings itself.
    replace_by_fifo(&scene.run.at("flatpath.toml"));
    hang_up(
        &server,
        "flatpath.toml: it is not a regular file; nothing is changed",
    );
    scene.configure(20);
    hang_up(&server, "idle-timeout is 20 now");
    server.end();
}

fn a_file_that_does_not_answer_is_told_until_it_does(driver: Driver) {
    let scene = Scene::new();
    let Issued { certificate, key } = Issued::for_localhost();
    let files = vec![
        Content::new("site.crt", certificate),
        Content::new("site.key", key),
    ];
    let at = scene.run.at("far");
    fs::create_dir(&at).expect("made");
    let Some(far) = fuse::try_mount(&at, files) else {
        return;
    };
    let server = scene.start(driver);
    for name in ["site.crt", "site.key"] {
        fs::remove_file(scene.run.at(name)).expect("it was there");
        symlink(at.join(name), scene.run.at(name)).expect("linked");
    }
    let ready = || Client::connect(server.address("admin")).get("/readyz");
    assert_eq!((ready().status, ready().text()), (200, "ready\n"));
    far.pause();
    server.process().signal(Signal::HUP);
    server.await_log("site.crt has not answered for 5 s");
    let told = ready();
    assert_eq!(told.status, 200, "clients are served");
    assert!(told.text().starts_with("ready\n"), "{told:?}");
    assert!(told.text().contains("site.crt does not answer"), "{told:?}");
    // Who asks for another reload is told what it waits for.
    hang_up(
        &server,
        "reload: it waits for site.crt, which does not answer",
    );
    far.resume();
    server.await_log("site.crt has answered");
    until_true("the reloads to end", || {
        server.log().matches(" reloaded").count() >= 2
    });
    server.await_log("certificate site.crt for localhost");
    assert_eq!(ready().text(), "ready\n");
    scene.configure(20);
    hang_up(&server, "idle-timeout is 20 now");
    server.end();
}

/// The mount hangs before the server is started: whatever is there, the log has its name.
fn a_start_says_what_it_waits_for(driver: Driver) {
    let names = [
        "flatpath.toml",
        "site.crt",
        "users",
        "exports",
        "dir",
        "log",
    ];
    let mut starts = Vec::new();
    for name in names {
        let scene = Scene::new();
        let at = scene.run.at("far");
        fs::create_dir(&at).expect("made");
        let there = scene.run.at(name);
        let content = match name {
            "dir" => Vec::new(),
            "log" => vec![Content::new(name, "")],
            _ => vec![Content::new(name, fs::read(&there).expect("readable"))],
        };
        let Some(far) = fuse::try_mount(&at, content) else {
            return;
        };
        let target = match name {
            "dir" => at,
            _ => at.join(name),
        };
        match name {
            "dir" => fs::remove_dir_all(&there).expect("removed"),
            _ => fs::remove_file(&there).unwrap_or_default(),
        }
        symlink(target, there).expect("linked");
        far.pause();
        let mut launch = Launch::configured(driver, scene.run.path());
        if name == "log" {
            launch = launch.with(["--access-log", "log"]);
        }
        let child = Child::start(&mut launch.command()).expect("started");
        // Dropped in this order: nothing of a mount that hangs can be removed.
        starts.push((name, child, far, scene));
    }
    for (name, child, ..) in &starts {
        let words = format!("{name} has not answered for 5 s");
        until_true(&words, || child.log().contains(&words));
        assert!(child.log().contains("nothing is served yet"), "{name}");
    }
    for (name, mut child, far, _scene) in starts {
        far.resume();
        if name != "log" {
            // The file system takes no lines.
            let listeners = child.listeners();
            listeners.unwrap_or_else(|why| panic!("{name}: {why}"));
        }
        child.stop(patience()).expect("it ends");
    }
}
