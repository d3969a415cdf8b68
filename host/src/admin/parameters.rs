//! Parameters in path and query. Each one is known, given once, and of its type; an error names it.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::str::FromStr;

use axum::extract::rejection::BytesRejection;
use axum::extract::{FromRequestParts, Path, Query};
use bytes::Bytes;
use http::request::Parts;
use serde::de::DeserializeOwned;

use super::error::ApiError;
use crate::store::PageRequest;

/// Rows of a page without `limit`.
pub(super) const PAGE_ROWS_DEFAULT: u32 = 100;
/// The most rows of a page.
pub(super) const PAGE_ROWS_MAX: u32 = 1_000;

/// The parameters of a request that have not been taken yet.
pub(super) struct Parameters(BTreeMap<String, String>);

impl<S: Send + Sync> FromRequestParts<S> for Parameters {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, ApiError> {
        let pairs = Query::<Vec<(String, String)>>::try_from_uri(&parts.uri).map_err(|_| {
            ApiError::Invalid("the query of the address is malformed: write `name=value`, joined by `&`".to_owned())
        })?;
        let mut parameters = BTreeMap::new();
        for (name, value) in pairs.0 {
            if parameters.insert(name.clone(), value).is_some() {
                return Err(ApiError::Invalid(format!("parameter `{name}` is given twice")));
            }
        }
        Ok(Self(parameters))
    }
}

impl Parameters {
    /// Takes a parameter that parses itself.
    pub(super) fn take<T>(&mut self, name: &str) -> Result<Option<T>, ApiError>
    where
        T: FromStr,
        T::Err: Display,
    {
        self.take_with(name, |text| text.parse().map_err(|error: T::Err| error.to_string()))
    }

    /// Takes a parameter that is one of some words.
    pub(super) fn take_word<T: Copy>(
        &mut self,
        name: &str,
        all: &[T],
        word_of: fn(T) -> &'static str,
    ) -> Result<Option<T>, ApiError> {
        self.take_with(name, |text| {
            all.iter().copied().find(|value| word_of(*value) == text).ok_or_else(|| {
                let words: Vec<&str> = all.iter().map(|value| word_of(*value)).collect();
                format!("it must be one of {}", words.join(", "))
            })
        })
    }

    /// Takes `after` and `limit`.
    pub(super) fn take_page<Id>(&mut self) -> Result<PageRequest<Id>, ApiError>
    where
        Id: FromStr,
        Id::Err: Display,
    {
        let after = self.take("after")?;
        let limit = self.take_with("limit", |text| match text.parse() {
            Ok(limit @ 1..=PAGE_ROWS_MAX) => Ok(limit),
            Ok(_) | Err(_) => Err(format!("it must be a whole number from 1 to {PAGE_ROWS_MAX}")),
        })?;
        Ok(PageRequest { after, limit: limit.unwrap_or(PAGE_ROWS_DEFAULT) })
    }

    /// Refuses parameters that were not taken.
    pub(super) fn finish(self) -> Result<(), ApiError> {
        match self.0.into_keys().next() {
            None => Ok(()),
            Some(name) => Err(ApiError::Invalid(format!("unknown parameter `{name}`"))),
        }
    }

    fn take_with<T>(
        &mut self,
        name: &str,
        read: impl FnOnce(&str) -> Result<T, String>,
    ) -> Result<Option<T>, ApiError> {
        let Some(text) = self.0.remove(name) else { return Ok(None) };
        read(&text).map(Some).map_err(|reason| ApiError::Invalid(format!("parameter `{name}`: {reason}")))
    }
}

/// The id in a path.
pub(super) struct PathId<Id>(pub(super) Id);

impl<S, Id> FromRequestParts<S> for PathId<Id>
where
    S: Send + Sync,
    Id: FromStr,
    Id::Err: Display,
{
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let Path(text) = Path::<String>::from_request_parts(parts, state)
            .await
            .map_err(|_| ApiError::Invalid("the id in the path is malformed".to_owned()))?;
        text.parse().map(Self).map_err(|error: Id::Err| ApiError::Invalid(error.to_string()))
    }
}

/// The JSON in a request's body.
pub(super) fn read<T: DeserializeOwned>(body: Result<Bytes, BytesRejection>) -> Result<T, ApiError> {
    // Besides its size, only a sender that goes away makes the reading of so small a body fail.
    let body = body.map_err(|_| ApiError::TooLarge { bytes_max: super::REQUEST_BYTES_MAX })?;
    serde_json::from_slice(&body).map_err(|error| ApiError::Invalid(format!("the body is malformed: {error}")))
}
