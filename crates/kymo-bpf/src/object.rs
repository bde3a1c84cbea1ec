//! Output of the compiler: maps, instructions with relocations, actions of user space, as plain
//! data. Loading and attaching need nothing else.

/// Position in the program's text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ProgramPosition {
    /// Line, from 1; 0 where there is none.
    pub line: u32,
    /// Column in characters, from 1.
    pub column: u32,
}

/// Bytes before a packet in a perf record: index of its action, time (`CLOCK_BOOTTIME`, nanoseconds),
/// bytes of the packet that the program asked for, bytes that follow; each a `u64`.
pub const PACKET_HEADER: usize = 32;

/// A program that compiled.
#[derive(Clone, Debug, Default)]
pub struct CompiledProgram {
    /// Maps; relocations name them by index. All are to be created.
    pub maps: Vec<MapDefinition>,
    /// Programs, each with the attach points it hangs on. Points whose instructions
    /// are equal share one.
    pub probes: Vec<CompiledProbe>,
    /// User space's side of ring records; a record begins with the index (`u64`).
    pub actions: Vec<RingAction>,
    /// Meaning of the counters of the map whose purpose is [`MapPurpose::ErrorCounters`]:
    /// entry `n` (a `u64` per CPU) counts at site `n`.
    pub error_sites: Vec<ErrorSite>,
    /// Texts that values of type [`ValueType::ProbeName`] number.
    pub probe_names: Vec<String>,
    /// Settings of the `config` block that concern the runtime, as key and text.
    pub config: Vec<(String, String)>,
    /// Options that `getopt` declares: for `--help` of a program.
    pub options: Vec<ProgramOption>,
    /// Attach points that were not found and left out by `missing_probes = ignore`.
    pub missing_probes: Vec<String>,
    /// Warnings, to be shown with the source line.
    pub warnings: Vec<SourceMessage>,
    /// BTF (the bytes for `BPF_BTF_LOAD`) that function and line information refer to.
    pub btf: Vec<u8>,
    /// Whether it needs `--unsafe` (`system`, `signal`, `override`).
    pub unsafe_call: Option<(String, ProgramPosition)>,
}

/// A message at a place of the program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceMessage {
    /// Position.
    pub position: ProgramPosition,
    /// Text: lower case, no full stop.
    pub text: String,
    /// Suggested fix.
    pub hint: Option<String>,
    /// Whether programs in the kernel could do it.
    pub needs_kernel: bool,
    /// Warnings on the program that came before this error.
    pub warnings: Vec<SourceMessage>,
}

/// An option of the program, as `getopt` declares it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgramOption {
    /// Name without dashes.
    pub name: String,
    /// Default value as text.
    pub default: String,
    /// Description, or empty.
    pub description: String,
}

/// BPF's number of a map type (`BPF_MAP_TYPE_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
#[allow(missing_docs, reason = "the kernel's names say it")]
pub enum BpfMapType {
    Hash = 1,
    Array = 2,
    PerfEventArray = 4,
    PerCpuHash = 5,
    PerCpuArray = 6,
    StackTrace = 7,
    LruHash = 9,
    LruPerCpuHash = 10,
    ArrayOfMaps = 12,
    RingBuffer = 27,
}

/// Purpose of a map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MapPurpose {
    /// A map of the program (`@name`).
    User,
    /// Per-CPU working memory; user space leaves it alone.
    Scratch,
    /// The ring of records; `max_entries` is its size in bytes, which the runtime may
    /// enlarge (power of two pages).
    Ring,
    /// Stack ids to frames, for values of [`ValueType::KernelStack`] and
    /// [`ValueType::UserStack`]. Value: `max_depth` × `u64`.
    StackTraces,
    /// Error counters by site.
    ErrorCounters,
    /// One entry: a `u32` that is not 0 after `exit()`, and its status, a `u32`. No probe of an
    /// event runs from then on.
    ExitFlag,
    /// Perf events, one for each CPU, whose rings `skboutput()` puts packets into: user space opens
    /// them. A sample's raw data are [`PACKET_HEADER`] bytes and the packet's.
    PacketRings {
        /// Pages of each ring, a power of two.
        pages: u32,
    },
    /// Names a map, by index, in its only entry, through which programs reach it: user space
    /// puts an empty one in its place and has the old one to itself.
    Holder {
        /// The map; it comes before its holder.
        map: usize,
    },
}

