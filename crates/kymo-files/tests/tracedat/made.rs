//! A small machine with two CPUs, made by hand, in any form a file can have.

use std::io::Write as _;
use std::ops::ControlFlow;
use std::path::Path;

use kymo_files::Machine;
use kymo_files::RecordingBytes;
use kymo_files::tracedat::{
    BufferSpec, Compression, CpuShift, Format, Guest, TimeShift, TraceDat, TraceDatOptions,
    TraceDatReadStats, TraceDatSelect, TraceDatWriter, TraceFacts, TscToNsec,
};
use kymo_model::Endian;
use tempfile::NamedTempFile;

pub(crate) const ENDS: [Endian; 2] = [Endian::Little, Endian::Big];

/// Every form a file can have.
pub(crate) fn formats() -> Vec<Format> {
    [(6, Compression::None), (7, Compression::None), (7, Compression::Zlib), (7, Compression::Zstd)]
        .map(|(version, compression)| Format { version, compression })
        .to_vec()
}

fn header_page(long: u8) -> String {
    let data = 8 + long;
    format!(
        "\tfield: u64 timestamp;\toffset:0;\tsize:8;\tsigned:0;\n\
         \tfield: local_t commit;\toffset:8;\tsize:{long};\tsigned:1;\n\
         \tfield: int overwrite;\toffset:8;\tsize:1;\tsigned:1;\n\
         \tfield: char data;\toffset:{data};\tsize:{};\tsigned:1;\n",
        4096 - u32::from(data)
    )
}

fn format_of(name: &str, id: u32) -> String {
    let common = |ty: &str, name: &str, offset, size, signed| {
        format!("\tfield:{ty} {name};\toffset:{offset};\tsize:{size};\tsigned:{signed};\n")
    };
    [
        format!("name: {name}\nID: {id}\nformat:\n"),
        common("unsigned short", "common_type", 0, 2, 0),
        common("unsigned char", "common_flags", 2, 1, 0),
        common("unsigned char", "common_preempt_count", 3, 1, 0),
        common("int", "common_pid", 4, 4, 1),
        "\n".to_owned(),
        common("unsigned int", "number", 8, 4, 0),
        "\nprint fmt: \"number=%u\", REC->number\n".to_owned(),
    ]
    .concat()
}

pub(crate) fn facts(endian: Endian, long_size: u8) -> TraceFacts {
    let machine = Machine {
        header_page: header_page(long_size),
        header_event: "# compressed entry header\n\ttype_len    :    5 bits\n\
                       \ttime_delta  :   27 bits\n\tarray       :   32 bits\n\n\
                       \tpadding     : type == 29\n\ttime_extend : type == 30\n\
                       \ttime_stamp : type == 31\n\tdata max type_len  == 28\n"
            .to_owned(),
        ftrace_formats: vec![format_of("wakeup", 3)],
        formats: vec![
            ("first".to_owned(), format_of("one", 300)),
            ("first".to_owned(), format_of("two", 301)),
            ("second".to_owned(), format_of("three", 302)),
        ],
        kallsyms: "ffffffff81000000 T _text\nffffffff81000100 T start\n".to_owned().into(),
        printk_formats: "0xffffffff82000000 : \"hello\"\n".to_owned(),
        saved_cmdlines: "11 eleven\n12 twelve\n".to_owned(),
    };
    let options = TraceDatOptions {
        trace_clock: Some("[local] global counter\n".to_owned()),
        uname: Some("Linux made 6.18 x86_64".to_owned()),
        version: Some("by hand".to_owned()),
        cpustat: vec!["CPU: 0\nentries: 0\n".to_owned(), "CPU: 1\nentries: 0\n".to_owned()],
        cpu_count: Some(2),
        trace_id: Some(0x1234_5678_9abc_def0),
        ..TraceDatOptions::default()
    };
    TraceFacts { endian, long_size, page_size: 4096, machine, options }
}

/// All options together, which no ordinary file has.
pub(crate) fn all_options(options: &mut TraceDatOptions) {
    options.date = Some("0x1000".to_owned());
    options.offset = Some("-5".to_owned());
    options.hooks = vec!["a:b=c".to_owned()];
    options.procmaps = vec!["1 1 init\n0 1000 /bin/init\n".to_owned()];
    options.tsc2nsec = Some(TscToNsec { mult: 2, shift: 0, offset: 7 });
    options.guests = vec![Guest { name: "vm".to_owned(), trace_id: 5, vcpus: vec![(0, 100)] }];
    let cpu = CpuShift { times: vec![1, 2], offsets: vec![-3, 4], scalings: vec![5, 6] };
    options.time_shift = Some(TimeShift { peer: 9, flags: 1, cpus: vec![cpu; 2] });
    options.unknown = vec![(77, vec![1, 2, 3])];
}

