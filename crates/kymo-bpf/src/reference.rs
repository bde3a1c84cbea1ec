//! Language reference: probes, variables, functions and settings with their meaning, for manual
//! pages and the book. A test checks that this table and the compiler have the same names.

/// Section of the reference: a heading and its entries.
#[derive(Clone, Copy, Debug)]
pub struct LanguageSection {
    /// Topic.
    pub heading: &'static str,
    /// Syntax and meaning.
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
    ("begin, end", "Run once before other probes attach, and once after they detach."),
    ("tracepoint:CATEGORY:EVENT (t)", "Tracepoint; fields are `args.FIELD`."),
    ("rawtracepoint:[MODULE:]EVENT (rt)", "Raw tracepoint; arguments are `arg0` … or `args.NAME`."),
    ("kprobe:[MODULE:]FUNCTION[+OFFSET] (k)", "Kernel instruction."),
    ("kretprobe:FUNCTION (kr)", "Return of a kernel function; its result is `retval`."),
    (
        "fentry:[MODULE:]FUNCTION (f)",
        "Entry of a kernel function, with arguments typed by BTF \
      (`args.NAME`).",
    ),
    ("fexit:[MODULE:]FUNCTION (fr)", "Return of a kernel function, with arguments and `retval`."),
    (
        "uprobe:FILE:FUNCTION[+OFFSET] (u)",
        "Instruction of a program or library; with debugging information also \
         `uprobe:FILE@SOURCE:LINE`. With `-p`, `uprobe:FUNCTION` is of the program of the process, \
         and the FILE `*` stands for all files that it has mapped.",
    ),
    ("uretprobe:FILE:FUNCTION (ur)", "Return of a function in a program or library."),
    (
        "usdt:FILE:[PROVIDER:]NAME (U)",
        "Static user-space probe (USDT); arguments are `arg0` … With `-p`, `usdt:NAME` is of all \
         files that the process has mapped.",
    ),
    ("profile:hz:N, profile:ms:N (p)", "Timer on every CPU, for sampling."),
    ("interval:s:N, interval:hz:N (i)", "Timer on one CPU."),
    ("software:EVENT:PERIOD (s)", "Every PERIOD-th software event."),
    ("hardware:EVENT:PERIOD (h)", "Every PERIOD-th hardware event."),
    (
        "watchpoint:ADDRESS:LENGTH:MODE (w)",
        "Memory access; `asyncwatchpoint` takes the address from a function argument.",
    ),
    ("iter:OBJECT (it)", "Run once per kernel object, such as `task` or `task_file`."),
    ("self:signal:SIGUSR1", "Signal sent to kymo."),
    ("test:NAME, bench:NAME", "Run by `kymo run --test` and `--bench`."),
];

const STATEMENTS: &[(&str, &str)] = &[
    (
        "PROBE, PROBE /FILTER/ { … }",
        "Actions that run if FILTER is nonzero; probes may contain the wildcards `*` and `?`.",
    ),
    ("$name = …, let $name: TYPE", "Local variable."),
    ("@name[KEY, KEY] = …", "Map shared by all probes; printed at the end."),
    (
        "if, else, while, for, unroll, break, continue, return",
        "Control flow; `for ($kv : @map)` iterates over a map, `for ($i : 0..10)` over a range.",
    ),
    ("?: || && | ^ & == != < <= > >= << >> + - * / % ! ~", "C operators, with C's precedence."),
    (
        "(TYPE)…, *…, …->FIELD, ….FIELD, …[N]",
        "Casts, pointers, members and arrays; types come from BTF, DWARF and headers.",
    ),
    ("(A, B), ….0", "Tuple, and access to its elements."),
    ("macro NAME($x, @m) { … }", "Macro."),
    ("struct, enum, #include, #define", "C declarations and preprocessor directives."),
    ("$1, $#, str($1)", "Command-line parameters: number N, their count, and as a string."),
    ("sizeof(TYPE), offsetof(TYPE, FIELD), typeof(…)", "Sizes, offsets and types."),
];

