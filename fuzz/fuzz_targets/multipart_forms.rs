//! libFuzzer's way into the target `multipart_forms`; what it checks is in the library.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| flatpath_fuzz::run("multipart_forms", data));
