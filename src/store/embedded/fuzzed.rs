//! The fuzz target `row`: any values in a row are either a task's or rejected as unreadable.

use std::cell::OnceCell;

use rusqlite::types::Value;
use rusqlite::{Connection, params_from_iter};

use super::rows::{is_unreadable, read_ended, read_options, read_pending, read_topic};
use super::sql::progress::pending;
use crate::model::task::TaskId;

/// The number of columns of `progress`.
const COLUMNS: usize = pending::COUNT;

/// Reads the bytes, one line per column, as every kind of row. The first byte of a line is the type
/// of the value.
pub fn row(bytes: &[u8]) {
    thread_local! {
        static DB: OnceCell<Connection> = const { OnceCell::new() };
    }
    let mut values: Vec<Value> =
        bytes.split(|byte| *byte == b'\n').take(COLUMNS).map(value).collect();
    values.resize(COLUMNS, Value::Null);
    DB.with(|db| {
        let db = db.get_or_init(|| Connection::open_in_memory().expect("memory"));
        // A column may hold text that is not valid UTF-8: SQLite does not check.
        let columns = [
            "?1",
            "?2",
            "?3",
            "?4",
            "?5",
            "?6",
            "?7",
            "CAST(?8 AS TEXT)",
            "?9",
            "CAST(?10 AS TEXT)",
            "?11",
            "?12",
            "?13",
        ];
        let query = format!("SELECT {}", columns.join(", "));
        let mut statement = db.prepare_cached(&query).expect("a query");
        let read = statement.query_row(params_from_iter(values), |row| {
            let id = TaskId(1);
            let failures = [
                read_pending(row, 0, id).err(),
                read_ended(row, id).err(),
                read_topic(row, (0, 1)).err(),
                read_options(row, 9, id).err(),
            ];
            Ok(failures.into_iter().flatten().all(|failure| is_unreadable(&failure)))
        });
        assert_eq!(read, Ok(true));
    });
}

fn value(line: &[u8]) -> Value {
    let (kind, rest) = line.split_first().map_or((b'-', line), |(kind, rest)| (*kind, rest));
    let text = || String::from_utf8_lossy(rest).into_owned();
    match kind {
        b'i' => Value::Integer(text().parse().unwrap_or(i64::MIN)),
        b'r' => Value::Real(text().parse().unwrap_or(f64::INFINITY)),
        b't' => Value::Text(text()),
        b'-' => Value::Null,
        _ => Value::Blob(rest.to_vec()),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn any_values_are_a_task_or_unreadable() {
        crate::testing::seeds::run("row", super::row);
    }
}
