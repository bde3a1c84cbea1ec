//! Reference of the language: probes, variables, functions and settings with their meaning, for
//! manual pages and the book. A test checks that the compiler knows each name, and that each name
//! of the compiler is here.

/// Section of the reference: a heading and its entries.
#[derive(Clone, Copy, Debug)]
pub struct LanguageSection {
    /// Topic.
    pub heading: &'static str,
    /// Form as it is written in a program, and meaning.
    pub entries: &'static [(&'static str, &'static str)],
}

/// Sections of the reference.
pub const LANGUAGE_REFERENCE: &[LanguageSection] = &[
    LanguageSection { heading: "Probes", entries: PROBES },
    LanguageSection { heading: "Statements and operators", entries: STATEMENTS },
    LanguageSection { heading: "Variables", entries: VARIABLES },
    LanguageSection { heading: "Aggregations", entries: AGGREGATIONS },
    LanguageSection { heading: "Maps", entries: MAPS },
    LanguageSection { heading: "Output", entries: OUTPUT },
    LanguageSection { heading: "Strings", entries: STRINGS },
    LanguageSection { heading: "Symbols, stacks and times", entries: SYMBOLS },
    LanguageSection { heading: "Other functions", entries: OTHER },
    LanguageSection { heading: "Settings of the config block", entries: SETTINGS },
];

const PROBES: &[(&str, &str)] = &[
    ("begin, end", "Once before the other probes are attached, once after they are detached."),
    ("tracepoint:CATEGORY:EVENT (t)", "Tracepoint; `args.FIELD` is a field."),
    ("rawtracepoint:[MODULE:]EVENT (rt)", "Raw tracepoint; `arg0`, `args.NAME` are arguments."),
    ("kprobe:[MODULE:]FUNCTION[+OFFSET] (k)", "Instruction of the kernel."),
    ("kretprobe:FUNCTION (kr)", "Return of a kernel function; `retval` is its result."),
    ("fentry:[MODULE:]FUNCTION (f)", "Entry of a kernel function, with arguments typed by BTF."),
    ("fexit:[MODULE:]FUNCTION (fr)", "Return of a kernel function, with arguments and `retval`."),
    (
        "uprobe:FILE:FUNCTION[+OFFSET] (u)",
        "Instruction of a program or library; with DWARF also `uprobe:FILE@SOURCE:LINE`.",
    ),
    ("uretprobe:FILE:FUNCTION (ur)", "Return of a function of a program."),
    ("usdt:FILE:[PROVIDER:]NAME (U)", "Static marker of a program; `arg0` … are its arguments."),
    ("profile:hz:N, profile:ms:N (p)", "Sample on every CPU."),
    ("interval:s:N, interval:hz:N (i)", "Timer on one CPU."),
    ("software:EVENT:PERIOD (s)", "Every PERIOD-th software event of the kernel."),
    ("hardware:EVENT:PERIOD (h)", "Every PERIOD-th event of the CPU."),
    (
        "watchpoint:ADDRESS:LENGTH:MODE (w)",
        "Access to memory; `asyncwatchpoint` for an argument of a function.",
    ),
    ("iter:OBJECT (it)", "Once for each kernel object, such as `task` or `task_file`."),
    ("self:signal:SIGUSR1", "Signal to kymo."),
    ("test:NAME, bench:NAME", "Run by `kymo run --test` and `--bench`."),
];

const STATEMENTS: &[(&str, &str)] = &[
    (
        "PROBE, PROBE /FILTER/ { … }",
        "Actions that run where FILTER is not zero; `*` and `?` in a probe match names.",
    ),
    ("$name = …, let $name: TYPE", "Variable of one run of the probe."),
    ("@name[KEY, KEY] = …", "Map, shared by all probes; printed at the end."),
    (
        "if, else, while, for, unroll, break, continue, return",
        "Control flow; `for ($kv : @map)` visits a map, `for ($i : 0..10)` counts.",
    ),
    ("?: || && | ^ & == != < <= > >= << >> + - * / % ! ~", "Operators of C, with its precedence."),
    (
        "(TYPE)…, *…, …->FIELD, ….FIELD, …[N]",
        "Casts, memory and members; structures come from BTF, DWARF and headers.",
    ),
    ("(A, B), ….0", "Tuples."),
    ("macro NAME($x, @m) { … }", "Macro."),
    ("struct, enum, #include, #define", "C declarations and preprocessor."),
    ("$1, $#, str($1)", "Parameters of the command line."),
    ("sizeof(TYPE), offsetof(TYPE, FIELD), typeof(…)", "Sizes, offsets and types."),
];

