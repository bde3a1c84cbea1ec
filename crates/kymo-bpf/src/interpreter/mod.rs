//! Programs that run in user space: the instructions that the kernel would run, on events that
//! come out of rings, with maps in memory of our own (`maps.rs`). For users whom the kernel
//! gives no BPF, and for kernels without it.
//!
//! Addresses are those of this machine alone: the record of the event, frames, values and keys
//! of maps. An access outside of them ends the run, a read by a helper fails as the kernel's
//! does; nothing is read of this process or of others. Runs are bounded.

mod maps;

use crate::lower::helper;
use crate::object::{CompiledProbe, CompiledProgram};
use maps::{EINVAL, InterpretedMap};

/// Data of an event, and of the task in which it happened.
#[derive(Clone, Copy, Debug, Default)]
pub struct ProgramEvent<'e> {
    /// Its record, from `common_type` on; empty where it has none.
    pub record: &'e [u8],
    /// Nanoseconds of CLOCK_MONOTONIC.
    pub time: u64,
    /// CPU.
    pub cpu: u32,
    /// Process.
    pub pid: u32,
    /// Thread.
    pub tid: u32,
    /// Name of the thread.
    pub comm: &'e [u8],
    /// Stack, innermost first, with the marks that `PERF_SAMPLE_CALLCHAIN` has.
    pub chain: &'e [u64],
    /// Number of its cgroup.
    pub cgroup: u64,
    /// User and group.
    pub owner: (u32, u32),
}

/// Data that programs need of events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProgramNeeds {
    /// [`ProgramEvent::chain`].
    pub stacks: bool,
    /// [`ProgramEvent::cgroup`].
    pub cgroup: bool,
    /// [`ProgramEvent::owner`].
    pub owner: bool,
}

/// Nanoseconds that clocks are ahead of CLOCK_MONOTONIC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClockOffsets {
    /// CLOCK_BOOTTIME.
    pub boot: u64,
    /// CLOCK_TAI.
    pub tai: u64,
}

/// Records that programs put out.
#[derive(Debug, Default)]
pub struct ProgramRecords {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl ProgramRecords {
    /// Records in order.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let begins = std::iter::once(0).chain(self.ends.iter().copied());
        begins.zip(&self.ends).map(|(begin, end)| self.bytes.get(begin..*end).unwrap_or_default())
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }
}

/// Marks an address of this machine: no address of a kernel or program has this bit alone.
const OWN: u64 = 1 << 62;
/// Bits of an offset within a region.
const OFFSET_BITS: u32 = 40;
const RECORD: u64 = 1;
const FRAMES: u64 = 2;
/// Regions of maps: two each, values and keys.
const MAPS: u64 = 3;
/// Marks the number of a function.
const FUNCTION: u64 = 1 << 61;
const FRAME_SIZE: usize = 512;
/// Functions that call each other, as the kernel allows.
const MAX_DEPTH: usize = 8;
/// Instructions of one run.
const MAX_STEPS: u32 = 4 << 20;
/// Bytes of records of one run.
const MAX_OUTPUT: usize = 8 << 20;

const EFAULT: i64 = -14;
const ENOSPC: i64 = -28;

/// Marks in call chains, as the kernel writes them.
const CONTEXT_KERNEL: u64 = -128i64 as u64;
const CONTEXT_USER: u64 = -512i64 as u64;
const CONTEXT_MARKS: u64 = -4095i64 as u64;

/// An instruction with its immediate in full: wide loads have their value, those of maps and
/// functions their number.
#[derive(Clone, Copy, Debug)]
struct DecodedInstruction {
    code: u8,
    dst: u8,
    src: u8,
    off: i16,
    imm: u64,
}

/// A run is over, not at its end.
#[derive(Debug)]
struct RunCut;

/// Programs of one text with their maps.
#[derive(Debug)]
pub struct ProgramInterpreter {
    programs: Vec<Vec<DecodedInstruction>>,
    maps: Vec<InterpretedMap>,
    clocks: ClockOffsets,
    frames: Vec<u8>,
    copy: Vec<u8>,
    stack: Vec<u64>,
    steps: u32,
    random: u64,
    records: ProgramRecords,
    runs: u64,
    cut: u64,
    stackless: u64,
}

