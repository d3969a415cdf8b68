//! The contract of `wit/`, as the engine sees it: generated.

#![allow(missing_docs, unreachable_pub, reason = "generated from wit/, which is documented")]

wasmtime::component::bindgen!({
    path: "../wit",
    world: "connector",
    exports: { default: async },
});
