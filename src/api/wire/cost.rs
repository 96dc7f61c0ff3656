//! How much of a caller's text is looked at, in bytes, for tests and the fuzz target `bounds`.
//!
//! Whatever goes over text whose length the caller chose says so with [`spend`]. In a program that
//! serves this does nothing.

#[cfg(any(test, feature = "fuzzing"))]
thread_local! {
    static SPENT: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// So many bytes are looked at.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn spend(bytes: usize) {
    SPENT.with(|spent| spent.set(spent.get().saturating_add(bytes)));
}

/// So many bytes are looked at.
#[cfg(not(any(test, feature = "fuzzing")))]
#[inline(always)]
pub(crate) fn spend(_bytes: usize) {}

/// What this thread spends while it does something.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn of<T>(does: impl FnOnce() -> T) -> (usize, T) {
    let before = SPENT.replace(0);
    let done = does();
    let spent = SPENT.get();
    SPENT.set(before.saturating_add(spent));
    (spent, done)
}
