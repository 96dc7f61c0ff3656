//! The SQL statements, in one file per table: the table that a statement changes, or the first one
//! that it reads. No other file has statements, except those about the database file as a whole
//! (pragmas, transactions). `check` has those of a check.
//!
//! A statement with one column is a text, and [`only`] reads the column. A statement with several
//! columns is declared with them by `rows!`:
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
//! So a column's name, its SQL and its index are declared once, and no name is looked up while rows
//! are read. Columns that several statements share are declared by `columns!`, and stand last in
//! each.
//!
//! Texts are statics, not constants, so that each has one address: `WriteTx::with` finds statements
//! by it.

use rusqlite::Row;
use rusqlite::types::FromSql;

/// The SQL of a column: its name, unless other SQL is given.
macro_rules! column {
    ($name:ident) => {
        stringify!($name)
    };
    ($name:ident = $sql:expr) => {
        $sql
    };
}

/// Declares statements with several columns.
macro_rules! rows {
    ($($(#[$doc:meta])* $name:ident: $before:literal
        [$first:ident $(= $first_sql:expr)? $(, $column:ident $(= $sql:expr)?)* $(,)?]
        $after:literal;)+) => {$(
        $(#[$doc])*
        #[allow(
            non_upper_case_globals,
            non_camel_case_types,
            dead_code,
            reason = "columns are called as in SQL"
        )]
        pub(crate) mod $name {
            pub(crate) static SQL: &str = concat!(
                $before, column!($first $(= $first_sql)?),
                $(", ", column!($column $(= $sql)?),)* $after
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

/// Declares columns that several statements share: a module of their indexes, and a macro with
/// their SQL.
macro_rules! columns {
    ($(#[$doc:meta])* $name:ident, $sql_of:ident: [
        $first:ident = $first_sql:literal $(, $column:ident = $sql:literal)* $(,)?
    ]) => {
        $(#[$doc])*
        #[allow(
            non_upper_case_globals,
            non_camel_case_types,
            dead_code,
            reason = "columns are called as in SQL"
        )]
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
pub(super) mod audit;
pub(super) mod check;
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
pub(super) mod recurring;
pub(super) mod schedule;
pub(super) mod task;
pub(super) mod task_key;
pub(super) mod topic;

/// The column of a statement that has one.
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
