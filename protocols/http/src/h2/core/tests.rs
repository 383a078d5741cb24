//! The core by itself: goodbyes, windows of the connection, and streams that are gone. What a
//! client hears of each rule is in the table of `tests/it/h2_rules`.

use super::*;
use crate::h2::bounds::{FAULTY_STREAMS_MAX, IDLE_BYTES_FREE};
use crate::h2::input::Next;
use crate::h2::wire::PREFACE;

fn frame(kind: Kind, flags: u8, stream: u32, payload: &[u8]) -> (Frame, Vec<u8>) {
    let mut bytes = Vec::new();
    wire::put(&mut bytes, kind, flags, stream, payload);
    (Frame::read(&bytes).expect("a frame"), payload.to_vec())
}

/// After the preface and the client's SETTINGS.
fn greeted() -> Core {
    let mut core = Core::new(1000, true, Vec::new());
    assert_eq!(core.input.next(PREFACE), Ok(Next::Done(PREFACE.len())));
    let (settings, payload) = frame(Kind::Settings, 0, 0, &[]);
    let told = core.settings(&settings, &payload, std::iter::empty());
    assert_eq!(told, Ok(()));
    core.out.clear();
    core
}

/// What was said since the last look: kinds, streams, and the number that payloads begin with.
fn said(core: &mut Core) -> Vec<(Kind, u32, Option<u32>)> {
    let out = std::mem::take(&mut core.out);
    let (mut rest, mut said) = (&out[..], Vec::new());
    while let Some(frame) = Frame::read(rest) {
        let number = wire::number(&rest[FRAME_HEAD_BYTES..]);
        said.push((frame.kind, frame.stream, number));
        rest = &rest[frame.whole_bytes()..];
    }
    said
}

fn open(core: &mut Core, stream: u32) -> Flow {
    let (head, _) = frame(Kind::Headers, 0, stream, &[]);
    assert_eq!(core.opens(&head), Ok(true));
    core.flow(&head)
}

#[test]
fn goodbye_is_said_twice_and_then_no_stream_is_served() {
    let mut core = greeted();
    open(&mut core, 1);
    core.leave();
    core.leave();
    let ping = wire::number(&GOODBYE_PING);
    let first = [(Kind::GoAway, 0, Some(WINDOW_MAX)), (Kind::Ping, 0, ping)];
    assert_eq!(said(&mut core), first);
    assert!(core.has_said_goodbye() && !core.is_leaving());
    // What was on its way is served; another pong changes nothing.
    open(&mut core, 3);
    let (pong, _) = frame(Kind::Ping, ACK, 0, &[7; 8]);
    assert_eq!(core.ping(&pong, &[7; 8]), Ok(()));
    assert!(!core.is_leaving());
    assert_eq!(core.ping(&pong, &GOODBYE_PING), Ok(()));
    assert_eq!(said(&mut core), [(Kind::GoAway, 0, Some(3))]);
    assert!(core.is_leaving());
    let (late, _) = frame(Kind::Headers, 0, 5, &[]);
    assert_eq!(core.opens(&late), Ok(false));
    let (data, _) = frame(Kind::Data, 0, 5, b"late");
    assert_eq!(core.data(&data, 0, None), Ok(None), "it is let pass");
    core.end(Code::NoError);
    assert_eq!(said(&mut core), [], "it is said already");
    assert!(core.is_over());
}

#[test]
fn an_error_is_said_with_the_last_stream_once_there_is_a_client() {
    let mut core = greeted();
    open(&mut core, 7);
    core.end(Code::Protocol);
    core.end(Code::Protocol);
    assert_eq!(said(&mut core), [(Kind::GoAway, 0, Some(7))]);
    assert_eq!(core.input.next(b"more"), Ok(Next::More));
    let mut core = Core::new(1000, true, Vec::new());
    core.out.clear();
    assert_eq!(core.input.next(b"PRI * HTTP/3"), Err(Code::Protocol));
    core.end(Code::Protocol);
    assert_eq!(said(&mut core), [], "it may speak something else");
}

