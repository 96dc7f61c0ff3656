//! What the values of requests look like in JSON, where their types read themselves by hand.

use delayd_wire::schema::{RateText, SpanText};
use delayd_wire::schemas;
use utoipa::ToSchema;
use utoipa::openapi::schema::{AnyOfBuilder, ObjectBuilder, Schema, Type};
use utoipa::openapi::{Ref, RefOr};

use crate::rate::Rate;
use crate::span::Span;

/// A task's content in a request.
pub(crate) enum Content {}

schemas! {
    Span, "Span" => SpanText::schema();
    Rate, "Rate" => RateText::schema();
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
