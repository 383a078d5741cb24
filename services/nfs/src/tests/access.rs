//! Who may do what: the kernel decides, as the caller.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};

use flatpath_rpc::{AuthStatus, Call, Credential, Groups, Programs, Route, Transport};
use flatpath_testkit::until_true;

use crate::identity::Who;
use flatpath_testkit::skipped::cannot_run;

use crate::limits::GRANT_AGE_MIN;
use crate::rights::{ClientRule, Clients, ExportOptions, NOBODY, Rights, Squash};
use crate::status::Status;
use crate::testing::{Fixture, Words, is_root, system};

const DENIED: u32 = Status::Access as u32;

fn file(fixture: &Fixture, name: &str, owner: u32, group: u32, mode: u32) -> Vec<u8> {
    let path = fixture.path().join(name);
    fs::write(&path, b"text").expect("a file");
    chown(&path, Some(owner), Some(group)).expect("root gives files away");
    fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("chmod");
    fixture.lookup(&[name]).expect("found")
}

/// ACCESS, for every right.
fn rights(fixture: &Fixture, handle: &[u8]) -> u32 {
    rights_of(fixture, handle, 0x3f)
}

fn rights_of(fixture: &Fixture, handle: &[u8], asked: u32) -> u32 {
    let results = fixture.nfs(4, &Words::default().opaque(handle).word(asked));
    let mut reader = results.reader();
    assert_eq!(reader.u32(), Ok(0));
    assert_eq!(reader.boolean(), Ok(true));
    crate::testing::Found::read(&mut reader);
    reader.u32().expect("rights")
}

#[test]
fn a_caller_reads_and_writes_what_its_user_and_groups_may() {
    if !is_root() {
        return;
    }
    let mut fixture = Fixture::new();
    let private = file(&fixture, "private", 2000, 2000, 0o600);
    let shared = file(&fixture, "shared", 2000, 3000, 0o640);
    let open = file(&fixture, "open", 2000, 2000, 0o666);
    let may = |fixture: &Fixture, handle: &[u8]| {
        let read = fixture.read(handle, 0, 4).err().unwrap_or(0);
        (
            read,
            fixture.write(handle, 0, b"T", 0),
            rights(fixture, handle),
        )
    };
    assert_eq!(may(&fixture, &private), (DENIED, DENIED, 0));
    assert_eq!(may(&fixture, &shared), (DENIED, DENIED, 0));
    assert_eq!(may(&fixture, &open), (0, 0, 0x0d));
    let groups = Groups::new([5, 3000]);
    fixture.credential = Credential::System {
        user: 1000,
        group: 1000,
        groups,
    };
    assert_eq!(
        may(&fixture, &shared),
        (0, DENIED, 0x01),
        "by a further group"
    );
    fixture.credential = system(2000);
    assert_eq!(may(&fixture, &private), (0, 0, 0x0d));
    fixture.credential = Credential::None;
    assert_eq!(may(&fixture, &private), (DENIED, DENIED, 0));
    assert_eq!(may(&fixture, &open), (0, 0, 0x0d));
}

#[test]
fn every_right_is_told_alone_and_with_others() {
    let fixture = Fixture::new();
    let root = fixture.root();
    let plain = fixture.create(&root, "plain", 0o600).expect("made");
    let program = fixture.create(&root, "program", 0o700).expect("made");
    for (handle, all) in [(&root, 0x1f), (&plain, 0x0d), (&program, 0x2d)] {
        assert_eq!(rights(&fixture, handle), all);
        for right in (0..6).map(|bit| 1 << bit) {
            assert_eq!(rights_of(&fixture, handle, right), right & all, "{all:#x}");
        }
    }
}

#[test]
fn a_right_that_is_taken_away_is_gone_at_once() {
    if !is_root() {
        return;
    }
    let fixture = Fixture::new();
    let handle = file(&fixture, "file", 2000, 2000, 0o644);
    assert!(fixture.read(&handle, 0, 4).is_ok());
    assert!(fixture.read(&handle, 0, 4).is_ok());
    let path = fixture.path().join("file");
    let set = |mode| {
        let mode = fs::Permissions::from_mode(mode);
        fs::set_permissions(&path, mode).expect("chmod");
    };
    set(0o600);
    assert_eq!(fixture.read(&handle, 0, 4).err(), Some(DENIED));
    set(0o644);
    // The same again, with a verdict that is remembered.
    let node = fixture.export().resolve(&handle).expect("a file");
    let changed = node.attributes().expect("there").changed;
    until_true("the change is old enough", || {
        !changed.is_recent(GRANT_AGE_MIN)
    });
    let whole = fixture.read(&handle, 0, 10);
    let who = Who::new(&fixture.credential, &Rights::default(), None);
    assert!(node.seen_by(&who).is_some(), "it was remembered");
    assert_eq!(fixture.read(&handle, 0, 10), whole);
    set(0o600);
    assert_eq!(fixture.read(&handle, 0, 4).err(), Some(DENIED));
    assert_eq!(fixture.read(&handle, 0, 4).err(), Some(DENIED));
}

