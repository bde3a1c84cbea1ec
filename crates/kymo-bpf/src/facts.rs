//! Interface to facts about the machine: formats, types, functions, symbols. The compiler does no
//! I/O itself; the runtime answers, tests answer from memory.

use std::rc::Rc;

use kymo_format::EventFormat;

use crate::object::AttachPoint;

/// Settings of a compilation.
#[derive(Clone, Debug)]
pub struct CompileOptions {
    /// Positional parameters `$1` … and options (`--name=value`) of `getopt`.
    pub parameters: Vec<String>,
    /// Process of `-p`, which uprobes and `usdt` are limited to by the runtime.
    pub pid: Option<u32>,
    /// Process whose events alone are handled, of probes that are not attached to a process.
    pub filter_pid: Option<u32>,
    /// Process of `-c` (`cpid`).
    pub child_pid: Option<u32>,
    /// Device and inode of the pid namespace that `pid` and `tid` are of, if it is not the first.
    pub pid_namespace: Option<(u64, u64)>,
    /// CLOCK_BOOTTIME at start (for `elapsed`), in nanoseconds.
    pub start_ns: u64,
    /// Possible CPUs.
    pub cpus: u32,
    /// Whether tracepoints without arguments may come as raw tracepoints. The runtime
    /// compiles again without, where the kernel knows no raw tracepoint of that name.
    pub raw_tracepoints: bool,
    /// Whether the program is to be run in user space, on events out of rings
    /// ([`crate::ProgramInterpreter`]): what only the kernel can do is refused.
    pub in_user_space: bool,
    /// Kernel's version as (major, minor): helpers and instructions it has.
    pub kernel: (u32, u32),
    /// `std::env::consts::ARCH` of the machine: `x86_64` or `aarch64`.
    pub arch: String,
    /// Headers that are included before the program's own.
    pub includes: Vec<String>,
    /// Settings that stand above the program's `config` block (`BPFTRACE_…`), lower case.
    pub config: Vec<(String, String)>,
}

impl Default for CompileOptions {
    fn default() -> Self {
        CompileOptions {
            parameters: Vec::new(),
            pid: None,
            filter_pid: None,
            child_pid: None,
            pid_namespace: None,
            start_ns: 0,
            cpus: 1,
            raw_tracepoints: true,
            in_user_space: false,
            kernel: (6, 18),
            arch: String::from("x86_64"),
            includes: Vec::new(),
            config: Vec::new(),
        }
    }
}

/// A type of C.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CType {
    /// `void`, functions, and what cannot be said.
    Void,
    /// An integer, `char` and enumerations without name included.
    Integer {
        /// Bytes.
        size: u8,
        /// Whether it is signed.
        signed: bool,
        /// Whether it is a `char`: arrays of it are text.
        is_char: bool,
    },
    /// `_Bool`.
    Boolean,
    /// An integer of 16 bytes, which is printed and does not fit a register.
    Wide {
        /// Whether it is signed.
        signed: bool,
    },
    /// A floating-point number, which is printed and not computed with.
    Float {
        /// Bytes.
        size: u8,
    },
    /// An enumeration, by [`TypeFacts::enumerators`]'s id.
    Enumeration {
        /// Bytes.
        size: u8,
        /// Whether it is signed.
        signed: bool,
        /// The answerer's number of the type.
        id: u32,
    },
    /// A pointer.
    Pointer {
        /// Type that it points to.
        target: Box<CType>,
        /// `__user`: a user-space address by its type tag.
        user: bool,
    },
    /// An array.
    Array {
        /// Type of an element.
        element: Box<CType>,
        /// Elements; 0 for a flexible one.
        count: u32,
    },
    /// A text of a program that is no C string (`String`, `&str`, `std::string`): where in it
    /// the pointer to its bytes and their number (8 bytes each) are.
    Text {
        /// Bytes that it takes itself.
        size: u32,
        /// Offset of the pointer.
        data: u32,
        /// Offset of the length.
        length: u32,
    },
    /// A structure or union, by [`TypeFacts::record_layout`]'s id.
    Record {
        /// The answerer's number, below 2^31.
        id: u32,
    },
}