/// A map to create.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MapDefinition {
    /// `@`, `@name`, or a name of ours without `@`.
    pub name: String,
    /// Purpose of the map.
    pub purpose: MapPurpose,
    /// BPF's type.
    pub map_type: BpfMapType,
    /// Bytes of a key. Integer keys of user maps are 8 bytes, whatever their type says.
    pub key_size: u32,
    /// Bytes of a value.
    pub value_size: u32,
    /// Entries.
    pub max_entries: u32,
    /// Flags of `BPF_MAP_CREATE`.
    pub flags: u32,
    /// Type of the key; `None` for a map without key (its only entry has key `0u32`).
    pub key_type: Option<ValueType>,
    /// Type of the value.
    pub value_type: ValueType,
    /// Whether an entry that was never written is to be left out (a map without key
    /// always has its entry). The value then ends with a `u64` that is 1 once written.
    /// (Aggregations tell it by their count and have none.)
    pub has_written_mark: bool,
}

impl MapDefinition {
    /// Whether values are one per CPU.
    pub fn is_per_cpu(&self) -> bool {
        use BpfMapType::{LruPerCpuHash, PerCpuArray, PerCpuHash};
        matches!(self.map_type, PerCpuArray | PerCpuHash | LruPerCpuHash)
    }
}

/// Type of a value in a map or in a ring record: how to read and print its bytes.
/// Numbers are in the machine's byte order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ValueType {
    /// No value.
    None,
    /// An integer that takes 8 bytes in maps' scalars, keys and ring records, and `size`
    /// bytes in arrays and structures; already extended to what it takes.
    Integer {
        /// Bytes of the type: says how it prints under `%x` and JSON, nothing else.
        size: u8,
        /// Whether it is signed.
        signed: bool,
    },
    /// 8 bytes (1 in arrays and structures), prints `true` or `false`.
    Boolean,
    /// 8 bytes, an address; prints as hexadecimal number with `0x`.
    Pointer,
    /// An enumerator: 8 bytes; prints its name where it has one.
    Enumerator {
        /// Name of the enumeration.
        name: String,
        /// Values and names.
        variants: Vec<(i64, String)>,
        /// Name of all other values, if they have one.
        otherwise: Option<String>,
    },
    /// A floating-point number of `size` bytes, 4 or 8.
    Float {
        /// Bytes.
        size: u8,
    },
    /// An integer of 16 bytes.
    Wide {
        /// Whether it is signed.
        signed: bool,
    },
    /// A text whose bytes are where a pointer in it says, in memory that was not read.
    TextElsewhere {
        /// Offset of the pointer.
        data: u32,
        /// Offset of the number of bytes.
        length: u32,
    },
    /// Text of at most `size` bytes, up to the first NUL.
    Text {
        /// Bytes reserved; a multiple of 8 where it is a part of a tuple or record.
        size: u32,
    },
    /// `buf()`: a `u32` length, then bytes, `size` in all.
    Buffer {
        /// Bytes reserved, with the length.
        size: u32,
    },
    /// Elements side by side.
    Array {
        /// Type of an element.
        element: Box<ValueType>,
        /// Bytes of an element.
        element_size: u32,
        /// Number of elements.
        count: u32,
    },
    /// A tuple; fields without names.
    Tuple(Vec<TypedField>),
    /// A structure or union by value.
    Structure {
        /// Its name.
        name: String,
        /// Members; bit fields have `bits`.
        fields: Vec<TypedField>,
    },
    /// A kernel address (8 bytes) printed as symbol (`ksym`, `kstr`, `func`).
    KernelSymbol,
    /// A user address: address (8), pid (4), padding (4).
    UserSymbol,
    /// 8 bytes: stack id (`i32`; negative is an error of `bpf_get_stackid`: print
    /// nothing), then the index of its map among maps of purpose StackTraces (`u32`).
    KernelStack(StackSettings),
    /// As KernelStack, then pid (`u32`) and 4 bytes of padding: 16 bytes.
    UserStack(StackSettings),
    /// An address of `ntop`: family (`u64`: 2 or 10), then 16 bytes of address.
    InternetAddress,
    /// 6 bytes of `macaddr`, 2 of padding.
    MacAddress,
    /// `strftime(FORMAT, nsecs)`: nanoseconds (8 bytes) of a clock.
    Timestamp {
        /// Format of strftime(3), with `%f` for microseconds.
        format: String,
        /// Clock of the number.
        clock: BpfClock,
    },
    /// `strerror(errno)`: 8 bytes.
    ErrorText,
    /// `cgroup_path`: the cgroup id (8 bytes) to find below the cgroup mounts.
    CgroupPath {
        /// Glob over the names of the hierarchies, or empty for all.
        hierarchy: String,
    },
    /// Name of the probe: index into `probe_names`, 8 bytes.
    ProbeName,
    /// `username`: a uid, 8 bytes, to be looked up.
    UserName,
    /// `syscall_name`: a number, 8 bytes.
    SyscallName,
    /// `signal_name`-like: 8 bytes.
    SignalName,
    /// `count()`: `u64` to be summed over CPUs.
    Count,
    /// `sum()`: 8 bytes to be summed over CPUs.
    Sum {
        /// Whether it is signed.
        signed: bool,
    },
    /// `min()`: value (8), then 1 where there is one (8).
    Minimum {
        /// Whether it is signed.
        signed: bool,
    },
    /// `max()`: as Minimum.
    Maximum {
        /// Whether it is signed.
        signed: bool,
    },
    /// `avg()`: total (8), then count (8).
    Average {
        /// Whether the total is signed.
        signed: bool,
    },
    /// `stats()`: as Average, printed with count, average, total.
    Statistics {
        /// Whether the total is signed.
        signed: bool,
    },
    /// `hist()`: `buckets()` × `u64`; [`histogram_bucket_range`] says the limits.
    Histogram {
        /// log2 of the buckets of one power of two (0 to 5).
        bits: u8,
    },
    /// `lhist()`: `u64` each: below `min`, then the buckets, then from `max` on.
    LinearHistogram {
        /// Begin of the first bucket.
        min: i64,
        /// End of the last.
        max: i64,
        /// Width.
        step: i64,
    },
    /// `tseries()`: `intervals` × (epoch `u64`: time / interval, value `u64`, count or mark
    /// `u64`); slot = epoch modulo intervals.
    TimeSeries {
        /// Interval in nanoseconds (CLOCK_MONOTONIC).
        interval_ns: u64,
        /// Number of intervals that are kept.
        intervals: u32,
        /// `avg`, `max`, `min`, `sum` or `none` (the last value).
        aggregate: SeriesAggregate,
        /// Whether values are signed.
        signed: bool,
    },
}

