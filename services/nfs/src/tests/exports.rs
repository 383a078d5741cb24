//! Several exports: whose rights a call has, and that handles stay in their export.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::Path;

use flatpath_rpc::{Arguments, Call, Credential, Groups};

use crate::programs::{MNT, MOUNT, NFS};
use crate::rights::{ClientRule, Clients, ExportOptions, Rights};
use crate::status::Status;
use crate::testing::{Fixture, Words, is_root, system};
use crate::{Access, ExportsFile, Nfs, Options, Squash};

const OK: u32 = 0;
const DENIED: u32 = Status::Access as u32;
const STALE: u32 = Status::Stale as u32;
const READ_ONLY: u32 = Status::ReadOnly as u32;
const CROSS_DEVICE: u32 = Status::CrossDevice as u32;
const BAD_HANDLE: u32 = Status::BadHandle as u32;

/// Lines of `/etc/exports`; `DIR` is the directory.
pub(super) fn exports(directory: &Path, lines: &str) -> Vec<ExportOptions> {
    let text = lines.replace("DIR", directory.to_str().expect("a path in text"));
    let file = ExportsFile::parse(text.as_bytes(), "exports");
    file.expect("good lines").exports
}

/// Directories `a` with `a/sub`, and `b`, each with a file, exported as these lines say.
pub(super) fn fixture(lines: &str) -> Fixture {
    let mut fixture = Fixture::with(|options| {
        for name in ["a", "b", "a/sub"] {
            let path = options.directory.join(name);
            fs::create_dir(&path).expect("a directory");
            fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).expect("chmod");
            let file = path.join("file");
            fs::write(&file, name).expect("a file");
            fs::set_permissions(&file, fs::Permissions::from_mode(0o666)).expect("chmod");
        }
        options.exports = exports(&options.directory, lines);
    });
    fixture.peer = Some("10.1.2.3:1023".parse().expect("an address"));
    fixture
}

impl Fixture {
    pub(super) fn calls_from(&mut self, peer: &str) -> &mut Fixture {
        self.peer = Some(peer.parse().expect("an address"));
        self
    }

    pub(super) fn mount_below(&self, name: &str) -> Result<Vec<u8>, u32> {
        let path = self.path().join(name);
        self.mount(path.as_os_str().as_encoded_bytes())
    }

    /// LOOKUP of a name.
    pub(super) fn find(&self, directory: &[u8], name: &str) -> Result<Vec<u8>, u32> {
        let words = Words::default().opaque(directory).opaque(name.as_bytes());
        let results = self.nfs(3, &words);
        let mut reader = results.reader();
        match reader.u32().expect("a status") {
            OK => Ok(reader.opaque(64).expect("a handle").to_vec()),
            status => Err(status),
        }
    }

    pub(super) fn status_of(&self, handle: &[u8]) -> u32 {
        self.attributes(handle).err().unwrap_or(OK)
    }

    /// Replaces the exports.
    pub(super) fn reload(&self, lines: &str) -> crate::ExportChange {
        let prepared = self.nfs.exports().prepare(exports(self.path(), lines));
        prepared.expect("good exports").apply()
    }
}

/// The export that a handle is of.
pub(super) fn number(handle: &[u8]) -> &[u8] {
    &handle[4..8]
}

#[test]
fn a_call_has_the_rights_of_the_smallest_network_of_its_address_in_its_export() {
    let mut fixture = fixture(
        "DIR/a 10.0.0.0/8(ro) 10.1.0.0/16(rw) 10.1.2.4(ro)\n\
         DIR/b 10.1.0.0/16(ro) *(rw,insecure)\n",
    );
    let (a, b) = (fixture.mount_below("a"), fixture.mount_below("b"));
    let (a, b) = (a.expect("exported"), b.expect("exported"));
    let (in_a, in_b) = (fixture.find(&a, "file"), fixture.find(&b, "file"));
    let (in_a, in_b) = (in_a.expect("there"), in_b.expect("there"));
    let mut check = |peer: &str, in_each: [u32; 2]| {
        fixture.calls_from(peer);
        let written = [&in_a, &in_b].map(|handle| fixture.write(handle, 0, b"x", 0));
        assert_eq!(written, in_each, "{peer}");
    };
    check("10.1.2.3:1023", [OK, READ_ONLY]);
    check("10.1.2.4:1023", [READ_ONLY, READ_ONLY]);
    check("[::ffff:10.1.2.3]:1023", [OK, READ_ONLY]);
    check("10.2.0.1:1023", [READ_ONLY, OK]);
    check("11.0.0.1:1023", [STALE, OK]);
    check("11.0.0.1:1024", [STALE, OK]);
    check("10.1.2.3:1024", [Status::NotOwner as u32; 2]);
    // Who is nowhere may do nothing, and neither may one whose address is unknown.
    fixture.peer = None;
    assert_eq!(fixture.write(&in_a, 0, b"x", 0), STALE);
    assert_eq!(fixture.write(&in_b, 0, b"x", 0), OK, "everybody is meant");
}

