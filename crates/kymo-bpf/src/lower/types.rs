//! Types of values while they are lowered, their bytes in maps and records.

use crate::facts::CType;
use crate::object::{BpfClock, StackSettings, ValueType};

/// Helper that reads memory at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AddressSpace {
    Kernel,
    User,
    /// Decided by the address itself.
    Either,
    /// The event's own record, in kernel memory: all there is in user space.
    Record,
}

/// A type.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Type {
    /// Not known yet: a map or variable that was read before its first assignment.
    Unknown,
    Nothing,
    Integer {
        size: u8,
        signed: bool,
    },
    Boolean,
    Enumeration {
        size: u8,
        signed: bool,
        id: u32,
    },
    Pointer {
        target: CType,
        space: AddressSpace,
    },
    /// Bytes with the NUL.
    Text(u32),
    /// Bytes without the length.
    Buffer(u32),
    Record(u32),
    /// A number that no register holds: it is stored and printed.
    Number(CType),
    Array {
        element: CType,
        count: u32,
    },
    /// Types of the parts, and their names; without names there are none.
    Tuple(Vec<Type>, Vec<String>),
    KernelSymbol,
    UserSymbol,
    KernelStack(StackSettings),
    UserStack(StackSettings),
    Internet,
    Mac,
    Timestamp {
        format: String,
        clock: BpfClock,
    },
    ErrorText,
    CgroupPath(String),
    ProbeName,
    UserName,
    SyscallName,
    SignalName,
    /// `count()` and the like, in maps.
    Aggregate(ValueType),
    /// `args`.
    Arguments,
}

pub(crate) const U64: Type = Type::Integer { size: 8, signed: false };
pub(crate) const I64: Type = Type::Integer { size: 8, signed: true };
pub(crate) const U32: Type = Type::Integer { size: 4, signed: false };

/// A size rounded up to words.
pub(crate) fn words(size: u32) -> u32 {
    size.next_multiple_of(8)
}

impl Type {
    /// Whether its value fits a register.
    pub(crate) fn is_scalar(&self) -> bool {
        use Type as T;
        !matches!(
            self,
            T::Text(_)
                | T::Buffer(_)
                | T::Record(_)
                | T::Number(_)
                | T::Array { .. }
                | T::Tuple(..)
                | T::UserSymbol
                | T::UserStack(_)
                | T::Internet
                | T::Mac
                | T::Aggregate(_)
                | T::Arguments
        )
    }

    pub(crate) fn is_integer(&self) -> bool {
        matches!(
            self,
            Type::Unknown | Type::Integer { .. } | Type::Boolean | Type::Enumeration { .. }
        )
    }

    pub(crate) fn is_signed(&self) -> bool {
        matches!(self, Type::Integer { signed: true, .. } | Type::Enumeration { signed: true, .. })
    }

    /// Name for messages.
    pub(crate) fn name(&self) -> String {
        use Type as T;
        match self {
            T::Unknown => "unknown type".into(),
            T::Nothing => "no value".into(),
            T::Integer { size, signed } => {
                format!("{}int{}", if *signed { "" } else { "u" }, u32::from(*size) * 8)
            }
            T::Boolean => "bool".into(),
            T::Enumeration { .. } => "enumeration".into(),
            T::Pointer { .. } => "pointer".into(),
            T::Text(n) => format!("string[{n}]"),
            T::Buffer(n) => format!("buffer[{n}]"),
            T::Record(_) => "structure".into(),
            T::Number(CType::Wide { signed }) => {
                format!("{}int128", if *signed { "" } else { "u" })
            }
            T::Number(_) => "floating-point number".into(),
            T::Array { count, .. } => format!("array of {count}"),
            T::Tuple(parts, names) => {
                let part = |(n, part): (usize, &Type)| match names.get(n) {
                    Some(name) => format!("{name}={}", part.name()),
                    None => part.name(),
                };
                let parts: Vec<String> = parts.iter().enumerate().map(part).collect();
                format!("({})", parts.join(", "))
            }
            T::KernelSymbol => "ksym".into(),
            T::UserSymbol => "usym".into(),
            T::KernelStack(_) => "kstack".into(),
            T::UserStack(_) => "ustack".into(),
            T::Internet => "inet".into(),
            T::Mac => "macaddr".into(),
            T::Timestamp { .. } => "timestamp".into(),
            T::ErrorText | T::SyscallName | T::SignalName | T::ProbeName | T::UserName => {
                "name created in user space".into()
            }
            T::CgroupPath(_) => "cgroup_path".into(),
            T::Aggregate(v) => aggregate_name(v).into(),
            T::Arguments => "args".into(),
        }
    }
}

