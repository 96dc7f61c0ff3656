//! The fuzz target `record`: any bytes in Redis are either a task's record or rejected as damaged.

use super::record::{Record, StoredEntry, write_options};
use crate::store::Error;

/// Reads the bytes as a record, and as an entry.
pub fn record(bytes: &[u8]) {
    match Record::read(bytes.to_vec()) {
        Err(error) => assert!(matches!(error, Error::Corrupt(_)), "{error}"),
        Ok(read) => {
            let Record { due, created, destination, options, content } = &read;
            let head =
                format!("1 {} {} {destination} {}", due.0, created.0, write_options(options));
            let again = Record::read(format!("{head}\n{content}").into_bytes())
                .expect("what was read can be written");
            assert_eq!(
                (again.due, again.created, &again.destination),
                (*due, *created, destination)
            );
            assert_eq!(again.content, *content);
        }
    }
    if let Ok(text) = std::str::from_utf8(bytes) {
        match StoredEntry::read(text) {
            Err(error) => assert!(matches!(error, Error::Corrupt(_)), "{error}"),
            Ok(entry) => assert!(text.ends_with(&entry.outcome)),
        }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn any_bytes_are_a_record_or_damaged() {
        crate::testing::seeds::run("record", super::record);
    }
}