#[test]
fn every_procedure_refuses_a_client_without_a_right_in_its_own_words() {
    let mut fixture = fixture("DIR/a 10.1.2.3(rw)\nDIR/b *(ro,insecure)\n");
    let root = fixture.mount_below("a").expect("exported");
    let file = fixture.find(&root, "file").expect("there");
    fixture.calls_from("10.9.9.9:9");
    let of = |handle: &[u8]| Words::default().opaque(handle);
    let name = || of(&root).opaque(b"name");
    let data = of(&file).long(0).word(1).word(0).opaque(b"x");
    let twice = || name().opaque(&root).opaque(b"other");
    // The words of results behind the status: attributes that are not there.
    let calls = [
        (1, of(&root), 0),
        (2, of(&file).unset().word(0), 2),
        (3, name(), 1),
        (4, of(&root).word(0x3f), 1),
        (5, of(&root), 1),
        (6, of(&file).long(0).word(10), 1),
        (7, data, 2),
        (8, name().word(0).unset(), 2),
        (9, name().unset(), 2),
        (10, name().unset().opaque(b"target"), 2),
        (11, name().word(7).unset(), 2),
        (12, name(), 2),
        (13, name(), 2),
        (14, twice(), 4),
        (15, of(&file).opaque(&root).opaque(b"other"), 3),
        (16, of(&root).long(0).long(0).word(4096), 1),
        (17, of(&root).long(0).long(0).word(4096).word(4096), 1),
        (18, of(&root), 1),
        (19, of(&root), 1),
        (20, of(&root), 1),
        (21, of(&file).long(0).word(0), 2),
    ];
    for (procedure, words, absent) in calls {
        let results = fixture.nfs(procedure, &words);
        assert_eq!(results.status(), STALE, "procedure {procedure}");
        assert_eq!(results.0.len(), 4 + 4 * absent, "procedure {procedure}");
        assert!(results.0[4..].iter().all(|byte| *byte == 0));
    }
    assert_eq!(
        fs::read_dir(fixture.path().join("a"))
            .expect("there")
            .count(),
        2
    );
}

#[test]
fn mnt_finds_the_longest_export_that_lets_the_client_in() {
    let mut fixture = fixture(
        "DIR/a 10.0.0.0/8(ro)\nDIR/a/sub 10.1.0.0/16(rw)\nDIR/b 10.1.2.3(ro,xprtsec=tls)\n",
    );
    let (a, sub) = (fixture.mount_below("a"), fixture.mount_below("a//./sub/"));
    let (a, sub) = (a.expect("exported"), sub.expect("exported"));
    assert_ne!(number(&a), number(&sub));
    let plain = fixture.mount_below("a/sub").expect("exported");
    assert_eq!(plain, sub);
    for (name, status) in [
        ("", DENIED),
        ("/", DENIED),
        ("ab", DENIED),
        ("c", DENIED),
        ("a/../b", DENIED),
        ("a/none", Status::NoEntry as u32),
        ("a/file", Status::NotDirectory as u32),
    ] {
        assert_eq!(fixture.mount_below(name), Err(status), "{name:?}");
    }
    assert_eq!(fixture.mount(b"/"), Err(DENIED));
    assert_eq!(fixture.mount(b""), Err(DENIED));
    let b = fixture.mount_below("b").expect("MOUNT needs no TLS");
    assert_eq!(fixture.status_of(&b), DENIED, "NFS does");
    fixture.calls_from("10.2.0.1:1023");
    assert_eq!(fixture.mount_below("b"), Err(DENIED));
    let through_a = fixture
        .mount_below("a/sub")
        .expect("as a part of the other");
    assert_eq!(number(&through_a), number(&a));
    fixture.calls_from("10.1.2.3:1024");
    assert_eq!(
        fixture.mount_below("a"),
        Err(DENIED),
        "the port is too high"
    );
    fixture.calls_from("11.0.0.1:1023");
    assert_eq!(fixture.mount_below("a/sub"), Err(DENIED));
}

