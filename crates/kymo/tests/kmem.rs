//! `kymo kmem` of recordings of this machine: against what perf kmem says of the same file, and
//! against counts made here of the events that `kymo script` shows; the same events as LTTng's
//! kernel traces; halves without partner, and losses.
#![allow(clippy::unwrap_used, reason = "a failed test is a panic")]

mod kernel_ctf;

use std::collections::{BTreeMap, HashMap};

use kernel_ctf::{CtfClass, CtfEvent, CtfWriter};
use kymo_testkit::{Need, Outcome, TracingState, newest_peers, peer, perf, require, run};
use serde_json::Value;

const KYMO: &str = env!("CARGO_BIN_EXE_kymo");

/// Load that allocates objects and pages and frees most of them.
const LOAD: &str = "for i in 1 2 3 4 5 6 7 8; do ls -lR /usr/share/doc/a* > /dev/null; done; \
                    head -c 8000000 /dev/zero > big; cat big > /dev/null; rm big";

fn kymo(args: &[&str]) -> Outcome {
    run(KYMO, args)
}

fn json(args: &[&str]) -> Value {
    serde_json::from_str(&kymo(args).stdout).unwrap()
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value}"))
}

/// An event as `kymo script` shows it.
struct Event {
    name: String,
    task: String,
    cpu: u64,
    fields: Value,
}

impl Event {
    fn field(&self, name: &str) -> u64 {
        let value = &self.fields[name];
        let hex = || u64::from_str_radix(value.as_str()?.trim_start_matches("0x"), 16).ok();
        let signed = || value.as_i64().map(|n| n as u64);
        value
            .as_u64()
            .or_else(signed)
            .or_else(hex)
            .unwrap_or_else(|| panic!("{name}: {}", self.fields))
    }
}

fn events(path: &str) -> Vec<Event> {
    let text = kymo(&["script", "-i", path, "--json"]).success().stdout;
    let event = |line: &str| {
        let e: Value = serde_json::from_str(line).unwrap();
        let name = e["event"].as_str().unwrap();
        Event {
            name: name.rsplit_once(':').map_or(name, |(_, bare)| bare).to_owned(),
            task: format!("{}-{}", e["comm"].as_str().unwrap_or(""), e["tid"]),
            cpu: number(&e["cpu"]),
            fields: e["fields"].clone(),
        }
    };
    text.lines().map(event).collect()
}

/// Model of the slab allocator, counted in the simplest way.
#[derive(Debug, Default, PartialEq)]
struct SlabModel {
    /// Bytes taken and asked for, number, objects freed elsewhere, alive; by caller.
    callers: BTreeMap<u64, [u64; 5]>,
    freed: u64,
    live_bytes: u64,
    unmatched: u64,
    reused: u64,
    /// Frees without an allocation, of addresses that were allocated before: perf counts
    /// them as frees of what was there last, on another CPU.
    freed_twice: u64,
    freed_twice_bytes: u64,
}

fn slab_model(events: &[Event]) -> SlabModel {
    let mut model = SlabModel::default();
    let mut live: HashMap<u64, (u64, u64, u64)> = HashMap::new();
    let mut before: HashMap<u64, u64> = HashMap::new();
    for e in events {
        match e.name.as_str() {
            "kmalloc" | "kmem_cache_alloc" if e.field("ptr") != 0 => {
                let (ptr, site) = (e.field("ptr"), e.field("call_site"));
                let bytes = e.field("bytes_alloc");
                if let Some((site, ..)) = live.insert(ptr, (site, e.cpu, bytes)) {
                    model.reused += 1;
                    model.callers.get_mut(&site).unwrap()[4] -= 1;
                }
                before.insert(ptr, bytes);
                let row = model.callers.entry(site).or_default();
                row[0] += bytes;
                row[1] += e.field("bytes_req");
                row[2] += 1;
                row[4] += 1;
            }
            "kfree" | "kmem_cache_free" if e.field("ptr") != 0 => {
                let Some((site, cpu, bytes)) = live.remove(&e.field("ptr")) else {
                    model.unmatched += 1;
                    if let Some(bytes) = before.get(&e.field("ptr")) {
                        model.freed_twice += 1;
                        model.freed_twice_bytes += bytes;
                    }
                    continue;
                };
                model.freed += bytes;
                let row = model.callers.get_mut(&site).unwrap();
                row[3] += u64::from(cpu != e.cpu);
                row[4] -= 1;
            }
            _ => {}
        }
    }
    model.live_bytes = live.values().map(|(_, _, bytes)| bytes).sum();
    model
}

