//! System calls as strace writes them, out of the registers and the memory of a task that stands
//! still at both sides of a call.
//!
//! `calls` has the type of each argument; `times`, `files`, `signals`, `sockets`, `commands` write
//! structures; `words` names numbers. `log` puts calls, signals and ends of several tasks into
//! lines. Numbers and names are those of the kernel's headers; the forms are strace 6.1's.

mod calls;
mod commands;
mod counts;
mod files;
mod filter;
mod log;
mod printer;
mod results;
mod signals;
mod sockets;
mod summary;
mod times;
mod words;

pub use filter::{CallFilter, CallFilterError, CallStatus};
pub use log::{CallLineStyle, CountedTime, StopTime, StraceLog, TaskEnd, TimeStyle};
pub use summary::CountOrder;

use calls::{Argument, CallShape};
use printer::CallPrinter;

/// A task that stands still.
pub trait TaskView {
    /// Reads its memory at this address: the number of bytes up to the first that is not there.
    fn read(&mut self, address: u64, bytes: &mut [u8]) -> usize;
    /// File behind a descriptor, if descriptors are to be named or compared.
    fn descriptor(&mut self, fd: i32) -> Option<Vec<u8>>;
    /// Its directory, under the same condition.
    fn directory(&mut self) -> Option<Vec<u8>>;
    /// The time of day of a time since 1970.
    fn time_of_day(&mut self, seconds: i64) -> String;
    /// A time since 1970 as ISO 8601 has it, with the zone.
    fn local_time(&mut self, seconds: i64) -> String;
}

/// Which texts are written in hexadecimal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HexTexts {
    /// None.
    #[default]
    None,
    /// Those with other bytes than ASCII's letters, digits and signs.
    NonPlain,
    /// All.
    All,
}

/// Style of arguments.
#[derive(Clone, Debug)]
pub struct StraceStyle {
    /// Maximum length of printed strings, in bytes.
    pub string_limit: usize,
    /// Which texts are hexadecimal.
    pub hex: HexTexts,
    /// Whether descriptors are followed by what they stand for.
    pub paths: bool,
    /// Whether structures, environments and lists are shown to their end.
    pub whole: bool,
    /// Writes seconds since 1970 where the machine is, by a format of strftime(3): dates are
    /// beside times in structures then.
    pub local_time: Option<fn(&str, i64) -> String>,
}

impl StraceStyle {
    /// Elements of lists that are shown: up to the number of bytes of a text.
    pub(super) fn list_limit(&self) -> usize {
        /// Arguments and environment of a program have no more.
        const MOST: usize = 1 << 16;
        if self.whole { MOST } else { self.string_limit }
    }
}

impl Default for StraceStyle {
    fn default() -> StraceStyle {
        StraceStyle {
            string_limit: 32,
            hex: HexTexts::None,
            paths: false,
            whole: false,
            local_time: None,
        }
    }
}

/// A system call that has begun.
#[derive(Clone, Debug)]
pub struct BegunCall {
    /// Its name.
    pub name: String,
    /// Its number in the ABI of its program.
    pub number: i64,
    /// Whether its program is of 32 bits on a machine of 64.
    pub is_compat: bool,
    /// Registers of the arguments.
    pub args: [u64; 6],
    /// The stack pointer.
    pub stack: u64,
    shape: CallShape,
    done: usize,
    saved: u64,
    kept: Vec<u8>,
    /// Paths that the arguments have named so far.
    pub(super) paths: Vec<Vec<u8>>,
}

/// Text that the end of a call adds to its line.
#[derive(Debug, Default)]
struct CallEnd {
    rest: Vec<u8>,
    aside: Option<Vec<u8>>,
}

/// `AUDIT_ARCH_I386`: include/uapi/linux/audit.h.
const I386: u32 = 0x4000_0003;

impl BegunCall {
    /// A call by its number in the ABI that the kernel names by `AUDIT_ARCH_…`.
    pub fn new(architecture: u32, number: i64, args: [u64; 6], stack: u64) -> BegunCall {
        let is_compat = architecture == I386;
        let name = super::syscall_name(if is_compat {
            number.saturating_add(super::COMPAT_CALLS)
        } else {
            number
        });
        let name = name.map_or_else(|| format!("syscall_{number:#x}"), str::to_owned);
        let shape = calls::shape(&name, &args, is_compat);
        BegunCall {
            name,
            number,
            is_compat,
            args,
            stack,
            shape,
            done: 0,
            saved: 0,
            kept: Vec::new(),
            paths: Vec::new(),
        }
    }

    /// Whether arguments are missing that the end of the call has.
    fn is_unfinished(&self) -> bool {
        self.shape.arguments().nth(self.done).is_some()
    }

    fn printer<'a>(&self, task: &'a mut dyn TaskView, style: &'a StraceStyle) -> CallPrinter<'a> {
        CallPrinter {
            out: Vec::new(),
            args: self.args,
            result: None,
            saved: self.saved,
            kept: self.kept.clone(),
            task,
            style,
            aside: None,
            paths: Vec::new(),
        }
    }

    /// The arguments that the beginning has, as far as they stand in a row.
    fn begin(&mut self, task: &mut dyn TaskView, style: &StraceStyle) -> Vec<u8> {
        let stack = self.stack;
        let mut printer = self.printer(task, style);
        printer.saved = calls::remember(&self.name, &mut printer);
        let kept = calls::keep(&self.name, &mut printer);
        if self.name == "rt_sigreturn" && !self.is_compat {
            signals::returned_mask(&mut printer, stack);
        }
        let mut done = 0;
        for (argument, value) in self.shape.arguments().zip(self.args) {
            let Argument::In(write) = argument else { break };
            printer.text(if done > 0 { ", " } else { "" });
            write(&mut printer, value);
            done += 1;
        }
        match self.shape.arguments().nth(done) {
            None | Some(Argument::Tail(_)) => {}
            Some(_) => printer.text(if done > 0 { ", " } else { "" }),
        }
        let CallPrinter { out, saved, paths, .. } = printer;
        (self.done, self.saved, self.kept, self.paths) = (done, saved, kept, paths);
        out
    }

    /// The other arguments, now that the kernel has written what it writes.
    fn end(
        &mut self,
        result: (i64, bool),
        task: &mut dyn TaskView,
        style: &StraceStyle,
    ) -> CallEnd {
        let mut printer = self.printer(task, style);
        printer.result = Some(result);
        let rest = self.shape.arguments().zip(self.args).skip(self.done);
        for (n, (argument, value)) in rest.enumerate() {
            let is_tail = matches!(argument, Argument::Tail(_));
            printer.text(if n > 0 && !is_tail { ", " } else { "" });
            match argument {
                Argument::Out(_) if result.1 => printer.address(value),
                Argument::In(write)
                | Argument::Out(write)
                | Argument::End(write)
                | Argument::Tail(write) => write(&mut printer, value),
            }
        }
        if !result.1 {
            results::aside(&self.name, &mut printer, result.0);
        }
        let CallPrinter { out, aside, paths, .. } = printer;
        self.paths.extend(paths);
        CallEnd { rest: out, aside }
    }
}
