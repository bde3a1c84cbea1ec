//! The JSON Schema and the reference page of answers, from their columns.

use std::fmt::Write as _;

use serde_json::{Map, Value, json};

use crate::{Column, ColumnSet, ColumnType};

/// Definition of an answer.
pub struct AnswerSchema {
    /// Name in the schema: `kwork_report`.
    pub name: &'static str,
    /// Commands that print it.
    pub commands: &'static str,
    /// Introduction of its section in the reference.
    pub documentation: &'static str,
    /// Whether there is an object for each row, a line each, instead of one for all.
    pub is_lines: bool,
    columns: Vec<Column>,
    /// Columns of other kinds of rows.
    others: Vec<Vec<Column>>,
}

impl AnswerSchema {
    /// Columns of one of its tables.
    pub fn table(&self, name: &str) -> &[Column] {
        match self.columns.iter().find(|c| c.name == name).map(|c| &c.of) {
            Some(ColumnType::Table(columns)) => columns,
            _ => &[],
        }
    }

    /// Names and columns of its tables.
    pub fn tables(&self) -> impl Iterator<Item = (&str, &[Column])> {
        self.columns.iter().filter_map(|column| match &column.of {
            ColumnType::Table(columns) => Some((&*column.name, &**columns)),
            _ => None,
        })
    }

    /// Words of the commands that print it, without `kymo` and `--json`: `lock contention`.
    pub fn command_words(&self) -> Vec<Vec<&'static str>> {
        let words = |command: &'static str| {
            let words = command.split(' ').filter(|word| !["kymo", "--json"].contains(word));
            words.collect::<Vec<_>>()
        };
        let mut commands: Vec<Vec<&str>> = self.commands.split(", ").map(words).collect();
        // `kymo lock contention --json, report --json`: both are of one group.
        if let Some((first, others)) = commands.split_first_mut()
            && let Some(group) = first.first()
        {
            others.iter_mut().for_each(|words| words.insert(0, *group));
        }
        commands
    }

    /// Number of words with which a command line names the command that prints it, if it does:
    /// `lock contention --futex` names `kymo lock contention --futex --json` with three.
    pub fn named_by(&self, words: &[String]) -> Option<usize> {
        let is_named = |own: &Vec<&str>| {
            let (flags, names): (Vec<&str>, Vec<&str>) =
                own.iter().partition(|w| w.starts_with('-'));
            names.len() <= words.len()
                && names.iter().zip(words).all(|(one, two)| *one == two.as_str())
                && flags.iter().all(|flag| words.iter().any(|word| word == flag))
        };
        self.command_words().iter().filter(|own| is_named(own)).map(Vec::len).max()
    }

    /// The definition of an answer with these columns.
    pub fn of<'a, R: 'a, C: 'a>(
        name: &'static str,
        commands: &'static str,
        documentation: &'static str,
        columns: ColumnSet<'a, R, C>,
    ) -> AnswerSchema {
        let columns = columns.columns;
        AnswerSchema { name, commands, documentation, is_lines: false, columns, others: Vec::new() }
    }

    /// Declares the answer as a stream of rows.
    #[must_use]
    pub fn lines(mut self) -> AnswerSchema {
        self.is_lines = true;
        self
    }

    /// Adds rows of another kind to a stream.
    #[must_use]
    pub fn or<'a, R: 'a, C: 'a>(mut self, columns: ColumnSet<'a, R, C>) -> AnswerSchema {
        self.others.push(columns.columns);
        self
    }

    /// Definition for `$defs`.
    pub fn to_json(&self) -> Value {
        let mut definition = object(&self.columns);
        if !self.others.is_empty() {
            let others = self.others.iter().map(|columns| object(columns));
            let all: Vec<Value> = std::iter::once(definition).chain(others).collect();
            definition = json!({"anyOf": all});
        }
        let line = if self.is_lines { ", a line" } else { "" };
        definition["description"] = format!("{}{line}", self.commands).into();
        definition
    }

    /// Section of the reference page.
    pub fn to_markdown(&self) -> String {
        let what = if self.is_lines { "One object per line" } else { "One object" };
        let mut text = format!("{what}. {}\n", self.documentation);
        write_members(&mut text, &self.columns);
        self.others.iter().for_each(|columns| write_members(&mut text, columns));
        text
    }
}

fn object(columns: &[Column]) -> Value {
    let mut members: Map<String, Value> = Map::new();
    let mut required: Vec<&str> = Vec::new();
    let mut rest = columns;
    while let Some((first, after)) = rest.split_first() {
        let Some((group, _)) = first.name.split_once('.') else {
            members.insert(first.name.to_string(), of_column(first));
            required.extend((!first.optional && !first.is_detail).then_some(first.name.as_ref()));
            rest = after;
            continue;
        };
        let (part, after) = group_members(rest, group);
        members.insert(group.to_owned(), object(&part));
        required.push(group);
        rest = after;
    }
    required.sort_unstable();
    json!({"type": "object", "required": required, "properties": members})
}

/// Members of the group that the columns begin with, under their own names, and the columns after.
fn group_members<'c>(columns: &'c [Column], group: &str) -> (Vec<Column>, &'c [Column]) {
    let own = |c: &Column| Some(c.name.strip_prefix(group)?.strip_prefix('.')?.to_owned());
    let part = columns.iter().map_while(|c| Some(Column { name: own(c)?.into(), ..c.clone() }));
    let part: Vec<Column> = part.collect();
    let after = columns.get(part.len()..).unwrap_or_default();
    (part, after)
}

