//! The same as `live`, against the guest's kernel, an older one.

#[path = "live/main.rs"]
mod live;
