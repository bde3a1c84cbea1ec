//! Answers like `addr2line -f -i -a -e FILE @ADDRESSES`, with this project's reader of
//! debugging information or with gimli's `addr2line` crate: what `cargo xtask bench`
//! compares.
//!
//! ```text
//! addresses kymo|gimli FILE ADDRESSES
//! ```

use std::error::Error;
use std::io::{self, Write};
use std::path::Path;

use kymo_debuginfo::dwarf::inlines::Inlines;
use kymo_debuginfo::dwarf::{Pages, Sections};
use kymo_kernel::mapped::MappedFile;

struct Mapped(MappedFile);

impl Pages for Mapped {
    fn forget(&self, part: &[u8]) {
        self.0.forget(part);
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [reader, file, addresses] = args.as_slice() else {
        return Err("usage: addresses kymo|gimli FILE ADDRESSES".into());
    };
    let text = std::fs::read_to_string(addresses)?;
    let parse = |l: &str| u64::from_str_radix(l.trim().trim_start_matches("0x"), 16);
    let mut addresses = text.lines().map(parse).collect::<Result<Vec<u64>, _>>()?;
    let mut out = io::BufWriter::new(io::stdout().lock());
    match reader.as_str() {
        "kymo" => {
            addresses.sort_unstable();
            kymo(Path::new(file), &addresses, &mut out)?;
        }
        "gimli" => gimli(Path::new(file), &addresses, &mut out)?,
        other => return Err(format!("{other} is neither kymo nor gimli").into()),
    }
    out.flush()?;
    Ok(())
}

fn known(text: &str) -> &str {
    if text.is_empty() { "??" } else { text }
}

fn kymo(file: &Path, addresses: &[u64], out: &mut impl Write) -> Result<(), Box<dyn Error>> {
    let map = Mapped(MappedFile::open(file)?);
    let mut sections = Sections::load(map.0.bytes(), None)?;
    sections.pages = Some(&map);
    let answers = Inlines::new(&sections).resolve(addresses);
    for (place, address) in addresses.iter().enumerate() {
        writeln!(out, "{address:#018x}")?;
        let frames = answers.frames(place);
        if frames.is_empty() {
            writeln!(out, "??\n??:0")?;
        }
        for f in frames {
            let (function, file) = (answers.text(f.function), answers.text(f.file));
            writeln!(out, "{}\n{}:{}", known(function), known(file), f.line)?;
        }
    }
    Ok(())
}

fn gimli(file: &Path, addresses: &[u64], out: &mut impl Write) -> Result<(), Box<dyn Error>> {
    let loader = addr2line::Loader::new(file)?;
    for address in addresses {
        writeln!(out, "{address:#018x}")?;
        let mut frames = loader.find_frames(*address)?;
        let mut any = false;
        while let Some(frame) = frames.next()? {
            any = true;
            let function = frame.function.as_ref().and_then(|f| f.raw_name().ok());
            let place = frame.location.as_ref();
            let file = place.and_then(|l| l.file).unwrap_or_default();
            let line = place.and_then(|l| l.line).unwrap_or(0);
            writeln!(out, "{}\n{}:{line}", known(function.as_deref().unwrap_or("")), known(file))?;
        }
        if !any {
            writeln!(out, "??\n??:0")?;
        }
    }
    Ok(())
}