fn address(value: &Value) -> u64 {
    u64::from_str_radix(value.as_str().unwrap().trim_start_matches("0x"), 16).unwrap()
}

/// The numbers of `kmem stat --slab` are those of the events.
#[track_caller]
fn slab_is_the_models(path: &str) -> SlabModel {
    let model = slab_model(&events(path));
    let page = json(&["kmem", "stat", "--slab", "--caller", "--json", "-i", path]);
    let slab = &page["slab"];
    let rows = page["slab_callers"].as_array().unwrap().iter().map(|row| {
        let names = ["allocated_bytes", "requested_bytes", "hits", "pingpong", "live"];
        (address(&row["callsite"]), names.map(|name| number(&row[name])))
    });
    assert_eq!(rows.collect::<BTreeMap<_, _>>(), model.callers);
    let whole =
        ["freed_bytes", "live_bytes", "unmatched_frees", "reused"].map(|n| number(&slab[n]));
    assert_eq!(whole, [model.freed, model.live_bytes, model.unmatched, model.reused]);
    assert!(model.callers.len() > 10 && model.freed > 0, "{model:?}");
    model
}

/// Rows of perf's table of the slab allocator: bytes taken, asked for, number, ping-pong.
fn perf_slab_rows(text: &str) -> BTreeMap<u64, [u64; 4]> {
    let row = |line: &str| {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let [address, taken, asked, hits, pingpong, _] = cells[..] else { return None };
        let address = u64::from_str_radix(address.strip_prefix("0x")?, 16).ok()?;
        let sum = |cell: &str| cell.split_once('/')?.0.parse().ok();
        Some((address, [sum(taken)?, sum(asked)?, hits.parse().ok()?, pingpong.parse().ok()?]))
    };
    text.lines().filter_map(row).collect()
}

/// Numbers behind the words of perf's summaries; commas depend on the locale.
fn summary(text: &str, words: &str) -> Vec<u64> {
    let line = text.lines().find(|l| l.trim_start().starts_with(words));
    let line = line.unwrap_or_else(|| panic!("{words}: {text}")).replace(',', "");
    let rest = line.trim_start().strip_prefix(words).unwrap().to_owned();
    rest.split(|c: char| !c.is_ascii_digit()).filter_map(|n| n.parse().ok()).collect()
}

/// perf's numbers of objects are kymo's, by caller and by address, but for this: a free whose
/// allocation is not in the recording, of an address that was allocated and freed before, is
/// for perf one more free of what was there, and always one on another CPU. (Allocations that
/// failed are bytes for perf; there are none here.)
#[track_caller]
fn slab_is_perfs(path: &str, perf: &dyn Fn(&[&str]) -> String, model: &SlabModel) {
    let page = json(&["kmem", "stat", "--slab", "--caller", "--alloc", "--json", "-i", path]);
    let (mut pingpong, mut their_pingpong) = (0, 0);
    for (flag, list, key) in
        [("--caller", "slab_callers", "callsite"), ("--alloc", "slab_addresses", "ptr")]
    {
        let said = perf(&["kmem", "--slab", flag, "--raw-ip", "-i", path, "stat"]);
        let theirs = perf_slab_rows(&said);
        let rows = page[list].as_array().unwrap();
        assert_eq!(rows.len(), theirs.len(), "{said}");
        for row in rows {
            let their = theirs[&address(&row[key])];
            let names = ["allocated_bytes", "requested_bytes", "hits", "pingpong"];
            let our = names.map(|name| number(&row[name]));
            assert_eq!(our[..3], their[..3], "{row}");
            assert!(our[3] <= their[3], "{row} {their:?}");
            pingpong += our[3];
            their_pingpong += their[3];
        }
        let words = ["Total bytes requested:", "Total bytes allocated:", "Total bytes freed:"];
        let numbers = words.map(|w| summary(&said, w)[0]);
        let names = ["requested_bytes", "allocated_bytes", "freed_bytes"];
        let mut ours = names.map(|name| number(&page["slab"][name]));
        ours[2] += model.freed_twice_bytes;
        assert_eq!(ours, numbers);
        let cross = summary(&said, "Cross CPU allocations:");
        assert_eq!(
            [number(&page["slab"]["cross_node"]), number(&page["slab"]["allocations"])],
            *cross
        );
    }
    assert_eq!(pingpong + 2 * model.freed_twice, their_pingpong);
}

