//! The command `strandline`.
fn main() {}
