//! The kernel's own NFS client as a client of ours: what programs do on a mount.
//!
//! Without root, or where the kernel has no client, none of it runs, which each test says.
//! `cargo xtask kernels` runs it on kernels that have one. Programs run as a user of the machine
//! that the server knows only by its number.

mod beside;
mod data;
mod faults;
mod modes;
mod programs;
mod random;
mod secured;

use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use flatpath_testkit::deadline::long_patience;
use flatpath_testkit::mount::Mounted;
use flatpath_testkit::{Driver, Launch, Server, Site, tools};

/// A site that is exported to everyone, and mounted.
struct Mount {
    at: Mounted,
    server: Server,
    site: Site,
    state: Site,
}

impl Mount {
    /// `None` where nothing can be mounted. `options` begin with a comma.
    fn new(driver: Driver, options: &str, more: &[&str]) -> Option<Mount> {
        let (site, state) = (Site::new(), Site::new());
        let anywhere = "127.0.0.1:0".parse().expect("an address");
        let server = start(driver, &site, &state, anywhere, more);
        let at = Mounted::nfs(server.address("nfs"), Path::new("/"), options)?;
        Some(Mount {
            at,
            server,
            site,
            state,
        })
    }

    fn path(&self) -> &Path {
        self.at.path()
    }

    /// Ends the mount, then the server, in order.
    fn end(self) {
        drop(self.at);
        self.server.end();
    }
}

/// A server of the site at this address; anyone may make files in it.
fn start(driver: Driver, site: &Site, state: &Site, at: SocketAddr, more: &[&str]) -> Server {
    let open = std::fs::Permissions::from_mode(0o777);
    std::fs::set_permissions(site.path(), open).expect("our own directory");
    Launch::serve(driver)
        .directory(site.path())
        .with(["--writable", "--nfs", &at.to_string(), "--nfs-state"])
        .with([state.path()])
        .with(more)
        .start()
}

/// Where a user of the machine finds programs. What the tests' own search path has beside these may
/// be root's alone.
const PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// A program that runs as this user and these groups, in a directory.
fn by(user: u32, groups: &[u32], program: &str, within: &Path) -> Command {
    let setpriv = tools::locate("setpriv").expect("util-linux is essential");
    let mut command = Command::new(setpriv);
    command
        .arg(format!("--reuid={user}"))
        .arg(format!("--regid={user}"));
    let groups: Vec<String> = groups.iter().map(u32::to_string).collect();
    match groups.is_empty() {
        true => command.arg("--clear-groups"),
        false => command.arg(format!("--groups={}", groups.join(","))),
    };
    command.arg(program).current_dir(within);
    command.env("HOME", within).env("PATH", PATH);
    command
}

/// Runs a program with arguments as user 1000, which must succeed; what it prints.
fn succeeds(program: &str, arguments: &[&str], within: &Path) -> String {
    let mut command = by(1000, &[], program, within);
    let output = tools::run(command.args(arguments), long_patience());
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {said}{errors}");
    said
}

/// Runs lines of a shell, the first that fails being the last.
fn shell(lines: &str, within: &Path) -> String {
    succeeds("sh", &["-euc", lines], within)
}
