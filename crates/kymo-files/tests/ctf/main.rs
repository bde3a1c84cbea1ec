//! CTF: traces of LTTng, of babeltrace2 and of our own, read with kymo and with
//! babeltrace2, which must agree in every value.
#![allow(clippy::unwrap_used, reason = "tests")]

mod bad;
mod lttng;
mod made;
mod scopes;
mod text;

use std::io::Write as _;

use kymo_files::ctf::Metadata;
use kymo_files::ctf::write::Folder;
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
        if form.packing == made::Packing::Natural {
            continue;
        }
        // The same as babeltrace2 writes it.
        let copy = dir.path().join("copy");
        let (from, to) = (path.to_str().unwrap(), copy.to_str().unwrap());
        let args = ["convert", from, "--output-format=ctf", "--output", to];
        let _ = kymo_testkit::run("babeltrace2", args).success();
        let (copied, stats, _) = text::agree(&copy);
        assert_eq!((copied.len(), stats.damaged_places), (lines.len(), 0), "{form:?}");
        let values = |lines: &[text::Line]| -> Vec<u64> { lines.iter().map(|l| l.0).collect() };
        assert_eq!(values(&copied), values(&lines), "{form:?}");
    }
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

/// How many of something the peer's warnings count, and in how many places.
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
        let folder = Folder::create(dir.path().join("trace"), &form.metadata()).unwrap();
        let mut stream = made::Stream::new(form, 0);
        for i in 0..5 {
            (stream.discarded, stream.sequence) = (discarded[i], sequence[i]);
            stream.packet(&[(1, 0, 1000 * i as u64), (1, 0, 1000 * i as u64 + 10)]);
        }
        folder.stream("s").unwrap().write_all(&stream.bytes).unwrap();
        let (_, stats, said) = text::agree(folder.path());
        let ours = (stats.lost, stats.lost_places);
        assert_eq!(ours, counted(&said, " event"), "{what}: {said}");
        // Of these it only says that there may be some.
        let may = said.contains("may have discarded");
        assert_eq!(may, stats.lost_at_start > 0, "{what}: {said}");
        let ours = (stats.lost_packets, stats.lost_packet_places);
        assert_eq!(ours, counted(&said, " packet"), "{what}: {said}");
    }
}
