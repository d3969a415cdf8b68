//! Stripe: payments and refunds become lines of a ledger, and failed invoices go to collections.

use std::time::Duration;

use forebay_sdk::{Connector, Event, Failure, Message, Output, Prepared, Reading, config};
use serde::{Deserialize, Serialize};

const LEDGER: &str = "ledger";
const COLLECTIONS: &str = "collections";
const GRACE_DAYS: u64 = 7;
const DAY: Duration = Duration::from_secs(86_400);
/// A later warning is useless.
const WARNING_DAYS: u32 = 30;

struct Stripe;

forebay_sdk::export!(Stripe);

impl Connector for Stripe {
    type State = Entry;

    fn prepare(event: &Event) -> Result<Prepared<Entry>, Failure> {
        let envelope: Envelope = event.json()?;
        Ok(match envelope.r#type.as_str() {
            "payment_intent.succeeded" => Prepared::run(event.json::<Of<PaymentIntent>>()?.into()),
            "charge.refunded" => Prepared::run(event.json::<Of<Charge>>()?.into()),
            "invoice.payment_failed" => Prepared::run(event.json::<Of<Invoice>>()?.into()),
            other => Prepared::ignore(format!("`{other}` is not handled")),
        })
    }

    fn run(event: &Event, entry: Entry, _: &[Reading]) -> Result<Output, Failure> {
        // Stripe's event id: the receiver recognizes a duplicate by it.
        let message = |destination, suffix: &str| -> Result<Message, Failure> {
            let message = Message::json(destination, &entry)?;
            Ok(message.idempotency_key(format!("{}{suffix}", event.delivery_key)))
        };
        let output = Output::new().note(entry.summary());
        match &entry {
            Entry::Payment { payment, .. } => Ok(output.message(message(LEDGER, "")?.ordering_key(payment.as_str()))),
            Entry::Refund { charge, .. } => Ok(output.message(message(LEDGER, "")?.ordering_key(charge.as_str()))),
            Entry::Uncollected { .. } => {
                let grace = DAY * u32::try_from(config::parse_or("grace_days", GRACE_DAYS)?)?;
                let useless = event.received_at + grace + WARNING_DAYS * DAY;
                let again = message(COLLECTIONS, ":grace-over")?.after(grace).expire_at(useless);
                Ok(output.message(message(COLLECTIONS, "")?).message(again))
            }
        }
    }
}

/// The body of a message; `prepare` hands it to `run`. Amounts are in the smallest unit of the currency, as in Stripe.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
enum Entry {
    Payment { payment: String, customer: Option<String>, amount: u64, currency: String, at: i64 },
    Refund { charge: String, customer: Option<String>, amount: u64, currency: String, whole: bool, at: i64 },
    Uncollected { invoice: String, customer: Option<String>, amount: u64, currency: String, attempts: u32, at: i64 },
}

impl Entry {
    fn summary(&self) -> String {
        match self {
            Self::Payment { payment, amount, currency, .. } => format!("payment {payment}: {amount} {currency}"),
            Self::Refund { charge, amount, currency, .. } => format!("refund of {charge}: {amount} {currency}"),
            Self::Uncollected { invoice, attempts, .. } => format!("invoice {invoice} failed {attempts} times"),
        }
    }
}

#[derive(Deserialize)]
struct Envelope {
    r#type: String,
}

/// An event about an object.
#[derive(Deserialize)]
struct Of<T> {
    /// In seconds since 1970, as in Stripe.
    created: i64,
    data: Data<T>,
}

#[derive(Deserialize)]
struct Data<T> {
    object: T,
}

#[derive(Deserialize)]
struct PaymentIntent {
    id: String,
    customer: Option<String>,
    amount_received: u64,
    currency: String,
}

impl From<Of<PaymentIntent>> for Entry {
    fn from(event: Of<PaymentIntent>) -> Self {
        let at = event.created;
        let PaymentIntent { id: payment, customer, amount_received: amount, currency } = event.data.object;
        Self::Payment { payment, customer, amount, currency, at }
    }
}

#[derive(Deserialize)]
struct Charge {
    id: String,
    customer: Option<String>,
    amount_refunded: u64,
    currency: String,
    refunded: bool,
}

impl From<Of<Charge>> for Entry {
    fn from(event: Of<Charge>) -> Self {
        let at = event.created;
        let Charge { id: charge, customer, amount_refunded: amount, currency, refunded: whole } = event.data.object;
        Self::Refund { charge, customer, amount, currency, whole, at }
    }
}

#[derive(Deserialize)]
struct Invoice {
    id: String,
    customer: Option<String>,
    amount_due: u64,
    currency: String,
    attempt_count: u32,
}

impl From<Of<Invoice>> for Entry {
    fn from(event: Of<Invoice>) -> Self {
        let at = event.created;
        let Invoice { id: invoice, customer, amount_due: amount, currency, attempt_count } = event.data.object;
        Self::Uncollected { invoice, customer, amount, currency, attempts: attempt_count, at }
    }
}

#[cfg(test)]
mod tests;
