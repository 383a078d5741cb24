//! The portmappers of listeners for NFS (`--nfs-portmapper ADDR`), over TCP and UDP, and MOUNT over
//! UDP at the address of NFS.
//!
//! All portmappers of a server read one table: the one at port 111 lists what every listener for
//! NFS serves that has it.

use std::io;
use std::net::SocketAddr;

use flatpath::sockets::{ListenAddress, Listening};
use flatpath::{Error, Running, Server};
use flatpath_nfs::limits::OFFERS_MAX;
use flatpath_nfs::{Nfs, Offer, Offered, Portmapper};
use flatpath_rpc::Rpc;

use crate::failure::Failure;
use crate::listener::Listener;
use crate::services::{Number, Services};
use crate::settings::{ListenerProtocol, Settings, is_on};

impl Listener {
    /// Where it has portmappers.
    pub(crate) fn portmappers(&self) -> &[SocketAddr] {
        match self.protocol {
            ListenerProtocol::Nfs => &self.settings.nfs_portmapper,
            _ => &[],
        }
    }
}

/// Whether portmappers have something to list, and do not meet rpcbind.
///
/// # Errors
/// There is no listener for NFS, one registers with rpcbind, or there are too many to be listed.
pub(crate) fn check(settings: &Settings, listeners: &[Listener]) -> Result<(), Failure> {
    let wrong = |why: String| Err(Failure::WrongUse(why));
    if !settings.nfs_portmapper.is_empty() && settings.nfs.is_none() {
        return wrong(
            "--nfs-portmapper lists NFS, which has no listener: name one with --nfs ADDR; a \
             [[listener]] for nfs has an nfs-portmapper of its own"
                .into(),
        );
    }
    let with_portmapper = || listeners.iter().filter(|it| !it.portmappers().is_empty());
    let registers = listeners
        .iter()
        .any(|it| it.protocol == ListenerProtocol::Nfs && is_on(it.settings.nfs_register));
    if registers && with_portmapper().next().is_some() {
        return wrong(
            "--nfs-portmapper takes the place of rpcbind, with which --nfs-register registers: \
             leave one of them out"
                .into(),
        );
    }
    let offers = with_portmapper().map(|it| 2 * (it.addresses.len() + it.portmappers().len()));
    if offers.sum::<usize>() > OFFERS_MAX {
        let most = OFFERS_MAX / 2;
        return wrong(format!(
            "portmappers list at most {most} addresses, of NFS and their own together"
        ));
    }
    Ok(())
}

/// The server with the portmappers of a listener as well.
pub(crate) fn add_to(mut server: Server, listener: &Listener, services: &mut Services) -> Server {
    for address in listener.portmappers() {
        let offered = services.portmapped.clone();
        let portmapper = Portmapper::new(&offered).allowed(listener.settings.nfs_allow.clone());
        server = flatpath_cli_protocols::portmapper(server, *address, portmapper);
        services.offer(Offer::Portmapper, Number::Stream(services.count), offered);
        services.count += 1;
        let offered = services.portmapped.clone();
        let number = Number::Datagrams(services.datagrams);
        services.offer(Offer::PortmapperDatagrams, number, offered);
        services.datagrams += 1;
    }
    server
}

/// The server with MOUNT over UDP beside NFS, where portmappers list it: also where NFS requires
/// TLS, which datagrams have not and MOUNT does not need.
pub(crate) fn add_mount_to(
    server: Server,
    listener: &Listener,
    (address, nfs): (&ListenAddress, &Rpc<Nfs>),
    services: &mut Services,
) -> Server {
    if listener.portmappers().is_empty() {
        return server;
    }
    let passed = services.passed.addresses(address);
    let mut places = [address].into_iter().chain(&passed);
    let Some(at) = places.find_map(ListenAddress::internet) else {
        return server;
    };
    let number = Number::Datagrams(services.datagrams);
    services.offer(Offer::MountDatagrams, number, nfs.programs().offered());
    services.datagrams += 1;
    flatpath_cli_protocols::mount_datagrams(server, at, nfs)
}

/// The table of a listener for NFS: that of the portmappers, or its own alone.
pub(crate) fn table_of(listener: &Listener, services: &Services) -> Offered {
    match listener.portmappers() {
        [] => Offered::default(),
        _ => services.portmapped.clone(),
    }
}

/// Tells portmappers what listens where, now that the ports are known.
pub(crate) fn announce(running: &Running, services: &Services) {
    for it in &services.offers {
        let listening = match it.number {
            Number::Stream(number) => running.listeners().get(number),
            Number::Datagrams(number) => running.datagram_listeners().get(number),
        };
        if let Some(bound) = listening.and_then(|it| it.address.internet()) {
            it.offered.announce(it.offer, bound);
        }
    }
}

/// The lines of listeners for datagrams.
pub(crate) fn lines(listening: &[Listening]) -> String {
    let lines = listening.iter();
    let lines = lines.map(|it| format!("listening {}-udp {}\n", it.name, it.address));
    lines.collect()
}

