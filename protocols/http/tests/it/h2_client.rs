//! A client of HTTP/2 without a socket: the `h2` crate's, between what a simulated server sends and
//! what it is sent.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use flatpath_http::http::{HeaderMap, Request, StatusCode};
use flatpath_test::{Client, ClientState, TestServer};
use h2::client::{Builder, Connection, ResponseFuture, SendRequest};
use h2::{Reason, RecvStream, SendStream};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

const TURNS_MAX: usize = 200_000;

/// What one side reads and writes; the other end is the test's.
#[derive(Clone, Default)]
pub(crate) struct Pipe(pub(crate) Rc<RefCell<Bytewise>>);

#[derive(Default)]
pub(crate) struct Bytewise {
    pub(crate) input: VecDeque<u8>,
    pub(crate) output: Vec<u8>,
    is_ended: bool,
}

impl AsyncRead for Pipe {
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        room: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut pipe = self.0.borrow_mut();
        let bytes = pipe.input.len().min(room.remaining());
        if bytes == 0 && !pipe.is_ended {
            return Poll::Pending;
        }
        let read: Vec<u8> = pipe.input.drain(..bytes).collect();
        room.put_slice(&read);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Pipe {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.0.borrow_mut().output.extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// What became of a request.
#[derive(Default)]
pub(crate) struct Reply {
    pub(crate) status: Option<StatusCode>,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
    pub(crate) trailers: HeaderMap,
    /// The end of its stream.
    pub(crate) end: Option<Result<(), Option<Reason>>>,
}

impl Reply {
    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("text")
    }
}

struct Exchange {
    response: Option<ResponseFuture>,
    upload: Option<(SendStream<Bytes>, Bytes)>,
    body: Option<RecvStream>,
    reply: Reply,
}

type Shaken = Result<(SendRequest<Bytes>, Connection<Pipe, Bytes>), h2::Error>;
type Shaking = Pin<Box<dyn Future<Output = Shaken>>>;

/// See the module.
pub(crate) struct Peer {
    pub(crate) client: Client,
    pipe: Pipe,
    handshake: Option<Shaking>,
    connection: Option<Connection<Pipe, Bytes>>,
    send: Option<SendRequest<Bytes>>,
    exchanges: Vec<Exchange>,
    /// Gives windows back as it reads.
    pub(crate) reads: bool,
    /// How the connection has ended.
    pub(crate) end: Option<Result<(), Option<Reason>>>,
}

fn context() -> Context<'static> {
    Context::from_waker(Waker::noop())
}

impl Peer {
    pub(crate) fn new(server: &mut TestServer) -> Peer {
        Peer::with(server, &Builder::new())
    }

    /// A client that was built so, once it knows the server's settings.
    pub(crate) fn with(server: &mut TestServer, builder: &Builder) -> Peer {
        let pipe = Pipe::default();
        let (builder, other) = (builder.clone(), pipe.clone());
        let mut peer = Peer {
            client: server.connect(),
            pipe,
            handshake: Some(Box::pin(async move { builder.handshake(other).await })),
            connection: None,
            send: None,
            exchanges: Vec::new(),
            reads: true,
            end: None,
        };
        for _ in 0..TURNS_MAX {
            if peer.send.is_some() {
                return peer;
            }
            peer.step(server);
        }
        panic!("no handshake");
    }

    /// Asks for a path.
    pub(crate) fn get(&mut self, path: &str) -> usize {
        let request = Request::get(format!("http://h{path}"));
        self.ask(request.body(()).expect("a request"), None)
    }

    /// Sends a body.
    pub(crate) fn put(&mut self, path: &str, body: impl Into<Bytes>) -> usize {
        let request = Request::put(format!("http://h{path}"));
        self.ask(request.body(()).expect("a request"), Some(body.into()))
    }

    /// Sends a request, with a body if there is one. An empty one has no end yet.
    pub(crate) fn ask(&mut self, request: Request<()>, body: Option<Bytes>) -> usize {
        let send = self.send.as_mut().expect("a handshake");
        let (response, stream) = send
            .send_request(request, body.is_none())
            .expect("the connection takes a request");
        self.exchanges.push(Exchange {
            response: Some(response),
            upload: body.map(|body| (stream, body)),
            body: None,
            reply: Reply::default(),
        });
        self.exchanges.len() - 1
    }

    /// Sends more of a body, and its end after the last of it.
    pub(crate) fn feed(&mut self, index: usize, body: &[u8], is_last: bool) {
        let (stream, _) = self.exchanges[index].upload.as_mut().expect("a body");
        stream.reserve_capacity(body.len());
        let sent = stream.send_data(Bytes::copy_from_slice(body), is_last);
        // The stream may have ended.
        let _told = sent;
    }