/// Page allocations, as they are counted here.
#[derive(Debug, Default, PartialEq)]
struct PageModel {
    requests: u64,
    bytes: u64,
    frees: u64,
    matched: u64,
    unmatched: u64,
    /// By order and mobility.
    by_order: BTreeMap<(u64, u64), u64>,
    live_bytes: u64,
}

/// Pages one by one: what is alive is known without blocks.
fn page_model(events: &[Event]) -> PageModel {
    let mut model = PageModel::default();
    let mut pages: HashMap<u64, bool> = HashMap::new();
    for e in events {
        match e.name.as_str() {
            "mm_page_alloc" => {
                let (pfn, order) = (e.field("pfn"), e.field("order"));
                model.requests += 1;
                model.bytes += 4096 << order;
                if pfn == u64::MAX {
                    continue;
                }
                *model.by_order.entry((order, e.field("migratetype"))).or_default() += 1;
                (pfn..pfn + (1 << order)).for_each(|page| _ = pages.insert(page, page == pfn));
            }
            "mm_page_free" => {
                let (pfn, order) = (e.field("pfn"), e.field("order"));
                model.frees += 1;
                match pages.get(&pfn) {
                    Some(true) => model.matched += 1,
                    Some(false) => {}
                    None => model.unmatched += 1,
                }
                (pfn..pfn + (1 << order)).for_each(|page| _ = pages.remove(&page));
            }
            _ => {}
        }
    }
    model.live_bytes = pages.len() as u64 * 4096;
    model
}

const MOBILITIES: [&str; 6] =
    ["unmovable", "movable", "reclaimable", "highatomic", "cma", "isolate"];

/// The numbers of `kmem stat --page` are those of the events.
#[track_caller]
fn pages_are_the_models(path: &str) -> PageModel {
    let model = page_model(&events(path));
    let page = json(&["kmem", "stat", "--page", "--caller", "--json", "-i", path]);
    let pages = &page["pages"];
    let by_order = page["by_order"].as_array().unwrap().iter().map(|row| {
        let mobility = MOBILITIES.iter().position(|m| row["migrate_type"] == *m).unwrap() as u64;
        ((number(&row["order"]), mobility), number(&row["allocations"]))
    });
    assert_eq!(by_order.collect::<BTreeMap<_, _>>(), model.by_order);
    let sum = |name: &str| number(&pages[name]["count"]);
    assert_eq!(
        [sum("requests"), sum("frees"), sum("matched_frees"), sum("unmatched_frees")],
        [model.requests, model.frees, model.matched, model.unmatched]
    );
    assert_eq!(number(&pages["requests"]["bytes"]), model.bytes);
    // Of a block that is allocated over parts of one before, those are counted with it.
    let (live, expected) = (number(&pages["live_bytes"]) as f64, model.live_bytes as f64);
    assert!((live / expected - 1.0).abs() < 0.05, "{live} {expected}");
    let by_caller = |name: &str| -> u64 {
        let rows = page["page_callers"].as_array().unwrap().iter();
        rows.map(|row| number(&row[name])).sum()
    };
    assert_eq!(by_caller("hits"), model.by_order.values().sum::<u64>());
    assert_eq!(by_caller("live_bytes"), number(&pages["live_bytes"]));
    assert!(model.requests > 100 && model.matched > 10, "{model:?}");
    model
}

