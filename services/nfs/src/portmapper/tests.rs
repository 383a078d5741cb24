//! What each procedure answers, of the portmapper at the port of NFS and of one alone.

use std::net::{IpAddr, SocketAddr};

use flatpath_rpc::Transport;
use flatpath_rpc::xdr::Reader;

use super::*;
use crate::testing::{Fixture, Words, pool};

const NFS: u32 = 100_003;
const MOUNT: u32 = 100_005;
const SELF: u32 = 100_000;

fn at(address: &str) -> SocketAddr {
    address.parse().expect("an address")
}

/// NFS at every address of both families, with MOUNT over UDP and portmappers.
fn both_families() -> Offered {
    let offered = Offered::default();
    for host in ["0.0.0.0", "[::]"] {
        offered.announce(Offer::Nfs, at(&format!("{host}:2049")));
        offered.announce(Offer::MountDatagrams, at(&format!("{host}:2050")));
        offered.announce(Offer::Portmapper, at(&format!("{host}:111")));
        offered.announce(Offer::PortmapperDatagrams, at(&format!("{host}:111")));
    }
    offered
}

/// A client that has reached the server at `local` over `transport`.
struct Client {
    portmapper: Portmapper,
    call: Call,
}

impl Client {
    fn new(offered: &Offered, local: &str, transport: Transport) -> Client {
        let local: IpAddr = local.parse().expect("an address");
        let call = Call {
            program: SELF,
            peer: Some(SocketAddr::new(local, 900)),
            local: Some(local),
            transport,
            ..Call::default()
        };
        Client {
            portmapper: Portmapper::new(offered),
            call,
        }
    }

    fn asks(&self, version: u32, procedure: u32, arguments: &Words) -> Vec<u8> {
        let call = Call {
            version,
            procedure,
            ..self.call
        };
        let pool = pool();
        let mut reply = Reply::for_tests((&pool).into());
        let arguments = Arguments::new(&arguments.0);
        let outcome = match self.portmapper.route(&call) {
            Route::Inline => {
                let mut room = [0; 484];
                let mut writer = Writer::new(&mut room);
                let outcome = self.portmapper.inline(&call, arguments, &mut writer);
                assert_eq!(outcome, CallOutcome::Results);
                let written = writer.written();
                return room[..written].to_vec();
            }
            Route::Pooled => {
                let pool = (&pool).into();
                self.portmapper.pooled(&call, arguments, &mut reply, pool)
            }
            route => panic!("{route:?}"),
        };
        assert_eq!(outcome, CallOutcome::Results);
        let results = reply.into_results();
        assert!(results.len() <= self.portmapper.reply_bytes_max(&call, arguments));
        results
    }

    /// GETPORT.
    fn port(&self, program: u32, version: u32, protocol: u32) -> u32 {
        let words = [program, version, protocol, 0];
        let words = words.into_iter().fold(Words::default(), Words::word);
        let results = self.asks(2, GETADDR, &words);
        Reader::new(&results).u32().expect("a port")
    }

    /// GETADDR or GETVERSADDR, with the name of another transport.
    fn address(&self, (version, procedure): (u32, u32), program: u32, of: u32) -> String {
        let results = self.asks(version, procedure, &rpcb(program, of));
        let mut reader = Reader::new(&results);
        let text = reader.opaque(64).expect("a string").to_vec();
        assert_eq!(reader.end(), Ok(()));
        String::from_utf8(text).expect("text")
    }
}

fn rpcb(program: u32, version: u32) -> Words {
    let words = Words::default().word(program).word(version);
    words.opaque(b"rdp").opaque(b"").opaque(b"superuser")
}

fn route_of(version: u32, procedure: u32) -> Route {
    let call = Call {
        program: SELF,
        version,
        procedure,
        ..Call::default()
    };
    Portmapper::new(&Offered::default()).route(&call)
}

