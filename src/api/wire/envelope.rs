//! The envelope of successful answers.

/// A successful answer, written as [`delayd_wire::SuccessAnswer`].
#[derive(Debug)]
pub(crate) struct Success<T> {
    pub(crate) fields: T,
}

impl<T> Success<T> {
    /// Wraps the fields.
    pub(crate) fn of(fields: T) -> Self {
        Self { fields }
    }
}
