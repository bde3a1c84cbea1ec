//! Types into programs: places of names are looked up once, here.

use std::sync::Arc;

use kymo_model::Endian;

use super::super::align::Aligns;
use super::super::types::{
    Encoding, EventClass, Field, FieldPath, Int, Label, Metadata, StreamClass, Struct, Type,
    Variant, is_boolean, shown,
};
use super::bits::Load;
use super::size::fixed;
use super::walk::{Choice, Choices, FieldInfo, Len, NO_SLOT, Part, Program, Role, Step, TaskField};

/// Steps of one program, at most.
const MAX_STEPS: usize = 1 << 16;
/// Steps of all programs of a trace.
const MAX_ALL_STEPS: usize = 1 << 22;
/// Values that events may depend on from outside of them; they come first.
pub(crate) const OUTER_SLOTS: usize = 32;
/// All values that one event depends on.
const MAX_SLOTS: usize = 4096;

/// Why a type cannot be compiled.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{of}: {what}")]
pub(crate) struct CompileError {
    pub(crate) of: String,
    pub(crate) what: String,
}

/// A stream, compiled.
#[derive(Clone, Debug, Default)]
pub(crate) struct StreamPrograms {
    pub(crate) packet_header: Program,
    pub(crate) packet_context: Program,
    pub(crate) header: Program,
    /// One for each event, or why there is none.
    pub(crate) events: Vec<Result<EventProgram, CompileError>>,
    /// Slots that any of them needs.
    pub(crate) slots: usize,
}

/// An event, compiled.
#[derive(Clone, Debug, Default)]
pub(crate) struct EventProgram {
    pub(crate) body: Program,
    /// All slots it needs.
    pub(crate) slots: usize,
    /// Whether it depends on values from outside of it.
    pub(crate) outer: bool,
}

/// What a root structure is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scope {
    PacketHeader,
    PacketContext,
    EventHeader,
    StreamContext,
    EventContext,
    Fields,
}

impl Scope {
    /// Its absolute path.
    fn path(self) -> &'static [&'static str] {
        match self {
            Scope::PacketHeader => &["trace", "packet", "header"],
            Scope::PacketContext => &["stream", "packet", "context"],
            Scope::EventHeader => &["stream", "event", "header"],
            Scope::StreamContext => &["stream", "event", "context"],
            Scope::EventContext => &["event", "context"],
            Scope::Fields => &["event", "fields"],
        }
    }

    fn part(self) -> Part {
        match self {
            Scope::StreamContext => Part::StreamContext,
            Scope::EventContext => Part::EventContext,
            _ => Part::Fields,
        }
    }

    /// What readers make of a number in it. `implicit`: at most one clock is declared,
    /// so that what is called a timestamp is one of it.
    fn role(self, int: &Int, name: &str, implicit: bool) -> Role {
        match (self, name) {
            (Scope::PacketHeader, "magic") => Role::Magic,
            (Scope::PacketHeader, "uuid") => Role::Uuid,
            (Scope::PacketHeader, "stream_id") => Role::StreamId,
            (Scope::PacketHeader, "stream_instance_id") => Role::StreamInstance,
            (Scope::PacketContext, "timestamp_begin") => Role::Begin,
            (Scope::PacketContext, "timestamp_end") => Role::End,
            (Scope::PacketContext, "content_size") => Role::ContentSize,
            (Scope::PacketContext, "packet_size") => Role::PacketSize,
            (Scope::PacketContext, "events_discarded") => Role::Discarded,
            (Scope::PacketContext, "packet_seq_num") => Role::Sequence,
            (Scope::PacketContext, "cpu_id") => Role::Cpu,
            (Scope::PacketContext, "anchor_monotonic") => Role::Anchor,
            (Scope::PacketContext, "anchor_error") => Role::AnchorError,
            (Scope::EventHeader, _) if int.clock.is_some() => Role::Time,
            (Scope::EventHeader, "id") => Role::EventId,
            (Scope::EventHeader, "timestamp") if implicit => Role::Time,
            _ => Role::None,
        }
    }
}

/// Where a name leads.
#[derive(Clone, Debug)]
enum FieldTarget {
    /// An integer: the step that reads it, with its names if it has any.
    Int { step: usize, signed: bool, labels: Option<Arc<[Label]>> },
    /// A structure.
    Names(Names),
    /// Nothing that others can depend on.
    Other,
}

