//! Event classes and their fields, whatever format they come from: name, origin, type and
//! role of each field, and where its value lies in an event.

use std::sync::Arc;

use kymo_files::ctf;
use kymo_files::ctf::types::EnumMapping;
use kymo_files::perfdata::EventDesc;
use kymo_format::{EventFormat, Field, FieldKind};
use kymo_model::{Attr, SamplePlaces, SampleType};

use crate::field_type::{FieldRole, FieldType};
use crate::name_map;

/// Number of a layout: of an event class as one recording lays it out. Plans that are made
/// for the fields of a class are kept by it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct LayoutId(pub u32);

impl LayoutId {
    /// The number as an index.
    #[inline]
    pub fn index(self) -> usize {
        self.0 as usize
    }

    /// The number, which then is that of the layout behind.
    pub(crate) fn take(&mut self) -> LayoutId {
        let taken = *self;
        self.0 += 1;
        taken
    }
}

/// Number of a field among those of its class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FieldId(pub u32);

/// Origin of the events of a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClassOrigin {
    /// A tracepoint or probe whose payload the kernel writes.
    Kernel,
    /// A tracepoint of a program.
    Program,
    /// A sample of a counter, without a payload.
    Sample,
}

/// A field of an event class.
#[derive(Clone, Debug)]
pub struct FieldDesc {
    /// Its name, as the recording has it.
    pub name: String,
    /// Its type.
    pub field_type: FieldType,
    /// Role of the field.
    pub role: FieldRole,
    /// Its type in the recording's own words.
    pub type_name: String,
    /// Whether all events of the recording have it: `common_pid`, contexts of a stream.
    pub common: bool,
    /// The part of an event that it is in.
    pub part: FieldPart,
    /// Names of values, of an enumeration.
    pub labels: Option<Arc<[EnumMapping]>>,
    pub(crate) place: FieldPlace,
}

impl FieldDesc {
    /// Offset and size in bytes, of a field of a tracepoint's payload.
    pub fn offset_and_size(&self) -> Option<(u32, u32)> {
        match &self.place {
            FieldPlace::Payload(field) => Some((field.offset, field.size)),
            _ => None,
        }
    }

    /// Whether it is signed, of an integer of a tracepoint's payload.
    pub fn signed(&self) -> Option<bool> {
        match &self.place {
            FieldPlace::Payload(field) => Some(field.signed),
            _ => None,
        }
    }
}

/// Part of an event that a field is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldPart {
    /// Fields of the event itself.
    Own,
    /// Fields that ftrace puts before those of each event.
    Common,
    /// Context of an event, in CTF.
    EventContext,
    /// Context of all events of a stream, in CTF.
    StreamContext,
    /// Field that perf records with each sample.
    Sample,
}

impl FieldPart {
    /// Name of the part.
    pub fn name(self) -> &'static str {
        match self {
            FieldPart::Own => "field",
            FieldPart::Common => "common",
            FieldPart::EventContext => "event context",
            FieldPart::StreamContext => "context",
            FieldPart::Sample => "sample",
        }
    }
}

/// Properties of an event class in CTF metadata beyond its fields.
#[derive(Clone, Debug)]
pub struct CtfClass {
    /// Number of its stream.
    pub stream: u64,
    /// Severity, as in syslog, and 8 to 14 for debugging.
    pub level: Option<i64>,
    /// Documentation of the event.
    pub doc: Option<String>,
    /// Whether its contexts have a call stack.
    pub(crate) has_stack: bool,
}

/// Context of LTTng with the call stack of the kernel.
pub(crate) const KERNEL_STACK: &str = "callstack_kernel";
/// Context of LTTng with the call stack of the program.
pub(crate) const USER_STACK: &str = "callstack_user";

/// Location of a field's value.
#[derive(Clone, Debug)]
pub(crate) enum FieldPlace {
    /// In the payload of a tracepoint.
    Payload(Field),
    /// In the body of a CTF event: its place in `Class::fields`.
    Ctf(u32),
    /// Among the fixed fields of a sample.
    Sample(SampleField),
}

/// A field that perf records with a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SampleField {
    Ip,
    Addr,
    Period,
    Weight,
    DataSrc,
    PhysAddr,
    Cgroup,
}

/// Fields of an event of a function tracer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FunctionEvent {
    /// A function was called.
    Call {
        /// Its address.
        ip: FieldId,
        /// Address in its caller.
        parent: FieldId,
    },
    /// A function begins.
    Entry {
        /// Its address.
        func: FieldId,
        /// Depth of nesting.
        depth: FieldId,
    },
    /// A function ends.
    Exit {
        /// Its address.
        func: FieldId,
        /// Time of the entry.
        calltime: FieldId,
        /// Time of the return.
        rettime: FieldId,
    },
}

