//! Fetch arguments: the values that a probe records, as expressions over registers,
//! memory and constants, each with a name and a type.

use std::fmt;

/// `NAME=FETCH:TYPE`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchArg {
    /// Name, where it is not the one that the kernel gives.
    pub name: Option<String>,
    /// The value.
    pub expr: FetchExpr,
    /// Type, where it is not the kernel's default.
    pub fetch_type: Option<FetchType>,
}

/// A base and reads of memory from there, innermost first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchExpr {
    /// Start of the expression.
    pub base: FetchBase,
    /// Reads of memory, each at the value before it plus an offset.
    pub dereferences: Vec<Dereference>,
}

/// A read of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dereference {
    /// Added to the address.
    pub offset: i64,
    /// `u`: a probe of the kernel reads the memory of the running program here.
    pub user: bool,
}

/// Start of a fetch expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FetchBase {
    /// A register, with its `%`.
    Register(String),
    /// A symbol of the kernel, read as memory.
    Symbol(String),
    /// An offset in the probed file, read as memory.
    FileOffset(u64),
    /// A number.
    Immediate(i64),
    /// Text in the kernel's own syntax, like `$retval`.
    Verbatim(String),
    /// Not alive at this one of several probe points.
    Missing,
}

/// Type of a fetch argument.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FetchType {
    /// `u32`, `s8`, `x64`.
    Integer {
        /// Format of the number.
        format: IntegerFormat,
        /// 8, 16, 32 or 64.
        bits: u32,
    },
    /// `bWIDTH@OFFSET/CONTAINER`: some bits of an integer.
    Bitfield {
        /// Number of bits.
        width: u64,
        /// Lowest bit in the container.
        offset: u64,
        /// Bits of the container.
        container: u64,
    },
    /// `TYPE[LENGTH]`.
    Array {
        /// Type of an element.
        element: Box<FetchType>,
        /// Number of elements, as it is written.
        length: String,
    },
    /// A type that only has a name: `string`, `ustring`, `symbol`, `char`, …
    Named(String),
}

/// Format of an integer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IntegerFormat {
    /// `u`.
    Unsigned,
    /// `s`.
    Signed,
    /// `x`: hexadecimal.
    Hexadecimal,
}

/// Immediate that stands for a missing value, as in perf and the kernel's documentation:
/// 0xdeade12d, whose low digits tell it from a valid pointer.
const MISSING: u32 = 0xdead_e12d;

impl FetchExpr {
    /// An expression without reads of memory.
    pub fn from_base(base: FetchBase) -> FetchExpr {
        FetchExpr { base, dereferences: Vec::new() }
    }
}

impl FetchType {
    /// An unsigned integer.
    pub fn unsigned(bits: u32) -> FetchType {
        FetchType::Integer { format: IntegerFormat::Unsigned, bits }
    }

    /// A signed integer.
    pub fn signed(bits: u32) -> FetchType {
        FetchType::Integer { format: IntegerFormat::Signed, bits }
    }

    /// An integer that is shown in hexadecimal digits.
    pub fn hexadecimal(bits: u32) -> FetchType {
        FetchType::Integer { format: IntegerFormat::Hexadecimal, bits }
    }

    /// The type that a text names; what is not known stays a name.
    pub fn parse(text: &str) -> FetchType {
        FetchType::parse_integer(text)
            .or_else(|| FetchType::parse_bitfield(text))
            .or_else(|| FetchType::parse_array(text))
            .unwrap_or_else(|| FetchType::Named(text.to_owned()))
    }

    fn parse_integer(text: &str) -> Option<FetchType> {
        let bits = match text.get(1..)? {
            "8" => 8,
            "16" => 16,
            "32" => 32,
            "64" => 64,
            _ => return None,
        };
        let format = match text.get(..1)? {
            "u" => IntegerFormat::Unsigned,
            "s" => IntegerFormat::Signed,
            "x" => IntegerFormat::Hexadecimal,
            _ => return None,
        };
        Some(FetchType::Integer { format, bits })
    }

    fn parse_bitfield(text: &str) -> Option<FetchType> {
        let (width, rest) = text.strip_prefix('b')?.split_once('@')?;
        let (offset, container) = rest.split_once('/')?;
        Some(FetchType::Bitfield {
            width: width.parse().ok()?,
            offset: offset.parse().ok()?,
            container: container.parse().ok()?,
        })
    }

