//! The changes of a transaction to the counts of lanes.

use std::collections::HashMap;

use crate::model::task::State;
use crate::store::embedded::values::state_number;

/// The changes so far, per lane and state.
#[derive(Debug, Default)]
pub(crate) struct CountDeltas(pub(crate) HashMap<i64, [i64; State::ALL.len()]>);

impl CountDeltas {
    pub(crate) fn of(&mut self, lane: i64, state: State) -> &mut i64 {
        let at = usize::try_from(state_number(state)).expect("the numbers of states are small");
        &mut self.0.entry(lane).or_default()[at]
    }

    /// Adds to, or subtracts from, the lane's number of tasks in this state.
    pub(crate) fn count(&mut self, lane: i64, state: State, more: i64) {
        *self.of(lane, state) += more;
    }
}