/// Aggregation of the values of one interval of a time series.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the language's names say it")]
pub enum SeriesAggregate {
    Last,
    Average,
    Maximum,
    Minimum,
    Sum,
}

/// A clock of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the kernel's names say it")]
pub enum BpfClock {
    Monotonic,
    BootTime,
    /// International atomic time.
    Tai,
}

/// Format of a printed stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StackSettings {
    /// The most frames to show.
    pub depth: u32,
    /// Mode.
    pub mode: StackMode,
}

/// Stack modes of the language.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the language's names say it")]
pub enum StackMode {
    Bpftrace,
    Perf,
    Raw,
    BuildId,
}

/// A part of a tuple, a structure or a ring record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TypedField {
    /// Name; empty in tuples.
    pub name: String,
    /// Bytes from the start.
    pub offset: u32,
    /// Bytes it takes.
    pub size: u32,
    /// First bit (from the least significant) and number of bits of a bit field.
    pub bits: Option<(u32, u32)>,
    /// Type.
    pub value_type: ValueType,
}

/// Action of user space for a ring record. The record has `size` bytes: the action's index (`u64`),
/// then `fields` at their offsets. A record may be shorter: the bytes missing at its end are zero
/// (the rest of a text).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RingAction {
    /// Kind of the action.
    pub kind: ActionKind,
    /// Bytes of a full record.
    pub size: u32,
    /// Values that the record carries.
    pub fields: Vec<TypedField>,
    /// Position of the call.
    pub position: ProgramPosition,
}

