//! The Firefox Profiler's processed profile, as `src/types/profile.ts` and
//! `docs-developer/CHANGELOG-formats.md` of github.com/firefox-devtools/profiler
//! describe version 55. (Its own upgrade to version 70 was run over such files by
//! hand, and found the same stacks.)

use serde_json::Value;

use super::Folded;

fn column<'a>(table: &'a Value, name: &str) -> &'a Vec<Value> {
    let column = table[name].as_array().unwrap_or_else(|| panic!("no column {name}"));
    assert_eq!(column.len() as u64, table["length"].as_u64().unwrap(), "length of {name}");
    column
}

/// An index into a table, or none.
fn index(value: &Value, length: usize) -> Option<usize> {
    if value.is_null() {
        return None;
    }
    let n = value.as_u64().unwrap() as usize;
    assert!(n < length, "{n} of {length}");
    Some(n)
}

/// All stacks of all threads, with nanoseconds, or counts of what has no duration.
pub(crate) fn read(bytes: &[u8]) -> Folded {
    let profile: Value = serde_json::from_slice(bytes).unwrap();
    let meta = &profile["meta"];
    assert_eq!(meta["preprocessedProfileVersion"], 55);
    for key in ["interval", "startTime", "processType", "product", "version"] {
        assert!(!meta[key].is_null(), "{key}");
    }
    for key in ["categories", "markerSchema"] {
        assert!(meta[key].is_array(), "{key}");
    }
    let categories = meta["categories"].as_array().unwrap();
    let libraries = profile["libs"].as_array().unwrap();
    for lib in libraries {
        for key in ["name", "path", "debugName", "debugPath", "breakpadId"] {
            assert!(lib[key].is_string(), "{key} of {lib}");
        }
    }
    let mut folded = Folded::new();
    for thread in profile["threads"].as_array().unwrap() {
        read_thread(thread, libraries.len(), categories.len(), &mut folded);
    }
    folded
}

fn read_thread(thread: &Value, libraries: usize, categories: usize, folded: &mut Folded) {
    let keys = ["processType", "name", "isMainThread", "pid", "tid", "registerTime", "markers"];
    for key in keys {
        assert!(!thread[key].is_null(), "{key}");
    }
    assert!(thread["pid"].is_string() && thread["tid"].is_number());
    let texts = thread["stringArray"].as_array().unwrap();
    let (functions, frames) = (&thread["funcTable"], &thread["frameTable"]);
    let (stacks, resources) = (&thread["stackTable"], &thread["resourceTable"]);
    let names = column(functions, "name");
    for (name, resource) in names.iter().zip(column(functions, "resource")) {
        assert!(index(name, texts.len()).is_some());
        if resource.as_i64() != Some(-1) {
            assert!(index(resource, column(resources, "lib").len()).is_some());
        }
    }
    for name in ["isJS", "relevantForJS", "fileName", "lineNumber", "columnNumber"] {
        let _ = column(functions, name);
    }
    for (lib, name) in column(resources, "lib").iter().zip(column(resources, "name")) {
        assert!(index(lib, libraries).is_some() && index(name, texts.len()).is_some());
    }
    let funcs = column(frames, "func");
    for category in column(frames, "category") {
        assert!(index(category, categories).is_some());
    }
    for name in ["address", "inlineDepth", "subcategory", "nativeSymbol", "innerWindowID", "line"] {
        let _ = column(frames, name);
    }
    let prefix = column(stacks, "prefix");
    let mut paths: Vec<String> = Vec::new();
    for (number, frame) in column(stacks, "frame").iter().enumerate() {
        let func = index(&funcs[index(frame, funcs.len()).unwrap()], names.len()).unwrap();
        let name = texts[index(&names[func], texts.len()).unwrap()].as_str().unwrap();
        // Parents come before their children.
        let above =
            index(&prefix[number], number).map_or(thread["name"].as_str().unwrap(), |p| &paths[p]);
        paths.push(format!("{above};{name}"));
    }
    let samples = &thread["samples"];
    let unit = match samples["weightType"].as_str().unwrap() {
        "tracing-ms" => 1e6,
        "samples" => 1.0,
        other => panic!("{other} is not typed"),
    };
    let deltas = column(samples, "timeDeltas");
    assert!(deltas.iter().all(|d| d.as_f64().unwrap() >= 0.0));
    for (stack, weight) in column(samples, "stack").iter().zip(column(samples, "weight")) {
        let stack = index(stack, paths.len()).unwrap();
        let weight = (weight.as_f64().unwrap() * unit).round() as u64;
        *folded.entry(paths[stack].clone()).or_default() += weight;
    }
}
