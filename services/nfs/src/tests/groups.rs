//! Groups that this machine knows, in place of those that calls name.

use std::fs;
use std::io;
use std::os::unix::fs::{PermissionsExt, chown};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use flatpath_rpc::{Arguments, Call, CallOutcome, Credential, Groups, Programs};

use crate::groups::UserGroups;
use crate::rights::{ClientRule, Clients, ExportOptions, Rights, Squash};
use crate::status::Status;
use crate::testing::{Fixture, Words, is_root, system};

const DENIED: u32 = Status::Access as u32;
const LATER: u32 = Status::Later as u32;

/// The group that the file is for.
const SHARED: u32 = 3000;

/// User 1000 is in fifty groups, and the last one is that of the file; 1001 is in none; 1002 cannot
/// be looked up. Lookups are counted.
fn fixture() -> (Fixture, Arc<AtomicU32>, Vec<u8>) {
    let count = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&count);
    let groups = UserGroups::with(move |user| {
        counted.fetch_add(1, Ordering::Relaxed);
        match user {
            1000 => Ok(Some((SHARED - 49..=SHARED).collect())),
            1001 => Ok(None),
            _ => Err(io::Error::other("nobody answers")),
        }
    });
    let mut fixture = Fixture::with(|options| options.manage_groups = true);
    fixture.nfs = fixture.nfs.with_groups(groups);
    let path = fixture.path().join("shared");
    fs::write(&path, "text").expect("a file");
    chown(&path, Some(2000), Some(SHARED)).expect("root gives files away");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).expect("chmod");
    fixture.credential = system(1000);
    let handle = fixture.lookup(&["shared"]).expect("there");
    (fixture, count, handle)
}

fn sends(user: u32, groups: &[u32]) -> Credential {
    Credential::System {
        user,
        group: user,
        groups: Groups::new(groups.iter().copied()),
    }
}

#[test]
fn groups_are_those_that_the_machine_knows_and_not_those_that_are_sent() {
    if !is_root() {
        return;
    }
    let (mut fixture, count, handle) = fixture();
    assert!(fixture.read(&handle, 0, 9).is_ok(), "by the fiftieth group");
    for (user, expected) in [(1000, None), (1001, Some(DENIED)), (1002, Some(LATER))] {
        for sent in [&[][..], &[SHARED]] {
            fixture.credential = sends(user, sent);
            assert_eq!(fixture.read(&handle, 0, 9).err(), expected, "user {user}");
        }
    }
    // The first group is still the client's, as newgrp there chooses it.
    fixture.credential = Credential::System {
        user: 1001,
        group: SHARED,
        groups: Groups::default(),
    };
    assert!(fixture.read(&handle, 0, 9).is_ok());
    assert_eq!(count.load(Ordering::Relaxed), 3, "once for each user");
    fixture.credential = Credential::None;
    assert_eq!(fixture.read(&handle, 0, 9).err(), Some(DENIED));
    assert_eq!(count.load(Ordering::Relaxed), 3);
}

#[test]
fn a_worker_looks_up_and_the_network_thread_does_not_wait_for_it() {
    if !is_root() {
        return;
    }
    let (mut fixture, count, handle) = fixture();
    fixture.credential = sends(1001, &[]);
    let words = Words::default().opaque(&handle);
    let call = Call {
        program: 100_003,
        version: 3,
        procedure: 1,
        credential: fixture.credential,
        ..Call::default()
    };
    let before = count.load(Ordering::Relaxed);
    let prepares = || {
        let nfs = &fixture.nfs;
        nfs.preparation(&call, Arguments::new(&words.0)).is_some()
    };
    assert!(
        fixture.prompt(&call, &words).is_none(),
        "it is for a worker"
    );
    assert!(prepares());
    let (served, results) = fixture.pooled(&call, &words);
    assert_eq!(
        (served, results.status()),
        (CallOutcome::Results, LATER),
        "nothing was prepared"
    );
    assert_eq!(count.load(Ordering::Relaxed), before, "nor looked up");
    fixture.nfs.prepare(&call);
    assert!(!prepares());
    assert_eq!(fixture.pooled(&call, &words).1.status(), 0);
    assert!(fixture.prompt(&call, &words).is_some());
    assert_eq!(count.load(Ordering::Relaxed), before + 1);
}

#[test]
fn nobody_is_looked_up_for_a_client_without_a_right_or_where_all_are_squashed() {
    if !is_root() {
        return;
    }
    let (mut fixture, count, handle) = fixture();
    let directory = fixture.path().to_owned();
    let export = |clients: &str, squash| ExportOptions {
        directory: directory.clone(),
        rules: vec![ClientRule {
            clients: Clients::Network(clients.parse().expect("a network")),
            rights: Rights {
                squash,
                ..Rights::default()
            },
            place: String::new(),
        }],
        place: String::new(),
    };
    for (clients, squash, status) in [
        ("10.0.0.0/8", Squash::Root, Status::Stale as u32),
        ("::/0", Squash::All, DENIED),
    ] {
        let exports = vec![export(clients, squash)];
        fixture
            .nfs
            .exports()
            .prepare(exports)
            .expect("good")
            .apply();
        fixture.peer = Some("11.0.0.1:9".parse().expect("an address"));
        let before = count.load(Ordering::Relaxed);
        // One that is not known yet.
        fixture.credential = sends(1003, &[SHARED]);
        assert_eq!(fixture.read(&handle, 0, 9).err(), Some(status));
        assert_eq!(count.load(Ordering::Relaxed), before, "{clients}");
        // Nor by a worker, which has the call where others are under way.
        let words = Words::default().opaque(&handle);
        let call = Call {
            program: 100_003,
            version: 3,
            procedure: 1,
            credential: fixture.credential,
            peer: fixture.peer,
            ..Call::default()
        };
        let prepared = fixture.nfs.preparation(&call, Arguments::new(&words.0));
        assert!(prepared.is_none(), "{clients}");
    }
}

/// As of a file of groups that has changed.
#[test]
fn a_reload_of_the_exports_has_groups_looked_up_again() {
    if !is_root() {
        return;
    }
    let (fixture, count, handle) = fixture();
    assert!(fixture.read(&handle, 0, 9).is_ok());
    let before = count.load(Ordering::Relaxed);
    let exports = vec![ExportOptions {
        directory: fixture.path().to_owned(),
        rules: vec![ClientRule {
            clients: Clients::Any,
            rights: Rights::default(),
            place: String::new(),
        }],
        place: String::new(),
    }];
    let prepared = fixture.nfs.exports().prepare(exports);
    prepared.expect("good").apply();
    for _ in 0..2 {
        assert!(fixture.read(&handle, 0, 9).is_ok());
    }
    assert_eq!(count.load(Ordering::Relaxed), before + 1);
}
