//! USDT probes (SystemTap's `sys/sdt.h`): ELF notes of the name `stapsdt` that state
//! where a probe is, its name and where its arguments are at that point.

use object::read::elf::NoteIterator;
use object::read::{Object, ObjectSection};
use object::{Endianness, elf};

use crate::dwarf::DwarfError;

/// A USDT probe at one address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsdtNote {
    /// Provider.
    pub provider: String,
    /// Name.
    pub name: String,
    /// Address.
    pub addr: u64,
    /// Address of its semaphore, the counter of its users that arms it.
    pub semaphore: Option<u64>,
    /// Its arguments as the assembler wrote them: `-4@%edi`.
    pub args: Vec<String>,
}

/// More USDT probes than these are not real.
const LIMIT: usize = 1 << 20;

/// All USDT probes of a binary.
pub fn usdt_notes(bytes: &[u8]) -> Result<Vec<UsdtNote>, DwarfError> {
    let file = object::File::parse(bytes)?;
    let mut found = Vec::new();
    let Some(section) = file.section_by_name(".note.stapsdt") else { return Ok(found) };
    let base = file.section_by_name(".stapsdt.base").map(|s| s.address());
    let data = section.data()?;
    let endian = if file.is_little_endian() { Endianness::Little } else { Endianness::Big };
    let mut notes = NoteIterator::<elf::FileHeader64<Endianness>>::new(endian, 4, data)?;
    while let Some(note) = notes.next()? {
        if note.name() != b"stapsdt" || note.n_type(endian).0 != 3 || found.len() >= LIMIT {
            continue;
        }
        found.extend(usdt_note(note.desc(), base, endian));
    }
    Ok(found)
}

fn usdt_note(desc: &[u8], base: Option<u64>, endian: Endianness) -> Option<UsdtNote> {
    let word = |i: usize| {
        let bytes: [u8; 8] = desc.get(i * 8..i * 8 + 8)?.try_into().ok()?;
        Some(if endian == Endianness::Little {
            u64::from_le_bytes(bytes)
        } else {
            u64::from_be_bytes(bytes)
        })
    };
    let (pc, stated_base, semaphore) = (word(0)?, word(1)?, word(2)?);
    // A linker that moves code moves the base section with it.
    let moved = base.map_or(0, |b| b.wrapping_sub(stated_base));
    let mut texts =
        desc.get(24..)?.split(|b| *b == 0).map(|t| String::from_utf8_lossy(t).into_owned());
    let (provider, name) = (texts.next()?, texts.next()?);
    let args = texts.next().unwrap_or_default();
    Some(UsdtNote {
        provider,
        name,
        addr: pc.wrapping_add(moved),
        semaphore: (semaphore != 0).then(|| semaphore.wrapping_add(moved)),
        args: split_args(&args),
    })
}

/// Arguments are separated by blanks, of which operands have none outside of
/// parentheses, and brackets on AArch64.
fn split_args(text: &str) -> Vec<String> {
    let mut args: Vec<String> = Vec::new();
    for word in text.split_ascii_whitespace() {
        match args.last_mut() {
            Some(last) if last.matches(['(', '[']).count() > last.matches([')', ']']).count() => {
                last.push_str(word)
            }
            _ => args.push(word.to_owned()),
        }
    }
    args
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operands_may_hold_blanks() {
        assert_eq!(split_args("8@(%rax, %rbx) -4@$1"), ["8@(%rax,%rbx)", "-4@$1"]);
        assert_eq!(split_args("8@[x0, 16] -4@w1"), ["8@[x0,16]", "-4@w1"]);
    }
}
