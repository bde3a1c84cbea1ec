//! A tracefs instance of the test's own, gone when dropped.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Systems whose events the workload causes. Events that fire for any running task stay within the
/// traced threads by `set_event_pid`.
const SYSTEMS: &[&str] = &[
    "sched",
    "raw_syscalls",
    "syscalls",
    "kmem",
    "irq",
    "timer",
    "workqueue",
    "signal",
    "task",
    "filemap",
    "ext4",
    "block",
    "writeback",
    "net",
    "sock",
    "skb",
    "tcp",
    "udp",
    "napi",
    "rcu",
    "mmap",
    "mmap_lock",
    "vmscan",
    "ipi",
    "cgroup",
    "power",
    "tlb",
    "exceptions",
    "jbd2",
    "fib",
    "neigh",
    "qdisc",
    "csd",
    "irq_vectors",
    "x86_fpu",
    "xfs",
    "btrfs",
    "fs_dax",
    "filelock",
    "iomap",
    "migrate",
    "compaction",
    "oom",
    "percpu",
    "capability",
    "avc",
    "io_uring",
    "random",
    "regmap",
    "thp",
    "huge_memory",
    "maple_tree",
    "notifier",
    "nmi",
    "page_pool",
    "pagemap",
    "rpm",
    "swiotlb",
    "vmalloc",
    "virtio_gpu",
    "alarmtimer",
    "cpuhp",
    "context_tracking",
    "dma",
    "dma_fence",
    "erofs",
    "fuse",
    "clk",
    "lock",
    "errseq",
    "handshake",
    "icmp",
    "interconnect",
    "ksm",
    "watchdog",
    "timerlat",
    "hugetlbfs",
    "damon",
    "bpf_test_run",
    "netlink",
    "mptcp",
];

pub(crate) struct Instance {
    root: PathBuf,
}

/// A line of `trace`: event and text behind it.
pub(crate) struct Line {
    pub(crate) event: String,
    /// Seconds and microseconds, as printed.
    pub(crate) time: String,
    pub(crate) text: Vec<u8>,
}

impl Instance {
    pub(crate) fn create(what: &str) -> Instance {
        let name = format!("kymo-test-{what}-{}", std::process::id());
        let root = Path::new("/sys/kernel/tracing/instances").join(name);
        std::fs::create_dir(&root).unwrap();
        let i = Instance { root };
        i.write("tracing_on", "0");
        i.write("buffer_size_kb", "16384");
        if !kymo_testkit::guest() {
            i.write("options/hash-ptr", "0");
        }
        i
    }

    fn write(&self, file: &str, text: &str) {
        let path = self.root.join(file);
        std::fs::write(&path, text).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    }

    /// Events of this thread, and of what it starts, only.
    pub(crate) fn follow_this_thread(&self) {
        let link = std::fs::read_link("/proc/thread-self").unwrap();
        self.write("set_event_pid", link.file_name().unwrap().to_str().unwrap());
        self.write("options/event-fork", "1");
    }

    pub(crate) fn enable_all(&self) {
        for s in SYSTEMS {
            let file = format!("events/{s}/enable");
            if self.root.join(&file).exists() {
                self.write(&file, "1");
            }
        }
        self.write("tracing_on", "1");
    }

    pub(crate) fn stop(&self) {
        self.write("tracing_on", "0");
        for s in SYSTEMS {
            let _ = std::fs::write(self.root.join(format!("events/{s}/enable")), "0");
        }
        std::thread::sleep(Duration::from_millis(50));
    }

    pub(crate) fn cpus(&self) -> Vec<String> {
        let dir = std::fs::read_dir(self.root.join("per_cpu")).unwrap();
        let mut all: Vec<_> =
            dir.flatten().map(|e| e.file_name().to_string_lossy().into_owned()).collect();
        all.sort();
        all
    }

    /// The kernel's own text of one CPU's events.
    pub(crate) fn lines(&self, cpu: &str) -> Vec<Line> {
        let bytes = std::fs::read(self.root.join("per_cpu").join(cpu).join("trace")).unwrap();
        let mut out: Vec<Line> = Vec::new();
        for raw in bytes.split(|b| *b == b'\n') {
            if let Some(line) = header(raw) {
                out.push(line);
            } else if let Some(last) = out.last_mut()
                && !raw.is_empty()
            {
                // A payload with a line end in it.
                last.text.push(b'\n');
                last.text.extend_from_slice(raw);
            }
        }
        out
    }

    /// The pages of one CPU's ring.
    pub(crate) fn raw(&self, cpu: &str) -> Vec<Vec<u8>> {
        let path = self.root.join("per_cpu").join(cpu).join("trace_pipe_raw");
        let mut options = std::fs::OpenOptions::new();
        // O_NONBLOCK: an empty ring is the end.
        std::os::unix::fs::OpenOptionsExt::custom_flags(options.read(true), 0o4000);
        let mut file = options.open(path).unwrap();
        let mut pages = Vec::new();
        let mut page = vec![0; 4096];
        while let Ok(n) = file.read(&mut page) {
            if n == 0 {
                break;
            }
            pages.push(page[..n].to_vec());
        }
        pages
    }
}

/// `  comm-12  [000] d..1.   12.345678: event: text`.
fn header(raw: &[u8]) -> Option<Line> {
    let text = String::from_utf8_lossy(raw);
    let cpu = text.find(" [0")?;
    let rest = text.get(cpu + 2..)?;
    let (digits, rest) = rest.split_once("] ")?;
    digits.parse::<u32>().ok()?;
    let (_flags, rest) = rest.split_once(' ')?;
    let (time, rest) = rest.trim_start().split_once(": ")?;
    time.parse::<f64>().ok()?;
    if rest.starts_with("sys_")
        && !rest.starts_with("sys_enter: ")
        && !rest.starts_with("sys_exit: ")
    {
        // `syscalls:*` have a printer of their own here, not their print format.
        return Some(Line { event: String::new(), time: time.to_owned(), text: Vec::new() });
    }
    let (event, _) = rest.split_once(':')?;
    // Cut the raw bytes at the same place, for text that is not UTF-8.
    let mark = format!("{time}: {event}:");
    let at = raw.windows(mark.len()).position(|w| w == mark.as_bytes())? + mark.len();
    let tail = raw.get(at..)?;
    let tail = tail.strip_prefix(b" ").unwrap_or(tail);
    Some(Line { event: event.to_owned(), time: time.to_owned(), text: tail.to_vec() })
}

impl Drop for Instance {
    fn drop(&mut self) {
        let _ = std::fs::write(self.root.join("events/enable"), "0");
        for _ in 0..50 {
            if std::fs::remove_dir(&self.root).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}
