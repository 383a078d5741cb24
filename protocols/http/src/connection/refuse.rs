//! Requests that no service sees, or not as a whole: they break a rule of HTTP or a limit of the
//! listener. Each is counted by its reason, and its line in the access log has as much of it as
//! there is. One whose body is refused while a job has it, or layers are around its route, counts
//! when that has answered so (`Exchange::take_refused`): a layer may have answered otherwise.

use flatpath::Phase;

use crate::connection::state::{Connection, QueuedReply, Step, ThreadState, log};
use crate::connection::upload;
use crate::h1::read::end_input;
use crate::h1::write;
use crate::head::RequestMeta;
use crate::head::fault::Fault;
use crate::limits::REQUEST_LINE_BYTES_MAX;
use crate::respond::into_response::IntoResponse;
use crate::respond::outgoing::Outgoing;
use crate::respond::reply::{Out, Reply};
use crate::service::Service;

/// Of a head that is late the log looks at so many bytes: a request line as long as it may be.
const LATE_BYTES_MAX: usize = REQUEST_LINE_BYTES_MAX;

/// Answers what cannot be served, in its turn, and ends the connection after it. What is wrong with
/// a body whose request has a job, or layers around its route, is answered by those.
pub(crate) fn fault<S: Service>(
    connection: &mut Connection<'_, S>,
    fault: Fault,
    request: RequestMeta,
) {
    let is_passed = end_passage(connection);
    if connection.session.is_closed() {
        return;
    }
    let is_answered = upload::refuse(connection, fault);
    if !is_answered {
        connection.count_refusal(fault as usize);
    }
    end_input(connection);
    connection.session.lingers = true;
    if connection.session.is_logged() {
        let mut log = log(connection);
        // A request that is with its job has its record.
        if !is_answered && !is_passed {
            log.numbered();
        }
        log.refused(fault.reason());
    }
    if is_answered {
        return connection.phase(Phase::Work);
    }
    let reply = fault_reply(connection, fault, request.refused());
    if is_passed {
        write::send(connection, reply);
        return;
    }
    let number = connection.session.take_number();
    if connection.session.owed() > 1 {
        let reply = QueuedReply::Here(Box::new(reply));
        let spares = &mut connection.thread.reorder_buffers;
        return connection.session.keep(number, reply, spares);
    }
    write::send(connection, reply);
}

/// Where a body is refused that is passed on, what waits for the response waits no more. True: the
/// refusal is the reply that is due. Where a reply has begun the connection ends at once.
fn end_passage<S: Service>(connection: &mut Connection<'_, S>) -> bool {
    if !connection.session.has_passed_body() {
        return false;
    }
    let number = connection.session.next_reply;
    match connection.session.take_kept(number) {
        Some(job) => {
            write::recycle(connection, job);
            true
        }
        None => {
            write::abort(connection);
            false
        }
    }
}

/// The reply to what cannot be served.
pub(crate) fn fault_reply<S: Service>(
    connection: &mut Connection<'_, S>,
    fault: Fault,
    request: RequestMeta,
) -> Outgoing {
    let wall = connection.turn().wall();
    let ThreadState { scratch, date, .. } = &mut *connection.thread;
    let date = date.at(wall, request.spoken);
    let mut reply = Reply::new(Out::scratch(scratch), date, request);
    let response = (fault.status(), format!("{fault}\n")).into_response();
    let _answered = reply.response(response);
    reply.written()
}

/// The same for a request whose body is wrong, or late.
pub(crate) fn body_fault<S: Service>(connection: &mut Connection<'_, S>, fault: Fault) {
    let pending_body = connection.session.pending_body.as_ref();
    let request = pending_body.map_or_else(RequestMeta::default, |it| it.request);
    self::fault(connection, fault, request);
}

/// Refuses a request while its head is taken.
pub(crate) fn refuse<S: Service>(
    connection: &mut Connection<'_, S>,
    fault: Fault,
    request: RequestMeta,
) -> Step {
    self::fault(connection, fault, request);
    // The rest of the input is dropped.
    Step::On(0)
}

/// The same while its body is taken.
pub(crate) fn refuse_body<S: Service>(connection: &mut Connection<'_, S>, fault: Fault) -> Step {
    body_fault(connection, fault);
    Step::On(0)
}

/// Refuses a head that could not be read; `input` is what came of it.
#[cold]
pub(crate) fn refuse_unread<S: Service>(
    connection: &mut Connection<'_, S>,
    input: &[u8],
    fault: Fault,
) -> Step {
    if connection.session.is_logged() {
        log(connection).came_unread(input);
    }
    refuse(connection, fault, RequestMeta::of_unread(input))
}

/// The time for a head is over of which something came.
#[cold]
pub(crate) fn head_too_late<S: Service>(connection: &mut Connection<'_, S>) {
    let came = connection.left_input();
    let request = RequestMeta::of_unread(came);
    if connection.session.is_logged() && !connection.session.is_closed() {
        // The lines share nothing with the input, which is the engine's.
        let came = came[..came.len().min(LATE_BYTES_MAX)].to_vec();
        log(connection).came_unread(&came);
    }
    fault(connection, Fault::HeadTimeout, request);
}
