//! Destinations: listing them, and setting and removing them while hosts run.

use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use axum::extract::rejection::BytesRejection;
use serde_json::{Map, Value};

use super::error::ApiError;
use super::parameters::{Parameters, PathId, read};
use super::{AdminParts, Stage, wire};
use crate::model::names::DestinationName;
use crate::publish::Publisher;
use crate::store::{
    DestinationChange, DestinationChanged, DestinationRow, DestinationWish, PENDING_COUNTED_MAX, Pending,
};
use crate::supervise::{DestinationBook, DestinationEntry};

type Document = Map<String, Value>;

pub(super) async fn list(
    State(parts): State<AdminParts>,
    parameters: Parameters,
) -> Result<Json<wire::Destinations>, ApiError> {
    parameters.finish()?;
    let (book, _) = serving(&parts)?;
    let items = book.entries().await?.into_iter().map(wire::DestinationOf::from).collect();
    Ok(Json(wire::Destinations { items }))
}

pub(super) async fn show(
    State(parts): State<AdminParts>,
    PathId(name): PathId<DestinationName>,
    parameters: Parameters,
) -> Result<Json<wire::DestinationOf>, ApiError> {
    parameters.finish()?;
    let (book, _) = serving(&parts)?;
    let entry = find(&book, &name).await?.ok_or_else(|| no_such(&name))?;
    let pending = parts.store.pending_of(&name).await?;
    Ok(Json(wire::DestinationOf { pending: Some(pending.into()), ..wire::DestinationOf::from(entry) }))
}

/// Sets all keys: those that the body lacks get their defaults.
pub(super) async fn put(
    State(parts): State<AdminParts>,
    PathId(name): PathId<DestinationName>,
    parameters: Parameters,
    body: Result<Bytes, BytesRejection>,
) -> Result<Json<wire::DestinationSet>, ApiError> {
    set(&parts, name, parameters, body, |_, wished| wished).await
}

/// Sets the keys in the body and keeps the others. A null key gets its default.
pub(super) async fn patch(
    State(parts): State<AdminParts>,
    PathId(name): PathId<DestinationName>,
    parameters: Parameters,
    body: Result<Bytes, BytesRejection>,
) -> Result<Json<wire::DestinationSet>, ApiError> {
    set(&parts, name, parameters, body, |mut document, wished| {
        for (key, value) in wished {
            match value {
                Value::Null => document.remove(&key),
                value => document.insert(key, value),
            };
        }
        document
    })
    .await
}

async fn set(
    parts: &AdminParts,
    name: DestinationName,
    mut parameters: Parameters,
    body: Result<Bytes, BytesRejection>,
    onto: impl FnOnce(Document, Document) -> Document,
) -> Result<Json<wire::DestinationSet>, ApiError> {
    let version: Option<u64> = parameters.take("version")?;
    let reorder: bool = parameters.take("reorder")?.unwrap_or(false);
    parameters.finish()?;
    let wished: Document = read(body)?;
    let (book, publisher) = serving(parts)?;
    if book.is_configured(&name) {
        return Err(ApiError::Configured(name.to_string()));
    }
    let row = row_of(&book, &name).await?;
    let stands = row.as_ref().filter(|row| !row.removed);
    let before = stands.and_then(|row| serde_json::from_str(&row.document).ok()).unwrap_or_default();
    let document = Value::Object(onto(before, wished)).to_string();
    let refused = |problems: Vec<String>| ApiError::Invalid(problems.join("; "));
    let (destination, notes) = book.check(&name, &document).map_err(refused)?;
    publisher
        .check(&destination)
        .map_err(|reason| ApiError::Invalid(format!("`destinations.{name}.url`: {reason}")))?;
    if let Some(row) = &row
        && !reorder
        && book.ordering(row) != destination.ordering
    {
        let pending = parts.store.pending_of(&name).await?;
        if pending.messages > 0 || pending.more {
            return Err(ApiError::Pending(format!(
                "{} for `{name}` in the order of their emission, which the new `ordering` would change: wait until they \
                 are gone, or use reorder=true (--reorder), which rebuilds the indexes of their shards",
                wait(pending)
            )));
        }
    }
    let expected = version.unwrap_or(stands.map_or(0, |row| row.version));
    let version = change(parts, &name, DestinationWish::Set(document), expected).await?;
    tracing::info!(destination = %name, version, "an operator set a destination");
    let entry = find(&book, &name).await?.ok_or_else(|| no_such(&name))?;
    Ok(Json(wire::DestinationSet { destination: entry.into(), notes }))
}

