//! Single values as SQLite stores them.

use std::str::FromStr;

use rusqlite::types::{FromSql, FromSqlError, FromSqlResult, ToSqlOutput, Type, ValueRef};
use rusqlite::{Row, ToSql};

use crate::model::clock::UnixMillis;
use crate::model::task::{State, TaskId};

impl ToSql for TaskId {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        // A number beyond any id finds nothing.
        Ok(i64::try_from(self.0).unwrap_or(i64::MAX).into())
    }
}

impl FromSql for TaskId {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        let number = value.as_i64()?;
        u64::try_from(number).map(Self).map_err(|_| FromSqlError::OutOfRange(number))
    }
}

impl ToSql for UnixMillis {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(self.0.into())
    }
}

impl FromSql for UnixMillis {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        value.as_i64().map(Self)
    }
}

/// A number of rows for `LIMIT` and `OFFSET`.
pub(super) fn rows(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// The number of a final state in `history`.
pub(super) fn state_number(state: State) -> i64 {
    match state {
        State::Scheduled => 0,
        State::Leased => 1,
        State::Delivered => 2,
        State::Dead => 3,
        State::Cancelled => 4,
        State::Expired => 5,
    }
}

/// Reads a column with a name.
pub(super) fn read_name<N>(row: &Row<'_>, column: usize) -> rusqlite::Result<N>
where
    N: FromStr<Err: std::error::Error + Send + Sync + 'static>,
{
    parse(row.get_ref(column)?.as_str()?, column)
}

fn parse<N>(text: &str, column: usize) -> rusqlite::Result<N>
where
    N: FromStr<Err: std::error::Error + Send + Sync + 'static>,
{
    text.parse().map_err(|error| {
        rusqlite::Error::FromSqlConversionFailure(column, Type::Text, Box::new(error))
    })
}
