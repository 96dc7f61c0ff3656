//! The body is beside the code that it tests. A plain test also runs it over `seeds/time`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| delayd::model::written_time::fuzzed::time(bytes));
