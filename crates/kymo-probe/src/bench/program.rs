//! The program that is measured: a few hundred bytes of x86-64, written as an ELF file
//! by hand. It calls a function without a probe a number of times, then its twin with
//! one, with the CPU time before, between and behind, for a number of rounds, and writes
//! the times to its standard output. Nothing but that happens in it, so what the two
//! differ in is the probe.

use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Addresses of code and data in memory.
const CODE: u64 = 0x40_0000;
const DATA: u64 = 0x60_0000;
/// Offset of the data in the file; code is before it.
const DATA_OFFSET: u64 = 0x1000;
/// Header and two program headers.
const HEADERS: usize = 64 + 2 * 56;
/// Times of one round: three of 16 bytes.
const ROUND: usize = 48;

/// Code of a function: before the probed instruction, it, and behind it.
#[derive(Clone, Copy, Debug)]
pub(super) struct ProbedFunction {
    pub(super) before: &'static [u8],
    pub(super) probed: &'static [u8],
    pub(super) after: &'static [u8],
    /// `before` begins with a test of the twin's own semaphore.
    pub(super) semaphore: bool,
}

/// `cmpw $0, semaphore(%rip)` (its address is filled in) and `je` past the probe.
const TEST: [u8; 10] = [0x66, 0x83, 0x3d, 0, 0, 0, 0, 0, 0x74, 0x01];

impl ProbedFunction {
    pub(super) const fn new(probed: &'static [u8], after: &'static [u8]) -> ProbedFunction {
        ProbedFunction { before: &[], probed, after, semaphore: false }
    }

    /// A USDT probe that is passed over while its semaphore is 0.
    pub(super) const fn guarded() -> ProbedFunction {
        ProbedFunction { before: &TEST, probed: &[0x90], after: &[0xc3], semaphore: true }
    }

    /// A function that makes one system call.
    pub(super) const fn system_call() -> ProbedFunction {
        // mov $110, %eax (getppid); syscall; ret
        ProbedFunction::new(&[0xb8, 110, 0, 0, 0, 0x0f, 0x05], &[0xc3])
    }
}

/// Functions of the program and the number of their calls.
#[derive(Clone, Copy, Debug)]
pub(super) struct ProgramShape {
    /// Called in the first half of a round, and in the second.
    pub(super) functions: [ProbedFunction; 2],
    pub(super) calls: u32,
    pub(super) rounds: u32,
}

/// The file, and where in it the second function's probed instruction is.
#[derive(Clone, Debug)]
struct ProgramImage {
    bytes: Vec<u8>,
    probed: u64,
    /// Address of its semaphore.
    semaphore: u64,
}

/// Assembles what is needed, no more.
#[derive(Default)]
struct CodeWriter(Vec<u8>);

impl CodeWriter {
    /// The address of the next byte.
    fn here(&self) -> u64 {
        CODE + (HEADERS + self.0.len()) as u64
    }

    fn put(&mut self, bytes: &[u8]) -> &mut CodeWriter {
        self.0.extend_from_slice(bytes);
        self
    }

    /// Four bytes: how far `target` is from `more` bytes behind them.
    fn far(&mut self, target: u64, more: u64) -> &mut CodeWriter {
        let distance = target.wrapping_sub(self.here() + 4 + more);
        self.0.extend_from_slice(&(distance as u32).to_le_bytes());
        self
    }

    fn align(&mut self) {
        const LINE: u64 = 64;
        while !self.here().is_multiple_of(LINE) {
            self.0.push(0x90);
        }
    }

    /// Gives where the probed instruction is.
    fn function(&mut self, function: &ProbedFunction, semaphore: u64) -> (u64, u64) {
        self.align();
        let start = self.here();
        match (function.semaphore, function.before) {
            (true, [a, b, c, _, _, _, _, rest @ ..]) => {
                self.put(&[*a, *b, *c]).far(semaphore, 1).put(rest);
            }
            (_, before) => {
                self.put(before);
            }
        }
        let probed = self.here();
        self.put(function.probed).put(function.after);
        (start, probed)
    }
}

