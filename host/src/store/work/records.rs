//! The reads of a run that succeeded, so that it can be repeated with the same reads. They have a row of their own,
//! because most runs read nothing.

use bytes::Bytes;

use crate::model::names::ReaderName;
use crate::model::reading::{Reading, RecordedReads};
use crate::store::engine::dialect::Conflict;
use crate::store::engine::row::{Columns, FromColumns, damaged};
use crate::store::engine::statement::Statement;
use crate::store::writer::unit::Unit;

/// The layout of a list of readings, its first byte.
const VERSION: u8 = 1;
/// The length that stands for a key without a record.
const NO_RECORD: u32 = u32::MAX;

static INSERT: Statement = Statement::insert("work_item_read (ordinal, total, bytes, records)", Conflict::Fail);

/// Stores the reads of WorkItems, which are named by their ordinals.
pub(in crate::store) async fn keep(unit: &mut Unit<'_>, records: Vec<(i64, RecordedReads)>) -> Result<(), sqlx::Error> {
    if records.is_empty() {
        return Ok(());
    }
    INSERT
        .write(&mut unit.connection, records, |values, (ordinal, reads)| {
            values.push(ordinal);
            match reads {
                // An empty blob is no list: a list begins with its version.
                RecordedReads::TooLarge { count, bytes } => values.push(count).push(bytes).push(Vec::<u8>::new()),
                RecordedReads::Kept(readings) => {
                    let encoded = encode(&readings);
                    values.push(readings.len() as u64).push(encoded.len() as u64).push(encoded)
                }
            };
        })
        .await
}

/// The three columns are NULL where nothing was read.
impl FromColumns for RecordedReads {
    fn read(columns: &mut Columns<'_>) -> Result<Self, sqlx::Error> {
        let stored: (Option<i64>, Option<i64>, Option<Bytes>) = columns.next()?;
        let (Some(count), Some(bytes), Some(blob)) = stored else { return Ok(Self::NONE) };
        if blob.is_empty() {
            let count = u32::try_from(count).unwrap_or(u32::MAX);
            return Ok(Self::TooLarge { count, bytes: u64::try_from(bytes).unwrap_or(0) });
        }
        let readings =
            decode(&blob).ok_or_else(|| damaged("list of readings", format_args!("{} bytes", blob.len())))?;
        Ok(Self::Kept(readings))
    }
}

/// Version, then for each reading: lengths of reader, key and record (u32, little-endian), and these.
fn encode(readings: &[Reading]) -> Vec<u8> {
    let mut blob = vec![VERSION];
    for reading in readings {
        let length =
            |bytes: usize| u32::try_from(bytes).expect("what is kept is bounded far below 4 GiB").to_le_bytes();
        blob.extend_from_slice(&length(reading.reader.as_str().len()));
        blob.extend_from_slice(&length(reading.key.len()));
        match &reading.value {
            None => blob.extend_from_slice(&NO_RECORD.to_le_bytes()),
            Some(value) => blob.extend_from_slice(&length(value.len())),
        }
        blob.extend_from_slice(reading.reader.as_str().as_bytes());
        blob.extend_from_slice(reading.key.as_bytes());
        blob.extend_from_slice(reading.value.as_deref().unwrap_or_default());
    }
    blob
}

fn decode(blob: &Bytes) -> Option<Vec<Reading>> {
    let (version, mut rest) = blob.split_first()?;
    if *version != VERSION {
        return None;
    }
    let mut readings = Vec::new();
    while !rest.is_empty() {
        let (reader_length, after) = length(rest)?;
        let (key_length, after) = length(after)?;
        let (value_length, after) = length(after)?;
        let (reader, after) = after.split_at_checked(usize::try_from(reader_length).ok()?)?;
        let (key, after) = after.split_at_checked(usize::try_from(key_length).ok()?)?;
        let recorded = if value_length == NO_RECORD { 0 } else { usize::try_from(value_length).ok()? };
        let (value, after) = after.split_at_checked(recorded)?;
        readings.push(Reading {
            reader: std::str::from_utf8(reader).ok()?.parse::<ReaderName>().ok()?,
            key: std::str::from_utf8(key).ok()?.to_owned(),
            value: (value_length != NO_RECORD).then(|| blob.slice_ref(value)),
        });
        rest = after;
    }
    Some(readings)
}

fn length(bytes: &[u8]) -> Option<(u32, &[u8])> {
    let (length, rest) = bytes.split_first_chunk::<4>()?;
    Some((u32::from_le_bytes(*length), rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(key: &str, value: Option<&'static [u8]>) -> Reading {
        Reading { reader: "contacts".parse().unwrap(), key: key.to_owned(), value: value.map(Bytes::from_static) }
    }

    #[test]
    fn readings_read_back_byte_for_byte() {
        for readings in [vec![], vec![reading("a", None), reading("", Some(b"")), reading("\u{e9}", Some(b"\x00\xff"))]]
        {
            assert_eq!(decode(&encode(&readings).into()), Some(readings));
        }
        let blob = encode(&[reading("a", Some(b"value"))]);
        assert_eq!(decode(&Bytes::copy_from_slice(&blob[..blob.len() - 1])), None);
        assert_eq!(decode(&Bytes::new()), None);
        assert_eq!(decode(&Bytes::from_static(&[9])), None);
    }
}
