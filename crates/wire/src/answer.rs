//! The envelope of every answer of `/delay/*`.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::ErrorCode;

/// A successful answer: `dm_error` 0, `error_msg`, and the fields of `T` beside them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SuccessAnswer<T> {
    /// Always [`ErrorCode::Ok`].
    pub dm_error: ErrorCode,
    /// Always [`SuccessAnswer::OK`].
    pub error_msg: Cow<'static, str>,
    /// The fields of this call's answer.
    #[serde(flatten)]
    pub fields: T,
}

impl SuccessAnswer<Nothing> {
    /// The `error_msg` of every success.
    pub const OK: &'static str = "操作成功";
}

impl<T> SuccessAnswer<T> {
    /// Wraps the fields.
    pub const fn of(fields: T) -> Self {
        Self { dm_error: ErrorCode::Ok, error_msg: Cow::Borrowed(SuccessAnswer::OK), fields }
    }
}

/// Declares the result for one entry of a batch: a [`SuccessAnswer`], or why the entry was refused.
macro_rules! item_of_batch {
    ($(#[$($attribute:tt)*])* pub enum $name:ident { $done:ident($answer:ident) }) => {
        $(#[$($attribute)*])*
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        #[derive(ToSchema)]
        #[serde(untagged)]
        pub enum $name {
            $done($answer),
            Failed {
                #[serde(deserialize_with = "ErrorCode::of_failure")]
                #[schema(value_type = u16, minimum = 1000)]
                dm_error: ErrorCode,
                error_msg: String,
            },
        }
    };
}

/// The fields of an answer that has only the envelope.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = Ok)]
pub struct Nothing {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn success_is_zero_and_the_fields_stand_beside_it() {
        #[derive(Serialize)]
        struct Fields {
            task_id: u64,
        }
        let text = serde_json::to_string(&SuccessAnswer::of(Fields { task_id: 7 })).unwrap();
        assert_eq!(text, r#"{"dm_error":0,"error_msg":"操作成功","task_id":7}"#);
        assert_eq!(
            serde_json::to_string(&SuccessAnswer::of(Nothing {})).unwrap(),
            r#"{"dm_error":0,"error_msg":"操作成功"}"#
        );
    }
}
