//! Tables of events: names, types and documentation of their columns.

/// Type of a column: the form of its values in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ColumnKind {
    /// Number of the row.
    Row,
    /// Number below 2^32 - 1.
    Small,
    Integer,
    Real,
    Text,
}

/// Column of a table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ColumnSchema {
    pub(crate) name: &'static str,
    pub(crate) kind: ColumnKind,
    pub(crate) documentation: &'static str,
}

/// Table of events.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TableSchema {
    pub(crate) name: &'static str,
    pub(crate) documentation: &'static str,
    pub(crate) columns: &'static [ColumnSchema],
    /// Column by which rows are sorted.
    pub(crate) sorted: Option<usize>,
}

/// Declares tables: a constant for each with its number, and all of them.
macro_rules! tables {
    ($($id:ident $name:literal sorted $sorted:expr, $doc:literal {
        $($column:ident $kind:ident $column_doc:literal;)*
    })*) => {
        /// A table of events.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(usize)]
        pub(crate) enum TableId { $($id,)* }

        /// All tables of events.
        pub(crate) const TABLES: &[TableSchema] = &[$(TableSchema {
            name: $name,
            documentation: $doc,
            columns: &[$(ColumnSchema {
                name: stringify!($column),
                kind: ColumnKind::$kind,
                documentation: $column_doc,
            },)*],
            sorted: $sorted,
        },)*];
    };
}