/// Actions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ActionKind {
    /// `printf`: conversions take the fields in order.
    Printf(FormatText),
    /// `errorf`/`warnf`: as printf to standard error, prefixed with the severity.
    PrintDiagnostic {
        /// `ERROR` or `WARNING`.
        severity: &'static str,
        /// Text.
        format: FormatText,
    },
    /// `system`: the text is a shell command.
    System(FormatText),
    /// `cat`: the text is a file's name.
    Cat(FormatText),
    /// `print(@map[, top[, div]])`.
    PrintMap {
        /// Index of the map.
        map: usize,
        /// The number of entries, largest first; 0 is all.
        top: u32,
        /// Values are divided by it; 0 or 1 is not.
        div: u32,
        /// Whether `clear()` or `zero()` of the map follows: what is printed is what leaves.
        takes: bool,
    },
    /// `print(value)`: field 0.
    PrintValue,
    /// `print(@map[key])`: field 0 is the key, printed as an entry; the value is read from
    /// the map by user space (values of per-CPU maps are to be put together).
    PrintMapEntry {
        /// Index of the map.
        map: usize,
        /// Values are divided by it; 0 or 1 is not.
        div: u32,
    },
    /// `clear(@map)`.
    ClearMap {
        /// Index of the map.
        map: usize,
    },
    /// `zero(@map)`.
    ZeroMap {
        /// Index of the map.
        map: usize,
    },
    /// `time(format)`.
    Time {
        /// Format of strftime(3).
        format: String,
    },
    /// `join(argv, separator)`: field 0 is an Array of Text, up to the first empty one.
    Join {
        /// Text between.
        separator: String,
    },
    /// A function is called with the address (field 0) that a watchpoint is for, by a process
    /// (field 1), which has stopped for it unless the watchpoint is asynchronous.
    Watch {
        /// Name of the watchpoint's attach point.
        point: String,
    },
    /// `unwatch(address)`: field 0.
    Unwatch,
    /// `skboutput(path, packet, length, offset)`: not of the ring, but of the perf rings
    /// ([`MapPurpose::PacketRings`]).
    WritePacket {
        /// The pcap file.
        path: String,
        /// Bytes at the packet's begin that are left out.
        offset: u32,
    },
    /// `exit(code)`: field 0, where there is one, is the status.
    Exit,
}

/// A format of printf, parsed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FormatText {
    /// Pieces in order.
    pub pieces: Vec<FormatPiece>,
}

/// A piece of a format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FormatPiece {
    /// Text as it is.
    Literal(String),
    /// A conversion that takes the next field (after one each for `*`).
    Conversion(FormatConversion),
}

/// `%-10.3d` and the like.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FormatConversion {
    /// `-`
    pub left: bool,
    /// `0`
    pub zero: bool,
    /// `#`
    pub alternate: bool,
    /// `+`
    pub plus: bool,
    /// A space.
    pub space: bool,
    /// Width.
    pub width: Option<u32>,
    /// Width is given by a field before.
    pub width_from_field: bool,
    /// Precision.
    pub precision: Option<u32>,
    /// Precision is given by a field before.
    pub precision_from_field: bool,
    /// The letters before it (`ll`, `h` …).
    pub length: String,
    /// `d i u x X o c p s b` and bpftrace's `r rx rh`: for those, `r`, with `length` `x`, `h`;
    /// `g` for `gr`, the names of allocation flags.
    pub letter: char,
}

/// A place that may lose something, counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorSite {
    /// Kind of the loss.
    pub kind: ErrorKind,
    /// Position.
    pub position: ProgramPosition,
}

/// Kind of a loss at a site.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// An entry did not fit a map, by index.
    MapFull {
        /// The map.
        map: usize,
    },
    /// A record did not fit the ring.
    RingFull,
    /// A packet did not fit the perf ring of its CPU.
    PacketRingFull,
    /// A packet was longer than a perf record holds.
    PacketCut,
    /// Memory was not readable; the value is 0 or empty.
    ReadFailed,
    /// A stack was not stored (`-EEXIST`: another has its id; or it could not be walked).
    StackLost,
    /// A text was longer than its room.
    TextCut,
    /// `delete` of a key that is not there.
    NoSuchKey {
        /// The map.
        map: usize,
    },
    /// All working memory of this CPU was in use: the event was not handled.
    ScratchBusy,
    /// Division by zero; the result is 1.
    DivisionByZero,
    /// An index that is computed was not within its array; the element is 0 or empty.
    IndexOutOfBounds,
    /// A helper (named) failed.
    HelperFailed(&'static str),
    /// A loop was ended by the kernel's limit.
    LoopCut,
}

