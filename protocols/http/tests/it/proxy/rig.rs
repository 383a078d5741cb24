//! A proxy in a simulation, its clients, and the far ends of its connections to servers.

use std::net::SocketAddr;

use flatpath::simulation::{Answer, Upstream as Far};
use flatpath_http::{
    Balance, Http, Limits, Proxy, Router, Upstream, UpstreamLimits, UpstreamServer,
};
use flatpath_test::{Client, ClientState, Conditions, TestServer};

pub(crate) const SEEDS: u64 = 20;

/// Where the n-th server is.
pub(crate) fn at(number: u8) -> SocketAddr {
    ([192, 0, 2, number], 80).into()
}

pub(crate) fn server_at(number: u8) -> UpstreamServer {
    format!("http://{}", at(number)).parse().expect("a server")
}

/// See the module.
pub(crate) struct Rig {
    pub(crate) server: TestServer,
    pub(crate) far: Far,
    pub(crate) upstream: Upstream,
}

impl Rig {
    /// A proxy for all requests, to one server that accepts.
    pub(crate) fn new(conditions: Conditions) -> Rig {
        Rig::with(conditions, UpstreamLimits::default(), server_at(1), |it| it)
    }

    pub(crate) fn with(
        conditions: Conditions,
        limits: UpstreamLimits,
        server: UpstreamServer,
        change: impl FnOnce(Proxy) -> Proxy,
    ) -> Rig {
        let upstream = Upstream::new("app", [server], Balance::default(), limits);
        let upstream = upstream.expect("a server");
        let http = Http::service(change(Proxy::to(&upstream)));
        Rig::of(TestServer::new(conditions, http), upstream)
    }

    /// The same below `/app`, within a layer.
    pub(crate) fn layered(conditions: Conditions) -> Rig {
        let upstream = Upstream::new(
            "app",
            [server_at(1)],
            Balance::default(),
            UpstreamLimits::default(),
        );
        let upstream = upstream.expect("a server");
        let layer = |request: flatpath_http::Request, next: &flatpath_http::Next<'_>| {
            next.run(request)
                .map(|response: flatpath_http::Response| ([("x-layer", "seen")], response))
        };
        let router: Router = Router::new()
            .nest_service("/app", Proxy::to(&upstream))
            .layer(layer);
        let http = Http::service(router).limits(Limits {
            body_bytes_max: 1000,
            ..Limits::default()
        });
        Rig::of(TestServer::new(conditions, http), upstream)
    }

    fn of(server: TestServer, upstream: Upstream) -> Rig {
        let far = server.world().upstream(at(1), Answer::Accepts);
        Rig {
            server,
            far,
            upstream,
        }
    }

    /// Clients of which each has asked for its number, in this order.
    pub(crate) fn ask_in_order(&mut self, count: usize) -> Vec<Client> {
        let clients: Vec<Client> = (0..count).map(|_| self.connect()).collect();
        for (number, client) in clients.iter().enumerate() {
            client.write(get(&format!("/{number}")).as_bytes());
            self.server.settle();
        }
        clients
    }

    /// Clients that were answered at the same time, and the far ends of the connections that were
    /// opened for them.
    pub(crate) fn answered_at_once<const COUNT: usize>(&mut self) -> [[Client; COUNT]; 2] {
        let clients = [(); COUNT].map(|()| self.connect());
        for client in &clients {
            client.write(get("/").as_bytes());
        }
        let peers = [(); COUNT].map(|()| self.accept());
        for peer in &peers {
            let _head = self.head(peer);
            peer.write(ok("one").as_bytes());
        }
        for client in &clients {
            assert_eq!(self.status(client), 200);
        }
        self.server.settle();
        [clients, peers]
    }

    pub(crate) fn connect(&mut self) -> Client {
        self.server.connect()
    }

    /// The far end of the next connection that the proxy opens.
    #[track_caller]
    pub(crate) fn accept(&mut self) -> Client {
        let (far, mut peer) = (self.far.clone(), None);
        self.server.run_until(|| {
            peer = peer.take().or_else(|| far.accept());
            peer.is_some()
        });
        peer.expect("it was opened")
    }

    /// No connection is opened.
    #[track_caller]
    pub(crate) fn opens_none(&mut self) {
        self.server.settle();
        assert!(self.far.accept().is_none(), "a connection was opened");
    }

    /// The next head that one end gets, its empty line included.
    #[track_caller]
    pub(crate) fn head(&mut self, peer: &Client) -> String {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            head += &self.server.read_line(peer);
        }
        head
    }

    #[track_caller]
    pub(crate) fn text(&mut self, peer: &Client, bytes: usize) -> String {
        String::from_utf8(self.server.read_exact(peer, bytes)).expect("text")
    }

    /// The data of a body in chunks, which one end gets, and the lines after it.
    #[track_caller]
    pub(crate) fn chunks(&mut self, peer: &Client) -> (String, String) {
        let mut data = String::new();
        loop {
            let line = self.server.read_line(peer);
            let bytes = usize::from_str_radix(line.trim_end(), 16).expect("a size");
            if bytes == 0 {
                let mut lines = String::new();
                while !lines.ends_with("\r\n\r\n") && lines != "\r\n" {
                    lines += &self.server.read_line(peer);
                }
                return (data, lines);
            }
            data += &self.text(peer, bytes);
            assert_eq!(self.text(peer, 2), "\r\n");
        }
    }

    /// Waits for the end of a connection.
    #[track_caller]
    pub(crate) fn end(&mut self, peer: &Client) {
        self.server.run_until(|| {
            let _rest = peer.read();
            peer.state() != ClientState::Open
        });
    }

    /// The status of a reply without more than a body of words.
    #[track_caller]
    pub(crate) fn status(&mut self, client: &Client) -> u16 {
        let head = self.head(client);
        let length = head
            .lines()
            .find_map(|line| line.strip_prefix("Content-Length: "));
        let bytes = length.map_or(0, |length| length.parse().expect("a number"));
        let _words = self.server.read_exact(client, bytes);
        head[9..12].parse().expect("a status")
    }
}

pub(crate) fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: h\r\n\r\n")
}

pub(crate) fn ok(body: &str) -> String {
    format!(
        "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
}
