//! Write a connector for Forebay.
//!
//! A connector is a pure function with a budget: it gets an event and returns what should happen. Implement
//! [`Connector`], name the type in one [`export!`] line, and build the crate with `forebay pack build`.
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
//!             Ok(Prepared::ignore(format!("`{}` is of no interest", body.kind)))
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
//! // A test is a plain function: nothing of the host is needed.
//! let event = forebay_sdk::testing::event(&[], r#"{"kind":"order.created","order":7}"#);
//! let output = forebay_sdk::testing::TestHost::new().flow::<Orders>(&event).unwrap().unwrap();
//! assert_eq!(output.messages[0].body, br#"{"pick":7}"#);
//! ```
//!
//! What to know:
//! - Each call runs in a fresh instance: a `static` forgets, and a call that panics harms no other.
//! - [`clock`], [`random`] and [`config`] answer the same for every attempt of an event, so a retry decides the same.
//! - An import has to be declared in `pack.toml` (`imports = ["config"]`), and only what is used need be.
//! - A panic fails the event with its message. Return a [`Failure`] instead where you can say more.

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

/// What a connector does. The type itself is only a name: no value of it is ever made.
pub trait Connector {
    /// What [`prepare`](Connector::prepare) hands to [`run`](Connector::run). It travels as JSON.
    type State: serde::Serialize + serde::de::DeserializeOwned;

    /// Looks at an event: parses it, sorts out what is of no interest, and says what has to be read.
    fn prepare(event: &Event) -> Result<Prepared<Self::State>, Failure>;

    /// Decides what is to happen, with what was read for the event.
    fn run(event: &Event, state: Self::State, readings: &[Reading]) -> Result<Output, Failure>;

    /// Writes the request that looks up `keys` of `reader`. Of use only if `prepare` asks for reads.
    fn encode_read(reader: &str, keys: &[String]) -> Result<HttpRequest, Failure> {
        let _ = keys;
        Err(Failure::reject(format!("this connector has no reader `{reader}`")))
    }

    /// Reads the answer to that request: the record of each key that was found.
    fn decode_read(reader: &str, keys: &[String], response: &HttpResponse) -> Result<Vec<(String, Vec<u8>)>, Failure> {
        let _ = (keys, response);
        Err(Failure::reject(format!("this connector has no reader `{reader}`")))
    }

    /// Does what an earlier [`Action`] asked for. Of use only if `run` or `apply` emits actions.
    fn apply(action: &DueAction) -> Result<Output, Failure> {
        Err(Failure::reject(format!("this connector has no action `{}`", action.name)))
    }
}

/// Makes a [`Connector`] the component's own: one line, at the top of the crate.
#[macro_export]
macro_rules! export {
    ($connector:ty) => {
        const _: fn() = $crate::export::is_connector::<$connector>;
        // The exported names are the component model's, which a native linker does not take.
        #[cfg(target_arch = "wasm32")]
        const _: () = {
            type Exported = $crate::export::Exported<$connector>;
    $crate::export::export_component!(Exported with_types_in $crate::export::bindings);
        };
    };
}
