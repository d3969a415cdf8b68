//! The fields of a form, as Twilio signs them. <https://www.twilio.com/docs/usage/security#validating-requests>

use std::collections::{BTreeMap, BTreeSet};

use data_encoding::HEXLOWER;
use sha2::{Digest, Sha256};

use crate::intake::answer::Refusal;

/// The field of the address's query that has the hash of a body that is no form.
const BODY_HASH: &str = "bodySHA256";

/// What is signed of the body behind `uri`: the names of its fields in order, each with its values behind it. Where the
/// address has the body's hash, and it is right: nothing more.
pub(super) fn signed(uri: &str, body: &[u8]) -> Result<Vec<u8>, Refusal> {
    let query = uri.split_once('?').map_or("", |(_, query)| query);
    let hash = form_urlencoded::parse(query.as_bytes()).find(|(name, _)| name == BODY_HASH);
    if let Some((_, hash)) = hash {
        let is_right = hash.eq_ignore_ascii_case(&HEXLOWER.encode(&Sha256::digest(body)));
        return if is_right { Ok(Vec::new()) } else { Err(Refusal::SignatureWrong) };
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
