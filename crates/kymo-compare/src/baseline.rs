//! Baselines: the sums of the runs of one side as a Parquet table, without stacks and source paths,
//! so that they are small enough to be kept in a repository.

use kymo_parquet::{ParquetTable, ReadTableError, WriteTableError, table_to_parquet};
use kymo_table::{Answer, ColumnSet};
use rustc_hash::FxHashMap;

use crate::comparison::MeasureKind;
use crate::sums::{FunctionKey, FunctionSum, RunSums};

/// Name of the table.
const TABLE: &str = "baseline";
/// Key of the unit of work in the metadata.
const PER: &str = "kymo.per";

/// A file is not a baseline that can be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BaselineError {
    /// Not a table that can be read.
    #[error("not a baseline: {0}")]
    Table(ReadTableError),
    /// A value is missing or out of range.
    #[error("not a baseline: `{part}` of row {row} is missing or out of range")]
    Value {
        /// Column.
        part: &'static str,
        /// Row, from 0.
        row: usize,
    },
    /// The unit of work is not in the metadata.
    #[error("not a baseline: `{PER}` is not in its metadata")]
    Per,
}

/// Runs of a quantity of one side.
type SideRuns = (MeasureKind, String, &'static str, Vec<RunSums>);

/// Quantity of a baseline: kind, name, unit, runs.
type Quantity<'a> = (MeasureKind, &'a str, &'static str, &'a [RunSums]);

/// Row: a run as a whole, or a function in it.
struct BaselineRow<'a> {
    kind: MeasureKind,
    quantity: &'a str,
    unit: &'static str,
    number: usize,
    run: &'a RunSums,
    function: Option<(&'a FunctionKey, &'a FunctionSum)>,
}

fn rows<'a>() -> ColumnSet<'a, BaselineRow<'a>> {
    ColumnSet::new()
        .key("kind", "Kind of the quantity.", |r: &BaselineRow<'_>, ()| kind_code(r.kind))
        .of(&["samples", "off-cpu", "count"])
        .key("quantity", "Event that was sampled, or name of the count.", |r, ()| {
            r.quantity.to_owned()
        })
        .key("unit", "Unit of the values: nanoseconds, bytes or count.", |r, ()| r.unit)
        .key("run", "Number of the run, from 1.", |r, ()| r.number)
        .measure("work", "Units of work of the run.", |r, ()| r.run.work)
        .key("function", "Function; null in the row of the run as a whole.", |r, ()| {
            r.function.map(|(key, _)| key.name.clone())
        })
        .key("binary", "Binary of the function, without its version.", |r, ()| {
            r.function.map(|(key, _)| key.binary.clone())
        })
        .sum("self_value", "Weight of the samples in the function.", |r, ()| {
            r.function.map(|(_, sum)| sum.own)
        })
        .measure("total_value", "Weight of the samples in it and in its callees.", |r, ()| {
            r.function.map_or(r.run.whole, |(_, sum)| sum.total)
        })
        .sum("self_samples", "Samples in the function.", |r, ()| {
            r.function.map(|(_, sum)| sum.own_samples)
        })
        .measure("total_samples", "Samples in it and in its callees.", |r, ()| {
            r.function.map_or(r.run.samples, |(_, sum)| sum.total_samples)
        })
        .measure("inlined_samples", "Samples in inlined copies of the function.", |r, ()| {
            r.function.map(|(_, sum)| sum.inlined_samples)
        })
}

fn answer<'a>(quantities: &[Quantity<'a>]) -> Answer {
    let mut all: Vec<BaselineRow<'a>> = Vec::new();
    for (kind, quantity, unit, runs) in quantities {
        for (n, run) in runs.iter().enumerate() {
            let (kind, number) = (*kind, n + 1);
            let of = |function| BaselineRow { kind, quantity, unit, number, run, function };
            all.push(of(None));
            let mut functions: Vec<_> = run.functions().collect();
            functions.sort_by_key(|(key, _)| *key);
            all.extend(functions.into_iter().map(|function| of(Some(function))));
        }
    }
    let each = |all: &Vec<BaselineRow<'a>>, (): &(), row: &mut dyn FnMut(&BaselineRow<'a>)| {
        all.iter().for_each(row);
    };
    Answer::of(TABLE, ColumnSet::new().table(TABLE, "", rows(), each), &all, &())
}

