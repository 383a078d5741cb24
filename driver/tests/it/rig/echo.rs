//! A caller that keeps its promises: an echo server in the shape of the engine's network thread,
//! for real drivers and for the simulation.

use std::collections::VecDeque;

use bytes::Bytes;
use flatpath_driver::{
    AfterSend, Completion, Driver, Errno, Listener, Operation, OperationMode, Outcome,
    SEGMENTS_MAX, SendList, Socket,
};

const ACCEPT: u64 = 1;
const RECEIVE: u64 = 2;
const SEND: u64 = 3;

fn user_data(kind: u64, generation: u32, index: usize) -> u64 {
    kind << 60 | u64::from(generation & 0x00ff_ffff) << 32 | index as u64
}

struct Connection {
    socket: Socket,
    receiving: bool,
    sending: bool,
    parked: bool,
    ended: bool,
    broken: bool,
    waiting: VecDeque<Bytes>,
}

pub(crate) struct Echo {
    listener: Listener,
    accept_mode: OperationMode,
    receive_mode: OperationMode,
    close_at_end: AfterSend,
    connections: Vec<(u32, Option<Connection>)>,
    vacant: Vec<usize>,
    parked: Vec<usize>,
    accepting: Option<u64>,
    accepts: u32,
    accept_due: bool,
    stopping: bool,
    completions: Vec<Completion>,
    pub(crate) accepted: usize,
    pub(crate) ended: usize,
    pub(crate) broken: usize,
    pub(crate) stalls: usize,
    pub(crate) refused_accepts: usize,
    /// Completions whose user_data meant nothing any more.
    pub(crate) stale: usize,
}

impl Echo {
    pub(crate) fn new(
        listener: Listener,
        accept_mode: OperationMode,
        receive_mode: OperationMode,
    ) -> Echo {
        Echo {
            listener,
            accept_mode,
            receive_mode,
            close_at_end: AfterSend::Close,
            connections: vec![],
            vacant: vec![],
            parked: vec![],
            accepting: None,
            accepts: 0,
            accept_due: true,
            stopping: false,
            completions: vec![],
            accepted: 0,
            ended: 0,
            broken: 0,
            stalls: 0,
            refused_accepts: 0,
            stale: 0,
        }
    }

    pub(crate) fn open(&self) -> usize {
        self.connections.len() - self.vacant.len()
    }

    /// Arms what is due, waits, and handles what came.
    pub(crate) fn turn<D: Driver>(&mut self, driver: &mut D, timeout_ns: u64) {
        if self.accept_due && self.accepting.is_none() && !self.stopping {
            self.accepts += 1;
            self.accept_due = false;
            let user_data = user_data(ACCEPT, self.accepts, 0);
            self.accepting = Some(user_data);
            driver.accept(&self.listener, user_data, self.accept_mode);
        }
        if driver.free(0) > 0 {
            for index in std::mem::take(&mut self.parked) {
                self.arm(driver, index);
            }
        }
        let mut completions = std::mem::take(&mut self.completions);
        driver
            .wait(Some(timeout_ns), &|| false, &mut completions)
            .expect("the driver works");
        for completion in completions.drain(..) {
            self.handle(driver, completion);
        }
        self.completions = completions;
    }

    fn arm<D: Driver>(&mut self, driver: &mut D, index: usize) {
        let (generation, place) = &mut self.connections[index];
        let Some(connection) = place else { return };
        if connection.parked && !connection.broken {
            connection.parked = false;
            connection.receiving = true;
            let user_data = user_data(RECEIVE, *generation, index);
            driver.receive(connection.socket, user_data, self.receive_mode, 0);
        }
    }

    fn handle<D: Driver>(&mut self, driver: &mut D, completion: Completion) {
        let index = (completion.user_data & 0xffff_ffff) as usize;
        let generation = (completion.user_data >> 32) as u32 & 0x00ff_ffff;
        match completion.user_data >> 60 {
            ACCEPT => self.accept_completed(driver, completion),
            _ if self.connections[index].0 & 0x00ff_ffff != generation
                || self.connections[index].1.is_none() =>
            {
                self.discard(driver, completion);
            }
            RECEIVE => self.receive_completed(driver, index, completion),
            SEND => self.send_completed(driver, index, completion),
            kind => panic!("user_data of kind {kind}"),
        }
    }

    fn discard<D: Driver>(&mut self, driver: &mut D, completion: Completion) {
        self.stale += 1;
        match completion.outcome {
            Outcome::Accepted(socket) => driver.close(socket),
            Outcome::Received(piece) => driver.recycle(piece),
            Outcome::Datagram(_) => unreachable!("it receives none"),
            Outcome::ReceivedInto(_)
            | Outcome::Connected
            | Outcome::EndOfStream
            | Outcome::Signalled(_)
            | Outcome::Sent { .. }
            | Outcome::Failed(_) => {}
        }
    }

