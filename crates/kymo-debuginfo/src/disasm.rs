//! Code as text, laid out as `objdump -d` does it. x86-64 only.

use std::fmt::Write as _;

use iced_x86::{
    Code, Decoder, DecoderOptions, FlowControl, Formatter, GasFormatter, Instruction,
    IntelFormatter, MemorySizeOptions, Mnemonic, OpKind, Register,
};

/// Syntax of operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Syntax {
    /// `mov %rsp,%rbp`: source first.
    Att,
    /// `mov rbp,rsp`: destination first.
    Intel,
}

/// Control flow after an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// To the next one.
    Next,
    /// Perhaps or always to this address of the same program.
    Jump(u64),
    /// Through a function at this address, if that is stated.
    Call(Option<u64>),
    /// Nowhere that is known.
    Away,
}

/// An instruction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListingLine {
    /// Address.
    pub addr: u64,
    /// Its bytes.
    pub len: u8,
    /// Control flow after it.
    pub flow: Flow,
    /// As text; `(bad)` where the bytes are no instruction.
    pub text: String,
}

/// Names addresses that instructions refer to.
pub trait Names {
    /// The name of what is there, and the distance from its beginning.
    fn name(&self, addr: u64) -> Option<(String, u64)>;
}

/// Longer functions are cut here: no reader needs more.
pub const LONGEST: usize = 1 << 20;

/// Disassembles `code`, which begins at the address `start`.
pub fn disassemble(code: &[u8], start: u64, syntax: Syntax, names: &dyn Names) -> Vec<ListingLine> {
    let code = code.get(..code.len().min(LONGEST)).unwrap_or(code);
    let mut decoder = Decoder::with_ip(64, code, start, DecoderOptions::NONE);
    let mut formatter = formatter(syntax);
    let mut instruction = Instruction::default();
    let mut lines = Vec::new();
    while decoder.can_decode() {
        let at = decoder.position();
        decoder.decode_out(&mut instruction);
        if instruction.is_invalid() {
            lines.push(ListingLine {
                addr: instruction.ip(),
                len: 1,
                flow: Flow::Next,
                text: "(bad)".to_string(),
            });
            // What follows the first byte may be code again.
            let next = at + 1;
            if decoder.set_position(next).is_err() {
                break;
            }
            decoder.set_ip(start + next as u64);
            continue;
        }
        let bytes = code.get(at..).unwrap_or_default();
        lines.push(ListingLine {
            addr: instruction.ip(),
            len: instruction.len() as u8,
            flow: flow(&instruction),
            text: text(&instruction, bytes, syntax, &mut *formatter, names),
        });
    }
    lines
}

fn formatter(syntax: Syntax) -> Box<dyn Formatter> {
    let mut formatter: Box<dyn Formatter> = match syntax {
        Syntax::Att => Box::new(GasFormatter::new()),
        Syntax::Intel => Box::new(IntelFormatter::new()),
    };
    let o = formatter.options_mut();
    o.set_uppercase_hex(false);
    o.set_hex_prefix("0x");
    o.set_hex_suffix("");
    o.set_space_after_operand_separator(false);
    o.set_space_between_memory_add_operators(false);
    o.set_space_between_memory_mul_operators(false);
    o.set_small_hex_numbers_in_decimal(false);
    o.set_rip_relative_addresses(true);
    o.set_signed_immediate_operands(false);
    o.set_branch_leading_zeros(false);
    o.set_displacement_leading_zeros(false);
    o.set_leading_zeros(false);
    o.set_first_operand_char_index(7);
    o.set_gas_space_after_memory_operand_comma(false);
    o.set_show_zero_displacements(true);
    o.set_show_useless_prefixes(true);
    if syntax == Syntax::Intel {
        o.set_always_show_scale(true);
        o.set_uppercase_keywords(true);
        o.set_memory_size_options(MemorySizeOptions::Always);
    }
    formatter
}

