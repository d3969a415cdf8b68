//! The product as its users meet it: the real binary, real guests, real stores, HTTP on loopback.
