//! libFuzzer's way into the target `nfs_exports`; what it checks is in the library.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| flatpath_fuzz::run("nfs_exports", data));
