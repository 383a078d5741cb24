//! libFuzzer's way into the target `tls_records`; what it checks is in the library.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| flatpath_fuzz::run("tls_records", data));