#[test]
fn an_owner_moves_data_whatever_the_mode_and_who_executes_may_read() {
    if !is_root() {
        return;
    }
    let fixture = Fixture::new();
    let own = file(&fixture, "own", 1000, 1000, 0o000);
    assert!(fixture.read(&own, 0, 4).is_ok());
    assert_eq!(fixture.write(&own, 0, b"x", 0), 0);
    let program = file(&fixture, "program", 2000, 2000, 0o711);
    assert!(fixture.read(&program, 0, 4).is_ok());
    assert_eq!(fixture.write(&program, 0, b"x", 0), DENIED);
}

#[test]
fn root_is_nobody_unless_it_is_trusted() {
    if !is_root() {
        return;
    }
    let mut fixture = Fixture::new();
    let private = file(&fixture, "private", 2000, 2000, 0o600);
    fixture.credential = system(0);
    assert_eq!(fixture.read(&private, 0, 4).err(), Some(DENIED));
    fixture
        .create(&fixture.root(), "made", 0o644)
        .expect("made");
    let made = fs::metadata(fixture.path().join("made")).expect("there");
    assert_eq!((made.uid(), made.gid()), (NOBODY, NOBODY));
    let mut fixture = Fixture::with(|options| options.squash = Squash::Anonymous);
    let private = file(&fixture, "private", 2000, 2000, 0o600);
    fixture.credential = system(0);
    assert!(fixture.read(&private, 0, 4).is_ok());
    fixture
        .create(&fixture.root(), "made", 0o644)
        .expect("made");
    let made = fs::metadata(fixture.path().join("made")).expect("there");
    assert_eq!((made.uid(), made.gid()), (0, 0));
}

#[test]
fn directories_are_listed_passed_and_changed_only_by_those_who_may() {
    if !is_root() {
        return;
    }
    let fixture = Fixture::new();
    let path = fixture.path().join("closed");
    fs::create_dir(&path).expect("a directory");
    fs::write(path.join("file"), b"").expect("a file");
    let list = |mode: u32| {
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("chmod");
        let closed = fixture.lookup(&["closed"]).expect("the one above is open");
        let words = Words::default().opaque(&closed).long(0).long(0).word(4096);
        let create = fixture.create(&closed, "new", 0o600).err().unwrap_or(0);
        let _ = fs::remove_file(path.join("new"));
        let lookup = fixture.lookup(&["closed", "file"]).err().unwrap_or(0);
        (fixture.nfs(16, &words).status(), lookup, create)
    };
    assert_eq!(list(0o700), (DENIED, DENIED, DENIED));
    assert_eq!(list(0o704), (0, DENIED, DENIED));
    assert_eq!(list(0o701), (DENIED, 0, DENIED));
    assert_eq!(list(0o703), (DENIED, 0, 0));
}

#[test]
fn new_files_belong_to_the_caller_with_the_mode_it_named() {
    if !is_root() {
        return;
    }
    let fixture = Fixture::new();
    let root = fixture.root();
    for (number, mode) in [0o644, 0o600, 0o777, 0o000].into_iter().enumerate() {
        let name = format!("file{number}");
        fixture.create(&root, &name, mode).expect("made");
        let made = fs::metadata(fixture.path().join(&name)).expect("there");
        assert_eq!(
            (made.uid(), made.gid(), made.mode() & 0o7777),
            (1000, 1000, mode)
        );
    }
    let directory = |above: &[u8], name: &str, mode| {
        let words = Words::default().opaque(above).opaque(name.as_bytes());
        let made = fixture.made(9, &words.mode(mode)).expect("made");
        let found = fixture.attributes(&made).expect("there");
        assert_eq!(found.user, 1000);
        (found.mode, made)
    };
    let (mode, above) = directory(&root, "dir", 0o3770);
    assert_eq!(mode, 0o3770);
    let (mode, _) = directory(&above, "inner", 0o750);
    assert_eq!(mode, 0o2750, "the group's bit comes from above");
}