/// Encodes the runs of each quantity: kind, name, unit, runs; and the unit of work that they are
/// per.
///
/// # Errors
/// If a sum is beyond what Parquet's integers hold.
pub fn baseline_to_parquet(
    per: &str,
    quantities: &[Quantity<'_>],
) -> Result<Vec<u8>, WriteTableError> {
    table_to_parquet(TABLE, answer(quantities).table(TABLE), &[(PER, per)])
}

/// Reads a baseline: the unit of work, and the runs of each quantity.
///
/// # Errors
/// If it is not one.
pub fn read_baseline(bytes: &[u8], name: &str) -> Result<(String, Vec<SideRuns>), BaselineError> {
    let declared = answer(&[]);
    let table = ParquetTable::parse(bytes, TABLE, declared.table(TABLE).columns)
        .map_err(BaselineError::Table)?;
    let per = table.fact(PER).ok_or(BaselineError::Per)?.to_owned();
    let mut quantities: Vec<SideRuns> = Vec::new();
    let mut known_quantities = FxHashMap::default();
    let mut known_runs = FxHashMap::default();
    for row in 0..table.rows {
        let value = |part| BaselineError::Value { part, row };
        let number = |part: &'static str| {
            let number = table.number(part, row).filter(|n| n.is_finite() && *n >= 0.0);
            number.ok_or(value(part))
        };
        let count = |part: &'static str| {
            let count = table.integer(part, row).and_then(|n| u64::try_from(n).ok());
            count.ok_or(value(part))
        };
        let kind = table.text("kind", row).and_then(kind_of_code).ok_or(value("kind"))?;
        let quantity = table.text("quantity", row).ok_or(value("quantity"))?;
        let unit = match table.text("unit", row).ok_or(value("unit"))? {
            "nanoseconds" => "nanoseconds",
            "bytes" => "bytes",
            _ => "count",
        };
        let at = *known_quantities.entry((kind, quantity, unit)).or_insert_with(|| {
            quantities.push((kind, quantity.to_owned(), unit, Vec::new()));
            quantities.len() - 1
        });
        let Some((.., runs)) = quantities.get_mut(at) else { continue };
        let run = count("run")?;
        let work = number("work")?;
        let at = *known_runs.entry((at, run)).or_insert_with(|| {
            runs.push(RunSums::new(format!("{name}, run {run}"), work));
            runs.len() - 1
        });
        let Some(run) = runs.get_mut(at) else { continue };
        if work <= 0.0 || run.work.to_bits() != work.to_bits() {
            return Err(value("work"));
        }
        let (total, total_samples) = (number("total_value")?, count("total_samples")?);
        let Some(function) = table.text("function", row) else {
            run.whole = total;
            run.samples = total_samples;
            continue;
        };
        let binary = table.text("binary", row).ok_or(value("binary"))?;
        let sum = FunctionSum {
            own: number("self_value")?,
            total,
            own_samples: count("self_samples")?,
            total_samples,
            inlined_samples: count("inlined_samples")?,
        };
        run.set_sum(FunctionKey { name: function.to_owned(), binary: binary.to_owned() }, sum);
    }
    Ok((per, quantities))
}

/// Code of a kind for programs.
fn kind_code(kind: MeasureKind) -> &'static str {
    match kind {
        MeasureKind::Samples => "samples",
        MeasureKind::OffCpu => "off-cpu",
        MeasureKind::Count => "count",
    }
}

