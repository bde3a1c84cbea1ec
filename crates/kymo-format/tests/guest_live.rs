//! Runs the tests of `live` against the guest's kernel, an older one.

#[path = "live/main.rs"]
mod live;
