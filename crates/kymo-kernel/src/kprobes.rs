//! State of probes in the kernel: whether they are armed, their mechanism (a breakpoint, a jump,
//! the function tracer's call), whether jumps are allowed, and blacklisted addresses. Definitions
//! of events are in `probe_events`.

use std::io;
use std::path::Path;

use crate::ftrace::Instance;
use crate::system_root::system_path;
use crate::tracefs::Tracefs;

/// Whether the kernel may replace breakpoints by jumps.
const SWITCH: &str = "/proc/sys/debug/kprobes-optimization";
const LIST: &str = "/sys/kernel/debug/kprobes/list";
const BLACKLIST: &str = "/sys/kernel/debug/kprobes/blacklist";

/// Mechanism by which a probe of the kernel takes over the processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeMechanism {
    /// A breakpoint.
    Breakpoint,
    /// A jump in place of it ("optimized").
    Jump,
    /// The call that the function tracer uses at entries of functions.
    Ftrace,
}

/// A probe as the kernel lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kprobe {
    /// Address.
    pub addr: u64,
    /// Whether it is of a return.
    pub is_return: bool,
    /// Mechanism.
    pub mechanism: ProbeMechanism,
    /// Whether it is disabled.
    pub disabled: bool,
    /// Its code (of a module) is gone.
    pub gone: bool,
}

impl Kprobe {
    /// All of them; none if debugfs does not tell.
    pub fn all() -> Vec<Kprobe> {
        let text = std::fs::read_to_string(system_path(LIST)).unwrap_or_default();
        text.lines().filter_map(Kprobe::parse).collect()
    }

    /// One line: `ffffffff9a0b5d60  k  vfs_read+0x0    [DISABLED][FTRACE]`.
    fn parse(line: &str) -> Option<Kprobe> {
        let mut words = line.split_ascii_whitespace();
        let addr = u64::from_str_radix(words.next()?, 16).ok()?;
        let is_return = words.next()? == "r";
        let has = |mark: &str| line.contains(mark);
        let mechanism = match () {
            () if has("[FTRACE]") => ProbeMechanism::Ftrace,
            () if has("[OPTIMIZED]") => ProbeMechanism::Jump,
            () => ProbeMechanism::Breakpoint,
        };
        Some(Kprobe {
            addr,
            is_return,
            mechanism,
            disabled: has("[DISABLED]"),
            gone: has("[GONE]"),
        })
    }
}

/// Whether breakpoints may become jumps; `None` where the kernel cannot do it.
pub fn jump_optimization() -> Option<bool> {
    switch(&system_path(SWITCH))
}

fn switch(path: &Path) -> Option<bool> {
    match std::fs::read_to_string(path).ok()?.trim() {
        "0" => Some(false),
        "1" => Some(true),
        _ => None,
    }
}

/// Jump optimization as it shall be for a while; what it was is put back with this.
/// An empty trace instance stands for the change meanwhile: should this process be
/// killed, [`JumpOptimization::restore`] of the instance's name puts it back.
#[derive(Debug)]
pub struct JumpOptimization {
    before: bool,
    _mark: Instance,
}

/// Name suffix of such instances, before the digit.
const MARK: &str = "jumps-were-";

impl JumpOptimization {
    /// Allows or forbids it. Waits until the kernel has changed its probes.
    pub fn set(tracefs: &Tracefs, allowed: bool) -> io::Result<JumpOptimization> {
        let before = jump_optimization().ok_or_else(|| {
            io::Error::new(io::ErrorKind::Unsupported, "the kernel was built without OPTPROBES")
        })?;
        let mark = Instance::create(tracefs, &format!("{MARK}{}", u8::from(before)))
            .map_err(io::Error::other)?;
        std::fs::write(system_path(SWITCH), if allowed { "1" } else { "0" })?;
        Ok(JumpOptimization { before, _mark: mark })
    }

    /// Puts back what the name of a left over instance says. `false`: it says nothing.
    pub fn restore(instance: &str) -> bool {
        let Some((_, rest)) = instance.split_once(MARK) else { return false };
        let digit = if rest.starts_with('1') { "1" } else { "0" };
        std::fs::write(system_path(SWITCH), digit).is_ok()
    }
}

impl Drop for JumpOptimization {
    fn drop(&mut self) {
        // It could be written before; who takes that away has other worries.
        let _ = std::fs::write(system_path(SWITCH), if self.before { "1" } else { "0" });
    }
}

/// The name by which the kernel forbids to probe an address.
pub fn forbidden(addr: u64) -> Option<String> {
    let text = std::fs::read_to_string(system_path(BLACKLIST)).ok()?;
    forbidden_in(&text, addr)
}

/// Lines are `0xffffffff9a0b5d60-0xffffffff9a0b5d70  name`.
fn forbidden_in(list: &str, addr: u64) -> Option<String> {
    let number = |text: &str| u64::from_str_radix(text.trim_start_matches("0x"), 16).ok();
    list.lines().find_map(|line| {
        let mut words = line.split_ascii_whitespace();
        let (start, end) = words.next()?.split_once('-')?;
        let inside = (number(start)?..number(end)?).contains(&addr);
        inside.then(|| words.next().unwrap_or("?").to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_kernel_are_read() {
        let line = "ffffffff9a0b5d60  r  vfs_read+0x0    [DISABLED][FTRACE]";
        let expected = Kprobe {
            addr: 0xffff_ffff_9a0b_5d60,
            is_return: true,
            mechanism: ProbeMechanism::Ftrace,
            disabled: true,
            gone: false,
        };
        assert_eq!(Kprobe::parse(line), Some(expected));
        let jump = Kprobe::parse("ffffffff9a0b5d60  k  a+0x9  my_mod [OPTIMIZED]").unwrap();
        assert_eq!(
            (jump.mechanism, jump.is_return, jump.disabled),
            (ProbeMechanism::Jump, false, false)
        );
        assert_eq!(Kprobe::parse("nonsense"), None);
        let list = "0xffffffff00000010-0xffffffff00000020\tfirst\n0xffffffff00000020-0xffffffff00000030\tsecond\n";
        assert_eq!(forbidden_in(list, 0xffff_ffff_0000_0020).as_deref(), Some("second"));
        assert_eq!(forbidden_in(list, 0xffff_ffff_0000_0030), None);
    }

    #[test]
    fn the_switch_is_a_digit() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("switch");
        assert_eq!(switch(&path), None);
        for (text, expected) in [("1\n", Some(true)), ("0\n", Some(false)), ("?", None)] {
            std::fs::write(&path, text).unwrap();
            assert_eq!(switch(&path), expected);
        }
    }
}
