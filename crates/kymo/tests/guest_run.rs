//! `kymo run` and `kymo count` in the guest, whose kernel has kprobes and lets functions be traced.
#![allow(clippy::unwrap_used, reason = "a failed test is a panic")]

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use kymo_testkit::{Need, Outcome, Workload, load_module, require, run, unload_module};

const KYMO: &str = env!("CARGO_BIN_EXE_kymo");

fn program(text: &str, work: &Workload) -> Outcome {
    run(KYMO, ["run", "-e", text, "-c", &format!("{} 50", work.arg())]).success()
}

#[test]
fn probes_of_kernel_functions_see_each_call() {
    if !require(&[Need::Root, Need::Tracefs]) {
        return;
    }
    let work = Workload::syscalls();
    let check = |probe: &str, body: &str, expected: &str| {
        let o = program(&format!("{probe} /pid == cpid/ {{ {body} }}"), &work);
        assert!(o.stdout.contains(expected), "{probe}: {}\n{}", o.stdout, o.stderr);
    };
    check("kprobe:__do_sys_getppid", "@ = count();", "@: 50\n");
    check("kprobe:__do_sys_getpp*", "@[func] = count();", "@[__do_sys_getppid]: 50\n");
    check("kretprobe:__do_sys_getppid", "@[retval > 0] = count();", "]: 50\n");
    check("fentry:__do_sys_getppid", "@ = count();", "@: 50\n");
    check("fexit:__do_sys_getppid", "@[retval > 0] = count();", "]: 50\n");
}

#[test]
fn arguments_of_kernel_functions_have_types() {
    if !require(&[Need::Root, Need::Tracefs]) {
        return;
    }
    let work = Workload::syscalls();
    let text = "fentry:security_file_open /pid == cpid/ \
                { printf(\"%s\\n\", str(args.file->f_path.dentry->d_name.name)); }";
    let o = program(text, &work);
    // The program itself, when it is executed: in the guest it is linked statically.
    let name = work.program().file_name().unwrap().to_str().unwrap();
    assert!(o.stdout.lines().any(|line| line == name), "{}\n{}", o.stdout, o.stderr);
    let o = run(KYMO, ["run", "-lv", "fentry:security_file_open"]).success();
    assert!(o.stdout.contains("struct file * file"), "{}", o.stdout);
}

#[test]
fn variables_of_each_cpu_are_read() {
    if !require(&[Need::Root, Need::Tracefs]) {
        return;
    }
    let cpus = std::fs::read_to_string("/proc/cpuinfo").unwrap();
    let of_cpus = cpus.lines().filter_map(|line| line.strip_prefix("apicid")?.split(": ").nth(1));
    let apics: Vec<u16> = of_cpus.map(|apic| apic.parse().unwrap()).collect();
    assert!(apics.len() > 1, "{cpus}");
    for (cpu, apic) in apics.iter().enumerate() {
        let text = format!(
            "BEGIN {{ print(*(uint16 *)percpu_kaddr(\"x86_cpu_to_apicid\", {cpu})); exit(); }}"
        );
        let o = run(KYMO, ["run", "-q", "-e", &text]).success();
        assert_eq!(o.stdout.trim(), apic.to_string(), "{}", o.stderr);
    }
    let text = "BEGIN { print((uint64)percpu_kaddr(\"x86_cpu_to_apicid\", 5000)); exit(); }";
    assert_eq!(run(KYMO, ["run", "-q", "-e", text]).success().stdout.trim(), "0");
    let text = "fentry:__do_sys_getppid /pid == cpid/ { print(comm(curtask) == comm); exit(); }";
    assert_eq!(program(text, &Workload::syscalls()).stdout.trim(), "true");
}

#[test]
fn calls_of_kernel_functions_are_counted_by_flags() {
    if !require(&[Need::Root, Need::Tracefs]) {
        return;
    }
    let work = Workload::syscalls();
    let count = |flags: &[&str]| {
        let o = run(KYMO, [&["count", "--json"], flags, &["--", work.arg(), "70"]].concat());
        let o = o.success();
        serde_json::from_str::<serde_json::Value>(&o.stdout).unwrap()
    };
    for event in
        ["kprobe:__do_sys_getppid", "kretprobe:__do_sys_getppid", "fentry:__do_sys_getppid"]
    {
        let page = count(&["-e", event, "--by", "comm"]);
        assert_eq!(page["rows"][0]["count"], 70, "{event}: {page}");
        assert_eq!(page["rows"][0]["key"]["comm"], "syscalls", "{event}: {page}");
    }
    let latency = "kprobe:__do_sys_getppid -> kretprobe:__do_sys_getppid by tid";
    let page = count(&["--latency", latency]);
    assert_eq!(page["rows"][0]["count"], 70, "{page}");
}

