//! Names of the values of the kernel's enumerations, by the name of the type.

use std::sync::{Arc, Mutex};

use rustc_hash::FxHashMap;

/// Values and names of one enumeration.
pub type EnumValues = Vec<(i64, String)>;

/// Reads the values of the enumeration of this name.
type EnumSource = dyn Fn(&str) -> EnumValues + Send + Sync;

/// Names of values, read when a type is first met.
#[derive(Clone, Default)]
pub struct EnumNames {
    source: Option<Arc<EnumSource>>,
    known: Arc<Mutex<FxHashMap<String, EnumValues>>>,
}

impl std::fmt::Debug for EnumNames {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "EnumNames({:?})", self.known)
    }
}

impl EnumNames {
    /// `source` gives the values of an enumeration of this name, none for an unknown one.
    pub fn new(source: impl Fn(&str) -> EnumValues + Send + Sync + 'static) -> EnumNames {
        EnumNames { source: Some(Arc::new(source)), ..EnumNames::default() }
    }

    /// Name of a value of the type of a field, where that is an enumeration that has it.
    pub fn name(&self, type_text: &str, value: i64) -> Option<String> {
        let name = enumeration(type_text)?;
        let source = self.source.as_ref()?;
        let mut known = self.known.lock().ok()?;
        let values = known.entry(name.to_owned()).or_insert_with(|| source(name));
        values.iter().find(|(own, _)| *own == value).map(|(_, name)| name.clone())
    }
}

/// Name of the enumeration that a type text states.
fn enumeration(type_text: &str) -> Option<&str> {
    let text = type_text.strip_prefix("const ").unwrap_or(type_text);
    let name = text.strip_prefix("enum ")?.trim();
    (!name.is_empty() && !name.contains(['*', '['])).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_named_by_type() {
        let names = EnumNames::new(|name| match name {
            "rule" => vec![(1, "RULE_PATH".to_owned()), (2, "RULE_PORT".to_owned())],
            _ => Vec::new(),
        });
        assert_eq!(names.name("const enum rule", 2).unwrap(), "RULE_PORT");
        assert_eq!(names.name("enum rule", 3), None);
        assert_eq!(names.name("enum rule *", 1), None);
        assert_eq!(names.name("enum other", 1), None);
        assert_eq!(names.name("int", 1), None);
        assert_eq!(EnumNames::default().name("enum rule", 1), None);
    }
}
