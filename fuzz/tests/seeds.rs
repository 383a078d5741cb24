//! Every target over its seeds and a fixed number of mutations of them, on any toolchain.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use flatpath_fuzz::{TARGETS, run_mutation, run_seeds, target};

fn fuzz(name: &str) {
    let target = target(name).expect("it is in the list");
    let seeds = run_seeds(target);
    for number in 0..target.mutations {
        run_mutation(target, &seeds, number);
    }
}

macro_rules! targets {
    ($($name:ident),* $(,)?) => {
        $(
            mod $name {
                #[test]
                fn every_promise_is_kept() {
                    super::fuzz(stringify!($name));
                }
            }
        )*

        #[test]
        fn every_target_is_tested() {
            let tested = BTreeSet::from([$(stringify!($name)),*]);
            assert_eq!(tested, TARGETS.iter().map(|target| target.name).collect());
        }
    };
}

targets!(
    http_requests,
    http_connection,
    http2_frames,
    hpack_blocks,
    rpc_records,
    nfs_arguments,
    nfs_exports,
    rule_files,
    password_files,
    ingest_handshake,
    relay_handshake,
    ranges,
    proxy_header,
    tls_records,
    multipart_forms,
    uploads,
    websocket_frames,
);

#[test]
fn every_target_has_its_libfuzzer_program_and_its_seeds() {
    let home = Path::new(env!("CARGO_MANIFEST_DIR"));
    let manifest = fs::read_to_string(home.join("Cargo.toml")).expect("it is there");
    let names = |folder: &str| -> BTreeSet<String> {
        let entries = fs::read_dir(home.join(folder)).expect("it is there");
        let stem = |entry: fs::DirEntry| entry.path().file_stem().map(ToOwned::to_owned);
        let stems = entries.filter_map(|entry| stem(entry.expect("it is read")));
        stems
            .map(|stem| stem.to_string_lossy().into_owned())
            .collect()
    };
    let expected: BTreeSet<String> = TARGETS.iter().map(|target| target.name.into()).collect();
    assert_eq!(names("fuzz_targets"), expected);
    assert_eq!(names("seeds"), expected);
    for name in expected {
        assert!(manifest.contains(&format!("name = \"{name}\"")), "{name}");
    }
}
