//! Aggregations: `count()`, `hist()` and the like; reading them as numbers.

use super::builder::{MemoryPlace, helper};
use super::records::aggregate_size;
use super::types::{I64, Type, U64, unify};
use super::{Lowered, Lowering, Value};
use crate::ast::{Expression, ExpressionKind};
use crate::code::{
    AddressBase, CompareOperation, ComputeOperation, Instruction, Operand, Register,
};
use crate::object::{ErrorKind, SeriesAggregate, ValueType, histogram_buckets};

/// The most buckets of `lhist`.
const MAX_BUCKETS: i64 = 1000;
/// The most intervals of `tseries`.
const MAX_INTERVALS: i64 = 500;
/// `BPF_NOEXIST`
const NO_EXIST: i32 = 1;
const FUNCTIONS: [&str; 9] =
    ["count", "sum", "min", "max", "avg", "stats", "hist", "lhist", "tseries"];

impl Lowering<'_> {
    /// The function of an aggregation that is assigned, and its arguments.
    pub(crate) fn aggregation(&self, value: &Expression) -> Option<(String, Vec<Expression>)> {
        match &*value.kind {
            ExpressionKind::Call(name, arguments)
                if FUNCTIONS.contains(&name.as_str()) && !self.tree.macros.contains_key(name) =>
            {
                Some((name.clone(), arguments.clone()))
            }
            _ => None,
        }
    }

    pub(crate) fn aggregate_of(&mut self, number: u32) -> ValueType {
        match &self.user_map(number).value {
            Type::Aggregate(value) => value.clone(),
            _ => ValueType::Count,
        }
    }

    fn aggregate_type(
        &mut self,
        function: &str,
        arguments: &[Expression],
    ) -> Lowered<(ValueType, Option<Value>)> {
        let wanted = match function {
            "count" => 0..=0,
            "hist" => 1..=2,
            "lhist" => 4..=4,
            "tseries" => 3..=4,
            _ => 1..=1,
        };
        if !wanted.contains(&arguments.len()) {
            let has = arguments.len();
            return self.error(format!("{function}() does not take {has} arguments"));
        }
        if function == "tseries"
            && self.config.get("unstable_tseries").is_some_and(|v| v == "error")
        {
            return self.error("tseries() is disabled by the setting unstable_tseries = error");
        }
        let value = match arguments.first() {
            Some(first) => Some({
                let value = self.value(first)?;
                let value = self.settle(value)?;
                self.as_scalar(value)?
            }),
            None => None,
        };
        let signed = value.as_ref().is_some_and(|v| v.ty.is_signed());
        let value_type = match function {
            "count" => ValueType::Count,
            "sum" => ValueType::Sum { signed },
            "min" => ValueType::Minimum { signed },
            "max" => ValueType::Maximum { signed },
            "avg" => ValueType::Average { signed },
            "stats" => ValueType::Statistics { signed },
            "hist" => {
                let bits = match arguments.get(1) {
                    Some(bits) => self.constant_of(bits, "second argument of hist()")?,
                    None => 0,
                };
                if !(0..=5).contains(&bits) {
                    return self.error("second argument of hist() must be 0 to 5");
                }
                ValueType::Histogram { bits: bits as u8 }
            }
            "lhist" => {
                let mut limits = [0; 3];
                for (limit, argument) in limits.iter_mut().zip(&arguments[1..]) {
                    *limit = self.constant_of(argument, "limit of lhist()")?;
                }
                let [min, max, step] = limits;
                let buckets = max.checked_sub(min).filter(|_| step > 0).map(|r| r / step);
                match buckets {
                    Some(1..=MAX_BUCKETS) => {}
                    Some(n) if n > MAX_BUCKETS => {
                        let what = format!("lhist() would have {n} buckets, at most {MAX_BUCKETS}");
                        return self.error(what);
                    }
                    _ => return self.error("lhist() takes min below max, and a step above 0"),
                }
                ValueType::LinearHistogram { min, max, step }
            }
            _ => self.series_type(arguments, signed)?,
        };
        Ok((value_type, value))
    }

    fn series_type(&mut self, arguments: &[Expression], signed: bool) -> Lowered<ValueType> {
        let interval = self.constant_of(&arguments[1], "interval of tseries()")?;
        let intervals = self.constant_of(&arguments[2], "number of intervals of tseries()")?;
        if interval <= 0 || !(1..=MAX_INTERVALS).contains(&intervals) {
            let what =
                format!("tseries() takes a positive interval and 1 to {MAX_INTERVALS} intervals");
            return self.error(what);
        }
        let aggregate = match arguments.get(3) {
            None => SeriesAggregate::Last,
            Some(name) => match self.literal_of(name, "fourth argument of tseries()")?.as_str() {
                "avg" => SeriesAggregate::Average,
                "max" => SeriesAggregate::Maximum,
                "min" => SeriesAggregate::Minimum,
                "sum" => SeriesAggregate::Sum,
                other => return self.error(format!("tseries() cannot aggregate by {other:?}")),
            },
        };
        let (interval_ns, intervals) = (interval as u64, intervals as u32);
        Ok(ValueType::TimeSeries { interval_ns, intervals, aggregate, signed })
    }

    /// `@map[key] = function(arguments)`
    pub(crate) fn aggregate(
        &mut self,
        number: u32,
        key: &[Expression],
        function: &str,
        arguments: &[Expression],
    ) -> Lowered<()> {
        let (value_type, value) = self.aggregate_type(function, arguments)?;
        let new = Type::Aggregate(value_type);
        let map = self.user_map(number);
        let (old, name) = (map.value.clone(), map.name.clone());
        let Some(both) = unify(&old, &new) else {
            let (has, new) = (old.name(), new.name());
            return self.error(if has == new {
                format!("{name} holds {has} with other bounds: a map has one set of bounds")
            } else {
                format!("{name} holds {has}, {new} does not fit")
            });
        };
        if both != old {
            self.user_map(number).value = both;
            self.changed = true;
        }
        let value_type = self.aggregate_of(number);
        let amount = match &value {
            Some(value) => {
                let operand = self.operand(value)?;
                Some(self.in_register(operand))
            }
            None => None,
        };
        // What is computed of the value comes first: then less lives across the look-up.
        let bucket = match (&value_type, amount) {
            (ValueType::Histogram { bits }, Some(amount)) => {
                let signed = value.as_ref().is_some_and(|v| v.ty.is_signed());
                Some(self.histogram_bucket(amount, *bits, signed))
            }
            (ValueType::LinearHistogram { min, max, step }, Some(amount)) => {
                Some(self.linear_bucket(amount, *min, *max, *step))
            }
            _ => None,
        };
        let key_place = self.key_place(number, key)?;
        let found = self.find_or_insert(number, key_place, !key.is_empty(), &value_type);
        let Some((entry, end)) = found else { return Ok(()) };
        let place = MemoryPlace { base: AddressBase::Register(entry), offset: 0 };
        self.update_aggregate(&value_type, place, amount, bucket, end);
        self.place_label(end);
        Ok(())
    }

    /// The entry of a key; a new one is all zero. Jumps to the label without one.
    fn find_or_insert(
        &mut self,
        number: u32,
        key: MemoryPlace,
        keyed: bool,
        value_type: &ValueType,
    ) -> Option<(Register, u32)> {
        let end = self.label();
        let entry = self.lookup(number, key);
        if !keyed {
            self.branch(CompareOperation::Equal, entry, Operand::Immediate(0), end);
            return Some((entry, end));
        }
        let present = self.label();
        let entry = self.copy_of(Operand::Register(entry));
        self.branch(CompareOperation::NotEqual, entry, Operand::Immediate(0), present);
        let size = aggregate_size(value_type);
        let zeros = if size <= 32 {
            let room = self.room(size);
            self.zero_memory(room, size);
            room
        } else {
            self.zeros(size, end)
        };
        let map = self.map_reference(number);
        let (key_address, zeros) = (self.address(key), self.address(zeros));
        let arguments = vec![map, key_address, zeros, Operand::Immediate(NO_EXIST)];
        self.emit(Instruction::Call(helper::MAP_UPDATE, arguments, None));
        // Another CPU may have been first: what counts is whether it is there now.
        let again = self.lookup(number, key);
        self.emit(Instruction::Move(entry, Operand::Register(again)));
        self.branch(CompareOperation::NotEqual, entry, Operand::Immediate(0), present);
        self.count_error(ErrorKind::MapFull { map: number as usize });
        self.jump(end);
        self.place_label(present);
        Some((entry, end))
    }

    fn add(&mut self, place: MemoryPlace, amount: Operand) {
        let value = self.load(place, 8);
        self.compute(ComputeOperation::Add, value, amount);
        self.store(place, 8, Operand::Register(value));
    }

    fn update_aggregate(
        &mut self,
        value_type: &ValueType,
        place: MemoryPlace,
        amount: Option<Register>,
        bucket: Option<Register>,
        end: u32,
    ) {
        let amount = amount.map_or(Operand::Immediate(1), Operand::Register);
        match value_type {
            ValueType::Minimum { signed } | ValueType::Maximum { signed } => {
                let (set, old) = (self.label(), self.load(place, 8));
                let has = self.load(place.at(8), 8);
                let largest = matches!(value_type, ValueType::Maximum { .. });
                self.branch(CompareOperation::Equal, has, Operand::Immediate(0), set);
                self.branch(keeps(largest, *signed), old, amount, end);
                self.place_label(set);
                self.store(place, 8, amount);
                self.store(place.at(8), 8, Operand::Immediate(1));
            }
            // A sum of 0 is not one that was never made.
            ValueType::Sum { .. } => {
                self.add(place, amount);
                self.store(place.at(8), 8, Operand::Immediate(1));
            }
            ValueType::Average { .. } | ValueType::Statistics { .. } => {
                self.add(place, amount);
                self.add(place.at(8), Operand::Immediate(1));
            }
            ValueType::Histogram { .. } | ValueType::LinearHistogram { .. } => {
                let Some(bucket) = bucket else { return };
                let most = (aggregate_size(value_type) / 8) as i32;
                self.branch(CompareOperation::GreaterEqual, bucket, Operand::Immediate(most), end);
                self.compute(ComputeOperation::ShiftLeft, bucket, Operand::Immediate(3));
                let base = self.address(place);
                let at = self.computed(ComputeOperation::Add, base, Operand::Register(bucket));
                let at = MemoryPlace { base: AddressBase::Register(at), offset: 0 };
                self.add(at, Operand::Immediate(1));
            }
            ValueType::TimeSeries { interval_ns, intervals, aggregate, signed } => {
                self.update_series(
                    place,
                    amount,
                    *interval_ns,
                    *intervals,
                    *aggregate,
                    *signed,
                    end,
                );
            }
            _ => self.add(place, amount),
        }
    }

    #[allow(clippy::too_many_arguments, reason = "the parts of one type, taken apart once")]
    fn update_series(
        &mut self,
        place: MemoryPlace,
        amount: Operand,
        interval_ns: u64,
        intervals: u32,
        aggregate: SeriesAggregate,
        signed: bool,
        end: u32,
    ) {
        let base = self.address(place);
        let now = self.call(helper::KTIME, Vec::new());
        let interval = self.constant(interval_ns as i64);
        let epoch = self.computed(ComputeOperation::Divide, Operand::Register(now), interval);
        let count = Operand::Immediate(intervals as i32);
        let slot = self.computed(ComputeOperation::Modulo, Operand::Register(epoch), count);
        // The verifier does not see what a remainder is limited to.
        self.branch(CompareOperation::GreaterEqual, slot, count, end);
        self.compute(ComputeOperation::Multiply, slot, Operand::Immediate(24));
        let at = self.computed(ComputeOperation::Add, base, Operand::Register(slot));
        let at = MemoryPlace { base: AddressBase::Register(at), offset: 0 };
        let (same, old) = (self.label(), self.load(at, 8));
        self.branch(CompareOperation::Equal, old, Operand::Register(epoch), same);
        self.store(at, 8, Operand::Register(epoch));
        self.store(at.at(8), 8, amount);
        self.store(at.at(16), 8, Operand::Immediate(1));
        self.jump(end);
        self.place_label(same);
        match aggregate {
            SeriesAggregate::Average | SeriesAggregate::Sum => {
                self.add(at.at(8), amount);
                self.add(at.at(16), Operand::Immediate(1));
            }
            SeriesAggregate::Maximum | SeriesAggregate::Minimum => {
                let largest = aggregate == SeriesAggregate::Maximum;
                let value = self.load(at.at(8), 8);
                self.branch(keeps(largest, signed), value, amount, end);
                self.store(at.at(8), 8, amount);
            }
            SeriesAggregate::Last => self.store(at.at(8), 8, amount),
        }
    }

    /// Bucket of `hist`: see `histogram_buckets`.
    fn histogram_bucket(&mut self, amount: Register, bits: u8, signed: bool) -> Register {
        let bucket = self.copy_of(Operand::Immediate(0));
        let end = self.label();
        if signed {
            self.branch(CompareOperation::SignedLess, amount, Operand::Immediate(0), end);
        }
        self.emit(Instruction::Move(bucket, Operand::Register(amount)));
        self.compute(ComputeOperation::Add, bucket, Operand::Immediate(1));
        let width = 1i32 << bits;
        self.branch(CompareOperation::Less, amount, Operand::Immediate(width), end);
        // Power of two by halves: 32, 16, 8 … bits.
        let rest = self.copy_of(Operand::Register(amount));
        let power = self.copy_of(Operand::Immediate(0));
        for half in [32u32, 16, 8, 4, 2, 1] {
            let below = self.label();
            let limit = self.constant(1i64 << half);
            self.branch(CompareOperation::Less, rest, limit, below);
            self.compute(ComputeOperation::Add, power, Operand::Immediate(half as i32));
            self.compute(ComputeOperation::ShiftRight, rest, Operand::Immediate(half as i32));
            self.place_label(below);
        }
        if bits == 0 {
            self.emit(Instruction::Move(bucket, Operand::Register(power)));
            self.compute(ComputeOperation::Add, bucket, Operand::Immediate(2));
        } else {
            let bits = Operand::Immediate(i32::from(bits));
            self.compute(ComputeOperation::Subtract, power, bits);
            let step = Operand::Register(amount);
            let step = self.computed(ComputeOperation::ShiftRight, step, Operand::Register(power));
            self.compute(ComputeOperation::ShiftLeft, power, bits);
            self.compute(ComputeOperation::Add, power, Operand::Register(step));
            self.compute(ComputeOperation::Add, power, Operand::Immediate(1));
            self.emit(Instruction::Move(bucket, Operand::Register(power)));
        }
        self.place_label(end);
        debug_assert!(histogram_buckets(bits) > 0);
        bucket
    }

    fn linear_bucket(&mut self, amount: Register, min: i64, max: i64, step: i64) -> Register {
        let bucket = self.copy_of(Operand::Immediate(0));
        let end = self.label();
        let (least, most) = (self.constant(min), self.constant(max));
        self.branch(CompareOperation::SignedLess, amount, least, end);
        let last = ((max - min) / step + 1) as i32;
        self.emit(Instruction::Move(bucket, Operand::Immediate(last)));
        self.branch(CompareOperation::SignedGreaterEqual, amount, most, end);
        self.emit(Instruction::Move(bucket, Operand::Register(amount)));
        if min != 0 {
            self.compute(ComputeOperation::Subtract, bucket, least);
        }
        if step != 1 {
            let step = self.constant(step);
            self.compute(ComputeOperation::Divide, bucket, step);
        }
        self.compute(ComputeOperation::Add, bucket, Operand::Immediate(1));
        self.place_label(end);
        bucket
    }

    /// An aggregation as a number: put together over all CPUs.
    pub(crate) fn read_aggregate(&mut self, number: u32, key: MemoryPlace) -> Lowered<Value> {
        let value_type = &self.aggregate_of(number);
        let (signed, ratio) = match value_type {
            ValueType::Count => (false, false),
            ValueType::Sum { signed } => (*signed, false),
            ValueType::Minimum { signed } | ValueType::Maximum { signed } => (*signed, false),
            ValueType::Average { signed } | ValueType::Statistics { signed } => (*signed, true),
            other => {
                let name = super::types::aggregate_name(other);
                return self.error(format!("{name} is not a number; it can only be printed"));
            }
        };
        let extreme = matches!(value_type, ValueType::Minimum { .. } | ValueType::Maximum { .. });
        let largest = matches!(value_type, ValueType::Maximum { .. });
        let (total, count) =
            (self.copy_of(Operand::Immediate(0)), self.copy_of(Operand::Immediate(0)));
        let cpu = self.copy_of(Operand::Immediate(0));
        let (again, next, end) = (self.label(), self.label(), self.label());
        self.place_label(again);
        let map = self.map_reference(number);
        let key = self.address(key);
        let entry = self.call(helper::LOOKUP_PER_CPU, vec![map, key, Operand::Register(cpu)]);
        self.branch(CompareOperation::Equal, entry, Operand::Immediate(0), end);
        let place = MemoryPlace { base: AddressBase::Register(entry), offset: 0 };
        let value = self.load(place, 8);
        if extreme {
            let (has, set) = (self.load(place.at(8), 8), self.label());
            self.branch(CompareOperation::Equal, has, Operand::Immediate(0), next);
            self.branch(CompareOperation::Equal, count, Operand::Immediate(0), set);
            self.branch(keeps(largest, signed), total, Operand::Register(value), next);
            self.place_label(set);
            self.emit(Instruction::Move(total, Operand::Register(value)));
            self.emit(Instruction::Move(count, Operand::Immediate(1)));
        } else {
            self.compute(ComputeOperation::Add, total, Operand::Register(value));
            if ratio {
                let more = self.load(place.at(8), 8);
                self.compute(ComputeOperation::Add, count, Operand::Register(more));
            }
        }
        self.place_label(next);
        self.compute(ComputeOperation::Add, cpu, Operand::Immediate(1));
        let cpus = Operand::Immediate(self.options.cpus.clamp(1, 8192) as i32);
        self.branch(CompareOperation::Less, cpu, cpus, again);
        self.place_label(end);
        if ratio {
            let (sum, count) = (Operand::Register(total), Operand::Register(count));
            let mean = self.divide_by(ComputeOperation::Divide, sum, count, signed);
            return Ok(Value::register(if signed { I64 } else { U64 }, mean));
        }
        Ok(Value::register(if signed { I64 } else { U64 }, total))
    }
}

/// Comparison by which an old value stays: it is the larger, or the smaller.
fn keeps(largest: bool, signed: bool) -> CompareOperation {
    match (largest, signed) {
        (true, true) => CompareOperation::SignedGreaterEqual,
        (true, false) => CompareOperation::GreaterEqual,
        (false, true) => CompareOperation::SignedLessEqual,
        (false, false) => CompareOperation::LessEqual,
    }
}