const VARIABLES: &[(&str, &str)] = &[
    ("pid, tid", "Process and thread id, in the namespace of kymo."),
    ("uid, gid, username", "User and group of the task."),
    ("comm, pcomm, leader_comm", "Name of the task, its parent, the first thread of its process."),
    ("ppid, leader_tid", "Id of the parent, of the first thread."),
    ("cpid, has_cpid", "Process id of the command of `-c`, and whether there is one."),
    ("nsecs, elapsed", "Nanoseconds since boot, and since the start of kymo."),
    ("jiffies", "Ticks of the kernel."),
    ("cpu, numaid, ncpus", "CPU, its NUMA node, and the number of CPUs."),
    ("cgroup", "Id of the task's cgroup (version 2)."),
    ("curtask", "`struct task_struct` of the task."),
    (
        "args, arg0 … arg9, sarg0 …",
        "Fields or arguments of the probe; arguments in registers and on the stack.",
    ),
    ("retval", "Result of the function."),
    ("func, probe, probetype", "Function, probe and type of probe."),
    ("kstack, ustack", "Stack in the kernel, in the program."),
    ("ctx", "Pointer to the context of the probe."),
    ("usermode", "1 where a sample interrupted a program, 0 in the kernel."),
    ("rand", "Random number of 32 bits."),
];

const AGGREGATIONS: &[(&str, &str)] = &[
    ("count()", "Number of times."),
    ("sum(N), min(N), max(N), avg(N)", "Sum, smallest, largest and average value."),
    ("stats(N)", "Count, average and total."),
    ("hist(N[, BITS])", "Histogram in powers of two, each divided into 2^BITS parts."),
    ("lhist(N, MIN, MAX, STEP)", "Linear histogram."),
    (
        "tseries(N, INTERVAL, COUNT[, FUNCTION])",
        "Values over time; FUNCTION is `avg`, `sum`, `min` or `max`.",
    ),
];

const MAPS: &[(&str, &str)] = &[
    ("print(@map[, TOP[, DIVISOR]]), print(VALUE)", "Print a map, or one value."),
    ("clear(@map), zero(@map)", "Remove all entries; set all values to zero."),
    ("delete(@map, KEY), has_key(@map, KEY)", "Remove an entry; whether it exists."),
    ("find(@map, KEY, $value)", "Whether an entry exists, and its value."),
    ("len(@map), len(STACK)", "Number of entries or of frames."),
];

const OUTPUT: &[(&str, &str)] = &[
    ("printf(FORMAT, …)", "Print with the conversions of C, and `%r` for bytes."),
    (
        "errorf(FORMAT, …), warnf(FORMAT, …), debugf(FORMAT, …)",
        "Messages with a severity and a position; `debugf` with `--debug` only.",
    ),
    ("time([FORMAT])", "Print the time of day."),
    ("cat(FORMAT, …)", "Print a file."),
    ("system(FORMAT, …)", "Run a command (`--unsafe`)."),
    ("join(POINTER[, SEPARATOR])", "Print an array of strings, such as the argv of execve."),
    ("exit([STATUS])", "End the program."),
    (
        "assert(CONDITION[, TEXT]), fail(TEXT)",
        "End with status 1 where CONDITION is not met; end always.",
    ),
    ("skboutput(FILE, SKB, LENGTH, OFFSET)", "Write a packet into a pcap file."),
];

const STRINGS: &[(&str, &str)] = &[
    (
        "str(POINTER[, LENGTH]), kstr(…), ustr(…)",
        "String in memory; in that of the kernel, of the program.",
    ),
    ("buf(POINTER[, LENGTH])", "Bytes in memory."),
    ("path(POINTER)", "Path of a `struct path`, in functions in which the kernel allows it."),
    ("strncmp(A, B, N), memcmp(A, B, N)", "0 where the first N bytes are equal."),
    ("strcontains(A, B), strstr(A, B)", "Whether A contains B; the position of B in A or -1."),
    ("str_concat(A, B)", "A followed by B."),
    ("strlen(A), strcap(A)", "Length and capacity of a string."),
    ("default_str_length()", "Capacity of strings (`max_strlen`)."),
    ("strerror(N), signal_name(N), syscall_name(N)", "Name of an error, a signal, a system call."),
];

const SYMBOLS: &[(&str, &str)] = &[
    (
        "kstack([MODE][, FRAMES]), ustack(…)",
        "Stack; MODE is `bpftrace`, `perf`, `raw` or `build_id`.",
    ),
    ("ksym(ADDRESS), usym(ADDRESS)", "Symbol of an address in the kernel, in the program."),
    ("kaddr(NAME), uaddr(NAME)", "Address of a symbol of the kernel, of the probed program."),
    ("percpu_kaddr(NAME[, CPU])", "Address of a per-CPU variable."),
    ("reg(NAME)", "Register."),
    ("nsecs(CLOCK)", "Time of a clock: `monotonic`, `boot`, `tai` or `sw_tai`."),
    ("strftime(FORMAT, NSECS)", "Time as text."),
    ("pid(init), tid(init)", "Ids in the first pid namespace."),
];