#[test]
fn functions_of_modules_have_the_types_of_their_module() {
    if !require(&[Need::Root, Need::Tracefs]) {
        return;
    }
    // Others load it, too.
    if Path::new("/sys/module/scsi_debug").exists() {
        unload_module("scsi_debug");
    }
    load_module("scsi_mod", "scan=sync");
    // A structure that the module has and the kernel has not, with and without its name.
    let text = "interval:s:60 { exit(); } \
                fentry:scsi_mod:scsi_host_alloc { printf(\"%s\\n\", str(args.sht->name)); } \
                kprobe:scsi_host_alloc { printf(\"k %s\\n\", str(args.sht->name)); } \
                fexit:scsi_host_alloc { printf(\"host %d\\n\", retval->host_no); exit(); }";
    let mut command = Command::new(KYMO);
    command.args(["run", "-e", text]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut messages = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
    // BEGIN runs before the others are attached; this is said behind.
    let is_on = messages.any(|line| line.starts_with("Attached"));
    if is_on {
        load_module("scsi_debug", "");
    }
    // The number of a host that is about to go is not given again yet.
    let hosts = std::fs::read_dir("/sys/class/scsi_host").unwrap().flatten();
    let names = hosts.filter_map(|host| host.file_name().into_string().ok());
    let numbers = names.filter_map(|name| name.strip_prefix("host")?.parse::<u32>().ok());
    let newest = numbers.max();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    let mut seen: Vec<String> = lines.filter(|line| !line.is_empty()).collect();
    seen.sort_unstable();
    child.wait().unwrap();
    unload_module("scsi_debug");
    // Drivers of disks that other tests have loaded may need it.
    let _ = run("/init", ["unload", "scsi_mod"]);
    assert!(is_on);
    let host = format!("host {}", newest.unwrap());
    assert_eq!(seen, ["SCSI DEBUG", &host, "k SCSI DEBUG"]);
    let o = run(KYMO, ["run", "-e", "fentry:scsi_mod:no_such { exit(); }"]).failure();
    assert!(o.stderr.contains("no_such"), "{}", o.stderr);
    let o = run(KYMO, ["run", "-e", "fentry:../vmlinux:vfs_read { exit(); }"]).failure();
    assert!(!o.stderr.contains("panicked"), "{}", o.stderr);
}

#[test]
fn an_older_kernel_counts_the_same_in_user_space() {
    if !require(&[Need::Root, Need::Tracefs]) {
        return;
    }
    let work = Workload::syscalls();
    let rows = |flags: &[&str], calls: u32| {
        let event = ["count", "--json", "-e", "raw_syscalls:sys_enter", "--filter", "id == 110"];
        let command = ["--", work.arg(), &calls.to_string()];
        let o = run(KYMO, [&event, flags, &command].concat()).success();
        serde_json::from_str::<serde_json::Value>(&o.stdout).unwrap()["rows"].clone()
    };
    // With stacks enough that the program still runs when its mappings are read.
    for (by, calls) in [("comm", 70), ("ustack", 200_000), ("uid", 70)] {
        let kernel = rows(&["--by", by], calls);
        assert_eq!(kernel[0]["count"], calls, "{by}: {kernel}");
        assert_eq!(kernel, rows(&["--no-bpf", "-m", "32M", "--by", by], calls), "{by}");
    }
    // Programs that read fields have tracepoints of perf events, which stay disabled.
    let text =
        "tracepoint:sched:sched_process_exec /pid == cpid/ { @[str(args.filename)] = count(); }";
    let o = program(text, &work);
    assert!(o.stdout.contains(&format!("@[{}]: 1\n", work.arg())), "{}\n{}", o.stdout, o.stderr);
}

#[test]
fn a_function_of_a_module_is_probed_in_that_module_alone() {
    if !require(&[Need::Root, Need::Tracefs]) {
        return;
    }
    // A function of the kernel that a module does not have, named with the module.
    let modules = std::fs::read_to_string("/proc/modules").unwrap();
    let module = modules.split(' ').next().unwrap();
    let o = run(KYMO, ["run", "-e", &format!("kprobe:{module}:__do_sys_getppid {{ exit(); }}")]);
    assert!(o.stderr.contains("No matches for kprobe"), "{}", o.stderr);
    let work = Workload::syscalls();
    let o = program("kprobe:vmlinux:__do_sys_getppid /pid == cpid/ { @ = count(); }", &work);
    assert!(o.stdout.contains("@: 50\n"), "{}\n{}", o.stdout, o.stderr);
    // A list by module has functions of that module, which are probed.
    let o = run(KYMO, ["run", "-l", &format!("kprobe:{module}:*")]).success();
    let own = o.stdout.lines().map(|line| line.strip_prefix(&format!("kprobe:{module}:")).unwrap());
    let symbols = std::fs::read_to_string("/proc/kallsyms").unwrap();
    let suffix = format!("\t[{module}]");
    let of_module = |name: &str| {
        symbols.lines().any(|line| line.ends_with(&suffix) && line.contains(&format!(" {name}\t")))
    };
    let own: Vec<&str> = own.collect();
    assert!(!own.is_empty() && own.iter().all(|name| of_module(name)), "{own:?}");
    let text = format!("kprobe:{module}:{} {{ @ = count(); }}", own[0]);
    let o = run(KYMO, ["run", "--dry-run", "-e", &text]).success();
    assert!(o.stderr.contains("Attached 1 probe"), "{}", o.stderr);
}

#[test]
fn programs_on_one_function_run_in_the_order_of_the_source() {
    if !require(&[Need::Root, Need::Tracefs]) {
        return;
    }
    let work = Workload::syscalls();
    for probe in ["kprobe", "kretprobe", "fentry", "fexit"] {
        let one = |letter: char| {
            format!("{probe}:__do_sys_getppid /pid == cpid/ {{ printf(\"{letter}\\n\"); }} ")
        };
        let text: String = ['a', 'b', 'c'].map(one).concat();
        let o = program(&text, &work);
        let letters: String = o.stdout.lines().filter(|line| line.len() == 1).collect();
        assert_eq!(letters, "abc".repeat(50), "{probe}: {}", o.stderr);
    }
}
