//! Actions of user space for records of the ring: print, read and clear maps, exit.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::{self, Read as _, Write};
use std::process::Command;

use kymo_bpf::{
    ActionKind, CompiledProgram, MapDefinition, MapPurpose, ProgramPosition, RingAction, ValueType,
};
use kymo_model::{Note, NoteKind, counted};

use crate::address_names::{AddressNames, local_time_now};
use crate::bytes::u64_at;
use crate::call_span::end_of_call;
use crate::maps::{MapEntries, ProgramMaps};
use crate::output::{OutputForm, PrintedMap, ProgramOutput, format_values};
use crate::value::{ProgramValue, ValueDecoder, merge_cpus, was_written};

/// A program's maps and actions, with what is needed to show them.
pub(crate) struct ActionRunner {
    pub program: CompiledProgram,
    pub maps: ProgramMaps,
    pub names: AddressNames,
    pub form: OutputForm,
    /// Name in messages.
    name: String,
    /// Status that `exit()` gave; records behind it are left out.
    pub exit: Option<i32>,
    /// Records of actions that are not known, and of maps that could not be read.
    pub failures: Vec<String>,
    /// The run is over: no more commands are run.
    pub is_ending: bool,
    /// Whether a command was run since this was cleared.
    pub last_command: bool,
    /// Text of the program.
    pub text: String,
    /// Maps without keys that `clear()` emptied.
    cleared: HashSet<usize>,
    /// Errors that the program reported.
    pub errors: u64,
    /// Warnings of the program are not printed.
    pub is_silent: bool,
    /// Text is printed on a terminal.
    pub is_for_terminal: bool,
    /// Further records wait in the ring.
    pub is_behind: bool,
    /// Commands that were not run any more.
    commands_left: u64,
    /// Values by line of which `%d` and its like showed the lower 32 bits.
    cut_numbers: BTreeMap<u32, u64>,
    /// Addresses to watch or to watch no more.
    pub watches: Vec<WatchRequest>,
    /// Maps without keys whose value `zero()` set.
    zeroed: HashSet<usize>,
    /// Entries of maps that were taken to be printed, until the `clear()` that follows.
    taken: HashMap<usize, MapEntries>,
    buffer: Vec<u8>,
}

/// Request of a program about a watchpoint.
pub(crate) struct WatchRequest {
    /// Name of the watchpoint that is to watch; none ends it.
    pub point: Option<String>,
    pub address: u64,
    /// Process of the address, which waits.
    pub pid: u32,
}

/// Receivers of a program's output.
pub struct ProgramSinks<'w> {
    /// Its output.
    pub output: &'w mut dyn Write,
    /// `errorf()` and its like.
    pub diagnostics: &'w mut dyn Write,
    /// Is given each printed map as values; without, maps are part of the output.
    pub maps: Option<&'w mut MapListener<'w>>,
}

/// Receiver of printed maps as values.
pub type MapListener<'l> = dyn FnMut(PrintedMap<'_>) -> io::Result<()> + 'l;

impl ActionRunner {
    pub(crate) fn new(
        program: CompiledProgram,
        maps: ProgramMaps,
        name: &str,
        form: OutputForm,
    ) -> ActionRunner {
        let form = form.of_program(&program.config);
        ActionRunner {
            name: name.to_owned(),
            program,
            maps,
            names: AddressNames::new(),
            form,
            exit: None,
            failures: Vec::new(),
            is_ending: false,
            last_command: false,
            text: String::new(),
            cleared: HashSet::new(),
            errors: 0,
            is_silent: false,
            is_for_terminal: false,
            is_behind: false,
            commands_left: 0,
            cut_numbers: BTreeMap::new(),
            watches: Vec::new(),
            zeroed: HashSet::new(),
            taken: HashMap::new(),
            buffer: Vec::new(),
        }
    }

    /// Name of the program, line and columns, for messages.
    pub(crate) fn place(&self, at: ProgramPosition) -> String {
        let end = end_of_call(&self.text, at).map_or(String::new(), |end| format!("-{end}"));
        format!("{}:{}:{}{end}", self.name, at.line, at.column)
    }

