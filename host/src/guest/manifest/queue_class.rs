//! The queue class of a route's events: one for all, or by a value in the request.

use std::collections::BTreeMap;

use super::key_place;
use super::section::Value;
use crate::guest::LoadError;
use crate::model::pack::QueueClassRule;
use crate::model::queue::QueueClass;

const VALUES_MAX: usize = 256;

const CLASSES: [(&str, QueueClass); 3] = [
    (QueueClass::Interactive.as_str(), QueueClass::Interactive),
    (QueueClass::Default.as_str(), QueueClass::Default),
    (QueueClass::Bulk.as_str(), QueueClass::Bulk),
];

/// Reads `"bulk"`, or `{ header = "x-event", values = { import = "bulk" }, otherwise = "interactive" }`.
pub(super) fn read(value: Value<'_>) -> Result<QueueClassRule, LoadError> {
    if value.is_text() {
        return value.choice(&CLASSES).map(QueueClassRule::Fixed);
    }
    let mut table = value.section(&["header", "pointer", "values", "otherwise"])?;
    let place = key_place(&mut table)?;
    let values = table.required("values", "{ import = \"bulk\" }")?;
    let classes: BTreeMap<String, QueueClass> =
        values.by_key(VALUES_MAX, |class| class.choice(&CLASSES))?.into_iter().collect();
    let otherwise = match table.optional("otherwise") {
        None => QueueClass::Default,
        Some(class) => class.choice(&CLASSES)?,
    };
    Ok(QueueClassRule::ByValue { place, classes, otherwise })
}