/// A failure to start, in words for a portmapper if it is about one.
pub(crate) fn explain(error: &Error, listeners: &[Listener], other: Failure) -> Failure {
    let Error::Bind { address, cause } = error else {
        return other;
    };
    let mut portmappers = listeners.iter().flat_map(Listener::portmappers);
    if !portmappers.any(|it| address.internet() == Some(*it)) {
        return other;
    }
    let why = match cause.kind() {
        io::ErrorKind::AddrInUse => {
            "rpcbind, or another portmapper, listens there: stop it (systemctl disable --now \
             rpcbind.socket rpcbind.service), or register with it by --nfs-register in place of \
             --nfs-portmapper"
        }
        io::ErrorKind::PermissionDenied => {
            "a port below 1024 needs CAP_NET_BIND_SERVICE, and clients ask at port 111 alone: give \
             it (AmbientCapabilities= in systemd, setcap), or leave --nfs-portmapper out and name \
             the ports when mounting"
        }
        _ => return other,
    };
    Failure::Failed(format!("--nfs-portmapper {address}: {cause}; {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Configuration;
    use crate::listeners;

    fn read(text: &str) -> Result<Vec<Listener>, String> {
        let file = Configuration::from_text(text)?;
        listeners::of(&file.settings, &file).map_err(|failure| failure.to_string())
    }

    #[test]
    fn a_portmapper_belongs_to_nfs_and_excludes_rpcbind() {
        let both = "nfs = 2049\nnfs-portmapper = [\"0.0.0.0\", \"::\"]\n";
        let listeners = read(both).expect("they fit");
        let expected = ["0.0.0.0:111", "[::]:111"].map(|it| it.parse().expect("an address"));
        assert_eq!(listeners[0].portmappers(), expected);
        let refused = |text: &str| read(text).expect_err(text);
        let alone = refused("http = 80\nnfs-portmapper = \"0.0.0.0\"\n");
        assert!(alone.contains("name one with --nfs ADDR"), "{alone}");
        let rpcbind = refused(&format!("{both}nfs-register = true\n"));
        assert!(rpcbind.contains("leave one of them out"), "{rpcbind}");
        let table = "[[listener]]\nprotocol = \"nfs\"\naddress = 2050\n";
        let elsewhere = refused(&format!("{both}{table}nfs-register = true\n"));
        assert!(elsewhere.contains("leave one of them out"), "{elsewhere}");
        let twice = refused(&format!("{both}{table}nfs-portmapper = \"0.0.0.0\"\n"));
        assert!(
            twice.contains("two listeners have the address 0.0.0.0:111"),
            "{twice}"
        );
        let of_tcp = refused("http = \"0.0.0.0:111\"\nnfs = 2049\nnfs-portmapper = \"0.0.0.0\"\n");
        assert!(of_tcp.contains("two listeners"), "{of_tcp}");
        let none =
            "[[listener]]\nprotocol = \"http\"\naddress = 80\nnfs-portmapper = \"0.0.0.0\"\n";
        let none = refused(none);
        assert!(none.starts_with("4:1: nfs-portmapper is for nfs"), "{none}");
    }

    #[test]
    fn a_table_does_not_inherit_the_portmapper_of_another() {
        let table = "[[listener]]\nprotocol = \"nfs\"\naddress = 2050\n";
        let listeners = read(&format!("nfs = 2049\nnfs-portmapper = \"::1\"\n{table}"));
        let listeners = listeners.expect("they fit");
        assert_eq!(listeners[0].portmappers().len(), 1);
        assert_eq!(listeners[1].portmappers().len(), 0);
        let own = read(&format!("{table}nfs-portmapper = \"127.0.0.2:1111\"\n"));
        assert_eq!(own.expect("it fits")[0].portmappers()[0].port(), 1111);
    }

    #[test]
    fn no_more_is_named_than_can_be_listed() {
        let nfs = |count: u16| {
            let addresses: Vec<_> = (0..count).map(|number| 3000 + number).collect();
            let address = format!("{addresses:?}");
            read(&format!(
                "[[listener]]\nprotocol = \"nfs\"\naddress = {address}\nnfs-portmapper = \"::1\"\n"
            ))
        };
        assert_eq!(OFFERS_MAX, 16);
        nfs(7).expect("eight with the portmapper");
        let why = nfs(8).expect_err("one too many");
        assert!(why.contains("at most 8 addresses"), "{why}");
    }

    #[test]
    fn what_is_in_the_way_of_a_portmapper_is_named() {
        let listeners = read("nfs = 2049\nnfs-portmapper = \"0.0.0.0\"\n").expect("they fit");
        let told = |address: &str, kind: io::ErrorKind| {
            let address: SocketAddr = address.parse().expect("an address");
            let (address, cause) = (address.into(), kind.into());
            let error = Error::Bind { address, cause };
            explain(&error, &listeners, Failure::Failed("other".into())).to_string()
        };
        let taken = told("0.0.0.0:111", io::ErrorKind::AddrInUse);
        assert!(
            taken.contains("rpcbind") && taken.contains("--nfs-register"),
            "{taken}"
        );
        let refused = told("0.0.0.0:111", io::ErrorKind::PermissionDenied);
        assert!(refused.contains("CAP_NET_BIND_SERVICE"), "{refused}");
        assert_eq!(told("0.0.0.0:2049", io::ErrorKind::AddrInUse), "other");
        assert_eq!(told("0.0.0.0:111", io::ErrorKind::Other), "other");
    }
}
