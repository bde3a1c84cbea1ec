//! A validator of the part of JSON Schema that docs/json.schema.json is written in: `$ref` into
//! `$defs`, `type`, `properties`, `required`, `additionalProperties`, `items`, `enum`, `anyOf`.
//! Any other word in the schema is an error, so that nothing is thought to be checked that is not.

use serde_json::Value;

/// A schema document.
#[derive(Debug)]
pub struct JsonSchema(Value);

/// Words that say nothing about values.
const TEXTS: [&str; 5] = ["$schema", "$id", "title", "description", "$defs"];

impl JsonSchema {
    /// Reads a document.
    ///
    /// # Panics
    /// If it is no JSON.
    #[track_caller]
    #[must_use]
    pub fn parse(text: &str) -> JsonSchema {
        JsonSchema(serde_json::from_str(text).unwrap_or_else(|e| panic!("schema: {e}")))
    }

    /// The version that the document states in its `$id`.
    #[must_use]
    pub fn id(&self) -> &str {
        self.0["$id"].as_str().unwrap_or_default()
    }

    /// Names of what is defined.
    pub fn definitions(&self) -> impl Iterator<Item = &str> {
        self.0["$defs"].as_object().into_iter().flat_map(|all| all.keys().map(String::as_str))
    }

    /// Errors of a value that should match one of `$defs`; empty if it does.
    #[must_use]
    pub fn errors(&self, definition: &str, value: &Value) -> Vec<String> {
        let mut errors = Vec::new();
        match self.0["$defs"].get(definition) {
            Some(schema) => self.check(schema, value, "", &mut errors),
            None => errors.push(format!("the schema has no {definition}")),
        }
        errors
    }

    fn check(&self, schema: &Value, value: &Value, path: &str, errors: &mut Vec<String>) {
        let Some(words) = schema.as_object() else {
            if schema != &Value::Bool(true) {
                errors.push(format!("{path}: no schema: {schema}"));
            }
            return;
        };
        for (word, of) in words {
            match word.as_str() {
                "$ref" => match of.as_str().and_then(|r| r.strip_prefix("#/$defs/")) {
                    Some(name) if self.0["$defs"].get(name).is_some() => {
                        self.check(&self.0["$defs"][name], value, path, errors);
                    }
                    _ => errors.push(format!("{path}: reference {of} leads nowhere")),
                },
                "type" => check_type(of, value, path, errors),
                "enum" => {
                    if !of.as_array().is_some_and(|all| all.contains(value)) {
                        errors.push(format!("{path}: {value} is none of {of}"));
                    }
                }
                "required" => {
                    let names = of.as_array().into_iter().flatten().filter_map(Value::as_str);
                    let object = value.as_object();
                    let missing = names.filter(|n| object.is_some_and(|o| !o.contains_key(*n)));
                    errors.extend(missing.map(|name| format!("{path}: {name} is missing")));
                }
                "properties" => {
                    for (name, member) in value.as_object().into_iter().flatten() {
                        if let Some(schema) = of.get(name) {
                            self.check(schema, member, &format!("{path}/{name}"), errors);
                        }
                    }
                }
                "additionalProperties" => {
                    let known =
                        |name: &str| words.get("properties").is_some_and(|p| p.get(name).is_some());
                    let members = value.as_object().into_iter().flatten();
                    for (name, member) in members.filter(|(name, _)| !known(name)) {
                        match of {
                            Value::Bool(false) => {
                                errors.push(format!("{path}: {name} is not in the schema"));
                            }
                            schema => self.check(schema, member, &format!("{path}/{name}"), errors),
                        }
                    }
                }
                "items" => {
                    for (n, item) in value.as_array().into_iter().flatten().enumerate() {
                        self.check(of, item, &format!("{path}/{n}"), errors);
                    }
                }
                "anyOf" => {
                    let fits = |schema: &Value| {
                        let mut errors = Vec::new();
                        self.check(schema, value, path, &mut errors);
                        errors.is_empty()
                    };
                    if !of.as_array().into_iter().flatten().any(fits) {
                        errors.push(format!("{path}: {value} is none of what it can be"));
                    }
                }
                text if TEXTS.contains(&text) => {}
                other => errors.push(format!("{path}: the word {other} is not checked")),
            }
        }
    }
}

fn check_type(of: &Value, value: &Value, path: &str, errors: &mut Vec<String>) {
    let is = |name: &Value| match name.as_str().unwrap_or_default() {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        _ => false,
    };
    let fits = match of {
        Value::Array(names) => names.iter().any(is),
        name => is(name),
    };
    if !fits {
        errors.push(format!("{path}: {value} is no {of}"));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_are_checked() {
        let schema = JsonSchema::parse(
            r##"{"$defs": {"row": {"type": "object", "required": ["n"], "additionalProperties": false,
                "properties": {"n": {"type": ["integer", "null"]}, "of": {"$ref": "#/$defs/list"}}},
                "list": {"type": "array", "items": {"enum": ["a", "b"]}},
                "bad": {"maximum": 3}}}"##,
        );
        let errors = |of: &str, value: Value| schema.errors(of, &value).len();
        assert_eq!(errors("row", json!({"n": 1, "of": ["a", "b"]})), 0);
        assert_eq!(errors("row", json!({"n": null})), 0);
        assert_eq!(errors("row", json!({"n": 1.5})), 1);
        assert_eq!(errors("row", json!({"m": 1})), 2);
        assert_eq!(errors("row", json!({"n": 1, "of": ["c", 3]})), 2);
        assert_eq!(errors("row", json!([])), 1);
        assert_eq!((errors("bad", json!(1)), errors("none", json!(1))), (1, 1));
    }
}
