//! Values of DWARF expressions in call frame information: stacks realigned by
//! the compiler, the procedure linkage table, signal frames.

use gimli::{
    Encoding, EndianSlice, Evaluation, EvaluationResult, Format, LittleEndian, Location, Value,
};

use crate::registers::Registers;

use crate::stack::{Failed, StackWindow, load};

const ENCODING: Encoding = Encoding { format: Format::Dwarf32, version: 4, address_size: 8 };
/// Operations; a frame's place takes ten or so.
const MOST_STEPS: u32 = 1000;

/// The value of an expression that starts with `initial` on its stack.
pub(crate) fn value(
    bytes: &[u8],
    initial: Option<u64>,
    here: &Registers,
    stack: &StackWindow<'_>,
) -> Result<u64, Failed> {
    let mut evaluation = Evaluation::new(EndianSlice::new(bytes, LittleEndian), ENCODING);
    evaluation.set_max_iterations(MOST_STEPS);
    if let Some(initial) = initial {
        evaluation.set_initial_value(initial);
    }
    let broken = |_| Failed::Expression;
    let mut state = evaluation.evaluate().map_err(broken)?;
    loop {
        state = match state {
            EvaluationResult::Complete => break,
            EvaluationResult::RequiresRegister { register, .. } => {
                let value = here.get(register.0).ok_or(Failed::Unknown)?;
                evaluation.resume_with_register(Value::Generic(value))
            }
            EvaluationResult::RequiresMemory { address, size: 8, .. } => {
                evaluation.resume_with_memory(Value::Generic(load(stack, address)?))
            }
            _ => return Err(Failed::Expression),
        }
        .map_err(broken)?;
    }
    match evaluation.as_result() {
        [piece] => match piece.location {
            Location::Address { address } => Ok(address),
            Location::Value { value } => value.to_u64(u64::MAX).map_err(broken),
            _ => Err(Failed::Expression),
        },
        _ => Err(Failed::Expression),
    }
}