#[test]
fn root_names_the_owner_the_group_and_the_device_of_what_it_makes() {
    if !is_root() {
        return;
    }
    let mut fixture = Fixture::with(|options| options.squash = Squash::Anonymous);
    fixture.credential = system(0);
    let root = fixture.root();
    let owned = [1, 0o640, 1, 1000, 1, 2000, 0, 0, 0];
    let words = |name: &[u8], kind: u32| {
        let words = Words::default().opaque(&root).opaque(name).word(kind);
        owned.into_iter().fold(words, Words::word)
    };
    fixture.made(8, &words(b"file", 0)).expect("made");
    let made = fs::metadata(fixture.path().join("file")).expect("there");
    assert_eq!(
        (made.uid(), made.gid(), made.mode() & 0o7777),
        (1000, 2000, 0o640)
    );
    let (user, group) = ((1000, 2000), (2000, 1000));
    for (name, (uid, gid), set) in [
        ("user", user, [0, 1, 1000, 0, 0, 0, 0]),
        ("group", group, [0, 0, 1, 1000, 0, 0, 0]),
    ] {
        let handle = file(&fixture, name, 2000, 2000, 0o644);
        let words = set
            .into_iter()
            .fold(Words::default().opaque(&handle), Words::word);
        assert_eq!(fixture.nfs(2, &words.word(0)).status(), 0);
        let found = fs::metadata(fixture.path().join(name)).expect("there");
        assert_eq!((found.uid(), found.gid()), (uid, gid), "the {name} alone");
    }
    let (major, minor) = (1, 3);
    for (name, kind) in [("character", 4), ("block", 3)] {
        let words = words(name.as_bytes(), kind).word(major).word(minor);
        match fixture.made(11, &words) {
            Ok(handle) => assert_eq!(fixture.attributes(&handle).expect("there").kind, kind),
            Err(status) => {
                assert_ne!(status, Status::BadType as u32);
                return cannot_run("this machine makes no devices");
            }
        }
        let made = fs::metadata(fixture.path().join(name)).expect("there");
        assert_eq!(made.rdev(), rustix::fs::makedev(major, minor));
    }
}

#[test]
fn a_caller_that_names_owners_of_what_it_makes_is_its_owner_and_keeps_the_mode() {
    if !is_root() {
        return;
    }
    let fixture = Fixture::new();
    let root = fixture.root();
    for (name, user) in [("own", 1000), ("other", 4711)] {
        let words = Words::default().opaque(&root).opaque(name.as_bytes());
        let owned = [0, 1, 0o4755, 1, user, 1, 1000, 0, 0, 0];
        let made = fixture.made(8, &owned.into_iter().fold(words, Words::word));
        let found = fixture.attributes(&made.expect("made")).expect("there");
        // Names that change nothing are not set: that would take the bit away.
        assert_eq!((found.user, found.group, found.mode), (1000, 1000, 0o4755));
    }
}

#[test]
fn a_write_by_another_takes_the_set_user_bit_away() {
    if !is_root() {
        return;
    }
    let fixture = Fixture::new();
    let handle = file(&fixture, "program", 0, 0, 0o4777);
    assert_eq!(fixture.write(&handle, 0, b"evil", 0), 0);
    let mode = fs::metadata(fixture.path().join("program"))
        .expect("there")
        .mode();
    assert_eq!(mode & 0o7777, 0o777);
}

#[test]
fn nothing_changes_in_a_read_only_export() {
    let fixture = Fixture::with(|options| options.access = crate::Access::ReadOnly);
    let path = fixture.path();
    fs::write(path.join("file"), b"text").expect("a file");
    let root = fixture.root();
    let handle = fixture.lookup(&["file"]).expect("found");
    assert_eq!(fixture.read(&handle, 0, 9), Ok((b"text".to_vec(), true)));
    let read_only = Status::ReadOnly as u32;
    let at = |name: &[u8]| Words::default().opaque(&root).opaque(name);
    let calls = [
        (2, Words::default().opaque(&handle).mode(0o777).word(0)),
        (
            7,
            Words::default()
                .opaque(&handle)
                .long(0)
                .word(1)
                .word(0)
                .opaque(b"x"),
        ),
        (8, at(b"new").word(0).unset()),
        (9, at(b"new").unset()),
        (10, at(b"new").unset().opaque(b"target")),
        (11, at(b"new").word(7).unset()),
        (12, at(b"file")),
        (13, at(b"file")),
        (14, at(b"file").opaque(&root).opaque(b"new")),
        (
            15,
            Words::default()
                .opaque(&handle)
                .opaque(&root)
                .opaque(b"new"),
        ),
        (21, Words::default().opaque(&handle).long(0).word(0)),
    ];
    for (procedure, words) in calls {
        assert_eq!(
            fixture.nfs(procedure, &words).status(),
            read_only,
            "procedure {procedure}"
        );
    }
    assert_eq!(rights(&fixture, &root) & 0x1c, 0);
    assert_eq!(fs::read_dir(path).expect("there").count(), 1);
}

