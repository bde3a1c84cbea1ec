//! Static markers (`sys/sdt.h`): notes of the name `stapsdt` that say where a
//! marker is, what it is called and where its arguments are at that place.

use object::read::elf::NoteIterator;
use object::read::{Object, ObjectSection};
use object::{Endianness, elf};

use crate::dwarf::DwarfError;
use crate::probe::{Base, Deref, Fetch, FetchArg};

/// A marker at one place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Marker {
    /// Provider.
    pub provider: String,
    /// Name.
    pub name: String,
    /// Address.
    pub addr: u64,
    /// Address of the counter of its users, which must be raised to arm it.
    pub semaphore: Option<u64>,
    /// Its arguments as the assembler wrote them: `-4@%edi`.
    pub args: Vec<String>,
}

/// Markers that a binary has more of than these are not real.
const LIMIT: usize = 1 << 20;

/// All markers of a binary.
pub fn markers(bytes: &[u8]) -> Result<Vec<Marker>, DwarfError> {
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
        found.extend(marker(note.desc(), base, endian));
    }
    Ok(found)
}

fn marker(desc: &[u8], base: Option<u64>, endian: Endianness) -> Option<Marker> {
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
    Some(Marker {
        provider,
        name,
        addr: pc.wrapping_add(moved),
        semaphore: (semaphore != 0).then(|| semaphore.wrapping_add(moved)),
        args: split_args(&args),
    })
}

/// Arguments are separated by blanks, of which operands have none outside of
/// parentheses.
fn split_args(text: &str) -> Vec<String> {
    let mut args: Vec<String> = Vec::new();
    for word in text.split_ascii_whitespace() {
        match args.last_mut() {
            Some(last) if last.matches('(').count() > last.matches(')').count() => {
                last.push_str(word)
            }
            _ => args.push(word.to_owned()),
        }
    }
    args
}

/// The fetch argument for argument `number` (from 1), or why there is none.
pub fn fetch_arg(number: usize, text: &str, given_name: Option<&str>) -> Result<FetchArg, String> {
    let (size, operand) = match text.split_once('@') {
        Some((size, operand)) => (size, operand),
        None => ("", text),
    };
    let kind = match size {
        "" => None,
        "1" | "2" | "4" | "8" => Some(format!("u{}", size.parse::<u32>().unwrap_or(8) * 8)),
        "-1" | "-2" | "-4" | "-8" => {
            Some(format!("s{}", size[1..].parse::<u32>().unwrap_or(8) * 8))
        }
        // Floating point: the bits are given.
        "4f" => Some("x32".into()),
        "8f" => Some("x64".into()),
        other => return Err(format!("argument {number} has size {other:?}")),
    };
    let fetch = operand_fetch(operand).ok_or_else(|| {
        format!("argument {number} is {operand}, which fetch arguments cannot express")
    })?;
    let name = given_name.map_or_else(|| format!("arg{number}"), str::to_owned);
    Ok(FetchArg { name: Some(name), fetch, kind })
}

fn operand_fetch(operand: &str) -> Option<Fetch> {
    if let Some(number) = operand.strip_prefix('$') {
        return Some(Fetch::of(Base::Immediate(signed(number)?)));
    }
    if let Some(name) = operand.strip_prefix('%') {
        return Some(Fetch::of(Base::Register(register(name)?)));
    }
    let open = operand.find('(')?;
    let inner = operand.get(open + 1..)?.strip_suffix(')')?;
    let base = register(inner.strip_prefix('%')?)?;
    let offset = match operand.get(..open)? {
        "" => 0,
        text => signed(text)?,
    };
    Some(Fetch { base: Base::Register(base), derefs: vec![Deref { offset, user: false }] })
}

fn signed(text: &str) -> Option<i64> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let value = match digits.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok()?,
        None => digits.parse().ok()?,
    } as i64;
    Some(if negative { value.wrapping_neg() } else { value })
}

/// Assembler names → the kernel's: `%edi`, `%dil`, `%rdi` are all `%di`.
fn register(name: &str) -> Option<String> {
    const PLAIN: [&str; 8] = ["ax", "bx", "cx", "dx", "si", "di", "bp", "sp"];
    let stem = name.strip_prefix(['r', 'e']).unwrap_or(name);
    if PLAIN.contains(&stem) {
        return Some(format!("%{stem}"));
    }
    let low = name.strip_suffix('l').unwrap_or(name);
    if let Some(letter) = low.strip_suffix(|_: char| false).or(Some(low))
        && let Some(full) = PLAIN.iter().find(|p| {
            **p == letter || (letter.len() == 1 && p.starts_with(letter) && p.ends_with('x'))
        })
    {
        return Some(format!("%{full}"));
    }
    let digits = name.strip_prefix('r')?.trim_end_matches(['d', 'w', 'b']);
    let number: u8 = digits.parse().ok()?;
    (8..16).contains(&number).then(|| format!("%r{number}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operands_become_fetch_arguments() {
        for (text, expected) in [
            ("-4@%edi", "arg1=%di:s32"),
            ("8@%rax", "arg1=%ax:u64"),
            ("1@%al", "arg1=%ax:u8"),
            ("1@%dil", "arg1=%di:u8"),
            ("2@%r10w", "arg1=%r10:u16"),
            ("-8@$-5", "arg1=\\-5:s64"),
            ("8@-24(%rbp)", "arg1=-24(%bp):u64"),
            ("4@(%rsp)", "arg1=+0(%sp):u32"),
            ("-4@16(%r12)", "arg1=+16(%r12):s32"),
        ] {
            assert_eq!(fetch_arg(1, text, None).unwrap().to_string(), expected, "{text}");
        }
        for text in ["4@counter(%rip)", "8@(%rax,%rbx,8)", "8@%xmm0", "3@%eax", "8@"] {
            assert!(fetch_arg(1, text, None).is_err(), "{text}");
        }
        assert_eq!(split_args("8@(%rax, %rbx) -4@$1"), ["8@(%rax,%rbx)", "-4@$1"]);
    }
}
