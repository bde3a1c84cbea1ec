//! BPF programs: loading them past the verifier, and running one once.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use super::{BpfCommand, BpfError, bpf, bpf_fd, object_name};

/// A program to load.
#[derive(Clone, Debug, Default)]
pub struct ProgramSpec<'a> {
    /// Name; what the kernel does not take in names is left out.
    pub name: &'a str,
    /// `BPF_PROG_TYPE_*`.
    pub program_type: u32,
    /// `BPF_*` attach type that the program is made for; 0 where none is.
    pub attach_type: u32,
    /// BTF type of the function or tracepoint of tracing programs.
    pub attach_btf_id: u32,
    /// BTF object that the type is of, where it is a module's.
    pub attach_btf: Option<BorrowedFd<'a>>,
    /// Instructions, 8 bytes each.
    pub instructions: &'a [u8],
    /// BTF of the program (for what follows).
    pub btf: Option<BorrowedFd<'a>>,
    /// Functions: instruction and type id each.
    pub functions: &'a [(u32, u32)],
    /// Lines: instruction, file name and text (offsets in BTF's strings), and line << 10 | column.
    pub lines: &'a [[u32; 4]],
    /// Whether the verifier's log is wanted of a program that loads.
    pub wants_log: bool,
    /// `KERNEL_VERSION`, which kernels before 5.0 ask of kprobe programs.
    pub kernel_version: u32,
}

/// A program in the kernel.
#[derive(Debug)]
pub struct BpfProgram {
    fd: OwnedFd,
    /// The verifier's log, if it was wanted.
    pub log: String,
}

#[repr(C)]
#[derive(Default)]
struct LoadAttribute {
    prog_type: u32,
    insn_cnt: u32,
    insns: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log_buf: u64,
    kern_version: u32,
    prog_flags: u32,
    prog_name: [u8; 16],
    prog_ifindex: u32,
    expected_attach_type: u32,
    prog_btf_fd: u32,
    func_info_rec_size: u32,
    func_info: u64,
    func_info_cnt: u32,
    line_info_rec_size: u32,
    line_info: u64,
    line_info_cnt: u32,
    attach_btf_id: u32,
    attach_btf_obj_fd: u32,
    pad: u32,
}

#[repr(C)]
#[derive(Default)]
struct TestRunAttribute {
    prog_fd: u32,
    retval: u32,
    data_size_in: u32,
    data_size_out: u32,
    data_in: u64,
    data_out: u64,
    repeat: u32,
    duration: u32,
    ctx_size_in: u32,
    ctx_size_out: u32,
    ctx_in: u64,
    ctx_out: u64,
    flags: u32,
    cpu: u32,
}

#[repr(C)]
#[derive(Default)]
struct BtfLoadAttribute {
    btf: u64,
    btf_log_buf: u64,
    btf_size: u32,
    btf_log_size: u32,
    btf_log_level: u32,
    pad: u32,
}

/// Log buffers that are tried, in bytes.
const LOG_SIZES: [usize; 3] = [1 << 16, 1 << 20, 1 << 24];

impl BpfProgram {
    /// Loads a program. Without a log first: writing it costs the verifier time.
    pub fn load(spec: &ProgramSpec<'_>) -> Result<BpfProgram, BpfError> {
        if !spec.wants_log {
            match load_with_log(spec, &mut []) {
                Ok(fd) => return Ok(BpfProgram { fd, log: String::new() }),
                Err(e) if e.raw_os_error() == Some(libc::EPERM) => return Err(failed(spec, e)),
                Err(_) => {}
            }
        }
        for size in LOG_SIZES {
            let mut log = vec![0u8; size];
            let done = load_with_log(spec, &mut log);
            let end = log.iter().position(|b| *b == 0).unwrap_or(log.len());
            let text = String::from_utf8_lossy(log.get(..end).unwrap_or_default()).into_owned();
            match done {
                Ok(fd) => return Ok(BpfProgram { fd, log: text }),
                Err(e) if e.raw_os_error() == Some(libc::ENOSPC) && size < 1 << 24 => {}
                Err(e) => return Err(BpfError { log: text, ..failed(spec, e) }),
            }
        }
        Err(failed(spec, io::Error::from_raw_os_error(libc::ENOSPC)))
    }