    fn accept_completed<D: Driver>(&mut self, driver: &mut D, completion: Completion) {
        if self.accepting != Some(completion.user_data) {
            self.discard(driver, completion);
            return;
        }
        if !completion.more {
            self.accepting = None;
            self.accept_due = true;
        }
        match completion.outcome {
            Outcome::Accepted(socket) if self.stopping => driver.close(socket),
            Outcome::Accepted(socket) => {
                self.accepted += 1;
                let index = self.vacant.pop().unwrap_or_else(|| {
                    self.connections.push((0, None));
                    self.connections.len() - 1
                });
                self.connections[index].0 += 1;
                self.connections[index].1 = Some(Connection {
                    socket,
                    receiving: false,
                    sending: false,
                    parked: true,
                    ended: false,
                    broken: false,
                    waiting: VecDeque::new(),
                });
                self.arm(driver, index);
            }
            Outcome::Failed(errno) => {
                self.refused_accepts += 1;
                // Out of descriptors: at once would spin, so only after the next close.
                self.accept_due =
                    ![Errno::MFILE, Errno::NFILE].contains(&errno) || self.open() == 0;
            }
            other => panic!("an accept completed with {other:?}"),
        }
    }

    fn receive_completed<D: Driver>(
        &mut self,
        driver: &mut D,
        index: usize,
        completion: Completion,
    ) {
        let Some(connection) = &mut self.connections[index].1 else {
            return;
        };
        if !connection.receiving {
            self.discard(driver, completion);
            return;
        }
        connection.receiving = completion.more;
        let mut rearm = !completion.more;
        match completion.outcome {
            Outcome::Received(piece) => {
                let bytes = Bytes::copy_from_slice(driver.bytes(&piece));
                driver.recycle(piece);
                connection.waiting.push_back(bytes);
            }
            Outcome::EndOfStream => {
                assert!(!completion.more, "the end of the stream ends the receive");
                connection.ended = true;
                rearm = false;
            }
            Outcome::Failed(Errno::NOBUFS) => {
                self.stalls += 1;
                connection.parked = true;
                self.parked.push(index);
                rearm = false;
            }
            Outcome::Failed(_) => {
                connection.broken = true;
                rearm = false;
            }
            other => panic!("a receive completed with {other:?}"),
        }
        if rearm {
            connection.parked = true;
            self.arm(driver, index);
        }
        self.go_on(driver, index);
    }

    fn send_completed<D: Driver>(&mut self, driver: &mut D, index: usize, completion: Completion) {
        let Some(connection) = &mut self.connections[index].1 else {
            return;
        };
        if !connection.sending {
            self.discard(driver, completion);
            return;
        }
        connection.sending = completion.more;
        match completion.outcome {
            Outcome::Sent { closed: true, .. } => {
                assert!(!completion.more, "a close ends the send");
                self.ended += 1;
                self.forget(index);
                return;
            }
            Outcome::Sent { .. } => {}
            Outcome::Failed(_) => connection.broken = true,
            other => panic!("a send completed with {other:?}"),
        }
        self.go_on(driver, index);
    }

    /// Sends what waits, or closes when it is time.
    fn go_on<D: Driver>(&mut self, driver: &mut D, index: usize) {
        let (generation, place) = &mut self.connections[index];
        let Some(connection) = place else { return };
        if connection.broken {
            if connection.receiving {
                let user_data = user_data(RECEIVE, *generation, index);
                driver.cancel(Operation::Receive(connection.socket), user_data);
            }
            if connection.sending {
                let user_data = user_data(SEND, *generation, index);
                driver.cancel(Operation::Send(connection.socket), user_data);
            }
            if !connection.receiving && !connection.sending {
                driver.close(connection.socket);
                self.broken += 1;
                self.forget(index);
            }
            return;
        }
        if connection.sending {
            return;
        }
        if !connection.waiting.is_empty() {
            let mut list = SendList::new();
            for bytes in connection
                .waiting
                .drain(..connection.waiting.len().min(SEGMENTS_MAX))
            {
                list.push(bytes.into()).expect("room");
            }
            let last = connection.ended && connection.waiting.is_empty();
            let after = if last {
                self.close_at_end
            } else {
                AfterSend::KeepOpen
            };
            connection.sending = true;
            driver.send(
                connection.socket,
                user_data(SEND, *generation, index),
                &mut list,
                after,
            );
        } else if connection.ended {
            driver.close(connection.socket);
            self.ended += 1;
            self.forget(index);
        }
    }

    fn forget(&mut self, index: usize) {
        self.connections[index].1 = None;
        self.vacant.push(index);
        self.accept_due = true;
    }

    /// Cancels the accept and breaks every connection; true when nothing is left.
    pub(crate) fn stop<D: Driver>(&mut self, driver: &mut D) -> bool {
        if !self.stopping {
            self.stopping = true;
            for index in 0..self.connections.len() {
                if let Some(connection) = &mut self.connections[index].1 {
                    connection.broken = true;
                    self.go_on(driver, index);
                }
            }
        }
        if let Some(user_data) = self.accepting {
            driver.cancel(Operation::Accept(&self.listener), user_data);
        }
        self.accepting.is_none() && self.open() == 0
    }
}