/// Members of a structure or union.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordLayout {
    /// Tag, without `struct`; empty if it has none.
    pub name: String,
    /// Whether it is a union.
    pub is_union: bool,
    /// Bytes.
    pub size: u32,
    /// Members in order; a member without name is an anonymous structure or union,
    /// whose members are looked up as members of this one.
    pub members: Vec<RecordMember>,
}

/// Name of the first member of an enumeration with data: its variant, an enumeration.
pub const VARIANT: &str = "<variant>";

impl RecordLayout {
    /// Whether it is an enumeration with data, as Rust has them.
    pub fn is_variants(&self) -> bool {
        self.members.first().is_some_and(|m| {
            m.name == VARIANT && matches!(m.ctype, CType::Enumeration { .. }) && self.is_union
        })
    }
}

/// A member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordMember {
    /// Name or empty.
    pub name: String,
    /// Type.
    pub ctype: CType,
    /// Bits from the start of the record (of the least significant bit, little-endian).
    pub bit_offset: u32,
    /// Bits, of a bit field.
    pub bit_size: Option<u8>,
}

/// Location of an argument of a function or a `usdt` probe, or of a variable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ArgumentPlace {
    /// The n-th integer argument by the machine's convention; in Tracing programs the n-th
    /// word of the context.
    Index(u8),
    /// A register by name.
    Register(String),
    /// In user memory at a register plus an offset.
    Memory {
        /// Register by name.
        register: String,
        /// Bytes.
        offset: i64,
        /// Another register, and what it is multiplied by before it is added.
        index: Option<(String, u8)>,
    },
    /// A constant.
    Constant(i64),
    /// Result of an expression: the value, or with `is_address` the address of the value.
    Computed {
        /// Register by name.
        register: String,
        /// Offsets that are added before each read of user memory.
        reads: Vec<i64>,
        /// Added behind the last read.
        add: i64,
        /// Whether it is the value's address.
        is_address: bool,
    },
    /// Parts side by side: bytes and place of each.
    Pieces(Vec<(u32, ArgumentPlace)>),
    /// A place that programs cannot read, with the reason: an error if the argument is used.
    Unreadable(String),
}

/// An argument.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FunctionArgument {
    /// Name (of `usdt` probes `arg0` …).
    pub name: String,
    /// Type.
    pub ctype: CType,
    /// Location of the argument.
    pub place: ArgumentPlace,
}

/// Arguments at an attach point.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FunctionFacts {
    /// Arguments in order.
    pub arguments: Vec<FunctionArgument>,
    /// Type of the return value.
    pub returns: CType,
}

/// Answers about the machine. Every answer may be "not known"; the text of an `Err` goes
/// into the message to the user.
pub trait TypeFacts {
    /// Attach points that one with wildcards (in any of its names) or with a name that
    /// matches several (`uprobe:libc:…`) stands for; the point itself, if it exists, when
    /// it has none. Empty if there is none.
    fn expand(&self, point: &AttachPoint) -> Result<Vec<AttachPoint>, String>;

    /// A point to write instead of one that was not found.
    fn instead_of(&self, _missing: &AttachPoint) -> Option<String> {
        None
    }

    /// Format of a tracepoint.
    fn tracepoint_format(&self, category: &str, event: &str) -> Result<Rc<EventFormat>, String>;

    /// Type by its C name: `struct task_struct`, `union x`, `enum y`, or a typedef or base
    /// type (`u64`, `size_t`), typedefs resolved.
    fn find_type(&self, name: &str) -> Option<CType>;

    /// Members of a record that `find_type` or another answer named.
    fn record_layout(&self, id: u32) -> Option<Rc<RecordLayout>>;

