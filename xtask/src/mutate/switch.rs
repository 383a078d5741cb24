//! Which mutant is on. This file is put into the copy of a crate by `cargo xtask mutate --woven`.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

const NOT_READ: u32 = u32::MAX;
/// None is on, and those that are reached are written to a file.
const RECORDED: u32 = u32::MAX - 1;
const NONE: u32 = u32::MAX - 2;

static ACTIVE: AtomicU32 = AtomicU32::new(NOT_READ);
static REACHED: [AtomicBool; COUNT] = [const { AtomicBool::new(false) }; COUNT];
static RECORD: OnceLock<File> = OnceLock::new();

#[inline]
pub(crate) fn on(id: u32) -> bool {
    let active = ACTIVE.load(Relaxed);
    active == id || (active >= RECORDED && look(id))
}

#[cold]
fn look(id: u32) -> bool {
    if ACTIVE.load(Relaxed) == NOT_READ {
        read();
        return on(id);
    }
    if !REACHED[id as usize].swap(true, Relaxed) {
        let line = format!("{id}\n");
        let file = RECORD.get().map(|mut file| file.write_all(line.as_bytes()));
        file.expect("opened before").expect("can be written");
    }
    false
}

fn read() {
    let active = std::env::var("WOVEN_ON").ok().and_then(|id| id.parse().ok());
    let mut active = active.unwrap_or(NONE);
    if let Ok(path) = std::env::var("WOVEN_RECORD") {
        RECORD.get_or_init(|| {
            let file = OpenOptions::new().append(true).open(path);
            file.expect("the record is there")
        });
        active = RECORDED;
    }
    ACTIVE.store(active, Relaxed);
}
