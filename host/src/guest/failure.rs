//! What became of a call that did not return: from wasmtime's error to a [`Failure`] that its author can act on.
//!
//! Invariant: `unreachable` alone is never the message.

use wasmtime::{PoolConcurrencyLimitError, Trap, WasmBacktrace};

use super::imports::CallState;
use super::limits::Refusal;
use crate::model::failure::{Failure, FailureClass};
use crate::model::pack::GuestLimits;

/// Frames that are named in a failure: enough to find the place, few enough to read.
const FRAMES_SHOWN_MAX: usize = 6;
/// The longest function name that is shown.
const FRAME_BYTES_MAX: usize = 120;

/// Classifies the error that ended a call.
pub(super) fn classify(error: &wasmtime::Error, state: &CallState, limits: &GuestLimits) -> Failure {
    match error.downcast_ref::<Trap>() {
        Some(Trap::Interrupt) => deadline(limits, &stack(error)),
        Some(Trap::OutOfFuel) => {
            let text =
                format!("used up its {} units of fuel{}: do less, or raise `limits.fuel`", limits.fuel, stack(error));
            Failure::new(FailureClass::OutOfFuel, text)
        }
        Some(trap) => match (state.memory.refused(), &state.panic) {
            (Some(refusal), Some(panic)) => {
                Failure::new(FailureClass::Memory, format!("{}: {panic}", refused(refusal, limits)))
            }
            (Some(refusal), None) => {
                Failure::new(FailureClass::Memory, format!("{}{}", refused(refusal, limits), stack(error)))
            }
            (None, Some(panic)) => Failure::new(FailureClass::Panic, panic.as_str()),
            (None, None) => Failure::new(FailureClass::Trap, format!("{}{}", trapped(*trap), stack(error))),
        },
        None if error.is::<PoolConcurrencyLimitError>() => {
            Failure::new(FailureClass::Host, format!("the pool of guest instances is full: {error}"))
        }
        None => {
            let allowed = limits.output_bytes / 1024;
            let text = format!("the host cannot read what it passed: {error:#}; `limits.output_kib` is {allowed}");
            Failure::new(FailureClass::BadOutput, text)
        }
    }
}

/// The deadline passed, with the guest at `stack` if it was computing.
pub(super) fn deadline(limits: &GuestLimits, stack: &str) -> Failure {
    let text = format!("the flow was not done after {} ms{stack}", limits.deadline.as_millis());
    Failure::new(FailureClass::Deadline, text)
}

/// What was asked for in vain.
pub(super) fn refused(refusal: Refusal, limits: &GuestLimits) -> String {
    match refusal {
        Refusal::Memory { wanted } => {
            format!("asked for {wanted} bytes of memory in all; `limits.memory_mib` allows {}", limits.memory_bytes)
        }
        Refusal::Table { wanted } => {
            format!("asked for a table of {wanted} entries, which is more than the host allows")
        }
    }
}

fn trapped(trap: Trap) -> String {
    match trap {
        Trap::UnreachableCodeReached => {
            "aborted without a message (a panic that the SDK does not report, or an abort)".to_owned()
        }
        Trap::StackOverflow => "used up its stack (a recursion without end?)".to_owned(),
        Trap::MemoryOutOfBounds => {
            "reached outside of its memory (a recursion without end, or one too deep for its stack?)".to_owned()
        }
        // The list is wasmtime's, and grows.
        other => format!("trapped: {other}"),
    }
}

/// Where the guest was, innermost function first: ` in a, called from b, ..`; empty if nothing is known.
fn stack(error: &wasmtime::Error) -> String {
    let Some(backtrace) = error.downcast_ref::<WasmBacktrace>() else { return String::new() };
    let names: Vec<String> = backtrace.frames().iter().filter_map(|frame| frame.func_name().map(demangled)).collect();
    let mut stack = String::new();
    for (index, name) in names.iter().take(FRAMES_SHOWN_MAX).enumerate() {
        stack.push_str(if index == 0 { " in " } else { ", called from " });
        stack.push_str(name);
    }
    if names.len() > FRAMES_SHOWN_MAX {
        stack.push_str(", ..");
    }
    stack
}

/// `{:#}` leaves out the hash that the compiler appends.
fn demangled(name: &str) -> String {
    let mut name = format!("{:#}", rustc_demangle::demangle(name));
    name.truncate(name.floor_char_boundary(FRAME_BYTES_MAX));
    name
}
