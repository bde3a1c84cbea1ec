//! Any text as perf's configuration file: what is read is read again after a variable was set,
//! with no other difference.
#![no_main]

use kymo_files::perf_config::{ConfigVariables, normal_key, set_variable};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let before = ConfigVariables::parse(data);
    // The key and the value are of the input, too.
    let text = String::from_utf8_lossy(data);
    let mut lines = text.lines().rev();
    let (key, value) = (lines.next().unwrap_or("a.b"), lines.next().unwrap_or_default());
    let Ok(changed) = set_variable(data, key, value) else { return };
    let after = ConfigVariables::parse(&changed);
    assert_eq!(after.mistake, None);
    let is_set = |variable: &&_| {
        let variable: &kymo_files::perf_config::ConfigVariable = variable;
        variable.key == normal_key(key)
    };
    let last = after.variables.iter().rev().find(is_set);
    assert_eq!(last.map(|variable| variable.value.as_str()), Some(value));
    let others = |read: &ConfigVariables| {
        let others = read.variables.iter().filter(|variable| !is_set(variable));
        others.map(|variable| (variable.key.clone(), variable.value.clone())).collect::<Vec<_>>()
    };
    assert_eq!(others(&after), others(&before));
});
