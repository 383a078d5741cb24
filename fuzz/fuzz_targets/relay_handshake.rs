//! libFuzzer's way into the target `relay_handshake`; what it checks is in the library.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| flatpath_fuzz::run("relay_handshake", data));