/// perf's numbers of pages are kymo's, but for this:
/// - perf calls mobilities by their numbers in kernels before 4.4, so that movable pages are
///   "Reclaimable" there;
/// - for perf the caller is the first function whose name does not begin with `alloc_pages`,
///   which is the allocator itself (`__alloc_frozen_pages_noprof`): rows are compared by order,
///   mobility and flags;
/// - parts of blocks are frees without allocation for perf.
#[track_caller]
fn pages_are_perfs(path: &str, perf: &dyn Fn(&[&str]) -> String) {
    let page = json(&["kmem", "stat", "--page", "--caller", "--json", "-i", path]);
    let pages = &page["pages"];
    let said = perf(&["kmem", "--page", "--caller", "-i", path, "stat"]);
    let sum = |name: &str| {
        let sum = &pages[name];
        [number(&sum["count"]), number(&sum["bytes"]) / 1024]
    };
    for (words, name) in [
        ("Total allocation requests", "requests"),
        ("Total free requests", "frees"),
        ("Total alloc+freed requests", "matched_frees"),
        ("Total allocation failures", "failed"),
    ] {
        assert_eq!(summary(&said, words), sum(name), "{said}");
    }
    let (parts, unmatched) = (sum("partial_frees"), sum("unmatched_frees"));
    let free_only = [parts[0] + unmatched[0], parts[1] + unmatched[1]];
    assert_eq!(summary(&said, "Total free-only requests"), free_only);
    let row = |line: &str| {
        let line = line.replace(',', "");
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let [kilobytes, hits, order, mobility, ..] = cells[..] else { return None };
        let numbers: [u64; 3] = [kilobytes.parse().ok()?, hits.parse().ok()?, order.parse().ok()?];
        let mobility = match mobility {
            "UNMOVABL" => "unmovable",
            "RECLAIM" => "movable",
            "MOVABLE" => "reclaimable",
            _ => "other",
        };
        Some((numbers, mobility))
    };
    let mut theirs: BTreeMap<(u64, &str), [u64; 2]> = BTreeMap::new();
    for ([kilobytes, hits, order], mobility) in said.lines().filter_map(row) {
        let sum = theirs.entry((order, mobility)).or_default();
        *sum = [sum[0] + kilobytes, sum[1] + hits];
    }
    let mut ours: BTreeMap<(u64, &str), [u64; 2]> = BTreeMap::new();
    for row in page["page_callers"].as_array().unwrap() {
        let mobility = row["migrate_type"].as_str().unwrap();
        let mobility = if MOBILITIES[..3].contains(&mobility) { mobility } else { "other" };
        let sum = ours.entry((number(&row["order"]), mobility)).or_default();
        *sum = [sum[0] + number(&row["allocated_bytes"]) / 1024, sum[1] + number(&row["hits"])];
    }
    assert_eq!(ours, theirs, "{said}");
}

/// Numbers of events of the page allocator by name and thread, and batches as the columns of
/// trace-pagealloc-postprocess.pl define them: events of one kind without another one of the
/// same task in between.
fn process_model(events: &[Event]) -> BTreeMap<String, BTreeMap<&'static str, u64>> {
    const COLUMNS: [(&str, &str); 6] = [
        ("mm_page_alloc", "allocated"),
        ("mm_page_alloc_zone_locked", "allocated_under_lock"),
        ("mm_page_free", "freed"),
        ("mm_page_free_batched", "freed_batched"),
        ("mm_page_pcpu_drain", "pcpu_drained"),
        ("mm_page_alloc_extfrag", "fallbacks"),
    ];
    let mut rows: BTreeMap<String, BTreeMap<&'static str, u64>> = BTreeMap::new();
    let mut before: HashMap<&str, &str> = HashMap::new();
    for e in events {
        let Some((name, column)) = COLUMNS.iter().find(|(name, _)| *name == e.name) else {
            continue;
        };
        // Names of workers are longer in /proc than what is kept of them.
        let (comm, tid) = e.task.rsplit_once('-').unwrap();
        let task = format!("{}-{tid}", comm.get(..32).unwrap_or(comm));
        let row = rows.entry(task).or_default();
        *row.entry(column).or_default() += 1;
        let is_begin = before.insert(&e.task, name) != Some(name);
        match *name {
            "mm_page_pcpu_drain" if is_begin => *row.entry("pcpu_drains").or_default() += 1,
            "mm_page_alloc_zone_locked" if is_begin => {
                *row.entry("pcpu_refills").or_default() += 1;
            }
            _ => {}
        }
    }
    rows
}

