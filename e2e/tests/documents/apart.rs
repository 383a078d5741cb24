//! A machine of its own for each page: no address is taken, no process is anybody else's, and the
//! directories that the pages name are empty. So their commands run as they stand.
//!
//! It is this program again, which runs the test that calls it, in namespaces of its own
//! (network, processes, mounts; without root also users): see [`within`].

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use flatpath_testkit::{binary, tools};

use crate::page::root;

/// Names the page to run, and tells the program that it runs within.
const PAGE: &str = "FLATPATH_DOCUMENTS_PAGE";
/// Where the pages put files, and what is mounted for that.
const PLACES: [(&str, &str); 2] = [("/srv", "/srv/www"), ("/run", "/run/flatpath")];
/// Far beyond what the longest page takes.
const PATIENCE: Duration = Duration::from_secs(240);

/// The page to run here, if this is such a machine.
pub(crate) fn page() -> Option<String> {
    std::env::var(PAGE).ok()
}

/// Whether this machine can have others within. Says so if it cannot.
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

/// Runs this test for a page, in a machine of its own.
///
/// # Errors
/// What the test said.
pub(crate) fn run(page: &str, test: &str) -> Result<(), String> {
    let own = std::env::current_exe().expect("a test has a path");
    let mut within = command();
    within.arg(own).args(["--exact", test, "--nocapture"]);
    // Built out here, where there is a network.
    within.env(PAGE, page).env("FLATPATH", binary::flatpath());
    let output = tools::run(&mut within, PATIENCE);
    let said = [output.stdout, output.stderr].concat();
    match output.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&said).into_owned()),
    }
}

/// Prepares the machine from within.
pub(crate) fn within() {
    let done = |program: &str, arguments: &[&str]| {
        let output = tools::run(Command::new(program).args(arguments), PATIENCE);
        assert!(
            output.status.success(),
            "{program} {arguments:?}: {output:?}"
        );
    };
    done("ip", &["link", "set", "lo", "up"]);
    for (place, directory) in PLACES {
        done("mount", &["-t", "tmpfs", "tmpfs", place]);
        fs::create_dir_all(Path::new(directory)).expect("it is empty");
    }
}

/// Runs a program in a machine of its own.
fn command() -> Command {
    let mut command = Command::new("unshare");
    command.args(["--net", "--mount", "--pid", "--fork", "--mount-proc"]);
    if !rustix::process::geteuid().is_root() {
        command.args(["--user", "--map-current-user", "--keep-caps"]);
    }
    command.args(["--kill-child", "--"]);
    command
}