fn address(region: u64, offset: usize) -> u64 {
    OWN | region << OFFSET_BITS | offset as u64
}

impl ProgramInterpreter {
    /// Maps without entries, and all programs.
    pub fn new(program: &CompiledProgram, clocks: ClockOffsets) -> ProgramInterpreter {
        ProgramInterpreter {
            programs: program.probes.iter().map(decode).collect(),
            maps: program.maps.iter().map(InterpretedMap::new).collect(),
            clocks,
            frames: vec![0; FRAME_SIZE * MAX_DEPTH],
            copy: Vec::new(),
            stack: Vec::new(),
            steps: 0,
            random: 0x9e37_79b9_7f4a_7c15 ^ clocks.boot,
            records: ProgramRecords::default(),
            runs: 0,
            cut: 0,
            stackless: 0,
        }
    }

    /// Returns the data that the programs need of events.
    pub fn needs(&self) -> ProgramNeeds {
        let calls = |wanted: i32| {
            let mut all = self.programs.iter().flatten();
            all.any(|i| i.code == CALL && i.imm as i32 == wanted)
        };
        ProgramNeeds {
            stacks: calls(helper::STACK_ID),
            cgroup: calls(helper::CGROUP),
            owner: calls(helper::UID_GID),
        }
    }

    /// Runs a probe's program, by its number, on an event.
    pub fn run(&mut self, probe: usize, event: &ProgramEvent<'_>) {
        self.steps = 0;
        self.runs += 1;
        let Some(program) = self.programs.get_mut(probe).map(std::mem::take) else { return };
        let arguments = [address(RECORD, 0), 0, 0, 0, 0];
        let done = self.call_function(&program, event, 0, 0, arguments);
        if let Some(place) = self.programs.get_mut(probe) {
            *place = program;
        }
        self.cut += u64::from(done.is_err());
    }

    /// Returns the number of runs, and of those that were cut off.
    pub fn runs(&self) -> (u64, u64) {
        (self.runs, self.cut)
    }

    /// Number of records without the requested kernel part of the stack.
    pub fn stackless(&self) -> u64 {
        self.stackless
    }

    /// Exchanges the records that were put out for an empty place.
    pub fn swap_records(&mut self, records: &mut ProgramRecords) {
        records.clear();
        std::mem::swap(&mut self.records, records);
    }

    /// Whether records wait.
    pub fn has_records(&self) -> bool {
        !self.records.is_empty()
    }

    /// Bytes of a map's values as [`Self::entries`] has them.
    pub fn value_size(&self, map: usize) -> usize {
        self.maps.get(map).map_or(0, InterpretedMap::seen_size)
    }

    /// Value of a key.
    pub fn lookup(&self, map: usize, key: &[u8]) -> Option<Vec<u8>> {
        let map = self.maps.get(map)?;
        let slot = map.slot(key)?;
        Some(map.entry(slot).1)
    }

    /// Sets the value of a key; returns whether it fitted.
    pub fn update(&mut self, map: usize, key: &[u8], value: &[u8]) -> bool {
        self.maps.get_mut(map).is_some_and(|map| map.update(key, value, 0) == 0)
    }

    /// Removes a key.
    pub fn delete(&mut self, map: usize, key: &[u8]) -> bool {
        self.maps.get_mut(map).is_some_and(|map| map.delete(key) == 0)
    }

    /// Keys and values. Values of a map that has one for each CPU are one, padded to 8 bytes.
    pub fn entries(&self, map: usize) -> Vec<(Vec<u8>, Vec<u8>)> {
        let Some(map) = self.maps.get(map) else { return Vec::new() };
        map.slots().into_iter().map(|slot| map.entry(slot)).collect()
    }

