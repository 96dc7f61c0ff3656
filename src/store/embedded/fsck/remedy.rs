//! What repairs a flaw: one statement, which may be repeated.

use rusqlite::types::Value;
use rusqlite::{Connection, params_from_iter};

use crate::store::embedded::sql;

/// A statement, and the destination whose schedule it touches.
#[derive(Debug)]
pub(super) struct Remedy {
    statement: &'static str,
    values: Vec<Value>,
    destination: Option<i64>,
}

impl Remedy {
    pub(super) fn new(statement: &'static str, values: impl Into<Vec<Value>>) -> Self {
        Self { statement, values: values.into(), destination: None }
    }

    pub(super) fn take_off(destination: i64, due: i64, id: i64) -> Self {
        Self {
            destination: Some(destination),
            ..Self::new(sql::schedule::DELETE, [destination, due, id].map(Value::from))
        }
    }

    pub(super) fn put_on(destination: i64, due: i64, id: i64) -> Self {
        Self {
            destination: Some(destination),
            ..Self::new(sql::schedule::INSERT, [destination, due, id].map(Value::from))
        }
    }

    /// Looks up the earliest due moment of a destination again.
    pub(super) fn earliest(destination: i64) -> Self {
        Self::new(sql::destination::CORRECT_EARLIEST, [Value::from(destination)])
    }

    pub(super) fn forget_progress(id: i64) -> Self {
        Self::new(sql::progress::DELETE, [Value::from(id)])
    }

    pub(super) fn forget_end(id: i64) -> Self {
        Self::new(sql::history::DELETE, [Value::from(id)])
    }

    pub(super) fn forget_notes(id: i64) -> Self {
        Self::new(sql::note::DELETE_OF_TASK, [Value::from(id)])
    }

    pub(super) fn forget_expiry(lane: i64, moment: i64, id: i64) -> Self {
        Self::new(sql::expiry::DELETE, [lane, moment, id].map(Value::from))
    }

    pub(super) fn apply(&self, db: &Connection) -> rusqlite::Result<()> {
        db.prepare_cached(self.statement)?.execute(params_from_iter(&self.values))?;
        self.destination.map_or(Ok(()), |destination| Self::earliest(destination).apply(db))
    }
}
