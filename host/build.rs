//! Tells cargo that the migrations are part of the binary: a new file would not be noticed otherwise.

fn main() {
    println!("cargo:rerun-if-changed=../migrations");
}