#[track_caller]
fn processes_are_the_models(path: &str) {
    let model = process_model(&events(path));
    let page = json(&["kmem", "pagealloc", "--json", "-i", path]);
    let mut rows: BTreeMap<String, BTreeMap<&'static str, u64>> = BTreeMap::new();
    for row in page["processes"].as_array().unwrap() {
        let columns = [
            "allocated",
            "allocated_under_lock",
            "freed",
            "freed_batched",
            "pcpu_drained",
            "fallbacks",
            "pcpu_drains",
            "pcpu_refills",
        ];
        let numbers = columns.map(|name| (name, number(&row[name])));
        let task = format!("{}-{}", row["comm"].as_str().unwrap(), row["tid"]);
        rows.insert(task, numbers.into_iter().filter(|(_, n)| *n > 0).collect());
    }
    assert_eq!(rows, model);
    assert!(model.len() > 3, "{model:?}");
    // All live memory is attributed, by process and by call chain.
    let sum = |list: &str, name: &str| -> u64 {
        page[list].as_array().unwrap().iter().map(|row| number(&row[name])).sum()
    };
    let (all, live) = (number(&page["allocated_bytes"]), number(&page["live_bytes"]));
    assert_eq!((sum("processes", "allocated_bytes"), sum("processes", "live_bytes")), (all, live));
    assert_eq!((sum("chains", "allocated_bytes"), sum("chains", "live_bytes")), (all, live));
    assert_eq!(sum("by_order", "live_bytes"), live);
    // One row for each name.
    let by_name = json(&["kmem", "pagealloc", "--ignore-pid", "--json", "-i", path]);
    let list = by_name["processes"].as_array().unwrap();
    assert!(list.len() < model.len() && list.iter().all(|row| row["tid"].is_null()));
    let allocated: u64 = list.iter().map(|row| number(&row["allocated"])).sum();
    assert_eq!(allocated, sum("processes", "allocated"));
    // A child of the load's shell has it as its parent.
    let parent = |row: &Value| row["comm"] == "cat" && row["parent"] == "sh";
    assert!(page["processes"].as_array().unwrap().iter().any(parent), "{page}");
}

#[test]
fn numbers_of_live_recordings_are_those_of_perf_and_of_the_events() {
    if !require(&[Need::Root, Need::Tracefs, Need::PerfEvents, Need::Perf]) {
        return;
    }
    let state = TracingState::take();
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let load = LOAD.replace("big", &path("big"));
    // Of everybody, as perf does it: it is short, and its directory is removed.
    let workload = ["--", "sh", "-c", &load];
    let (slab, page, dat) = (path("slab.data"), path("page.data"), path("page.dat"));
    let _ = kymo(
        &[&["kmem", "record", "-q", "--slab", "-m", "16M", "-o", &slab], &workload[..]].concat(),
    )
    .success();
    let _ = kymo(
        &[&["kmem", "record", "-q", "--page", "-m", "16M", "-o", &page], &workload[..]].concat(),
    )
    .success();
    let _ =
        kymo(&[&["kmem", "record", "-q", "--page", "-o", &dat], &workload[..]].concat()).success();
    let model = slab_is_the_models(&slab);
    pages_are_the_models(&page);
    pages_are_the_models(&dat);
    processes_are_the_models(&page);
    processes_are_the_models(&dat);
    slab_is_perfs(&slab, &|args| perf(args).stdout, &model);
    pages_are_perfs(&page, &|args| perf(args).stdout);
    if newest_peers().is_some() {
        let newest = peer("perf");
        slab_is_perfs(&slab, &|args| newest.run(args).stdout, &model);
        pages_are_perfs(&page, &|args| newest.run(args).stdout);
    }
    // Callers are functions, and none of the allocator's own.
    for recording in [&page, &dat] {
        let page = json(&["kmem", "stat", "--page", "--caller", "--json", "-i", recording]);
        let callers = page["page_callers"].as_array().unwrap();
        let names: Vec<&str> = callers.iter().filter_map(|row| row["function"].as_str()).collect();
        assert!(names.contains(&"do_anonymous_page"), "{names:?}");
        assert!(!names.iter().any(|name| name.contains("alloc_pages")), "{names:?}");
        let flags = |row: &Value| row["gfp_flags"].as_str().unwrap().contains("GFP_");
        assert!(callers.iter().all(flags));
    }
    assert_eq!(state.left_behind(), None);
}