const VARIABLES: &[(&str, &str)] = &[
    ("pid, tid", "Process and thread ID, in kymo's pid namespace."),
    ("uid, gid, username", "User ID, group ID and user name of the task."),
    ("comm, pcomm, leader_comm", "Name of the task, of its parent and of its thread group leader."),
    ("ppid, leader_tid", "ID of the parent process and of the thread group leader."),
    ("cpid, has_cpid", "Process ID of the command given with `-c`, and whether there is one."),
    ("nsecs, elapsed", "Nanoseconds since boot, and since the start of kymo."),
    ("jiffies", "Kernel timer ticks."),
    ("cpu, numaid, ncpus", "Current CPU, its NUMA node, and the number of CPUs."),
    ("cgroup", "ID of the task's cgroup (version 2)."),
    ("curtask", "`struct task_struct` of the task."),
    ("args, arg0 … arg9, sarg0 …", "Fields or arguments of the probe; `sarg0` … are on the stack."),
    ("retval", "Return value of the function."),
    ("func, probe, probetype", "Probed function, probe name and probe type."),
    ("kstack, ustack", "Kernel stack and user stack."),
    ("ctx", "Pointer to the probe's context."),
    ("usermode", "1 if the sample interrupted user space, 0 for the kernel."),
    ("rand", "32-bit random number."),
];

const AGGREGATIONS: &[(&str, &str)] = &[
    ("count()", "Number of calls."),
    ("sum(N), min(N), max(N), avg(N)", "Sum, minimum, maximum and average."),
    ("stats(N)", "Count, average and total."),
    ("hist(N[, BITS])", "Histogram with power-of-two buckets, each split into 2^BITS parts."),
    ("lhist(N, MIN, MAX, STEP)", "Histogram with linear buckets."),
    (
        "tseries(N, INTERVAL, COUNT[, FUNCTION])",
        "Time series; FUNCTION is `avg`, `sum`, `min` or `max`.",
    ),
];

const MAPS: &[(&str, &str)] = &[
    ("print(@map[, TOP[, DIVISOR]]), print(VALUE)", "Print a map or a value."),
    ("clear(@map), zero(@map)", "Remove all entries; set all values to zero."),
    ("delete(@map, KEY), has_key(@map, KEY)", "Remove an entry; test whether it exists."),
    ("find(@map, KEY, $value)", "Store the value of an entry in $value; true if the entry exists."),
    ("len(@map), len(STACK)", "Number of entries or frames."),
];

const OUTPUT: &[(&str, &str)] = &[
    ("printf(FORMAT, …)", "Print with C's conversions, and `%r` for buffers."),
    (
        "errorf(FORMAT, …), warnf(FORMAT, …), debugf(FORMAT, …)",
        "Print a message with severity and source position; `debugf` only with `--debug`.",
    ),
    ("time([FORMAT])", "Print the time of day."),
    ("cat(FORMAT, …)", "Print a file."),
    ("system(FORMAT, …)", "Run a command (`--unsafe`)."),
    ("join(POINTER[, SEPARATOR])", "Print an array of strings, such as the argv of execve."),
    ("exit([STATUS])", "Exit."),
    (
        "assert(CONDITION[, TEXT]), fail(TEXT)",
        "Exit with status 1 if CONDITION is false; `fail` always.",
    ),
    ("skboutput(FILE, SKB, LENGTH, OFFSET)", "Write a packet to a pcap file."),
];

const STRINGS: &[(&str, &str)] = &[
    (
        "str(POINTER[, LENGTH]), kstr(…), ustr(…)",
        "String at an address; `kstr` in kernel memory, `ustr` in user memory.",
    ),
    ("buf(POINTER[, LENGTH])", "Bytes at an address."),
    ("path(POINTER)", "Path of a `struct path`, in functions where the kernel allows it."),
    ("strncmp(A, B, N), memcmp(A, B, N)", "0 if the first N bytes are equal."),
    ("strcontains(A, B), strstr(A, B)", "Whether A contains B; position of B in A, or -1."),
    ("str_concat(A, B)", "Concatenation of A and B."),
    ("strlen(A), strcap(A)", "Length and capacity of a string."),
    ("default_str_length()", "Default capacity of strings (`max_strlen`)."),
    ("strerror(N), signal_name(N), syscall_name(N)", "Name of an error, signal or system call."),
];

