//! The shipped file for logrotate, with the real logrotate, while clients ask: the log is rotated,
//! the server goes on in a new file that it makes itself, and no line is lost.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use flatpath_testkit::deadline::{long_patience, patience};
use flatpath_testkit::{
    Client, Driver, Launch, Over, Server, Site, each_driver, tools, until_true,
};

each_driver!(no_line_is_lost_when_logrotate_rotates);

/// So that both what was rotated last and what is compressed is there.
const ROTATIONS: usize = 3;

/// The shipped file for this directory, where a service is a process.
fn settings(run: &Site, server: &Server) -> String {
    let shipped = include_str!("../../../dist/logrotate/flatpath");
    let [asked, sent] = [
        "systemctl --quiet is-active flatpath.service",
        "systemctl kill --kill-whom=main --signal=HUP flatpath.service",
    ];
    let (process, directory) = (server.process().number(), run.at("log"));
    assert!(shipped.contains(asked) && shipped.contains(sent));
    shipped
        .replace("/var/log/flatpath/", &format!("{}/", directory.display()))
        .replace(asked, &format!("kill -0 {process}"))
        .replace(sent, &format!("kill -HUP {process}"))
}

fn rotate(run: &Site) {
    let Some(logrotate) = tools::find("logrotate") else {
        return;
    };
    let mut command = Command::new(logrotate);
    command.args(["--force", "--state"]).arg(run.at("state"));
    let output = tools::run(command.arg(run.at("logrotate")), patience());
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && told.is_empty(), "{told}");
}

/// The lines of a file of the log, compressed or not.
fn lines(run: &Site, name: &str) -> usize {
    let mut command = Command::new("zcat");
    let output = tools::run(command.arg("--force").arg(run.at(name)), patience());
    assert!(output.status.success(), "{name}: {output:?}");
    output.stdout.iter().filter(|byte| **byte == b'\n').count()
}

fn no_line_is_lost_when_logrotate_rotates(driver: Driver) {
    if tools::find("logrotate").is_none() {
        return;
    }
    let (site, run) = (Site::new().with("file", "contents"), Site::new());
    fs::create_dir(run.at("log")).expect("made");
    // As systemd makes it; logrotate refuses a directory that others may write to.
    fs::set_permissions(run.at("log"), Permissions::from_mode(0o755)).expect("ours");
    let log = run.at("log/access.log");
    let mut server = Launch::serve(driver)
        .with(["--access-log".as_ref(), log.as_os_str()])
        .directory(site.path())
        .start();
    run.write("logrotate", settings(&run, &server));
    fs::set_permissions(run.at("logrotate"), Permissions::from_mode(0o644)).expect("ours");
    let address = server.address("http");
    let (is_over, asked) = (Over::default(), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        let _ends = is_over.at_end();
        for _ in 0..2 {
            scope.spawn(|| {
                let mut client = Client::connect(address).patient(long_patience());
                while !is_over.is_set() {
                    assert_eq!(client.get("/file").text(), "contents");
                    asked.fetch_add(1, Ordering::Relaxed);
                    // A disk that does not keep up would have lines dropped and counted.
                    std::thread::sleep(Duration::from_millis(1));
                }
            });
        }
        let has_lines = || log.metadata().is_ok_and(|data| data.len() > 0);
        for _ in 0..ROTATIONS {
            // An empty log is not rotated.
            until_true("lines in the log", has_lines);
            rotate(&run);
            until_true("lines in a new log", has_lines);
        }
        is_over.set();
    });
    server.terminate();
    assert_eq!(server.exit_status().code(), Some(0), "{}", server.log());
    let names = ["", ".1", ".2.gz", ".3.gz"].map(|end| format!("log/access.log{end}"));
    let written: Vec<usize> = names.iter().map(|name| lines(&run, name)).collect();
    assert_eq!(
        written.iter().sum::<usize>(),
        asked.into_inner(),
        "{written:?}"
    );
}
