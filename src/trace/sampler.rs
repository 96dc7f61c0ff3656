//! Which traces are exported, if no caller has decided.

/// Exports a share of the traces. The id of a trace decides, so every instance with the same ratio
/// decides in the same way, at the add and at each attempt.
#[derive(Clone, Copy, Debug)]
pub(super) struct TraceSampler {
    /// Traces whose id, in its last 63 bits, is below this are exported.
    bound: u64,
}

impl TraceSampler {
    /// `ratio` is from 0 to 1.
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the ratio is from 0 to 1"
    )]
    pub(super) fn new(ratio: f64) -> Self {
        Self { bound: (ratio * (1_u64 << 63) as f64) as u64 }
    }

    /// Whether the trace is exported.
    pub(super) fn samples(self, trace: u128) -> bool {
        let id = u64::try_from(trace & u128::from(u64::MAX >> 1)).expect("63 bits fit into 64");
        id < self.bound
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_of_the_traces_is_sampled() {
        let check = |ratio: f64, trace: u128, sampled: bool| {
            assert_eq!(TraceSampler::new(ratio).samples(trace), sampled, "{ratio} {trace:x}");
        };
        check(1.0, u128::MAX, true);
        check(1.0, 1, true);
        check(0.0, u128::MAX, false);
        check(0.0, 0, false);
        check(0.5, 1 << 100, true);
        check(0.5, (1 << 62) - 1, true);
        check(0.5, 1 << 62, false);
        check(0.5, u128::MAX, false);
    }
}