fn word(endian: Endian, v: u64, size: usize) -> Vec<u8> {
    let mut b = v.to_le_bytes()[..size].to_vec();
    if endian == Endian::Big {
        b.reverse();
    }
    b
}

/// `(time, number)` of the events of a page.
fn page(facts: &TraceFacts, events: &[(u64, u32)], lost: Option<u64>) -> Vec<u8> {
    let endian = facts.endian;
    let long = usize::from(facts.long_size);
    let mut data = Vec::new();
    let mut before = events[0].0;
    for (time, number) in events {
        let delta = time - before;
        before = *time;
        let head = match endian {
            Endian::Little => delta << 5 | 3,
            Endian::Big => 3 << 27 | delta,
        };
        data.extend(word(endian, head, 4));
        data.extend(word(endian, 300 + u64::from(number % 3), 2));
        data.extend([0, 0]);
        data.extend(word(endian, 11 + u64::from(number % 2), 4));
        data.extend(word(endian, u64::from(*number), 4));
    }
    let flags = if lost.is_some() { 3 << 30 } else { 0 };
    let mut page = word(endian, events[0].0, 8);
    page.extend(word(endian, data.len() as u64 | flags, long));
    page.extend(data);
    if let Some(n) = lost {
        page.extend(word(endian, n, long));
    }
    page.resize(4096, 0);
    page
}

/// Contents of the rings: three instances, two CPUs, several pages each. The number of an event is
/// its place in the order of time.
pub(crate) fn pages(facts: &TraceFacts) -> Vec<Vec<Vec<u8>>> {
    let mut number = 0;
    let mut rings = vec![vec![Vec::new(); 2]; 3];
    for round in 0..4u64 {
        for buffer in 0..3u64 {
            for cpu in 0..2u64 {
                let mut events = Vec::new();
                for i in 0..50 {
                    // Runs follow each other; the CPUs take turns.
                    let time = 1_000_000_000 + round * 60_000 + buffer * 20_000 + cpu * 10_000;
                    events.push((time + i * 100, number));
                    number += 1;
                }
                let lost = (round == 2 && cpu == 1).then_some(40 + buffer);
                rings[buffer as usize][cpu as usize].extend(page(facts, &events, lost));
            }
        }
    }
    rings
}

pub(crate) fn specs() -> Vec<BufferSpec> {
    let spec = |name: &str| BufferSpec {
        name: name.to_owned(),
        clock: "local".to_owned(),
        page_size: 4096,
        cpus: vec![0, 1],
    };
    vec![spec(""), spec("mine"), spec("yours")]
}

pub(crate) fn write(path: &Path, format: Format, facts: &TraceFacts) {
    let mut w = TraceDatWriter::create(path, format, facts, specs()).unwrap();
    for (buffer, ring) in pages(facts).iter().enumerate() {
        for (cpu, pages) in ring.iter().enumerate() {
            let mut file = temp(pages);
            // The data begin somewhere within the file they come from.
            let (len, cpu) = (pages.len() as u64, cpu as u32);
            w.add_cpu_data(buffer, cpu, file.as_file_mut(), 0, len).unwrap();
        }
    }
    w.finish().unwrap();
}

pub(crate) fn made(format: Format, facts: &TraceFacts) -> Vec<u8> {
    let file = NamedTempFile::new().unwrap();
    write(file.path(), format, facts);
    std::fs::read(file.path()).unwrap()
}

pub(crate) fn temp(bytes: &[u8]) -> NamedTempFile {
    let mut file = NamedTempFile::new().unwrap();
    file.write_all(bytes).unwrap();
    file
}

/// `(instance, cpu, time, number, lost before)` of every event.
pub(crate) type Seen = (usize, u32, u64, u32, Option<kymo_format::ring::Missed>);

pub(crate) fn events(data: &TraceDat) -> (Vec<Seen>, TraceDatReadStats) {
    let mut seen = Vec::new();
    let stats = data.for_each(&TraceDatSelect::default(), &mut |e| {
        let number = e.payload.get(8..).and_then(|b| b.first_chunk());
        let number = number.map_or(u32::MAX, |b| data.endian().u32(*b));
        seen.push((e.buffer, e.cpu, e.time, number, e.missed));
        ControlFlow::Continue(())
    });
    (seen, stats.unwrap())
}

/// A recording of these bytes.
pub(crate) fn open(bytes: &[u8]) -> Result<TraceDat, kymo_files::tracedat::TraceDatReadError> {
    TraceDat::from_bytes("recording", RecordingBytes::from_memory(bytes.to_vec()))
}
