//! The body stands beside what it tries, and a plain test runs it over `seeds/record` as well.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| delayd::store::redis::fuzzed::record(bytes));