#[test]
fn the_connections_window_is_of_all_streams_and_opens_anew() {
    let mut core = greeted();
    let (full, _) = frame(Kind::Data, 0, 1, &[0; FRAME_BYTES_MAX]);
    let frames = CONNECTION_WINDOW_BYTES as usize / FRAME_BYTES_MAX;
    // Streams that are gone count.
    open(&mut core, 1);
    core.put_reset(1, Code::Cancel);
    said(&mut core);
    for at in 1..=3 * frames {
        assert_eq!(core.data(&full, 0, None), Ok(None));
        let told = said(&mut core);
        let half = (Kind::WindowUpdate, 0, Some(CONNECTION_WINDOW_BYTES / 2));
        let expected = if at % (frames / 2) == 0 {
            vec![half]
        } else {
            vec![]
        };
        assert_eq!(told, expected, "at frame {at}");
    }
    // Of a body that is not taken nothing is released.
    let mut flows: Vec<_> = (1..=5).map(|at| open(&mut core, 2 * at + 1)).collect();
    let taken = (0..frames + 1).position(|at| {
        let flow = &mut flows[at / 16];
        let (full, _) = frame(Kind::Data, 0, flow.id, &[0; FRAME_BYTES_MAX]);
        core.data(&full, 0, Some(flow)) == Err(Code::FlowControl)
    });
    assert_eq!(taken, Some(frames));
}

#[test]
fn frames_of_streams_that_were_reset_lately_are_let_pass() {
    let mut core = greeted();
    let streams: Vec<u32> = (0..=RESETS_KEPT as u32).map(|at| 2 * at + 1).collect();
    for stream in &streams {
        open(&mut core, *stream);
        core.put_reset(*stream, Code::Cancel);
    }
    assert_eq!(core.gone(1), Gone::Closed, "the oldest is forgotten");
    assert!(streams[1..].iter().all(|it| core.gone(*it) == Gone::Reset));
    assert_eq!(core.gone(streams[RESETS_KEPT] + 2), Gone::Idle);
    assert_eq!(core.gone(2), Gone::Idle);
    let (data, _) = frame(Kind::Data, 0, 1, b"x");
    assert_eq!(core.data(&data, 0, None), Ok(Some(Code::StreamClosed)));
    let (trailers, _) = frame(Kind::Headers, END_STREAM, streams[RESETS_KEPT], &[]);
    assert_eq!(core.opens(&trailers), Ok(false));
}

#[test]
fn replies_share_the_connections_window() {
    let mut core = greeted();
    let (window, _) = frame(Kind::WindowUpdate, 0, 1, &[0; 4]);
    let (whole, _) = frame(Kind::WindowUpdate, 0, 0, &[0; 4]);
    let mut flow = open(&mut core, 1);
    assert_eq!(
        core.window(&window, &100_000u32.to_be_bytes(), Some(&mut flow)),
        Ok(None)
    );
    let mut sent = 0;
    while core.send_room(&flow) > 0 {
        let bytes = core.send_room(&flow);
        assert!(bytes <= FRAME_BYTES_MAX);
        core.sent(&mut flow, bytes);
        sent += bytes;
    }
    assert_eq!(sent, WINDOW_FIRST as usize);
    assert!(!core.has_opened);
    assert_eq!(core.window(&whole, &5u32.to_be_bytes(), None), Ok(None));
    assert!(core.has_opened);
    assert_eq!(core.send_room(&flow), 5);
}

#[test]
fn an_error_after_the_last_goodbye_names_the_last_stream_that_is_served() {
    let mut core = greeted();
    open(&mut core, 1);
    core.leave();
    let (pong, _) = frame(Kind::Ping, ACK, 0, &GOODBYE_PING);
    assert_eq!(core.ping(&pong, &GOODBYE_PING), Ok(()));
    let (late, _) = frame(Kind::Headers, 0, 3, &[]);
    assert_eq!(core.opens(&late), Ok(false));
    said(&mut core);
    core.end(Code::Protocol);
    assert_eq!(said(&mut core), [(Kind::GoAway, 0, Some(1))]);
}