const SYMBOLS: &[(&str, &str)] = &[
    (
        "kstack([MODE][, FRAMES]), ustack(…)",
        "Kernel or user stack; MODE is `bpftrace`, `perf`, `raw` or `build_id`.",
    ),
    ("ksym(ADDRESS), usym(ADDRESS)", "Symbol of a kernel or user address."),
    (
        "kaddr(NAME), uaddr(NAME)",
        "Address of a kernel symbol, or of a symbol of the probed \
      program.",
    ),
    ("percpu_kaddr(NAME[, CPU])", "Address of a per-CPU variable."),
    ("reg(NAME)", "Value of a register."),
    ("nsecs(CLOCK)", "Current time: `monotonic`, `boot`, `tai` or `sw_tai`."),
    ("strftime(FORMAT, NSECS)", "Formatted time."),
    ("pid(init), tid(init)", "IDs in the initial pid namespace."),
];

const OTHER: &[(&str, &str)] = &[
    (
        "ntop([FAMILY, ]ADDRESS), pton(TEXT), macaddr(ADDRESS)",
        "Convert network addresses to text, and from text.",
    ),
    ("bswap(N)", "Value with reversed bytes."),
    ("kptr(POINTER), uptr(POINTER)", "Mark a pointer as a kernel or user address."),
    ("container_of(POINTER, TYPE, MEMBER)", "Structure that contains the member."),
    ("cgroupid(PATH), cgroup_path(ID[, HIERARCHY])", "ID of a cgroup; path of a cgroup ID."),
    ("socket_cookie(SOCKET)", "Unique ID of a socket."),
    (
        "signal(NAME), signal_thread(NAME)",
        "Send a signal to the current process or thread \
      (`--unsafe`).",
    ),
    ("override(N)", "Make the probed function return N (`--unsafe`, where the kernel allows it)."),
    ("write_user(ADDRESS, VALUE, LENGTH)", "Write to user memory (`--unsafe`)."),
    ("unwatch(ADDRESS)", "Remove a watchpoint."),
    ("getopt(NAME[, DEFAULT[, TEXT]])", "Value of a program option, given after `--`."),
    (
        "is_literal, is_str, is_integer, is_unsigned_integer, is_ptr, is_array (EXPRESSION)",
        "Test the type of an expression at compile time.",
    ),
    ("is_err(POINTER)", "Whether a pointer is a kernel error pointer."),
    (
        "static_assert(CONDITION[, TEXT]), assert_str(EXPRESSION)",
        "Fail to compile if CONDITION is false, or if EXPRESSION is not a string.",
    ),
    (
        "kfunc_exist(NAME), kfunc_allowed(NAME)",
        "Whether the kernel has a kfunc; whether it may be called (always false).",
    ),
];

const SETTINGS: &[(&str, &str)] = &[
    ("max_strlen", "Capacity of strings [default: 1024]."),
    ("max_map_keys", "Maximum number of entries of a map [default: 4096]."),
    ("max_probes, max_bpf_progs", "Maximum number of probes and BPF programs [default: 1024]."),
    ("max_cat_bytes", "Maximum number of bytes printed by `cat` [default: 10240]."),
    ("missing_probes", "Handling of missing probes: `error`, `warn` or `ignore` [default: error]."),
    (
        "stack_mode",
        "Format of stacks: `bpftrace`, `perf`, `raw` or `build_id` [default: \
      bpftrace].",
    ),
    ("str_trunc_trailer", "Suffix of truncated strings [default: ..]."),
    ("print_maps_on_exit", "Print maps at the end [default: 1]."),
    ("perf_rb_pages", "Size of each perf ring buffer, in pages."),
    ("release", "Set to `0.17` for the output and rules of that bpftrace release."),
    ("license", "License of the BPF programs [default: GPL]."),
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