type Names = Vec<(String, FieldTarget)>;

/// A scope from outside of the events, with the names in it.
struct Root {
    scope: Scope,
    names: Names,
}

/// Values of the scopes outside of the events that events depend on.
#[derive(Default)]
struct Outer {
    /// For each slot the scope and the step.
    slots: Vec<(Scope, usize)>,
}

impl Outer {
    fn slot(&mut self, of: (Scope, usize)) -> Option<u16> {
        let known = self.slots.iter().position(|s| *s == of);
        if known.is_none() && self.slots.len() < OUTER_SLOTS {
            self.slots.push(of);
            return Some(self.slots.len() as u16 - 1);
        }
        known.map(|n| n as u16)
    }

    /// Lets the scopes' programs keep the values.
    fn keep(&self, scope: Scope, program: &mut Program) {
        for (slot, (_, at)) in self.slots.iter().enumerate().filter(|(_, s)| s.0 == scope) {
            let slot = slot as u16;
            let Some(Step::Int { save, .. }) = program.steps.get_mut(*at) else { continue };
            // What depends on it within its own scope finds it in the new place.
            let before = std::mem::replace(save, slot);
            for step in program.steps.iter_mut().filter(|_| before != NO_SLOT) {
                match step {
                    Step::Choose { tag: used, .. }
                    | Step::Row { len: Len::In(used), .. }
                    | Step::Chars { len: Len::In(used), .. }
                        if *used == before =>
                    {
                        *used = slot;
                    }
                    _ => {}
                }
            }
        }
    }
}

/// Compiles what packets of all streams begin with.
pub(crate) fn packet_header(metadata: &Metadata) -> Result<Program, CompileError> {
    let mut outer = Outer::default();
    let mut c = Compiler::new("the packet header", metadata, &[], &mut outer);
    c.optional(metadata.packet_header.as_deref(), Scope::PacketHeader)?;
    Ok(c.program())
}

/// Compiles a stream and its events. `steps` counts those of the whole trace.
pub(crate) fn stream(
    metadata: &Metadata,
    stream: &StreamClass,
    steps: &mut usize,
) -> Result<StreamPrograms, CompileError> {
    let mut outer = Outer::default();
    let mut roots = Vec::new();
    let mut slots = 0;
    let mut shared = |of: Option<&Struct>, scope: Scope, what: &str| {
        let mut none = Outer::default();
        let mut c = Compiler::new(what, metadata, &[], &mut none);
        let names = c.optional(of, scope)?;
        roots.push(Root { scope, names });
        slots = slots.max(c.slots);
        Ok(c.program())
    };
    let of = metadata.packet_header.as_deref();
    let packet_header = shared(of, Scope::PacketHeader, "the packet header")?;
    let of = stream.packet_context.as_deref();
    let packet_context = shared(of, Scope::PacketContext, "the packet context")?;
    let of = stream.event_header.as_deref();
    let header = shared(of, Scope::EventHeader, "the event header")?;
    let mut out =
        StreamPrograms { packet_header, packet_context, header, events: Vec::new(), slots };
    for event in &stream.events {
        let program = event_program(metadata, stream, event, &roots, &mut outer);
        let choices = |p: &Program| p.choices.iter().map(|c| c.of.len()).sum::<usize>();
        let of = |p: &EventProgram| p.body.steps.len() + choices(&p.body) + 1;
        *steps += program.as_ref().map_or(1, of);
        if *steps > MAX_ALL_STEPS {
            let what = format!("more than {MAX_ALL_STEPS} fields in all");
            return Err(CompileError { of: "the events".into(), what });
        }
        out.slots = out.slots.max(program.as_ref().map_or(0, |p| p.slots));
        out.events.push(program);
    }
    outer.keep(Scope::PacketHeader, &mut out.packet_header);
    outer.keep(Scope::PacketContext, &mut out.packet_context);
    outer.keep(Scope::EventHeader, &mut out.header);
    Ok(out)
}

