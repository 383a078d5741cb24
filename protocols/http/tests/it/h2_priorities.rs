//! Whose reply is sent first over HTTP/2 (RFC 9218): on a simulated server, whose client opens the
//! windows of all its streams at once.

use flatpath_http::{Http, Router};
use flatpath_test::{Client, Conditions, TestServer};

use crate::h2_frames::{
    DATA, END_HEADERS, END_STREAM, GET, HEADERS, PREFACE, RESET, SETTINGS, WINDOW_UPDATE, frame,
    whole_frames,
};

/// Four frames.
const BODY_BYTES: usize = 60_000;
const PRIORITY_UPDATE: u8 = 0x10;

/// Windows of streams begin with so much.
fn windows(bytes: u32) -> Vec<u8> {
    let setting = [&[0, 4][..], &bytes.to_be_bytes()].concat();
    frame(SETTINGS, 0, 0, &setting)
}

fn get(stream: u32, priority: Option<&str>) -> Vec<u8> {
    let mut block = GET.to_vec();
    if let Some(value) = priority {
        let field = [
            &b"\0\x08priority"[..],
            &[value.len() as u8],
            value.as_bytes(),
        ];
        block.extend(field.concat());
    }
    frame(HEADERS, END_STREAM | END_HEADERS, stream, &block)
}

fn update(stream: u32, priority: &str) -> Vec<u8> {
    let payload = [&stream.to_be_bytes()[..], priority.as_bytes()].concat();
    frame(PRIORITY_UPDATE, 0, 0, &payload)
}

struct Asked {
    server: TestServer,
    client: Client,
    heard: Vec<u8>,
}

impl Asked {
    /// A client has said this, and no reply has room.
    fn of(said: &[Vec<u8>]) -> Asked {
        let body = || vec![b'x'; BODY_BYTES];
        let http = Http::service(Router::new().get("/", body));
        let mut server = TestServer::new(Conditions::calm(1), http);
        let client = server.connect();
        let room = frame(WINDOW_UPDATE, 0, 0, &(1_u32 << 30).to_be_bytes());
        client.write(&[PREFACE, &windows(0), &room, &said.concat()].concat());
        server.settle();
        let mut asked = Asked {
            server,
            client,
            heard: Vec::new(),
        };
        assert_eq!(asked.senders(), Vec::<u32>::new());
        asked
    }

    fn says(&mut self, said: &[u8]) {
        self.client.write(said);
        self.server.settle();
    }

    /// The streams that have sent since, in their order; what one sends without another between is
    /// one time.
    fn senders(&mut self) -> Vec<u32> {
        loop {
            let more = self.client.read();
            if more.is_empty() {
                break;
            }
            self.heard.extend(more);
            self.server.settle();
        }
        let frames = whole_frames(&self.heard).into_iter();
        let data = frames.filter(|it| it.kind == DATA && !it.payload.is_empty());
        let mut senders: Vec<_> = data.map(|it| it.stream).collect();
        senders.dedup();
        self.heard.clear();
        senders
    }
}

/// Who sends when, where each of these streams was asked for with this priority.
fn order(priorities: &[Option<&str>]) -> Vec<u32> {
    let streams = (0..).map(|at| 2 * at + 1);
    let said = streams.zip(priorities).map(|(it, said)| get(it, *said));
    let mut asked = Asked::of(&said.collect::<Vec<_>>());
    asked.says(&windows(1 << 20));
    asked.senders()
}

#[test]
fn sim_replies_of_which_nothing_was_said_share() {
    let order = order(&[None, None]);
    assert_eq!(order[..4], [1, 3, 1, 3]);
}

#[test]
fn sim_the_more_urgent_come_first_and_of_them_the_older_ones() {
    let order = order(&[Some("u=5"), Some("u=1"), Some("u=1"), None, Some("u=0")]);
    assert_eq!(order, [9, 3, 5, 7, 1]);
}

#[test]
fn sim_those_that_are_of_use_in_part_share() {
    let order = order(&[Some("u=4"), Some("u=2, i"), Some("u=2, i")]);
    let (shared, last) = order.split_at(order.len() - 1);
    assert_eq!(shared[..4], [3, 5, 3, 5]);
    assert_eq!(last, [1]);
}

#[test]
fn sim_a_client_says_otherwise_later_and_before() {
    let said = [
        get(1, Some("u=1")),
        get(3, Some("u=2")),
        update(1, "u=7"),
        // What is said of a stream that has not begun counts for more than its own field.
        update(5, "u=0"),
        get(5, Some("u=6")),
        // One that is closed, or is not there.
        update(101, "u=0"),
    ];
    let mut asked = Asked::of(&said);
    asked.says(&windows(1 << 20));
    assert_eq!(asked.senders(), [5, 3, 1]);
}

#[test]
fn sim_an_urgent_one_that_waits_for_its_window_holds_up_no_other() {
    let mut asked = Asked::of(&[get(1, Some("u=7")), get(3, Some("u=0"))]);
    let opens = |stream| frame(WINDOW_UPDATE, 0, stream, &(1_u32 << 20).to_be_bytes());
    asked.says(&opens(1));
    assert_eq!(asked.senders(), [1]);
    asked.says(&opens(3));
    assert_eq!(asked.senders(), [3]);
}

#[test]
fn sim_what_is_said_of_streams_that_are_gone_makes_no_room_for_itself() {
    // As many as are kept of streams that have not begun.
    let gone = || (0..8).map(|at| 2 * at + 1);
    let reset = |stream| frame(RESET, 0, stream, &[0, 0, 0, 8]);
    let cancelled: Vec<_> = gone()
        .map(|it| [get(it, None), reset(it)].concat())
        .collect();
    let mut asked = Asked::of(&cancelled);
    let mut said = vec![update(19, "u=0")];
    said.extend(gone().map(|it| update(it, "u=1")));
    said.extend([get(17, None), get(19, Some("u=6"))]);
    asked.says(&said.concat());
    asked.says(&windows(1 << 20));
    assert_eq!(asked.senders(), [19, 17]);
}
