//! The changes of a transaction to the counts of lanes.

use std::collections::HashMap;

use super::values::state_number;
use crate::task::State;

/// The changes so far, per lane and state.
#[derive(Debug, Default)]
pub(super) struct Tally(pub(super) HashMap<i64, [i64; State::ALL.len()]>);

impl Tally {
    pub(super) fn of(&mut self, lane: i64, state: State) -> &mut i64 {
        let at = usize::try_from(state_number(state)).expect("the numbers of states are small");
        &mut self.0.entry(lane).or_default()[at]
    }

    /// Adds to, or subtracts from, the lane's number of tasks in this state.
    pub(super) fn count(&mut self, lane: i64, state: State, more: i64) {
        *self.of(lane, state) += more;
    }
}