    /// Bytes at an address.
    fn bytes<'m>(&'m self, event: &ProgramEvent<'m>, at: u64, size: usize) -> Option<&'m [u8]> {
        let (region, begin) = place(at)?;
        let end = begin.checked_add(size)?;
        match region {
            RECORD => event.record.get(begin..end),
            FRAMES => self.frames.get(begin..end),
            _ => {
                let n = region.checked_sub(MAPS)?;
                let map = self.maps.get(usize::try_from(n / 2).ok()?)?;
                if n & 1 == 0 { &map.values } else { &map.keys }.get(begin..end)
            }
        }
    }

    /// Bytes that can be written.
    fn bytes_mut(&mut self, at: u64, size: usize) -> Option<&mut [u8]> {
        let (region, begin) = place(at)?;
        let end = begin.checked_add(size)?;
        match region {
            RECORD => None,
            FRAMES => self.frames.get_mut(begin..end),
            _ => {
                let n = region.checked_sub(MAPS)?;
                let map = self.maps.get_mut(usize::try_from(n / 2).ok()?)?;
                // Keys are not written.
                if n & 1 == 0 { map.values.get_mut(begin..end) } else { None }
            }
        }
    }

    fn load(&self, event: &ProgramEvent<'_>, at: u64, size: usize) -> Result<u64, RunCut> {
        let bytes = self.bytes(event, at, size).ok_or(RunCut)?;
        Ok(match *bytes {
            [a] => u64::from(a),
            [a, b] => u64::from(u16::from_ne_bytes([a, b])),
            [a, b, c, d] => u64::from(u32::from_ne_bytes([a, b, c, d])),
            _ => u64::from_ne_bytes(*bytes.first_chunk().ok_or(RunCut)?),
        })
    }

    fn store(&mut self, at: u64, size: usize, value: u64) -> Result<(), RunCut> {
        let bytes = self.bytes_mut(at, size).ok_or(RunCut)?;
        match size {
            1 => bytes.copy_from_slice(&(value as u8).to_ne_bytes()),
            2 => bytes.copy_from_slice(&(value as u16).to_ne_bytes()),
            4 => bytes.copy_from_slice(&(value as u32).to_ne_bytes()),
            _ => bytes.copy_from_slice(&value.to_ne_bytes()),
        }
        Ok(())
    }

    fn call_function(
        &mut self,
        program: &[DecodedInstruction],
        event: &ProgramEvent<'_>,
        first: usize,
        depth: usize,
        arguments: [u64; 5],
    ) -> Result<u64, RunCut> {
        if depth >= MAX_DEPTH {
            return Err(RunCut);
        }
        let mut r = [0u64; 16];
        r[1..6].copy_from_slice(&arguments);
        r[10] = address(FRAMES, (depth + 1) * FRAME_SIZE);
        let mut at = first;
        loop {
            self.steps += 1;
            let i = *program.get(at).filter(|_| self.steps < MAX_STEPS).ok_or(RunCut)?;
            at += 1;
            // Registers have four bits, of 16.
            let (dst, src) = ((i.dst & 15) as usize, (i.src & 15) as usize);
            let operand = if i.code & 8 != 0 { r[src] } else { i.imm };
            match i.code & 7 {
                7 => {
                    r[dst] = match i.code {
                        0x87 => r[dst].wrapping_neg(),
                        code => compute(code, r[dst], operand).ok_or(RunCut)?,
                    }
                }
                5 => match i.code {
                    EXIT => return Ok(r[0]),
                    CALL => {
                        let arguments = [r[1], r[2], r[3], r[4], r[5]];
                        r[0] = self.helper(program, event, i.imm as i32, depth, arguments)?;
                    }
                    // Ends loops that run too long; here steps are counted.
                    MAY_GOTO => {}
                    code => {
                        if code == 0x05 || compare(code, r[dst], operand).ok_or(RunCut)? {
                            at = at.checked_add_signed(i.off.into()).ok_or(RunCut)?;
                        }
                    }
                },
                1 => r[dst] = self.load(event, offset(r[src], i.off), size_of(i.code))?,
                2 => self.store(offset(r[dst], i.off), size_of(i.code), i.imm)?,
                3 if i.code & 0xe0 == 0xc0 => {
                    let place = offset(r[dst], i.off);
                    let old = self.load(event, place, 8)?;
                    let adds = i.imm == 0;
                    let new = if adds { old.wrapping_add(r[src]) } else { r[src] };
                    self.store(place, 8, new)?;
                    if !adds {
                        r[src] = old;
                    }
                }
                3 => self.store(offset(r[dst], i.off), size_of(i.code), r[src])?,
                0 if i.code == WIDE => {
                    r[dst] = i.imm;
                    at += 1;
                }
                4 if i.code == 0xdc => {
                    r[dst] = match i.imm {
                        16 => u64::from((r[dst] as u16).swap_bytes()),
                        32 => u64::from((r[dst] as u32).swap_bytes()),
                        _ => r[dst].swap_bytes(),
                    };
                }
                _ => return Err(RunCut),
            }
        }
    }

