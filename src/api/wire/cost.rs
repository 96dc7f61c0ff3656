//! Counts the bytes of a caller's text that are processed, for tests and the fuzz target `bounds`.
//!
//! Code that iterates over text of a caller calls [`spend`]. Outside of tests it does nothing.

#[cfg(any(test, feature = "fuzzing"))]
thread_local! {
    static SPENT: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// Counts `bytes` that are processed.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn spend(bytes: usize) {
    SPENT.with(|spent| spent.set(spent.get().saturating_add(bytes)));
}

/// Does nothing.
#[cfg(not(any(test, feature = "fuzzing")))]
#[inline(always)]
pub(crate) fn spend(_bytes: usize) {}

/// The bytes that `does` processes on this thread.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn of<T>(does: impl FnOnce() -> T) -> (usize, T) {
    let before = SPENT.replace(0);
    let done = does();
    let spent = SPENT.get();
    SPENT.set(before.saturating_add(spent));
    (spent, done)
}
