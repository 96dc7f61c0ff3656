//! The SQL statements, in one file for each table: the table that a statement changes, or the first
//! one that it reads. No other file holds the text of a statement, except for those that concern
//! the database file as a whole (pragmas, transactions, triggers of a check).
//!
//! A statement that answers one column is a text; [`only`] reads it. A statement that answers
//! several is declared with its columns by `rows!`:
//!
//! ```text
//! rows! {
//!     /// The destinations of a lane that are due.
//!     due: "SELECT " [id, name = "d.name"] " FROM destination d WHERE …";
//! }
//!
//! let mut select = db.prepare_cached(destination::due::SQL)?;
//! let name: String = row.get(destination::due::name)?;
//! ```
//!
//! So a column's name, its SQL and its place are declared once, and the compiler knows the place:
//! nothing is looked up by name while rows are read. Columns that several statements share are
//! declared by `columns!`, and stand last in each.
//!
//! Texts are statics, not constants, because each has one address then: `Ledger::with` knows
//! statements by it.

use rusqlite::Row;
use rusqlite::types::FromSql;

/// The SQL of a column: its name, unless something else is given.
macro_rules! column {
    ($name:ident) => {
        stringify!($name)
    };
    ($name:ident = $sql:expr) => {
        $sql
    };
}

/// Declares statements that answer several columns.
macro_rules! rows {
    ($($(#[$doc:meta])* $name:ident: $before:literal
        [$first:ident $(= $first_sql:expr)? $(, $column:ident $(= $sql:expr)?)* $(,)?]
        $after:literal;)+) => {$(
        $(#[$doc])*
        #[allow(non_upper_case_globals, non_camel_case_types, dead_code, reason = "columns are called as in SQL")]
        pub(crate) mod $name {
            pub(crate) static SQL: &str = concat!(
                $before, column!($first $(= $first_sql)?), $(", ", column!($column $(= $sql)?),)* $after
            );

            enum Place {
                $first,
                $($column,)*
            }

            pub(crate) const $first: usize = Place::$first as usize;
            $(pub(crate) const $column: usize = Place::$column as usize;)*
        }
    )+};
}

/// Declares columns that several statements have: a module of their places, and a macro that is
/// their SQL.
macro_rules! columns {
    ($(#[$doc:meta])* $name:ident, $sql_of:ident: [$first:ident = $first_sql:literal $(, $column:ident = $sql:literal)* $(,)?]) => {
        $(#[$doc])*
        #[allow(non_upper_case_globals, non_camel_case_types, dead_code, reason = "columns are called as in SQL")]
        pub(crate) mod $name {
            enum Place {
                $first,
                $($column,)*
                Count,
            }

            pub(crate) const COUNT: usize = Place::Count as usize;
            pub(crate) const $first: usize = Place::$first as usize;
            $(pub(crate) const $column: usize = Place::$column as usize;)*
        }

        macro_rules! $sql_of {
            () => {
                concat!($first_sql $(, ", ", $sql)*)
            };
        }
    };
}

#[macro_use]
pub(super) mod progress;
pub(super) mod destination;
pub(super) mod expiry;
pub(super) mod history;
pub(super) mod hold;
pub(super) mod idempotency;
pub(super) mod lane;
pub(super) mod meta;
pub(super) mod misfire;
pub(super) mod note;
pub(super) mod owed_call;
pub(super) mod schedule;
pub(super) mod task;
pub(super) mod task_key;
pub(super) mod topic;

/// The column of a statement that answers one.
pub(super) fn only<T: FromSql>(row: &Row<'_>) -> rusqlite::Result<T> {
    row.get(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_column_has_the_place_that_it_is_declared_at() {
        rows! {
            some: "SELECT " [id, due = "t.due", pending = pending_columns!()] " FROM task t";
        }
        assert!(
            some::SQL.starts_with("SELECT id, t.due, p.lane, p.destination, "),
            "{}",
            some::SQL
        );
        assert_eq!((some::id, some::due, some::pending), (0, 1, 2));
        assert_eq!((progress::pending::destination, progress::pending::COUNT), (1, 13));
    }
}
