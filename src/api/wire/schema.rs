//! What the values of requests look like in JSON, where their types read themselves by hand.

use std::borrow::Cow;
use std::marker::PhantomData;

use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use utoipa::openapi::schema::Schema;
use utoipa::openapi::{Ref, RefOr};
use utoipa::{PartialSchema, ToSchema};

/// JSON of the caller that is read later, as what its schema says.
#[derive(Debug)]
pub(crate) struct Raw<'a, T>(pub(crate) &'a RawValue, pub(crate) PhantomData<T>);

impl<'de: 'a, 'a, T> Deserialize<'de> for Raw<'a, T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        <&RawValue>::deserialize(from).map(|raw| Self(raw, PhantomData))
    }
}

impl<T: PartialSchema> PartialSchema for Raw<'_, T> {
    fn schema() -> RefOr<Schema> {
        T::schema()
    }
}

impl<T: ToSchema> ToSchema for Raw<'_, T> {
    fn name() -> Cow<'static, str> {
        T::name()
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
