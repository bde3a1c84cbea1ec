//! temporary
#![allow(clippy::unwrap_used, missing_docs, reason = "x")]
use kymo_symbols::probe::*;
fn main() {
    let a: Vec<String> = std::env::args().collect();
    let files = ProbeFiles::vmlinux(a[1].as_ref()).unwrap();
    let t = std::time::Instant::now();
    let facts = Facts::load(&files).unwrap();
    eprintln!("load {:?}", t.elapsed());
    let s = Settings { no_inlines: false, max_probes: 1000, sources: SourceFolders::default() };
    if a[2] == "--index" {
        let sec = files.sections().unwrap();
        let dw = kymo_debuginfo::dwarf::Dwarf::new(&sec).unwrap();
        let t = std::time::Instant::now();
        let b = dw.build_index();
        eprintln!("index {:?} {} bytes", t.elapsed(), b.len());
        let i = kymo_debuginfo::dwarf::index::Index::open(&b, &sec).unwrap();
        let t = std::time::Instant::now();
        let dw = kymo_debuginfo::dwarf::Dwarf::with_index(&sec, i);
        eprintln!("open {:?} {}", t.elapsed(), dw.units());
        return;
    }
    for d in &a[2..] {
        let t = std::time::Instant::now();
        let d = kymo_debuginfo::probe::Description::parse(d).unwrap();
        match facts.plan(&d, &s) {
            Ok(p) => {
                for d in p.definitions {
                    println!("{d}")
                }
            }
            Err(e) => println!("{e}"),
        }
        eprintln!("plan {:?}", t.elapsed());
    }
}