    fn helper(
        &mut self,
        program: &[DecodedInstruction],
        event: &ProgramEvent<'_>,
        number: i32,
        depth: usize,
        a: [u64; 5],
    ) -> Result<u64, RunCut> {
        Ok(match number {
            helper::MAP_LOOKUP => self.look_up(event, a)?,
            // The kernel's values of other CPUs are in that of the first.
            helper::LOOKUP_PER_CPU if a[2] > 0 => 0,
            helper::LOOKUP_PER_CPU => self.look_up(event, a)?,
            helper::MAP_UPDATE => {
                let map = self.map(a[0])?;
                let (key_size, value_size) = (map.key_size(), map.value_size);
                let mut copy = std::mem::take(&mut self.copy);
                copy.clear();
                copy.extend_from_slice(self.bytes(event, a[1], key_size).ok_or(RunCut)?);
                copy.extend_from_slice(self.bytes(event, a[2], value_size).ok_or(RunCut)?);
                let (key, value) = copy.split_at_checked(key_size).ok_or(RunCut)?;
                let result = self.map(a[0])?.update(key, value, a[3]);
                self.copy = copy;
                result as u64
            }
            helper::MAP_DELETE => {
                self.take_key(event, a)?;
                let copy = std::mem::take(&mut self.copy);
                let result = self.map(a[0])?.delete(&copy);
                self.copy = copy;
                result as u64
            }
            helper::PROBE_READ | helper::PROBE_READ_USER | helper::PROBE_READ_KERNEL => {
                self.read_memory(event, a)?
            }
            helper::PROBE_READ_STR
            | helper::PROBE_READ_USER_STR
            | helper::PROBE_READ_KERNEL_STR => self.read_text(event, a)?,
            helper::KTIME => event.time,
            helper::KTIME_BOOT => event.time.wrapping_add(self.clocks.boot),
            helper::KTIME_TAI => event.time.wrapping_add(self.clocks.tai),
            helper::RANDOM => self.next_random(),
            helper::CPU => u64::from(event.cpu),
            helper::PID_TGID => u64::from(event.pid) << 32 | u64::from(event.tid),
            helper::UID_GID => u64::from(event.owner.1) << 32 | u64::from(event.owner.0),
            helper::CGROUP => event.cgroup,
            helper::COMM => {
                let to = self.bytes_mut(a[0], clamped(a[1])?).ok_or(RunCut)?;
                to.fill(0);
                let most = to.len().saturating_sub(1);
                to.iter_mut().zip(event.comm).take(most).for_each(|(to, from)| *to = *from);
                0
            }
            helper::STACK_ID => self.stack_id(event, a)? as u64,
            helper::RING_OUTPUT => self.put_out(event, a)? as u64,
            helper::FOR_EACH => self.for_each(program, event, depth, a)?,
            // The compiler refuses the others.
            _ => EINVAL as u64,
        })
    }

    fn map(&mut self, number: u64) -> Result<&mut InterpretedMap, RunCut> {
        let number = usize::try_from(number).map_err(|_| RunCut)?;
        self.maps.get_mut(number).ok_or(RunCut)
    }

    /// Copies the key that a helper is given, for the map that it names.
    fn take_key(&mut self, event: &ProgramEvent<'_>, a: [u64; 5]) -> Result<(), RunCut> {
        let size = self.map(a[0])?.key_size();
        let mut copy = std::mem::take(&mut self.copy);
        copy.clear();
        copy.extend_from_slice(self.bytes(event, a[1], size).ok_or(RunCut)?);
        self.copy = copy;
        Ok(())
    }