    /// Name, then values and names of an enumeration.
    fn enumerators(&self, id: u32) -> Option<Rc<EnumerationFacts>>;

    /// An enumerator or other constant of the kernel (`TCP_SYN_SENT`).
    fn constant(&self, name: &str) -> Option<NamedConstant>;

    /// Arguments and return value at a point: fentry, fexit, rawtracepoint by BTF; uprobes
    /// by DWARF; usdt by its note.
    fn function(&self, point: &AttachPoint) -> Result<Rc<FunctionFacts>, String>;

    /// A variable that is seen at a probe of a program, by debugging information.
    fn variable(&self, _point: &AttachPoint, _name: &str) -> Result<UserVariable, String> {
        Err("arguments by name need debugging information".into())
    }

    /// Names of the parameters of a function of a program, or of the kernel.
    fn parameters(&self, _point: &AttachPoint) -> Vec<String> {
        Vec::new()
    }

    /// A type of the program that a probe is in, by its C name.
    fn program_type(&self, _point: &AttachPoint, _name: &str) -> Option<CType> {
        None
    }

    /// Address of a kernel symbol (`kaddr`).
    fn kernel_symbol(&self, name: &str) -> Option<u64>;

    /// Address of a symbol of which each CPU has one, before the CPU's offset is added.
    fn per_cpu_symbol(&self, name: &str) -> Option<u64> {
        self.kernel_symbol(name)
    }

    /// Address and size of a symbol in a binary (`uaddr`).
    fn user_symbol(&self, path: &str, name: &str) -> Option<(u64, u64)>;

    /// Address in its file of a probe of a program whose place in memory is not that of the file
    /// (position independent); `None` of others.
    fn moved_place(&self, _point: &AttachPoint) -> Option<u64> {
        None
    }

    /// Id of a cgroup by its path (`cgroupid`).
    fn cgroup_id(&self, path: &str) -> Option<u64>;

    /// Whether a module of the kernel is loaded; its own name is `vmlinux`.
    fn is_loaded(&self, _module: &str) -> bool {
        true
    }

    /// Reason why a probe at the attach points of a description may not count what its name suggests.
    fn caution(&self, _points: &[AttachPoint]) -> Option<String> {
        None
    }

    /// Whether an attach point that exists is one that the user wants; `BEGIN` and its like are not
    /// asked about.
    fn is_wanted(&self, _point: &AttachPoint) -> bool {
        true
    }

    /// A header of C by its name and the path of the header that includes it, if that is not the
    /// program itself. A name that begins with `./` was written in quotes. `None` if it is one of
    /// the kernel's that is not installed: its BTF answers in its place.
    ///
    /// # Errors
    /// If there is no such header.
    fn header(&self, _name: &str, _from: Option<&str>) -> Result<Option<HeaderFile>, String> {
        Ok(None)
    }

    /// Text of a file that `import` names; `None` if it is not there.
    fn included_text(&self, name: &str) -> Option<String>;
}

/// A header of C.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderFile {
    /// Its path.
    pub path: String,
    /// Its text.
    pub text: String,
    /// Whether it is one of the kernel's, whose types are known by BTF.
    pub is_kernel: bool,
}

/// A constant that has a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedConstant {
    /// Its value.
    pub value: i64,
    /// Its enumeration; `None` for a plain number.
    pub ctype: Option<CType>,
}

/// A variable of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserVariable {
    /// Its type and place.
    pub argument: FunctionArgument,
    /// Address at which the variable can be read: after the prologue, if that stores it.
    pub address: u64,
}

/// An enumeration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnumerationFacts {
    /// Name, without `enum`.
    pub name: String,
    /// Values and names.
    pub variants: Vec<(i64, String)>,
    /// Name of all other values: of Rust's variant without a value of its own.
    pub otherwise: Option<String>,
}
