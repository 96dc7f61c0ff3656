//! What the values of requests and answers look like in JSON, where their types read and write themselves by hand.

use std::borrow::Cow;

use serde::Serialize;
use utoipa::openapi::schema::{AnyOfBuilder, ObjectBuilder, Schema, Type};
use utoipa::openapi::{Ref, RefOr};
use utoipa::{PartialSchema, ToSchema};

use crate::api::wire::envelope::Success;
use crate::api::wire::fields::{Id, Name, Rfc3339};
use crate::clock::UnixMillis;
use crate::rate::Rate;
use crate::span::Span;
use crate::task::{Destination, Receipt, TaskId, Topic};

/// The derive cannot look into generics; by these names it need not.
pub(crate) type TopicName = Name<Topic>;
pub(crate) type ServiceName = Name<Destination>;
pub(crate) type ReceiptText = Name<Receipt>;

/// A task's content in a request.
pub(crate) enum Content {}
/// How a task leaves, once that is decided.
pub(crate) enum Way {}
/// Who holds a leased task.
pub(crate) enum Holder {}
/// What a stored task survives.
pub(crate) enum Durability {}

/// Gives types their schema, by name.
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

pub(crate) use schemas;

schemas! {
    TopicName, "Topic" => name("A topic's name.", "^[A-Za-z0-9._:-]{1,128}$");
    Topic, "Topic" => TopicName::schema();
    ServiceName, "Service" => name("A service's name, or a host with its port.", "^[A-Za-z0-9._-]{1,128}(:[1-9][0-9]{0,4})?$|^@pull$");
    Destination, "Service" => ServiceName::schema();
    ReceiptText, "Receipt" => name("The receipt of a lease, as it was handed out; opaque.", "^[A-Za-z0-9_-]{1,64}$");
    Id, "TaskIdGiven" => AnyOfBuilder::new()
        .item(whole(0).maximum(Some(MAX_ID)))
        .item(ObjectBuilder::new().schema_type(Type::String).pattern(Some("^[0-9]+$")))
        .description(Some("A task's id, as a number or a string of digits. 0 is absent."));
    TaskId, "TaskId" => whole(1).maximum(Some(MAX_ID)).description(Some("A task's id: a whole number below 2^53."));
    UnixMillis, "UnixMillis" => ObjectBuilder::new().schema_type(Type::Integer).description(Some("A moment, in Unix milliseconds."));
    Rfc3339, "Rfc3339" => string("A moment as people read it, such as \"2026-11-21T12:30:00.000Z\" (RFC 3339, UTC).");
    Span, "Span" => AnyOfBuilder::new()
        .item(ObjectBuilder::new().schema_type(Type::Number).minimum(Some(0)))
        .item(ObjectBuilder::new().schema_type(Type::String).min_length(Some(1)))
        .description(Some("A duration: a number of seconds, at most 1000000 (a lease: 3600; a backoff: 86400), or a string of a whole number and a unit, such as \"1500ms\", \"10s\", \"5m\", \"2h\" or \"7d\"."));
    Rate, "Rate" => string("So many in a time, such as \"100/s\", \"6000/m\" or \"500/h\".").min_length(Some(1));
    Content, "Content" => AnyOfBuilder::new()
        .item(ObjectBuilder::new())
        .item(ObjectBuilder::new().schema_type(Type::String))
        .description(Some("A JSON object, or a string that holds one (for mode \"pull\": any text). Kept byte for byte."));
    Way, "Way" => string("Called back, or pulled by consumers.").enum_values(Some(["push", "pull"]));
    Holder, "Holder" => string("A worker that calls, a consumer that pulled, a receiver that acknowledges later, or a mover.")
        .enum_values(Some(["worker", "consumer", "receiver", "mover"]));
    Durability, "Durability" => string("What the stored task survives.")
        .enum_values(Some(["fsynced", "aof-always", "aof-everysec", "volatile"]));
}

/// The largest id: 2^53 - 1.
const MAX_ID: u64 = (1 << 53) - 1;

pub(crate) fn string(description: &str) -> ObjectBuilder {
    ObjectBuilder::new().schema_type(Type::String).description(Some(description))
}

fn name(description: &str, pattern: &str) -> ObjectBuilder {
    string(description).pattern(Some(pattern))
}

fn whole(from: u64) -> ObjectBuilder {
    ObjectBuilder::new().schema_type(Type::Integer).minimum(Some(from))
}

/// The fields of a successful answer stand beside those of its envelope.
impl<T: PartialSchema + Serialize> PartialSchema for Success<T> {
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

impl<T: ToSchema + Serialize> ToSchema for Success<T> {
    fn name() -> Cow<'static, str> {
        format!("{}Answer", T::name()).into()
    }

    fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
        T::schemas(schemas);
    }
}

/// A type's place in the document, and the schemas to be put there.
pub(crate) struct Described {
    pub(crate) place: Ref,
    pub(crate) schemas: Vec<(String, RefOr<Schema>)>,
}

pub(crate) fn described<T: ToSchema>() -> Described {
    let mut schemas = vec![(T::name().into_owned(), T::schema())];
    T::schemas(&mut schemas);
    Described { place: reference::<T>(), schemas }
}

/// Where the document keeps the schema of `T`.
pub(crate) fn reference<T: ToSchema>() -> Ref {
    Ref::from_schema_name(T::name())
}
