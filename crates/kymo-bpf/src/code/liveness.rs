//! Basic blocks, unreachable and dead code, and which registers are alive where.

use super::{CodeFunction, Instruction, Operand, Register};

/// The most bits of the tables (blocks × registers).
const MAX_BITS: usize = 1 << 28;

/// First and last moment of a register: an instruction `i` reads at `2i`, writes at `2i + 1`.
#[derive(Clone, Copy, Debug)]
pub(super) struct LiveInterval {
    pub(super) register: Register,
    pub(super) begin: u32,
    pub(super) end: u32,
}

struct BasicBlock {
    begin: usize,
    end: usize,
    next: Vec<usize>,
}

/// Blocks in order, each with those that may follow.
fn split_blocks(code: &[Instruction]) -> Vec<BasicBlock> {
    let mut blocks = Vec::new();
    let mut begin = 0;
    for (i, instruction) in code.iter().enumerate() {
        let starts = matches!(instruction, Instruction::Label(_));
        if starts && i > begin {
            blocks.push(BasicBlock { begin, end: i, next: Vec::new() });
            begin = i;
        }
        if instruction.ends_flow() || instruction.jump_target().is_some() {
            blocks.push(BasicBlock { begin, end: i + 1, next: Vec::new() });
            begin = i + 1;
        }
    }
    if begin < code.len() {
        blocks.push(BasicBlock { begin, end: code.len(), next: Vec::new() });
    }
    let mut place = std::collections::HashMap::new();
    for (n, block) in blocks.iter().enumerate() {
        for instruction in &code[block.begin..block.end] {
            if let Instruction::Label(label) = instruction {
                place.insert(*label, n);
            }
        }
    }
    let count = blocks.len();
    for (n, block) in blocks.iter_mut().enumerate() {
        let Some(last) = code.get(block.end.wrapping_sub(1)) else { continue };
        if let Some(label) = last.jump_target()
            && let Some(target) = place.get(&label)
        {
            block.next.push(*target);
        }
        if !last.ends_flow() && n + 1 < count {
            block.next.push(n + 1);
        }
    }
    blocks
}

/// Removes unreachable and unused code; gives registers that are read before they are written a 0.
/// The verifier refuses all three.
pub(super) fn clean(function: &mut CodeFunction) -> Result<(), String> {
    remove_unreachable(function);
    for _ in 0..4 {
        if !remove_dead(function)? {
            break;
        }
    }
    let blocks = split_blocks(&function.code);
    let live = LiveTable::new(function, &blocks)?;
    let mut zeroed: Vec<Instruction> = Vec::new();
    for register in 0..function.registers {
        if !blocks.is_empty() && live.is_live_in(0, register) {
            zeroed.push(Instruction::Move(register, Operand::Immediate(0)));
        }
    }
    // Parameters come first: r1 … are theirs until they are taken.
    let after =
        function.code.iter().take_while(|i| matches!(i, Instruction::Parameter(..))).count();
    function.code.splice(after..after, zeroed);
    Ok(())
}

fn remove_unreachable(function: &mut CodeFunction) {
    let blocks = split_blocks(&function.code);
    let mut reached = vec![false; blocks.len()];
    let mut todo = vec![0];
    while let Some(n) = todo.pop() {
        if reached.get(n) == Some(&false) {
            reached[n] = true;
            todo.extend(&blocks[n].next);
        }
    }
    let mut kept = Vec::with_capacity(function.code.len());
    for (block, _) in blocks.iter().zip(&reached).filter(|(_, reached)| **reached) {
        kept.extend_from_slice(&function.code[block.begin..block.end]);
    }
    // A jump to what follows it.
    let mut code: Vec<Instruction> = Vec::with_capacity(kept.len());
    for (i, instruction) in kept.iter().enumerate() {
        let target = match instruction {
            Instruction::Jump(label) => Some(*label),
            _ => None,
        };
        let mut follows = kept[i + 1..]
            .iter()
            .take_while(|n| matches!(n, Instruction::Label(_) | Instruction::Position(_)));
        if target.is_some_and(|t| follows.any(|n| *n == Instruction::Label(t))) {
            continue;
        }
        code.push(instruction.clone());
    }
    function.code = code;
}