#[test]
fn an_export_is_mounted_by_the_link_that_it_was_written_as() {
    let fixture = Fixture::with(|options| {
        let (real, link) = (
            options.directory.join("real"),
            options.directory.join("link"),
        );
        fs::create_dir(&real).expect("a directory");
        symlink(&real, &link).expect("a link");
        options.exports = exports(&options.directory, "DIR/link *(ro,insecure)\n");
    });
    let by_link = fixture.mount_below("link").expect("exported");
    assert_eq!(fixture.mount_below("real"), Ok(by_link));
}

#[test]
fn a_handle_of_one_export_has_no_rights_of_another() {
    let mut fixture = fixture("DIR/a 10.1.0.0/16(ro)\nDIR/b *(rw,insecure)\n");
    let (a, b) = (fixture.mount_below("a"), fixture.mount_below("b"));
    let (a, b) = (a.expect("exported"), b.expect("exported"));
    let file = fixture.find(&a, "file").expect("there");
    assert_eq!(fixture.write(&file, 0, b"x", 0), READ_ONLY);
    // The same handle as if it were of the other.
    let mut forged = file.clone();
    forged[4..8].copy_from_slice(number(&b));
    assert_eq!(fixture.write(&forged, 0, b"x", 0), STALE);
    for bit in 0..file.len() * 8 {
        let mut forged = file.clone();
        forged[bit / 8] ^= 1 << (bit % 8);
        let expected = if bit < 16 { BAD_HANDLE } else { STALE };
        assert_eq!(fixture.status_of(&forged), expected, "bit {bit}");
    }
    // A client that has the other export alone.
    fixture.calls_from("11.0.0.1:1023");
    for handle in [&a, &file] {
        assert_eq!(fixture.status_of(handle), STALE);
        assert_eq!(fixture.find(handle, ".."), Err(STALE));
    }
    assert_eq!(fixture.status_of(&b), OK);
}

#[test]
fn nothing_leads_out_of_an_export_below_another() {
    let mut fixture = fixture("DIR/a 10.9.9.9(rw)\nDIR/a/sub *(rw,insecure)\n");
    let path = fixture.path().to_owned();
    symlink("..", path.join("a/sub/up")).expect("a link");
    symlink(path.join("a"), path.join("a/sub/above")).expect("a link");
    let sub = fixture.mount_below("a/sub").expect("exported");
    let own = fs::metadata(path.join("a/sub")).expect("there").ino();
    let up = fixture.find(&sub, "..").expect("it is its own parent");
    assert_eq!(up, sub);
    for (procedure, words) in [
        (16, Words::default().opaque(&sub).long(0).long(0).word(4096)),
        (
            17,
            Words::default()
                .opaque(&sub)
                .long(0)
                .long(0)
                .word(4096)
                .word(4096),
        ),
    ] {
        let listed = fixture.nfs(procedure, &words);
        assert_eq!(listed.status(), OK);
        let mut expected = Words::default().long(own).opaque(b"..").0;
        expected.truncate(8 + 4 + 2);
        let found = listed
            .0
            .windows(expected.len())
            .any(|bytes| bytes == expected);
        assert!(found, "{procedure} names another directory above");
    }
    for link in ["up", "above"] {
        let handle = fixture.find(&sub, link).expect("the link itself");
        assert_eq!(fixture.attributes(&handle).expect("there").kind, 5);
        assert_eq!(
            fixture.find(&handle, "file"),
            Err(Status::NotDirectory as u32)
        );
        let below = format!("a/sub/{link}");
        assert!(fixture.mount_below(&below).is_err(), "{below}");
        assert!(fixture.mount_below(&format!("{below}/file")).is_err());
    }
    assert_eq!(fixture.mount_below("a/sub/.."), Err(DENIED));
    // What is moved out is gone, for those who are not let in above.
    let file = fixture.find(&sub, "file").expect("there");
    let deep = fixture.made(
        9,
        &Words::default().opaque(&sub).opaque(b"deep").mode(0o777),
    );
    let deep = deep.expect("made");
    fs::rename(path.join("a/sub/file"), path.join("a/moved")).expect("moved");
    fs::rename(path.join("a/sub/deep"), path.join("a/deep")).expect("moved");
    assert_eq!(fixture.status_of(&file), STALE);
    assert_eq!(fixture.find(&deep, ".."), Err(STALE));
    assert_eq!(fixture.create(&deep, "new", 0o644), Err(STALE));
    fixture.calls_from("10.9.9.9:1023");
    let a = fixture.mount_below("a").expect("exported");
    assert!(fixture.find(&a, "moved").is_ok());
}