/// Name of the function that makes an aggregation.
pub(crate) fn aggregate_name(value_type: &ValueType) -> &'static str {
    match value_type {
        ValueType::Count => "count()",
        ValueType::Sum { .. } => "sum()",
        ValueType::Minimum { .. } => "min()",
        ValueType::Maximum { .. } => "max()",
        ValueType::Average { .. } => "avg()",
        ValueType::Statistics { .. } => "stats()",
        ValueType::Histogram { .. } => "hist()",
        ValueType::LinearHistogram { .. } => "lhist()",
        ValueType::TimeSeries { .. } => "tseries()",
        _ => "value",
    }
}

/// The type both fit, or `None`.
pub(crate) fn unify(a: &Type, b: &Type) -> Option<Type> {
    use Type as T;
    Some(match (a, b) {
        _ if a == b => a.clone(),
        (T::Unknown, other) | (other, T::Unknown) => other.clone(),
        (T::Boolean, T::Integer { .. }) => b.clone(),
        (T::Integer { .. }, T::Boolean) => a.clone(),
        (T::Integer { size, signed }, T::Integer { size: other, signed: other_signed }) => {
            T::Integer { size: *size.max(other), signed: *signed || *other_signed }
        }
        (T::Enumeration { .. }, T::Integer { .. }) | (T::Integer { .. }, T::Enumeration { .. }) => {
            I64
        }
        (T::Enumeration { .. }, T::Enumeration { .. }) => I64,
        (T::Pointer { .. }, T::Integer { .. }) | (T::Pointer { .. }, T::Pointer { .. }) => {
            a.clone()
        }
        (T::Integer { .. }, T::Pointer { .. }) => b.clone(),
        (T::KernelSymbol, T::Integer { .. }) => a.clone(),
        (T::Text(n), T::Text(m)) => T::Text(*n.max(m)),
        (T::Buffer(n), T::Buffer(m)) => T::Buffer(*n.max(m)),
        (T::Tuple(a, names), T::Tuple(b, other)) if a.len() == b.len() => {
            if names.len() != other.len() {
                return None;
            }
            let part = |(n, a): (usize, &Type)| unify(a, &b[part_at(names, other, n)?]);
            let parts = a.iter().enumerate().map(part).collect::<Option<Vec<_>>>()?;
            T::Tuple(parts, names.clone())
        }
        (T::Aggregate(a), T::Aggregate(b)) => T::Aggregate(unify_aggregates(a, b)?),
        (T::Array { element: CType::Integer { size: 1, .. }, count }, T::Text(n)) => {
            T::Text(*n.max(count))
        }
        _ => return None,
    })
}

/// Place of a tuple's n-th part in another tuple, whose names may have another order.
pub(crate) fn part_at(names: &[String], other: &[String], n: usize) -> Option<usize> {
    match names.get(n) {
        Some(name) => other.iter().position(|o| o == name),
        None => Some(n),
    }
}

/// Aggregations that differ in the sign of their values only fit as signed ones.
fn unify_aggregates(a: &ValueType, b: &ValueType) -> Option<ValueType> {
    use ValueType as V;
    let as_signed = |value: &ValueType| {
        let mut value = value.clone();
        match &mut value {
            V::Sum { signed }
            | V::Minimum { signed }
            | V::Maximum { signed }
            | V::Average { signed }
            | V::Statistics { signed }
            | V::TimeSeries { signed, .. } => *signed = true,
            _ => {}
        }
        value
    };
    let (a, b) = (as_signed(a), as_signed(b));
    (a == b).then_some(a)
}