/// Events as LTTng's kernel tracer writes them.
const CLASSES: [CtfClass; 4] = [
    CtfClass {
        name: "kmem_kmalloc",
        fields: &[
            ("uint64_t", "call_site"),
            ("uint64_t", "ptr"),
            ("uint64_t", "bytes_req"),
            ("uint64_t", "bytes_alloc"),
            ("int32_t", "gfp_flags"),
        ],
    },
    CtfClass { name: "kmem_kfree", fields: &[("uint64_t", "call_site"), ("uint64_t", "ptr")] },
    CtfClass {
        name: "kmem_mm_page_alloc",
        fields: &[
            ("uint64_t", "page"),
            ("uint64_t", "pfn"),
            ("uint32_t", "order"),
            ("int32_t", "gfp_flags"),
            ("int32_t", "migratetype"),
        ],
    },
    CtfClass {
        name: "kmem_mm_page_free",
        fields: &[("uint64_t", "page"), ("uint64_t", "pfn"), ("uint32_t", "order")],
    },
];

const KMALLOC: usize = 0;
const KFREE: usize = 1;
const PAGE_ALLOC: usize = 2;
const PAGE_FREE: usize = 3;

fn event(time: u64, cpu: u32, class: usize, values: &[u64]) -> CtfEvent {
    CtfEvent { time, cpu, class, values: values.to_vec() }
}

