//! The thread's own steps.

use super::*;
use crate::server::binding::bind_unix;

#[test]
fn a_process_that_has_gone_before_it_is_accepted_blocks_nothing() {
    let place = tempfile::tempdir().expect("a directory");
    let path = place.path().join("next");
    let (listener, _file) = bind_unix(&path, SocketType::SEQPACKET, 0o600).expect("free");
    let twin = listener.try_clone().expect("the same socket");
    let (passed, files) = PassedPlace::new(listener, "");
    assert!(files.is_empty(), "none was named");
    let place = Place::ready(&path, Some(passed)).expect("it is there");
    // As the thread would find it: nothing waits any more.
    let accepted = rustix::net::accept_with(&twin, SocketFlags::CLOEXEC);
    assert_eq!(accepted.map(drop), Err(Errno::WOULDBLOCK));
    drop(place);
    assert!(path.exists(), "it was taken over, and is not owned yet");
}