fn flow(i: &Instruction) -> Flow {
    let near =
        matches!(i.op0_kind(), OpKind::NearBranch16 | OpKind::NearBranch32 | OpKind::NearBranch64);
    let target = i.near_branch_target();
    match i.flow_control() {
        FlowControl::Call | FlowControl::IndirectCall => Flow::Call(near.then_some(target)),
        FlowControl::UnconditionalBranch
        | FlowControl::ConditionalBranch
        | FlowControl::XbeginXabortXend
            if near =>
        {
            Flow::Jump(target)
        }
        FlowControl::UnconditionalBranch | FlowControl::IndirectBranch | FlowControl::Return => {
            Flow::Away
        }
        _ => Flow::Next,
    }
}

fn text(
    i: &Instruction,
    code: &[u8],
    syntax: Syntax,
    formatter: &mut dyn Formatter,
    names: &dyn Names,
) -> String {
    let mut text = String::new();
    let place = |out: &mut String, addr: u64| {
        let _ = write!(out, "{addr:x}");
        match names.name(addr) {
            Some((name, 0)) => write!(out, " <{name}>"),
            Some((name, offset)) => write!(out, " <{name}+{offset:#x}>"),
            None => Ok(()),
        }
    };
    match flow(i) {
        Flow::Jump(target) | Flow::Call(Some(target)) => {
            // Linkers stretch calls that they made direct.
            if code.first() == Some(&0x67) {
                text.push_str("addr32 ");
            }
            formatter.format_mnemonic(i, &mut text);
            let width = text.len().max(6) + 1;
            let _ = write!(text, "{:1$}", "", width - text.len());
            let _ = place(&mut text, target);
        }
        _ => {
            formatter.format(i, &mut text);
            as_objdump(i, code, syntax, &mut text);
            if i.is_ip_rel_memory_operand() {
                text.push_str("        # ");
                let _ = place(&mut text, i.ip_rel_memory_address());
            }
        }
    }
    text
}

/// Corrections where objdump prints more than the formatter, or less.
fn as_objdump(i: &Instruction, code: &[u8], syntax: Syntax, text: &mut String) {
    // Prefixes that mean nothing fill up space.
    let prefix = |b: &&u8| matches!(b, 0x26 | 0x2e | 0x36 | 0x3e | 0x64..=0x67);
    let prefixes = || code.iter().take_while(prefix);
    let count = |wanted: u8| prefixes().filter(|b| **b == wanted).count();
    if i.mnemonic() == Mnemonic::Nop && i.op_count() == 1 {
        let mut front = "data16 ".repeat(count(0x66).max(1) - 1);
        for (register, name) in [("%cs:", "cs "), ("cs:", "cs "), ("%ds:", "ds "), ("ds:", "ds ")] {
            if text.contains(register) {
                *text = text.replacen(register, "", 1);
                front.push_str(name);
            }
        }
        text.insert_str(0, &front);
    }
    // Linkers stretch accesses to thread-local data, which are of 64 bits anyway.
    if i.code() == Code::Mov_r64_rm64 {
        text.insert_str(0, &"data16 ".repeat(count(0x66)));
    }
    match syntax {
        Syntax::Att => as_gnu(i, text),
        Syntax::Intel => as_intel(i, text),
    }
}

fn as_gnu(i: &Instruction, text: &mut String) {
    // An index without a scale has the scale 1.
    if i.memory_index() != Register::None
        && i.memory_index_scale() == 1
        && let Some(open) = text.find("(%").or_else(|| text.find("(,"))
        && let Some(close) = text.get(open..).and_then(|t| t.find(')'))
        && text.get(open..open + close).is_some_and(|t| t.matches(',').count() == 1)
    {
        text.insert_str(open + close, ",1");
    }
    match i.mnemonic() {
        // Sizes that cannot be other ones.
        Mnemonic::Call | Mnemonic::Jmp | Mnemonic::Push | Mnemonic::Pop => {
            for word in ["call", "jmp", "push", "pop"] {
                let long = format!("{word}q ");
                if let Some(at) = text.find(&long) {
                    let rest = text.split_off(at + long.len());
                    text.truncate(at);
                    let _ = write!(text, "{word:<6} {}", rest.trim_start());
                }
            }
        }
        // The two that these are about unless others are named.
        Mnemonic::Faddp
        | Mnemonic::Fmulp
        | Mnemonic::Fsubp
        | Mnemonic::Fsubrp
        | Mnemonic::Fdivp
        | Mnemonic::Fdivrp
            if !text.contains('%') =>
        {
            *text = format!("{:<6} %st,%st(1)", text.trim_end());
        }
        Mnemonic::Fxch if !text.contains('%') => *text = "fxch   %st(1)".to_string(),
        Mnemonic::Ret => *text = text.replacen("rep ret", "repz ret", 1),
        _ if shifts_by_one(i) => *text = text.replacen("$0x1,", "", 1),
        Mnemonic::Imul if hides_register(i) => {
            if let Some(register) = text.rsplit(',').next().map(str::to_owned) {
                let _ = write!(text, ",{register}");
            }
        }
        _ if i.is_string_instruction() => {
            *text = text.replacen("(%rsi)", "%ds:(%rsi)", 1).replacen("(%rdi)", "%es:(%rdi)", 1);
        }
        _ => {}
    }
}

