//! What every successful `/delay/*` answer is wrapped in.

use delayd_wire::ErrorCode;
use serde::Serialize;
use utoipa::ToSchema;

/// The sentence of success.
pub(crate) const OK: &str = "操作成功";

/// What every answer begins with.
pub(crate) const BEGIN: &str = r#"{"dm_error":0,"error_msg":"操作成功""#;

/// A successful answer: `dm_error` 0, the sentence of success, and the fields of `T`.
#[derive(Debug, Serialize)]
pub(crate) struct Success<T> {
    dm_error: ErrorCode,
    error_msg: &'static str,
    #[serde(flatten)]
    pub(crate) fields: T,
}

/// The fields of an answer that has none of its own.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Ok)]
pub(crate) struct Nothing {}

impl<T> Success<T> {
    /// Wraps the fields.
    pub(crate) fn of(fields: T) -> Self {
        Self { dm_error: ErrorCode::Ok, error_msg: OK, fields }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn success_is_zero_and_the_fields_stand_beside_it() {
        #[derive(Serialize)]
        struct Fields {
            task_id: u64,
        }
        let text = serde_json::to_string(&Success::of(Fields { task_id: 7 })).unwrap();
        assert_eq!(text, r#"{"dm_error":0,"error_msg":"操作成功","task_id":7}"#);
        assert_eq!(
            serde_json::to_string(&Success::of(Nothing {})).unwrap(),
            r#"{"dm_error":0,"error_msg":"操作成功"}"#
        );
    }
}
