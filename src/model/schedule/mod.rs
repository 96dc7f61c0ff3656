//! When a recurring schedule fires: cron expressions and fixed distances, over clock changes.
//!
//! A *nominal moment* is a moment that the rule names. Over a change of the clock:
//!
//! - A fixed time that is skipped fires once, at the end of the gap. All skipped times of one gap
//!   fire together, and together with a time that is the end of the gap.
//! - A fixed time that is repeated fires in the first pass.
//! - With `*` in hour or minute, a schedule goes by elapsed time: it fires at each moment whose
//!   local time matches, so in both passes, and not in the gap.
//! - `every` counts milliseconds from its start, so it has no drift and no clock changes.
//!
//! The nominal moments of a schedule grow strictly. A schedule stores its rule as text and a
//! [`LocalCursor`], and reads the rule again for each plan.
//!
//! Absent on purpose: `W`, `#`, `H`, years, and `@reboot`. An expression with them is refused.

mod cron;
mod cursor;
mod definition;
mod field;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzed;
mod recurrence;
mod set;
#[cfg(test)]
mod table_tests;
#[cfg(test)]
mod tests;
mod walk;
#[cfg(test)]
mod walk_tests;

pub use cron::InvalidCron;
pub use cursor::{InvalidCursor, LocalCursor};
pub use definition::{Definition, MisfireRule, Overlap};
pub use field::{CronField, InvalidField};
pub use recurrence::{Backlog, InvalidRule, Nominal, Recurrence, Rule};