    /// Name of the program in messages.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Does what a record asks for.
    pub(crate) fn run(&mut self, record: &[u8], sinks: &mut ProgramSinks<'_>) -> io::Result<()> {
        // The program, the names and the buffer are used at the same time.
        let program = std::mem::take(&mut self.program);
        let mut buffer = std::mem::take(&mut self.buffer);
        let done = match program.actions.get(u64_at(record, 0) as usize) {
            Some(action) => self.act(&program, action, record, &mut buffer, sinks),
            None => self.fail("a record of the ring names no action".into()),
        };
        self.program = program;
        self.buffer = buffer;
        done
    }

    fn act(
        &mut self,
        program: &CompiledProgram,
        action: &RingAction,
        record: &[u8],
        text: &mut Vec<u8>,
        sinks: &mut ProgramSinks<'_>,
    ) -> io::Result<()> {
        text.clear();
        let form = self.form;
        match &action.kind {
            ActionKind::Printf(format)
            | ActionKind::PrintDiagnostic { format, .. }
            | ActionKind::System(format)
            | ActionKind::Cat(format) => {
                let (names, maps) = (&mut self.names, &self.maps);
                let stack = |map, id| stack_frames(program, maps, map, id);
                let probe_names = &program.probe_names;
                // A command gets the texts as they are.
                let is_command = matches!(action.kind, ActionKind::System(_) | ActionKind::Cat(_));
                let is_for_terminal = self.is_for_terminal && !is_command;
                let mut decoder =
                    ValueDecoder { names, stack: &stack, probe_names, is_for_terminal };
                let is_old = form == OutputForm::OldText;
                let cut = format_values(text, format, &action.fields, record, &mut decoder, is_old);
                if cut > 0 {
                    *self.cut_numbers.entry(action.position.line).or_default() += cut;
                }
            }
            _ => {}
        }
        let mut output = ProgramOutput { form, sink: sinks.output };
        match &action.kind {
            ActionKind::Printf(_) => output.message("printf", text),
            ActionKind::PrintDiagnostic { severity, .. }
                if self.is_silent && *severity == "WARNING" =>
            {
                Ok(())
            }
            ActionKind::PrintDiagnostic { severity, .. } => {
                self.errors += u64::from(*severity == "ERROR");
                let place = self.place(action.position);
                write!(sinks.diagnostics, "{place}: {severity}: ")?;
                text.push(b'\n');
                sinks.diagnostics.write_all(text)
            }
            ActionKind::System(_) => {
                if self.is_ending {
                    // The end of the run does not wait for thousands of them.
                    self.commands_left += 1;
                    return Ok(());
                }
                output.flush()?;
                self.last_command = true;
                let command = String::from_utf8_lossy(text).into_owned();
                match Command::new("/bin/sh").arg("-c").arg(&command).output() {
                    Ok(done) => {
                        sinks.diagnostics.write_all(&done.stderr)?;
                        output.command_output(&done.stdout)
                    }
                    Err(e) => self.fail(format!("system({command}): {e}")),
                }
            }
            ActionKind::Cat(_) => {
                let path = String::from_utf8_lossy(text).into_owned();
                let limit = setting(program, "max_cat_bytes").unwrap_or(10240);
                match read_start(&path, limit) {
                    Ok(bytes) => output.message("cat", &bytes),
                    Err(e) => {
                        let why = e.to_string();
                        let why = why.split(" (os error").next().unwrap_or_default();
                        let why = match form {
                            OutputForm::OldText => format!(": {why}"),
                            _ => format!(" ({why})"),
                        };
                        let failure = format!("failed to open file '{path}'{why}");
                        writeln!(sinks.diagnostics, "ERROR: {failure}")?;
                        self.fail(failure)
                    }
                }
            }
            ActionKind::PrintMap { map, top, div, takes } => {
                if *takes {
                    let has_key = program.maps.get(*map).is_some_and(|m| m.key_type.is_some());
                    match self.maps.take(*map, has_key, self.is_behind) {
                        Ok(entries) => _ = self.taken.insert(*map, entries),
                        Err(e) => self.fail(format!("cannot take the entries of a map: {e}"))?,
                    }
                }
                self.print_map(program, (*map, true), *top, *div, sinks)
            }
            ActionKind::PrintValue => {
                let value = self.first_field(program, action, record);
                output.value(&value)
            }
            ActionKind::PrintMapEntry { map, div } => {
                match self.read_entry(program, *map, action, record) {
                    Some(value) => output.value(&value.divide(*div)),
                    None => output.value(&ProgramValue::Unsigned(0)),
                }
            }
            ActionKind::ClearMap { map } => self.empty_map(program, *map, true),
            ActionKind::ZeroMap { map } => self.empty_map(program, *map, false),
            ActionKind::Time { format } => {
                output.message("time", local_time_now(format).as_bytes())
            }
            ActionKind::Join { separator } => {
                let parts = match self.first_field(program, action, record) {
                    ProgramValue::Array(parts) => parts,
                    other => vec![other],
                };
                for part in parts {
                    let ProgramValue::Text(part) = part else { continue };
                    if part.is_empty() {
                        break;
                    }
                    if !text.is_empty() {
                        text.extend(separator.as_bytes());
                    }
                    text.extend(part);
                }
                if matches!(form, OutputForm::Text | OutputForm::OldText) {
                    text.push(b'\n');
                }
                output.message("join", text)
            }
            ActionKind::Watch { .. } | ActionKind::Unwatch => {
                let mut fields = action.fields.iter().map(|f| u64_at(record, f.offset as usize));
                let address = fields.next().unwrap_or(0);
                let pid = fields.next().unwrap_or(0) as u32;
                let point = match &action.kind {
                    ActionKind::Watch { point } => Some(point.clone()),
                    _ => None,
                };
                self.watches.push(WatchRequest { point, address, pid });
                Ok(())
            }
            // Packets come by other rings.
            ActionKind::WritePacket { .. } => Ok(()),
            ActionKind::Exit => {
                let status = self.first_field(program, action, record);
                self.exit = Some(status.bits() as i32);
                Ok(())
            }
        }
    }

