//! Write a connector for Forebay.
//!
//! A connector is a pure function with a budget: it gets an event and returns messages to send and actions for later.
//! Implement [`Connector`], name the type in one [`export!`] line, and build the crate with `forebay pack build`.
//!
//! ```
//! use forebay_sdk::{Connector, Event, Failure, Message, Output, Prepared, Reading};
//!
//! struct Orders;
//!
//! #[derive(serde::Deserialize)]
//! struct Body {
//!     kind: String,
//!     order: u64,
//! }
//!
//! impl Connector for Orders {
//!     type State = u64;
//!
//!     fn prepare(event: &Event) -> Result<Prepared<u64>, Failure> {
//!         let body: Body = event.json()?;
//!         if body.kind == "order.created" {
//!             Ok(Prepared::run(body.order))
//!         } else {
//!             Ok(Prepared::ignore(format!("`{}` is not handled", body.kind)))
//!         }
//!     }
//!
//!     fn run(_: &Event, order: u64, _: &[Reading]) -> Result<Output, Failure> {
//!         Ok(Output::new().message(Message::json("warehouse", &serde_json::json!({ "pick": order }))?))
//!     }
//! }
//!
//! forebay_sdk::export!(Orders);
//!
//! // A test is a plain function and needs no host.
//! let event = forebay_sdk::testing::event(&[], r#"{"kind":"order.created","order":7}"#);
//! let output = forebay_sdk::testing::TestHost::new().flow::<Orders>(&event).unwrap().unwrap();
//! assert_eq!(output.messages[0].body, br#"{"pick":7}"#);
//! ```
//!
//! Rules:
//! - Each call runs in a fresh instance: a `static` keeps nothing between calls, and a panic affects no other call.
//! - [`clock`], [`random`] and [`config`] answer the same in every attempt of an event, so a retry decides the same.
//! - Declare imports in `pack.toml` (`imports = ["config"]`); unused ones need not be listed.
//! - A panic fails the event with its message. Return a [`Failure`] instead: it says whether to retry, and why.

mod event;
#[doc(hidden)]
pub mod export;
mod failure;
mod host;
mod output;
mod reads;
#[cfg(not(target_arch = "wasm32"))]
pub mod testing;
mod time;

pub use self::event::{Event, Header};
pub use self::failure::Failure;
pub use self::host::{clock, config, log, random};
pub use self::output::{Action, Due, DueAction, Message, Output};
pub use self::reads::{HttpRequest, HttpResponse, Prepared, Read, Reading};
pub use self::time::Timestamp;

/// A connector. The type is only a name: no value of it is created.
pub trait Connector {
    /// The value that [`prepare`](Connector::prepare) hands to [`run`](Connector::run), as JSON.
    type State: serde::Serialize + serde::de::DeserializeOwned;

    /// Parses an event, ignores it or accepts it, and names the records to read for it.
    fn prepare(event: &Event) -> Result<Prepared<Self::State>, Failure>;

    /// Decides on messages and actions, with the records that were read for the event.
    fn run(event: &Event, state: Self::State, readings: &[Reading]) -> Result<Output, Failure>;

    /// Writes the request that looks up `keys` of `reader`. Needed only if `prepare` asks for reads.
    fn encode_read(reader: &str, keys: &[String]) -> Result<HttpRequest, Failure> {
        let _ = keys;
        Err(Failure::reject(format!("this connector has no reader `{reader}`")))
    }

    /// Parses the answer to that request into the record of each key that was found.
    fn decode_read(reader: &str, keys: &[String], response: &HttpResponse) -> Result<Vec<(String, Vec<u8>)>, Failure> {
        let _ = (keys, response);
        Err(Failure::reject(format!("this connector has no reader `{reader}`")))
    }

    /// Applies an earlier [`Action`] when it is due. Needed only if `run` or `apply` emits actions.
    fn apply(action: &DueAction) -> Result<Output, Failure> {
        Err(Failure::reject(format!("this connector has no action `{}`", action.name)))
    }
}

/// Exports a [`Connector`] from the component: one line at the top of the crate.
// rustfmt does not know `with_types_in` and would undo the indentation.
#[rustfmt::skip]
#[macro_export]
macro_rules! export {
    ($connector:ty) => {
        const _: fn() = $crate::export::is_connector::<$connector>;
        // A native linker does not accept the export names of the component model.
        #[cfg(target_arch = "wasm32")]
        const _: () = {
            type Exported = $crate::export::Exported<$connector>;
            $crate::export::export_component!(Exported with_types_in $crate::export::bindings);
        };
    };
}
