//! Functions of just-in-time compilers: an ELF file of each, and mappings of them in place of
//! those of the jitdump files.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

use kymo_files::perfdata::Entry;
use kymo_files::perfdata::write::synth::{MapFacts, Synth};
use kymo_kernel::output_file::{self, Existing};
use kymo_model::{AttrFlags, Mmap, NoteKind, RecordKind, Sideband};
use kymo_symbols::jit_images::{JitImage, TEXT_OFFSET, for_each_jit_image, process_of_jitdump};
use kymo_view::Ledger;

/// `CLOCK_MONOTONIC`, of the times in jitdump files.
const MONOTONIC: i32 = 1;
/// Most functions of a file that are reported.
const MOST: u32 = 1 << 20;
const READ_AND_EXECUTE: u32 = 5;
const SHARED: u32 = 1;

/// State of the jitdump files.
pub(super) struct JitInjection {
    directory: PathBuf,
    /// Files that were taken, each once.
    known: BTreeSet<(u32, String)>,
    /// Processes whose functions were mapped.
    injected: BTreeSet<u32>,
    /// Files whose functions are missing, and why.
    missing: BTreeMap<String, String>,
    /// Names of the files that were made, by process: another one's of the same number gets others.
    made: BTreeMap<u32, u32>,
}

impl JitInjection {
    /// Files are made in the directory of `output`.
    pub(super) fn beside(output: &Path) -> JitInjection {
        let directory = output.parent().filter(|_| output.as_os_str() != "-");
        let directory = directory.filter(|d| !d.as_os_str().is_empty());
        let directory = directory.unwrap_or(Path::new("."));
        JitInjection {
            directory: std::path::absolute(directory).unwrap_or_else(|_| directory.to_owned()),
            known: BTreeSet::new(),
            injected: BTreeSet::new(),
            missing: BTreeMap::new(),
            made: BTreeMap::new(),
        }
    }

    /// Puts mappings of the functions in the place of that of their file. `false`: the record is
    /// none, or nothing is known of it.
    pub(super) fn replace(&mut self, entry: &Entry<'_>, out: &mut Vec<u8>) -> bool {
        if !matches!(entry.raw.kind, RecordKind::MMAP | RecordKind::MMAP2) {
            return false;
        }
        let Ok(Some(Sideband::Mmap(map))) = Sideband::parse(&entry.raw) else { return false };
        let Ok(path) = std::str::from_utf8(map.filename) else { return false };
        let Some(process) = process_of_jitdump(path) else {
            // Memory that becomes executable after its functions were written does not hide them.
            let is_code = Mmap::names_anonymous(map.filename) || path.starts_with("/memfd:");
            return is_code && self.injected.contains(&map.pid);
        };
        let attr = entry.desc().map(|event| &event.attr);
        let of_clock = |a: &&kymo_model::Attr| {
            a.flags.contains(AttrFlags::USE_CLOCKID) && a.clockid == MONOTONIC
        };
        let Some(attr) = attr.filter(of_clock) else {
            let why = "the recording is of another clock than the file: record with -k mono";
            self.missing.insert(path.to_owned(), why.to_owned());
            return false;
        };
        if !self.known.insert((map.pid, path.to_owned())) {
            return true;
        }
        let id = entry.desc().and_then(|event| event.ids.first()).copied().unwrap_or(0);
        let mut synth = Synth::new(attr, id);
        let directory = &self.directory;
        let again = self.made.entry(process).and_modify(|number| *number += 1).or_insert(0);
        let prefix = match *again {
            0 => format!("jitted-{process}"),
            number => format!("jitted-{process}.{number}"),
        };
        let (mut failed, mut count) = (None, 0);
        let mut unwritten = BTreeSet::new();
        let read = for_each_jit_image(Path::new(path), &mut |image| {
            count += 1;
            if count > MOST {
                failed = Some(format!("there are more than {MOST}"));
                return;
            }
            let file = directory.join(format!("{prefix}-{}.so", image.index));
            match write(&file, &image) {
                Ok(()) if unwritten.contains(&image.index) => {}
                Ok(()) => {
                    synth.set_time(image.time);
                    out.extend_from_slice(synth.mmap2(&MapFacts {
                        pid: map.pid,
                        tid: map.tid,
                        start: image.start,
                        len: image.size,
                        pgoff: TEXT_OFFSET,
                        prot: READ_AND_EXECUTE,
                        flags: SHARED,
                        name: file.as_os_str().as_encoded_bytes(),
                        ..MapFacts::default()
                    }));
                }
                Err(error) => {
                    unwritten.insert(image.index);
                    failed = Some(format!("{}: {error}", file.display()));
                }
            }
        });
        match read {
            None => failed = Some("it cannot be read, or has times of no clock".to_owned()),
            Some(damage) => failed = failed.or(damage),
        }
        let is_whole = failed.is_none();
        if count > 0 {
            self.injected.insert(map.pid);
        }
        failed.into_iter().for_each(|why| _ = self.missing.insert(path.to_owned(), why));
        is_whole
    }

    /// Notes what is missing.
    pub(super) fn note(&self, ledger: &mut Ledger) {
        for (path, why) in &self.missing {
            let fact = format!("functions of {path} are missing: {why}");
            ledger.note(NoteKind::Unusable, fact, None);
        }
    }
}

/// Writes a file that was not there, or in the place of an older one of the kind: never through a
/// link, and over nothing else.
fn write(path: &Path, image: &JitImage) -> io::Result<()> {
    let Some(elf) = &image.elf else { return Ok(()) };
    match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
        // Its target is somebody's file; the link itself gives way.
        Ok(there) if there.is_symlink() => std::fs::remove_file(path)?,
        Ok(there) if !there.is_file() || !is_elf(path)? => {
            return Err(io::Error::other("something is there that is not an ELF file"));
        }
        Ok(_) => {}
    }
    output_file::write_whole(path, output_file::SHARED, Existing::Replace, |file| {
        file.write_all(elf)
    })
}

fn is_elf(path: &Path) -> io::Result<bool> {
    let mut begin = [0; 4];
    let count = File::open(path)?.read(&mut begin)?;
    // What is empty was being written.
    Ok(count == 0 || begin.get(..count) == Some(b"\x7fELF"))
}
