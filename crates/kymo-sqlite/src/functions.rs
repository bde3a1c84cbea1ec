//! Functions that answers need and SQLite lacks: quantiles and histograms.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use rusqlite::functions::{Aggregate, Context, FunctionFlags};
use rusqlite::types::{Value, ValueRef};
use rusqlite::{Connection, Error, Result};

/// Help of `p`.
pub const P_HELP: &str = "p(x, q): quantile q of x, from 0 to 1: the smallest value that at least a share q of the values does not exceed; null values do not count";
/// Help of `hist`.
pub const HIST_HELP: &str = "hist(x): histogram of integers as JSON, [[FIRST, LAST, COUNT], ...]: 16 steps for each doubling, exact below 16";

/// Values that quantiles may hold, of all groups together.
type Budget = Arc<AtomicI64>;

/// Adds the functions; `most_values`: values that quantiles hold at a time, at most.
pub(crate) fn add(connection: &Connection, most_values: u64) -> Result<()> {
    let flags = FunctionFlags::SQLITE_UTF8
        | FunctionFlags::SQLITE_DETERMINISTIC
        | FunctionFlags::SQLITE_INNOCUOUS;
    let budget = Arc::new(AtomicI64::new(i64::try_from(most_values).unwrap_or(i64::MAX)));
    connection.create_aggregate_function(c"p", 2, flags, Quantile { budget })?;
    connection.create_aggregate_function(c"hist", 1, flags, Histogram)
}

fn wrong(text: &str) -> Error {
    Error::UserFunctionError(text.into())
}

struct Quantile {
    budget: Budget,
}

/// Values of a group.
struct Values {
    integers: Vec<i64>,
    reals: Vec<f64>,
    share: f64,
    budget: Budget,
}

impl Drop for Values {
    fn drop(&mut self) {
        let held = self.integers.len() + self.reals.len();
        self.budget.fetch_add(held as i64, Ordering::Relaxed);
    }
}

impl std::panic::RefUnwindSafe for Values {}
impl std::panic::UnwindSafe for Values {}

impl Aggregate<Values, Value> for Quantile {
    fn init(&self, _: &mut Context<'_>) -> Result<Values> {
        let budget = self.budget.clone();
        Ok(Values { integers: Vec::new(), reals: Vec::new(), share: 0.0, budget })
    }

    fn step(&self, context: &mut Context<'_>, values: &mut Values) -> Result<()> {
        values.share = match context.get_raw(1) {
            ValueRef::Integer(n) => n as f64,
            ValueRef::Real(n) => n,
            _ => return Err(wrong("p(x, q): q is not a number from 0 to 1")),
        };
        if !(0.0..=1.0).contains(&values.share) {
            return Err(wrong("p(x, q): q is not a number from 0 to 1"));
        }
        match context.get_raw(0) {
            ValueRef::Null => return Ok(()),
            ValueRef::Integer(n) => values.integers.push(n),
            ValueRef::Real(n) => values.reals.push(n),
            _ => return Err(wrong("p(x, q): x is not a number")),
        }
        if self.budget.fetch_sub(1, Ordering::Relaxed) <= 0 {
            return Err(wrong("p(x, q): more values than --memory-limit has room for"));
        }
        Ok(())
    }

    fn finalize(&self, _: &mut Context<'_>, values: Option<Values>) -> Result<Value> {
        let Some(mut values) = values else { return Ok(Value::Null) };
        let count = values.integers.len() + values.reals.len();
        // The rank of the value, from 0.
        let rank = ((values.share * count as f64).ceil() as usize).clamp(1, count.max(1)) - 1;
        if values.reals.is_empty() {
            let all = &mut values.integers;
            return Ok(if all.is_empty() {
                Value::Null
            } else {
                Value::Integer(*all.select_nth_unstable(rank).1)
            });
        }
        let mut all: Vec<f64> = std::mem::take(&mut values.reals);
        values.budget.fetch_add(all.len() as i64, Ordering::Relaxed);
        all.extend(values.integers.iter().map(|n| *n as f64));
        Ok(Value::Real(*all.select_nth_unstable_by(rank, f64::total_cmp).1))
    }
}

struct Histogram;

/// Steps of a doubling.
const STEPS: u64 = 16;

