//! What the host offers. In a native test, [`crate::testing::TestHost`] answers instead.

#[cfg(target_arch = "wasm32")]
use crate::export::bindings::forebay::connector as wire;

/// Lines for the pack's log. Text over the manifest's limit is cut and counted.
pub mod log {
    pub use level::Level;

    mod level {
        /// How much a line matters.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Level {
            /// Every step.
            Trace,
            /// What helps to find a fault.
            Debug,
            /// What is worth knowing.
            Info,
            /// What may be wrong.
            Warn,
            /// What is wrong.
            Error,
        }
    }

    /// Writes a line. No payload and no secret belongs in it.
    pub fn write(level: Level, message: &str) {
        #[cfg(target_arch = "wasm32")]
        super::wire::log::write(
            match level {
                Level::Trace => super::wire::log::Level::Trace,
                Level::Debug => super::wire::log::Level::Debug,
                Level::Info => super::wire::log::Level::Info,
                Level::Warn => super::wire::log::Level::Warn,
                Level::Error => super::wire::log::Level::Error,
            },
            message,
        );
        #[cfg(not(target_arch = "wasm32"))]
        crate::testing::log(level, message);
    }

    /// Writes what is worth knowing.
    pub fn info(message: impl AsRef<str>) {
        write(Level::Info, message.as_ref());
    }

    /// Writes what may be wrong.
    pub fn warn(message: impl AsRef<str>) {
        write(Level::Warn, message.as_ref());
    }

    /// Writes what is wrong.
    pub fn error(message: impl AsRef<str>) {
        write(Level::Error, message.as_ref());
    }
}

/// The pack's settings, as in the manifest.
pub mod config {
    use std::fmt::Display;
    use std::str::FromStr;

    use crate::Failure;

    /// The setting of this name.
    pub fn get(name: &str) -> Option<String> {
        #[cfg(target_arch = "wasm32")]
        return super::wire::config::get(name);
        #[cfg(not(target_arch = "wasm32"))]
        crate::testing::setting(name)
    }

    /// The setting of this name as a `T`, or `default` if there is none.
    pub fn parse_or<T: FromStr<Err: Display>>(name: &str, default: T) -> Result<T, Failure> {
        match get(name) {
            None => Ok(default),
            Some(text) => {
                text.parse().map_err(|error| Failure::Other(format!("the setting `{name}` is wrong: {error}")))
            }
        }
    }
}

/// Time. It stands still while a call runs.
pub mod clock {
    use crate::Timestamp;

    /// The time of the event, which is when it was admitted: the same for every attempt.
    pub fn now() -> Timestamp {
        #[cfg(target_arch = "wasm32")]
        return Timestamp::from_millis(super::wire::clock::now());
        #[cfg(not(target_arch = "wasm32"))]
        crate::testing::now()
    }
}

/// Randomness that the event and the pack's generation decide: every attempt draws the same. It keeps no secret.
pub mod random {
    /// The next 64 bits.
    pub fn next() -> u64 {
        #[cfg(target_arch = "wasm32")]
        return super::wire::random::next();
        #[cfg(not(target_arch = "wasm32"))]
        crate::testing::random()
    }
}
