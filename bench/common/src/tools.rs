//! The programs the harness needs from the machine, and the packages that bring them.

use std::io;
use std::path::PathBuf;
use std::process::Command;

use flatpath_testkit::tools::locate;

/// A program of the system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tool {
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
/// The load generator of HTTP/2.
pub const H2LOAD: Tool = tool("h2load", "nghttp2-client", "--version");
/// The competitor for files and fixed replies.
pub const NGINX: Tool = tool("nginx", "nginx", "-v");
/// A competitor for large files; TLS is in a package of its own.
pub const LIGHTTPD: Tool = tool("lighttpd", "lighttpd lighttpd-mod-openssl", "-v");
/// A competitor for large files.
pub const H2O: Tool = tool("h2o", "h2o", "-v");
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

impl Tool {
    /// Where the program is.
    ///
    /// # Errors
    /// `NotFound`, which names the package.
    pub fn find(self) -> io::Result<PathBuf> {
        locate(self.program).ok_or_else(|| absent(&[self]))
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

/// Fails with all the missing ones at once, so that one installation is enough.
///
/// # Errors
/// `NotFound`, with the packages to install.
pub fn require(tools: &[Tool]) -> io::Result<()> {
    let tools = tools.iter().copied();
    let missing: Vec<Tool> = tools.filter(|tool| tool.find().is_err()).collect();
    if missing.is_empty() {
        return Ok(());
    }
    Err(absent(&missing))
}

fn absent(tools: &[Tool]) -> io::Error {
    let programs: Vec<_> = tools.iter().map(|tool| tool.program).collect();
    let packages: Vec<_> = tools.iter().map(|tool| tool.package).collect();
    let (programs, packages) = (programs.join(", "), packages.join(" "));
    let message = format!("not installed: {programs}; on Debian: apt install {packages}");
    io::Error::new(io::ErrorKind::NotFound, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_tool_names_its_package() {
        let text = absent(&[WRK, PERF]).to_string();
        assert_eq!(
            text,
            "not installed: wrk, perf; on Debian: apt install wrk linux-perf"
        );
    }
}
