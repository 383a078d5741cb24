//! libFuzzer's way into the target `hpack_blocks`; what it checks is in the library.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| flatpath_fuzz::run("hpack_blocks", data));
