//! Virtual registers to the machine's: a linear scan. What lives across a call gets one of
//! r6 to r9, as calls change the others; what finds none lives in the frame.

use super::liveness::{LiveInterval, intervals};
use super::{CodeFunction, Instruction, Operand, Register};

/// Location of a virtual register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RegisterHome {
    Machine(u8),
    /// Offset from the frame pointer.
    Frame(i32),
    /// Not in use.
    Nowhere,
}

/// Homes of all virtual registers.
pub(super) struct Allocation {
    pub(super) homes: Vec<RegisterHome>,
    /// Bytes of the frame, spilled registers included.
    pub(super) frame: u32,
}

const CALLER_SAVED: [u8; 6] = [0, 1, 2, 3, 4, 5];
const CALLEE_SAVED: [u8; 4] = [6, 7, 8, 9];
/// Registers that code for spilled ones works in, once there are any.
pub(super) const SPILL_REGISTERS: [u8; 2] = [0, 5];

pub(super) fn allocate(function: &CodeFunction) -> Result<Allocation, String> {
    let list = intervals(function)?;
    let scan = LinearScan::new(function, &[]);
    let (allocation, spilled) = scan.run(&list);
    if !spilled {
        return Ok(allocation);
    }
    Ok(LinearScan::new(function, &SPILL_REGISTERS).run(&list).0)
}

struct LinearScan<'f> {
    function: &'f CodeFunction,
    reserved: &'f [u8],
    calls: Vec<u32>,
    homes: Vec<RegisterHome>,
    active: Vec<(LiveInterval, u8)>,
    frame: u32,
    /// Slots of the frame and when they become free.
    slots: Vec<(i32, u32)>,
    hints: Vec<Option<RegisterHint>>,
}

#[derive(Clone, Copy)]
enum RegisterHint {
    Machine(u8),
    Like(Register),
}

impl<'f> LinearScan<'f> {
    fn new(function: &'f CodeFunction, reserved: &'f [u8]) -> LinearScan<'f> {
        let count = function.registers as usize;
        let mut calls = Vec::new();
        let mut hints = vec![None; count];
        for (i, instruction) in function.code.iter().enumerate() {
            match instruction {
                Instruction::Move(to, Operand::Register(from)) => {
                    hints[*to as usize].get_or_insert(RegisterHint::Like(*from));
                }
                Instruction::Call(_, arguments, result) => {
                    calls.push(2 * i as u32);
                    for (n, argument) in arguments.iter().enumerate() {
                        if let Operand::Register(r) = argument {
                            let machine = RegisterHint::Machine(n as u8 + 1);
                            hints[*r as usize].get_or_insert(machine);
                        }
                    }
                    if let Some(result) = result {
                        hints[*result as usize].get_or_insert(RegisterHint::Machine(0));
                    }
                }
                Instruction::Exit(Operand::Register(r)) => {
                    hints[*r as usize].get_or_insert(RegisterHint::Machine(0));
                }
                _ => {}
            }
        }
        LinearScan {
            function,
            reserved,
            calls,
            homes: vec![RegisterHome::Nowhere; count],
            active: Vec::new(),
            frame: function.frame.next_multiple_of(8),
            slots: Vec::new(),
            hints,
        }
    }

    fn run(mut self, list: &[LiveInterval]) -> (Allocation, bool) {
        let mut spilled = false;
        for interval in list {
            self.active.retain(|(other, _)| other.end >= interval.begin);
            let allowed = self.allowed(interval);
            let free = |r: &u8| !self.active.iter().any(|(_, used)| used == r);
            let hint = self.hint(interval.register).filter(|r| allowed.contains(r) && free(r));
            let choice = hint.or_else(|| allowed.iter().copied().find(free));
            let machine = match choice {
                Some(machine) => machine,
                None => {
                    spilled = true;
                    match self.evict(interval, &allowed) {
                        Some(machine) => machine,
                        None => {
                            self.spill(interval);
                            continue;
                        }
                    }
                }
            };
            self.homes[interval.register as usize] = RegisterHome::Machine(machine);
            self.active.push((*interval, machine));
        }
        (Allocation { homes: self.homes, frame: self.frame }, spilled)
    }

    fn allowed(&self, interval: &LiveInterval) -> Vec<u8> {
        let first = self.calls.partition_point(|c| *c < interval.begin);
        let crosses = self.calls.get(first).is_some_and(|c| *c < interval.end);
        let caller_saved = CALLER_SAVED.iter().filter(|_| !crosses).copied();
        let mut list: Vec<u8> = caller_saved.filter(|r| !self.reserved.contains(r)).collect();
        // Parameters stand in r1 … until each was taken.
        let at = interval.begin as usize / 2;
        if matches!(self.function.code.get(at), Some(Instruction::Parameter(..))) {
            list.clear();
        }
        list.extend(CALLEE_SAVED);
        list
    }

    fn hint(&self, register: Register) -> Option<u8> {
        match self.hints[register as usize]? {
            RegisterHint::Machine(machine) => Some(machine),
            RegisterHint::Like(other) => match self.homes[other as usize] {
                RegisterHome::Machine(machine) => Some(machine),
                _ => None,
            },
        }
    }

    /// Takes the register of the interval that ends last, if that is after this one.
    fn evict(&mut self, interval: &LiveInterval, allowed: &[u8]) -> Option<u8> {
        let candidates = self.active.iter().enumerate().filter(|(_, (_, r))| allowed.contains(r));
        let (at, (other, machine)) = candidates.max_by_key(|(_, (other, _))| other.end)?;
        if other.end <= interval.end {
            return None;
        }
        let (other, machine) = (*other, *machine);
        self.active.remove(at);
        self.spill(&other);
        Some(machine)
    }

    fn spill(&mut self, interval: &LiveInterval) {
        // A slot is free again only for what begins after its last owner's end.
        let free = self.slots.iter_mut().find(|(_, end)| *end < interval.begin);
        let offset = match free {
            Some(slot) => {
                slot.1 = interval.end;
                slot.0
            }
            None => {
                self.frame += 8;
                let offset = -(self.frame as i32);
                self.slots.push((offset, interval.end));
                offset
            }
        };
        self.homes[interval.register as usize] = RegisterHome::Frame(offset);
    }
}
