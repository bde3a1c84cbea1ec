//! Arguments of USDT probes, as the assembler wrote them (`-4@%edi`), → fetch
//! arguments.

use kymo_model::probe::{Dereference, FetchArg, FetchBase, FetchExpr, FetchType};

/// The fetch argument of a name for an argument, or why there is none, to follow the argument's
/// name. `distance` returns the bytes from the probe to a global variable.
pub fn usdt_fetch_arg(
    name: &str,
    text: &str,
    distance: &dyn Fn(&str) -> Option<i64>,
) -> Result<FetchArg, String> {
    let (size, operand) = match text.split_once('@') {
        Some((size, operand)) => (size, operand),
        None => ("", text),
    };
    let fetch_type = match size {
        "" => None,
        "1" => Some(FetchType::unsigned(8)),
        "2" => Some(FetchType::unsigned(16)),
        "4" => Some(FetchType::unsigned(32)),
        "8" => Some(FetchType::unsigned(64)),
        "-1" => Some(FetchType::signed(8)),
        "-2" => Some(FetchType::signed(16)),
        "-4" => Some(FetchType::signed(32)),
        "-8" => Some(FetchType::signed(64)),
        // Floating point: the bits are given.
        "4f" => Some(FetchType::hexadecimal(32)),
        "8f" => Some(FetchType::hexadecimal(64)),
        other => return Err(format!("has size {other:?}")),
    };
    let expr = operand_expr(operand, distance).ok_or_else(|| match global(operand) {
        Some((variable, _)) => {
            format!("is {operand}, and the symbols do not have the address of {variable}")
        }
        None => format!("is {operand}, a location that is not supported"),
    })?;
    Ok(FetchArg { name: Some(name.to_owned()), expr, fetch_type })
}

/// Name and further bytes of a global variable: `name(%rip)`, `name+8(%rip)`, `8+name(%rip)`.
fn global(operand: &str) -> Option<(&str, i64)> {
    let text = operand.strip_suffix("(%rip)")?;
    let leading = text.split_once('+').and_then(|(n, rest)| Some((signed(n)?, rest)));
    let (before, text) = leading.unwrap_or((0, text));
    let (name, more) = text.split_at(text.find(['+', '-']).unwrap_or(text.len()));
    let after = if more.is_empty() { 0 } else { signed(more)? };
    let is_name = name.starts_with(|c: char| !c.is_ascii_digit());
    is_name.then(|| (name, before.wrapping_add(after)))
}

fn operand_expr(operand: &str, distance: &dyn Fn(&str) -> Option<i64>) -> Option<FetchExpr> {
    if let Some((name, more)) = global(operand) {
        // The instruction pointer is that of the probe, wherever the binary is mapped.
        let offset = distance(name)?.wrapping_add(more);
        return Some(FetchExpr {
            base: FetchBase::Register("%ip".to_owned()),
            dereferences: vec![Dereference { offset, user: false }],
        });
    }
    if let Some(number) = operand.strip_prefix('$') {
        return Some(FetchExpr::from_base(FetchBase::Immediate(signed(number)?)));
    }
    if let Some(name) = operand.strip_prefix('%') {
        return Some(FetchExpr::from_base(FetchBase::Register(register(name)?)));
    }
    if let Some(inner) = operand.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        let (base, offset) = inner.split_once(',').unwrap_or((inner, "0"));
        let offset = signed(offset.trim().trim_start_matches('#'))?;
        return Some(FetchExpr {
            base: FetchBase::Register(aarch64_register(base.trim())?),
            dereferences: vec![Dereference { offset, user: false }],
        });
    }
    if let Some(register) = aarch64_register(operand) {
        return Some(FetchExpr::from_base(FetchBase::Register(register)));
    }
    if let Some(number) = signed(operand) {
        return Some(FetchExpr::from_base(FetchBase::Immediate(number)));
    }
    let open = operand.find('(')?;
    let inner = operand.get(open + 1..)?.strip_suffix(')')?;
    let base = register(inner.strip_prefix('%')?)?;
    let offset = match operand.get(..open)? {
        "" => 0,
        text => signed(text)?,
    };
    Some(FetchExpr {
        base: FetchBase::Register(base),
        dereferences: vec![Dereference { offset, user: false }],
    })
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

/// AArch64's have no mark: `x7` and `w7`, its lower half, are the kernel's `%x7`.
fn aarch64_register(name: &str) -> Option<String> {
    let digits = match name {
        "sp" => return Some("%sp".to_owned()),
        _ => name.strip_prefix(['x', 'w'])?,
    };
    let number: u8 = digits.parse().ok()?;
    (number < 31).then(|| format!("%x{number}"))
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
        let distance = |name: &str| (name == "counter").then_some(4096);
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
            // AArch64's.
            ("8@x0", "arg1=%x0:u64"),
            ("-4@w19", "arg1=%x19:s32"),
            ("8@[x29,-24]", "arg1=-24(%x29):u64"),
            ("-4@[sp, 12]", "arg1=+12(%sp):s32"),
            ("8@[x3]", "arg1=+0(%x3):u64"),
            ("-4@-7", "arg1=\\-7:s32"),
            // Global variables.
            ("4@counter(%rip)", "arg1=+4096(%ip):u32"),
            ("-2@counter+8(%rip)", "arg1=+4104(%ip):s16"),
            ("-8@8+counter(%rip)", "arg1=+4104(%ip):s64"),
            ("8@counter-4097(%rip)", "arg1=-1(%ip):u64"),
        ] {
            let found = usdt_fetch_arg("arg1", text, &distance).unwrap();
            assert_eq!(found.to_string(), expected, "{text}");
        }
        for text in [
            "4@other(%rip)",
            "4@counter@GOTPCREL(%rip)",
            "4@8(%rip)",
            "8@(%rax,%rbx,8)",
            "8@%xmm0",
            "3@%eax",
            "8@",
            "8@x31",
            "8@[x0,x1]",
            "8@d0",
        ] {
            assert!(usdt_fetch_arg("arg1", text, &distance).is_err(), "{text}");
        }
    }
}