#[test]
fn version_2_has_the_port_of_each_program_and_protocol() {
    let client = Client::new(&both_families(), "192.0.2.1", Transport::Datagram);
    let (tcp, udp) = (6, 17);
    assert_eq!(client.port(NFS, 3, tcp), 2049);
    assert_eq!(client.port(NFS, 3, udp), 0, "a file is not read by UDP");
    assert_eq!(client.port(MOUNT, 3, tcp), 2049);
    assert_eq!(client.port(MOUNT, 3, udp), 2050);
    assert_eq!(client.port(SELF, 2, udp), 111);
    assert_eq!(client.port(MOUNT, 0, udp), 2050, "it tells its versions");
    assert_eq!(client.port(100_021, 4, tcp), 0, "no locks");
    assert_eq!(client.port(NFS, 3, 132), 0, "another protocol");
}

#[test]
fn an_address_is_the_one_that_the_client_has_come_to_by_the_transport_it_came_by() {
    let offered = both_families();
    let cases = [
        ("192.0.2.1", Transport::Stream, "192.0.2.1.8.1"),
        ("192.0.2.1", Transport::Datagram, "192.0.2.1.8.2"),
        ("2001:db8::1", Transport::Stream, "2001:db8::1.8.1"),
        ("2001:db8::1", Transport::Datagram, "2001:db8::1.8.2"),
    ];
    for (local, transport, address) in cases {
        let client = Client::new(&offered, local, transport);
        for procedure in [(3, GETADDR), (4, GETADDR), (4, GETVERSADDR)] {
            assert_eq!(client.address(procedure, MOUNT, 3), address);
            assert_eq!(client.address(procedure, 100_021, 4), "");
        }
        assert_eq!(client.address((4, GETADDR), MOUNT, 9), address);
        assert_eq!(client.address((4, GETVERSADDR), MOUNT, 9), "");
    }
    let by_udp = Client::new(&offered, "192.0.2.1", Transport::Datagram);
    assert_eq!(by_udp.address((3, GETADDR), NFS, 3), "", "only by TCP");
}

#[test]
fn a_client_is_told_of_what_it_can_reach() {
    let offered = Offered::default();
    offered.announce(Offer::Nfs, at("127.0.0.1:4000"));
    offered.announce(Offer::Nfs, at("192.0.2.9:4001"));
    let of = |local: &str| {
        let client = Client::new(&offered, local, Transport::Stream);
        (client.port(NFS, 3, 6), client.address((4, GETADDR), NFS, 3))
    };
    assert_eq!(of("127.0.0.1"), (4000, "127.0.0.1.15.160".into()));
    assert_eq!(of("192.0.2.1"), (4001, "192.0.2.9.15.161".into()));
    assert_eq!(of("2001:db8::1"), (0, String::new()), "not by IPv6");
    let mut unknown = Client::new(&offered, "192.0.2.1", Transport::Stream);
    (unknown.call.local, unknown.call.peer) = (None, None);
    assert_eq!(unknown.port(NFS, 3, 6), 4000, "the first one");
    unknown.call.peer = Some(at("[2001:db8::7]:700"));
    assert_eq!(unknown.port(NFS, 3, 6), 0, "the peer has the same family");
}

#[test]
fn version_2_dumps_what_is_served_by_the_family_of_the_client() {
    let client = Client::new(&both_families(), "2001:db8::1", Transport::Stream);
    let results = client.asks(2, DUMP, &Words::default());
    let mut reader = Reader::new(&results);
    let mut listed = Vec::new();
    while reader.boolean() == Ok(true) {
        listed.push([(); 4].map(|()| reader.u32().expect("a word")));
    }
    assert_eq!(reader.end(), Ok(()));
    let expected = [
        [SELF, 4, 6, 111],
        [SELF, 3, 6, 111],
        [SELF, 2, 6, 111],
        [SELF, 4, 17, 111],
        [SELF, 3, 17, 111],
        [SELF, 2, 17, 111],
        [MOUNT, 3, 6, 2049],
        [NFS, 3, 6, 2049],
        [MOUNT, 3, 17, 2050],
    ];
    assert_eq!(listed, expected);
}