/// Removes a destination that was set.
pub(super) async fn remove(
    State(parts): State<AdminParts>,
    PathId(name): PathId<DestinationName>,
    mut parameters: Parameters,
) -> Result<Json<wire::DestinationRemoved>, ApiError> {
    let version: Option<u64> = parameters.take("version")?;
    let waits = parameters.take_word("pending", &["wait"], |word| word)?.is_some();
    parameters.finish()?;
    let (book, _) = serving(&parts)?;
    let configured = book.is_configured(&name);
    let row = row_of(&book, &name).await?;
    let row = row.ok_or_else(|| if configured { ApiError::Configured(name.to_string()) } else { no_such(&name) })?;
    let pending = parts.store.pending_of(&name).await?;
    // A destination of the configuration is still called after that.
    let is_waited_for = !configured && (pending.messages > 0 || pending.more);
    let wish = match (is_waited_for, row.removed) {
        (false, _) => DestinationWish::Forget,
        (true, true) => return Err(no_such(&name)),
        (true, false) if waits => DestinationWish::Remove,
        (true, false) => {
            return Err(ApiError::Pending(format!(
                "{} for `{name}`: let them be sent, cancel them, or remove it with pending=wait (--pending wait), and they \
                 wait until it is set again",
                wait(pending)
            )));
        }
    };
    let expected = version.unwrap_or(if row.removed { 0 } else { row.version });
    let version = change(&parts, &name, wish, expected).await?;
    tracing::info!(destination = %name, version, pending = pending.messages, "an operator removed a destination");
    Ok(Json(wire::DestinationRemoved { name: name.to_string(), version, pending: pending.into() }))
}

fn serving(parts: &AdminParts) -> Result<(DestinationBook, Publisher), ApiError> {
    match &*parts.stage.borrow() {
        Stage::Serving { destinations, publisher, .. } => Ok((destinations.clone(), publisher.clone())),
        Stage::Starting | Stage::Stopping => Err(ApiError::NotServing),
    }
}

async fn find(book: &DestinationBook, name: &DestinationName) -> Result<Option<DestinationEntry>, ApiError> {
    Ok(book.entries().await?.into_iter().find(|entry| entry.name == *name))
}

/// The row of a name.
async fn row_of(book: &DestinationBook, name: &DestinationName) -> Result<Option<DestinationRow>, ApiError> {
    Ok(find(book, name).await?.and_then(|entry| entry.set))
}

async fn change(
    parts: &AdminParts,
    name: &DestinationName,
    wish: DestinationWish,
    expected: u64,
) -> Result<u64, ApiError> {
    let change = DestinationChange { name: name.clone(), wish, expected: Some(expected), now: parts.env.now() };
    match parts.store.change_destination(change).await? {
        DestinationChanged::Done(version) => Ok(version),
        DestinationChanged::Stale(0) => Err(ApiError::Stale(format!("destination `{name}` is not set"))),
        DestinationChanged::Stale(version) => {
            Err(ApiError::Stale(format!("destination `{name}` has version {version} now")))
        }
        DestinationChanged::NotFound => Err(no_such(name)),
        DestinationChanged::TooMany => {
            Err(ApiError::Stale("the number of destinations has reached its limit".to_owned()))
        }
    }
}

fn no_such(name: &DestinationName) -> ApiError {
    ApiError::NotFound { what: format!("destination `{name}`") }
}

/// `1 message waits`, `3 messages wait`, ….
fn wait(pending: Pending) -> String {
    match pending {
        Pending { messages: PENDING_COUNTED_MAX.., .. } => format!("more than {PENDING_COUNTED_MAX} messages wait"),
        Pending { messages, more: true } => format!("at least {messages} messages wait"),
        Pending { messages: 1, .. } => "1 message waits".to_owned(),
        Pending { messages, .. } => format!("{messages} messages wait"),
    }
}
