//! libFuzzer's way into the target `http2_frames`; what it checks is in the library.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| flatpath_fuzz::run("http2_frames", data));
