//! HTTP requests to a simulated server.

pub use flatpath_test_client::{Http, HttpClient, Received, Reply, Request, Requests, Upload};

use flatpath_test_client::Wire;

use crate::server::{TestServer, Waiting};
use crate::{Client, ClientState};

/// A client's connection to a [`TestServer`], for requests one after the other.
///
/// ```no_run
/// use flatpath_test::{Conditions, Requests, TestServer};
/// # fn served() -> impl flatpath::Protocol { flatpath::framing::Framed::inline(
/// #     "", flatpath::framing::Lines::new(1), |(), _, _| Ok(flatpath::framing::Next::Message)) }
///
/// let mut server = TestServer::new(Conditions::calm(1), served());
/// let (mut one, mut other) = (server.connect_http(), server.connect_http());
/// one.on(&mut server).put("/a").body("x").expect(201);
/// other.on(&mut server).get("/a").expect(200);
/// ```
pub struct HttpConnection {
    client: Client,
    received: Received,
}

flatpath::opaque_debug! {
    impl[] HttpConnection as "HttpConnection";
    impl[] OnServer<'_> as "OnServer";
}

impl HttpConnection {
    /// A connection of a client that has read nothing yet.
    #[must_use]
    pub fn new(client: Client) -> Self {
        HttpConnection {
            client,
            received: Received::default(),
        }
    }

    /// For requests to the server that the client is connected to.
    pub fn on<'a>(&'a mut self, server: &'a mut TestServer) -> OnServer<'a> {
        OnServer {
            connection: self,
            server,
        }
    }

    /// The client, for bytes of the test's own.
    #[must_use]
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Whether nothing more can be asked on it.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.received.has_ended() || self.client.state() != ClientState::Open
    }

    pub(crate) fn lend<'a>(&'a mut self, waiting: &'a mut Waiting) -> Http<'a> {
        let client = &self.client;
        Http::new(Simulated { client, waiting }, &mut self.received)
    }
}

/// See [`HttpConnection::on`].
pub struct OnServer<'a> {
    connection: &'a mut HttpConnection,
    server: &'a mut TestServer,
}

impl<'a> OnServer<'a> {
    /// The connection for one request, which may outlive this value.
    #[must_use]
    pub fn into_http(self) -> Http<'a> {
        self.connection.lend(self.server.waiting())
    }
}

impl Requests for OnServer<'_> {
    fn http(&mut self) -> Http<'_> {
        self.connection.lend(self.server.waiting())
    }
}

/// A connection, with the server that runs while it waits.
struct Simulated<'a> {
    client: &'a Client,
    waiting: &'a mut Waiting,
}

impl Wire for Simulated<'_> {
    fn send(&mut self, bytes: &[u8]) {
        self.client.write(bytes);
    }

    #[track_caller]
    fn receive(&mut self) -> Option<Vec<u8>> {
        self.waiting.read_some(self.client)
    }
}
