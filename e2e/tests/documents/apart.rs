//! Runs each page in its own namespaces (network, processes, mounts; without root also users).
//! There all ports are free, no other process is visible, and the directories that the pages name
//! are empty, so the commands run as they are written.
//!
//! The test starts this program again in new namespaces, to run the same test for one page.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use flatpath_testkit::{binary, tools};

use crate::page::root;

/// The environment variable with the name of the page. It is set within the namespaces.
const PAGE: &str = "FLATPATH_DOCUMENTS_PAGE";
/// Where a file system is mounted, and the directory that the pages use in it.
const PLACES: [(&str, &str); 2] = [("/srv", "/srv/www"), ("/run", "/run/flatpath")];
/// Far beyond what the longest page takes.
const PATIENCE: Duration = Duration::from_secs(240);

/// The page to run, within the namespaces.
pub(crate) fn page() -> Option<String> {
    std::env::var(PAGE).ok()
}

/// Whether this machine allows such namespaces. If not, it reports why.
pub(crate) fn can_be() -> bool {
    if ["unshare", "ip", "mount"].map(tools::find).contains(&None) {
        return false;
    }
    let root = root().canonicalize().expect("it is there");
    let is_hidden = |(place, _): &&(&str, &str)| root.starts_with(place);
    if let Some((place, _)) = PLACES.iter().find(is_hidden) {
        return tools::refused(&format!("a mount over {place}, which has this checkout"))
            .unwrap_or(false);
    }
    let output = tools::run(command().arg("true"), PATIENCE);
    let why = String::from_utf8_lossy(&output.stderr);
    output.status.success() || tools::refused(&why).unwrap_or(false)
}

/// Runs this test for a page in new namespaces.
///
/// # Errors
/// The output of the test, if it failed.
pub(crate) fn run(page: &str, test: &str) -> Result<(), String> {
    let own = std::env::current_exe().expect("a test has a path");
    let mut within = command();
    within.arg(own).args(["--exact", test, "--nocapture"]);
    // The command is built here, because a build may need the network.
    within.env(PAGE, page).env("FLATPATH", binary::flatpath());
    let output = tools::run(&mut within, PATIENCE);
    let said = [output.stdout, output.stderr].concat();
    match output.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&said).into_owned()),
    }
}

/// Prepares the new namespaces, from within.
pub(crate) fn within() {
    tools::loopback_up().expect("it is ours");
    for (place, directory) in PLACES {
        let mut mount = Command::new("mount");
        let output = tools::run(mount.args(["-t", "tmpfs", "tmpfs", place]), PATIENCE);
        assert!(output.status.success(), "{place}: {output:?}");
        fs::create_dir_all(Path::new(directory)).expect("it is empty");
    }
}

/// A command that runs a program in new namespaces.
fn command() -> Command {
    let mut command = Command::new("unshare");
    command.args(["--net", "--mount", "--pid", "--fork", "--mount-proc"]);
    if !rustix::process::geteuid().is_root() {
        command.args(["--user", "--map-current-user", "--keep-caps"]);
    }
    command.args(["--kill-child", "--"]);
    command
}