#[test]
fn where_tls_is_required_calls_without_it_are_refused() {
    let route = |fixture: &Fixture, procedure: u32, is_secured: bool, peer: &str| {
        let call = Call {
            program: 100_003,
            version: 3,
            procedure,
            peer: Some(peer.parse().expect("an address")),
            is_secured,
            ..Call::default()
        };
        fixture.nfs.route(&call)
    };
    let refused = Route::Refused(AuthStatus::TooWeak);
    let fixture = Fixture::with(|options| options.tls_required = true);
    for procedure in 0..22 {
        let with = route(&fixture, procedure, true, "10.1.2.3:9");
        assert_ne!(with, refused, "procedure {procedure} through TLS");
        let without = route(&fixture, procedure, false, "10.1.2.3:9");
        let expected = if procedure == 0 { with } else { refused };
        assert_eq!(without, expected, "procedure {procedure} in the clear");
    }
    let fixture = Fixture::with(|options| {
        options.tls_required = true;
        options.allowed = vec!["10.0.0.0/8".parse().expect("a network")];
    });
    assert_eq!(route(&fixture, 1, true, "10.1.2.3:9"), Route::Prompt);
    assert_eq!(route(&fixture, 1, true, "11.1.2.3:9"), refused);
}

/// mount(8) of Linux speaks MOUNT in the clear, also for a mount with TLS, and mountd answers it.
#[test]
fn where_tls_is_required_mount_is_answered_without_it_and_its_handle_is_good_for_nothing() {
    let by_rule = |options: &mut crate::Options| {
        let rights = Rights {
            tls_required: true,
            ..Rights::default()
        };
        let rule = ClientRule {
            clients: Clients::Any,
            rights,
            place: String::new(),
        };
        options.exports = vec![ExportOptions {
            directory: options.directory.clone(),
            rules: vec![rule],
            place: String::new(),
        }];
    };
    let by_listener = |options: &mut crate::Options| options.tls_required = true;
    let hows: [&dyn Fn(&mut crate::Options); 2] = [&by_rule, &by_listener];
    for (number, how) in hows.into_iter().enumerate() {
        let fixture = Fixture::with(how);
        let path = match number {
            0 => fixture.path().to_str().expect("a text").to_owned(),
            _ => "/".to_owned(),
        };
        for transport in [Transport::Stream, Transport::Datagram] {
            let call = |program, procedure| Call {
                program,
                version: 3,
                procedure,
                credential: fixture.credential,
                transport,
                ..Call::default()
            };
            for procedure in 0..6 {
                let route = fixture.nfs.route(&call(100_005, procedure));
                let expected = if procedure == 0 {
                    Route::Inline
                } else {
                    Route::Pooled
                };
                assert_eq!(route, expected, "{number}: procedure {procedure}");
            }
            let path = Words::default().opaque(path.as_bytes());
            let mounted = fixture.answered(&call(100_005, 1), &path);
            assert_eq!(mounted.status(), 0, "{number}: a handle");
            let mut reader = mounted.reader();
            reader.u32().expect("the status");
            let handle = reader.opaque(64).expect("a handle");
            let named = Words::default().opaque(handle);
            let getattr = call(100_003, 1);
            match fixture.nfs.route(&getattr) {
                Route::Refused(_) | Route::Unavailable(_) => {}
                _ => {
                    let denied = fixture.answered(&getattr, &named).status();
                    assert_eq!(denied, Status::Access as u32, "{number}: the handle alone");
                }
            }
            let secured = Call {
                is_secured: true,
                transport: Transport::Stream,
                ..getattr
            };
            assert_eq!(fixture.answered(&secured, &named).status(), 0, "{number}");
        }
    }
}

#[test]
fn clients_are_admitted_by_address_and_port_and_unknown_ones_are_not() {
    let route = |fixture: &Fixture, peer: Option<&str>| {
        let peer = peer.map(|peer| peer.parse().expect("an address"));
        let call = Call {
            program: 100_003,
            version: 3,
            procedure: 1,
            peer,
            ..Call::default()
        };
        fixture.nfs.route(&call)
    };
    let refused = Route::Refused(AuthStatus::TooWeak);
    let fixture = Fixture::with(|options| {
        options.allowed = vec!["10.0.0.0/8".parse().expect("a network")];
        options.secure_ports = true;
    });
    assert_eq!(route(&fixture, Some("10.1.2.3:1023")), Route::Prompt);
    assert_eq!(route(&fixture, Some("10.1.2.3:1024")), refused);
    assert_eq!(route(&fixture, Some("11.1.2.3:1023")), refused);
    assert_eq!(route(&fixture, None), refused);
    let fixture = Fixture::new();
    assert_eq!(route(&fixture, Some("11.1.2.3:60000")), Route::Prompt);
    assert_eq!(route(&fixture, None), Route::Prompt);
}
