//! The programs the harness needs from the machine, and the packages that bring them.

use std::env;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A program of the system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tool {
    /// Its name.
    pub program: &'static str,
    /// The Debian package that holds it.
    pub package: &'static str,
    /// Makes it report its version.
    version: &'static str,
}

const fn tool(program: &'static str, package: &'static str, version: &'static str) -> Tool {
    Tool {
        program,
        package,
        version,
    }
}

/// The load generator.
pub const WRK: Tool = tool("wrk", "wrk", "-v");
/// The competitor for files and fixed replies.
pub const NGINX: Tool = tool("nginx", "nginx", "-v");
/// Counts system calls.
pub const STRACE: Tool = tool("strace", "strace", "--version");
/// Counts system calls and disturbs them less.
pub const PERF: Tool = tool("perf", "linux-perf", "--version");
/// Counts instructions.
pub const VALGRIND: Tool = tool("valgrind", "valgrind", "--version");
/// The competitor for NFS, and what it insists on.
pub const GANESHA: Tool = tool("ganesha.nfsd", "nfs-ganesha nfs-ganesha-vfs", "-v");
/// See [`GANESHA`].
pub const RPCBIND: Tool = tool("rpcbind", "rpcbind", "-v");
/// A competitor of the relay.
pub const HAPROXY: Tool = tool("haproxy", "haproxy", "-v");
/// A competitor of the relay.
pub const SOCAT: Tool = tool("socat", "socat", "-V");

/// Administrators' programs are often missing from the search path of a user.
const ALSO_IN: [&str; 2] = ["/usr/sbin", "/usr/local/sbin"];

impl Tool {
    /// Where the program is.
    ///
    /// # Errors
    /// [`Missing`], which names the package.
    pub fn find(self) -> Result<PathBuf, Missing> {
        let path = env::var_os("PATH").unwrap_or_default();
        let directories = env::split_paths(&path).chain(ALSO_IN.iter().map(PathBuf::from));
        find_in(directories, self.program).ok_or_else(|| Missing(vec![self]))
    }

    /// The version the program reports of itself, as one short line.
    pub fn version(self) -> Option<String> {
        let output = Command::new(self.find().ok()?)
            .arg(self.version)
            .output()
            .ok()?;
        // nginx and wrk say it on standard error, and wrk exits with a failure.
        let text = [output.stdout, output.stderr].concat();
        let text = String::from_utf8_lossy(&text).into_owned();
        let line = text.lines().find(|line| !line.trim().is_empty())?;
        let line = line.split(" Copyright").next().unwrap_or(line);
        Some(line.trim().trim_start_matches("nginx version: ").to_owned())
    }
}

/// Programs that are not installed.
#[derive(Debug, PartialEq, Eq)]
pub struct Missing(pub Vec<Tool>);

impl fmt::Display for Missing {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let programs: Vec<_> = self.0.iter().map(|tool| tool.program).collect();
        let packages: Vec<_> = self.0.iter().map(|tool| tool.package).collect();
        write!(
            formatter,
            "not installed: {}; on Debian: apt install {}",
            programs.join(", "),
            packages.join(" ")
        )
    }
}

impl std::error::Error for Missing {}

impl From<Missing> for io::Error {
    fn from(missing: Missing) -> Self {
        Self::new(io::ErrorKind::NotFound, missing)
    }
}

/// Fails with all the missing ones at once, so that one installation is enough.
///
/// # Errors
/// [`Missing`] if any of the tools is not installed.
pub fn require(tools: &[Tool]) -> Result<(), Missing> {
    let missing: Vec<_> = tools
        .iter()
        .copied()
        .filter(|tool| tool.find().is_err())
        .collect();
    if missing.is_empty() {
        Ok(())
    } else {
        Err(Missing(missing))
    }
}

fn find_in(directories: impl Iterator<Item = PathBuf>, program: &str) -> Option<PathBuf> {
    directories
        .map(|directory| directory.join(program))
        .find(|path| is_program(path))
}

fn is_program(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    path.metadata()
        .is_ok_and(|data| data.is_file() && data.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_tool_names_its_package() {
        let text = Missing(vec![WRK, PERF]).to_string();
        assert_eq!(
            text,
            "not installed: wrk, perf; on Debian: apt install wrk linux-perf"
        );
    }

    #[test]
    fn a_file_that_cannot_run_is_not_a_program() {
        let directory = tempfile::tempdir().expect("temporary directory");
        std::fs::write(directory.path().join("wrk"), "text").expect("written");
        let found = find_in([directory.path().to_path_buf()].into_iter(), "wrk");
        assert_eq!(found, None);
    }

    #[test]
    fn the_shell_is_found() {
        let found = find_in([PathBuf::from("/bin")].into_iter(), "sh");
        assert_eq!(found, Some(PathBuf::from("/bin/sh")));
    }
}
