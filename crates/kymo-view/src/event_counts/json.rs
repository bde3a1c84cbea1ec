//! Counts as one JSON object.

use kymo_bpf::CountMeasure;
use kymo_programs::{HistogramBucket, ProgramValue};
use serde_json::{Map, Value, json};

use super::{EventCounts, key_text};

impl EventCounts<'_> {
    /// The object; `ledger` is missing from it.
    pub fn to_json(&self) -> Value {
        let map = self.result();
        let mut page = json!({
            "measure": self.measure_name(),
            "elapsed_ns": self.elapsed_ns,
        });
        let Some(members) = page.as_object_mut() else { return page };
        if matches!(self.measure, CountMeasure::Latency(_)) {
            self.add_latency(members);
            return page;
        }
        let rows = map.entries.iter().map(|(keys, value)| {
            let mut row = Map::new();
            row.insert("key".into(), self.key_json(keys));
            self.add_value(&mut row, value);
            Value::Object(row)
        });
        members.insert("rows".into(), rows.collect());
        members.insert("left_out".into(), map.left_out.len().into());
        if matches!(self.measure, CountMeasure::Events | CountMeasure::Sum(_)) {
            let rest: i128 = map.left_out.iter().filter_map(ProgramValue::number).sum();
            members.insert("left_out_sum".into(), number_json(rest));
        }
        page
    }

    fn measure_name(&self) -> &'static str {
        match self.measure {
            CountMeasure::Events => "count",
            CountMeasure::Histogram(_) | CountMeasure::LinearHistogram(..) => "histogram",
            CountMeasure::Sum(_) => "sum",
            CountMeasure::Average(_) => "average",
            CountMeasure::Minimum(_) => "min",
            CountMeasure::Maximum(_) => "max",
            CountMeasure::Statistics(_) => "stats",
            CountMeasure::Latency(_) => "latency",
        }
    }

    fn key_json(&self, keys: &[ProgramValue]) -> Value {
        let members = self.keys.iter().zip(keys);
        Value::Object(members.map(|(name, key)| (name.clone(), value_json(key))).collect())
    }

    fn add_value(&self, row: &mut Map<String, Value>, value: &ProgramValue) {
        match value {
            ProgramValue::Histogram(buckets) => {
                row.insert("buckets".into(), buckets_json(buckets));
            }
            ProgramValue::Statistics(count, average, sum) => {
                row.insert("count".into(), (*count).into());
                row.insert("average".into(), value_json(average));
                row.insert("sum".into(), value_json(sum));
            }
            value => {
                row.insert(self.measure_name().into(), value_json(value));
            }
        }
    }

    fn add_latency(&self, members: &mut Map<String, Value>) {
        let rows = self.latency_rows();
        let rows = rows.iter().map(|row| {
            json!({
                "key": self.key_json(row.keys),
                "count": row.count,
                "average_ns": row.average,
                "p50_ns": row.quantile(0.5),
                "p90_ns": row.quantile(0.9),
                "p99_ns": row.quantile(0.99),
                "max_ns": row.max,
                "buckets": buckets_json(row.buckets),
            })
        });
        members.insert("rows".into(), rows.collect());
        let slowest = self.slowest();
        let slowest = slowest.iter().map(|slow| {
            let keys: Vec<Value> = slow.keys.iter().map(value_json).collect();
            json!({"latency_ns": slow.nanos, "end_ns": slow.end_ns, "keys": keys})
        });
        members.insert("slowest".into(), slowest.collect());
        for (name, (_, count)) in
            ["not_ended", "begun_again", "without_beginning"].iter().zip(self.unpaired())
        {
            members.insert((*name).into(), count.into());
        }
    }
}

fn value_json(value: &ProgramValue) -> Value {
    match value {
        ProgramValue::Boolean(b) => (*b).into(),
        ProgramValue::Stack(frames) => frames.iter().map(String::as_str).collect(),
        value => value.number().map_or_else(|| key_text(value).into(), number_json),
    }
}

pub(super) fn number_json(n: i128) -> Value {
    match (u64::try_from(n), i64::try_from(n)) {
        (Ok(n), _) => n.into(),
        (_, Ok(n)) => n.into(),
        _ => (n as f64).into(),
    }
}

/// Buckets that are not empty: `from` and `to` are missing where it is open.
pub(super) fn buckets_json(buckets: &[HistogramBucket]) -> Value {
    let used = buckets.iter().filter(|b| b.count > 0);
    let bucket = |b: &HistogramBucket| {
        let mut members = Map::new();
        b.from.map(|from| members.insert("from".into(), from.into()));
        b.to.map(|to| members.insert("to".into(), to.into()));
        members.insert("count".into(), b.count.into());
        Value::Object(members)
    };
    used.map(bucket).collect()
}
