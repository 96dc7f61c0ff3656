//! What the values of requests look like in JSON, where their types read themselves by hand.

use delayd_wire::schema::{MAX_ID, name, string, whole};
use delayd_wire::schemas;
use utoipa::ToSchema;
use utoipa::openapi::schema::{AnyOfBuilder, ObjectBuilder, Schema, Type};
use utoipa::openapi::{Ref, RefOr};

use crate::api::wire::fields::{Id, Name};
use crate::rate::Rate;
use crate::span::Span;
use crate::task::{Destination, Receipt, Topic};

/// The derive cannot look into generics; by these names it need not.
pub(crate) type TopicName = Name<Topic>;
pub(crate) type ServiceName = Name<Destination>;
pub(crate) type ReceiptText = Name<Receipt>;

/// A task's content in a request.
pub(crate) enum Content {}

schemas! {
    TopicName, "Topic" => delayd_wire::TopicName::schema();
    ServiceName, "Service" => delayd_wire::ServiceName::schema();
    ReceiptText, "Receipt" => name("The receipt of a lease, as it was handed out; opaque.", "^[A-Za-z0-9_-]{1,64}$");
    Id, "TaskIdGiven" => AnyOfBuilder::new()
        .item(whole(0).maximum(Some(MAX_ID)))
        .item(ObjectBuilder::new().schema_type(Type::String).pattern(Some("^[0-9]+$")))
        .description(Some("A task's id, as a number or a string of digits. 0 is absent."));
    Span, "Span" => AnyOfBuilder::new()
        .item(ObjectBuilder::new().schema_type(Type::Number).minimum(Some(0)))
        .item(ObjectBuilder::new().schema_type(Type::String).min_length(Some(1)))
        .description(Some("A duration: a number of seconds, at most 1000000 (a lease: 3600; a backoff: 86400), or a string of a whole number and a unit, such as \"1500ms\", \"10s\", \"5m\", \"2h\" or \"7d\"."));
    Rate, "Rate" => string("So many in a time, such as \"100/s\", \"6000/m\" or \"500/h\".").min_length(Some(1));
    Content, "Content" => AnyOfBuilder::new()
        .item(ObjectBuilder::new())
        .item(ObjectBuilder::new().schema_type(Type::String))
        .description(Some("A JSON object, or a string that holds one (for mode \"pull\": any text). Kept byte for byte."));
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