fn image(shape: &ProgramShape) -> ProgramImage {
    let [first, second] = &shape.functions;
    let buffer = DATA + DATA_OFFSET + 16;
    let length = shape.rounds as usize * ROUND;
    let mut code = CodeWriter::default();
    // The functions come first, so that their addresses are known.
    let (first, _) = code.function(first, DATA + DATA_OFFSET);
    let (second, probed) = code.function(second, DATA + DATA_OFFSET + 2);
    code.align();
    let stamp = code.here();
    // mov $228, %eax (clock_gettime); mov $3, %edi (the thread's CPU time, so that others
    // on the CPU do not count); mov %r14, %rsi; syscall; add $16, %r14; ret
    code.put(&[0xb8, 228, 0, 0, 0, 0xbf, 3, 0, 0, 0, 0x4c, 0x89, 0xf6, 0x0f, 0x05]);
    code.put(&[0x49, 0x83, 0xc6, 16, 0xc3]);
    code.align();
    let entry = code.here();
    // lea buffer(%rip), %r14; mov $rounds, %r13d
    code.put(&[0x4c, 0x8d, 0x35]).far(buffer, 0);
    code.put(&[0x41, 0xbd]).put(&shape.rounds.to_le_bytes());
    // test %r13d, %r13d; je to the end: filled in below.
    code.put(&[0x45, 0x85, 0xed, 0x0f, 0x84, 0, 0, 0, 0]);
    let to_end = code.0.len();
    let round = code.here();
    code.put(&[0xe8]).far(stamp, 0);
    for target in [first, second] {
        // mov $calls, %ebx
        code.put(&[0xbb]).put(&shape.calls.to_le_bytes());
        let again = code.here();
        // call; dec %ebx; jne
        code.put(&[0xe8]).far(target, 0).put(&[0xff, 0xcb, 0x0f, 0x85]).far(again, 0);
        code.put(&[0xe8]).far(stamp, 0);
    }
    // dec %r13d; jne
    code.put(&[0x41, 0xff, 0xcd, 0x0f, 0x85]).far(round, 0);
    let skip = (code.0.len() - to_end) as u32;
    if let Some(place) = code.0.get_mut(to_end - 4..to_end) {
        place.copy_from_slice(&skip.to_le_bytes());
    }
    // mov $1, %eax (write); mov $1, %edi; lea buffer(%rip), %rsi; mov $length, %edx;
    // syscall; mov $60, %eax (exit); xor %edi, %edi; syscall
    code.put(&[0xb8, 1, 0, 0, 0, 0xbf, 1, 0, 0, 0, 0x48, 0x8d, 0x35]).far(buffer, 0);
    code.put(&[0xba]).put(&(length as u32).to_le_bytes()).put(&[0x0f, 0x05]);
    code.put(&[0xb8, 60, 0, 0, 0, 0x31, 0xff, 0x0f, 0x05]);
    let mut bytes = headers(entry, code.0.len(), length);
    bytes.extend_from_slice(&code.0);
    bytes.resize(DATA_OFFSET as usize + 16, 0);
    ProgramImage { bytes, probed: probed - CODE, semaphore: DATA_OFFSET + 2 }
}

