//! A machine for BPF programs: instructions, the helpers that programs of the tests call, maps
//! in memory of its own. One CPU; reads outside of its memory fail as the kernel's do.

use std::collections::BTreeMap;

use kymo_bpf::{BpfMapType, CompiledProbe, CompiledProgram};

/// Addresses begin here.
const BASE: u64 = 0x10_0000;
/// Marks addresses of functions.
const FUNCTION: u64 = 0xf000_0000_0000_0000;
/// The most instructions of one run.
const MAX_STEPS: u32 = 2_000_000;
/// Process and thread of programs that run.
pub(crate) const PID: u64 = 42;
pub(crate) const TID: u64 = 43;
pub(crate) const NOW: u64 = 5_000_000_123;

/// A machine with a program's maps.
pub(crate) struct TestMachine<'p> {
    program: &'p CompiledProgram,
    memory: Vec<u8>,
    maps: Vec<BTreeMap<Vec<u8>, u64>>,
    steps: u32,
    /// Records of the ring.
    pub(crate) records: Vec<Vec<u8>>,
    /// Whether the ring takes none.
    pub(crate) ring_full: bool,
}

impl<'p> TestMachine<'p> {
    pub(crate) fn new(program: &'p CompiledProgram) -> TestMachine<'p> {
        let mut machine = TestMachine {
            program,
            memory: Vec::new(),
            maps: vec![BTreeMap::new(); program.maps.len()],
            steps: 0,
            records: Vec::new(),
            ring_full: false,
        };
        for (n, map) in program.maps.iter().enumerate() {
            if matches!(map.map_type, BpfMapType::Array | BpfMapType::PerCpuArray) {
                for index in 0..map.max_entries {
                    let at = machine.take(map.value_size as usize);
                    machine.maps[n].insert(index.to_le_bytes().to_vec(), at);
                }
            }
        }
        machine
    }

    /// Memory of a number of bytes; its address.
    pub(crate) fn take(&mut self, size: usize) -> u64 {
        let at = self.memory.len().next_multiple_of(8);
        self.memory.resize(at + size, 0);
        BASE + at as u64
    }

    /// Memory that holds bytes.
    pub(crate) fn place(&mut self, bytes: &[u8]) -> u64 {
        let at = self.take(bytes.len());
        self.write(at, bytes);
        at
    }

    fn bytes(&self, at: u64, size: usize) -> Option<&[u8]> {
        let begin = usize::try_from(at.checked_sub(BASE)?).ok()?;
        self.memory.get(begin..begin.checked_add(size)?)
    }

    fn write(&mut self, at: u64, bytes: &[u8]) {
        let begin = (at - BASE) as usize;
        self.memory[begin..begin + bytes.len()].copy_from_slice(bytes);
    }

    fn word(&self, at: u64, size: usize) -> u64 {
        let mut word = [0; 8];
        let bytes = self.bytes(at, size).unwrap_or_else(|| panic!("load of {size} at {at:#x}"));
        word[..size].copy_from_slice(bytes);
        u64::from_le_bytes(word)
    }

    /// Entries of a map by name: keys and values.
    pub(crate) fn entries(&self, name: &str) -> Vec<(Vec<u8>, Vec<u8>)> {
        let n = self.program.maps.iter().position(|m| m.name == name).expect("a map");
        let size = self.program.maps[n].value_size as usize;
        let value = |at: &u64| self.bytes(*at, size).expect("a value").to_vec();
        self.maps[n].iter().map(|(key, at)| (key.clone(), value(at))).collect()
    }

    /// First word of a map without key.
    pub(crate) fn scalar(&self, name: &str) -> i64 {
        let entries = self.entries(name);
        i64::from_le_bytes(*entries[0].1.first_chunk().expect("a word"))
    }

    /// Runs a program with a context at an address.
    pub(crate) fn run(&mut self, probe: &CompiledProbe, context: u64) -> u64 {
        self.steps = 0;
        self.call_function(probe, 0, [context, 0, 0, 0, 0])
    }

    fn call_function(&mut self, probe: &CompiledProbe, first: usize, arguments: [u64; 5]) -> u64 {
        let stack = self.take(512) + 512;
        let mut r = [0u64; 11];
        r[1..6].copy_from_slice(&arguments);
        r[10] = stack;
        let mut at = first;
        loop {
            self.steps += 1;
            assert!(self.steps < MAX_STEPS, "program does not end");
            let i = probe.instructions[at];
            let (dst, src) = (i.dst as usize, i.src as usize);
            let imm = i64::from(i.imm) as u64;
            let jump = (at as i64 + 1 + i64::from(i.off)) as usize;
            at += 1;
            let size = [4, 2, 1, 8][(i.code >> 3 & 3) as usize];
            let operand = if i.code & 8 != 0 { r[src] } else { imm };
            let offset = |base: u64| base.wrapping_add(i64::from(i.off) as u64);
            match i.code {
                0x18 => {
                    let low = u64::from(i.imm as u32);
                    let high = u64::from(probe.instructions[at].imm as u32);
                    at += 1;
                    let map = probe.relocations.iter().find(|m| m.instruction as usize == at - 2);
                    r[dst] = match map {
                        Some(map) => u64::from(map.map),
                        None if i.src == 4 => FUNCTION | (at as i64 - 1 + i64::from(i.imm)) as u64,
                        None => low | high << 32,
                    };
                }
                0x95 => return r[0],
                0x85 => {
                    let arguments = [r[1], r[2], r[3], r[4], r[5]];
                    r[0] = self.helper(probe, i.imm, arguments);
                }
                0x05 => at = jump,
                0xe5 => {}
                0xdc => {
                    r[dst] = match i.imm {
                        16 => u64::from((r[dst] as u16).swap_bytes()),
                        32 => u64::from((r[dst] as u32).swap_bytes()),
                        _ => r[dst].swap_bytes(),
                    };
                }
                0x87 => r[dst] = r[dst].wrapping_neg(),
                code => match code & 7 {
                    7 => r[dst] = compute(code, r[dst], operand),
                    5 => {
                        if compare(code, r[dst], operand) {
                            at = jump;
                        }
                    }
                    1 => r[dst] = self.word(offset(r[src]), size),
                    2 => self.write(offset(r[dst]), &imm.to_le_bytes()[..size]),
                    3 if code & 0xe0 == 0xc0 => {
                        let old = self.word(offset(r[dst]), 8);
                        let new = if i.imm == 0 { old.wrapping_add(r[src]) } else { r[src] };
                        self.write(offset(r[dst]), &new.to_le_bytes());
                        if i.imm != 0 {
                            r[src] = old;
                        }
                    }
                    3 => self.write(offset(r[dst]), &r[src].to_le_bytes()[..size]),
                    _ => panic!("instruction {code:#x}"),
                },
            }
        }
    }

    fn helper(&mut self, probe: &CompiledProbe, number: i32, a: [u64; 5]) -> u64 {
        const FAULT: u64 = -14i64 as u64;
        const FULL: u64 = -7i64 as u64;
        let map = a[0] as usize;
        let key = |machine: &Self| {
            let size = machine.program.maps[map].key_size as usize;
            machine.bytes(a[1], size).expect("a key").to_vec()
        };
        match number {
            1 | 195 if number == 195 && a[2] > 0 => 0,
            1 | 195 => {
                let key = key(self);
                self.maps[map].get(&key).copied().unwrap_or(0)
            }
            2 => {
                let definition = &self.program.maps[map];
                let (key, size) = (key(self), definition.value_size as usize);
                let value = self.bytes(a[2], size).expect("a value").to_vec();
                if let Some(at) = self.maps[map].get(&key).copied() {
                    if a[3] == 1 {
                        return -17i64 as u64;
                    }
                    self.write(at, &value);
                    return 0;
                }
                if self.maps[map].len() >= definition.max_entries as usize {
                    return FULL;
                }
                let at = self.place(&value);
                self.maps[map].insert(key, at);
                0
            }
            3 => match Some(key(self)).and_then(|key| self.maps[map].remove(&key)) {
                Some(_) => 0,
                None => -2i64 as u64,
            },
            4 | 112 | 113 => match self.bytes(a[2], a[1] as usize).map(<[u8]>::to_vec) {
                Some(bytes) => {
                    self.write(a[0], &bytes);
                    0
                }
                None => {
                    self.write(a[0], &vec![0; a[1] as usize]);
                    FAULT
                }
            },
            45 | 114 | 115 => {
                let mut text = Vec::new();
                while text.len() + 1 < a[1] as usize {
                    match self.bytes(a[2].wrapping_add(text.len() as u64), 1) {
                        Some([0]) => break,
                        Some([byte]) => text.push(*byte),
                        _ => {
                            self.write(a[0], &vec![0; a[1] as usize]);
                            return FAULT;
                        }
                    }
                }
                text.push(0);
                self.write(a[0], &text);
                text.len() as u64
            }
            5 | 125 => NOW,
            7 => 7,
            8 => 0,
            14 => PID << 32 | TID,
            15 => 0,
            16 => {
                self.write(a[0], b"machine\0\0\0\0\0\0\0\0\0");
                0
            }
            27 => 3,
            130 if self.ring_full => FULL,
            130 => {
                let record = self.bytes(a[1], a[2] as usize).expect("a record").to_vec();
                self.records.push(record);
                0
            }
            164 => {
                let entries: Vec<(Vec<u8>, u64)> =
                    self.maps[map].iter().map(|(k, v)| (k.clone(), *v)).collect();
                let mut count = 0;
                for (key, value) in entries {
                    let key = self.place(&key);
                    let first = (a[1] & !FUNCTION) as usize;
                    count += 1;
                    if self.call_function(probe, first, [a[0], key, value, a[2], 0]) != 0 {
                        break;
                    }
                }
                count
            }
            _ => panic!("helper {number}"),
        }
    }
}

fn compute(code: u8, a: u64, b: u64) -> u64 {
    match code & 0xf0 {
        0x00 => a.wrapping_add(b),
        0x10 => a.wrapping_sub(b),
        0x20 => a.wrapping_mul(b),
        0x30 => a.checked_div(b).unwrap_or(0),
        0x40 => a | b,
        0x50 => a & b,
        0x60 => a << (b & 63),
        0x70 => a >> (b & 63),
        0x90 => a.checked_rem(b).unwrap_or(a),
        0xa0 => a ^ b,
        0xb0 => b,
        0xc0 => ((a as i64) >> (b & 63)) as u64,
        _ => panic!("operation {code:#x}"),
    }
}

fn compare(code: u8, a: u64, b: u64) -> bool {
    let (x, y) = (a as i64, b as i64);
    match code & 0xf0 {
        0x10 => a == b,
        0x20 => a > b,
        0x30 => a >= b,
        0x50 => a != b,
        0x60 => x > y,
        0x70 => x >= y,
        0xa0 => a < b,
        0xb0 => a <= b,
        0xc0 => x < y,
        0xd0 => x <= y,
        _ => panic!("comparison {code:#x}"),
    }
}
