//! The schemas of types that the derive cannot describe.

use std::borrow::Cow;

use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{ObjectBuilder, Schema, Type};
use utoipa::{PartialSchema, ToSchema};

use crate::{Answer, Rfc3339, ServiceName, TaskId, TopicName, UnixMillis};

/// The largest id: 2^53 - 1.
pub const MAX_ID: u64 = (1 << 53) - 1;

/// Gives types their schema, by name.
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
    TopicName, "Topic" => name("A topic's name.", "^[A-Za-z0-9._:-]{1,128}$");
    ServiceName, "Service" => name("A service's name, or a host with its port.", "^[A-Za-z0-9._-]{1,128}(:[1-9][0-9]{0,4})?$|^@pull$");
    TaskId, "TaskId" => whole(1).maximum(Some(MAX_ID)).description(Some("A task's id: a whole number below 2^53."));
    UnixMillis, "UnixMillis" => ObjectBuilder::new().schema_type(Type::Integer).description(Some("A moment, in Unix milliseconds."));
    Rfc3339, "Rfc3339" => string("A moment as people read it, such as \"2026-11-21T12:30:00.000Z\" (RFC 3339, UTC).");
}

/// A string.
pub fn string(description: &str) -> ObjectBuilder {
    ObjectBuilder::new().schema_type(Type::String).description(Some(description))
}

/// A string of certain characters.
pub fn name(description: &str, pattern: &str) -> ObjectBuilder {
    string(description).pattern(Some(pattern))
}

/// A whole number.
pub fn whole(from: u64) -> ObjectBuilder {
    ObjectBuilder::new().schema_type(Type::Integer).minimum(Some(from))
}

/// The fields of a successful answer stand beside those of its envelope.
impl<T: PartialSchema> PartialSchema for Answer<T> {
    fn schema() -> RefOr<Schema> {
        let RefOr::T(Schema::Object(mut fields)) = T::schema() else {
            unreachable!("answers are structs, which are objects")
        };
        let zero = whole(0).maximum(Some(0)).description(Some("0: success."));
        let sentence = string("The sentence of success.");
        let envelope = ObjectBuilder::new().property("dm_error", zero).property("error_msg", sentence).build();
        let own = std::mem::replace(&mut fields.properties, envelope.properties);
        fields.properties.extend(own);
        fields.required.splice(0..0, ["dm_error".to_owned(), "error_msg".to_owned()]);
        RefOr::T(Schema::Object(fields))
    }
}

impl<T: ToSchema> ToSchema for Answer<T> {
    fn name() -> Cow<'static, str> {
        format!("{}Answer", T::name()).into()
    }

    fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
        T::schemas(schemas);
    }
}
