//! Build, test and bench tasks.
fn main() {}
