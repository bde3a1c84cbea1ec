//! Programs that use the crates `log` and `tracing`: what they say is in the trace.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use common::{Shared, config, is_role};
use kymo_testkit::{Need, require};
use kymo_tracepoint::log_records::Logger;
use kymo_tracepoint::spans::SpanLayer;
use tracing_subscriber::layer::SubscriberExt as _;

#[test]
fn records_events_and_spans_are_in_the_trace() {
    if is_role() {
        log::set_logger(Box::leak(Box::new(Logger::before(log::logger())))).unwrap();
        log::set_max_level(log::LevelFilter::Trace);
        log::warn!(target: "shop", "{} left", 3);
        log::trace!("not asked for");
        let subscriber = tracing_subscriber::registry().with(SpanLayer);
        tracing::subscriber::with_default(subscriber, || {
            let _span = tracing::info_span!("request", path = "/cart", n = 7).entered();
            tracing::error!(code = 5, "it broke");
        });
        return;
    }
    if !require(&[Need::Babeltrace]) {
        return;
    }
    let shared = Shared::new();
    let mut config = config("*", "");
    config.rules[0].max_level = 6;
    shared.want("s", &config);
    let mut command = shared.program("records_events_and_spans_are_in_the_trace");
    assert!(command.status().unwrap().success());
    let lines = shared.programs()[0].babeltrace(0, 1);
    let line = env!("CARGO_CRATE_NAME");
    let has = |event: &str, parts: &[&str]| {
        let found = lines.iter().filter(|l| l.contains(&format!(" {event}: ")));
        let found: Vec<_> = found.collect();
        assert_eq!(found.len(), 1, "{event}: {lines:#?}");
        for part in parts {
            assert!(found[0].contains(part), "{part}: {}", found[0]);
        }
    };
    has("log:warn", &["target = \"shop\", message = \"3 left\"", "tests/crates.rs\", line = 1"]);
    has("tracing:span_new", &["span = 1, parent = 0, name = \"request\"", "n=7", "path=\\\"/cart"]);
    has("tracing:span_enter", &["span = 1 "]);
    has(
        "tracing:error",
        &["span = 1, target = ", line, "message = \"it broke\", fields = \"code=5\""],
    );
    has("tracing:span_exit", &["span = 1 "]);
    has("tracing:span_close", &["span = 1 "]);
    assert_eq!(lines.len(), 6);
}