fn as_intel(i: &Instruction, text: &mut String) {
    match i.mnemonic() {
        Mnemonic::Mov if i.code() == Code::Mov_r64_imm64 => {
            *text = text.replacen("mov    ", "movabs ", 1);
        }
        _ if shifts_by_one(i) => *text = text.replacen(",0x1", ",1", 1),
        Mnemonic::Imul if hides_register(i) => {
            if let Some((head, immediate)) = text.clone().rsplit_once(',') {
                let register = head.rsplit(' ').next().unwrap_or_default();
                *text = format!("{head},{register},{immediate}");
            }
        }
        _ => {}
    }
    // An address alone has no brackets, but a segment.
    let alone = i.memory_base() == Register::None && i.memory_index() == Register::None;
    if alone
        && !i.is_ip_rel_memory_operand()
        && let Some((front, back)) = text.clone().split_once("[0x")
        && let Some((address, back)) = back.split_once(']')
    {
        let segment = if front.ends_with(':') { "" } else { "ds:" };
        *text = format!("{front}{segment}0x{address}{back}");
    }
}

/// The form of a shift that has no byte with the count.
fn shifts_by_one(i: &Instruction) -> bool {
    let shift = matches!(
        i.mnemonic(),
        Mnemonic::Shl
            | Mnemonic::Shr
            | Mnemonic::Sar
            | Mnemonic::Rol
            | Mnemonic::Ror
            | Mnemonic::Rcl
            | Mnemonic::Rcr
    );
    shift && i.op1_kind() == OpKind::Immediate8 && !has_immediate(i)
}

/// The formatter writes a multiplication of a register into itself with two operands.
fn hides_register(i: &Instruction) -> bool {
    i.op_count() == 3 && i.op1_kind() == OpKind::Register && i.op0_register() == i.op1_register()
}

/// Opcodes C0 and C1 hold the count in a byte, D0 and D1 are one.
fn has_immediate(i: &Instruction) -> bool {
    !matches!(
        i.code(),
        Code::Rol_rm8_1
            | Code::Rol_rm16_1
            | Code::Rol_rm32_1
            | Code::Rol_rm64_1
            | Code::Ror_rm8_1
            | Code::Ror_rm16_1
            | Code::Ror_rm32_1
            | Code::Ror_rm64_1
            | Code::Rcl_rm8_1
            | Code::Rcl_rm16_1
            | Code::Rcl_rm32_1
            | Code::Rcl_rm64_1
            | Code::Rcr_rm8_1
            | Code::Rcr_rm16_1
            | Code::Rcr_rm32_1
            | Code::Rcr_rm64_1
            | Code::Shl_rm8_1
            | Code::Shl_rm16_1
            | Code::Shl_rm32_1
            | Code::Shl_rm64_1
            | Code::Shr_rm8_1
            | Code::Shr_rm16_1
            | Code::Shr_rm32_1
            | Code::Shr_rm64_1
            | Code::Sar_rm8_1
            | Code::Sar_rm16_1
            | Code::Sar_rm32_1
            | Code::Sar_rm64_1
    )
}
