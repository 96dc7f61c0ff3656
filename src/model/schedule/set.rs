//! A set of small numbers, the allowed values of a field of a cron expression.

/// A set of numbers from 0 to 63.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Set(u64);

impl Set {
    pub(super) const EMPTY: Self = Self(0);

    pub(super) fn insert(&mut self, number: u32) {
        self.0 |= 1 << number;
    }

    pub(super) fn contains(self, number: u32) -> bool {
        number < u64::BITS && self.0 & (1 << number) != 0
    }

    pub(super) fn len(self) -> u32 {
        self.0.count_ones()
    }

    /// The smallest element that is at least `number`.
    pub(super) fn at_or_after(self, number: u32) -> Option<u32> {
        let rest = self.0.checked_shr(number)?;
        (rest != 0).then(|| number + rest.trailing_zeros())
    }

    /// The smallest element.
    pub(super) fn first(self) -> Option<u32> {
        self.at_or_after(0)
    }

    /// The largest element.
    pub(super) fn last(self) -> Option<u32> {
        self.0.checked_ilog2()
    }
}
