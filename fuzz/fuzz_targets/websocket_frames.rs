//! libFuzzer's way into the target `websocket_frames`; what it checks is in the library.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| flatpath_fuzz::run("websocket_frames", data));
