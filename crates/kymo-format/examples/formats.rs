//! Parses every `format` file below a tracefs `events` directory and says which
//! events cannot be rendered exactly as the kernel does.
use std::path::Path;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let root = std::env::args().nth(1).unwrap_or_else(|| "/sys/kernel/tracing/events".into());
    let (mut events, mut inexact) = (0, 0);
    for system in std::fs::read_dir(Path::new(&root))? {
        let Ok(entries) = std::fs::read_dir(system?.path()) else { continue };
        for event in entries {
            let path = event?.path().join("format");
            let Ok(text) = std::fs::read_to_string(&path) else { continue };
            events += 1;
            match kymo_format::EventFormat::parse(&text) {
                Ok(f) if f.fallbacks().is_empty() => {}
                Ok(f) => {
                    inexact += 1;
                    println!("{}: {}", f.name, f.fallbacks().join("; "));
                }
                Err(e) => {
                    inexact += 1;
                    println!("{}: {e}", path.display());
                }
            }
        }
    }
    println!("{events} formats, {inexact} not exact");
    Ok(())
}
