//! Delay Shards: their owners, progress and checkpoints.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::{Path, State};

use super::error::ApiError;
use super::lanes::timeline;
use super::parameters::Parameters;
use super::{AdminParts, wire};
use crate::store::{ShardId, StoreError};
use crate::timeline::Asked;

pub(super) async fn list(
    State(parts): State<AdminParts>,
    parameters: Parameters,
) -> Result<Json<wire::Shards>, ApiError> {
    parameters.finish()?;
    let (looked, troubles) = match timeline(&parts) {
        Some(timeline) => (timeline.look().await, timeline.troubles()),
        None => (Vec::new(), Vec::new()),
    };
    let mut troubles: BTreeMap<_, _> = troubles.into_iter().map(|trouble| (trouble.shard, trouble)).collect();
    let mut here: BTreeMap<_, _> = looked.into_iter().map(|(view, _)| (view.shard, view)).collect();
    let mut newest = BTreeMap::new();
    for row in parts.store.checkpoints().await? {
        newest.entry(row.shard).or_insert(row);
    }
    let withdrawals = parts.store.withdrawals().await?;
    let shards = parts.store.shards().await?.into_iter().map(|row| {
        let withdrawn = withdrawals.iter().filter(|withdrawal| withdrawal.shard == row.shard).cloned();
        wire::Shard {
            checkpoint: newest.remove(&row.shard).map(wire::Checkpoint::from),
            withdrawn: withdrawn.map(wire::Withdrawn::from).collect(),
            trouble: troubles.remove(&row.shard).map(wire::Trouble::from),
            here: here.remove(&row.shard).map(wire::ShardHere::from),
            ..wire::Shard::from(row)
        }
    });
    Ok(Json(wire::Shards { items: shards.collect() }))
}

/// Makes a checkpoint of a shard, which this host must own.
pub(super) async fn checkpoint(
    State(parts): State<AdminParts>,
    Path(shard): Path<String>,
) -> Result<Json<wire::CheckpointAnswer>, ApiError> {
    let shard = shard.parse::<u16>().ok().filter(|shard| *shard < parts.store.shard_count());
    let Some(shard) = shard.map(ShardId) else { return Err(ApiError::NotFound { what: "such shard".to_owned() }) };
    let timeline = timeline(&parts).ok_or(ApiError::NotServing)?;
    let checkpoint = match timeline.checkpoint(shard).await {
        Asked::Made(row) => Some(row.into()),
        Asked::UnderWay => None,
        Asked::Failed(reason) => return Err(StoreError::Unavailable(reason).into()),
        Asked::NotHere => {
            let reason = format!(
                "this host does not own shard {}: ask the host that does (`forebay shard list` shows it)",
                shard.0
            );
            return Err(StoreError::Refused(reason).into());
        }
    };
    Ok(Json(wire::CheckpointAnswer { checkpoint }))
}
