//! The body is beside the code that it tests. A plain test also runs it over `seeds/bounds`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    delayd::api::fuzzed::bounds(bytes, |does| allocation_counter::measure(does).bytes_max);
});