    fn look_up(&mut self, event: &ProgramEvent<'_>, a: [u64; 5]) -> Result<u64, RunCut> {
        self.take_key(event, a)?;
        let copy = std::mem::take(&mut self.copy);
        let map = self.map(a[0])?;
        let found = map.find(&copy).map(|slot| map.value_at(slot));
        self.copy = copy;
        Ok(found.map_or(0, |offset| address(MAPS + a[0] * 2, offset)))
    }

    fn read_memory(&mut self, event: &ProgramEvent<'_>, a: [u64; 5]) -> Result<u64, RunCut> {
        let size = clamped(a[1])?;
        let mut copy = std::mem::take(&mut self.copy);
        copy.clear();
        let found = self.bytes(event, a[2], size).map(|bytes| copy.extend_from_slice(bytes));
        let to = self.bytes_mut(a[0], size).ok_or(RunCut)?;
        match found {
            Some(()) => to.copy_from_slice(&copy),
            None => to.fill(0),
        }
        self.copy = copy;
        Ok(if found.is_some() { 0 } else { EFAULT as u64 })
    }

    /// Reads up to the NUL, or as much as there is room; the result is the length with it.
    fn read_text(&mut self, event: &ProgramEvent<'_>, a: [u64; 5]) -> Result<u64, RunCut> {
        let size = clamped(a[1])?;
        let Some(most) = size.checked_sub(1) else { return Ok(0) };
        let mut copy = std::mem::take(&mut self.copy);
        copy.clear();
        // Of what lies at the address, as far as it goes.
        let end = place(a[2]).and_then(|_| {
            let whole = self.bytes(event, a[2], most);
            let there = whole.or_else(|| self.bytes_to_end(event, a[2]))?;
            let text = there.iter().position(|b| *b == 0).map_or(there, |n| &there[..n]);
            // Without a NUL there has to be as much as was asked for.
            let complete = text.len() < there.len() || there.len() >= most;
            complete.then(|| copy.extend_from_slice(text))
        });
        copy.push(0);
        let result = match end {
            Some(()) => {
                self.bytes_mut(a[0], copy.len()).ok_or(RunCut)?.copy_from_slice(&copy);
                copy.len() as u64
            }
            None => {
                self.bytes_mut(a[0], size).ok_or(RunCut)?.fill(0);
                EFAULT as u64
            }
        };
        self.copy = copy;
        Ok(result)
    }

    /// Bytes from an address to the end of its region, which is shorter than a text may be.
    fn bytes_to_end<'m>(&'m self, event: &ProgramEvent<'m>, at: u64) -> Option<&'m [u8]> {
        let (region, begin) = place(at)?;
        match region {
            RECORD => event.record.get(begin..),
            FRAMES => self.frames.get(begin..),
            _ => {
                let n = region.checked_sub(MAPS)?;
                let map = self.maps.get(usize::try_from(n / 2).ok()?)?;
                if n & 1 == 0 { &map.values } else { &map.keys }.get(begin..)
            }
        }
    }

    fn next_random(&mut self) -> u64 {
        // xorshift: good enough for what samples by it.
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random >> 32
    }

    fn stack_id(&mut self, event: &ProgramEvent<'_>, a: [u64; 5]) -> Result<i64, RunCut> {
        const USER_STACK: u64 = 256;
        let wanted = if a[2] & USER_STACK != 0 { CONTEXT_USER } else { CONTEXT_KERNEL };
        let mut frames = std::mem::take(&mut self.stack);
        frames.clear();
        let mut is_wanted = false;
        for entry in event.chain {
            match *entry {
                mark if mark >= CONTEXT_MARKS => is_wanted = mark == wanted,
                frame if is_wanted => frames.push(frame),
                _ => {}
            }
        }
        if frames.is_empty() && wanted == CONTEXT_KERNEL && !event.record.is_empty() {
            self.stackless += 1;
        }
        let id = if frames.is_empty() { EFAULT } else { self.map(a[1])?.stack_id(&frames) };
        self.stack = frames;
        Ok(id)
    }

