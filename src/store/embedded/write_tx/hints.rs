//! What a transaction tells the workers and the consumers.

use std::collections::HashMap;

use crate::model::clock::UnixMillis;
use crate::model::task::Lane;
use crate::store::Hint;

/// The earliest due moments, by lane, and by whether they are for consumers.
pub(super) type Earliest = HashMap<(Lane, bool), UnixMillis>;

/// The hints of a transaction.
#[derive(Debug, Default)]
pub(crate) struct Hints {
    /// Those to be sent after the commit.
    pub(crate) at_commit: Vec<Hint>,
    /// Those to be sent once the commit is durable.
    pub(crate) once_durable: Vec<Hint>,
    /// Those to be sent once an earlier commit is durable, with its number.
    pub(crate) awaited: Option<(u64, Vec<Hint>)>,
}