#[test]
fn no_call_moves_or_links_a_file_from_one_export_to_another() {
    let lines = "DIR/a *(rw,insecure)\nDIR/b 10.1.0.0/16(rw)\n";
    let mut fixture = fixture(lines);
    let (a, b) = (fixture.mount_below("a"), fixture.mount_below("b"));
    let (a, b) = (a.expect("exported"), b.expect("exported"));
    let (in_a, in_b) = (fixture.find(&a, "file"), fixture.find(&b, "file"));
    let (in_a, in_b) = (in_a.expect("there"), in_b.expect("there"));
    let rename = |from: &[u8], to: &[u8]| {
        let from = Words::default().opaque(from).opaque(b"file");
        from.opaque(to).opaque(b"stolen")
    };
    let link = |file: &[u8], to: &[u8]| Words::default().opaque(file).opaque(to).opaque(b"stolen");
    let forge = |handle: &[u8]| {
        let mut forged = handle.to_vec();
        forged[10] ^= 1;
        forged
    };
    let check = |fixture: &Fixture, expected: u32| {
        for (from, to) in [(&a, &b), (&b, &a)] {
            assert_eq!(fixture.nfs(14, &rename(from, to)).status(), expected);
            assert_eq!(fixture.nfs(14, &rename(from, &forge(to))).status(), STALE);
        }
        for (file, to) in [(&in_a, &b), (&in_b, &a)] {
            assert_eq!(fixture.nfs(15, &link(file, to)).status(), expected);
            assert_eq!(fixture.nfs(15, &link(file, &forge(to))).status(), STALE);
        }
    };
    check(&fixture, CROSS_DEVICE);
    let gone = number(&b).to_vec();
    fixture.calls_from("11.0.0.1:1023");
    for words in [(14, rename(&a, &b)), (15, link(&in_a, &b))] {
        let status = fixture.nfs(words.0, &words.1).status();
        assert_eq!(status, STALE, "the other is not for this client");
    }
    fixture
        .calls_from("10.1.2.3:1023")
        .reload("DIR/a *(rw,insecure)\n");
    assert_eq!(
        fixture.nfs(14, &rename(&a, &b)).status(),
        STALE,
        "{gone:?} is gone"
    );
    for name in ["a/stolen", "b/stolen"] {
        assert!(!fixture.path().join(name).exists());
    }
    assert_eq!(fixture.nfs(14, &rename(&a, &a)).status(), OK);
}

#[test]
fn all_are_one_user_where_all_are_squashed() {
    if !is_root() {
        return;
    }
    let mut fixture = fixture(
        "DIR/a *(rw,insecure,all_squash,anonuid=4711,anongid=4712)\n\
         DIR/b *(rw,insecure,no_root_squash)\n",
    );
    let a = fixture.mount_below("a").expect("exported");
    let secret = fixture.path().join("a/secret");
    fs::write(&secret, "secret").expect("a file");
    chown(&secret, Some(0), Some(0)).expect("root's");
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o640)).expect("chmod");
    let handle = fixture.find(&a, "secret").expect("there");
    for (number, user) in [0, 1000].into_iter().enumerate() {
        fixture.credential = Credential::System {
            user,
            group: 0,
            groups: Groups::new([0; 16]),
        };
        assert_eq!(
            fixture.read(&handle, 0, 9).err(),
            Some(DENIED),
            "user {user}"
        );
        let name = format!("made{number}");
        fixture.create(&a, &name, 0o644).expect("made");
        let made = fs::metadata(fixture.path().join("a").join(&name)).expect("there");
        assert_eq!((made.uid(), made.gid()), (4711, 4712));
    }
    fixture.credential = system(0);
    let b = fixture.mount_below("b").expect("exported");
    fixture.create(&b, "made", 0o644).expect("made");
    let made = fs::metadata(fixture.path().join("b/made")).expect("there");
    assert_eq!(
        (made.uid(), made.gid()),
        (0, 0),
        "that is for the other export"
    );
}