#[test]
fn versions_3_and_4_dump_all_with_names_of_transports() {
    let client = Client::new(&both_families(), "192.0.2.1", Transport::Stream);
    for version in [3, 4] {
        let results = client.asks(version, DUMP, &Words::default());
        let mut reader = Reader::new(&results);
        let mut listed = Vec::new();
        while reader.boolean() == Ok(true) {
            let program = (reader.u32().expect("a word"), reader.u32().expect("a word"));
            let mut text = || {
                let bytes = reader.opaque(64).expect("a string").to_vec();
                String::from_utf8(bytes).expect("text")
            };
            let (netid, address) = (text(), text());
            assert_eq!(text(), "flatpath");
            listed.push((program, netid, address));
        }
        assert_eq!((reader.end(), listed.len()), (Ok(()), 18));
        for (netid, address) in [
            ("tcp", "0.0.0.0.8.1"),
            ("udp", "0.0.0.0.8.2"),
            ("tcp6", "::.8.1"),
            ("udp6", "::.8.2"),
        ] {
            let mount = ((MOUNT, 3), netid.to_owned(), address.to_owned());
            assert!(listed.contains(&mount), "{mount:?}");
        }
    }
}

#[test]
fn a_list_of_addresses_has_each_transport_of_the_clients_family() {
    let client = Client::new(&both_families(), "192.0.2.1", Transport::Datagram);
    let expected = Words::default()
        .word(1)
        .opaque(b"192.0.2.1.8.1")
        .opaque(b"tcp")
        .word(3)
        .opaque(b"inet")
        .opaque(b"tcp")
        .word(1)
        .opaque(b"192.0.2.1.8.2")
        .opaque(b"udp")
        .word(1)
        .opaque(b"inet")
        .opaque(b"udp")
        .word(0);
    assert_eq!(client.asks(4, GETADDRLIST, &rpcb(MOUNT, 3)), expected.0);
    let none = Words::default().word(0);
    assert_eq!(client.asks(4, GETADDRLIST, &rpcb(MOUNT, 1)), none.0);
    let client = Client::new(&both_families(), "::1", Transport::Datagram);
    let results = client.asks(4, GETADDRLIST, &rpcb(NFS, 3));
    let expected = Words::default()
        .word(1)
        .opaque(b"::1.8.1")
        .opaque(b"tcp6")
        .word(3)
        .opaque(b"inet6")
        .opaque(b"tcp")
        .word(0);
    assert_eq!(results, expected.0);
}

#[test]
fn addresses_are_turned_into_each_other_and_the_time_is_told() {
    let client = Client::new(&both_families(), "192.0.2.1", Transport::Stream);
    for version in [3, 4] {
        let asked = Words::default().opaque(b"192.0.2.1.8.1");
        let netbuf = client.asks(version, UADDR2TADDR, &asked);
        let mut reader = Reader::new(&netbuf);
        assert_eq!(reader.u32(), Ok(16));
        let family = 2_u16.to_ne_bytes();
        let bytes = [&family[..], &[8, 1, 192, 0, 2, 1, 0, 0, 0, 0, 0, 0, 0, 0]].concat();
        assert_eq!(reader.opaque(64), Ok(&bytes[..]));
        assert_eq!(client.asks(version, TADDR2UADDR, &Words(netbuf)), asked.0);
        let none = Words::default().word(0).opaque(b"");
        let asked = Words::default().opaque(b"nowhere");
        assert_eq!(client.asks(version, UADDR2TADDR, &asked), none.0);
        let empty = Words::default().opaque(b"");
        assert_eq!(client.asks(version, TADDR2UADDR, &none), empty.0);
        let time = client.asks(version, GETTIME, &Words::default());
        let time = Reader::new(&time).u32().expect("seconds");
        assert!(time > 1_700_000_000, "it is later than 2023: {time}");
    }
}

