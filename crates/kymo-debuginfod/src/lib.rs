//! A client of debuginfod servers: debug files, binaries and sources by build-id. It speaks
//! HTTP/1.1 by the crate `ureq`, through the proxies that the environment names, keeps what came in
//! the cache that libdebuginfod uses, and is configured by the same variables. It never waits
//! longer than those say, and every failure is kept for the caller ([`Client::report`]): a server
//! may hang, redirect, lie or be gone, and the caller continues without the file.
//!
//! What a file must be to be taken is for the caller to say.
#![forbid(unsafe_code)]

mod cache;
mod client;
mod env;
mod error;
mod request;

pub use client::{Artifact, Check, Client, OnProgress, Progress, Report};
pub use env::ClientConfig;
pub use error::FetchError;