/// The ELF header, and two program headers: code, and data with room for the times.
fn headers(entry: u64, code: usize, room: usize) -> Vec<u8> {
    let mut out = vec![0x7f, b'E', b'L', b'F', 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let short = |out: &mut Vec<u8>, n: u16| out.extend_from_slice(&n.to_le_bytes());
    let word = |out: &mut Vec<u8>, n: u32| out.extend_from_slice(&n.to_le_bytes());
    let long = |out: &mut Vec<u8>, n: u64| out.extend_from_slice(&n.to_le_bytes());
    // Executable, x86-64, version 1.
    short(&mut out, 2);
    short(&mut out, 62);
    word(&mut out, 1);
    long(&mut out, entry);
    // Program headers at 64, no section headers, no flags.
    long(&mut out, 64);
    long(&mut out, 0);
    word(&mut out, 0);
    for n in [64, 56, 2, 0, 0, 0] {
        short(&mut out, n);
    }
    let text = (HEADERS + code) as u64;
    let data = 16;
    for (flags, offset, addr, in_file, in_memory) in
        [(5, 0, CODE, text, text), (6, DATA_OFFSET, DATA + DATA_OFFSET, data, data + room as u64)]
    {
        word(&mut out, 1);
        word(&mut out, flags);
        for n in [offset, addr, addr, in_file, in_memory, 0x1000] {
            long(&mut out, n);
        }
    }
    out
}

/// A program on disk, gone with this.
pub(super) struct BenchProgram {
    pub(super) path: PathBuf,
    pub(super) probed: u64,
    pub(super) semaphore: u64,
}

/// Nanoseconds of each round: of the first half and of the second.
pub(super) type RoundTimes = Vec<(f64, f64)>;

impl BenchProgram {
    /// Writes it into a directory from which programs may be run.
    pub(super) fn write(shape: &ProgramShape, name: &str) -> io::Result<BenchProgram> {
        let image = image(shape);
        let mut last = io::Error::from(io::ErrorKind::NotFound);
        for directory in [std::env::temp_dir(), "/var/tmp".into(), "/run".into(), ".".into()] {
            let path = directory.join(format!("kymo-probe-bench-{}-{name}", std::process::id()));
            match write_executable(&path, &image.bytes) {
                Ok(()) => {
                    let (probed, semaphore) = (image.probed, image.semaphore);
                    let program = BenchProgram { path: path.canonicalize()?, probed, semaphore };
                    // Directories may be mounted so that nothing in them can be run.
                    match program.run() {
                        Ok(_) => return Ok(program),
                        Err(e) => last = e,
                    }
                }
                Err(e) => last = e,
            }
        }
        Err(last)
    }

    /// Runs it once.
    pub(super) fn run(&self) -> io::Result<RoundTimes> {
        let mut command = Command::new(&self.path);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let output = command.output()?;
        if !output.status.success() {
            let text = format!("{} ended with {}", self.path.display(), output.status);
            return Err(io::Error::other(text));
        }
        let stamps: Vec<f64> = output.stdout.chunks_exact(16).filter_map(nanoseconds).collect();
        let round = |s: &[f64]| match s {
            [a, b, c] => Some((b - a, c - b)),
            _ => None,
        };
        Ok(stamps.chunks_exact(3).filter_map(round).collect())
    }
}

impl Drop for BenchProgram {
    fn drop(&mut self) {
        // An error has no receiver.
        let _ = std::fs::remove_file(&self.path);
    }
}

fn write_executable(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = std::fs::File::options().write(true).create_new(true).mode(0o700).open(path)?;
    io::Write::write_all(&mut file, bytes)
}

/// A `struct timespec`.
fn nanoseconds(bytes: &[u8]) -> Option<f64> {
    let (seconds, rest) = bytes.split_first_chunk::<8>()?;
    let (nanos, _) = rest.split_first_chunk::<8>()?;
    Some(i64::from_le_bytes(*seconds) as f64 * 1e9 + i64::from_le_bytes(*nanos) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_function_runs_as_often_as_asked() {
        for function in super::super::rows::FUNCTIONS.iter().map(|s| s.1) {
            let shape = ProgramShape { functions: [function, function], calls: 1000, rounds: 4 };
            let program = BenchProgram::write(&shape, "test").unwrap();
            let rounds = program.run().unwrap();
            assert_eq!(rounds.len(), 4, "{function:?}");
            assert!(rounds.iter().all(|(a, b)| *a > 0.0 && *b > 0.0), "{rounds:?}");
            let bytes = std::fs::read(&program.path).unwrap();
            let at = program.probed as usize;
            assert_eq!(&bytes[at..at + function.probed.len()], function.probed);
            let path = program.path.clone();
            drop(program);
            assert!(!path.exists());
        }
        let none =
            ProgramShape { functions: [ProbedFunction::system_call(); 2], calls: 1, rounds: 0 };
        assert!(BenchProgram::write(&none, "none").unwrap().run().unwrap().is_empty());
    }
}
