//! Weights of samples out of a field of their tracepoints' payloads. Each weight is a label,
//! so that samples with different weights are different stacks of a profile.

use std::sync::Arc;

use kymo_events::perf_data::{TracepointPayloads, payload_endian};
use kymo_files::perfdata::Entry;
use kymo_format::{Field, FieldKind};
use kymo_model::Sample;
use kymo_symbols::bundle::Bundle;
use rustc_hash::FxHashMap;

/// The field that weighs.
#[derive(Clone, Copy, Debug)]
pub struct WeightField<'a> {
    /// Only of this event.
    pub event: Option<&'a str>,
    /// Its name.
    pub name: &'a str,
}

/// Weights that samples had, by label.
pub struct PayloadWeights<'a> {
    field: WeightField<'a>,
    payloads: TracepointPayloads,
    /// By event.
    fields: Vec<Option<Option<Field>>>,
    labels: FxHashMap<u64, u32>,
    /// By label; label 0 is that of samples without a weight.
    weights: Vec<u64>,
    /// Samples that do not have the field.
    pub weightless: u64,
    /// Samples whose field is below zero.
    pub negative: u64,
}

impl<'a> PayloadWeights<'a> {
    /// Weights by a field; a bundle may have what formats need.
    pub fn new(field: WeightField<'a>, bundle: Option<Arc<Bundle>>) -> PayloadWeights<'a> {
        PayloadWeights {
            field,
            payloads: TracepointPayloads::new(bundle),
            fields: Vec::new(),
            labels: FxHashMap::default(),
            weights: vec![0],
            weightless: 0,
            negative: 0,
        }
    }

    /// The label of a sample; 0 where it does not weigh.
    pub fn label(&mut self, entry: &Entry<'_>, sample: &Sample<'_>) -> u32 {
        if self.fields.len() <= entry.event {
            self.fields.resize_with(entry.event + 1, || None);
        }
        let Some(slot) = self.fields.get_mut(entry.event) else { return 0 };
        let field = slot.get_or_insert_with(|| find(self.field, entry, &mut self.payloads));
        let value = field
            .as_ref()
            .zip(sample.raw)
            .and_then(|(f, raw)| Some((f.signed, f.int(raw, payload_endian(entry))?)));
        let weight = match value {
            None => {
                self.weightless += 1;
                return 0;
            }
            Some((true, value)) if value < 0 => {
                self.negative += 1;
                return 0;
            }
            Some((_, value)) => value as u64,
        };
        let next = self.weights.len() as u32;
        let label = *self.labels.entry(weight).or_insert(next);
        if label == next {
            self.weights.push(weight);
        }
        label
    }

    /// The weight of each sample with a label, if it has one.
    pub fn weight(&self, label: u32) -> Option<u64> {
        self.weights.get(label as usize).copied().filter(|_| label > 0)
    }
}

fn find(
    wanted: WeightField<'_>,
    entry: &Entry<'_>,
    payloads: &mut TracepointPayloads,
) -> Option<Field> {
    let format = payloads.format(entry)?;
    let full_name = format!("{}:{}", format.system, format.name);
    let own = wanted.event.is_none_or(|e| e == full_name || e == format.name);
    let field = format.field(wanted.name).filter(|f| own && f.kind == FieldKind::Int);
    field.filter(|f| !f.common).cloned()
}
