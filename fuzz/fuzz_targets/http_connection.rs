//! libFuzzer's way into the target `http_connection`; what it checks is in the library.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| flatpath_fuzz::run("http_connection", data));