fn event_program(
    metadata: &Metadata,
    stream: &StreamClass,
    event: &EventClass,
    roots: &[Root],
    outer: &mut Outer,
) -> Result<EventProgram, CompileError> {
    let mut c = Compiler::new(&event.name, metadata, roots, outer);
    for (of, scope) in [
        (&stream.event_context, Scope::StreamContext),
        (&event.context, Scope::EventContext),
        (&event.fields, Scope::Fields),
    ] {
        if let Some(of) = of.as_deref() {
            c.push(Step::Part(scope.part()))?;
            let names = c.root(of, scope)?;
            c.done.push(Root { scope, names });
        }
    }
    let (slots, outer) = (c.slots, c.uses_outer);
    Ok(EventProgram { body: c.program(), slots, outer })
}

struct Compiler<'c> {
    what: &'c str,
    implicit: bool,
    out: Program,
    scope: Scope,
    /// Structures that are open, with the names in them so far.
    open: Vec<Names>,
    /// Scopes of this program that are complete.
    done: Vec<Root>,
    roots: &'c [Root],
    outer: &'c mut Outer,
    uses_outer: bool,
    slots: usize,
    aligns: Aligns,
}

impl<'c> Compiler<'c> {
    fn new(
        what: &'c str,
        metadata: &Metadata,
        roots: &'c [Root],
        outer: &'c mut Outer,
    ) -> Compiler<'c> {
        Compiler {
            what,
            implicit: metadata.clocks.len() < 2,
            out: Program::default(),
            scope: Scope::Fields,
            open: Vec::new(),
            done: Vec::new(),
            roots,
            outer,
            uses_outer: false,
            slots: OUTER_SLOTS,
            aligns: Aligns::default(),
        }
    }

    fn fail<T>(&self, what: impl Into<String>) -> Result<T, CompileError> {
        Err(CompileError { of: self.what.to_owned(), what: what.into() })
    }

    fn program(mut self) -> Program {
        self.out.fixed = fixed(&self.out.steps, 0, self.out.steps.len());
        self.out
    }

    fn push(&mut self, step: Step) -> Result<usize, CompileError> {
        if self.out.steps.len() >= MAX_STEPS {
            return self.fail(format!("more than {MAX_STEPS} fields"));
        }
        self.out.steps.push(step);
        Ok(self.out.steps.len() - 1)
    }

    fn optional(&mut self, of: Option<&Struct>, scope: Scope) -> Result<Names, CompileError> {
        of.map_or(Ok(Vec::new()), |of| self.root(of, scope))
    }

    /// Compiles a scope's structure.
    fn root(&mut self, of: &Struct, scope: Scope) -> Result<Names, CompileError> {
        self.scope = scope;
        let align = self.aligns.of_struct(of);
        self.push(Step::Align(align))?;
        self.fields(&of.fields, true)
    }

    fn fields(&mut self, fields: &[Field], top: bool) -> Result<Names, CompileError> {
        self.open.push(Vec::new());
        for field in fields {
            let place = self.of(&field.of, shown(&field.name), top)?;
            if let Some(names) = self.open.last_mut() {
                names.push((field.name.clone(), place));
            }
        }
        Ok(self.open.pop().unwrap_or_default())
    }

    /// A field of the program.
    fn info(&mut self, name: &str, top: bool, type_text: String) -> u32 {
        let (part, labels) = (self.scope.part(), None);
        let context = self.scope == Scope::StreamContext && top;
        self.out.fields.push(FieldInfo {
            task: if context { TaskField::of(name) } else { None },
            name: name.to_owned(),
            part,
            top,
            size: 0,
            signed: false,
            base: 10,
            address: false,
            boolean: false,
            labels,
            type_text,
            role: Role::None,
        });
        self.out.fields.len() as u32 - 1
    }

    /// Compiles a type.
    fn of(&mut self, of: &Type, name: &str, top: bool) -> Result<FieldTarget, CompileError> {
        match of {
            Type::Int(int) => self.int(int, None, name, top),
            Type::Enum(e) => self.int(&e.int, Some(&e.labels), name, top),
            Type::Float(f) => {
                let size = f.exp_dig + f.mant_dig;
                let text = if size == 32 { "float" } else { "double" };
                let field = self.info(name, top, text.to_owned());
                if let Some(info) = self.out.fields.last_mut() {
                    info.size = size;
                }
                let load = Load::of(size, f.align, f.byte_order);
                self.push(Step::Float { field, align: f.align, load })?;
                Ok(FieldTarget::Other)
            }
            Type::Text(_) => {
                let field = self.info(name, top, "string".to_owned());
                self.push(Step::Text { field })?;
                Ok(FieldTarget::Other)
            }
            Type::Struct(s) => {
                let align = self.aligns.of(of);
                let field = self.info(name, top, "struct".to_owned());
                let count = s.fields.len() as u32;
                let at = self.push(Step::Struct { field, count, align, end: 0 })?;
                let names = self.fields(&s.fields, false)?;
                self.close(at);
                Ok(FieldTarget::Names(names))
            }
            Type::Array(of, n) => {
                self.row(of, Len::Is(*n), format!("[{n}]"), name, top)?;
                Ok(FieldTarget::Other)
            }
            Type::Sequence(of, path) => {
                let Some(FieldTarget::Int { signed: false, step, .. }) = self.look_up(path)? else {
                    return self.fail(format!("`{path}` is no length of `{name}`"));
                };
                let slot = self.slot(step)?;
                self.row(of, Len::In(slot), "[]".to_owned(), name, top)?;
                Ok(FieldTarget::Other)
            }
            Type::Variant(v) => {
                self.variant(v, name, top)?;
                Ok(FieldTarget::Other)
            }
        }
    }

    /// Says where a step with a body ends.
    fn close(&mut self, at: usize) {
        let here = self.out.steps.len() as u32;
        let step = self.out.steps.get_mut(at);
        if let Some(Step::Struct { end, .. } | Step::Row { end, .. } | Step::Choose { end, .. }) =
            step
        {
            *end = here;
        }
    }

    fn int(
        &mut self,
        int: &Int,
        labels: Option<&Arc<[Label]>>,
        name: &str,
        top: bool,
    ) -> Result<FieldTarget, CompileError> {
        let field = self.info(name, top, int_text(int, labels.is_some()));
        let role = self.scope.role(int, name, self.implicit);
        if let Some(info) = self.out.fields.last_mut() {
            (info.size, info.signed, info.base) = (int.size, int.signed, int.base);
            (info.labels, info.role) = (labels.cloned(), role);
            info.address = int.address;
            info.boolean = labels.is_some_and(|l| is_boolean(l));
        }
        let load = Load::of(int.size, int.align, int.byte_order);
        let (align, size, save) = (int.align, int.size as u8, NO_SLOT);
        let step = self.push(Step::Int { field, align, load, size, save })?;
        Ok(FieldTarget::Int { step, signed: int.signed, labels: labels.cloned() })
    }

    fn row(
        &mut self,
        of: &Type,
        len: Len,
        dimension: String,
        name: &str,
        top: bool,
    ) -> Result<(), CompileError> {
        let is_text = matches!(of, Type::Int(i)
            if i.size == 8 && i.align == 8 && i.encoding != Encoding::None);
        if is_text {
            let field = self.info(name, top, format!("char{dimension}"));
            self.push(Step::Chars { field, len })?;
            return Ok(());
        }
        let align = self.aligns.of(of);
        let field = self.info(name, top, dimension);
        let at = self.push(Step::Row { field, len, align, end: 0 })?;
        self.of(of, "", false)?;
        let inner = self.out.fields.get(field as usize + 1).map(|f| f.type_text.clone());
        if let Some(info) = self.out.fields.get_mut(field as usize) {
            info.type_text = inner.unwrap_or_default() + &info.type_text;
            // Bytes of an identity, which packet headers hold.
            if self.scope == Scope::PacketHeader && name == "uuid" && top {
                info.role = Role::Uuid;
            }
        }
        self.close(at);
        Ok(())
    }

    fn variant(&mut self, of: &Variant, name: &str, top: bool) -> Result<(), CompileError> {
        let (tag, found) = (&of.tag, self.look_up(&of.tag)?);
        let Some(FieldTarget::Int { step, signed, labels: Some(labels) }) = found else {
            return self.fail(format!("`{tag}` is no enumeration that chooses for `{name}`"));
        };
        let tag = self.slot(step)?;
        let field = self.info(name, top, "variant".to_owned());
        let choices = self.out.choices.len() as u32;
        self.out.choices.push(Choices { signed, of: Vec::new() });
        let at = self.push(Step::Choose { field, tag, choices, end: 0 })?;
        let mut found = Vec::new();
        for option in &of.options {
            let from = self.out.steps.len() as u32;
            self.open.push(Vec::new());
            self.of(&option.of, shown(&option.name), false)?;
            self.open.pop();
            let steps = (from, self.out.steps.len() as u32);
            let named = |l: &&Label| l.name == option.name || l.name == shown(&option.name);
            let of_option = labels.iter().filter(named);
            found.extend(of_option.map(|l| Choice { from: l.from, to: l.to, steps }));
            // An option may stand for many ranges, in each of many events.
            if found.len() > MAX_STEPS {
                return self.fail(format!("more than {MAX_STEPS} ranges choose for `{name}`"));
            }
        }
        if let Some(choices) = self.out.choices.get_mut(choices as usize) {
            choices.of = found;
        }
        self.close(at);
        Ok(())
    }

    /// The slot of an integer of this program, by its step; beyond the steps lie those of
    /// the outer scopes.
    fn slot(&mut self, step: usize) -> Result<u16, CompileError> {
        if let Some(slot) = step.checked_sub(OUTSIDE) {
            self.uses_outer = true;
            return Ok(slot as u16);
        }
        let next = self.slots;
        match self.out.steps.get_mut(step) {
            Some(Step::Int { save, .. }) if *save == NO_SLOT => {
                if next >= MAX_SLOTS {
                    return self.fail(format!("more than {MAX_SLOTS} lengths and tags"));
                }
                *save = next as u16;
                self.slots += 1;
                Ok(next as u16)
            }
            Some(Step::Int { save, .. }) => Ok(*save),
            _ => self.fail("a length or tag is no number"),
        }
    }

    /// Finds what a path names: first absolutely, then from the innermost structure
    /// outwards, then in the scopes before, the last first.
    fn look_up(&mut self, path: &FieldPath) -> Result<Option<FieldTarget>, CompileError> {
        let words: Vec<&str> = path.0.iter().map(String::as_str).collect();
        let after = |scope: Scope| words.strip_prefix(scope.path()).filter(|r| !r.is_empty());
        if let Some(rest) = after(self.scope) {
            return Ok(self.open.first().and_then(|names| find(names, rest)));
        }
        for root in &self.done {
            if let Some(rest) = after(root.scope) {
                return Ok(find(&root.names, rest));
            }
        }
        for root in self.roots {
            if let Some(rest) = after(root.scope) {
                let found = find(&root.names, rest);
                return self.outside(root.scope, found);
            }
        }
        let inner = self.open.iter().rev().find_map(|names| find(names, &words));
        let done = || self.done.iter().rev().find_map(|r| find(&r.names, &words));
        if let Some(found) = inner.or_else(done) {
            return Ok(Some(found));
        }
        for root in self.roots.iter().rev() {
            if let Some(found) = find(&root.names, &words) {
                return self.outside(root.scope, Some(found));
            }
        }
        Ok(None)
    }

    /// A place in another program.
    fn outside(
        &mut self,
        scope: Scope,
        found: Option<FieldTarget>,
    ) -> Result<Option<FieldTarget>, CompileError> {
        match found {
            Some(FieldTarget::Int { step, signed, labels }) => match self.outer.slot((scope, step))
            {
                Some(slot) => {
                    let step = OUTSIDE + usize::from(slot);
                    Ok(Some(FieldTarget::Int { step, signed, labels }))
                }
                None => self.fail(format!("depends on more than {OUTER_SLOTS} outer values")),
            },
            other => Ok(other),
        }
    }
}

/// Beyond the steps of any program.
const OUTSIDE: usize = 1 << 32;

fn find(names: &Names, path: &[&str]) -> Option<FieldTarget> {
    let (first, rest) = path.split_first()?;
    let (_, place) = names.iter().find(|(n, _)| n == first)?;
    match (place, rest) {
        (place, []) => Some(place.clone()),
        (FieldTarget::Names(names), rest) => find(names, rest),
        _ => None,
    }
}

fn int_text(int: &Int, named: bool) -> String {
    let sign = if int.signed { "int" } else { "uint" };
    let order = match int.byte_order {
        _ if int.size <= 8 => "",
        order if order == Endian::NATIVE => "",
        Endian::Big => "be",
        Endian::Little => "le",
    };
    let named = if named { "enum " } else { "" };
    format!("{named}{sign}{}{order}", int.size)
}
