//! The programs of libnfs.

use std::process::{Command, Output};
use std::time::Duration;

use flatpath_testkit::noise;
use flatpath_testkit::{Driver, Server, Site, each_driver, tools};

use crate::nfs::serve;

each_driver!(
    libnfs_lists_reads_and_writes,
    libnfs_sees_what_other_processes_change,
    libnfs_is_refused_where_it_may_not_come_from,
);

pub(crate) fn url(server: &Server, path: &str) -> String {
    let port = server.address("nfs").port();
    format!("nfs://127.0.0.1{path}?nfsport={port}&mountport={port}")
}

/// Runs a program of libnfs; `None` when it is not installed.
pub(crate) fn run(name: &str, arguments: &[&str]) -> Option<Output> {
    let program = tools::find(name)?;
    Some(tools::run(
        Command::new(program).args(arguments),
        Duration::from_secs(60),
    ))
}

fn libnfs_lists_reads_and_writes(driver: Driver) {
    let large = noise(7, 5_000_001);
    let site = Site::new().with("text.txt", "hello").with("large", &large);
    for number in 0..1000 {
        site.write(&format!("many/file-{number}"), b"");
    }
    let state = Site::new();
    let server = serve(driver, &site, &state, &[]);
    let Some(listed) = run("nfs-ls", &[&url(&server, "/many")]) else {
        return;
    };
    assert!(listed.status.success(), "{listed:?}");
    assert_eq!(
        String::from_utf8_lossy(&listed.stdout).lines().count(),
        1000
    );
    let Some(text) = run("nfs-cat", &[&url(&server, "//text.txt")]) else {
        return;
    };
    assert_eq!(text.stdout, b"hello");
    let local = state.at("copy");
    let local = local.to_str().expect("a path in text");
    let down = run("nfs-cp", &[&url(&server, "//large"), local]).expect("installed");
    assert!(down.status.success(), "{down:?}");
    assert_eq!(std::fs::read(local).expect("copied"), large);
    let up = run("nfs-cp", &[local, &url(&server, "//uploaded")]).expect("installed");
    assert!(up.status.success(), "{up:?}");
    assert_eq!(std::fs::read(site.at("uploaded")).expect("copied"), large);
}

fn libnfs_sees_what_other_processes_change(driver: Driver) {
    let site = Site::new().with("file", "before");
    let state = Site::new();
    let server = serve(driver, &site, &state, &[]);
    let read = || run("nfs-cat", &[&url(&server, "//file")]).map(|output| output.stdout);
    let Some(before) = read() else { return };
    assert_eq!(before, b"before");
    site.write("file", "and after");
    assert_eq!(read(), Some(b"and after".to_vec()));
    site.write("new", "another");
    std::fs::rename(site.at("new"), site.at("file")).expect("renamed");
    assert_eq!(read(), Some(b"another".to_vec()));
}

fn libnfs_is_refused_where_it_may_not_come_from(driver: Driver) {
    let site = Site::new().with("file", "text");
    let state = Site::new();
    for (allowed, expected) in [("10.0.0.0/8", false), ("127.0.0.0/8", true)] {
        let server = serve(driver, &site, &state, &["--nfs-allow", allowed]);
        let Some(output) = run("nfs-cat", &[&url(&server, "//file")]) else {
            return;
        };
        assert_eq!(output.stdout == b"text", expected, "{allowed}: {output:?}");
    }
}
