//! NULL of every program, and MOUNT.

use crate::status::Status;
use crate::testing::{Fixture, Words};

fn mount(fixture: &Fixture, path: &[u8]) -> u32 {
    fixture
        .call(100_005, 1, &Words::default().opaque(path))
        .status()
}

#[test]
fn null_answers_nothing_for_every_program() {
    let fixture = Fixture::new();
    for program in [100_000, 100_003, 100_005] {
        assert!(fixture.call(program, 0, &Words::default()).0.is_empty());
    }
}

#[test]
fn the_export_is_found_under_its_names_and_nothing_else_is() {
    let fixture = Fixture::new();
    std::fs::create_dir_all(fixture.path().join("a/b")).expect("directories");
    std::fs::write(fixture.path().join("file"), b"").expect("a file");
    std::os::unix::fs::symlink("/", fixture.path().join("out")).expect("a link");
    let own = fixture.state().directory.clone();
    assert_eq!(mount(&fixture, b"/"), 0);
    assert_eq!(mount(&fixture, b"/a/b/"), 0);
    assert_eq!(mount(&fixture, own.as_os_str().as_encoded_bytes()), 0);
    assert_eq!(
        mount(&fixture, own.join("a").as_os_str().as_encoded_bytes()),
        0
    );
    assert_eq!(mount(&fixture, b"/file"), Status::NotDirectory as u32);
    assert_eq!(mount(&fixture, b"/nothing"), Status::NoEntry as u32);
    assert_eq!(mount(&fixture, b"/a/../.."), Status::Access as u32);
    assert_eq!(mount(&fixture, b"/out"), Status::NotDirectory as u32);
    assert_ne!(mount(&fixture, b"/out/etc"), 0);
    assert_ne!(mount(&fixture, b"/etc"), 0);
    let list = fixture.call(100_005, 5, &Words::default());
    let mut reader = list.reader();
    assert_eq!(reader.boolean(), Ok(true));
    assert_eq!(reader.opaque(1024), Ok(own.as_os_str().as_encoded_bytes()));
    assert_eq!((reader.boolean(), reader.boolean()), (Ok(false), Ok(false)));
    assert_eq!(reader.end(), Ok(()));
    assert!(
        fixture
            .call(100_005, 3, &Words::default().opaque(b"/"))
            .0
            .is_empty()
    );
    assert_eq!(fixture.call(100_005, 2, &Words::default()).status(), 0);
}

#[test]
fn a_directory_below_is_mounted_as_what_lookup_finds() {
    let fixture = Fixture::new();
    std::fs::create_dir_all(fixture.path().join("a/b")).expect("directories");
    let results = fixture.call(100_005, 1, &Words::default().opaque(b"/a/b"));
    let mut reader = results.reader();
    assert_eq!(reader.u32(), Ok(0));
    let handle = reader.opaque(64).expect("a handle").to_vec();
    assert_eq!(Ok(handle), fixture.lookup(&["a", "b"]));
}