#[test]
fn halves_without_partner_are_counted_and_parts_of_blocks_known() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("kernel");
    let events = [
        event(10, 0, KMALLOC, &[0xa0, 0x1000, 50, 64, 0]),
        event(12, 0, KMALLOC, &[0xa0, 0x5000, 8, 8, 0]),
        event(20, 0, KMALLOC, &[0xa0, 0x2000, 60, 64, 0]),
        event(30, 0, KMALLOC, &[0xb0, 0x3000, 100, 128, 0]),
        event(35, 0, KMALLOC, &[0xb0, 0, 100, 128, 0]),
        event(40, 1, KFREE, &[0xc0, 0x2000]),
        event(50, 1, KFREE, &[0xc0, 0x2000]),
        event(55, 1, KFREE, &[0xc0, 0]),
        event(60, 0, KMALLOC, &[0xb0, 0x1000, 100, 128, 0]),
        // 8 pages, of which the second and the last four are freed.
        event(70, 0, PAGE_ALLOC, &[0, 16, 3, 0, 1]),
        event(80, 0, PAGE_FREE, &[0, 17, 0]),
        event(90, 0, PAGE_FREE, &[0, 20, 2]),
        event(95, 0, PAGE_FREE, &[0, 99, 0]),
        event(99, 0, PAGE_ALLOC, &[0, u64::MAX, 0, 0, 0]),
    ];
    CtfWriter { classes: &CLASSES, events: &events, packet: 4, without: &|_, _| false }
        .write(&path);
    let path = path.to_str().unwrap();
    let page = json(&["kmem", "stat", "--caller", "--json", "-i", path]);
    let slab = &page["slab"];
    let of = |names: &[&str]| names.iter().map(|name| number(&slab[*name])).collect::<Vec<_>>();
    assert_eq!(of(&["allocations", "allocated_bytes", "requested_bytes"]), [5, 392, 318]);
    assert_eq!(of(&["frees", "freed_bytes", "unmatched_frees", "null_frees"]), [1, 64, 1, 1]);
    assert_eq!(of(&["failed", "reused", "reused_bytes"]), [1, 1, 64]);
    assert_eq!(of(&["live", "live_bytes", "live_uncertain"]), [3, 264, 0]);
    assert_eq!(slab["cross_node"], Value::Null);
    let row = |site: &str| {
        let rows = page["slab_callers"].as_array().unwrap();
        let row = rows.iter().find(|row| row["callsite"] == site).unwrap();
        ["hits", "pingpong", "live", "live_bytes"].map(|name| number(&row[name]))
    };
    assert_eq!((row("0xa0"), row("0xb0")), ([3, 1, 1, 8], [2, 0, 2, 256]));
    // One table as CSV, in perf's order: the larger address first.
    let columns = ["--columns", "callsite,hits,live_bytes", "-s", "callsite"];
    let slab_callers = [&["kmem", "stat", "--slab", "--caller"], &columns[..]].concat();
    let csv = kymo(&[&slab_callers[..], &["--csv", "-i", path]].concat()).success().stdout;
    assert_eq!(csv, "callsite,hits,live_bytes\n0xb0,2,256\n0xa0,3,8\n");
    let both = kymo(&["kmem", "stat", "--caller", "--csv", "-i", path]).failure().stderr;
    assert!(both.contains("slab_callers, page_callers"), "{both}");
    let pages = &page["pages"];
    let sum = |name: &str| [number(&pages[name]["count"]), number(&pages[name]["bytes"])];
    assert_eq!((sum("requests"), sum("failed")), ([2, 9 * 4096], [1, 4096]));
    assert_eq!((sum("partial_frees"), sum("unmatched_frees")), ([2, 5 * 4096], [1, 4096]));
    assert_eq!(number(&pages["live_bytes"]), 3 * 4096);
    // Of a time: what is allocated in it, and freed in it.
    let page = json(&[
        "kmem",
        "stat",
        "--slab",
        "--json",
        "--time",
        "0.000000015,0.000000045",
        "-i",
        path,
    ]);
    let of =
        ["allocations", "frees", "live", "unmatched_frees"].map(|name| number(&page["slab"][name]));
    assert_eq!(of, [2, 1, 1, 0]);
    // What was alive when events were lost may have been freed.
    let lossy = directory.path().join("lossy");
    let without = |cpu: u32, packet: usize| cpu == 0 && packet == 1;
    CtfWriter { classes: &CLASSES, events: &events, packet: 2, without: &without }.write(&lossy);
    let lossy = lossy.to_str().unwrap();
    let slab = &json(&["kmem", "stat", "--slab", "--caller", "--json", "-i", lossy])["slab"];
    let of = ["live", "live_uncertain", "reused"].map(|name| number(&slab[name]));
    assert_eq!(of, [2, 1, 1], "{slab}");
    let text = kymo(&["kmem", "stat", "--slab", "--strict", "-i", lossy]).expect_status(3).stdout;
    assert!(text.contains("lost"), "{text}");
}

#[test]
fn what_is_missing_is_said() {
    let there = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/perf-data/x86_64/fp.data");
    let none = kymo(&["kmem", "stat", "-i", there, "--strict"]).expect_status(3);
    assert!(none.stdout.contains("no events of the slab allocator"), "{}", none.stdout);
    assert!(none.stdout.contains("kymo kmem record --slab"), "{}", none.stdout);
    let none = kymo(&["kmem", "pagealloc", "-i", there, "--strict"]).expect_status(3);
    assert!(none.stdout.contains("no events of the page allocator"), "{}", none.stdout);
    let bad = kymo(&["kmem", "stat", "--caller", "-s", "color", "-i", there]).failure();
    assert!(bad.stderr.contains("unknown key \"color\""), "{}", bad.stderr);
}
