//! The form as curl sends it, with both drivers, and in the simulation.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use flatpath::{DriverChoice, Running, Server};
use flatpath_example_upload_form::upload_form;
use flatpath_http::Http;
use flatpath_test::{Conditions, TestServer, each_seed};
use flatpath_testkit::{Driver, each_driver, tools};

/// Far beyond what anything here takes.
const PATIENCE: Duration = Duration::from_secs(60);

fn serve(driver: Driver, directory: &Path) -> Running {
    let choice = match driver {
        Driver::Uring => DriverChoice::Uring,
        Driver::Epoll => DriverChoice::Epoll,
    };
    let service = Http::service(upload_form(directory.to_owned()));
    let server = Server::new().driver(choice).listen("127.0.0.1:0", service);
    server.start().expect("start")
}

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).expect("readable");
    let name = |entry: fs::DirEntry| entry.file_name().into_string().expect("UTF-8");
    let mut names: Vec<_> = entries
        .map(|entry| name(entry.expect("an entry")))
        .collect();
    names.sort_unstable();
    names
}

/// What curl prints: the status, and the content.
fn curl(arguments: &[&str]) -> Option<String> {
    let mut command = Command::new(tools::find("curl")?);
    command.args(["-q", "-sS", "-w", "%{http_code} %{redirect_url}"]);
    let output = tools::run(command.args(arguments), PATIENCE);
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn curl_sends_files(driver: Driver) {
    let (own, served) = (tempfile::tempdir(), tempfile::tempdir());
    let (own, served) = (own.expect("a directory"), served.expect("a directory"));
    let running = serve(driver, served.path());
    let url = format!("http://{}/", running.addresses()[0].address);
    // Line ends and boundaries all over.
    let large = "\r\n--------------------------\n".repeat(200_000);
    let (one, other) = (own.path().join("one"), own.path().join("<b>&\" é"));
    fs::write(&one, &large).expect("written");
    fs::write(&other, "").expect("written");
    let one = format!("file=@{};type=text/plain", one.display());
    let other = format!(
        "file=@\"{}\"",
        other.display().to_string().replace('"', "\\\"")
    );
    let Some(answer) = curl(&["-F", &one, "-F", "note=x", "-F", &other, &url]) else {
        return;
    };
    assert_eq!(answer, format!("303 {url}"));
    let stored = names(served.path());
    assert_eq!(stored.len(), 2, "{stored:?}");
    assert_eq!(
        fs::read_to_string(served.path().join("one")).expect("there"),
        large
    );
    let page = curl(&[&url]).expect("curl");
    let item = format!(
        "<li><a href=\"/files/one\">one</a>, {} bytes\n",
        large.len()
    );
    assert!(page.contains(&item), "{page}");
    assert!(
        page.contains("&lt;b&gt;&amp;") && !page.contains("<b>"),
        "{page}"
    );
    let file = curl(&["-o", "/dev/null", "-D", "-", &format!("{url}files/one")]);
    let head = file.expect("curl").to_ascii_lowercase();
    assert!(
        head.contains("\r\ncontent-disposition: attachment\r\n"),
        "{head}"
    );
    for (form, status) in [
        ("file=x;filename=../../evil", "400"),
        ("file=x;filename=.hidden", "400"),
        ("file=x;filename=\"\"", "303"),
    ] {
        let answer = curl(&["-F", form, &url]).expect("curl");
        assert!(answer.contains(status), "{form}: {answer}");
    }
    let answer = curl(&["-d", "file=x", &url]).expect("curl");
    assert!(answer.ends_with("415 "), "{answer}");
    assert_eq!(names(served.path()), stored);
    running.handle().drain();
    running.wait().expect("it ends");
}

each_driver!(curl_sends_files);

#[test]
fn sim_a_form_is_there_as_a_whole_or_not_at_all() {
    each_seed(20, |seed| {
        let directory = tempfile::tempdir().expect("a directory");
        let service = Http::service(upload_form(directory.path().to_owned()));
        let mut server = TestServer::new(Conditions::rough(seed), service);
        let field = |name| {
            let head = "Content-Disposition: form-data; name=file; filename=";
            let content = "x".repeat(100_000);
            format!("--b\r\n{head}{name}\r\n\r\n{content}\r\n")
        };
        let form = format!("{}{}--b--\r\n", field("one"), field("two"));
        let head = format!(
            "POST / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\
             Content-Type: multipart/form-data; boundary=b\r\nContent-Length: {}\r\n\r\n",
            form.len()
        );
        let broken = server.connect();
        broken.write(head.as_bytes());
        broken.write(&form.as_bytes()[..150_000]);
        broken.shutdown_write();
        server.read_to_end(&broken);
        server.settle();
        assert_eq!(names(directory.path()), [""; 0], "seed {seed}");
        let client = server.connect();
        client.write(head.as_bytes());
        client.write(form.as_bytes());
        let reply = server.read_to_end(&client);
        assert!(reply.starts_with(b"HTTP/1.1 303 "), "seed {seed}");
        assert_eq!(names(directory.path()), ["one", "two"], "seed {seed}");
    });
}
