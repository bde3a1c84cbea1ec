//! bpftrace's language to BPF instructions.
//!
//! A program's text goes through lexer, parser and lowering, which types it and emits instructions
//! on virtual registers; registers are allocated, and what comes out ([`CompiledProgram`]) is plain
//! data for the loader. Facts about the machine come from [`TypeFacts`]. Nothing here does I/O; any
//! text may come in.
#![forbid(unsafe_code)]

mod ast;
mod call_reader;
mod code;
mod count_program;
mod facts;
mod interpreter;
mod lexer;
mod lower;
mod object;
mod parser;
mod preprocess;
mod reference;
mod watchpoints;

pub use call_reader::{
    CALL_HEADER, CALL_NUMBERS, CALL_READS_SIZE, CALL_SCRATCH, CallReaderMaps, CallSide, CompatMark,
    MESSAGE_PIECE, MemoryPiece, MemoryRead, NAME_PIECE, ReadSize, call_pieces, call_reader,
    call_reads_bytes, follow_exec, follow_fork, forget_task,
};
pub use code::disassemble;
pub use count_program::{
    CountMeasure, CountProgram, CountRequest, CountedTasks, GONE_TASKS, is_probe_type,
    write_count_program,
};
pub use facts::{
    ArgumentPlace, CType, CompileOptions, EnumerationFacts, FunctionArgument, FunctionFacts,
    HeaderFile, NamedConstant, RecordLayout, RecordMember, TypeFacts, UserVariable, VARIANT,
};
pub use interpreter::{
    ClockOffsets, ProgramEvent, ProgramInterpreter, ProgramNeeds, ProgramRecords,
};
pub use object::{
    ActionKind, AttachPoint, AttachTarget, BpfClock, BpfInstruction, BpfMapType, BpfProgramType,
    CompiledProbe, CompiledProgram, ErrorKind, ErrorSite, FormatConversion, FormatPiece,
    FormatText, MapDefinition, MapPurpose, ObjectRelocation, PACKET_HEADER, ProgramOption,
    ProgramPosition, RingAction, SeriesAggregate, SourceMessage, StackMode, StackSettings,
    TypedField, ValueType, histogram_bucket_range, histogram_buckets,
};

pub use reference::{LANGUAGE_REFERENCE, LanguageSection};
pub use watchpoints::is_watchpoint_setup;

/// Compiles a program.
///
/// # Errors
/// All that is wrong with it, in order, each with its position.
pub fn compile(
    text: &str,
    options: &CompileOptions,
    facts: &dyn TypeFacts,
) -> Result<CompiledProgram, Vec<SourceMessage>> {
    let find = |name: &str, from: Option<&str>| facts.header(name, from);
    let headers = preprocess::Preprocessor::new(&options.arch, &find);
    let parsed = parser::parse_program(text, &options.parameters, &options.includes, headers)
        .and_then(|tree| with_imports(tree, options, facts))
        .and_then(|tree| watchpoints::with_setup_probes(tree, options, facts));
    let compiled = parsed.and_then(|tree| lower::Lowering::new(text, &tree, options, facts)?.run());
    compiled.map_err(|message| vec![message])
}

/// Attach points of a program, as they stand in it.
///
/// # Errors
/// The first message of the parser.
pub fn attach_points(
    text: &str,
    options: &CompileOptions,
    facts: &dyn TypeFacts,
) -> Result<Vec<AttachPoint>, Vec<SourceMessage>> {
    let find = |name: &str, from: Option<&str>| facts.header(name, from);
    let headers = preprocess::Preprocessor::new(&options.arch, &find);
    let tree = parser::parse_program(text, &options.parameters, &options.includes, headers)
        .and_then(|tree| with_imports(tree, options, facts))
        .map_err(|message| vec![message])?;
    let points = tree.probes.into_iter().flat_map(|probe| probe.points);
    Ok(points.map(|(point, _)| point).collect())
}

/// The most files that a program imports.
const MAX_IMPORTS: usize = 64;

/// Adds what a program imports, each file once.
fn with_imports(
    mut tree: ast::ProgramTree,
    options: &CompileOptions,
    facts: &dyn TypeFacts,
) -> Result<ast::ProgramTree, SourceMessage> {
    let mut seen: Vec<String> = Vec::new();
    while let Some((name, position)) = tree.imports.pop() {
        // bpftrace's own library is part of the language here.
        if name.starts_with("stdlib") || seen.contains(&name) {
            continue;
        }
        let failed =
            |what: String| lexer::error_at(position, format!("cannot import {name:?}: {what}"));
        if seen.len() >= MAX_IMPORTS {
            return Err(failed(format!("more than {MAX_IMPORTS} files")));
        }
        let text = facts.included_text(&name).ok_or_else(|| failed("no such file".into()))?;
        let find = |name: &str, from: Option<&str>| facts.header(name, from);
        let headers = preprocess::Preprocessor::new(&options.arch, &find);
        let more = parser::parse_program(&text, &options.parameters, &[], headers)
            .map_err(|e| failed(format!("line {}: {}", e.position.line, e.text)))?;
        tree.merge(more);
        seen.push(name);
    }
    Ok(tree)
}
