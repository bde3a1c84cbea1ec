//! Parsed description of a probe: an event, its probe point, and its arguments. Syntax only;
//! nothing here reads a binary.

use std::fmt;

/// A parsed description: `[[GROUP:]EVENT=]POINT [ARG…]`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProbeDescription {
    /// The text it was made of.
    pub text: String,
    /// Name of the group, if given.
    pub group: Option<String>,
    /// Name of the event, if given.
    pub event: Option<String>,
    /// Probe point.
    pub point: PointDescription,
    /// Arguments to record.
    pub args: Vec<ArgDescription>,
}

/// Probe point as described.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PointDescription {
    /// Function, possibly a glob or a path (`mycrate::f`).
    pub function: Option<String>,
    /// Source file, matched from its end.
    pub file: Option<String>,
    /// Line: of the file, or counted from the function's own line.
    pub line: Option<u32>,
    /// Bytes from the function's entry.
    pub offset: u64,
    /// `%return`.
    pub ret: bool,
    /// `%next`: the line behind the named one that has code.
    pub next: bool,
    /// Pattern of source lines.
    pub lazy: Option<String>,
    /// A plain address of the binary.
    pub address: Option<u64>,
    /// A USDT probe (an SDT note of the binary).
    pub usdt: Option<UsdtName>,
}

/// Name of a USDT probe: `%PROVIDER:NAME`, `%NAME`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsdtName {
    /// Provider, if given; possibly a glob.
    pub provider: Option<String>,
    /// Name, possibly a glob.
    pub name: String,
}

/// A value to record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArgDescription {
    /// The name it shall have, if given.
    pub name: Option<String>,
    /// Value of the argument.
    pub value: ArgValue,
    /// The type it is cast to, if given.
    pub cast: Option<String>,
    /// `@user`: it points into the memory of the program that called the kernel.
    pub user: bool,
    /// Byte of the description at which it begins, and its length.
    pub span: (usize, usize),
}

/// Forms of arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ArgValue {
    /// A variable of the source and steps into it.
    Variable {
        /// Whether its address is asked for (`&var`).
        address_of: bool,
        /// Its name.
        name: String,
        /// Steps from the left.
        steps: Vec<FieldStep>,
    },
    /// `$vars`: all variables alive there.
    Vars,
    /// `$params`: all parameters.
    Params,
    /// Argument in the kernel's own syntax, unchanged.
    Raw(String),
}

/// A step from a value to a part of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FieldStep {
    /// `.NAME`.
    Dot(String),
    /// `->NAME`.
    Arrow(String),
    /// `[INDEX]`.
    Index(i64),
}

impl ProbeDescription {
    /// Whether debugging information is needed to know the place or a value.
    pub fn needs_debuginfo(&self) -> bool {
        let p = &self.point;
        p.file.is_some() || p.line.is_some() || p.lazy.is_some() || p.next || self.has_variables()
    }

    /// Whether any argument names something of the source.
    pub fn has_variables(&self) -> bool {
        self.args.iter().any(|a| !matches!(a.value, ArgValue::Raw(_)))
    }
}

impl fmt::Display for PointDescription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(UsdtName { provider, name }) = &self.usdt {
            return match provider {
                Some(p) => write!(f, "%{p}:{name}"),
                None => write!(f, "%{name}"),
            };
        }
        let name = self.function.as_deref();
        f.write_str(name.unwrap_or_default())?;
        match (&self.file, name) {
            (Some(file), Some(_)) => write!(f, "@{file}")?,
            // A name without a point would be taken for a function.
            (Some(file), None) if !file.contains('.') || file.contains("::") => {
                write!(f, "@{file}")?
            }
            (Some(file), None) => f.write_str(file)?,
            _ => {}
        }
        if self.offset != 0 {
            write!(f, "+{}", self.offset)?;
        }
        if let Some(line) = self.line {
            write!(f, ":{line}")?;
        }
        if self.ret {
            f.write_str("%return")?;
        }
        if self.next {
            f.write_str("%next")?;
        }
        match &self.lazy {
            Some(pattern) => write!(f, ";{pattern}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for ArgDescription {
    /// Without the name: `file->f_mode:x32`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.value {
            ArgValue::Variable { address_of, name, steps } => {
                f.write_str(if *address_of { "&" } else { "" })?;
                f.write_str(name)?;
                for step in steps {
                    match step {
                        FieldStep::Dot(n) => write!(f, ".{n}")?,
                        FieldStep::Arrow(n) => write!(f, "->{n}")?,
                        FieldStep::Index(i) => write!(f, "[{i}]")?,
                    }
                }
            }
            ArgValue::Vars => f.write_str("$vars")?,
            ArgValue::Params => f.write_str("$params")?,
            ArgValue::Raw(text) => f.write_str(text)?,
        }
        match &self.cast {
            Some(cast) => write!(f, ":{cast}"),
            None => Ok(()),
        }
    }
}
