//! The envelope of successful answers.

/// The text with which every successful answer begins.
pub(crate) const BEGIN: &str = r#"{"dm_error":0,"error_msg":"操作成功""#;

/// A successful answer, written as [`delayd_wire::Answer`] is.
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