    /// Keeps a failure for the ledger; the run continues.
    fn fail(&mut self, failure: String) -> io::Result<()> {
        if self.failures.len() < 100 && !self.failures.contains(&failure) {
            self.failures.push(failure);
        }
        Ok(())
    }

    fn first_field(
        &mut self,
        program: &CompiledProgram,
        action: &RingAction,
        record: &[u8],
    ) -> ProgramValue {
        let Some(field) = action.fields.first() else { return ProgramValue::Empty };
        let maps = &self.maps;
        let stack = |map, id| stack_frames(program, maps, map, id);
        let probe_names = &program.probe_names;
        let names = &mut self.names;
        let is_for_terminal = self.is_for_terminal;
        let mut decoder = ValueDecoder { names, stack: &stack, probe_names, is_for_terminal };
        decoder.field(field, record)
    }

    /// Value of the entry whose key is the record's first field.
    fn read_entry(
        &mut self,
        program: &CompiledProgram,
        map: usize,
        action: &RingAction,
        record: &[u8],
    ) -> Option<ProgramValue> {
        let definition = program.maps.get(map)?;
        let field = action.fields.first()?;
        let begin = field.offset as usize;
        let mut key = vec![0u8; definition.key_size as usize];
        let stated = record.get(begin..).unwrap_or_default();
        key.iter_mut().zip(stated).for_each(|(to, from)| *to = *from);
        let bytes = match self.taken.get(&map) {
            Some(taken) => taken.iter().find(|(k, _)| *k == key).map(|(_, value)| value.clone())?,
            None => self.maps.lookup(map, &key)?,
        };
        let maps = &self.maps;
        let stack = |map, id| stack_frames(program, maps, map, id);
        let probe_names = &program.probe_names;
        let names = &mut self.names;
        let is_for_terminal = self.is_for_terminal;
        let mut decoder = ValueDecoder { names, stack: &stack, probe_names, is_for_terminal };
        Some(decoder.decode(&definition.value_type, &one_value(definition, &bytes)))
    }

