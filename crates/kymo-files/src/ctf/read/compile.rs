//! Types into programs: places of names are looked up once, here.

use std::sync::Arc;

use kymo_model::Endian;

use super::super::align::Aligns;
use super::super::types::{
    CtfRole, CtfVersion, Encoding, EnumMapping, EventClass, Int, Metadata, StreamClass, Struct,
    StructureMember, Type, Variant, is_boolean, shown,
};
use super::bits::Load;
use super::size::fixed;
use super::walk::{
    Choice, Choices, FieldInfo, Len, NO_SLOT, Part, Program, Role, Step, TaskField, WideLen,
};

/// Steps of one program, at most.
pub(super) const MAX_STEPS: usize = 1 << 16;
/// Steps of all programs of a trace.
const MAX_ALL_STEPS: usize = 1 << 22;
/// Values that events may depend on from outside of them; they come first.
pub(crate) const OUTER_SLOTS: usize = 32;
/// All values that one event depends on.
pub(super) const MAX_SLOTS: usize = 4096;

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
    /// Steps of the contexts, which come before those of the fields.
    pub(crate) contexts: usize,
    /// All slots it needs.
    pub(crate) slots: usize,
    /// Whether it depends on values from outside of it.
    pub(crate) outer: bool,
}

/// Root scope of a structure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scope {
    PacketHeader,
    PacketContext,
    EventHeader,
    StreamContext,
    EventContext,
    Fields,
}

impl Scope {
    /// Its absolute path.
    pub(super) fn path(self) -> &'static [&'static str] {
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

    /// Role that a number has by its name. `implicit`: at most one clock is declared, so that a
    /// field named as a timestamp belongs to it.
    fn role_of_name(self, has_clock: bool, name: &str, implicit: bool) -> Role {
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
            (Scope::EventHeader, _) if has_clock => Role::Time,
            (Scope::EventHeader, "id") => Role::EventId,
            (Scope::EventHeader, "timestamp") if implicit => Role::Time,
            _ => Role::None,
        }
    }
}

/// Field that a name refers to.
#[derive(Clone, Debug)]
pub(super) enum FieldTarget {
    /// An integer: the step that reads it, with its names if it has any.
    Int { step: usize, signed: bool, labels: Option<Arc<[EnumMapping]>> },
    /// A structure.
    Names(Names),
    /// One of several, by what is chosen. CTF 2.
    Options(Vec<FieldTarget>),
    /// Nothing that others can depend on.
    Other,
}

pub(super) type Names = Vec<(String, FieldTarget)>;

/// A structure that is being compiled.
#[derive(Default)]
pub(super) struct OpenStruct {
    /// The field of the structure around it that it is, or is in.
    pub(super) entered: String,
    /// The names in it so far.
    pub(super) names: Names,
}

/// A scope from outside of the events, with the names in it.
pub(super) struct Root {
    pub(super) scope: Scope,
    pub(super) names: Names,
}

/// Values of the scopes outside of the events that events depend on.
#[derive(Default)]
pub(super) struct Outer {
    /// For each slot the scope and the step.
    slots: Vec<(Scope, usize)>,
}

impl Outer {
    pub(super) fn slot(&mut self, of: (Scope, usize)) -> Option<u16> {
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
            let Some(Step::Int { save, .. } | Step::VarInt { save, .. }) =
                program.steps.get_mut(*at)
            else {
                continue;
            };
            // What depends on it within its own scope finds it in the new place.
            let before = std::mem::replace(save, slot);
            for step in program.steps.iter_mut().filter(|_| before != NO_SLOT) {
                match step {
                    Step::Choose { tag: used, .. }
                    | Step::Row { len: Len::In(used), .. }
                    | Step::Chars { len: Len::In(used), .. }
                    | Step::Wide { len: WideLen::Of(Len::In(used)), .. }
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
        let program = event_program(metadata, stream, event, &roots, &mut outer, steps);
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
    steps: &mut usize,
) -> Result<EventProgram, CompileError> {
    let mut c = Compiler::new(&event.name, metadata, roots, outer);
    let compiled = c.event(stream, event);
    // What cannot be compiled takes time, too.
    *steps += c.out.steps.len() + c.out.choices.iter().map(|c| c.of.len()).sum::<usize>() + 1;
    compiled?;
    let (slots, outer) = (c.slots, c.uses_outer);
    let body = c.program();
    let fields = body.steps.iter().position(|step| *step == Step::Part(Part::Fields));
    let contexts = fields.unwrap_or(body.steps.len());
    Ok(EventProgram { body, contexts, slots, outer })
}

pub(super) struct Compiler<'c> {
    what: &'c str,
    version: CtfVersion,
    implicit: bool,
    pub(super) out: Program,
    pub(super) scope: Scope,
    /// Structures that are open.
    pub(super) open: Vec<OpenStruct>,
    /// The field that is being compiled.
    entered: String,
    /// Scopes of this program that are complete.
    pub(super) done: Vec<Root>,
    pub(super) roots: &'c [Root],
    pub(super) outer: &'c mut Outer,
    pub(super) uses_outer: bool,
    pub(super) slots: usize,
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
            version: metadata.version,
            implicit: metadata.clocks.len() < 2,
            out: Program::default(),
            scope: Scope::Fields,
            open: Vec::new(),
            entered: String::new(),
            done: Vec::new(),
            roots,
            outer,
            uses_outer: false,
            slots: OUTER_SLOTS,
            aligns: Aligns::default(),
        }
    }

