//! Where the OpenAPI document keeps the schemas of types.

use utoipa::ToSchema;
use utoipa::openapi::schema::Schema;
use utoipa::openapi::{Ref, RefOr};

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
