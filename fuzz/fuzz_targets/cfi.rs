//! Any bytes as the call frame information of a binary, and a walk by its rules
//! over a stack of any bytes.
#![no_main]

use kymo_model::Endian;
use kymo_unwind::{
    Arch, CfiContext, CfiSections, CfiTable, Code, Registers, Rule, Section, StackWindow, epilogue,
    quick_walk, walk,
};
use libfuzzer_sys::fuzz_target;

struct Any(CfiTable, CfiContext, Rule);

impl Code for Any {
    fn rule(&mut self, address: u64, _interrupted: bool) -> &Rule {
        self.2 = self.0.rule(&mut self.1, address).unwrap_or(Rule::Guess);
        &self.2
    }

    fn is_code(&mut self, _address: u64) -> bool {
        true
    }
}

/// The next part of the input, with its size in the first two bytes.
fn part<'a>(data: &mut &'a [u8]) -> &'a [u8] {
    let Some((size, rest)) = data.split_first_chunk() else { return &[] };
    let (part, rest) = rest.split_at(usize::from(u16::from_le_bytes(*size)).min(rest.len()));
    *data = rest;
    part
}

fuzz_target!(|data: &[u8]| {
    let mut data = data;
    let mut section = || Section { address: 0x1000, bytes: part(&mut data).into() };
    let (eh_frame, eh_frame_hdr, debug_frame) = (section(), section(), section());
    let big_endian = eh_frame.bytes.len() % 2 == 1;
    let sections =
        CfiSections { eh_frame, eh_frame_hdr, debug_frame, big_endian, ..CfiSections::default() };
    let _ = std::hint::black_box(epilogue(data, data));
    for arch in [Arch::X86_64, Arch::Aarch64] {
        let mut code =
            Any(CfiTable::new(arch, sections.clone()), CfiContext::default(), Rule::Nothing);
        let mut registers = Registers::new(arch);
        let words = data.chunks_exact(8).map(|w| u64::from_le_bytes(w.try_into().expect("eight")));
        for (register, value) in (0..33).zip(words.cycle()) {
            registers.set(register, value);
        }
        let stack = StackWindow::new(registers.sp().unwrap_or(0x7000), data, Endian::Little);
        let mut frames = 0;
        let walked = walk(&registers, &stack, &mut code, |_| frames += 1);
        assert!(walked.frames == frames && frames <= 4096, "{walked:?}");
        let quick = quick_walk(&registers, &stack, &mut code, |_| {});
        assert!(quick.is_none_or(|quick| quick == walked), "{quick:?} {walked:?}");
    }
});