    /// Runs a raw tracepoint program once, on this CPU, with arguments that are zero. Returns what
    /// it returns.
    pub fn run_once(&self) -> Result<u32, BpfError> {
        let arguments = [0u64; 12];
        let mut attribute = TestRunAttribute {
            prog_fd: self.fd.as_raw_fd() as u32,
            ctx_size_in: size_of_val(&arguments) as u32,
            ctx_in: arguments.as_ptr() as u64,
            ..TestRunAttribute::default()
        };
        // SAFETY: the attribute is of `BPF_PROG_TEST_RUN`; the kernel reads the arguments, whose
        // size is passed.
        unsafe { bpf(BpfCommand::ProgramTestRun, &mut attribute) }
            .map_err(|error| BpfError::new("run program once", error))?;
        Ok(attribute.retval)
    }
}

impl AsFd for BpfProgram {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn failed(spec: &ProgramSpec<'_>, error: io::Error) -> BpfError {
    BpfError::new(format!("load program {}", spec.name), error)
}

fn load_with_log(spec: &ProgramSpec<'_>, log: &mut [u8]) -> io::Result<OwnedFd> {
    let license = CString::new("Dual MIT/GPL")?;
    let btf = spec.btf.map_or(0, |fd| fd.as_raw_fd() as u32);
    let has_btf = btf != 0;
    let functions: &[(u32, u32)] = if has_btf { spec.functions } else { &[] };
    let functions: Vec<[u32; 2]> = functions.iter().map(|(at, id)| [*at, *id]).collect();
    let lines: &[[u32; 4]] = if has_btf && !functions.is_empty() { spec.lines } else { &[] };
    let address = |is_empty: bool, address: u64| if is_empty { 0 } else { address };
    let mut attribute = LoadAttribute {
        prog_type: spec.program_type,
        insn_cnt: (spec.instructions.len() / 8) as u32,
        insns: spec.instructions.as_ptr() as u64,
        license: license.as_ptr() as u64,
        log_level: u32::from(!log.is_empty()),
        log_size: log.len() as u32,
        log_buf: address(log.is_empty(), log.as_mut_ptr() as u64),
        kern_version: spec.kernel_version,
        prog_name: object_name(spec.name),
        expected_attach_type: spec.attach_type,
        prog_btf_fd: btf,
        func_info_rec_size: if functions.is_empty() { 0 } else { 8 },
        func_info: address(functions.is_empty(), functions.as_ptr() as u64),
        func_info_cnt: functions.len() as u32,
        line_info_rec_size: if lines.is_empty() { 0 } else { 16 },
        line_info: address(lines.is_empty(), lines.as_ptr() as u64),
        line_info_cnt: lines.len() as u32,
        attach_btf_id: spec.attach_btf_id,
        attach_btf_obj_fd: spec.attach_btf.map_or(0, |fd| fd.as_raw_fd() as u32),
        ..LoadAttribute::default()
    };
    // SAFETY: the attribute is of `BPF_PROG_LOAD`, laid out without padding; instructions, licence,
    // functions and lines are read with the sizes passed, the log is written with its size; all of
    // them outlive the call.
    unsafe { bpf_fd(BpfCommand::ProgramLoad, &mut attribute) }
}

/// Loads BTF into the kernel, for functions and lines of programs.
pub fn load_btf(btf: &[u8]) -> Result<OwnedFd, BpfError> {
    let mut attribute = BtfLoadAttribute {
        btf: btf.as_ptr() as u64,
        btf_size: btf.len() as u32,
        ..BtfLoadAttribute::default()
    };
    // SAFETY: the attribute is of `BPF_BTF_LOAD`; the bytes are only read, with their size.
    unsafe { bpf_fd(BpfCommand::BtfLoad, &mut attribute) }
        .map_err(|error| BpfError::new("load BTF", error))
}