const OTHER: &[(&str, &str)] = &[
    (
        "ntop([FAMILY, ]ADDRESS), pton(TEXT), macaddr(ADDRESS)",
        "Network addresses as text, and from text.",
    ),
    ("bswap(N)", "Value with its bytes reversed."),
    ("kptr(POINTER), uptr(POINTER)", "Pointer into the memory of the kernel, of the program."),
    ("container_of(POINTER, TYPE, MEMBER)", "Structure that contains a member."),
    ("cgroupid(PATH), cgroup_path(ID[, HIERARCHY])", "Id of a cgroup, and path of an id."),
    ("socket_cookie(SOCKET)", "Number that identifies a socket."),
    ("signal(NAME), signal_thread(NAME)", "Send a signal to the process or thread (`--unsafe`)."),
    ("override(N)", "Make the probed function return N (`--unsafe`, where the kernel allows it)."),
    ("write_user(ADDRESS, VALUE, LENGTH)", "Write into the memory of the program (`--unsafe`)."),
    ("unwatch(ADDRESS)", "Remove a watchpoint."),
    ("getopt(NAME[, DEFAULT[, TEXT]])", "Option of the program, given after `--`."),
    (
        "is_literal, is_str, is_integer, is_unsigned_integer, is_ptr, is_array (EXPRESSION)",
        "Whether an expression is of that kind; constant at run time.",
    ),
    ("is_err(POINTER)", "Whether a pointer is an error of the kernel."),
    (
        "static_assert(CONDITION[, TEXT]), assert_str(EXPRESSION)",
        "Refuse the program where CONDITION is not met, or EXPRESSION is not a string.",
    ),
    (
        "kfunc_exist(NAME), kfunc_allowed(NAME)",
        "Whether the kernel has a function; whether programs may call it (never here).",
    ),
];

const SETTINGS: &[(&str, &str)] = &[
    ("max_strlen", "Capacity of strings [default: 1024]."),
    ("max_map_keys", "Entries of a map [default: 4096]."),
    ("max_probes, max_bpf_progs", "Limits of probes and programs [default: 1024]."),
    ("max_cat_bytes", "Bytes that `cat` prints [default: 10240]."),
    (
        "missing_probes",
        "`error`, `warn` or `ignore` for probes that do not exist [default: error].",
    ),
    ("stack_mode", "`bpftrace`, `perf`, `raw` or `build_id` [default: bpftrace]."),
    ("str_trunc_trailer", "Text after a truncated string [default: ..]."),
    ("print_maps_on_exit", "Print maps at the end [default: 1]."),
    ("perf_rb_pages", "Pages of the ring."),
    ("release", "`0.17` for the output and the rules of that release of bpftrace."),
    ("license", "License that the kernel sees [default: GPL]."),
    (
        "cpp_demangle, lazy_symbolication, cache_user_symbols, log_size, on_stack_limit, show_debug_info, unstable_…",
        "Accepted for compatibility.",
    ),
];

#[cfg(test)]
mod tests {
    use super::{LANGUAGE_REFERENCE, LanguageSection};

    /// Sources whose match arms are names of the language.
    const SOURCES: &[&str] = &[
        include_str!("lower/calls.rs"),
        include_str!("lower/output.rs"),
        include_str!("lower/strings.rs"),
        include_str!("lower/names.rs"),
        include_str!("lower/aggregates.rs"),
    ];
    /// Arms that are words of arguments or formats, and names that are refused.
    const OTHER_ARMS: &[&str] = &[
        "",
        "0",
        "1",
        "true",
        "false",
        "dw_ustack",
        "globmatch",
        "monotonic",
        "boot",
        "tai",
        "sw_tai",
        "perf",
        "bpftrace",
        "raw",
        "build_id",
        "offsetof",
    ];

    fn words(section: &LanguageSection) -> Vec<&'static str> {
        let forms = section.entries.iter().map(|(form, _)| *form);
        forms.flat_map(|form| form.split(|c: char| !c.is_alphanumeric() && c != '_')).collect()
    }

    #[test]
    fn every_name_of_the_compiler_is_described() {
        let described: Vec<&str> = LANGUAGE_REFERENCE.iter().flat_map(words).collect();
        let mut missing = Vec::new();
        let mut seen = 0;
        for line in SOURCES.iter().flat_map(|source| source.lines()) {
            let line = line.trim_start();
            if !line.starts_with('"') && !line.starts_with("| \"") {
                continue;
            }
            let Some((arms, _)) = line.split_once("=>") else { continue };
            let arms = arms.split(" if ").next().unwrap_or_default();
            for name in arms.split('"').skip(1).step_by(2) {
                let is_name = name.chars().all(|c| c.is_ascii_lowercase() || c == '_');
                seen += 1;
                if is_name && !described.contains(&name) && !OTHER_ARMS.contains(&name) {
                    missing.push(name);
                }
            }
        }
        assert!(missing.is_empty(), "{missing:?}");
        assert!(seen > 100, "only {seen} arms found");
    }

    #[test]
    fn every_setting_is_known() {
        let settings = LANGUAGE_REFERENCE.last().unwrap();
        for word in words(settings) {
            let is_known = crate::lower::finish::is_setting(word);
            assert!(is_known || word.is_empty() || word == "unstable_", "{word}");
        }
    }
}