#[test]
fn sixteen_times_root_among_the_groups_is_sixteen_times_nobody() {
    if !is_root() {
        return;
    }
    let mut fixture = fixture("DIR/a *(rw,insecure)\n");
    let path = fixture.path().join("a/roots");
    fs::write(&path, "secret").expect("a file");
    chown(&path, Some(0), Some(0)).expect("root's");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o660)).expect("chmod");
    let a = fixture.mount_below("a").expect("exported");
    let handle = fixture.find(&a, "roots").expect("there");
    fixture.credential = Credential::System {
        user: 1000,
        group: 0,
        groups: Groups::new([0; 16]),
    };
    assert_eq!(fixture.read(&handle, 0, 9).err(), Some(DENIED));
    assert_eq!(fixture.write(&handle, 0, b"x", 0), DENIED);
}

#[test]
fn export_lists_each_export_with_its_clients() {
    let fixture = fixture("DIR/a 10.0.0.0/8(ro) fd00::1(rw)\nDIR/b 10.1.2.3(ro) *(ro)\n");
    let results = fixture.call(100_005, 5, &Words::default());
    let mut reader = results.reader();
    let mut list = Vec::new();
    while reader.boolean().expect("whether there is one") {
        let path = reader.opaque(1024).expect("a path").to_vec();
        let mut clients = Vec::new();
        while reader.boolean().expect("whether there is one") {
            clients.push(String::from_utf8_lossy(reader.opaque(1024).expect("a name")).into());
        }
        list.push((String::from_utf8(path).expect("text"), clients));
    }
    assert_eq!(reader.end(), Ok(()));
    let path = |name| fixture.path().join(name).display().to_string();
    let expected: [(String, Vec<String>); 2] = [
        (path("a"), vec!["10.0.0.0/8".into(), "fd00::1".into()]),
        (path("b"), vec![]),
    ];
    assert_eq!(list, expected);
}

/// The limit that a call enters depends on the export alone, not on the client's rights.
#[test]
fn a_call_is_for_the_export_of_its_handle_or_path_also_without_a_right_there() {
    let fixture = fixture("DIR/a *(rw,insecure)\nDIR/b 10.0.0.0/8(rw)\n");
    let exports = fixture.nfs.exports();
    let table = exports.table();
    for name in ["a", "b"] {
        let handle = fixture.mount_below(name).expect("exported");
        let path = fixture.path().join(name);
        let path = path.as_os_str().as_encoded_bytes();
        for (program, bytes) in [(NFS.number, &handle[..]), (MOUNT.number, path)] {
            let call = Call {
                program,
                procedure: MNT,
                ..Call::default()
            };
            let words = Words::default().opaque(bytes);
            let state = table.state(&call, Arguments::new(&words.0));
            let told = state.export.number.to_be_bytes();
            assert_eq!(told, number(&handle), "{name} of program {program}");
        }
    }
}

/// One rule for everybody, made by hand.
#[test]
fn rules_made_by_a_program_are_those_of_a_file() {
    let directory = tempfile::tempdir().expect("a directory");
    let rule = ClientRule {
        clients: Clients::Any,
        rights: Rights {
            access: Access::ReadWrite,
            squash: Squash::All,
            ..Rights::default()
        },
        place: String::new(),
    };
    let export = ExportOptions {
        directory: directory.path().to_owned(),
        rules: vec![rule],
        place: String::new(),
    };
    let mut options = Options::new("/nowhere");
    options.exports = vec![export];
    let nfs = Nfs::open(options).expect("served");
    assert!(nfs.exports().is_writable());
    let file = exports(directory.path(), "DIR *(ro)\n");
    nfs.exports().prepare(file).expect("good exports").apply();
    assert!(!nfs.exports().is_writable());
}