/// First and last value of the step that a number lies in.
fn step(n: u64) -> (u64, u64) {
    if n < STEPS {
        return (n, n);
    }
    let shift = n.ilog2() - STEPS.ilog2();
    let first = n >> shift << shift;
    (first, first + ((1 << shift) - 1))
}

impl Aggregate<BTreeMap<i64, (i64, u64)>, Option<String>> for Histogram {
    fn init(&self, _: &mut Context<'_>) -> Result<BTreeMap<i64, (i64, u64)>> {
        Ok(BTreeMap::new())
    }

    fn step(
        &self,
        context: &mut Context<'_>,
        counts: &mut BTreeMap<i64, (i64, u64)>,
    ) -> Result<()> {
        let n = match context.get_raw(0) {
            ValueRef::Null => return Ok(()),
            ValueRef::Integer(n) => n,
            _ => return Err(wrong("hist(x): x is not an integer")),
        };
        // There are fewer than 2,000 steps.
        let (first, last) = step(n.unsigned_abs());
        let (first, last) = (first.min(i64::MAX as u64) as i64, last.min(i64::MAX as u64) as i64);
        let (first, last) = if n < 0 { (-last, -first) } else { (first, last) };
        let slot = counts.entry(first).or_insert((last, 0));
        slot.1 += 1;
        Ok(())
    }

    fn finalize(
        &self,
        _: &mut Context<'_>,
        counts: Option<BTreeMap<i64, (i64, u64)>>,
    ) -> Result<Option<String>> {
        let Some(counts) = counts else { return Ok(None) };
        let rows = counts.iter().map(|(first, (last, count))| format!("[{first},{last},{count}]"));
        let rows: Vec<String> = rows.collect();
        Ok(Some(format!("[{}]", rows.join(","))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_the_nearest_rank() {
        let connection = Connection::open_in_memory().unwrap();
        add(&connection, 1000).unwrap();
        let of = |sql: &str| connection.query_row(sql, [], |row| row.get::<_, Value>(0));
        let hundred = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM n WHERE x<100)";
        for (q, expected) in
            [("0", 1), ("0.01", 1), ("0.5", 50), ("0.99", 99), ("0.991", 100), ("1", 100)]
        {
            let value = of(&format!("{hundred} SELECT p(x, {q}) FROM n")).unwrap();
            assert_eq!(value, Value::Integer(expected), "{q}");
        }
        assert_eq!(of("SELECT p(x, 0.5) FROM (SELECT NULL x)").unwrap(), Value::Null);
        assert_eq!(
            of("SELECT p(x, 0.5) FROM (SELECT 1.5 x UNION SELECT 7)").unwrap(),
            Value::Real(1.5)
        );
        for wrong in ["p(x, 1.1)", "p(x, -1)", "p(x, 'a')", "p('a', 0.5)", "p(x, NULL)"] {
            assert!(of(&format!("SELECT {wrong} FROM (SELECT 1 x)")).is_err(), "{wrong}");
        }
        let many = hundred.replace("100", "1001");
        assert!(of(&format!("{many} SELECT p(x, 0.5) FROM n")).is_err());
        // What groups held is free again.
        for _ in 0..3 {
            of(&format!("{} SELECT p(x, 0.5) FROM n", hundred.replace("100", "900"))).unwrap();
        }
    }

    #[test]
    fn histograms_count_each_value_once() {
        let connection = Connection::open_in_memory().unwrap();
        add(&connection, 1000).unwrap();
        let of = |sql: &str| {
            connection.query_row(sql, [], |row| row.get::<_, Option<String>>(0)).unwrap()
        };
        let values = "(SELECT 3 x UNION ALL SELECT 3 UNION ALL SELECT 100 UNION ALL SELECT 103 \
                      UNION ALL SELECT -100 UNION ALL SELECT NULL)";
        let expected = "[[-103,-100,1],[3,3,2],[100,103,2]]";
        assert_eq!(of(&format!("SELECT hist(x) FROM {values}")).as_deref(), Some(expected));
        assert_eq!(of("SELECT hist(x) FROM (SELECT 1 x) WHERE 0"), None);
        let ends = "(SELECT 9223372036854775807 x UNION SELECT -9223372036854775808)";
        assert!(of(&format!("SELECT hist(x) FROM {ends}")).is_some());
    }
}
