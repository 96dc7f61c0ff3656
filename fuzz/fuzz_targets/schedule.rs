//! The body is beside the code that it tests. A plain test also runs it over `seeds/schedule`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| delayd::model::schedule::fuzzed::schedule(bytes));