fn of_column(column: &Column) -> Value {
    let nullable = column.nullable && !column.optional;
    let mut schema = of_type(&column.of);
    if !nullable {
        return schema;
    }
    match (&column.of, schema["type"].take()) {
        (ColumnType::Record(_) | ColumnType::Word(_), Value::Null) => {
            schema = json!({"anyOf": [{"type": "null"}, of_type(&column.of)]});
        }
        (_, name) => schema["type"] = json!([name, "null"]),
    }
    schema
}

fn of_type(of: &ColumnType) -> Value {
    match of {
        ColumnType::Integer => json!({"type": "integer"}),
        ColumnType::Number => json!({"type": "number"}),
        ColumnType::Boolean => json!({"type": "boolean"}),
        ColumnType::Text => json!({"type": "string"}),
        ColumnType::Word(words) => json!({"enum": words}),
        ColumnType::List(of) => json!({"type": "array", "items": of_type(of)}),
        ColumnType::Map(of) => json!({"type": "object", "additionalProperties": of_type(of)}),
        ColumnType::Table(columns) => json!({"type": "array", "items": object(columns)}),
        ColumnType::Record(columns) => object(columns),
    }
}

fn write_members(text: &mut String, columns: &[Column]) {
    text.push_str("\n| member | type | meaning |\n|---|---|---|\n");
    // Sections of what is within, each set of members once.
    let mut within: Vec<(Vec<String>, Vec<Column>)> = Vec::new();
    let mut note = |name: &str, part: Vec<Column>| match within.iter_mut().find(|(_, p)| *p == part)
    {
        Some((names, _)) => names.push(name.to_owned()),
        None => within.push((vec![name.to_owned()], part)),
    };
    let mut rest = columns;
    while let Some((first, after)) = rest.split_first() {
        let Some((group, _)) = first.name.split_once('.') else {
            let _ = writeln!(
                text,
                "| `{}` | {} | {} |",
                first.name,
                type_words(first),
                first.documentation
            );
            if let ColumnType::Table(part) | ColumnType::Record(part) = &first.of {
                note(&first.name, part.clone());
            }
            rest = after;
            continue;
        };
        let (mut part, after) = group_members(rest, group);
        part.iter_mut().for_each(|c| c.group = None);
        let _ = writeln!(text, "| `{group}` | object | {} |", first.group.unwrap_or_default());
        note(group, part);
        rest = after;
    }
    for (names, part) in within {
        let names: Vec<String> = names.iter().map(|n| format!("`{n}`")).collect();
        let _ = write!(text, "\n{}:\n", names.join(", "));
        write_members(text, &part);
    }
}

fn type_words(column: &Column) -> String {
    let words = match &column.of {
        ColumnType::Integer => "integer".to_owned(),
        ColumnType::Number => "number".to_owned(),
        ColumnType::Boolean => "boolean".to_owned(),
        ColumnType::Text => "string".to_owned(),
        ColumnType::Word(words) => {
            words.iter().map(|w| format!("`{w}`")).collect::<Vec<_>>().join(", ")
        }
        ColumnType::List(_) | ColumnType::Table(_) => "array".to_owned(),
        ColumnType::Map(_) | ColumnType::Record(_) => "object".to_owned(),
    };
    match (column.optional, column.nullable) {
        _ if column.is_detail => format!("{words}, with `--columns`"),
        (true, _) => format!("{words}, or left out"),
        (_, true) => format!("{words} or null"),
        _ => words,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schema_and_reference_follow_from_columns() {
        let times = || ColumnSet::new().sum("count", "number", |n: &u64, ()| *n);
        let columns = ColumnSet::new()
            .key("kind", "its kind", |_: &u64, ()| "irq")
            .of(&["irq", "softirq"])
            .measure("id", "its number", |n, ()| Some(*n))
            .measure("path", "its path", |_, ()| None::<String>)
            .left_out()
            .group("a", "first times", times(), |n, ()| n)
            .group("b", "second times", times(), |n, ()| n)
            .record("longest", "the longest", times(), |_, (), _| {});
        let schema = AnswerSchema::of("x", "kymo x --json", "About x.", columns);
        let object = json!({
            "type": "object", "required": ["count"], "properties": {"count": {"type": "integer"}}
        });
        let expected = json!({
            "description": "kymo x --json",
            "type": "object",
            "required": ["a", "b", "id", "kind", "longest"],
            "properties": {
                "kind": {"enum": ["irq", "softirq"]},
                "id": {"type": ["integer", "null"]},
                "path": {"type": "string"},
                "a": object, "b": object,
                "longest": {"type": ["object", "null"], "required": ["count"],
                    "properties": {"count": {"type": "integer"}}},
            },
        });
        assert_eq!(schema.to_json(), expected);
        let text = schema.to_markdown();
        assert!(text.starts_with("One object. About x.\n\n| member |"), "{text}");
        assert!(text.contains("| `id` | integer or null | its number |"), "{text}");
        assert!(text.contains("| `path` | string, or left out | its path |"), "{text}");
        assert_eq!(text.matches("| `count` | integer | number |").count(), 1, "{text}");
        assert!(text.contains("\n`a`, `b`, `longest`:\n"), "{text}");
    }
}
