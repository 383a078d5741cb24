//! A network of its own for servers and clients: loopback, with a congestion control that is known.
//!
//! The congestion control is a setting of the machine, and one that paces (BBR) paces loopback,
//! too: then every server is as fast as the pacing lets it be, and a third of the machine idles.
//! In a namespace of its own it can be chosen without touching the machine's setting.

use std::ffi::OsStr;
use std::process::{Command, ExitCode};

use crate::Failure;

/// The setting, which every namespace has its own of.
const SETTING: &str = "/proc/sys/net/ipv4/tcp_congestion_control";

/// Tells the program that it runs within.
const WITHIN: &str = "FLATPATH_BENCH_NFS_WITHIN";

/// An address that is not a loopback one, which nfs-ganesha asks for (RFC 5737: for examples).
const ADDRESS: &str = "192.0.2.1/32";

/// The congestion control of the sockets made here.
pub(crate) fn congestion_control() -> Result<String, Failure> {
    Ok(std::fs::read_to_string(SETTING)?.trim().to_owned())
}

/// Runs this program again, with the same arguments, in a namespace that has `congestion`; how it
/// ended. `None`: this is that run, and the namespace is ready.
pub(crate) fn enter(congestion: &str) -> Result<Option<ExitCode>, Failure> {
    if std::env::var_os(WITHIN).is_none() {
        let program = std::env::current_exe()?;
        let status = Command::new("unshare")
            .args([OsStr::new("--net"), OsStr::new("--"), program.as_os_str()])
            .args(std::env::args_os().skip(1))
            .env(WITHIN, "1")
            .status();
        let status = status.map_err(|cause| format!("unshare (util-linux): {cause}"))?;
        let code = if status.success() { 0 } else { 1 };
        return Ok(Some(ExitCode::from(code)));
    }
    ip(&["link", "set", "lo", "up"])?;
    ip(&["address", "add", ADDRESS, "dev", "lo"])?;
    std::fs::write(SETTING, congestion)
        .map_err(|cause| format!("the congestion control {congestion}: {cause}"))?;
    Ok(None)
}

fn ip(arguments: &[&str]) -> Result<(), Failure> {
    let status = Command::new("ip").args(arguments).status();
    let status = status.map_err(|cause| format!("ip (iproute2): {cause}"))?;
    if !status.success() {
        return Err(format!("ip {}: {status}", arguments.join(" ")).into());
    }
    Ok(())
}
