//! `flatpath top`: the figures of a server in a pipe, as text, and on a terminal.

use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use flatpath_testkit::child::{self, Child, free_address};
use flatpath_testkit::{Driver, Launch, Server, Site, binary, each_driver, tools, until};
use rustix::fs::{Mode, OFlags};
use rustix::process::Signal;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcgetattr, tcsetwinsize};
use serde_json::Value;

each_driver!(figures_are_shown_once_as_text_and_as_an_object);

const TIMEOUT: Duration = Duration::from_secs(60);

fn serve(driver: Driver, site: &Site, admin: &str) -> Server {
    Launch::serve(driver)
        .directory(site.path())
        .with(["--admin", admin])
        .start()
}

fn top(arguments: &[&str]) -> Command {
    let mut command = Command::new(binary::flatpath());
    command.arg("top").args(arguments);
    command
}

fn figures_are_shown_once_as_text_and_as_an_object(driver: Driver) {
    let site = Site::new().with("hello", "hello");
    let path = format!("unix:{}.admin", site.path().display());
    let server = serve(driver, &site, &path);
    let mut client = server.client();
    assert_eq!(client.get("/hello").status, 200);
    let once = |arguments: &[&str]| {
        let output = tools::run(top(&[&path, "--once"]).args(arguments), TIMEOUT);
        assert!(output.status.success() && output.stderr.is_empty());
        String::from_utf8(output.stdout).expect("text")
    };
    let object: Value = serde_json::from_str(&once(&["--json"])).expect("JSON");
    assert_eq!(object["state"], "running");
    let text = once(&[]);
    let http = format!("http {}", server.address("http"));
    for words in [
        " ready ",
        &http,
        "2xx 1",
        driver_of(driver),
        "connections 1 ",
    ] {
        assert!(text.contains(words), "{words}: {text}");
    }
    // Every member that is shown is in an answer.
    assert!(!text.contains('?'), "{text}");
}

fn driver_of(driver: Driver) -> &'static str {
    match driver {
        Driver::Uring => "0 uring",
        Driver::Epoll => "0 epoll",
    }
}

#[test]
fn an_address_where_no_figures_are_is_an_error() {
    let site = Site::new();
    let server = serve(Driver::Epoll, &site, "127.0.0.1:0");
    let free = free_address().expect("a free port").to_string();
    for (address, why) in [
        (
            server.address("http").to_string(),
            "it answers HTTP/1.1 404",
        ),
        (free, "Connection refused"),
        ("fd:admin".into(), "no address that can be connected to"),
    ] {
        let output = tools::run(&mut top(&[&address]), TIMEOUT);
        assert_eq!(output.status.code(), Some(1));
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.contains(why) && said.contains("--admin"), "{said}");
    }
}

#[test]
fn a_pipe_gets_a_line_for_each_answer_also_after_the_server_was_gone() {
    let site = Site::new();
    let admin = free_address().expect("a free port").to_string();
    let mut server = serve(Driver::Epoll, &site, &admin);
    let mut command = child::command(binary::flatpath(), &[]);
    command.args(["top", &admin, "--interval", "20ms"]);
    let mut shows = Child::start(&mut command).expect("started");
    let next = |shows: &mut Child| shows.line(TIMEOUT).expect("a line");
    assert!(next(&mut shows).contains("req/s"));
    for _ in 0..3 {
        assert!(next(&mut shows).ends_with("ready"));
    }
    server.terminate();
    server.exit_status();
    until("it is told", || {
        shows.log().contains("no answer: ").then_some(())
    });
    assert!(shows.is_running());
    let _again = serve(Driver::Epoll, &site, &admin);
    until("it is told", || {
        shows.log().contains("it answers again").then_some(())
    });
    // Lines from before it was gone come first.
    until("a line", || {
        next(&mut shows).ends_with("ready").then_some(())
    });
}

/// A terminal with `flatpath top` in it.
struct Screen {
    control: File,
    terminal: OwnedFd,
    shows: std::process::Child,
    bytes: Receiver<Vec<u8>>,
    seen: String,
}

impl Screen {
    fn open(admin: &str) -> Screen {
        let control = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
        grantpt(&control).expect("granted");
        unlockpt(&control).expect("unlocked");
        let name = ptsname(&control, Vec::new()).expect("its name");
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let terminal = rustix::fs::open(&name, flags, Mode::empty()).expect("opened");
        let end = || Stdio::from(terminal.try_clone().expect("a copy"));
        let shows = top(&[admin, "--interval", "20ms"])
            .stdin(end())
            .stdout(end())
            .stderr(Stdio::null())
            .spawn()
            .expect("started");
        let control = File::from(control);
        let mut reader = control.try_clone().expect("a copy");
        let (sender, bytes) = channel();
        thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(count @ 1..) = reader.read(&mut buffer) {
                if sender.send(buffer[..count].to_vec()).is_err() {
                    return;
                }
            }
        });
        let seen = String::new();
        Screen {
            control,
            terminal,
            shows,
            bytes,
            seen,
        }
    }

    /// Waits until it has shown something since the last time.
    fn await_text(&mut self, what: &str) {
        until(what, || {
            self.seen.extend(
                self.bytes
                    .try_iter()
                    .map(|it| String::from_utf8_lossy(&it).into_owned()),
            );
            self.seen.contains(what).then_some(())
        });
        self.seen.clear();
    }

    fn resize(&self, rows: u16, columns: u16) {
        let size = Winsize {
            ws_row: rows,
            ws_col: columns,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        tcsetwinsize(&self.control, size).expect("it has a size");
    }

    /// It has given the terminal back as it was.
    fn expect_end(mut self, local_modes: rustix::termios::LocalModes) {
        self.await_text("\x1b[?1049l");
        let ended = until("it ends", || self.shows.try_wait().expect("a child"));
        assert!(ended.success());
        let modes = tcgetattr(&self.terminal).expect("its modes");
        assert_eq!(modes.local_modes, local_modes);
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let _ = self.shows.kill();
        let _ = self.shows.wait();
    }
}

#[test]
fn a_terminal_is_drawn_on_until_a_key_or_a_signal_and_given_back() {
    let site = Site::new();
    let admin = free_address().expect("a free port").to_string();
    let mut server = serve(Driver::Epoll, &site, &admin);
    let mut screen = Screen::open(&admin);
    let modes = tcgetattr(&screen.terminal).expect("its modes").local_modes;
    screen.await_text("\x1b[?1049h");
    screen.await_text("LISTENER");
    screen.resize(4, 30);
    screen.await_text("more lines");
    screen.resize(50, 200);
    screen.await_text("NETWORK THREAD");
    server.terminate();
    server.exit_status();
    screen.await_text("NO ANSWER for ");
    let _again = serve(Driver::Epoll, &site, &admin);
    screen.await_text("every 20ms; q ends");
    rustix::io::write(&screen.control, b"xq").expect("written");
    screen.expect_end(modes);
    let mut screen = Screen::open(&admin);
    screen.await_text("LISTENER");
    let process = rustix::process::Pid::from_child(&screen.shows);
    rustix::process::kill_process(process, Signal::INT).expect("signalled");
    screen.expect_end(modes);
}
