//! libFuzzer's way into the target `proxy_header`; what it checks is in the library.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| flatpath_fuzz::run("proxy_header", data));
