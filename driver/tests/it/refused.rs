//! io_uring refused in every way that has been met in the wild: the choice falls on epoll, the
//! reason is named, and who asked for io_uring gets an error with a cure.
//!
//! Each case runs alone in a child process, under a seccomp filter that makes the kernel refuse.

use std::collections::BTreeMap;
use std::io::Read;

use flatpath_driver::probe::Probe;
use flatpath_driver::{AfterSend, Cause, DriverChoice, DriverConfig, select, uring::Uring};
use libc::{EACCES, EINVAL, EMFILE, ENOMEM, ENOSYS, EOPNOTSUPP, EPERM};
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, apply_filter};

use crate::rig::{OnEpoll, Rig, given, in_child, small};

/// The system calls of io_uring: their numbers are the same on all architectures of interest.
const SETUP: i64 = 425;
const ENTER: i64 = 426;
const REGISTER: i64 = 427;
const EVERY: [i64; 3] = [SETUP, ENTER, REGISTER];

/// Makes system calls of this thread fail.
fn refuse(calls: &[i64], errno: i32) {
    let rules: BTreeMap<_, _> = calls.iter().map(|call| (*call, vec![])).collect();
    let filter = SeccompFilter::new(
        rules,
        SeccompAction::Allow,
        SeccompAction::Errno(errno as u32),
        std::env::consts::ARCH
            .try_into()
            .expect("a known architecture"),
    );
    let program: BpfProgram = filter.expect("a filter").try_into().expect("a program");
    apply_filter(&program).expect("a filter may be added");
}

/// What is common to all ways.
fn assert_falls_back(calls: &[i64], errno: i32, cause: Cause, cure: &str) {
    // Without io_uring on this machine, it fails before it comes to these calls.
    if !calls.contains(&SETUP) && given(Uring::new(&small())).is_none() {
        return;
    }
    refuse(calls, errno);
    let selection = select(DriverChoice::Auto, &small()).expect("epoll is there");
    assert_eq!(selection.name(), "epoll", "{selection}");
    assert!(selection.reason().contains(cure), "{selection}");
    let told = selection.refusal().expect("a reason").clone();
    assert_eq!(told.cause, cause, "{told}");
    let refusal = select(DriverChoice::Uring, &small()).expect_err("refused");
    assert_eq!(refusal, told, "one reason for both");
    assert_eq!(refusal.errno, errno);
    let probe = Probe::run();
    assert!(!probe.is_sufficient(), "{probe:?}");
    assert!(
        serde_json::to_string(&probe)
            .expect("serialisable")
            .contains("refusal")
    );
    epoll_serves();
}

/// epoll does the job meanwhile.
fn epoll_serves() {
    let mut rig = Rig::new::<OnEpoll>(&small()).expect("always there");
    let (mut client, socket) = rig.pair();
    rig.send_all(socket, 1, b"served", AfterSend::Close);
    rig.turn();
    let mut bytes = vec![];
    client.read_to_end(&mut bytes).expect("an orderly end");
    assert_eq!(bytes, b"served");
}

macro_rules! refusals {
    ($(#[$test:meta] fn $case:ident: $calls:expr, $errno:expr, $cause:expr, $cure:expr;)*) => {
        $(#[$test] fn $case() {
            if in_child(concat!(module_path!(), "::", stringify!($case))) {
                assert_falls_back($calls, $errno, $cause, $cure);
            }
        })*
    };
}

refusals! {
    #[test] fn a_kernel_without_io_uring:
        &EVERY, ENOSYS, Cause::Absent, "CONFIG_IO_URING";
    #[test] fn a_container_that_forbids_io_uring:
        &EVERY, EPERM, Cause::Forbidden, "io_uring";
    #[test] fn a_security_module_that_forbids_io_uring:
        &[SETUP], EACCES, Cause::Forbidden, "io_uring";
    #[test] fn no_memory_left_to_lock:
        &[SETUP], ENOMEM, Cause::Memory, "ulimit -l";
    #[test] fn a_sandbox_without_io_uring:
        &[SETUP], EOPNOTSUPP, Cause::Inoperative, "sandbox";
    #[test] fn no_descriptor_left:
        &[SETUP], EMFILE, Cause::Descriptors, "ulimit -n";
    #[test] fn an_old_kernel:
        &[SETUP], EINVAL, Cause::Unsupported, "newer";
    #[test] fn registration_alone_forbidden:
        &[REGISTER], EPERM, Cause::Forbidden, "io_uring";
    #[test] fn no_memory_left_to_register_buffers:
        &[REGISTER], ENOMEM, Cause::Memory, "ulimit -l";
    #[test] fn entering_alone_forbidden:
        &[ENTER], EPERM, Cause::Forbidden, "io_uring";
    #[test] fn entering_alone_inoperative:
        &[ENTER], EOPNOTSUPP, Cause::Inoperative, "sandbox";
}

#[test]
fn resources_are_reported_as_such() {
    if in_child(concat!(module_path!(), "::resources_are_reported_as_such")) {
        refuse(&[SETUP], ENOMEM);
        let selection = select(DriverChoice::Auto, &small()).expect("epoll is there");
        assert!(selection.refusal().expect("a reason").cause.is_resource());
    }
}

#[test]
fn epoll_is_taken_when_it_is_asked_for() {
    let selection = select(DriverChoice::Epoll, &DriverConfig::default()).expect("always there");
    assert!(!selection.is_uring());
    assert_eq!(selection.refusal(), None);
}

#[test]
fn an_impossible_configuration_is_refused_whatever_the_choice() {
    let config = DriverConfig {
        receive_buffers: 3,
        ..DriverConfig::default()
    };
    for choice in [DriverChoice::Auto, DriverChoice::Uring, DriverChoice::Epoll] {
        let refusal = select(choice, &config).expect_err("three is no power of two");
        assert_eq!(refusal.cause, Cause::Configuration, "{refusal}");
    }
}