    /// Prints a map, read at one moment: the `top` largest entries, or all. A value that was never
    /// set is 0, where the program asks for it.
    fn print_map(
        &mut self,
        program: &CompiledProgram,
        (map, is_asked): (usize, bool),
        top: u32,
        div: u32,
        sinks: &mut ProgramSinks<'_>,
    ) -> io::Result<()> {
        let Some(definition) = program.maps.get(map) else { return Ok(()) };
        let read = match self.taken.get(&map).cloned().map_or_else(|| self.maps.entries(map), Ok) {
            Ok(read) => read,
            Err(e) => return self.fail(format!("cannot read map {}: {e}", definition.name)),
        };
        let maps = &self.maps;
        let stack = |map, id| stack_frames(program, maps, map, id);
        let probe_names = &program.probe_names;
        let names = &mut self.names;
        let is_for_terminal = self.is_for_terminal;
        let mut decoder = ValueDecoder { names, stack: &stack, probe_names, is_for_terminal };
        let mut entries = Vec::with_capacity(read.len());
        for (key_bytes, bytes) in read {
            let bytes = one_value(definition, &bytes);
            let was_zeroed = definition.key_type.is_none() && self.zeroed.contains(&map);
            // Before, a counter existed from the start.
            let is_there = self.form == OutputForm::OldText
                && definition.value_type == ValueType::Count
                && definition.key_type.is_none();
            let is_cleared = self.cleared.contains(&map) && bytes.iter().all(|b| *b == 0);
            if was_zeroed || is_there || was_written(definition, &bytes) && !is_cleared {
                let value = decoder.decode(&definition.value_type, &bytes);
                entries.push((value.rank(), key_bytes, value));
            }
        }
        // Of a histogram nothing would be shown.
        let has_buckets = matches!(
            definition.value_type,
            ValueType::Histogram { .. } | ValueType::LinearHistogram { .. }
        );
        let is_scalar = definition.key_type.is_none() && !has_buckets;
        let is_unset = entries.is_empty() && is_scalar && is_asked;
        if is_unset && sinks.maps.is_none() && self.form == OutputForm::Text {
            let zeros = vec![0; definition.value_size as usize];
            entries.push((0, Vec::new(), decoder.decode(&definition.value_type, &zeros)));
        }
        // By value, then by key: numbers by their size, which is not that of their bytes.
        entries.sort_by(|a, b| (a.0, number_first(&a.1)).cmp(&(b.0, number_first(&b.1))));
        let left_out = match top {
            0 => 0,
            top => entries.len().saturating_sub(top as usize),
        };
        let shown = entries.split_off(left_out);
        let shown = shown.into_iter().map(|(_, key, value)| {
            let key = definition.key_type.as_ref().map(|of| decoder.decode(of, &key));
            (key, value.divide(div))
        });
        let printed = PrintedMap {
            name: &definition.name,
            value_type: &definition.value_type,
            entries: shown.collect(),
            left_out: entries.into_iter().map(|(_, _, value)| value.divide(div)).collect(),
        };
        match &mut sinks.maps {
            Some(listen) => listen(printed),
            None => ProgramOutput { form: self.form, sink: sinks.output }.map(&printed),
        }
    }

    /// Prints all maps of the program, by name.
    pub(crate) fn print_maps(&mut self, sinks: &mut ProgramSinks<'_>) -> io::Result<()> {
        let program = std::mem::take(&mut self.program);
        let own = |(_, map): &(usize, &MapDefinition)| map.purpose == MapPurpose::User;
        let mut maps: Vec<(usize, &MapDefinition)> =
            program.maps.iter().enumerate().filter(own).collect();
        maps.sort_by(|a, b| a.1.name.cmp(&b.1.name));
        let done = maps
            .iter()
            .try_for_each(|(map, _)| self.print_map(&program, (*map, false), 0, 0, sinks));
        self.program = program;
        done
    }

    /// Prints what is printed at the end, unless the program says otherwise.
    pub(crate) fn print_last_maps(&mut self, sinks: &mut ProgramSinks<'_>) -> io::Result<()> {
        let is_quiet = self.program.config.iter().any(|(key, value)| {
            key == "print_maps_on_exit" && matches!(value.as_str(), "0" | "false")
        });
        if !is_quiet {
            self.taken.clear();
            ProgramOutput { form: self.form, sink: sinks.output }.before_last_maps()?;
            self.print_maps(sinks)?;
        }
        sinks.output.flush()
    }