#[test]
fn no_server_registers_here_and_nothing_is_called_for_others() {
    let client = Client::new(&both_families(), "127.0.0.1", Transport::Stream);
    let mapping = [1, 2, 6, 99];
    let mapping = mapping.into_iter().fold(Words::default(), Words::word);
    let no = Words::default().word(0);
    for procedure in [SET, UNSET] {
        assert_eq!(client.asks(2, procedure, &mapping), no.0);
        assert_eq!(client.asks(3, procedure, &rpcb(NFS, 3)), no.0);
        assert_eq!(client.asks(4, procedure, &rpcb(NFS, 3)), no.0);
    }
    assert_eq!(client.port(1, 2, 6), 0);
    assert_eq!(client.port(NFS, 3, 6), 2049);
    for version in [2, 3, 4] {
        assert_eq!(route_of(version, CALLIT), Route::Silent);
    }
    let unavailable = Route::Unavailable(Accepted::ProcedureUnavailable);
    assert_eq!(route_of(4, INDIRECT), unavailable);
    assert_eq!(route_of(4, GETSTAT), unavailable);
}

#[test]
fn versions_and_procedures_that_there_are_not_are_named() {
    let (low, high) = (2, 4);
    let mismatch = Route::Unavailable(Accepted::ProgramMismatch { low, high });
    for version in [0, 1, 5, u32::MAX] {
        assert_eq!(route_of(version, 0), mismatch);
    }
    let unavailable = Route::Unavailable(Accepted::ProcedureUnavailable);
    for (version, procedures) in [(2, 6), (3, 9), (4, 13)] {
        assert_eq!(route_of(version, 0), Route::Inline);
        assert_ne!(route_of(version, 4), unavailable);
        for procedure in [procedures, u32::MAX] {
            assert_eq!(route_of(version, procedure), unavailable);
        }
    }
    let call = Call {
        program: NFS,
        version: 3,
        ..Call::default()
    };
    let none = Route::Unavailable(Accepted::ProgramUnavailable);
    assert_eq!(Portmapper::new(&Offered::default()).route(&call), none);
}

#[test]
fn arguments_that_are_cut_or_too_long_are_garbage() {
    let mut client = Client::new(&both_families(), "192.0.2.1", Transport::Stream);
    let (four, long) = (Words::default().opaque(b"1234"), vec![b'x'; 256]);
    let netbuf = Words::default().word(4).opaque(b"1234");
    let mapping = [NFS, 3, 6, 0];
    let mapping = mapping.into_iter().fold(Words::default(), Words::word);
    let with_long = Words::default().word(NFS).word(3).opaque(&long);
    for (version, procedure, whole) in [
        (2, GETADDR, &mapping),
        (2, SET, &mapping),
        (3, GETADDR, &rpcb(NFS, 3)),
        (4, UNSET, &rpcb(NFS, 3)),
        (4, UADDR2TADDR, &four),
        (4, TADDR2UADDR, &netbuf),
        (4, GETADDR, &with_long.opaque(b"").opaque(b"")),
        (4, UADDR2TADDR, &Words::default().opaque(&long)),
    ] {
        (client.call.version, client.call.procedure) = (version, procedure);
        let mut room = [0; 484];
        let ends = (0..whole.0.len()).step_by(4);
        let too_long = whole.0.len() > 256;
        for end in ends.chain(too_long.then_some(whole.0.len())) {
            let (arguments, mut writer) = (Arguments::new(&whole.0[..end]), Writer::new(&mut room));
            let outcome = client
                .portmapper
                .inline(&client.call, arguments, &mut writer);
            assert_eq!(
                outcome,
                CallOutcome::GarbageArguments,
                "{version} {procedure} {end}"
            );
        }
    }
}