/// An event class: `system:name`, and its fields.
#[derive(Clone, Debug)]
pub struct RecordedClass {
    /// Its layout.
    pub layout: LayoutId,
    /// The recording it is of, by number.
    pub recording: usize,
    /// `sched` of `sched:sched_switch`; empty where the recording has none.
    pub system: String,
    /// `sched_switch`.
    pub name: String,
    /// `sched:sched_switch`, or the name alone.
    pub full_name: String,
    /// Origin of its events.
    pub origin: ClassOrigin,
    /// Its fields.
    pub fields: Vec<FieldDesc>,
    /// Text of the print format, where there is one.
    pub print_format: Option<String>,
    /// Whether its events are stacks of the events before them.
    pub is_stack: bool,
    /// Number of the tracepoint, or of the class in its stream.
    pub id: Option<u64>,
    /// Properties of a class of a CTF trace.
    pub ctf: Option<Box<CtfClass>>,
    /// Attributes the event was opened with, in perf.data.
    pub attr: Option<Box<Attr>>,
    /// Offsets of some fields in its samples.
    pub(crate) places: Option<SamplePlaces>,
}

impl RecordedClass {
    /// Whether a name is that of the class: with its system or without, or the name that
    /// the kernel has for what another tracer calls otherwise.
    pub fn is_named(&self, name: &str) -> bool {
        self.full_name == name
            || self.name == name
            || name_map::kernel_event(&self.full_name).is_some_and(|k| k == name)
    }

    /// The names that a glob may match.
    pub fn names(&self) -> [&str; 2] {
        [&self.full_name, &self.name]
    }

    /// Finds a field by its name, or by the name that ftrace has for it.
    pub fn field(&self, name: &str) -> Option<FieldId> {
        let find = |n: &str| self.fields.iter().position(|f| f.name == n);
        let found = find(name).or_else(|| {
            let other = name_map::field_names(&self.full_name, name);
            other.into_iter().find_map(find)
        });
        found.map(|n| FieldId(n as u32))
    }

    /// A field by its number.
    pub fn field_desc(&self, id: FieldId) -> Option<&FieldDesc> {
        self.fields.get(id.0 as usize)
    }

    /// Function event that the class represents, if a function tracer of the kernel writes it.
    pub fn function_event(&self) -> Option<FunctionEvent> {
        if self.system != "ftrace" {
            return None;
        }
        let field = |name: &str| self.field(name);
        Some(match self.name.as_str() {
            "function" => FunctionEvent::Call { ip: field("ip")?, parent: field("parent_ip")? },
            "funcgraph_entry" => {
                FunctionEvent::Entry { func: field("func")?, depth: field("depth")? }
            }
            "funcgraph_exit" => FunctionEvent::Exit {
                func: field("func")?,
                calltime: field("calltime")?,
                rettime: field("rettime")?,
            },
            _ => return None,
        })
    }

    /// The fields of the class itself, without those that all events have.
    pub fn own_fields(&self) -> impl Iterator<Item = &FieldDesc> {
        self.fields.iter().filter(|f| !f.common)
    }

    /// The class of a tracepoint with a format of tracefs.
    pub(crate) fn from_format(format: &EventFormat, at: (LayoutId, usize)) -> RecordedClass {
        let full_name = if format.system.is_empty() {
            format.name.clone()
        } else {
            format!("{}:{}", format.system, format.name)
        };
        let fields = format.fields.iter().map(|f| FieldDesc {
            name: f.name.clone(),
            field_type: type_of(f),
            role: name_map::role(&full_name, &f.name, type_of(f)),
            type_name: f.type_text.clone(),
            common: f.common,
            part: if f.common { FieldPart::Common } else { FieldPart::Own },
            labels: None,
            place: FieldPlace::Payload(f.clone()),
        });
        RecordedClass {
            layout: at.0,
            recording: at.1,
            system: format.system.clone(),
            name: format.name.clone(),
            fields: fields.collect(),
            origin: ClassOrigin::Kernel,
            print_format: Some(format.print_fmt.clone()),
            is_stack: format.system == "ftrace"
                && matches!(format.name.as_str(), "kernel_stack" | "user_stack"),
            id: Some(u64::from(format.id)),
            ctf: None,
            attr: None,
            places: None,
            full_name,
        }
    }

