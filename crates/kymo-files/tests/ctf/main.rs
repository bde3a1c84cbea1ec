//! CTF: traces of LTTng, of babeltrace2 and of our own, read with kymo and with
//! babeltrace2, which must agree in every value.
#![allow(clippy::unwrap_used, reason = "tests")]

mod bad;
mod lttng;
mod made;
mod packet_writer;
mod scopes;
mod text;
mod v2;

use std::io::Write as _;

use kymo_files::ctf::Metadata;
use kymo_files::ctf::write::Directory;
use kymo_testkit::{Need, require};

#[test]
fn what_is_written_babeltrace2_reads_without_a_word() {
    if !require(&[Need::Babeltrace]) {
        return;
    }
    for form in made::Form::all() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("trace");
        made::write(form, &path);
        let (lines, stats, said) = text::agree(&path);
        assert_eq!((lines.len(), said.as_str()), (276, ""), "{form:?}");
        assert_eq!((stats.lost, stats.damaged_places, stats.packets), (0, 0, 12), "{form:?}");
    }
}

#[test]
fn what_babeltrace2_writes_is_read() {
    if !require(&[Need::Babeltrace]) {
        return;
    }
    // Its writer gives up (abort) on the bit fields and variants of our own traces; those of
    // LTTng, which it copies, are in `lttng`. Here a log becomes a trace.
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("log");
    let lines: String =
        (0..5000).map(|n| format!("[{n:5}.{:06}] line \"{n}\" \\\n", n * 199)).collect();
    std::fs::write(&log, lines).unwrap();
    let out = dir.path().join("trace");
    let params = format!("path={:?}", log.to_str().unwrap());
    let args =
        ["--component=s:source.text.dmesg", "--params", &params, "--component=k:sink.ctf.fs"];
    let out_params = format!("path={:?}", out.to_str().unwrap());
    let graph = ["run", args[0], args[1], args[2], args[3], "--params", &out_params];
    let connect = ["--connect=s:k"];
    let _ = kymo_testkit::run("babeltrace2", [&graph[..], &connect].concat()).success();
    let (lines, stats, said) = text::agree(&out);
    assert_eq!((lines.len(), stats.damaged_places, said.as_str()), (5000, 0, ""));
    assert_eq!(
        lines[4999],
        (4_999_994_801_000, "string: { str = \"line \\\"4999\\\" \\\\\" }".into())
    );
}

#[test]
fn metadata_is_read_as_it_was_written() {
    for form in made::Form::all() {
        let metadata = form.metadata();
        let text = metadata.to_tsdl();
        let read = Metadata::parse(&text).unwrap_or_else(|e| panic!("{form:?}: {e}\n{text}"));
        assert_eq!(read, metadata, "{form:?}\n{text}");
    }
}

/// Number of discarded items that the peer's warnings count, and of the warnings.
fn counted(said: &str, what: &str) -> (u64, u64) {
    let counts = said.lines().filter_map(|l| {
        let (n, _) = l.split_once("discarded ")?.1.split_once(what)?;
        n.trim().parse::<u64>().ok()
    });
    counts.fold((0, 0), |(n, places), c| (n + c, places + 1))
}

#[test]
fn losses_are_those_that_babeltrace2_tells() {
    if !require(&[Need::Babeltrace]) {
        return;
    }
    let form = made::Form::all().next().unwrap();
    // Counts and numbers of five packets.
    for (what, discarded, sequence) in [
        ("none", [0, 0, 0, 0, 0], [0, 1, 2, 3, 4]),
        ("some", [0, 0, 7, 7, 9], [0, 1, 2, 3, 4]),
        ("before the first", [5, 5, 5, 8, 8], [0, 1, 2, 3, 4]),
        ("packets", [0, 0, 0, 0, 0], [0, 1, 4, 5, 9]),
        ("the first packets", [0, 0, 0, 0, 0], [3, 4, 5, 6, 7]),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let directory = Directory::create(dir.path().join("trace"), &form.metadata()).unwrap();
        let mut stream = made::Stream::new(form, 0);
        for i in 0..5 {
            (stream.discarded, stream.sequence) = (discarded[i], sequence[i]);
            stream.packet(&[(1, 0, 1000 * i as u64), (1, 0, 1000 * i as u64 + 10)]);
        }
        directory.stream("s").unwrap().write_all(&stream.bytes).unwrap();
        let (_, stats, said) = text::agree(directory.path());
        let ours = (stats.lost, stats.lost_places);
        assert_eq!(ours, counted(&said, " event"), "{what}: {said}");
        // Of these it only says that there may be some.
        let may = said.contains("may have discarded");
        assert_eq!(may, stats.lost_at_start > 0, "{what}: {said}");
        let ours = (stats.lost_packets, stats.lost_packet_places);
        assert_eq!(ours, counted(&said, " packet"), "{what}: {said}");
    }
}
