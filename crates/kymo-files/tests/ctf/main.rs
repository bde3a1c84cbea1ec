//! CTF: traces of LTTng, of babeltrace2 and of our own, read with kymo and with
//! babeltrace2, which must agree in every value.
#![allow(clippy::unwrap_used, reason = "tests")]

mod bad;
mod lttng;
mod made;
mod text;

use kymo_files::ctf::Metadata;
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
fn metadata_is_read_as_it_was_written() {
    for form in made::Form::all() {
        let metadata = form.metadata();
        let text = metadata.to_tsdl();
        let read = Metadata::parse(&text).unwrap_or_else(|e| panic!("{form:?}: {e}\n{text}"));
        assert_eq!(read, metadata, "{form:?}\n{text}");
    }
}