    /// Compiles what is an event's own.
    fn event(&mut self, stream: &StreamClass, event: &EventClass) -> Result<(), CompileError> {
        for (of, scope) in [
            (&stream.event_context, Scope::StreamContext),
            (&event.context, Scope::EventContext),
            (&event.fields, Scope::Fields),
        ] {
            if let Some(of) = of.as_deref() {
                self.push(Step::Part(scope.part()))?;
                let names = self.root(of, scope)?;
                self.done.push(Root { scope, names });
            }
        }
        Ok(())
    }

    pub(super) fn fail<T>(&self, what: impl Into<String>) -> Result<T, CompileError> {
        Err(CompileError { of: self.what.to_owned(), what: what.into() })
    }

    fn program(mut self) -> Program {
        self.out.fixed = fixed(&self.out.steps, 0, self.out.steps.len());
        self.out
    }

    pub(super) fn push(&mut self, step: Step) -> Result<usize, CompileError> {
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

    fn fields(&mut self, fields: &[StructureMember], top: bool) -> Result<Names, CompileError> {
        let entered = self.entered.clone();
        self.open.push(OpenStruct { entered: entered.clone(), names: Vec::new() });
        for field in fields {
            self.entered.clone_from(&field.name);
            let place = self.of(&field.of, shown(&field.name), top)?;
            if let Some(open) = self.open.last_mut() {
                open.names.push((field.name.clone(), place));
            }
        }
        self.entered = entered;
        Ok(self.open.pop().unwrap_or_default().names)
    }

    /// A field of the program.
    pub(super) fn info(&mut self, name: &str, top: bool, type_text: String) -> u32 {
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
            bit_names: false,
            type_text,
            role: Role::None,
            more_roles: Box::default(),
        });
        self.out.fields.len() as u32 - 1
    }

    /// Compiles a type.
    pub(super) fn of(
        &mut self,
        of: &Type,
        name: &str,
        top: bool,
    ) -> Result<FieldTarget, CompileError> {
        match of {
            Type::Int(int) => self.int(int, None, name, top),
            Type::Enum(e) => {
                let field = self.out.fields.len();
                let place = self.int(&e.int, Some(&e.labels), name, top)?;
                if let Some(info) = self.out.fields.get_mut(field) {
                    info.bit_names = e.bits;
                }
                Ok(place)
            }
            Type::Float(f) => {
                let size = f.exp_dig + f.mant_dig;
                let text = if size <= 32 { "float" } else { "double" };
                let field = self.info(name, top, text.to_owned());
                if let Some(info) = self.out.fields.last_mut() {
                    info.size = size;
                }
                let load = if f.reversed {
                    Load::reversed(f.byte_order)
                } else {
                    Load::of(size, f.align, f.byte_order)
                };
                self.push(Step::Float { field, align: f.align, load })?;
                Ok(FieldTarget::Other)
            }
            Type::Text(encoding) => {
                let field = self.info(name, top, "string".to_owned());
                let (len, encoding) = (WideLen::Nul, *encoding);
                self.push(match encoding.unit() {
                    1 => Step::Text { field },
                    _ => Step::Wide { field, len, encoding },
                })?;
                Ok(FieldTarget::Other)
            }
            Type::VarInt(int) => self.var_int(int, name, top),
            Type::Selection(of) => self.selection(of, name, top),
            Type::Aligned(of, align) => {
                self.push(Step::Align(*align))?;
                self.of(of, name, top)
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
                let found = self.look_up(path)?;
                let slot = match self.slot_of(found.as_ref())? {
                    Some((slot, false)) => slot,
                    Some((_, true)) => {
                        return self.fail(format!(
                            "`{path}` is signed and cannot be the length of `{name}`: lengths are unsigned integers"
                        ));
                    }
                    None => return self.fail(format!("`{path}` cannot be the length of `{name}`")),
                };
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
    pub(super) fn close(&mut self, at: usize) {
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
        labels: Option<&Arc<[EnumMapping]>>,
        name: &str,
        top: bool,
    ) -> Result<FieldTarget, CompileError> {
        let field = self.info(name, top, int_text(int, labels.is_some()));
        let (has_clock, roles) = (int.clock.is_some(), &int.roles);
        let (role, more_roles) = self.roles(has_clock, roles, name);
        if let Some(info) = self.out.fields.last_mut() {
            (info.size, info.signed, info.base) = (int.size, int.signed, int.base);
            (info.labels, info.role) = (labels.cloned(), role);
            info.more_roles = more_roles;
            info.address = int.address;
            info.boolean = labels.is_some_and(|l| is_boolean(l));
        }
        let load = if int.reversed {
            Load::reversed(int.byte_order)
        } else {
            Load::of(int.size, int.align, int.byte_order)
        };
        let (align, size, save) = (int.align, int.size as u8, NO_SLOT);
        let step = self.push(Step::Int { field, align, load, size, save })?;
        Ok(FieldTarget::Int { step, signed: int.signed, labels: labels.cloned() })
    }

    /// The roles of a number: its name's, or those that it states.
    pub(super) fn roles(
        &self,
        has_clock: bool,
        stated: &[CtfRole],
        name: &str,
    ) -> (Role, Box<[Role]>) {
        let by_name = || self.scope.role_of_name(has_clock, name, self.implicit);
        match self.version {
            CtfVersion::V1_8 => (by_name(), Box::default()),
            CtfVersion::V2 => {
                let mut roles = stated.iter().map(|r| self.scope.role_stated(*r));
                let first = roles.find(|r| *r != Role::None);
                let more = roles.filter(|r| *r != Role::None).collect();
                // What tracers put there besides.
                let other = || match by_name() {
                    role @ (Role::Cpu | Role::Anchor | Role::AnchorError) => role,
                    _ => Role::None,
                };
                (first.unwrap_or_else(other), more)
            }
        }
    }

    fn row(
        &mut self,
        of: &Type,
        len: Len,
        dimension: String,
        name: &str,
        top: bool,
    ) -> Result<(), CompileError> {
        if let Type::Int(i) = of
            && i.size == 8
            && i.align == 8
            && i.encoding != Encoding::None
        {
            let field = self.info(name, top, format!("char{dimension}"));
            let encoding = i.encoding;
            self.push(match encoding.unit() {
                1 => Step::Chars { field, len },
                _ => Step::Wide { field, len: WideLen::Of(len), encoding },
            })?;
            return Ok(());
        }
        let is_uuid = match (of, self.version) {
            (_, CtfVersion::V1_8) => name == "uuid" && top,
            (Type::Int(i), CtfVersion::V2) => i.roles.contains(&CtfRole::MetadataStreamUuid),
            _ => false,
        };
        let align = self.aligns.of(of);
        let field = self.info(name, top, dimension);
        let at = self.push(Step::Row { field, len, align, end: 0 })?;
        self.of(of, "", false)?;
        let inner = self.out.fields.get(field as usize + 1).map(|f| f.type_text.clone());
        if let Some(info) = self.out.fields.get_mut(field as usize) {
            info.type_text = inner.unwrap_or_default() + &info.type_text;
            // Bytes of an identity, which packet headers hold.
            if self.scope == Scope::PacketHeader && is_uuid {
                info.role = Role::Uuid;
            }
        }
        self.close(at);
        Ok(())
    }

    fn variant(&mut self, of: &Variant, name: &str, top: bool) -> Result<(), CompileError> {
        let (tag, found) = (&of.tag, self.look_up(&of.tag)?);
        let Some(FieldTarget::Int { step, signed, labels: Some(labels) }) = found else {
            return self.fail(format!("`{tag}` is not an enumeration that selects for `{name}`"));
        };
        let tag = self.slot(step)?;
        let field = self.info(name, top, "variant".to_owned());
        let choices = self.out.choices.len() as u32;
        self.out.choices.push(Choices { signed, optional: false, of: Vec::new() });
        let at = self.push(Step::Choose { field, tag, choices, end: 0 })?;
        let mut found = Vec::new();
        for option in &of.options {
            let from = self.out.steps.len() as u32;
            self.of(&option.of, shown(&option.name), false)?;
            let steps = (from, self.out.steps.len() as u32);
            let named = |l: &&EnumMapping| l.name == option.name || l.name == shown(&option.name);
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
