//! The `forebay` binary; everything is in the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    forebay::cli::main()
}
