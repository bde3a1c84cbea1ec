//! What the kernel takes: one line of `kprobe_events` or `uprobe_events`,
//! written as perf writes it, so that the two can be compared as text.

use std::fmt;

/// An event as the kernel is told it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Definition {
    /// A return probe.
    pub ret: bool,
    /// Group.
    pub group: String,
    /// Name.
    pub event: String,
    /// Where.
    pub place: Place,
    /// What is recorded.
    pub args: Vec<FetchArg>,
}

/// A place in the words of the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// In the kernel: `[MODULE:]SYMBOL+OFFSET`.
    Kernel {
        /// Module; none for the kernel itself.
        module: Option<String>,
        /// Symbol.
        symbol: String,
        /// Bytes from it.
        offset: u64,
    },
    /// In a file: `PATH:OFFSET[(SEMAPHORE)]`.
    File {
        /// The binary.
        path: String,
        /// Bytes from its beginning.
        offset: u64,
        /// Where in the file a marker's counter of users is.
        semaphore: Option<u64>,
    },
    /// A plain address of the kernel.
    Address(u64),
}

/// `NAME=FETCH:TYPE`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchArg {
    /// Name, if it shall have another than the kernel gives.
    pub name: Option<String>,
    /// The value.
    pub fetch: Fetch,
    /// Type, if not the kernel's default.
    pub kind: Option<String>,
}

/// A base and dereferences of it, innermost first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fetch {
    /// What it starts from.
    pub base: Base,
    /// Each reads memory at the value before it plus the offset.
    pub derefs: Vec<Deref>,
}

/// A read of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deref {
    /// Added to the address.
    pub offset: i64,
    /// Whether a probe of the kernel reads the program's memory here.
    pub user: bool,
}

/// What a fetch starts from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Base {
    /// A register, with its `%`.
    Register(String),
    /// A symbol of the kernel, read as memory.
    Symbol(String),
    /// A place in the probed file, read as memory.
    FileOffset(u64),
    /// A number.
    Immediate(i64),
    /// Text in the kernel's own syntax.
    Raw(String),
    /// Not alive at this one of several places: the value perf and the kernel's
    /// documentation use for it.
    Missing,
}

/// What a missing value is shown as: 0xdeade12d with the low digits that tell
/// it from a valid pointer.
const MISSING: u32 = 0xdead_e12d;

impl Fetch {
    /// A fetch of the base alone.
    pub fn of(base: Base) -> Fetch {
        Fetch { base, derefs: Vec::new() }
    }
}

impl fmt::Display for Fetch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_memory = matches!(self.base, Base::Symbol(_) | Base::FileOffset(_));
        // `@SYM+OFF` is memory already: the first offset belongs to it.
        let (first, rest) = match self.derefs.split_first() {
            Some((first, rest)) if is_memory => (Some(first.offset), rest),
            _ => (None, &self.derefs[..]),
        };
        for Deref { offset, user } in rest.iter().rev() {
            let user = if *user { "u" } else { "" };
            write!(f, "{}{user}{}(", sign(*offset), offset.unsigned_abs())?;
        }
        match &self.base {
            Base::Register(name) | Base::Raw(name) => f.write_str(name)?,
            Base::Symbol(name) => write!(f, "@{name}{:+}", first.unwrap_or(0))?,
            Base::FileOffset(at) => {
                write!(f, "@+0x{:x}", at.wrapping_add_signed(first.unwrap_or(0)))?;
            }
            Base::Immediate(value) => write!(f, "\\{value}")?,
            Base::Missing => write!(f, "\\{MISSING:#x}")?,
        }
        for _ in rest {
            f.write_str(")")?;
        }
        Ok(())
    }
}

fn sign(offset: i64) -> char {
    if offset < 0 { '-' } else { '+' }
}

impl fmt::Display for FetchArg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(name) = &self.name {
            write!(f, "{name}=")?;
        }
        write!(f, "{}", self.fetch)?;
        match &self.kind {
            Some(kind) => write!(f, ":{kind}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Kernel { module, symbol, offset } => {
                if let Some(module) = module {
                    write!(f, "{module}:")?;
                }
                write!(f, "{symbol}+{offset}")
            }
            Place::File { path, offset, semaphore } => {
                write!(f, "{path}:0x{offset:x}")?;
                match semaphore {
                    Some(at) => write!(f, "(0x{at:x})"),
                    None => Ok(()),
                }
            }
            Place::Address(at) => write!(f, "0x{at:x}"),
        }
    }
}

impl fmt::Display for Definition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let letter = if self.ret { 'r' } else { 'p' };
        write!(f, "{letter}:{}/{} {}", self.group, self.event, self.place)?;
        for arg in &self.args {
            write!(f, " {arg}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fetches_read_inside_out() {
        let fetch = |base: Base, derefs: &[i64], user| {
            let derefs = derefs.iter().map(|offset| Deref { offset: *offset, user }).collect();
            Fetch { base, derefs }.to_string()
        };
        let di = || Base::Register("%di".into());
        assert_eq!(fetch(di(), &[], false), "%di");
        assert_eq!(fetch(di(), &[68, -8], false), "-8(+68(%di))");
        assert_eq!(fetch(di(), &[0], true), "+u0(%di)");
        assert_eq!(fetch(Base::Symbol("jiffies".into()), &[4, 8], false), "+8(@jiffies+4)");
        assert_eq!(fetch(Base::FileOffset(0x4010), &[8], false), "@+0x4018");
        assert_eq!(Fetch::of(Base::Missing).to_string(), "\\0xdeade12d");
    }
}