#[test]
fn only_clients_of_the_networks_that_are_allowed_may_ask() {
    let allowed = vec!["192.0.2.0/24".parse().expect("a network")];
    let portmapper = Portmapper::new(&both_families()).allowed(allowed);
    let route = |peer: Option<&str>, procedure| {
        portmapper.route(&Call {
            program: SELF,
            version: 4,
            procedure,
            peer: peer.map(at),
            ..Call::default()
        })
    };
    let refused = Route::Refused(AuthStatus::TooWeak);
    for procedure in [0, DUMP, CALLIT] {
        assert_ne!(route(Some("192.0.2.7:4000"), procedure), refused);
        assert_eq!(route(Some("198.51.100.7:900"), procedure), refused);
        assert_eq!(route(None, procedure), refused);
    }
}

#[test]
fn the_list_is_bounded_and_its_bound_is_enough_for_the_longest_addresses() {
    let offered = Offered::default();
    let longest = "[1000:1000:1000:1000:1000:1000:1000:1000]";
    for port in 0..64 {
        offered.announce(
            Offer::Portmapper,
            at(&format!("{longest}:{}", 65_000 + port)),
        );
    }
    let client = Client::new(&offered, "2001:db8::1", Transport::Stream);
    assert_eq!(offered.table().entries.len(), 3 * crate::limits::OFFERS_MAX);
    assert!(client.asks(4, DUMP, &Words::default()).len() > crate::limits::OFFERS_MAX * 3 * 80);
    client.asks(2, DUMP, &Words::default());
    client.asks(4, GETADDRLIST, &rpcb(SELF, 2));
}

#[test]
fn the_port_of_nfs_answers_from_the_same_table_and_lists_itself_where_it_is_alone() {
    let fixture = Fixture::new();
    let offered = fixture.nfs.offered();
    offered.announce(Offer::Nfs, at("0.0.0.0:2049"));
    let count = || {
        let list = fixture.call(SELF, DUMP, &Words::default());
        (list.0.len() - 4) / 20
    };
    let port = |program, version| {
        let words = [program, version, 6, 0];
        let words = words.into_iter().fold(Words::default(), Words::word);
        fixture.call(SELF, GETADDR, &words).status()
    };
    assert_eq!((port(NFS, 3), port(MOUNT, 3)), (2049, 2049));
    assert_eq!((count(), port(SELF, 2)), (5, 2049));
    offered.announce(Offer::Portmapper, at("0.0.0.0:111"));
    assert_eq!((count(), port(SELF, 2)), (5, 111));
    assert_eq!((port(NFS, 3), port(MOUNT, 3)), (2049, 2049));
    let call = Call {
        program: SELF,
        version: 4,
        procedure: GETVERSADDR,
        local: Some("192.0.2.1".parse().expect("an address")),
        ..Call::default()
    };
    let results = fixture.answered(&call, &rpcb(NFS, 3));
    assert_eq!(results.reader().opaque(64), Ok(&b"192.0.2.1.8.1"[..]));
}

#[test]
fn mount_answers_datagrams_by_the_rules_of_connections_and_nfs_does_not() {
    let fixture = Fixture::with(|options| options.secure_ports = true);
    let route = |program, procedure, peer: &str| {
        fixture.nfs.route(&Call {
            program,
            version: 3,
            procedure,
            peer: Some(at(peer)),
            transport: Transport::Datagram,
            ..Call::default()
        })
    };
    let unavailable = Route::Unavailable(Accepted::ProgramUnavailable);
    assert_eq!(route(NFS, 0, "192.0.2.7:900"), unavailable);
    assert_eq!(route(NFS, 7, "192.0.2.7:900"), unavailable);
    for procedure in 1..6 {
        assert_eq!(route(MOUNT, procedure, "192.0.2.7:900"), Route::Pooled);
        let refused = Route::Refused(AuthStatus::TooWeak);
        assert_eq!(route(MOUNT, procedure, "192.0.2.7:1024"), refused);
    }
    assert_eq!(route(MOUNT, 0, "192.0.2.7:1024"), Route::Inline);
}
