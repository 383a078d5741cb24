//! Random reads, writes, truncations and syncs of one file, against the same in memory.

use std::fs::File;
use std::os::unix::fs::FileExt;

use flatpath_testkit::{Driver, each_driver, noise};

use crate::nfs::mounted::Mount;

each_driver!(model_random_writes_match_a_file_in_memory);

const BYTES_MAX: usize = 300_000;
const STEPS: usize = 600;

fn model_random_writes_match_a_file_in_memory(driver: Driver) {
    let Some(mount) = Mount::new(driver, "", &["--no-root-squash"]) else {
        return;
    };
    let path = mount.path().join("file");
    let open = || {
        let mut options = File::options();
        options
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
    };
    let mut file = open().expect("it is made");
    let mut model: Vec<u8> = Vec::new();
    let seed = fastrand::u64(..);
    let mut random = fastrand::Rng::with_seed(seed);
    for step in 0..STEPS {
        let (offset, length) = (random.usize(..BYTES_MAX), random.usize(1..20_000));
        let at = offset as u64;
        match random.u8(..6) {
            0 | 1 => {
                let bytes: Vec<u8> = noise(random.u64(..), length);
                file.write_all_at(&bytes, at).expect("room");
                let end = offset + length;
                model.resize(model.len().max(end), 0);
                model[offset..end].copy_from_slice(&bytes);
            }
            2 => {
                let mut found = vec![0; length];
                let count = file.read_at(&mut found, at).expect("it can be read");
                let end = model.len().min(offset + length);
                let begin = end.min(offset);
                assert!(
                    found[..count] == model[begin..end],
                    "seed {seed}, step {step}"
                );
            }
            3 => {
                file.set_len(at).expect("it is ours");
                model.resize(offset, 0);
            }
            4 => file.sync_all().expect("it is synced"),
            _ => {
                file = open().expect("it is there");
                let length = file.metadata().expect("attributes").len();
                assert_eq!(length, model.len() as u64, "seed {seed}, step {step}");
            }
        }
    }
    file.sync_all().expect("it is synced");
    let found = std::fs::read(mount.site.at("file")).expect("there");
    assert!(found == model, "seed {seed}");
    drop(file);
    mount.end();
}
