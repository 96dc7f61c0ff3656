//! What the micro-benchmarks in `benches/` use: records, written and read.

use super::record::{Record, write_options};
use crate::model::task::Options;

/// A record as `lua/add.lua` writes it.
pub fn written(options: &Options, content: &str) -> String {
    format!("1 1795236367000 1795234567000 message.call {}\n{content}", write_options(options))
}

/// Reads a record. Returns the length of its content.
pub fn read(bytes: Vec<u8>) -> usize {
    Record::read(bytes).expect("a record that is right").content.len()
}

/// The options, as a record has them.
pub fn options(options: &Options) -> String {
    write_options(options).into_owned()
}
