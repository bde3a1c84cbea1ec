//! Any text as a program of bpftrace's language: lexer, parser, lowering, registers. Whatever
//! compiles has instructions whose jumps stay inside, and what compiles for user space runs there
//! to its end, on any record.
#![no_main]

use std::rc::Rc;

use kymo_bpf::{
    ArgumentPlace, AttachPoint, CType, ClockOffsets, CompileOptions, EnumerationFacts,
    FunctionArgument, FunctionFacts, ProgramEvent, ProgramInterpreter, RecordLayout, RecordMember,
    TypeFacts, UserVariable, VARIANT, compile, disassemble,
};
use kymo_format::EventFormat;
use libfuzzer_sys::fuzz_target;

/// Knows one tracepoint and one structure, which points to itself.
struct FewFacts;

const FORMAT: &str = "name: e\nID: 1\nformat:\n\
    \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
    \tfield:char comm[16];\toffset:8;\tsize:16;\tsigned:0;\n\
    \tfield:const char * name;\toffset:24;\tsize:8;\tsigned:0;\n\
    \tfield:__data_loc char[] text;\toffset:32;\tsize:4;\tsigned:0;\n\
    \tfield:int n;\toffset:36;\tsize:4;\tsigned:1;\n";

impl TypeFacts for FewFacts {
    fn expand(&self, point: &AttachPoint) -> Result<Vec<AttachPoint>, String> {
        Ok(vec![point.clone()])
    }

    fn tracepoint_format(&self, _: &str, _: &str) -> Result<Rc<EventFormat>, String> {
        EventFormat::parse(FORMAT).map(Rc::new).map_err(|e| e.to_string())
    }

    fn find_type(&self, name: &str) -> Option<CType> {
        (name == "struct s" || name == "struct task_struct").then_some(CType::Record { id: 0 })
    }

    fn record_layout(&self, id: u32) -> Option<Rc<RecordLayout>> {
        let int = CType::Integer { size: 4, signed: true, is_char: false };
        let this = CType::Pointer { target: Box::new(CType::Record { id }), user: false };
        let member = |name: &str, ctype, bit_offset, bit_size| RecordMember {
            name: name.into(),
            ctype,
            bit_offset,
            bit_size,
        };
        if id == 1 {
            let variant = CType::Enumeration { size: 1, signed: false, id: 0 };
            let members = vec![
                member(VARIANT, variant, 0, None),
                member("One", CType::Record { id: 0 }, 64, None),
            ];
            let name = "v".into();
            return Some(Rc::new(RecordLayout { name, is_union: true, size: 24, members }));
        }
        let members = vec![
            member("a", int.clone(), 0, None),
            member("b", int, 37, Some(5)),
            member("p", this, 64, None),
        ];
        Some(Rc::new(RecordLayout { name: "s".into(), is_union: false, size: 16, members }))
    }

    fn enumerators(&self, _: u32) -> Option<Rc<EnumerationFacts>> {
        let variants = vec![(1, "One".into())];
        let otherwise = Some("Other".into());
        Some(Rc::new(EnumerationFacts { name: "e".into(), variants, otherwise }))
    }

    fn constant(&self, _: &str) -> Option<kymo_bpf::NamedConstant> {
        None
    }

    fn function(&self, point: &AttachPoint) -> Result<Rc<FunctionFacts>, String> {
        let argument = |name: &str| self.variable(point, name).map(|found| found.argument);
        let arguments = vec![argument("n")?, argument("p")?];
        let returns = CType::Integer { size: 4, signed: true, is_char: false };
        Ok(Rc::new(FunctionFacts { arguments, returns }))
    }

    /// Numbers, texts, records and arrays, in registers, in memory and in pieces.
    fn variable(&self, _: &AttachPoint, name: &str) -> Result<UserVariable, String> {
        let word = |reads: Vec<i64>, add, is_address| ArgumentPlace::Computed {
            register: "di".into(),
            reads,
            add,
            is_address,
        };
        let char_type = CType::Integer { size: 1, signed: true, is_char: true };
        let pieces = |bytes: &[u32]| {
            ArgumentPlace::Pieces(bytes.iter().map(|n| (*n, word(vec![8], 4, *n == 16))).collect())
        };
        let text = CType::Text { size: 24, data: 8, length: 16 };
        let pointer = |target| CType::Pointer { target: Box::new(target), user: true };
        let text_type = || text.clone();
        let (ctype, place) = match name {
            "n" => {
                (CType::Integer { size: 2, signed: true, is_char: false }, word(vec![], 0, false))
            }
            "p" => (pointer(CType::Record { id: 0 }), word(vec![-8, 16], 1, true)),
            "t" => (text_type(), pieces(&[8, 8, 8])),
            "m" => (text_type(), word(vec![], -24, true)),
            "r" => (pointer(text_type()), word(vec![], 0, false)),
            "s" => (CType::Record { id: 0 }, pieces(&[16])),
            "a" => (CType::Array { element: Box::new(char_type), count: 12 }, pieces(&[4, 8])),
            "v" => (CType::Record { id: 1 }, word(vec![], 0, true)),
            "c" => {
                (CType::Enumeration { size: 1, signed: false, id: 0 }, ArgumentPlace::Constant(1))
            }
            "big" => (
                CType::Array { element: Box::new(text_type()), count: u32::MAX },
                pieces(&[u32::MAX]),
            ),
            _ => return Err("no such variable".into()),
        };
        let argument = FunctionArgument { name: name.into(), ctype, place };
        Ok(UserVariable { argument, address: 64 })
    }

    fn kernel_symbol(&self, _: &str) -> Option<u64> {
        Some(1 << 63)
    }

    fn user_symbol(&self, _: &str, _: &str) -> Option<(u64, u64)> {
        None
    }

    fn cgroup_id(&self, _: &str) -> Option<u64> {
        None
    }

    fn included_text(&self, _: &str) -> Option<String> {
        None
    }
}

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    run_in_user_space(text);
    let Ok(program) = compile(text, &CompileOptions::default(), &FewFacts) else { return };
    for probe in &program.probes {
        let count = probe.instructions.len() as i64;
        for (at, instruction) in probe.instructions.iter().enumerate() {
            let jumps =
                matches!(instruction.code & 7, 5) && !matches!(instruction.code, 0x85 | 0x95);
            let target = at as i64 + 1 + i64::from(instruction.off);
            assert!(!jumps || (0..count).contains(&target), "jump out of the program");
        }
        std::hint::black_box(disassemble(&program, probe, text));
    }
});

fn run_in_user_space(text: &str) {
    let options =
        CompileOptions { in_user_space: true, raw_tracepoints: false, ..CompileOptions::default() };
    let Ok(program) = compile(text, &options, &FewFacts) else { return };
    let mut interpreter = ProgramInterpreter::new(&program, ClockOffsets::default());
    let chain = [-128i64 as u64, 1, 2, -512i64 as u64, 3];
    // The text is the record, too: its data_loc leads anywhere.
    for record in [text.as_bytes(), &[0; 64], &[]] {
        let event = ProgramEvent { record, comm: b"task", chain: &chain, ..Default::default() };
        // Each may run as long as a run may.
        for probe in 0..program.probes.len().min(3) {
            interpreter.run(probe, &event);
        }
    }
    for map in 0..program.maps.len() {
        std::hint::black_box(interpreter.entries(map));
    }
}
