//! Baselines: the sums of the runs of one side as JSON, without stacks, so that they are small
//! enough to be kept in a repository.

use serde_json::{Value, json};

use crate::comparison::MeasureKind;
use crate::sums::{FunctionKey, FunctionSum, RunSums};

/// Value of `format` in a baseline.
const FORMAT: &str = "kymo-baseline";
/// Version of the layout.
const VERSION: u64 = 1;
/// Most runs and functions that are read: a file may claim any number.
const MOST: usize = 1_000_000;

/// A file is not a baseline that can be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BaselineError {
    /// Not JSON.
    #[error("not JSON: {0}")]
    Json(String),
    /// Not a baseline, or of another version.
    #[error("not a baseline of version {VERSION}")]
    Version,
    /// A part is missing or of another type.
    #[error("`{0}` is missing or not of its type")]
    Part(&'static str),
}

/// Runs of a quantity of one side.
type SideRuns = (MeasureKind, String, &'static str, Vec<RunSums>);

/// The runs of each quantity: kind, name, unit, runs; and the unit of work that they are per.
pub fn baseline_json(
    per: &str,
    quantities: &[(MeasureKind, &str, &'static str, &[RunSums])],
) -> Value {
    let quantities = quantities.iter().map(|(kind, name, unit, runs)| {
        let mut functions: Vec<&FunctionKey> =
            runs.iter().flat_map(|run| run.functions().map(|(key, _)| key)).collect();
        functions.sort();
        functions.dedup();
        let number = |key: &FunctionKey| functions.binary_search(&key).unwrap_or(0);
        let of_run = |run: &RunSums| {
            let mut sums: Vec<Value> = run
                .functions()
                .map(|(key, s)| {
                    json!([
                        number(key),
                        s.own,
                        s.total,
                        s.own_samples,
                        s.total_samples,
                        s.inlined_samples
                    ])
                })
                .collect();
            sums.sort_by_key(|sum| sum.get(0).and_then(Value::as_u64));
            json!({"work": run.work, "whole": run.whole, "samples": run.samples, "sums": sums})
        };
        json!({
            "kind": kind_code(*kind),
            "name": name,
            "unit": unit,
            "functions": functions.iter().map(|f| json!([f.name, f.binary])).collect::<Vec<_>>(),
            "runs": runs.iter().map(of_run).collect::<Vec<_>>(),
        })
    });
    json!({
        "format": FORMAT,
        "version": VERSION,
        "per": per,
        "quantities": quantities.collect::<Vec<_>>(),
    })
}

/// Reads a baseline: the unit of work, and the runs of each quantity.
///
/// # Errors
/// If it is not one.
pub fn read_baseline(text: &str, name: &str) -> Result<(String, Vec<SideRuns>), BaselineError> {
    let value: Value =
        serde_json::from_str(text).map_err(|e| BaselineError::Json(e.to_string()))?;
    let is_ours = value.get("format").and_then(Value::as_str) == Some(FORMAT)
        && value.get("version").and_then(Value::as_u64) == Some(VERSION);
    if !is_ours {
        return Err(BaselineError::Version);
    }
    let per = text_of(&value, "per")?;
    let quantities = list_of(&value, "quantities")?;
    let read = quantities.iter().map(|q| quantity(q, name)).collect::<Result<_, _>>()?;
    Ok((per.to_owned(), read))
}

fn quantity(value: &Value, name: &str) -> Result<SideRuns, BaselineError> {
    let kind = match text_of(value, "kind")? {
        "samples" => MeasureKind::Samples,
        "off-cpu" => MeasureKind::OffCpu,
        "count" => MeasureKind::Count,
        _ => return Err(BaselineError::Part("kind")),
    };
    let unit = match text_of(value, "unit")? {
        "nanoseconds" => "nanoseconds",
        "bytes" => "bytes",
        _ => "count",
    };
    let key = |pair: &Value| {
        let part = |at: usize| pair.get(at).and_then(Value::as_str).map(str::to_owned);
        let key = part(0).zip(part(1)).map(|(name, binary)| FunctionKey { name, binary });
        key.ok_or(BaselineError::Part("functions"))
    };
    let functions: Vec<FunctionKey> =
        list_of(value, "functions")?.iter().map(key).collect::<Result<_, _>>()?;
    let runs = list_of(value, "runs")?.iter().enumerate();
    let runs = runs.map(|(n, run)| read_run(run, &functions, format!("{name}, run {}", n + 1)));
    Ok((kind, text_of(value, "name")?.to_owned(), unit, runs.collect::<Result<_, _>>()?))
}

fn read_run(
    value: &Value,
    functions: &[FunctionKey],
    name: String,
) -> Result<RunSums, BaselineError> {
    let work = number_of(value.get("work"), "work")?;
    if work <= 0.0 {
        return Err(BaselineError::Part("work"));
    }
    let mut run = RunSums::new(name, work);
    run.whole = number_of(value.get("whole"), "whole")?;
    run.samples =
        value.get("samples").and_then(Value::as_u64).ok_or(BaselineError::Part("samples"))?;
    for sum in list_of(value, "sums")? {
        let count =
            |at: usize| sum.get(at).and_then(Value::as_u64).ok_or(BaselineError::Part("sums"));
        let number = usize::try_from(count(0)?).map_err(|_| BaselineError::Part("sums"))?;
        let key = functions.get(number).ok_or(BaselineError::Part("sums"))?;
        let sums = FunctionSum {
            own: number_of(sum.get(1), "sums")?,
            total: number_of(sum.get(2), "sums")?,
            own_samples: count(3)?,
            total_samples: count(4)?,
            inlined_samples: count(5)?,
        };
        run.set_sum(key.clone(), sums);
    }
    Ok(run)
}

fn text_of<'a>(value: &'a Value, part: &'static str) -> Result<&'a str, BaselineError> {
    value.get(part).and_then(Value::as_str).ok_or(BaselineError::Part(part))
}

fn list_of<'a>(value: &'a Value, part: &'static str) -> Result<&'a [Value], BaselineError> {
    let list = value.get(part).and_then(Value::as_array).ok_or(BaselineError::Part(part))?;
    if list.len() > MOST { Err(BaselineError::Part(part)) } else { Ok(list) }
}

fn number_of(value: Option<&Value>, part: &'static str) -> Result<f64, BaselineError> {
    let number = value.and_then(Value::as_f64).filter(|n| n.is_finite() && *n >= 0.0);
    number.ok_or(BaselineError::Part(part))
}

/// Code of a kind for programs.
fn kind_code(kind: MeasureKind) -> &'static str {
    match kind {
        MeasureKind::Samples => "samples",
        MeasureKind::OffCpu => "off-cpu",
        MeasureKind::Count => "count",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sums::StackFrameKey;

    #[test]
    fn a_baseline_is_read_as_it_was_written() {
        let mut run = RunSums::new("a", 2.0);
        let function = run.function(FunctionKey::new("f", "a", false));
        run.add_stack(&[StackFrameKey { function, is_inlined: true }], 12.5, 3);
        let runs = [run];
        let quantities = [(MeasureKind::Samples, "cpu-clock", "nanoseconds", &runs[..])];
        let text = baseline_json("run", &quantities).to_string();
        let (per, read) = read_baseline(&text, "b").expect("a baseline");
        let (kind, name, unit, read) = &read[0];
        assert_eq!(
            (per.as_str(), *kind, name.as_str(), *unit),
            ("run", MeasureKind::Samples, "cpu-clock", "nanoseconds")
        );
        assert_eq!((read[0].whole, read[0].samples, read[0].work), (12.5, 3, 2.0));
        let sums: Vec<_> = read[0].functions().map(|(k, s)| (k.name.clone(), *s)).collect();
        let sum = FunctionSum {
            own: 12.5,
            total: 12.5,
            own_samples: 3,
            total_samples: 3,
            inlined_samples: 3,
        };
        assert_eq!(sums, [("f".to_owned(), sum)]);
    }

    #[test]
    fn damaged_baselines_are_refused() {
        let head = r#"{"format":"kymo-baseline","version":1,"per":"run","quantities":"#;
        for (text, error) in [
            ("", BaselineError::Json("EOF while parsing a value at line 1 column 0".into())),
            ("{}", BaselineError::Version),
            (&format!("{head}3}}"), BaselineError::Part("quantities")),
            (&format!("{head}[{{}}]}}"), BaselineError::Part("kind")),
            (
                &format!(
                    r#"{head}[{{"kind":"count","name":"x","unit":"y","functions":[],"runs":[{{"work":1,"whole":1,"samples":1,"sums":[[7,1,1,1,1,1]]}}]}}]}}"#
                ),
                BaselineError::Part("sums"),
            ),
            (
                &format!(
                    r#"{head}[{{"kind":"count","name":"x","unit":"y","functions":[],"runs":[{{"work":0,"whole":1,"samples":1,"sums":[]}}]}}]}}"#
                ),
                BaselineError::Part("work"),
            ),
        ] {
            assert_eq!(read_baseline(text, "b").err(), Some(error), "{text}");
        }
    }
}