    /// Ends a body with these.
    pub(crate) fn trail(&mut self, index: usize, trailers: HeaderMap) {
        let (stream, _) = self.exchanges[index].upload.as_mut().expect("a body");
        stream.send_trailers(trailers).expect("it is open");
    }

    /// Resets the stream of a request.
    pub(crate) fn reset(&mut self, index: usize) {
        let exchange = &mut self.exchanges[index];
        match &mut exchange.upload {
            Some((stream, _)) => stream.send_reset(Reason::CANCEL),
            None => (exchange.response, exchange.body) = (None, None),
        }
        exchange.reply.end = Some(Err(Some(Reason::CANCEL)));
    }

    pub(crate) fn reply(&self, index: usize) -> &Reply {
        &self.exchanges[index].reply
    }

    /// One turn of the server, and what the client does after it.
    pub(crate) fn step(&mut self, server: &mut TestServer) {
        server.turn();
        self.look();
    }

    /// The same while no worker takes anything.
    pub(crate) fn step_without_workers(&mut self, server: &mut TestServer) {
        server.turn_without_workers();
        self.look();
    }

    fn look(&mut self) {
        {
            let state = self.client.state();
            let mut pipe = self.pipe.0.borrow_mut();
            pipe.input.extend(self.client.read());
            pipe.is_ended = state != ClientState::Open;
        }
        if let Some(handshake) = &mut self.handshake
            && let Poll::Ready(shaken) = handshake.as_mut().poll(&mut context())
        {
            self.handshake = None;
            let (send, connection) = shaken.expect("a handshake");
            (self.send, self.connection) = (Some(send), Some(connection));
        }
        for _ in 0..2 {
            if let Some(connection) = &mut self.connection
                && let Poll::Ready(end) = Pin::new(connection).poll(&mut context())
            {
                self.end = Some(end.map_err(|error| error.reason()));
                self.connection = None;
            }
            let reads = self.reads;
            self.exchanges.iter_mut().for_each(|it| it.look(reads));
        }
        let said = std::mem::take(&mut self.pipe.0.borrow_mut().output);
        if !said.is_empty() && self.client.state() == ClientState::Open {
            self.client.write(&said);
        }
    }

    /// Lets both talk until a condition holds.
    #[track_caller]
    pub(crate) fn until(&mut self, server: &mut TestServer, mut holds: impl FnMut(&Peer) -> bool) {
        for _ in 0..TURNS_MAX {
            if holds(self) {
                return;
            }
            self.step(server);
        }
        panic!("it did not come to it; the connection: {:?}", self.end);
    }

    /// Lets both talk until all replies have ended.
    #[track_caller]
    pub(crate) fn finish(&mut self, server: &mut TestServer) {
        self.until(server, |peer| {
            peer.exchanges.iter().all(|it| it.reply.end.is_some())
        });
    }

    /// Sends a request and waits for its end.
    #[track_caller]
    pub(crate) fn fetch(&mut self, server: &mut TestServer, path: &str) -> &Reply {
        let index = self.get(path);
        self.finish(server);
        self.reply(index)
    }
}

impl Exchange {
    fn look(&mut self, reads: bool) {
        if let Some((stream, left)) = &mut self.upload
            && !left.is_empty()
        {
            stream.reserve_capacity(left.len());
            let bytes = stream.capacity().min(left.len());
            if bytes > 0 {
                let piece = left.split_to(bytes);
                let _sent = stream.send_data(piece, left.is_empty());
            }
        }
        if self.reply.end.is_some() {
            return;
        }
        if let Some(response) = &mut self.response
            && let Poll::Ready(head) = Pin::new(response).poll(&mut context())
        {
            self.response = None;
            match head {
                Ok(head) => {
                    let (parts, body) = head.into_parts();
                    (self.reply.status, self.reply.headers) = (Some(parts.status), parts.headers);
                    self.body = Some(body);
                }
                Err(error) => self.reply.end = Some(Err(error.reason())),
            }
        }
        while let Some(body) = &mut self.body
            && let Poll::Ready(data) = body.poll_data(&mut context())
        {
            match data {
                Some(Ok(data)) => {
                    self.reply.body.extend_from_slice(&data);
                    if reads {
                        let released = body.flow_control().release_capacity(data.len());
                        released.expect("it was taken");
                    }
                }
                Some(Err(error)) => {
                    self.reply.end = Some(Err(error.reason()));
                    self.body = None;
                }
                None => {
                    let trailers = match body.poll_trailers(&mut context()) {
                        Poll::Pending => return,
                        Poll::Ready(trailers) => trailers.map_err(|error| error.reason()),
                    };
                    self.reply.end = Some(trailers.map(|trailers| {
                        self.reply.trailers = trailers.unwrap_or_default();
                    }));
                    self.body = None;
                }
            }
        }
    }
}
