//! libFuzzer's way into the target `password_files`; what it checks is in the library.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| flatpath_fuzz::run("password_files", data));