fn kind_of_code(code: &str) -> Option<MeasureKind> {
    match code {
        "samples" => Some(MeasureKind::Samples),
        "off-cpu" => Some(MeasureKind::OffCpu),
        "count" => Some(MeasureKind::Count),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sums::StackFrameKey;

    fn run(name: &str, work: f64, weight: f64) -> RunSums {
        let mut run = RunSums::new("a", work);
        let function = run.function(FunctionKey::new(name, "a", false));
        run.add_stack(&[StackFrameKey { function, is_inlined: true }], weight, 3);
        run
    }

    #[test]
    fn a_baseline_is_read_as_it_was_written() {
        let runs = [run("f", 2.0, 12.5), run("g", 1.0, 0.1), RunSums::new("empty", 1.0)];
        let off = [run("f", 1.0, 7.0)];
        let quantities = [
            (MeasureKind::Samples, "cpu-clock", "nanoseconds", &runs[..]),
            (MeasureKind::OffCpu, "off-cpu", "nanoseconds", &off[..]),
        ];
        let bytes = baseline_to_parquet("shop:sale", &quantities).unwrap();
        let (per, read) = read_baseline(&bytes, "b").expect("a baseline");
        assert_eq!((per.as_str(), read.len()), ("shop:sale", 2));
        for ((kind, name, unit, runs), (k, n, u, read)) in quantities.iter().zip(&read) {
            assert_eq!((kind, *name, unit, runs.len()), (k, n.as_str(), u, read.len()));
            for (run, read) in runs.iter().zip(read) {
                let of = |run: &RunSums| (run.whole, run.samples, run.work);
                assert_eq!(of(run), of(read));
                let sums = |run: &RunSums| -> Vec<_> {
                    run.functions().map(|(key, sum)| (key.clone(), *sum)).collect()
                };
                assert_eq!(sums(run), sums(read));
            }
        }
        assert_eq!(read[0].3[1].name, "b, run 2");
    }

    #[test]
    fn values_out_of_range_are_refused_by_name() {
        let write = |run: RunSums| {
            let quantities = [(MeasureKind::Count, "x", "count", &[run][..])];
            baseline_to_parquet("run", &quantities).unwrap()
        };
        for (run, part, row) in [
            (run("f", 0.0, 1.0), "work", 0),
            (run("f", f64::NAN, 1.0), "work", 0),
            (run("f", 1.0, -1.0), "total_value", 0),
            (run("f", 1.0, f64::INFINITY), "total_value", 0),
        ] {
            let read = read_baseline(&write(run), "b").err();
            assert_eq!(read, Some(BaselineError::Value { part, row }));
        }
        let sum = FunctionSum { total_samples: u64::MAX, ..FunctionSum::default() };
        let mut above = run("f", 1.0, 1.0);
        above.set_sum(FunctionKey::new("f", "a", false), sum);
        let quantities = [(MeasureKind::Count, "x", "count", &[above][..])];
        let error = baseline_to_parquet("run", &quantities).unwrap_err().to_string();
        assert!(error.starts_with("column total_samples, row 1: 18446744073709551615"), "{error}");
    }

    #[test]
    fn damaged_baselines_are_refused_whatever_the_damage() {
        let runs = [run("f", 2.0, 12.5), run("g", 2.0, 2.5)];
        let quantities = [(MeasureKind::Samples, "cpu-clock", "nanoseconds", &runs[..])];
        let whole = baseline_to_parquet("run", &quantities).unwrap();
        for end in 0..whole.len() {
            assert!(read_baseline(&whole[..end], "b").is_err(), "cut at {end}");
        }
        // A byte that differs is refused or gives other values: it never stops the program.
        for at in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[at] ^= 1 << (at % 8);
            let _ = read_baseline(&bytes, "b");
        }
        let foreign = table_to_parquet("recording", answer(&[]).table(TABLE), &[]).unwrap();
        let error = read_baseline(&foreign, "b").unwrap_err().to_string();
        assert_eq!(error, "not a baseline: table \"recording\" instead of \"baseline\"");
        let error = read_baseline(b"{\"format\":\"kymo-baseline\"}", "b").unwrap_err().to_string();
        assert_eq!(error, "not a baseline: not a Parquet file: the magic is missing or damaged");
    }
}
