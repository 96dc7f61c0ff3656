//! The body stands beside what it tries, and a plain test runs it over `seeds/bounds` as well.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    delayd::api::fuzzed::bounds(bytes, |does| allocation_counter::measure(does).bytes_max);
});
