//! speedscope's format, as `src/lib/file-format-spec.ts` of
//! github.com/jlfwong/speedscope types it.

use serde_json::Value;

use super::Folded;

fn only(object: &Value, required: &[&str], optional: &[&str]) {
    let keys = object.as_object().unwrap().keys();
    for key in keys {
        assert!(required.contains(&&**key) || optional.contains(&&**key), "{key} is not typed");
    }
    for key in required {
        assert!(object.get(key).is_some(), "{key} is missing");
    }
}

/// Stacks of each profile in the file, whose names begin with the task's.
pub(crate) fn read(bytes: &[u8]) -> Vec<Folded> {
    let file: Value = serde_json::from_slice(bytes).unwrap();
    only(&file, &["$schema", "shared", "profiles"], &["name", "activeProfileIndex", "exporter"]);
    assert_eq!(file["$schema"], "https://www.speedscope.app/file-format-schema.json");
    only(&file["shared"], &["frames"], &[]);
    let frames: Vec<&str> = file["shared"]["frames"]
        .as_array()
        .unwrap()
        .iter()
        .map(|f| {
            only(f, &["name"], &["file", "line", "col"]);
            f["name"].as_str().unwrap()
        })
        .collect();
    file["profiles"].as_array().unwrap().iter().map(|p| profile(p, &frames)).collect()
}

fn profile(profile: &Value, frames: &[&str]) -> Folded {
    let keys = ["type", "name", "unit", "startValue", "endValue", "samples", "weights"];
    only(profile, &keys, &[]);
    assert_eq!(profile["type"], "sampled");
    let units = ["none", "nanoseconds", "microseconds", "milliseconds", "seconds", "bytes"];
    assert!(units.contains(&profile["unit"].as_str().unwrap()));
    let list = |key: &str| profile[key].as_array().unwrap();
    assert_eq!(list("samples").len(), list("weights").len(), "a weight for each sample");
    let weights = list("weights").iter().map(|w| w.as_u64().unwrap());
    let length = profile["endValue"].as_u64().unwrap() - profile["startValue"].as_u64().unwrap();
    assert_eq!(weights.clone().sum::<u64>(), length);
    let comm = profile["name"].as_str().unwrap().rsplit_once('-').unwrap().0;
    let mut folded = Folded::new();
    for (stack, weight) in list("samples").iter().zip(weights) {
        let mut names = vec![comm];
        let stack = stack.as_array().unwrap().iter();
        names.extend(stack.map(|f| frames[f.as_u64().unwrap() as usize]));
        *folded.entry(names.join(";")).or_default() += weight;
    }
    folded
}
