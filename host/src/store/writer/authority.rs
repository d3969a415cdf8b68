//! The authority rows that deliveries are admitted by: namespaces and generations.

use std::collections::HashSet;

use super::unit::Unit;
use crate::model::names::{Namespace, PackName};
use crate::model::pack::GenerationNumber;
use crate::store::engine::dialect::{Engine, Lock};
use crate::store::engine::row::FromColumns;
use crate::store::engine::statement::{Reads, Statement};
use crate::store::error::StoreError;
use crate::store::work::enqueue::Delivery;
use crate::store::work::materialize::sorted;

static NAMESPACES: Statement = Statement::lock(
    "(name)",
    "SELECT namespace.name FROM wanted CROSS JOIN namespace ON namespace.name = wanted.name",
    Lock::Share,
);

/// The pack's row is held with it: an activation waits, or is waited for.
static GENERATIONS: Statement = Statement::lock(
    "(pack, number)",
    "SELECT generation.pack, generation.number FROM wanted CROSS JOIN pack ON pack.name = wanted.pack \
     CROSS JOIN generation ON generation.pack = wanted.pack AND generation.number = wanted.number",
    Lock::Share,
);

/// Namespaces and generations that are known to exist; none is ever removed. They are held until the transaction ends.
///
/// The only writer of an embedded database keeps them from one transaction to the next. Where others write too, their
/// rows are read, and held, every time.
#[derive(Default)]
pub(in crate::store) struct Authority {
    namespaces: HashSet<Namespace>,
    generations: HashSet<(PackName, GenerationNumber)>,
}

impl Authority {
    /// The namespaces and generations of these deliveries that exist.
    pub(in crate::store) async fn of(unit: &mut Unit<'_>, deliveries: &[Delivery]) -> Result<Self, sqlx::Error> {
        let kept = std::mem::take(&mut unit.authority);
        let mut authority = if unit.connection.engine() == Engine::Sqlite { kept } else { Self::default() };
        let unknown =
            |delivery: &Delivery| authority.check(&delivery.namespace, &delivery.pack, delivery.generation).is_err();
        if deliveries.iter().any(unknown) {
            let namespaces = deliveries.iter().map(|delivery| delivery.namespace.clone()).collect();
            let generations = deliveries.iter().map(|delivery| (delivery.pack.clone(), delivery.generation)).collect();
            let found = Self::load(unit, namespaces, generations).await?;
            authority.namespaces.extend(found.namespaces);
            authority.generations.extend(found.generations);
        }
        Ok(authority)
    }

    pub(in crate::store) async fn load(
        unit: &mut Unit<'_>,
        namespaces: HashSet<Namespace>,
        generations: HashSet<(PackName, GenerationNumber)>,
    ) -> Result<Self, sqlx::Error> {
        let mut reads = Reads::of(unit.connection.engine());
        let namespaces = reads.ask(&NAMESPACES, sorted(namespaces), |values, name| {
            values.push(&name);
        });
        let generations = reads.ask(&GENERATIONS, sorted(generations), |values, (pack, number)| {
            values.push(&pack).push(number);
        });
        let answered = reads.answer(&mut unit.connection).await?;
        Ok(Self {
            namespaces: answered.decode(namespaces, FromColumns::read)?.into_iter().collect(),
            generations: answered.decode(generations, FromColumns::read)?.into_iter().collect(),
        })
    }

    pub(in crate::store) fn check(
        &self,
        namespace: &Namespace,
        pack: &PackName,
        generation: GenerationNumber,
    ) -> Result<(), StoreError> {
        if !self.namespaces.contains(namespace) {
            return Err(StoreError::Refused(format!("there is no namespace `{namespace}`")));
        }
        if !self.generations.contains(&(pack.clone(), generation)) {
            return Err(StoreError::Refused(format!("pack `{pack}` has no generation {generation}")));
        }
        Ok(())
    }
}