tables! {
    Thread "thread" sorted Some(1), "Threads, one row per thread lifetime" {
        id Row "utid";
        utid Row "unique number of the thread, even if its thread ID is reused; 0: idle";
        tid Small "thread ID";
        name Text "last name";
        start_ts Integer "creation time, if recorded";
        end_ts Integer "exit time, if recorded";
        upid Small "process, if recorded";
        is_main_thread Small "whether it is the main thread of its process";
        is_idle Small "whether it is the idle task of a CPU";
        machine_id Small "number of the recording";
    }
    Process "process" sorted Some(1), "Processes" {
        id Row "upid";
        upid Row "unique number of the process, even if its process ID is reused";
        pid Small "process ID";
        name Text "last name of its main thread";
        start_ts Integer "creation time, if recorded";
        end_ts Integer "exit time of the main thread, if recorded";
        parent_upid Small "process that created it, if recorded";
        machine_id Small "number of the recording";
    }
    SchedSlice "sched_slice" sorted Some(1), "Runs of threads on CPUs, including idle (utid 0)" {
        id Row "number of the row";
        ts Integer "start";
        dur Integer "duration in ns; null: its end is not recorded";
        cpu Small "CPU";
        utid Small "thread";
        end_state Text "state in which the thread leaves the CPU: R, R+ (preempted in the \
                        kernel), S, D, T, t, X, Z, P, I";
        priority Integer "kernel priority at the end";
        ucpu Small "CPU, unique across recordings";
        thread_name Text "name of the thread at the end";
        wakeup_delay Integer "ns from the wake-up or creation of the thread until it ran";
        preempt_delay Integer "ns from a preemption until it ran again";
        cause Text "reason why it became runnable: woken, preempted, new";
        waker_utid Small "thread that was running on the waking CPU";
        waker_context Text "task, softirq, hardirq, unknown";
        migrated Small "whether this run is on another CPU than the previous one";
        uncertain Small "whether events were lost in this run or in the wait before it";
    }
    ThreadState "thread_state" sorted Some(1), "States of threads over time" {
        id Row "number of the row";
        ts Integer "start";
        dur Integer "duration in ns; null: its end is not recorded";
        cpu Small "CPU, for Running";
        utid Small "thread";
        state Text "Running, R, R+, S, D, T, t, X, Z, P, I";
        waker_utid Small "for R after a wake-up: thread that was running on the waking CPU";
        irq_context Small "for R after a wake-up: whether an interrupt woke it";
        ucpu Small "CPU, unique across recordings";
        uncertain Small "whether events were lost in it, or its end is not recorded";
    }
    FtraceEvent "ftrace_event" sorted Some(1), "Kernel events" {
        id Row "number of the row";
        ts Integer "time";
        name Text "name, without the system";
        system Text "system, such as `sched`";
        cpu Small "CPU";
        utid Small "thread";
        arg_set_id Small "its fields in `args`";
        callsite_id Small "stack (perf.data and CTF; in a trace.dat, stacks are separate events)";
        ucpu Small "CPU, unique across recordings";
        instance Text "trace instance, unless it is the top one";
    }
    ProgramEvent "program_event" sorted Some(1), "User-space events (CTF)" {
        id Row "number of the row";
        ts Integer "time";
        name Text "name, without the provider";
        system Text "provider, such as `shop` in `shop:sale`";
        cpu Small "CPU";
        utid Small "thread";
        arg_set_id Small "its fields in `args`";
        callsite_id Small "stack (perf.data and CTF; in a trace.dat, stacks are separate events)";
        ucpu Small "CPU, unique across recordings";
        instance Text "name of the trace";
    }
    PerfSample "perf_sample" sorted Some(1), "Samples of counters" {
        id Row "number of the row";
        ts Integer "time";
        utid Small "thread";
        cpu Small "CPU";
        cpu_mode Text "kernel, user";
        callsite_id Small "stack; for samples without stacks, only the function";
        event Text "counter, such as `cycles`";
        period Integer "amount that the sample represents, in the counter's unit";
        ucpu Small "CPU, unique across recordings";
    }
    Callsite "stack_profile_callsite" sorted Some(0), "Call stacks as a tree, with the outermost \
              function at the root" {
        id Row "number of the callsite";
        depth Small "number of callers";
        parent_id Small "callsite of the caller";
        frame_id Small "function";
    }
    Frame "stack_profile_frame" sorted Some(0), "Functions in stacks" {
        id Row "number of the frame";
        name Text "function, or address if it has no name";
        mapping Small "binary";
        rel_pc Integer "start of the function, or address, relative to the binary; null if only \
                        names are known";
    }
    Mapping "stack_profile_mapping" sorted Some(0), "Binaries in stacks" {
        id Row "number of the binary";
        build_id Text "build-id, if recorded";
        name Text "path, or a name in brackets";
    }
    Args "args" sorted Some(1), "Fields of events" {
        id Row "number of the row";
        arg_set_id Small "number referenced by the event";
        flat_key Text "name of the field";
        key Text "name of the field";
        int_value Integer "value of integers, booleans and addresses; unsigned values of 2^63 and \
                           more as negative numbers with the same bits";
        string_value Text "value of strings; arrays and structures as JSON";
        real_value Real "value of real numbers";
        value_type Text "int, uint, bool, pointer, real, string, json, null";
        display_value Text "value as `kymo script` shows it";
    }
    Slice "slice" sorted Some(1), "Spans of time: system calls, interrupts, functions, spans of programs" {
        id Row "number of the row";
        ts Integer "start";
        dur Integer "duration in ns; null: its end is not recorded, or events were lost before it";
        track_id Small "track";
        category Text "syscall, irq, softirq, function, program (pairs of tracepoints), trace_marker";
        name Text "system call, handler, function, or name of the span";
        depth Small "number of slices around it on its track";
        parent_id Small "slice around it on its track";
        arg_set_id Small "fields of the event that starts it, in `args`";
    }
    Counter "counter" sorted Some(1), "Values of counters over time" {
        id Row "number of the row";
        ts Integer "time";
        track_id Small "counter, in `counter_track`";
        value Real "value; integers of 2^53 and more are rounded";
        arg_set_id Small "fields of the event that states it, in `args`";
    }
    Track "track" sorted Some(0), "Timelines of slices and counters" {
        id Row "number of the track";
        name Text "name of the counter or of the CPU's work; null for tracks of threads";
        type Text "thread_execution (spans of programs), thread_syscall, thread_funcgraph,                    cpu_funcgraph, cpu_irq, cpu_softirq, atrace_async_slice; for counters that of                    `counter_track`";
        event_type Text "slice, counter";
        parent_id Small "null: tracks have no parents";
        utid Small "thread, of its tracks";
        upid Small "process, of its tracks";
        cpu Small "CPU, of its tracks";
        ucpu Small "CPU, unique across recordings";
        track_group_id Small "first of the tracks that hold slices of one timeline which overlap                               without nesting";
        machine_id Small "number of the recording";
    }
    CounterTrack "counter_track" sorted None, "Counters: those of `track`, with their units" {
        id Small "number of the track";
        name Text "cpufreq, cpuidle, mem.rss.file, mem.rss.anon, mem.swap, mem.rss.shmem;                    EVENT FIELD for numbers of programs' events; the name in a trace_marker text";
        type Text "cpu_frequency, cpu_idle, process_memory, program_counter, atrace_counter";
        parent_id Small "null: tracks have no parents";
        unit Text "kHz, bytes; null: not stated";
        description Text "null: not stated";
        utid Small "thread, where its process is not recorded";
        upid Small "process";
        cpu Small "CPU";
        ucpu Small "CPU, unique across recordings";
        machine_id Small "number of the recording";
    }
    ClockSnapshot "clock_snapshot" sorted Some(1), "Equal moments in several clocks, as recorded" {
        id Row "number of the row";
        ts Integer "the moment, in the recording's clock";
        clock_id Small "Perfetto's number of the clock: 1 REALTIME, 3 MONOTONIC,                         5 MONOTONIC_RAW, 6 BOOTTIME, 9 TSC, 10 PERF; null: it has none";
        clock_name Text "name of the clock";
        clock_value Integer "the moment, in ns of this clock";
        snapshot_id Small "number of the moment";
        machine_id Small "number of the recording";
    }
    Cpu "cpu" sorted Some(1), "CPUs with events" {
        id Row "number of the row";
        ucpu Small "CPU, unique across recordings: 8192 * machine_id + cpu";
        cpu Small "CPU";
        machine_id Small "number of the recording";
    }
    Recording "recording" sorted Some(0), "Recordings" {
        id Row "machine_id";
        machine_id Row "number of the recording";
        path Text "file or directory";
        clock Text "clock of the timestamps";
        arch Text "architecture, if recorded";
        cpus Small "number of CPUs, if recorded";
        start_ts Integer "time of the first event";
        end_ts Integer "time of the last event";
        utc_offset Integer "ns to add to timestamps for times since 1970, if recorded";
        lossy Small "whether events are known to be lost or unreadable";
    }
    Machine "machine" sorted Some(0), "Machines, one per recording" {
        id Row "machine_id";
        raw_id Row "machine_id";
        arch Text "architecture, if recorded";
        num_cpus Small "number of CPUs, if recorded";
    }
    Metadata "metadata" sorted Some(0), "Facts about the recordings" {
        id Row "number of the row";
        name Text "name of the fact";
        key_type Text "single";
        int_value Integer "value of integers";
        str_value Text "value of strings";
        machine_id Small "number of the recording";
    }
    TraceBounds "trace_bounds" sorted Some(0), "Times of the first and the last event of all recordings" {
        id Row "number of the row";
        start_ts Integer "time of the first event";
        end_ts Integer "time of the last event";
    }
    Stats "stats" sorted Some(0), "Warnings and notes, in Perfetto's layout" {
        id Row "number of the row";
        name Text "code of the warning (docs/trust.md)";
        key Text "null";
        idx Small "index among entries with the same name";
        severity Text "data_loss, error; for notes info";
        source Text "trace, analysis";
        value Integer "leading number of the fact";
        description Text "text";
        machine_id Small "number of the recording";
    }
    Trust "trust" sorted Some(0), "Warnings and notes" {
        id Row "number of the row";
        code Text "code of the warning (docs/trust.md)";
        doubt Small "1 for a warning (the result may be wrong), 0 for a note";
        value Integer "leading number of the fact";
        fact Text "text";
        hint Text "remedy";
        machine_id Small "number of the recording";
    }
}