/// BPF's number of a program type (`BPF_PROG_TYPE_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
#[allow(missing_docs, reason = "the kernel's names say it")]
pub enum BpfProgramType {
    Kprobe = 2,
    Tracepoint = 5,
    PerfEvent = 7,
    RawTracepoint = 17,
    /// fentry, fexit, iter, rawtracepoint by BTF.
    Tracing = 26,
    /// `BPF_PROG_TYPE_SYSCALL`, not attached: run by `BPF_PROG_TEST_RUN`.
    Syscall = 31,
}

/// A program and where it hangs. It is to be loaded once for all of its points, as the kernel's
/// guard against a program that interrupts itself is what its scratch memory relies on; those of
/// type `Tracing`, which the kernel takes for one function each, guard it themselves.
#[derive(Clone, Debug)]
pub struct CompiledProbe {
    /// Attach points (at least one).
    pub points: Vec<AttachPoint>,
    /// Type to load it as. `tracepoint:` probes that need no argument come as
    /// RawTracepoint (attach by the event's name); so come BEGIN and END, which the
    /// runtime runs once by `BPF_PROG_TEST_RUN` of a raw tracepoint program.
    pub program_type: BpfProgramType,
    /// Instructions of the main function, then of callbacks.
    pub instructions: Vec<BpfInstruction>,
    /// Instructions to be patched before loading.
    pub relocations: Vec<ObjectRelocation>,
    /// Functions: first instruction and type id in the BTF (`bpf_func_info`).
    pub functions: Vec<(u32, u32)>,
    /// Position of instructions, ascending; each holds up to the next.
    pub lines: Vec<(u32, ProgramPosition)>,
    /// Offset of the line's text and of the file's name in the BTF's strings, for each of
    /// `lines`: (`file_name_off`, `line_off`) of `bpf_line_info`.
    pub line_texts: Vec<(u32, u32)>,
    /// Part of a tracepoint's filter that the kernel's event filters can judge, in their
    /// syntax: events that it leaves out are left out by the program, too.
    pub condition: Option<String>,
    /// Position of the probe in the program.
    pub position: ProgramPosition,
    /// Bytes of stack used.
    pub stack: u32,
}

/// An instruction, as the kernel has it (`struct bpf_insn`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct BpfInstruction {
    /// Operation.
    pub code: u8,
    /// Destination register.
    pub dst: u8,
    /// Source register.
    pub src: u8,
    /// Offset.
    pub off: i16,
    /// Immediate.
    pub imm: i32,
}

impl BpfInstruction {
    /// The 8 bytes the kernel takes, on a little-endian machine.
    pub fn to_bytes(self) -> [u8; 8] {
        let off = self.off.to_le_bytes();
        let imm = self.imm.to_le_bytes();
        [self.code, self.dst | self.src << 4, off[0], off[1], imm[0], imm[1], imm[2], imm[3]]
    }
}

/// An instruction that names a map: the first of a 16-byte load, whose `imm` becomes the
/// map's descriptor (`src` is `BPF_PSEUDO_MAP_FD` already). Others are patched already.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ObjectRelocation {
    /// Index of the instruction.
    pub instruction: u32,
    /// Index of the map.
    pub map: u32,
}

/// Attach point of a probe, after expansion of wildcards.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AttachPoint {
    /// Spec as it stands in the program, expanded: `tracepoint:sched:sched_switch`.
    pub name: String,
    /// Target of the attach point.
    pub target: AttachTarget,
}

