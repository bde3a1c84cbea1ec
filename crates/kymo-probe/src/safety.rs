//! Safety of a probe point, before it is armed: does an instruction begin there, may the
//! kernel be probed there, can arming it do harm.

use kymo_debuginfo::instruction::{self, At, Cost};
use kymo_model::{Note, NoteKind, counted};
use kymo_symbols::debug_files::BinaryKind;

use crate::point_finder::ProbePoint;
use crate::resolve::ProbedBinary;

/// Reason why a probe point should not be armed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeHazard {
    /// Harm that would be done.
    pub what: String,
    /// A better point.
    pub advice: String,
}

impl ProbeHazard {
    /// Note on a hazard that depends on what the program does.
    pub fn into_note(self) -> Note {
        Note::choice(NoteKind::Hazard, self.what, Some(self.advice))
    }
}

/// Safety and cost of a probe point.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PointSafety {
    /// A reason not to arm it.
    pub hazard: Option<ProbeHazard>,
    /// Whether a hit is cheap; none if not known.
    pub cheap: Option<bool>,
}

/// Return instructions that are listed.
const MOST_RETURNS: usize = 8;

const UNKNOWN: PointSafety = PointSafety { hazard: None, cheap: None };

impl ProbedBinary<'_> {
    /// Judges a probe point.
    pub fn judge(&self, point: &ProbePoint) -> PointSafety {
        match self.files.kind {
            BinaryKind::User => self.judge_at(point.addr),
            _ => self.judge_kernel(point),
        }
    }

    /// Functions that are gone after boot, or that the kernel itself relies on
    /// while it handles a probe.
    fn judge_kernel(&self, point: &ProbePoint) -> PointSafety {
        let Some(section) = self.symbols.section_at(point.addr) else { return UNKNOWN };
        let function = &point.function;
        let (what, advice) = match section.name.as_str() {
            ".init.text" => (
                format!("{function} is in __init code, which is freed after boot"),
                "probe what it calls",
            ),
            ".exit.text" => (
                format!("{function} is in __exit code, which may not be loaded"),
                "probe what it calls",
            ),
            ".kprobes.text" | ".noinstr.text" | ".entry.text" | ".irqentry.text" => (
                format!(
                    "{function} is in {}, which handles probes and cannot be probed",
                    section.name
                ),
                "probe a caller",
            ),
            _ => return UNKNOWN,
        };
        PointSafety { hazard: Some(ProbeHazard { what, advice: advice.into() }), cheap: None }
    }

    /// Judges an address of a program.
    pub fn judge_at(&self, addr: u64) -> PointSafety {
        if self.symbols.machine_is_x86_64() == Some(false) {
            return UNKNOWN;
        }
        let Some((name, start, end)) = self.symbols.function_span(addr) else {
            return UNKNOWN;
        };
        let name = name.to_owned();
        let Some(code) = self.code(start, end) else { return UNKNOWN };
        match instruction::at(code, start, addr) {
            At::Unknown => UNKNOWN,
            At::Inside { begins, next } => PointSafety {
                hazard: Some(ProbeHazard {
                    what: format!(
                        "{name}+{} is in the middle of an instruction: a probe there would damage it",
                        addr - start
                    ),
                    advice: format!(
                        "instructions begin at {name}+{} and {name}+{}",
                        begins - start,
                        next - start
                    ),
                }),
                cheap: None,
            },
            At::Instruction { cost: Cost::Nop5, len }
                if addr != start && !instruction::makes_calls(code, start) =>
            {
                PointSafety {
                    hazard: Some(ProbeHazard {
                        what: format!(
                            "{name}+{} is a nop of 5 bytes in a function without calls: kernels that turn it into a call would overwrite data below its stack pointer",
                            addr - start
                        ),
                        advice: format!(
                            "the next instruction, {name}+{}, is safe",
                            addr - start + len as u64
                        ),
                    }),
                    cheap: Some(true),
                }
            }
            At::Instruction { cost: Cost::Nop10, len } => PointSafety {
                hazard: Some(ProbeHazard {
                    what: format!(
                        "{name}+{} is a nop of 10 bytes, on which some kernels accept probes that never fire",
                        addr - start
                    ),
                    advice: format!(
                        "the next instruction, {name}+{}, works",
                        addr - start + len as u64
                    ),
                }),
                cheap: Some(true),
            },
            At::Instruction { cost, .. } => {
                PointSafety { hazard: None, cheap: Some(cost != Cost::Stepped) }
            }
        }
    }

    /// Judges a return probe of the function at an address of a program. The kernel replaces the
    /// return address, which Go's runtime finds when it copies or scans the stack.
    pub fn judge_return(&self, addr: u64) -> Option<ProbeHazard> {
        if !self.symbols.is_go(addr) {
            return None;
        }
        let name = self.name_at(addr);
        Some(ProbeHazard {
            what: format!(
                "{name} is Go code: a return probe replaces the return address on the stack, and \
                 the Go runtime aborts the program when it finds that"
            ),
            advice: self.instead_of_return(addr, &name),
        })
    }

    /// Judges a return probe of the function at an address of a program that may be left by
    /// exceptions: the unwinder finds the address that the kernel put on the stack, and the
    /// program aborts. `others` are the further functions that have the same.
    pub fn judge_unwinding(&self, addr: u64, others: usize) -> Option<ProbeHazard> {
        if !self.symbols.raises_exceptions() {
            return None;
        }
        let name = self.name_at(addr);
        let more = match others {
            0 => String::new(),
            others => {
                format!(" or {}", counted(others as u64, "other function", "other functions"))
            }
        };
        Some(ProbeHazard {
            what: format!(
                "an exception or panic that leaves {name}{more} ends the program while the return \
                 is probed: unwinding stops at the replaced return address"
            ),
            advice: self.instead_of_return(addr, &name),
        })
    }

    fn name_at(&self, addr: u64) -> String {
        let span = self.symbols.function_span(addr);
        span.map_or_else(|| format!("{addr:#x}"), |(name, ..)| name.to_owned())
    }

    /// Points that show what a return probe of a function would.
    fn instead_of_return(&self, addr: u64, name: &str) -> String {
        let span = self.symbols.function_span(addr);
        let is_x86_64 = self.symbols.machine_is_x86_64() == Some(true);
        let returns = span.filter(|_| is_x86_64).and_then(|(_, start, end)| {
            self.code(start, end).map(|code| instruction::returns(code, start))
        });
        let returns = returns.unwrap_or_default();
        let offsets: Vec<String> =
            returns.iter().map(|at| format!("+{}", at.wrapping_sub(addr))).collect();
        let instead = match offsets.as_slice() {
            [] => String::new(),
            [one] => format!(", or its return instruction ({name}{one})"),
            several if several.len() <= MOST_RETURNS => {
                format!(", or its return instructions ({name}{})", several.join(", "))
            }
            _ => ", or its return instructions".to_owned(),
        };
        format!("probe its entry{instead}")
    }

    fn code(&self, start: u64, end: u64) -> Option<&[u8]> {
        let from = usize::try_from(self.symbols.file_offset(start)?).ok()?;
        let len = usize::try_from(end.checked_sub(start)?).ok()?;
        self.files.binary().get(from..from.checked_add(len)?)
    }
}
