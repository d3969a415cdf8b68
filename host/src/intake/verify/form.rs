//! The fields of a form, as Twilio signs them. <https://www.twilio.com/docs/usage/security#validating-requests>

use std::collections::{BTreeMap, BTreeSet};

use data_encoding::HEXLOWER_PERMISSIVE;
use sha2::{Digest, Sha256};

use crate::intake::answer::Refusal;

/// The most fields that a form may have: each takes far more memory than its bytes in the body.
const FIELDS_MAX: usize = 1_024;

/// The last pair of the address's query, if it has the hash of a body that is no form.
const BODY_HASH: &str = "bodySHA256=";

/// What is signed of the body of a request to `uri`: the names of its fields in order, each with its values behind it.
/// Where the address ends in the hash of the body, and it is right: nothing more. Anywhere else in the address, the
/// text of a form's field could stand for it.
pub(super) fn signed(uri: &str, body: &[u8]) -> Result<Vec<u8>, Refusal> {
    let query = uri.split_once('?').map_or("", |(_, query)| query);
    let last = query.rsplit('&').next().unwrap_or_default();
    if let Some(hash) = last.strip_prefix(BODY_HASH) {
        let hash = HEXLOWER_PERMISSIVE.decode(hash.as_bytes()).map_err(|_| Refusal::SignatureMalformed)?;
        return if hash == Sha256::digest(body).as_slice() { Ok(Vec::new()) } else { Err(Refusal::SignatureWrong) };
    }
    if body.iter().filter(|byte| **byte == b'&').count() >= FIELDS_MAX {
        return Err(Refusal::SignatureMalformed);
    }
    Ok(fields(body))
}

/// The fields of a form body as they are signed: names in order, each with its values behind it.
pub fn fields(body: &[u8]) -> Vec<u8> {
    let mut fields: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (name, value) in form_urlencoded::parse(body) {
        fields.entry(name.into_owned()).or_default().insert(value.into_owned());
    }
    let mut signed = Vec::with_capacity(body.len());
    for (name, values) in &fields {
        for value in values {
            signed.extend_from_slice(name.as_bytes());
            signed.extend_from_slice(value.as_bytes());
        }
    }
    signed
}
