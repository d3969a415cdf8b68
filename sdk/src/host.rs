//! Functions of the host. In a native test, [`crate::testing::TestHost`] answers instead.

#[cfg(target_arch = "wasm32")]
use crate::export::bindings::forebay::connector as wire;

/// The pack's log. Text beyond the manifest's limit is cut and counted.
pub mod log {
    pub use level::Level;

    mod level {
        /// The level of a line.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Level {
            /// Every step.
            Trace,
            /// Details for debugging.
            Debug,
            /// Normal events.
            Info,
            /// Possible problems.
            Warn,
            /// Problems.
            Error,
        }
    }

    /// Writes a line. Put no payload and no secret into it.
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

    /// Writes a line at level `Info`.
    pub fn info(message: impl AsRef<str>) {
        write(Level::Info, message.as_ref());
    }

    /// Writes a line at level `Warn`.
    pub fn warn(message: impl AsRef<str>) {
        write(Level::Warn, message.as_ref());
    }

    /// Writes a line at level `Error`.
    pub fn error(message: impl AsRef<str>) {
        write(Level::Error, message.as_ref());
    }
}

/// The pack's settings, from the manifest.
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

/// Time, which stands still during a call.
pub mod clock {
    use crate::Timestamp;

    /// The time of the event's admission: the same in every attempt.
    pub fn now() -> Timestamp {
        #[cfg(target_arch = "wasm32")]
        return Timestamp::from_millis(super::wire::clock::now());
        #[cfg(not(target_arch = "wasm32"))]
        crate::testing::now()
    }
}

/// Random numbers determined by the event and the pack's generation: the same in every attempt, and no secret.
pub mod random {
    /// The next 64 bits.
    pub fn next() -> u64 {
        #[cfg(target_arch = "wasm32")]
        return super::wire::random::next();
        #[cfg(not(target_arch = "wasm32"))]
        crate::testing::random()
    }
}
