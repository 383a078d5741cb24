//! The kernel's client over TLS (RFC 9289). Its handshakes are made by `tlshd` (ktls-utils), a
//! program that the kernel finds in the network namespace of the mount: each test has one of its
//! own.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use flatpath_testkit::child::{self, Child};
use flatpath_testkit::mount::Mounted;
use flatpath_testkit::skipped::not_on_this_kernel;
use flatpath_testkit::{Authority, Driver, Issued, Server, Site, each_driver, noise, tools, until};
use nix::sched::{CloneFlags, unshare};
use rustix::io::Errno;
use rustix::process::Signal;

use crate::nfs::mounted::{shell, start};

each_driver!(
    where_tls_is_required_a_mount_with_it_is_served,
    a_mount_shows_its_certificate,
);

/// A server in a namespace of the network, and the program that makes handshakes there.
struct Place {
    server: Server,
    files: Site,
    site: Site,
    state: Site,
    _tlshd: Child,
}

impl Place {
    /// `None` where there is no client, no such program, or no namespace. `more` are options of the
    /// server.
    fn new(driver: Driver, clients: &Authority, more: &[&str]) -> Option<Place> {
        if !Mounted::knows_nfs() {
            return None;
        }
        let program = tools::find("tlshd")?;
        if let Err(cause) = unshare(CloneFlags::CLONE_NEWNET) {
            return tools::refused(&format!("a namespace: {cause}"));
        }
        tools::loopback_up().expect("it is ours");
        let (own, client) = (
            Issued::for_host("127.0.0.1"),
            clients.issue("good", 1, 2999),
        );
        let files = Site::new()
            .with("crt", &own.certificate)
            .with("key", own.key)
            .with("ca", clients.certificate())
            .with("client-crt", client.certificate)
            .with("client-key", client.key);
        let at = |name: &str| files.at(name).display().to_string();
        let settings = format!(
            "[authenticate.client]\nx509.truststore={}\nx509.certificate={}\nx509.private_key={}\n",
            at("crt"),
            at("client-crt"),
            at("client-key")
        );
        files.write("tlshd.conf", settings);
        let private = fs::Permissions::from_mode(0o600);
        fs::set_permissions(files.at("client-key"), private).expect("our own file");
        let mut command = child::command(program, &[]);
        command.args(["--stderr", "--config", &at("tlshd.conf")]);
        let tlshd = Child::start(&mut command).expect("it starts");
        let (site, state) = (Site::new(), Site::new());
        site.write("big", noise(5, 3_000_001));
        let place = Place {
            server: Place::serve(driver, &files, &site, &state, "127.0.0.1:0", more),
            files,
            site,
            state,
            _tlshd: tlshd,
        };
        Some(place)
    }

    fn serve(
        driver: Driver,
        files: &Site,
        site: &Site,
        state: &Site,
        address: &str,
        more: &[&str],
    ) -> Server {
        let at = |name: &str| files.at(name).display().to_string();
        let (crt, key) = (at("crt"), at("key"));
        let options = [
            "--nfs-tls",
            "required",
            "--tls-cert",
            &crt,
            "--tls-key",
            &key,
        ];
        let address = address.parse().expect("an address");
        start(driver, site, state, address, &[&options, more].concat())
    }

    fn try_mount(&self, more: &str) -> io::Result<Option<Mounted>> {
        Mounted::try_nfs(self.server.address("nfs"), Path::new("/"), more)
    }

    /// Mounts once `tlshd` listens, which it does not say. `None` where the kernel has no client,
    /// or one that is too old for TLS.
    fn mount(&self, more: &str) -> Option<Mounted> {
        until("tlshd to make a handshake", || match self.try_mount(more) {
            Err(cause) if cause.raw_os_error() == Some(Errno::INVAL.raw_os_error()) => {
                not_on_this_kernel("an NFS client with TLS", (6, 5));
                Some(None)
            }
            mounted => mounted.ok(),
        })
    }
}

fn where_tls_is_required_a_mount_with_it_is_served(driver: Driver) {
    let Some(mut place) = Place::new(driver, &Authority::new("clients"), &[]) else {
        return;
    };
    let Some(mounted) = place.mount(",xprtsec=tls") else {
        return;
    };
    shell("cp big copy; cmp big copy", mounted.path());
    let copied = fs::read(place.site.at("copy")).expect("there");
    assert!(copied == noise(5, 3_000_001));
    let refused = place.try_mount("").map(|_| ());
    let refused = refused.expect_err("in the clear").raw_os_error();
    assert_eq!(refused, Some(Errno::ACCESS.raw_os_error()));
    // The client makes a new connection, with a new handshake.
    let address = place.server.address("nfs").to_string();
    place.server.process().signal(Signal::KILL);
    place.server.exit_status();
    place.server = Place::serve(
        driver,
        &place.files,
        &place.site,
        &place.state,
        &address,
        &[],
    );
    shell("cp big again; cmp copy again", mounted.path());
    drop(mounted);
    place.server.end();
}

fn a_mount_shows_its_certificate(driver: Driver) {
    let clients = Authority::new("clients");
    let authority = Site::new().with("ca", clients.certificate());
    let ca = authority.at("ca").display().to_string();
    let Some(place) = Place::new(driver, &clients, &["--tls-client-ca", &ca]) else {
        return;
    };
    let Some(mounted) = place.mount(",xprtsec=mtls") else {
        return;
    };
    shell("cp big copy; cmp big copy", mounted.path());
    drop(mounted);
    place.server.end();
}
