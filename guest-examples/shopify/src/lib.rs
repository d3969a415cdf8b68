//! Shopify: orders go to fulfilment, products to the catalogue.

use forebay_sdk::{Connector, Event, Failure, Message, Output, Prepared, Reading};
use serde::{Deserialize, Serialize};

const FULFILMENT: &str = "fulfilment";
const CATALOGUE: &str = "catalogue";

struct Shopify;

forebay_sdk::export!(Shopify);

impl Connector for Shopify {
    type State = Task;

    fn prepare(event: &Event) -> Result<Prepared<Task>, Failure> {
        let header = |name: &str| {
            event.header(name).map(str::to_owned).ok_or_else(|| Failure::invalid_input(format!("no {name} header")))
        };
        let (topic, shop) = (header("x-shopify-topic")?, header("x-shopify-shop-domain")?);
        Ok(match topic.as_str() {
            "orders/create" | "orders/paid" => {
                let Order { id, lines, .. } = event.json()?;
                // Gift cards and services are not shipped, so they are not picked.
                let pick: Vec<Pick> = lines.into_iter().filter(|line| line.requires_shipping).map(Pick::from).collect();
                if pick.is_empty() {
                    return Ok(Prepared::ignore(format!("order {id} has nothing to ship")));
                }
                let paid = topic == "orders/paid";
                Prepared::run(Task::Pick { shop, order: id, paid, pick })
            }
            "orders/cancelled" => {
                let Order { id, cancel_reason, .. } = event.json()?;
                Prepared::run(Task::Cancel { shop, order: id, reason: cancel_reason })
            }
            "products/create" | "products/update" => {
                let Product { id, title, status, variants } = event.json()?;
                let listed = status == "active";
                Prepared::run(Task::Product { shop, product: id, title, listed, variants })
            }
            "products/delete" => Prepared::run(Task::Gone { shop, product: event.json::<Deleted>()?.id }),
            other => Prepared::ignore(format!("`{other}` is not handled")),
        })
    }

    fn run(event: &Event, task: Task, _: &[Reading]) -> Result<Output, Failure> {
        let (destination, about) = match &task {
            Task::Pick { shop, order, .. } | Task::Cancel { shop, order, .. } => {
                (FULFILMENT, format!("{shop}/orders/{order}"))
            }
            Task::Product { shop, product, .. } | Task::Gone { shop, product } => {
                (CATALOGUE, format!("{shop}/products/{product}"))
            }
        };
        let message = Message::json(destination, &task)?
            .ordering_key(about.as_str())
            .idempotency_key(event.delivery_key.as_str())
            .header("x-source", "shopify");
        Ok(Output::new().note(about).message(message))
    }
}

/// The body of a message; `prepare` hands it to `run`.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
enum Task {
    Pick { shop: String, order: u64, paid: bool, pick: Vec<Pick> },
    Cancel { shop: String, order: u64, reason: Option<String> },
    Product { shop: String, product: u64, title: String, listed: bool, variants: Vec<Variant> },
    Gone { shop: String, product: u64 },
}

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Pick {
    sku: Option<String>,
    quantity: u32,
}

#[derive(Debug, Serialize, Deserialize)]
struct Variant {
    sku: Option<String>,
    /// Text, as Shopify writes it (`"19.90"`): a number could lose a cent.
    price: String,
}

#[derive(Deserialize)]
struct Order {
    id: u64,
    #[serde(default, rename = "line_items")]
    lines: Vec<Line>,
    #[serde(default)]
    cancel_reason: Option<String>,
}

#[derive(Deserialize)]
struct Line {
    sku: Option<String>,
    quantity: u32,
    requires_shipping: bool,
}

impl From<Line> for Pick {
    fn from(Line { sku, quantity, .. }: Line) -> Self {
        Self { sku, quantity }
    }
}

#[derive(Deserialize)]
struct Product {
    id: u64,
    title: String,
    status: String,
    variants: Vec<Variant>,
}

#[derive(Deserialize)]
struct Deleted {
    id: u64,
}

#[cfg(test)]
mod tests;