#[test]
fn padding_is_given_back_to_both_windows() {
    let mut core = greeted();
    let mut flow = open(&mut core, 1);
    // Four times what the stream's window holds.
    for _ in 0..4 * STREAM_WINDOW_BYTES / 256 {
        let (padded, _) = frame(Kind::Data, 0, 1, &[0; 256]);
        assert_eq!(core.data(&padded, 200, Some(&mut flow)), Ok(None));
        core.release(Some(&mut flow), 56);
        core.input.end();
    }
    let told = said(&mut core);
    let of = |stream| told.iter().filter(move |it| it.1 == stream).count();
    assert_eq!((of(0), of(1)), (2, 8), "each is told of halves");
}

#[test]
fn data_of_streams_that_are_closed_is_not_taken_for_long() {
    let mut core = greeted();
    open(&mut core, 1);
    open(&mut core, 3);
    let (data, _) = frame(Kind::Data, 0, 1, b"x");
    let taken = (0..1000).take_while(|_| core.data(&data, 0, None) == Ok(Some(Code::StreamClosed)));
    assert_eq!(taken.count(), FAULTY_STREAMS_MAX);
}

#[test]
fn an_answer_to_no_ping_ends_nothing() {
    let mut core = greeted();
    let (pong, _) = frame(Kind::Ping, ACK, 0, &GOODBYE_PING);
    assert_eq!(core.ping(&pong, &GOODBYE_PING), Ok(()));
    assert_eq!(said(&mut core), []);
    assert!(!core.has_said_goodbye() && !core.is_leaving());
    open(&mut core, 1);
}

#[test]
fn nothing_is_said_once_the_connection_is_over() {
    let mut core = greeted();
    core.end(Code::NoError);
    said(&mut core);
    core.leave();
    assert_eq!(said(&mut core), []);
    assert!(!core.has_said_goodbye());
}

#[test]
fn what_is_left_of_a_body_is_thrown_away_when_its_stream_is_reset_and_its_window_opens() {
    let mut core = greeted();
    let mut flow = open(&mut core, 1);
    let whole = FRAME_BYTES_MAX;
    let (data, _) = frame(Kind::Data, END_STREAM, 1, &[0; FRAME_BYTES_MAX]);
    assert_eq!(core.data(&data, 0, Some(&mut flow)), Ok(None));
    core.put_reset(1, Code::Cancel);
    let rest = vec![0; whole];
    assert_eq!(core.input.next(&rest), Ok(Next::Done(whole)));
    assert_eq!(
        core.input.next(b""),
        Ok(Next::More),
        "no end of it is offered"
    );
    said(&mut core);
    // The rest of half of the connection's window.
    core.release(None, CONNECTION_WINDOW_BYTES as usize / 2 - whole);
    let half = CONNECTION_WINDOW_BYTES / 2;
    assert_eq!(said(&mut core), [(Kind::WindowUpdate, 0, Some(half))]);
}

#[test]
fn a_client_that_opens_windows_as_it_reads_is_borne_with() {
    let mut core = greeted();
    let mut flow = open(&mut core, 1);
    let said = [0, 1].map(|stream| frame(Kind::WindowUpdate, 0, stream, &[0, 0, 0, 100]));
    let [(all, bytes), (own, _)] = &said;
    // Twice what a client has for nothing.
    for _ in 0..IDLE_BYTES_FREE as usize / own.whole_bytes() {
        assert_eq!(core.window(all, bytes, None), Ok(None));
        assert_eq!(core.window(own, bytes, Some(&mut flow)), Ok(None));
        core.sent(&mut flow, 100);
    }
    let first = i64::from(WINDOW_FIRST);
    assert_eq!((core.send_window, flow.send_room() as i64), (first, first));
}

#[test]
fn tunnels_are_announced_where_they_are_taken() {
    for takes_tunnels in [false, true] {
        let core = Core::new(1000, takes_tunnels, Vec::new());
        let told = [0, 8, 0, 0, 0, u8::from(takes_tunnels)];
        let payload = &core.out[9..9 + 6 * SETTING_BYTES];
        assert!(payload.chunks(SETTING_BYTES).any(|setting| setting == told));
    }
}
