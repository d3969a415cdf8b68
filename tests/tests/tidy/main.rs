//! What compilers and linters do not check of this project: sizes, the direction of imports, what every module says of
//! itself, what the documents promise, which dependencies may be there once only.
//!
//! Everything is read from the working tree, as text. The source is formatted by rustfmt, and the checks lean on that.

mod contract;
mod dependencies;
mod documents;
mod imports;
mod metrics;
mod sizes;
mod source;
mod statements;
