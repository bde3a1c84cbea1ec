//! The ledger of a result for programs: one JSON object on standard error.

use serde_json::{Value, json};

/// Notes that a command reported on its standard error; none if it reported none.
///
/// # Panics
///
/// If there is more than one ledger.
#[track_caller]
#[must_use]
pub fn ledger_of(stderr: &str) -> Value {
    let objects = stderr.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let mut ledgers = objects.filter_map(|mut object| object.get_mut("ledger").map(Value::take));
    let ledger = ledgers.next().unwrap_or_else(|| json!([]));
    assert!(ledgers.next().is_none(), "two ledgers: {stderr}");
    ledger
}

/// The object that is the result, with its ledger as one member more.
///
/// # Panics
/// If the result is no JSON object, or has a ledger within it.
#[track_caller]
#[must_use]
pub fn page_with_ledger(stdout: &str, stderr: &str) -> Value {
    let page = serde_json::from_str::<Value>(stdout);
    let mut page = page.unwrap_or_else(|e| panic!("{e}: {stdout}\n{stderr}"));
    let Some(members) = page.as_object_mut() else { panic!("no object: {stdout}") };
    let before = members.insert("ledger".to_owned(), ledger_of(stderr));
    assert!(before.is_none(), "a ledger in the result: {stdout}");
    page
}