fn remove_dead(function: &mut CodeFunction) -> Result<bool, String> {
    let blocks = split_blocks(&function.code);
    let live = LiveTable::new(function, &blocks)?;
    let mut keep = vec![true; function.code.len()];
    let mut removed = false;
    for (n, block) in blocks.iter().enumerate() {
        let mut alive = live.out_set(n, &blocks);
        for i in (block.begin..block.end).rev() {
            let instruction = &function.code[i];
            if let Some(defined) = instruction.defined() {
                if instruction.is_pure() && !alive.has(defined) {
                    keep[i] = false;
                    removed = true;
                    continue;
                }
                alive.remove(defined);
            }
            instruction.for_uses(|r| alive.insert(r));
        }
    }
    let mut keep = keep.iter();
    function.code.retain(|_| *keep.next().unwrap_or(&true));
    Ok(removed)
}

/// A set of registers.
#[derive(Clone)]
struct RegisterSet(Vec<u64>);

impl RegisterSet {
    fn has(&self, r: Register) -> bool {
        self.0.get(r as usize / 64).is_some_and(|w| w >> (r % 64) & 1 == 1)
    }

    fn insert(&mut self, r: Register) {
        if let Some(word) = self.0.get_mut(r as usize / 64) {
            *word |= 1 << (r % 64);
        }
    }

    fn remove(&mut self, r: Register) {
        if let Some(word) = self.0.get_mut(r as usize / 64) {
            *word &= !(1 << (r % 64));
        }
    }
}

/// Registers alive at the start of each block.
struct LiveTable {
    words: usize,
    live_in: Vec<RegisterSet>,
}

impl LiveTable {
    fn new(function: &CodeFunction, blocks: &[BasicBlock]) -> Result<LiveTable, String> {
        let words = (function.registers as usize).div_ceil(64).max(1);
        if words * 64 * blocks.len() > MAX_BITS {
            return Err("program is too large".into());
        }
        let empty = RegisterSet(vec![0; words]);
        let mut table = LiveTable { words, live_in: vec![empty; blocks.len()] };
        let mut changed = true;
        while changed {
            changed = false;
            for (n, block) in blocks.iter().enumerate().rev() {
                let mut alive = table.out_set(n, blocks);
                for instruction in function.code[block.begin..block.end].iter().rev() {
                    if let Some(defined) = instruction.defined() {
                        alive.remove(defined);
                    }
                    instruction.for_uses(|r| alive.insert(r));
                }
                if alive.0 != table.live_in[n].0 {
                    table.live_in[n] = alive;
                    changed = true;
                }
            }
        }
        Ok(table)
    }

    fn is_live_in(&self, block: usize, register: Register) -> bool {
        self.live_in[block].has(register)
    }

    fn out_set(&self, block: usize, blocks: &[BasicBlock]) -> RegisterSet {
        let mut out = RegisterSet(vec![0; self.words]);
        for next in &blocks[block].next {
            for (word, more) in out.0.iter_mut().zip(&self.live_in[*next].0) {
                *word |= more;
            }
        }
        out
    }
}

/// Intervals of all registers in use, by begin.
pub(super) fn intervals(function: &CodeFunction) -> Result<Vec<LiveInterval>, String> {
    let blocks = split_blocks(&function.code);
    let live = LiveTable::new(function, &blocks)?;
    let mut range: Vec<Option<(u32, u32)>> = vec![None; function.registers as usize];
    let mut touch = |register: Register, at: u32| {
        let entry = &mut range[register as usize];
        *entry = Some(entry.map_or((at, at), |(b, e)| (b.min(at), e.max(at))));
    };
    for (n, block) in blocks.iter().enumerate() {
        let out = live.out_set(n, &blocks);
        for register in 0..function.registers {
            if live.is_live_in(n, register) {
                touch(register, 2 * block.begin as u32);
            }
            if out.has(register) {
                touch(register, 2 * block.end as u32 - 1);
            }
        }
        for (i, instruction) in function.code[block.begin..block.end].iter().enumerate() {
            let at = 2 * (block.begin + i) as u32;
            instruction.for_uses(|r| touch(r, at));
            if let Some(defined) = instruction.defined() {
                touch(defined, at + 1);
            }
        }
    }
    let mut list: Vec<LiveInterval> = range
        .iter()
        .enumerate()
        .filter_map(|(r, range)| {
            let (begin, end) = (*range)?;
            Some(LiveInterval { register: r as u32, begin, end })
        })
        .collect();
    list.sort_by_key(|i| (i.begin, i.end));
    Ok(list)
}