/// View over the tables.
#[derive(Clone, Copy, Debug)]
pub struct TableView {
    /// Its name.
    pub name: &'static str,
    /// Meaning of its rows.
    pub documentation: &'static str,
    /// Its query.
    query: &'static str,
}

impl TableView {
    /// The statement that creates the view.
    pub fn statement(&self) -> String {
        format!("CREATE VIEW {} AS {}", self.name, self.query)
    }
}

/// Views over the tables, under Perfetto's names.
pub const VIEWS: [TableView; 10] = [
    TableView {
        name: "sched",
        documentation: "View of sched_slice, with ts_end",
        query: "SELECT *, ts + dur AS ts_end FROM sched_slice",
    },
    TableView { name: "slices", documentation: "View of slice", query: "SELECT * FROM slice" },
    TableView {
        name: "thread_track",
        documentation: "View of track: slices of threads",
        query: "SELECT id, name, type, parent_id, machine_id, utid FROM track \
                WHERE event_type = 'slice' AND utid IS NOT NULL",
    },
    TableView {
        name: "process_track",
        documentation: "View of track: slices of processes",
        query: "SELECT id, name, type, parent_id, machine_id, upid FROM track \
                WHERE event_type = 'slice' AND upid IS NOT NULL",
    },
    TableView {
        name: "cpu_track",
        documentation: "View of track: slices of CPUs",
        query: "SELECT id, name, type, parent_id, machine_id, cpu, ucpu FROM track \
                WHERE event_type = 'slice' AND cpu IS NOT NULL",
    },
    TableView {
        name: "cpu_counter_track",
        documentation: "View of counter_track: counters of CPUs",
        query: "SELECT id, name, type, parent_id, machine_id, unit, description, cpu, ucpu \
                FROM counter_track WHERE cpu IS NOT NULL",
    },
    TableView {
        name: "process_counter_track",
        documentation: "View of counter_track: counters of processes",
        query: "SELECT id, name, type, parent_id, machine_id, unit, description, upid \
                FROM counter_track WHERE upid IS NOT NULL",
    },
    TableView {
        name: "thread_counter_track",
        documentation: "View of counter_track: counters of threads",
        query: "SELECT id, name, type, parent_id, machine_id, unit, description, utid \
                FROM counter_track WHERE utid IS NOT NULL",
    },
    TableView {
        name: "counters",
        documentation: "View of counter, with name and unit of counter_track",
        query: "SELECT c.id, c.ts, c.track_id, c.value, c.arg_set_id, t.name, t.unit \
                FROM counter c JOIN counter_track t ON c.track_id = t.id",
    },
    TableView {
        name: "stack_sample",
        documentation: "View of perf_sample: samples with a stack",
        query: "SELECT s.id, s.ts, 'linux.perf' AS source, s.utid, t.upid, \
                NULL AS async_name, NULL AS async_kind, s.ucpu, s.cpu_mode, s.callsite_id, \
                NULL AS session_id FROM perf_sample s LEFT JOIN thread t ON t.utid = s.utid \
                WHERE s.callsite_id IS NOT NULL",
    },
];

impl TableId {
    pub(crate) fn schema(self) -> &'static TableSchema {
        &TABLES[self as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_tables_are_their_places() {
        assert_eq!(TableId::Trust as usize + 1, TABLES.len());
        assert_eq!(TableId::Args.schema().name, "args");
        for table in TABLES {
            assert!(table.columns.len() < 64, "{}", table.name);
            let mut names: Vec<&str> = table.columns.iter().map(|c| c.name).collect();
            names.sort_unstable();
            names.dedup();
            assert_eq!(names.len(), table.columns.len(), "{}", table.name);
        }
    }
}
