//! trace.dat made by hand: what is written is read, in every form; files that
//! are cut or that lie cost what is damaged and nothing else.
#![allow(clippy::unwrap_used, reason = "a failed test is a panic")]

mod bad;
mod made;

use kymo_files::tracedat::{
    Compression, Format, TraceDat, TraceDatSelect, TraceDatWriter, WriteError,
};
use kymo_format::ring::Missed;
use kymo_model::Endian;

use made::{ENDS, events, facts, formats, made, open, specs};

#[test]
fn what_is_written_is_read_in_every_form() {
    for endian in ENDS {
        for long in [4, 8] {
            for format in formats() {
                let what = format!("{endian:?} {long} {format:?}");
                let mut facts = facts(endian, long);
                made::all_options(&mut facts.options);
                let data = open(&made(format, &facts)).unwrap();
                assert_eq!(data.damage(), [], "{what}");
                assert_eq!((data.version(), data.endian()), (format.version, endian));
                assert_eq!((data.long_size(), data.page_size()), (long, 4096));
                assert_eq!(data.compression(), format.compression);
                assert_eq!(data.machine(), &facts.machine, "{what}");
                assert_eq!(data.options(), &facts.options, "{what}");
                let names: Vec<_> = data.buffers().iter().map(|b| (&*b.name, &*b.clock)).collect();
                assert_eq!(names, [("", "local"), ("mine", "local"), ("yours", "local")]);
            }
        }
    }
}

#[test]
fn events_come_by_time_over_all_cpus_and_instances() {
    for endian in ENDS {
        for long in [4, 8] {
            for format in formats() {
                let data = open(&made(format, &facts(endian, long))).unwrap();
                let (seen, stats) = events(&data);
                let what = format!("{endian:?} {long} {format:?}");
                assert_eq!(seen.len(), 1200, "{what}");
                for (i, (buffer, cpu, time, number, missed)) in seen.iter().enumerate() {
                    let (round, attempt) = (i / 300, i / 50 % 6);
                    assert_eq!((*buffer, *cpu as usize), (attempt / 2, attempt % 2), "{what} {i}");
                    assert_eq!(*number as usize, i, "{what}");
                    let at = round * 60_000 + attempt * 10_000 + i % 50 * 100;
                    assert_eq!(*time as usize, 1_000_000_000 + at);
                    let lost = round == 2 && attempt % 2 == 1 && i % 50 == 0;
                    let lost = lost.then_some(Missed::Count(40 + (attempt / 2) as u64));
                    assert_eq!(*missed, lost, "{what} {i}");
                }
                assert_eq!((stats.events, stats.pages), (1200, 24));
                assert_eq!((stats.lost, stats.lost_places), (40 + 41 + 42, 3));
                assert_eq!((stats.damaged_places, stats.lost_unknown), (0, 0));
            }
        }
    }
}

#[test]
fn only_what_is_selected_is_delivered() {
    let data = open(&made(Format::default(), &facts(Endian::Little, 8))).unwrap();
    let count = |select: TraceDatSelect| {
        let mut seen = std::collections::BTreeMap::<(usize, u32), u32>::new();
        let mut sink = |e: &kymo_files::tracedat::TraceDatEvent<'_>| {
            *seen.entry((e.buffer, e.cpu)).or_default() += 1;
            std::ops::ControlFlow::Continue(())
        };
        data.for_each(&select, &mut sink).unwrap();
        seen.into_iter().collect::<Vec<_>>()
    };
    let cpus = Some(vec![1, 7]);
    let of_cpu = count(TraceDatSelect { cpus: cpus.clone(), ..TraceDatSelect::default() });
    assert_eq!(of_cpu, [((0, 1), 200), ((1, 1), 200), ((2, 1), 200)]);
    assert_eq!(
        count(TraceDatSelect { cpus, buffers: Some(vec![2]), ..TraceDatSelect::default() }),
        [((2, 1), 200)]
    );
}

#[test]
fn pages_before_a_time_are_passed_over_and_nothing_else() {
    for format in formats() {
        let data = open(&made(format, &facts(Endian::Little, 8))).unwrap();
        let all = events(&data).0;
        let span = data.span().unwrap();
        assert_eq!(span, (all[0].2, all[1199].2), "{format:?}");
        for from in [1, 1_000_000_000, 1_000_060_000, 1_000_130_100, 1_000_239_999, u64::MAX] {
            let mut seen = Vec::new();
            let stats =
                data.for_each(&TraceDatSelect { from, ..TraceDatSelect::default() }, &mut |e| {
                    seen.push(e.time);
                    std::ops::ControlFlow::Continue(())
                });
            seen.retain(|t| *t >= from);
            let expected: Vec<_> = all.iter().map(|e| e.2).filter(|t| *t >= from).collect();
            assert_eq!(seen, expected, "{format:?} from {from}");
            if format.compression == Compression::None && from > 1_000_200_000 {
                assert!(stats.unwrap().pages <= 6, "one page of each CPU is enough");
            }
        }
    }
}

#[test]
fn times_are_corrected_as_the_options_ask_unless_raw_ones_are_wanted() {
    let mut f = facts(Endian::Little, 8);
    made::all_options(&mut f.options);
    let data = open(&made(Format::default(), &f)).unwrap();
    let first = |raw_times| {
        let mut time = 0;
        let select = TraceDatSelect { raw_times, ..TraceDatSelect::default() };
        data.for_each(&select, &mut |e| {
            time = e.time;
            std::ops::ControlFlow::Break(())
        })
        .unwrap();
        time
    };
    assert_eq!(first(true), 1_000_000_000);
    // Twice by the TSC's factor, 0x1000 µs of DATE, −5 ns of OFFSET.
    assert_eq!(first(false), 2_000_000_000 + 4_096_000 - 5);
}

#[test]
fn the_writer_refuses_what_cannot_be_written() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("trace.dat");
    let f = facts(Endian::Little, 8);
    let create = |version, compression| {
        TraceDatWriter::create(&path, Format { version, compression }, &f, specs()).map(drop)
    };
    assert!(matches!(create(5, Compression::None), Err(WriteError::Version(5))));
    assert!(matches!(create(6, Compression::Zstd), Err(WriteError::CompressedVersion6)));
    assert!(!path.exists(), "nothing is left of a refused file");
    let mut w = TraceDatWriter::create(&path, Format::default(), &f, specs()).unwrap();
    let mut pages = made::temp(&[0; 4096]);
    let mut add = |buffer, cpu| w.add_cpu_data(buffer, cpu, pages.as_file_mut(), 0, 4096);
    assert!(matches!(add(3, 0), Err(WriteError::NoSuchCpu { buffer: 3, cpu: 0 })));
    assert!(matches!(add(1, 2), Err(WriteError::NoSuchCpu { buffer: 1, cpu: 2 })));
    add(1, 1).unwrap();
    assert!(matches!(add(1, 1), Err(WriteError::Twice { buffer: 1, cpu: 1 })));
    assert!(matches!(add(0, 0), Err(WriteError::Order { buffer: 0, last: 1 })));
    w.finish().unwrap();
    let data = TraceDat::open(&path).unwrap();
    assert_eq!(data.buffers().len(), 3);
    assert_eq!(data.buffers()[1].cpus[1].size, 4096);
}
