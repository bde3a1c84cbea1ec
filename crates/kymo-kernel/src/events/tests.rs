//! The grammar against a made-up machine: a core PMU with split bit ranges, two
//! uncore boxes, a few tracepoints, two counters.

use std::path::{Path, PathBuf};

use kymo_model::{AttrFlags, EventType};

use super::{Catalog, CounterSource, EventSpec, Tool};

struct Machine {
    dir: tempfile::TempDir,
    catalog: Catalog,
}

fn write(root: &Path, file: &str, text: &str) {
    let path = root.join(file);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

fn machine() -> Machine {
    let dir = tempfile::tempdir().unwrap();
    let devices = dir.path().join("devices");
    let pmu = [
        ("cpu/type", "4\n"),
        ("cpu/format/event", "config:0-7,32-35\n"),
        ("cpu/format/umask", "config:8-15\n"),
        ("cpu/format/edge", "config:18\n"),
        ("cpu/format/ldlat", "config1:0-15\n"),
        ("cpu/format/far", "config3:4-7\n"),
        ("cpu/events/mem-loads", "event=0xcd,umask=0x1,ldlat=3\n"),
        ("cpu/events/needs", "event=0x1,umask=?\n"),
        ("cpu/events/broken", "nothing=1\n"),
        ("uncore_box_0/type", "20\n"),
        ("uncore_box_0/cpumask", "0,2-3\n"),
        ("uncore_box_0/format/event", "config:0-7\n"),
        ("uncore_box_0/events/data", "event=0x4\n"),
        ("uncore_box_0/events/data.scale", "6.1e-5\n"),
        ("uncore_box_0/events/data.unit", "MiB\n"),
        ("uncore_box_0/events/data.per-pkg", "1\n"),
        ("uncore_box_0/events/data.snapshot", "1\n"),
        ("uncore_box_1/type", "21\n"),
        ("uncore_box_1/format/event", "config:0-7\n"),
    ];
    for (file, text) in pmu {
        write(&devices, file, text);
    }
    let tracefs: PathBuf = dir.path().join("tracing");
    for (event, id) in [
        ("kmem/kmalloc", 11),
        ("kmem/kfree", 12),
        ("sched/sched_switch", 21),
        ("sched/sched_wakeup", 22),
        ("ftrace/function", 1),
    ] {
        write(&tracefs, &format!("events/{event}/id"), &format!("{id}\n"));
    }
    write(&tracefs, "events/kmem/enable", "0\n");
    let vmstat = dir.path().join("vmstat");
    std::fs::write(&vmstat, "pgfault 1\npgmajfault 2\nnr_free_pages 3\n").unwrap();
    let catalog = Catalog::at(&devices, &tracefs, &vmstat);
    Machine { dir, catalog }
}

fn parse(text: &str) -> Vec<EventSpec> {
    machine().catalog.parse(text).unwrap_or_else(|e| panic!("{text}: {e}"))
}

fn one(text: &str) -> EventSpec {
    let mut list = parse(text);
    assert_eq!(list.len(), 1, "{text}");
    list.remove(0)
}

fn refused(text: &str) -> String {
    match machine().catalog.parse(text) {
        Ok(list) => panic!("{text} was taken: {list:?}"),
        Err(e) => e.to_string(),
    }
}

#[test]
fn fixed_names_and_their_other_names() {
    for (text, kind, config) in [
        ("cycles", 0, 0),
        ("cpu-cycles", 0, 0),
        ("branches", 0, 4),
        ("idle-cycles-frontend", 0, 7),
        ("ref-cycles", 0, 9),
        ("cs", 1, 3),
        ("faults", 1, 2),
        ("migrations", 1, 4),
        ("cgroup-switches", 1, 11),
        ("L1-dcache-load-misses", 3, 0x10000),
        ("l1d", 3, 0),
        ("l1-d-misses", 3, 0x10000),
        ("l1d-miss-load", 3, 0x10000),
        ("LLC-prefetch-misses", 3, 0x10202),
        ("dTLB-store-misses", 3, 0x10103),
        ("Instruction-TLB-read-miss", 3, 0x10004),
        ("branch-loads", 3, 5),
        ("node-speculative-load-refs", 3, 0x206),
        ("r1a8", 4, 0x1a8),
        ("r0x1a8", 4, 0x1a8),
    ] {
        let e = one(text);
        assert_eq!((e.attr.kind, e.attr.config), (EventType(kind), config), "{text}");
        assert_eq!(e.name, text);
        assert_eq!(e.attr.flags, AttrFlags::EXCLUDE_GUEST, "{text}");
    }
    assert_eq!(one("duration_time").source, CounterSource::Tool(Tool::DurationTime));
}

#[test]
fn groups_are_numbered_and_only_their_leader_is_pinned() {
    let list = parse("cs,{cycles:k,instructions}:D,{faults,cs}:SW");
    let groups: Vec<_> = list.iter().map(|e| e.group).collect();
    assert_eq!(groups, [None, Some(0), Some(0), Some(1), Some(1)]);
    let pinned: Vec<_> = list.iter().map(|e| e.attr.flags.contains(AttrFlags::PINNED)).collect();
    assert_eq!(pinned, [false, true, false, false, false]);
    assert_eq!(list[1].name, "cycles:k");
    assert!(list[1].attr.flags.contains(AttrFlags::EXCLUDE_USER));
    assert!(!list[2].attr.flags.contains(AttrFlags::EXCLUDE_USER));
    assert!(list[3].weak_group && list[4].sample_read && !list[1].sample_read);
}

#[test]
fn groups_of_several_arguments_are_apart() {
    let m = machine();
    let a = m.catalog.parse("{cs,faults}").unwrap();
    let b = m.catalog.parse("{cs,faults}").unwrap();
    assert_ne!(a[0].group, b[0].group);
}

#[test]
fn terms_of_a_pmu_go_to_their_bits() {
    let e = one("cpu/event=0xabc,umask=0x12,edge,ldlat=0x1234,far=5/uk");
    assert_eq!(e.attr.config, (0xa << 32) | (1 << 18) | (0x12 << 8) | 0xbc);
    assert_eq!((e.attr.config1, e.attr.config3), (0x1234, 5 << 4));
    assert_eq!(e.name, "cpu/event=0xabc,umask=0x12,edge,ldlat=0x1234,far=5/uk");
    assert!(e.attr.flags.contains(AttrFlags::EXCLUDE_HV));
    let e = one("cpu/mem-loads,ldlat=30,name=slow/p");
    assert_eq!((e.attr.config, e.attr.config1), (0x1cd, 30));
    assert_eq!((e.name.as_str(), e.attr.flags.precise_ip()), ("slow", 1));
    assert_eq!(one("mem-loads:u").attr.config1, 3);
    assert_eq!(one("cpu/r1a8/").attr.config, 0x1a8);
    assert_eq!(one("cpu/needs,umask=7/").attr.config, 0x701);
    assert_eq!(one("cpu//").attr.kind, EventType(4));
    let e = one("cpu/config=1,config1=2,config2=3,config3=0x4/");
    assert_eq!((e.attr.config, e.attr.config1, e.attr.config2, e.attr.config3), (1, 2, 3, 4));
}

#[test]
fn an_uncore_event_has_scale_unit_and_cpus() {
    let e = one("uncore_box_0/data/");
    assert_eq!((e.scale, e.unit.as_str()), (6.1e-5, "MiB"));
    assert_eq!(e.cpus, Some(vec![0, 2, 3]));
    assert!(e.per_package && e.snapshot);
    let both = parse("box/event=1/");
    let pmus: Vec<_> = both.iter().map(|e| (e.pmu.as_deref(), e.attr.kind.0)).collect();
    assert_eq!(pmus, [(Some("uncore_box_0"), 20), (Some("uncore_box_1"), 21)]);
    assert_eq!(parse("uncore_*/event=1/").len(), 2);
}

#[test]
fn several_kinds_of_core_give_an_event_each() {
    let m = machine();
    let devices = m.dir.path().join("devices");
    for (name, kind, cpus) in [("cpu_core", "4\n", "0-3\n"), ("cpu_atom", "10\n", "4-7\n")] {
        write(&devices, &format!("{name}/type"), kind);
        write(&devices, &format!("{name}/cpus"), cpus);
    }
    let of = |text: &str| -> Vec<(String, u32, u64)> {
        let list = m.catalog.parse(text).unwrap();
        list.into_iter().map(|e| (e.name, e.attr.kind.0, e.attr.config)).collect()
    };
    let atom = |name: &str, kind, config| (format!("cpu_atom/{name}"), kind, config);
    assert_eq!(of("instructions:u")[0], atom("instructions/u", 0, (10 << 32) | 1));
    assert_eq!(of("instructions:u")[1].0, "cpu_core/instructions/u");
    assert_eq!(of("LLC-loads")[0], atom("LLC-loads/", 3, (10 << 32) | 2));
    assert_eq!(of("r1a8")[0], atom("r1a8/", 10, 0x1a8));
    assert_eq!(of("cycles/name=c/")[1], ("c".to_owned(), 0, 4 << 32));
    assert_eq!(of("cs").len(), 1);
    assert_eq!(m.catalog.parse("cycles").unwrap()[0].cpus, Some(vec![4, 5, 6, 7]));
}

#[test]
fn terms_that_concern_sampling() {
    let e = one("cs/period=3,call-graph=dwarf,stack-size=4096,max-stack=7,no-inherit,time=0/u");
    assert_eq!((e.terms.period, e.terms.max_stack), (Some(3), Some(7)));
    assert_eq!(e.terms.call_graph.as_deref(), Some("dwarf"));
    assert_eq!((e.terms.stack_size, e.terms.inherit), (Some(4096), Some(false)));
    assert_eq!(e.terms.time, Some(false));
    let e = one("sched:sched_switch/name='a,b/c',overwrite/");
    assert_eq!((e.name.as_str(), e.attr.config), ("a,b/c", 21));
    assert_eq!(e.terms.overwrite, Some(true));
}

#[test]
fn tracepoints_by_name_and_glob() {
    let names = |t| parse(t).into_iter().map(|e| e.name).collect::<Vec<_>>();
    assert_eq!(names("kmem:*"), ["kmem:kfree", "kmem:kmalloc"]);
    assert_eq!(names("s*:*_switch"), ["sched:sched_switch"]);
    assert_eq!(names("*:*").len(), 4, "the ftrace system is left out");
    assert_eq!(names("ftrace:*"), ["ftrace:function"]);
    let e = one("sched:sched_switch:u");
    assert_eq!((e.name.as_str(), e.attr.config), ("sched:sched_switch", 21));
    assert_eq!(e.attr.sample_period, 1);
    assert!(e.attr.flags.contains(AttrFlags::EXCLUDE_KERNEL));
    assert_eq!(one("kmem:kfree").attr.flags, AttrFlags::EXCLUDE_GUEST);
}

#[test]
fn counters_of_vmstat() {
    let names: Vec<_> =
        parse("vmstat:pg*,vmstat:nr_free_pages").into_iter().map(|e| e.name).collect();
    assert_eq!(names, ["vmstat:pgfault", "vmstat:pgmajfault", "vmstat:nr_free_pages"]);
    assert_eq!(one("vmstat:pgfault").source, CounterSource::Vmstat("pgfault".into()));
}

#[test]
fn breakpoints() {
    let of = |t: &str| {
        let a = one(t).attr;
        (a.config1, a.config2, a.bp_type, a.flags.contains(AttrFlags::EXCLUDE_KERNEL))
    };
    assert_eq!(of("mem:0x1000"), (0x1000, 4, 3, false));
    assert_eq!(of("mem:0x1000/8:w:u"), (0x1000, 8, 2, true));
    assert_eq!(of("mem:4096:x"), (0x1000, 8, 4, false));
    assert_eq!(of("mem:0x1000:u"), (0x1000, 4, 3, true));
    assert_eq!(parse("mem:0x1000/2:r,cs").len(), 2);
}

#[test]
fn user_only_says_so_in_the_name() {
    for (text, name) in [
        ("cs", "cs:u"),
        ("cs:p", "cs:pu"),
        ("cpu/event=1/", "cpu/event=1/u"),
        ("cpu/event=1/p", "cpu/event=1/pu"),
        ("kmem:kfree", "kmem:kfree:u"),
        ("cs:u", "cs:u"),
        ("vmstat:pgfault", "vmstat:pgfault"),
    ] {
        let mut e = one(text);
        e.restrict_to_user();
        assert_eq!(e.name, name);
    }
}

#[test]
fn the_kernels_side_is_not_left_out_where_it_was_named() {
    for (text, may) in [
        ("cs", true),
        ("cs:p", true),
        ("cs:u", false),
        ("cs:k", false),
        ("cs:uk", true),
        ("kmem:kfree", true),
        ("kmem:kfree:k", false),
        ("vmstat:pgfault", false),
    ] {
        assert_eq!(one(text).may_be_user_only(), may, "{text}");
    }
    let guests = |text| one(text).may_count_guests();
    assert!(guests("cpu/event=1/") && !guests("cpu/event=1/H") && !guests("cs:G"));
}

#[test]
fn bad_input_is_named_with_its_place() {
    for (text, message) in [
        ("", "an event name is missing"),
        ("cs,,faults", "an event name is missing at character 4 of 'cs,,faults'"),
        ("cs,", "an event name is missing at character 4 of 'cs,'"),
        ("cyclse", "unknown event 'cyclse'; did you mean cycles?"),
        (
            "cs,cyclse:u",
            "unknown event 'cyclse' at character 4 of 'cs,cyclse:u'; did you mean cycles?",
        ),
        ("cs:uz", "'z': not one of the modifiers ukhGHIpPSDWeb at character 5 of 'cs:uz'"),
        ("cs:uu", "'u': duplicate modifier at character 5 of 'cs:uu'"),
        ("cs:pppp", "'p': precision goes up to ppp at character 7 of 'cs:pppp'"),
        ("cs:", "modifiers are missing after the colon at character 4 of 'cs:'"),
        ("{cs,faults", "'{': the group is not closed with '}' at character 1 of '{cs,faults'"),
        ("cs}", "'}': no group is open at character 3 of 'cs}'"),
        ("{cs,{faults}}", "'{': a group cannot hold a group at character 5 of '{cs,{faults}}'"),
        ("{}", "an event name is missing at character 2 of '{}'"),
        ("{cs}x", "'x': not expected here at character 5 of '{cs}x'"),
        ("{cs}:y", "'y': not one of the modifiers ukhGHIpPSDWeb at character 6 of '{cs}:y'"),
        ("L1-icache-stores", "'L1-icache-stores': the cache L1-icache has no stores"),
        (
            "r12345678123456781",
            "'r12345678123456781': a raw event has at most 16 hexadecimal digits",
        ),
        ("cpu/event=1", "'/': the terms are not closed with '/' at character 4 of 'cpu/event=1'"),
        ("cpx/event=1/", "unknown PMU 'cpx' at character 1 of 'cpx/event=1/'; did you mean cpu?"),
        (
            "cpu/evnt=1/",
            "PMU cpu has no term or event 'evnt' at character 5 of 'cpu/evnt=1/'; did you mean event?",
        ),
        (
            "cpu/event=q/",
            "'q': the value of event must be a number at character 11 of 'cpu/event=q/'",
        ),
        (
            "cpu/umask=0x100/",
            "'umask=0x100': the value does not fit umask (config:8-15); the maximum is 0xff at \
             character 5 of 'cpu/umask=0x100/'",
        ),
        ("cpu/needs/", "'needs': needs the parameter umask= at character 5 of 'cpu/needs/'"),
        (
            "cpu/broken/",
            "'broken': sysfs defines it as nothing=1, which this PMU's formats do not describe at \
             character 5 of 'cpu/broken/'",
        ),
        (
            "cpu/period=1,freq=2/",
            "'freq=2': period and freq exclude each other at character 14 of 'cpu/period=1,freq=2/'",
        ),
        (
            "cpu/event=1,,umask=2/",
            "a term is missing here at character 13 of 'cpu/event=1,,umask=2/'",
        ),
        ("cs/umask=2/", "unknown term 'umask' at character 4 of 'cs/umask=2/'"),
        (
            "cs/max-stack=70000/",
            "'max-stack=70000': the value is too large at character 4 of 'cs/max-stack=70000/'",
        ),
        (
            "kmem:nothing*",
            "no event matches 'kmem:nothing*'; `kymo list` shows the supported \
          events",
        ),
        ("kmem:kmaloc", "unknown event 'kmem:kmaloc'; did you mean kmem:kmalloc?"),
        ("kmalloc", "unknown event 'kmalloc'; did you mean kmem:kmalloc?"),
        ("kmem:", "'kmem:': a tracepoint has the form SYSTEM:NAME"),
        ("vmstat:pgfalt", "unknown event 'vmstat:pgfalt'; did you mean vmstat:pgfault?"),
        (
            "mem:x",
            "'x': the address of a breakpoint must be a number, as in mem:0x1000/4:rw at character 5 of 'mem:x'",
        ),
        ("mem:1/9", "'9': the length of a breakpoint must be 1 to 8 at character 7 of 'mem:1/9'"),
        ("mem:1:rr", "'r': breakpoint access is given twice at character 8 of 'mem:1:rr'"),
        (
            "kmem:[",
            "'[': bad glob: unclosed character class; missing ']' at character 6 of 'kmem:['",
        ),
    ] {
        assert_eq!(refused(text), message, "{text}");
    }
}

#[test]
fn no_text_makes_the_parser_panic() {
    let m = machine();
    let pieces = [
        "cs", ":", "/", ",", "{", "}", "u", "cpu", "=", "'", "*", "[", "é", "mem:", " ", "0x", "r",
        "vmstat",
    ];
    // A small generator with a fixed start: the same texts in every run.
    let mut state = 1u64;
    for _ in 0..20_000 {
        let mut text = String::new();
        for _ in 0..=(state >> 60) {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            text.push_str(pieces[(state >> 33) as usize % pieces.len()]);
        }
        if let Err(e) = m.catalog.parse(&text) {
            assert!(!e.to_string().is_empty());
        }
    }
}

#[test]
fn a_tree_that_may_not_be_read_is_not_an_unknown_event() {
    let dir = tempfile::tempdir().unwrap();
    // The root is a file: reading below it fails, and not for want of the event.
    let file = dir.path().join("tracing");
    std::fs::write(&file, "").unwrap();
    let catalog = Catalog::at(dir.path(), &file, &file);
    let e = catalog.parse("sched:sched_switch").unwrap_err().to_string();
    assert!(e.starts_with("cannot look up tracepoint 'sched:sched_switch': cannot read"), "{e}");
}
