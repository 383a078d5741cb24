//! Close, abort, shutdown_write and cancel: one system call each, at once; a cancel costs none.

use super::Epoll;
use crate::completion::{Completion, Errno, Outcome};
use crate::driver::Operation;
use crate::socket::{Socket, end_writing, reset_at_close};

impl Epoll {
    pub(super) fn start_close(&mut self, socket: Socket) {
        let descriptor = socket.raw();
        let connects = || self.connecting.contains_key(&descriptor);
        debug_assert!(!connects(), "C3: {socket:?} is closed during a connect");
        let entry = self.open_entry(socket);
        assert!(
            entry.receive.is_none(),
            "C3: {socket:?} is closed during a receive"
        );
        assert!(
            entry.send.is_none(),
            "C3: {socket:?} is closed during a send"
        );
        self.close_descriptor(descriptor);
    }

    pub(super) fn start_abort(&mut self, socket: Socket) {
        if let Some(socket) = &self.entry_of(socket.raw()).socket {
            reset_at_close(socket);
            self.counters.system_calls += 1;
        }
        self.start_close(socket);
    }

    pub(super) fn start_shutdown_write(&mut self, socket: Socket) {
        let entry = self.entry_of(socket.raw());
        debug_assert!(
            entry.send.is_none(),
            "C3: {socket:?} is finished during a send"
        );
        let Some(descriptor) = &entry.socket else {
            unreachable!("C4: {socket:?} is finished after its close")
        };
        end_writing(descriptor);
        self.counters.system_calls += 1;
    }

    pub(super) fn start_cancel(&mut self, operation: Operation<'_>, user_data: u64) {
        match operation {
            Operation::Accept(listener) => self.cancel_accept(listener, user_data),
            Operation::PollEventfd(event) => self.cancel_poll(event, user_data),
            Operation::ReceiveDatagrams(from) => self.cancel_datagrams(from, user_data),
            Operation::Connect(socket) => self.cancel_connect(socket, user_data),
            Operation::Receive(socket) => {
                let entry = self.entry_of(socket.raw());
                if entry
                    .receive
                    .is_some_and(|receive| receive.user_data == user_data)
                {
                    entry.receive = None;
                    entry.buffer = None;
                    let outcome = Outcome::Failed(Errno::CANCELED);
                    self.unasked.push(Completion::last(user_data, outcome));
                }
            }
            Operation::Send(socket) => {
                let descriptor = socket.raw();
                let send = &self.entry_of(descriptor).send;
                if send
                    .as_ref()
                    .is_some_and(|send| send.user_data == user_data)
                {
                    let completion = self.fail_send(descriptor, Errno::CANCELED);
                    self.unasked.extend(completion);
                }
            }
        }
    }
}