    fn put_out(&mut self, event: &ProgramEvent<'_>, a: [u64; 5]) -> Result<i64, RunCut> {
        let mut records = std::mem::take(&mut self.records);
        let bytes = self.bytes(event, a[1], clamped(a[2])?);
        let result = match bytes {
            Some(bytes) if records.bytes.len() + bytes.len() <= MAX_OUTPUT => {
                records.bytes.extend_from_slice(bytes);
                records.ends.push(records.bytes.len());
                Ok(0)
            }
            Some(_) => Ok(ENOSPC),
            None => Err(RunCut),
        };
        self.records = records;
        result
    }

    fn for_each(
        &mut self,
        program: &[DecodedInstruction],
        event: &ProgramEvent<'_>,
        depth: usize,
        a: [u64; 5],
    ) -> Result<u64, RunCut> {
        let first = usize::try_from(a[1] & !FUNCTION).map_err(|_| RunCut)?;
        let mut count = 0;
        for slot in self.map(a[0])?.slots() {
            let map = self.map(a[0])?;
            // A callback may have deleted it.
            if !map.is_live(slot) {
                continue;
            }
            let (key, value) = (map.key_at(slot), map.value_at(slot));
            let (key, value) = (address(MAPS + a[0] * 2 + 1, key), address(MAPS + a[0] * 2, value));
            count += 1;
            let arguments = [a[0], key, value, a[2], 0];
            if self.call_function(program, event, first, depth + 1, arguments)? != 0 {
                break;
            }
        }
        Ok(count)
    }
}

const CALL: u8 = 0x85;
const EXIT: u8 = 0x95;
const MAY_GOTO: u8 = 0xe5;
const WIDE: u8 = 0x18;

/// Region and offset of an address of this machine.
fn place(at: u64) -> Option<(u64, usize)> {
    if at >> 62 != 1 {
        return None;
    }
    let offset = at & ((1 << OFFSET_BITS) - 1);
    Some(((at & !OWN) >> OFFSET_BITS, usize::try_from(offset).ok()?))
}

fn offset(base: u64, by: i16) -> u64 {
    base.wrapping_add(i64::from(by) as u64)
}

fn size_of(code: u8) -> usize {
    [4, 2, 1, 8][(code >> 3 & 3) as usize]
}

/// A size that a program gives, which is none beyond what memory may have.
fn clamped(size: u64) -> Result<usize, RunCut> {
    usize::try_from(size).ok().filter(|size| *size <= MAX_OUTPUT).ok_or(RunCut)
}

/// Instructions with maps and functions by number.
fn decode(probe: &CompiledProbe) -> Vec<DecodedInstruction> {
    let instructions = &probe.instructions;
    let mut decoded: Vec<DecodedInstruction> = instructions
        .iter()
        .enumerate()
        .map(|(at, i)| {
            let next = instructions.get(at + 1).map_or(0, |next| next.imm as u32);
            let imm = match (i.code, i.src) {
                // Relative to the next instruction.
                (WIDE, 4) => FUNCTION | (at as i64 + 1 + i64::from(i.imm)) as u64,
                (WIDE, _) => u64::from(i.imm as u32) | u64::from(next) << 32,
                _ => i64::from(i.imm) as u64,
            };
            DecodedInstruction { code: i.code, dst: i.dst, src: i.src, off: i.off, imm }
        })
        .collect();
    for relocation in &probe.relocations {
        if let Some(instruction) = decoded.get_mut(relocation.instruction as usize) {
            instruction.imm = u64::from(relocation.map);
        }
    }
    decoded
}

fn compute(code: u8, a: u64, b: u64) -> Option<u64> {
    Some(match code & 0xf0 {
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
        _ => return None,
    })
}

fn compare(code: u8, a: u64, b: u64) -> Option<bool> {
    let (x, y) = (a as i64, b as i64);
    Some(match code & 0xf0 {
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
        _ => return None,
    })
}
