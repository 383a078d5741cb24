//! A network of its own for servers and clients: loopback, with a congestion control that is known.
//!
//! The congestion control is a setting of the machine, and one that paces (BBR) paces loopback,
//! too: then every server is as fast as the pacing lets it be, and a third of the machine idles.
//! In a namespace of its own it can be chosen without touching the machine's setting.

use std::io;
use std::process::ExitCode;

use flatpath_testkit::{child, supervised, tools};

/// The setting, which every namespace has its own of.
const SETTING: &str = "/proc/sys/net/ipv4/tcp_congestion_control";

/// Tells the program that it runs within.
const WITHIN: &str = "FLATPATH_BENCH_WITHIN";

/// In place of a congestion control: stay in the machine's own network.
pub const HOST: &str = "host";

/// An address that is not a loopback one, which nfs-ganesha asks for (RFC 5737: for examples).
const ADDRESS: &str = "192.0.2.1/32";

/// The congestion control of the sockets made here.
pub fn congestion_control() -> io::Result<String> {
    Ok(std::fs::read_to_string(SETTING)?.trim().to_owned())
}

/// Runs this program again, with the same arguments, in a namespace that has `congestion`; how it
/// ended. `None`: this is that run, and the namespace is ready; or `congestion` is [`HOST`], and
/// there is none. Needs root, `unshare` and `ip`.
pub fn enter(congestion: &str) -> io::Result<Option<ExitCode>> {
    if congestion == HOST {
        return Ok(None);
    }
    if std::env::var_os(WITHIN).is_none() {
        // It ends with this process, whatever ends that one.
        let mut command = child::command("unshare", &[]);
        command
            .args(["--net", "--"])
            .arg(std::env::current_exe()?)
            .args(std::env::args_os().skip(1))
            .env(WITHIN, "1");
        let status = supervised::run(&mut command);
        let status = status.map_err(|cause| with("unshare (util-linux)", &cause))?;
        let code = status.code().and_then(|code| u8::try_from(code).ok());
        return Ok(Some(ExitCode::from(code.unwrap_or(1))));
    }
    tools::loopback_up()?;
    tools::ip(&["address", "add", ADDRESS, "dev", "lo"])?;
    std::fs::write(SETTING, congestion)
        .map_err(|cause| with(&format!("the congestion control {congestion}"), &cause))?;
    Ok(None)
}

fn with(what: &str, cause: &io::Error) -> io::Error {
    io::Error::new(cause.kind(), format!("{what}: {cause}"))
}
