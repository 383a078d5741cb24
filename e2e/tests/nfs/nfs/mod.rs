//! A directory over NFSv3: libnfs and a Rust client as others use it, and bytes as no client sends
//! them.

mod client;
mod copies;
mod crash;
mod descriptors;
mod exports;
mod failover;
mod forgotten;
mod framing;
mod full;
mod gone;
mod handover;
mod hung;
mod lasting;
mod mounted;
mod overtaking;
mod portmapper;
mod prompt;
mod repeated;
mod rpcbind;
mod restart;
mod rights;
mod space;
mod tls;
mod tools;
mod two;
mod unread;

use flatpath_testkit::{Driver, Launch, Server, Site};

/// The server exports the site; its key is kept in `state`.
fn serve(driver: Driver, site: &Site, state: &Site, more: &[&str]) -> Server {
    launch(Launch::serve(driver), site, state, more)
}

/// The same, and the kernel opens no handles for it: files are found by name. `None` without the
/// tool for that.
fn serve_by_name(driver: Driver, site: &Site, state: &Site) -> Option<Server> {
    let program = flatpath_testkit::tools::find("setpriv")?;
    let unprivileged = Launch::new(program)
        .with(["--bounding-set", "-dac_read_search", "--"])
        .with([flatpath_testkit::binary::flatpath()])
        .with(["serve", "--driver", driver.name()]);
    Some(launch(unprivileged, site, state, &[]))
}

fn launch(launch: Launch, site: &Site, state: &Site, more: &[&str]) -> Server {
    use std::os::unix::fs::PermissionsExt;
    let open = std::fs::Permissions::from_mode(0o777);
    std::fs::set_permissions(site.path(), open).expect("our own directory");
    let state = state.path().to_str().expect("a path in text");
    launch
        .directory(site.path())
        .with(["--writable", "--nfs", "127.0.0.1:0", "--nfs-state", state])
        .with(more)
        .start()
}