    fn parse_array(text: &str) -> Option<FetchType> {
        let (element, rest) = text.split_once('[')?;
        let length = rest.strip_suffix(']')?;
        // One dimension is all there is; deeper ones stay names.
        if element.is_empty() || length.contains(['[', ']']) {
            return None;
        }
        let element = Box::new(FetchType::parse(element));
        Some(FetchType::Array { element, length: length.to_owned() })
    }
}

fn sign(offset: i64) -> char {
    if offset < 0 { '-' } else { '+' }
}

impl fmt::Display for FetchExpr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_memory = matches!(self.base, FetchBase::Symbol(_) | FetchBase::FileOffset(_));
        // `@SYM+OFF` is memory already: the first offset belongs to it.
        let (first, rest) = match self.dereferences.split_first() {
            Some((first, rest)) if is_memory => (Some(first.offset), rest),
            _ => (None, &self.dereferences[..]),
        };
        for Dereference { offset, user } in rest.iter().rev() {
            let user = if *user { "u" } else { "" };
            write!(f, "{}{user}{}(", sign(*offset), offset.unsigned_abs())?;
        }
        match &self.base {
            FetchBase::Register(name) | FetchBase::Verbatim(name) => f.write_str(name)?,
            FetchBase::Symbol(name) => write!(f, "@{name}{:+}", first.unwrap_or(0))?,
            FetchBase::FileOffset(at) => {
                write!(f, "@+0x{:x}", at.wrapping_add_signed(first.unwrap_or(0)))?;
            }
            FetchBase::Immediate(value) => write!(f, "\\{value}")?,
            FetchBase::Missing => write!(f, "\\{MISSING:#x}")?,
        }
        for _ in rest {
            f.write_str(")")?;
        }
        Ok(())
    }
}

impl fmt::Display for FetchType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FetchType::Integer { format, bits } => {
                let letter = match format {
                    IntegerFormat::Unsigned => 'u',
                    IntegerFormat::Signed => 's',
                    IntegerFormat::Hexadecimal => 'x',
                };
                write!(f, "{letter}{bits}")
            }
            FetchType::Bitfield { width, offset, container } => {
                write!(f, "b{width}@{offset}/{container}")
            }
            FetchType::Array { element, length } => write!(f, "{element}[{length}]"),
            FetchType::Named(name) => f.write_str(name),
        }
    }
}

impl fmt::Display for FetchArg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(name) = &self.name {
            write!(f, "{name}=")?;
        }
        write!(f, "{}", self.expr)?;
        match &self.fetch_type {
            Some(fetch_type) => write!(f, ":{fetch_type}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fetches_read_inside_out() {
        let fetch = |base: FetchBase, offsets: &[i64], user| {
            let dereferences =
                offsets.iter().map(|offset| Dereference { offset: *offset, user }).collect();
            FetchExpr { base, dereferences }.to_string()
        };
        let di = || FetchBase::Register("%di".into());
        assert_eq!(fetch(di(), &[], false), "%di");
        assert_eq!(fetch(di(), &[68, -8], false), "-8(+68(%di))");
        assert_eq!(fetch(di(), &[0], true), "+u0(%di)");
        assert_eq!(fetch(FetchBase::Symbol("jiffies".into()), &[4, 8], false), "+8(@jiffies+4)");
        assert_eq!(fetch(FetchBase::FileOffset(0x4010), &[8], false), "@+0x4018");
        assert_eq!(FetchExpr::from_base(FetchBase::Missing).to_string(), "\\0xdeade12d");
    }

    #[test]
    fn types_have_parts() {
        assert_eq!(FetchType::parse("u32"), FetchType::unsigned(32));
        assert_eq!(
            FetchType::parse("b4@8/32"),
            FetchType::Bitfield { width: 4, offset: 8, container: 32 }
        );
        let element = Box::new(FetchType::signed(16));
        assert_eq!(FetchType::parse("s16[4]"), FetchType::Array { element, length: "4".into() });
        for text in ["string", "u7", "x", "b@", "u8[", "[3]", "%pd", "ü8"] {
            assert_eq!(FetchType::parse(text), FetchType::Named(text.into()));
        }
    }
}
