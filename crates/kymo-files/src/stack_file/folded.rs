//! Folded stacks, as the scripts of FlameGraph write them: `main;work;leaf 123`, the outermost
//! frame first. Marks of frames (`_[k]`, `_[i]` for inlined ones, `_[j]`) are not part of the name.

use rustc_hash::FxHashMap;

use super::{FileFrame, FileStack, StackFile, StackFileError, StackFileFunction};

/// Marks that `stackcollapse-perf.pl --all` appends.
const MARKS: [&str; 3] = ["_[k]", "_[j]", "_[w]"];
const INLINED: &str = "_[i]";

pub(super) fn parse(bytes: &[u8]) -> Result<StackFile, StackFileError> {
    let mut file =
        StackFile { value: "samples".into(), unit: "count".into(), ..StackFile::default() };
    let mut numbers: FxHashMap<Vec<u8>, u32> = FxHashMap::default();
    for (line, number) in bytes.split(|b| *b == b'\n').zip(1..) {
        let line = line.trim_ascii();
        if line.is_empty() {
            continue;
        }
        let (stack, weight) = split_weight(line).ok_or(StackFileError::Folded(number))?;
        let frames = stack.split(|b| *b == b';').rev().filter(|frame| !frame.is_empty());
        let frames: Vec<FileFrame> = frames
            .map(|frame| {
                let (name, is_inlined) = match frame.strip_suffix(INLINED.as_bytes()) {
                    Some(name) => (name, true),
                    None => (without_mark(frame), false),
                };
                let next = file.functions.len() as u32;
                let function = *numbers.entry(name.to_vec()).or_insert_with(|| {
                    let name = String::from_utf8_lossy(name).into_owned();
                    file.functions.push(StackFileFunction { name, binary: String::new() });
                    next
                });
                FileFrame { function, is_inlined }
            })
            .collect();
        let samples = weight.round() as u64;
        file.stacks.push(FileStack { frames, weight, samples });
    }
    if file.stacks.is_empty() { Err(StackFileError::Empty) } else { Ok(file) }
}

/// The frames, and the number at the end of the line.
fn split_weight(line: &[u8]) -> Option<(&[u8], f64)> {
    let space = line.iter().rposition(|b| b.is_ascii_whitespace())?;
    let (stack, weight) = line.split_at_checked(space)?;
    let weight = weight.trim_ascii();
    // What else reads as a number (`inf`, `1e9`) is no weight.
    if !weight.iter().all(|b| b.is_ascii_digit() || *b == b'.') {
        return None;
    }
    let weight = std::str::from_utf8(weight).ok()?.parse::<f64>().ok().filter(|w| w.is_finite())?;
    Some((stack.trim_ascii_end(), weight)).filter(|(stack, _)| !stack.is_empty())
}

fn without_mark(frame: &[u8]) -> &[u8] {
    MARKS.iter().find_map(|mark| frame.strip_suffix(mark.as_bytes())).unwrap_or(frame)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_stacks_with_the_innermost_frame_last() {
        let text = b"main;a b;leaf 12\n\nmain;a b_[i] 0.5\r\nirq_[k] 3\n";
        let file = parse(text).unwrap();
        let names: Vec<&str> = file.functions.iter().map(|f| &*f.name).collect();
        assert_eq!(names, ["leaf", "a b", "main", "irq"]);
        let frame = |function, is_inlined| FileFrame { function, is_inlined };
        let stack = |frames: &[FileFrame], weight, samples| FileStack {
            frames: frames.to_vec(),
            weight,
            samples,
        };
        assert_eq!(
            file.stacks,
            [
                stack(&[frame(0, false), frame(1, false), frame(2, false)], 12.0, 12),
                stack(&[frame(1, true), frame(2, false)], 0.5, 1),
                stack(&[frame(3, false)], 3.0, 3),
            ]
        );
    }

    #[test]
    fn what_is_not_a_folded_stack_is_refused_by_its_line() {
        let endless = format!("a {}\n", "9".repeat(400));
        for (text, line) in [
            (endless.as_bytes(), 1),
            (&b"main;a 1\nnonsense\n"[..], 2),
            (b"main -5\n", 1),
            (b"main inf\n", 1),
            (b" 5\n", 1),
            (b"a 1.2.3\n", 1),
        ] {
            assert_eq!(parse(text), Err(StackFileError::Folded(line)), "{text:?}");
        }
        assert_eq!(parse(b"\n"), Err(StackFileError::Empty));
    }
}
