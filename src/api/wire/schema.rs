//! The names and schemas of types in the OpenAPI document.

use utoipa::ToSchema;
use utoipa::openapi::schema::Schema;
use utoipa::openapi::{Ref, RefOr};

/// The reference to a type's schema, and all schemas that it needs.
pub(crate) struct Described {
    pub(crate) place: Ref,
    pub(crate) schemas: Vec<(String, RefOr<Schema>)>,
}

pub(crate) fn described<T: ToSchema>() -> Described {
    let mut schemas = vec![(T::name().into_owned(), T::schema())];
    T::schemas(&mut schemas);
    Described { place: reference::<T>(), schemas }
}

/// The reference to the schema of `T`.
pub(crate) fn reference<T: ToSchema>() -> Ref {
    Ref::from_schema_name(T::name())
}
