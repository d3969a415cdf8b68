//! HubSpot: changes of contacts go to a CRM, each with the present contact.
//!
//! An event of HubSpot names the change and lacks the contact. So `prepare` asks for the contact, and the host reads
//! the contacts of up to a hundred events with one request.

use std::collections::BTreeMap;

use forebay_sdk::{
    Connector, Event, Failure, HttpRequest, HttpResponse, Message, Output, Prepared, Read, Reading, config,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

const DESTINATION: &str = "crm";
const READER: &str = "contacts";
const PROPERTIES: &str = "email";

struct HubSpot;

forebay_sdk::export!(HubSpot);

/// An event of HubSpot: <https://developers.hubspot.com/docs/api-reference/webhooks-webhooks-v3/guide>.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Change {
    subscription_type: String,
    object_id: u64,
    occurred_at: i64,
    property_name: Option<String>,
}

/// The state that `prepare` hands to `run`.
#[derive(Serialize, Deserialize)]
struct About {
    contact: String,
    why: String,
    occurred_at: i64,
    deleted: bool,
}

/// A contact in the answer of the batch read.
#[derive(Serialize, Deserialize)]
struct Contact {
    id: String,
    #[serde(default)]
    properties: BTreeMap<String, Value>,
}

#[derive(Deserialize)]
struct Batch {
    results: Vec<Contact>,
}

impl Connector for HubSpot {
    type State = About;

    fn prepare(event: &Event) -> Result<Prepared<About>, Failure> {
        let change: Change = event.json()?;
        let Some(kind) = change.subscription_type.strip_prefix("contact.") else {
            return Ok(Prepared::ignore(format!("`{}` is not about a contact", change.subscription_type)));
        };
        let deleted = matches!(kind, "deletion" | "privacyDeletion");
        let why = match &change.property_name {
            Some(property) => format!("{kind} {property}"),
            None => kind.to_owned(),
        };
        let about = About { contact: change.object_id.to_string(), why, occurred_at: change.occurred_at, deleted };
        // A deleted contact cannot be read.
        let reads = if deleted { Vec::new() } else { vec![Read::one(READER, &about.contact)] };
        Ok(Prepared::run_with(about, reads))
    }

    /// <https://developers.hubspot.com/docs/api-reference/crm-contacts-v3/batch/post-crm-v3-objects-contacts-batch-read>
    fn encode_read(_: &str, keys: &[String]) -> Result<HttpRequest, Failure> {
        let properties = config::get("properties").unwrap_or_else(|| PROPERTIES.to_owned());
        let properties: Vec<&str> = properties.split(',').map(str::trim).collect();
        let inputs: Vec<Value> = keys.iter().map(|id| json!({ "id": id })).collect();
        let body = json!({ "properties": properties, "inputs": inputs });
        HttpRequest::post_json("/crm/v3/objects/contacts/batch/read", &body)
    }

    /// The answer has status 207 and lacks a contact that does not exist.
    fn decode_read(_: &str, _: &[String], response: &HttpResponse) -> Result<Vec<(String, Vec<u8>)>, Failure> {
        let batch: Batch = response.json()?;
        batch.results.into_iter().map(|contact| Ok((contact.id.clone(), serde_json::to_vec(&contact)?))).collect()
    }

    fn run(_: &Event, about: About, readings: &[Reading]) -> Result<Output, Failure> {
        let About { contact: id, why, occurred_at, deleted } = about;
        let contact: Option<Contact> = if deleted { None } else { Reading::json(readings, READER, &id)? };
        let (state, properties) = match contact {
            Some(contact) => ("present", contact.properties),
            None => ("gone", BTreeMap::new()),
        };
        let body = json!({
            "contact": id, "state": state, "why": why, "occurred_at": occurred_at, "properties": properties,
        });
        let message = Message::json(DESTINATION, &body)?.ordering_key(id.as_str());
        Ok(Output::new().note(format!("contact is {state}: {why}")).message(message))
    }
}

#[cfg(test)]
mod tests;