/// Kinds of attach points.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum AttachTarget {
    /// `BEGIN` / `begin`: run once before others are attached… see `CompiledProbe`.
    Begin,
    /// `END` / `end`: run once after others were detached.
    End,
    /// `self:signal:NAME` (SIGUSR1): run when the signal arrives.
    SelfSignal(String),
    /// `bench:` / `test:` probes.
    Test(String),
    /// `tracepoint:category:event`.
    Tracepoint {
        /// System.
        category: String,
        /// Event.
        event: String,
    },
    /// `rawtracepoint:[module:]event`. Tracing programs need the BTF id of `btf_trace_event`.
    RawTracepoint {
        /// Module or empty.
        module: String,
        /// Event.
        event: String,
    },
    /// `kprobe:[module:]function[+offset]`, `kretprobe:`.
    Kprobe {
        /// Module or empty.
        module: String,
        /// Function.
        function: String,
        /// Bytes from its begin.
        offset: u64,
        /// An address instead of a function.
        address: Option<u64>,
        /// Whether at return.
        at_return: bool,
    },
    /// `fentry:[module:]function`, `fexit:`; `kfunc:`/`kretfunc:` are other names.
    Fentry {
        /// Module or empty; `bpf` is for BPF programs (`fentry:bpf:id:name`).
        module: String,
        /// Function.
        function: String,
        /// Whether at exit.
        at_exit: bool,
    },
    /// `uprobe:path:function[+offset]`, `uretprobe:`.
    Uprobe {
        /// Path or library name as written (`libc`): the runtime resolves it.
        path: String,
        /// Function, or empty with an address; `cpp:name` comes as language + name.
        function: String,
        /// Bytes from its begin.
        offset: u64,
        /// An address in the file.
        address: Option<u64>,
        /// `cpp` where names are to be compared demangled; or empty.
        language: String,
        /// Whether at return.
        at_return: bool,
    },
    /// `usdt:path:provider:name`; path and provider may be empty.
    Usdt {
        /// Path.
        path: String,
        /// Provider or empty.
        provider: String,
        /// Probe.
        name: String,
        /// One of its places, by address, where their arguments differ.
        site: Option<u64>,
    },
    /// `profile:hz:99`, `profile:ms:10`: on each CPU.
    Profile {
        /// Period in nanoseconds, or 0.
        period_ns: u64,
        /// Or rate in hertz.
        hertz: u64,
    },
    /// `interval:s:1`: on one CPU.
    Interval {
        /// Period in nanoseconds, or 0.
        period_ns: u64,
        /// Or rate in hertz.
        hertz: u64,
    },
    /// `software:event:count`.
    Software {
        /// Name as in the language (`cpu-clock`, `page-faults`, `faults` …).
        event: String,
        /// Period in events; 0 is the default.
        period: u64,
    },
    /// `hardware:event:count`.
    Hardware {
        /// Name as in the language (`cache-misses` …).
        event: String,
        /// Period in events; 0 is the default.
        period: u64,
    },
    /// `watchpoint:address:length:mode`, `watchpoint:function+argN:length:mode`.
    Watchpoint {
        /// Address; 0 with a function.
        address: u64,
        /// Function that is called with the address, or empty.
        function: String,
        /// Index of the argument that is the address.
        argument: u8,
        /// The function's binary; empty before it is resolved.
        path: String,
        /// Bytes.
        length: u8,
        /// `r`, `w`, `x` combined.
        mode: String,
        /// `asyncwatchpoint`.
        asynchronous: bool,
    },
    /// `iter:task[:pin]`.
    Iter {
        /// `task`, `task_file`, `task_vma` …
        object: String,
        /// File to pin at, or empty.
        pin: String,
    },
}

/// Number of buckets of a histogram with `bits`.
///
/// Bucket 0 counts negative values; then come buckets for 0 … 2^bits - 1, one each; then for
/// each further power of two 2^bits buckets of equal width.
pub const fn histogram_buckets(bits: u8) -> u32 {
    1 + (1 << bits) * (65 - bits as u32)
}

/// Limits `[from, to)` of a bucket; `to` is `None` for the last and for a single value
/// equal to `from + 1`. Bucket 0 is negative: `(None, 0)`.
pub const fn histogram_bucket_range(bits: u8, bucket: u32) -> (Option<u64>, Option<u64>) {
    let width = 1u32 << bits;
    if bucket == 0 {
        return (None, Some(0));
    }
    let n = bucket - 1;
    if n < width {
        return (Some(n as u64), Some(n as u64 + 1));
    }
    let power = (n - width) / width + bits as u32;
    let step = (n - width) % width;
    let unit = 1u64 << (power - bits as u32);
    let from = (1u64 << power) + step as u64 * unit;
    (Some(from), from.checked_add(unit))
}