    /// Notes about failed actions and unresolved names.
    pub(crate) fn notes(&self) -> Vec<Note> {
        let failures = self.failures.iter();
        let mut notes: Vec<Note> =
            failures.map(|f| Note::doubt(NoteKind::Missing, f.clone(), None)).collect();
        if self.commands_left > 0 {
            let fact = counted(
                self.commands_left,
                "command of system() was not run: the run ended",
                "commands of system() were not run: the run ended",
            );
            notes.push(Note::doubt(NoteKind::Missing, fact, None));
        }
        for (line, count) in &self.cut_numbers {
            let fact = counted(
                *count,
                "number was cut to 32 bits by a conversion such as %d",
                "numbers were cut to 32 bits by conversions such as %d",
            );
            let advice = "write %ld, %lu or %lx for numbers of 64 bits";
            let fact = format!("line {line}: {fact}");
            notes.push(Note::doubt(NoteKind::Cut, fact, Some(advice.into())));
        }
        if let Some(count) = self.maps.hasty().filter(|count| *count > 0) {
            let fact = counted(
                count,
                "clear() or zero() was not atomic: events during it may be missing",
                "calls of clear() and zero() were not atomic: events during them may be missing",
            );
            let advice =
                "print and clear less often: an atomic exchange of a map takes about 10 ms";
            notes.push(Note::doubt(NoteKind::Lost, fact, Some(advice.into())));
        }
        if self.names.unresolved > 0 {
            let fact =
                counted(self.names.unresolved, "address has no symbol", "addresses have no symbol");
            notes.push(Note::doubt(NoteKind::Unresolved, fact, None));
        }
        notes
    }

    /// `clear()` deletes entries, `zero()` their values.
    fn empty_map(
        &mut self,
        program: &CompiledProgram,
        map: usize,
        is_clear: bool,
    ) -> io::Result<()> {
        let Some(definition) = program.maps.get(map) else { return Ok(()) };
        let has_key = definition.key_type.is_some();
        let taken = match self.taken.remove(&map) {
            Some(taken) => Ok(taken),
            None => self.maps.take(map, is_clear && has_key, self.is_behind),
        };
        let taken = match taken {
            Ok(taken) => taken,
            Err(e) => return self.fail(format!("cannot clear map {}: {e}", definition.name)),
        };
        if has_key && !is_clear {
            if let Err(e) = self.maps.put_zeros(map, &taken) {
                return self.fail(format!("cannot zero map {}: {e}", definition.name));
            }
        } else if !has_key {
            // What was counted and set to zero is printed; what was cleared is not.
            let is_there = taken
                .iter()
                .any(|(_, bytes)| was_written(definition, &one_value(definition, bytes)));
            match is_clear {
                true => {
                    self.zeroed.remove(&map);
                    self.cleared.insert(map);
                }
                false if is_there => _ = self.zeroed.insert(map),
                false => {}
            }
        }
        Ok(())
    }

    /// Whether addresses of processes may be printed.
    pub(crate) fn shows_user_code(&self) -> bool {
        let maps = self.program.maps.iter();
        let mut types = maps.flat_map(|map| map.key_type.iter().chain([&map.value_type]));
        let actions = self.program.actions.iter().flat_map(|action| &action.fields);
        types.any(has_user_code) || actions.into_iter().any(|f| has_user_code(&f.value_type))
    }
}

/// A number of the program's configuration.
fn setting(program: &CompiledProgram, key: &str) -> Option<u64> {
    let (_, value) = program.config.iter().find(|(name, _)| name == key)?;
    value.parse().ok()
}

/// The first bytes of a file.
fn read_start(path: &str, limit: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    std::fs::File::open(path)?.take(limit).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn has_user_code(of: &ValueType) -> bool {
    match of {
        ValueType::UserStack(_) | ValueType::UserSymbol => true,
        ValueType::Tuple(fields) | ValueType::Structure { fields, .. } => {
            fields.iter().any(|field| has_user_code(&field.value_type))
        }
        _ => false,
    }
}

/// Bytes of an entry's value, put together over CPUs.
fn one_value(definition: &MapDefinition, bytes: &[u8]) -> Vec<u8> {
    if definition.is_per_cpu() { merge_cpus(definition, bytes) } else { bytes.to_vec() }
}

/// Keys in an order that has numbers by size and texts by letter.
fn number_first(key: &[u8]) -> (i64, &[u8]) {
    match key.len() {
        8 => (u64_at(key, 0) as i64, &[]),
        _ => (0, key),
    }
}

/// Frames of a stack from the n-th map of stacks.
fn stack_frames(program: &CompiledProgram, maps: &ProgramMaps, nth: u32, id: i32) -> Vec<u64> {
    let stacks = program.maps.iter().enumerate();
    let mut stacks = stacks.filter(|(_, map)| map.purpose == MapPurpose::StackTraces);
    let Some((number, _)) = stacks.nth(nth as usize) else { return Vec::new() };
    let bytes = maps.lookup(number, &id.to_ne_bytes()).unwrap_or_default();
    let frames = bytes.chunks_exact(8).map(|frame| u64_at(frame, 0));
    frames.take_while(|frame| *frame != 0).collect()
}
