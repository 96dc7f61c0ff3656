//! The schemas of types that utoipa's derive cannot describe.

use std::borrow::Cow;

use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{AnyOfBuilder, ObjectBuilder, Schema, Type};
use utoipa::{PartialSchema, ToSchema};

use crate::name::MAX_ID;
use crate::{Destination, Rate, Receipt, Rfc3339, Span, SuccessAnswer, TaskId, Topic, UnixMillis};

/// A task's id in a request.
pub enum TaskIdGiven {}
/// A part of the names of topics.
pub enum TopicMatch {}
/// The cursor of a page.
pub enum PageCursor {}
/// The cursor of a call over dead tasks.
pub enum DeadCursor {}
/// A duration.
pub enum SpanText {}
/// A task's content in a request.
pub enum Content {}

/// Implements the schema of types, with a name for each.
#[macro_export]
macro_rules! schemas {
    ($($type:ty, $name:literal => $schema:expr;)+) => {
        $(impl utoipa::PartialSchema for $type {
            fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::schema::Schema> {
                $schema.into()
            }
        }

        impl utoipa::ToSchema for $type {
            fn name() -> std::borrow::Cow<'static, str> {
                $name.into()
            }
        })+
    };
}

schemas! {
    Topic, "Topic" => name("A topic's name.", "^[A-Za-z0-9._:-]{1,128}$");
    Destination, "Service" => name(
        "A service's name, or a host with its port.",
        "^[A-Za-z0-9._-]{1,128}(:[1-9][0-9]{0,4})?$|^@pull$",
    );
    TaskId, "TaskId" => whole(1)
        .maximum(Some(MAX_ID))
        .description(Some("A task's id: a whole number below 2^53."));
    UnixMillis, "UnixMillis" => ObjectBuilder::new()
        .schema_type(Type::Integer)
        .description(Some("A time, in Unix milliseconds."));
    TaskIdGiven, "TaskIdGiven" => AnyOfBuilder::new()
        .item(whole(0).maximum(Some(MAX_ID)))
        .item(ObjectBuilder::new().schema_type(Type::String).pattern(Some("^[0-9]+$")))
        .description(Some("A task's id, as a number or a string of digits. 0 counts as absent."));
    Receipt, "Receipt" => name(
        "The receipt of a lease, as the pull or the callback gave it; opaque.",
        "^[A-Za-z0-9_-]{1,64}$",
    );
    TopicMatch, "TopicMatch" => name(
        "A part of a topic's name, or its beginning and a `*`.",
        "^[A-Za-z0-9._:-]{1,128}\\*?$",
    );
    PageCursor, "Cursor" => string("The `cursor` in the answer with the previous page; opaque.");
    DeadCursor, "DeadCursor" => string("The `cursor` in the answer to the previous call; opaque.");
    SpanText, "Span" => AnyOfBuilder::new()
        .item(ObjectBuilder::new().schema_type(Type::Number).minimum(Some(0)))
        .item(ObjectBuilder::new().schema_type(Type::String).min_length(Some(1)))
        .description(Some(
            "A duration: a number of seconds, or a string of a whole number and a unit, such as \
             \"1500ms\", \"10s\", \"5m\", \"2h\" or \"7d\". A number is never milliseconds, and at \
             most 1000000 (in a lease 3600, in a backoff 86400).",
        ));
    Span, "Span" => SpanText::schema();
    Content, "Content" => AnyOfBuilder::new()
        .item(ObjectBuilder::new())
        .item(ObjectBuilder::new().schema_type(Type::String))
        .description(Some(
            "A JSON object, or a string that holds one (with mode \"pull\": any text). It is kept \
             byte for byte.",
        ));
    Rate, "Rate" => string("Events per unit of time: \"100/s\", \"6000/m\" or \"500/h\".")
        .min_length(Some(1));
    Rfc3339, "Rfc3339" => string(
        "A time such as \"2026-11-21T12:30:00.000Z\" (RFC 3339); in UTC, unless the request names \
         another zone.",
    );
}

/// The schema of a string.
pub fn string(description: &str) -> ObjectBuilder {
    ObjectBuilder::new().schema_type(Type::String).description(Some(description))
}

/// The schema of a string that matches a pattern.
pub fn name(description: &str, pattern: &str) -> ObjectBuilder {
    string(description).pattern(Some(pattern))
}

/// The schema of a whole number.
pub fn whole(from: u64) -> ObjectBuilder {
    ObjectBuilder::new().schema_type(Type::Integer).minimum(Some(from))
}

/// The fields of a successful answer are on the same level as those of the envelope.
impl<T: PartialSchema> PartialSchema for SuccessAnswer<T> {
    fn schema() -> RefOr<Schema> {
        let RefOr::T(Schema::Object(mut fields)) = T::schema() else {
            unreachable!("answers are structs, which are objects")
        };
        let zero = whole(0).maximum(Some(0)).description(Some("0: success."));
        let sentence = string("The text of success.");
        let envelope =
            ObjectBuilder::new().property("dm_error", zero).property("error_msg", sentence).build();
        let own = std::mem::replace(&mut fields.properties, envelope.properties);
        fields.properties.extend(own);
        fields.required.splice(0..0, ["dm_error".to_owned(), "error_msg".to_owned()]);
        RefOr::T(Schema::Object(fields))
    }
}

impl<T: ToSchema> ToSchema for SuccessAnswer<T> {
    fn name() -> Cow<'static, str> {
        format!("{}Answer", T::name()).into()
    }

    fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
        T::schemas(schemas);
    }
}