    /// The class of a tracepoint that a CTF trace declares.
    pub(crate) fn from_ctf(class: &ctf::read::Class<'_>, at: (LayoutId, usize)) -> RecordedClass {
        use ctf::read::Part;
        let full_name = class.event.name.clone();
        let (system, name) = full_name.split_once(':').unwrap_or(("", &full_name));
        let (system, name) = (system.to_owned(), name.to_owned());
        // An event's own fields come first: a context may have the name of one.
        let order = [Part::Fields, Part::EventContext, Part::StreamContext];
        let mut fields = Vec::new();
        for part in order {
            let of_part = class.fields().iter().enumerate();
            for (n, f) in of_part.filter(|(_, f)| f.top && f.part == part) {
                let field_type = ctf_type(f);
                fields.push(FieldDesc {
                    name: f.name.clone(),
                    field_type,
                    role: name_map::role(&full_name, &f.name, field_type),
                    type_name: f.type_text.clone(),
                    common: part != Part::Fields,
                    part: match part {
                        Part::Fields => FieldPart::Own,
                        Part::EventContext => FieldPart::EventContext,
                        Part::StreamContext => FieldPart::StreamContext,
                    },
                    labels: f.labels.clone(),
                    place: FieldPlace::Ctf(n as u32),
                });
            }
        }
        let is_stack = |f: &ctf::read::FieldInfo| {
            f.part != Part::Fields && [KERNEL_STACK, USER_STACK].contains(&f.name.as_str())
        };
        RecordedClass {
            layout: at.0,
            recording: at.1,
            system,
            name,
            full_name,
            fields,
            origin: ClassOrigin::Program,
            print_format: class.event.print_format.clone(),
            is_stack: false,
            id: Some(class.event.id),
            ctf: Some(Box::new(CtfClass {
                stream: class.stream,
                level: class.event.loglevel,
                doc: class.event.doc.clone(),
                has_stack: class.fields().iter().any(is_stack),
            })),
            attr: None,
            places: None,
        }
    }

    /// The class of a perf event without a payload.
    pub(crate) fn from_perf(event: &EventDesc, at: (LayoutId, usize)) -> RecordedClass {
        RecordedClass {
            layout: at.0,
            recording: at.1,
            system: String::new(),
            name: without_modifiers(&event.name).to_owned(),
            full_name: event.name.clone(),
            origin: ClassOrigin::Sample,
            fields: sample_fields(event).collect(),
            print_format: None,
            is_stack: false,
            id: None,
            ctf: None,
            attr: Some(Box::new(event.attr.clone())),
            places: Some(SamplePlaces::of(&event.attr)),
        }
    }

    /// Adds the fields that perf records with each sample, for tracepoints in perf.data;
    /// those of the payload keep their names.
    pub(crate) fn with_sample_fields(mut self, event: &EventDesc) -> RecordedClass {
        self.attr = Some(Box::new(event.attr.clone()));
        self.places = Some(SamplePlaces::of(&event.attr));
        for field in sample_fields(event) {
            if self.field(&field.name).is_none() {
                self.fields.push(FieldDesc { common: true, ..field });
            }
        }
        self
    }
}

/// `cycles` of `cycles:u`: modifiers need not be named.
fn without_modifiers(name: &str) -> &str {
    let is_modifier = |m: &str| !m.is_empty() && m.chars().all(|c| "ukhpPGHSDWIeb".contains(c));
    name.rsplit_once(':').filter(|(_, m)| is_modifier(m)).map_or(name, |(name, _)| name)
}

fn type_of(field: &Field) -> FieldType {
    match field.kind {
        FieldKind::Int => FieldType::Integer { signed: field.signed },
        FieldKind::Bool => FieldType::Bool,
        FieldKind::Pointer => FieldType::Address,
        FieldKind::String | FieldKind::DynString { .. } => FieldType::Text,
        _ => FieldType::Compound,
    }
}

fn ctf_type(field: &ctf::read::FieldInfo) -> FieldType {
    // Compiled types keep the kind in words only; integers are recognized by their size.
    match field {
        f if f.labels.is_some() => FieldType::Enumeration,
        // Floats have a size, too.
        f if matches!(f.type_text.as_str(), "float" | "double") => FieldType::Float,
        f if f.size > 0 => FieldType::Integer { signed: f.signed },
        f if f.type_text.starts_with("string") || f.type_text.starts_with("char") => {
            FieldType::Text
        }
        _ => FieldType::Compound,
    }
}

fn sample_fields(event: &EventDesc) -> impl Iterator<Item = FieldDesc> + use<> {
    let has = event.attr.sample_type;
    let all = [
        (SampleType::IP, SampleField::Ip, "ip", FieldType::Address),
        (SampleType::ADDR, SampleField::Addr, "addr", FieldType::Address),
        (SampleType::PERIOD, SampleField::Period, "period", FieldType::Integer { signed: false }),
        (SampleType::WEIGHT, SampleField::Weight, "weight", FieldType::Integer { signed: false }),
        (
            SampleType::DATA_SRC,
            SampleField::DataSrc,
            "data_src",
            FieldType::Integer { signed: false },
        ),
        (SampleType::PHYS_ADDR, SampleField::PhysAddr, "phys_addr", FieldType::Address),
        (SampleType::CGROUP, SampleField::Cgroup, "cgroup", FieldType::Integer { signed: false }),
    ];
    all.into_iter().filter(move |(bit, ..)| has.contains(*bit)).map(|(_, place, name, ty)| {
        FieldDesc {
            name: name.to_owned(),
            field_type: ty,
            role: if place == SampleField::Addr {
                FieldRole::DataAddress
            } else {
                FieldRole::Plain
            },
            type_name: "u64".to_owned(),
            common: true,
            part: FieldPart::Sample,
            labels: None,
            place: FieldPlace::Sample(place),
        }
    })
}
