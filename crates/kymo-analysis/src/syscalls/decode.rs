//! Entries and exits of system calls: by numbers (`raw_syscalls`), by names (`syscalls`), or as
//! LTTng has them (`syscall_entry_*`).

use kymo_events::{
    FieldId, FieldReader, FieldType, LayoutId, LayoutMemo, RecordedClass, RecordedEvent,
};
use kymo_model::{Note, NoteKind, counted};
use rustc_hash::FxHashMap;

use super::thread_abi::ThreadAbis;

/// Number of a call among those met.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CallId(pub u32);

/// A call.
#[derive(Clone, Debug, Default)]
pub struct CallInfo {
    /// Its name; `syscall_N` where only a number is known.
    pub name: String,
    /// Its number, where the recording has it.
    pub number: Option<i64>,
    /// Names of its arguments, and whether they are addresses, where the recording has them.
    pub arguments: Vec<(String, bool)>,
}

/// Arguments of a call.
#[derive(Clone, Debug, Default)]
pub struct CallArguments {
    /// The first six, as numbers.
    pub words: [u64; 6],
    /// Number of arguments, if known.
    pub count: Option<usize>,
    /// Those that are texts, by place.
    pub texts: Vec<(usize, String)>,
}

/// An event of a system call.
#[derive(Clone, Debug)]
pub enum SyscallEvent {
    /// It begins.
    Enter(CallId, CallArguments),
    /// It ends with a result.
    Exit(CallId, i64),
}

#[derive(Clone, Debug)]
enum EventPlan {
    RawEnter { id: FieldReader, args: FieldId },
    RawExit { id: FieldReader, ret: FieldReader },
    Enter { call: CallId, args: Vec<(FieldId, bool)> },
    Exit { call: CallId, ret: FieldReader },
}

/// Longest text of an argument that is kept.
const LONGEST: usize = 64;
/// Most calls that are distinguished; numbers in damaged recordings may be any.
const MOST_CALLS: usize = 4096;

/// Added to the numbers of calls of programs of 32 bits: `name_of` names them with it.
pub const COMPAT_CALLS: i64 = 1 << 32;

/// Number of a call among those of both ABIs.
fn number_of(number: i64, is_32_bit: Option<bool>) -> i64 {
    // Programs of x32 have addresses of 32 bits, and a bit in the numbers of their calls.
    let is_x32 = number & 0x4000_0000 != 0;
    match is_x32 || is_32_bit != Some(true) {
        true => number,
        // Invalid numbers have a sign.
        false => COMPAT_CALLS + i64::from(number as u32),
    }
}

/// Decodes events, class by class.
#[derive(Debug)]
pub struct SyscallDecoder {
    plans: LayoutMemo<Option<EventPlan>>,
    /// The calls that were met.
    pub calls: Vec<CallInfo>,
    by_name: FxHashMap<String, CallId>,
    by_number: FxHashMap<i64, CallId>,
    name_of: fn(i64) -> Option<&'static str>,
    /// Whether calls come by numbers; those by names beside are the same ones.
    has_raw: bool,
    /// Arguments are read, too.
    has_arguments: bool,
    /// Events that lack a field, or end before it.
    pub malformed: u64,
    /// Threads without a mapping that shows whether they are of 32 bits.
    abis: ThreadAbis,
}

impl SyscallDecoder {
    /// `name_of` names a call by its number.
    pub fn new(name_of: fn(i64) -> Option<&'static str>) -> SyscallDecoder {
        SyscallDecoder {
            plans: LayoutMemo::default(),
            calls: Vec::new(),
            by_name: FxHashMap::default(),
            by_number: FxHashMap::default(),
            name_of,
            has_raw: false,
            has_arguments: true,
            malformed: 0,
            abis: ThreadAbis::new(name_of(59) == Some("execve")),
        }
    }

    /// Leaves calls unnamed: each number, of this machine's, is a call of its own.
    pub fn of_numbers() -> SyscallDecoder {
        let abis = ThreadAbis::new(cfg!(target_arch = "x86_64"));
        let unnamed = SyscallDecoder::new(|number| (number == 0).then_some("read"));
        SyscallDecoder { abis, ..unnamed }
    }

    /// Leaves arguments undecoded.
    #[must_use]
    pub fn without_arguments(self) -> SyscallDecoder {
        SyscallDecoder { has_arguments: false, ..self }
    }

    /// Whether events of a layout are of system calls, if one came before.
    pub fn takes(&self, layout: LayoutId) -> Option<bool> {
        self.plans.get(layout).map(Option::is_some)
    }

    /// Note on threads that may be of programs of 32 bits, whose numbers name other calls: the
    /// recording does not tell, and no argument of theirs was wider.
    pub fn width_note(&self) -> Option<Note> {
        let threads = self.abis.doubtful();
        // Where numbers have no names none is wrong.
        if threads == 0 || (self.name_of)(0).is_none() {
            return None;
        }
        let fact = format!(
            "names of the calls of {} may be wrong: no argument of theirs is wider than 32 bits, \
             and programs of 32 bits have other numbers",
            counted(threads, "thread", "threads")
        );
        let advice = "`kymo trace -- COMMAND` and `kymo syscalls record` tell such programs";
        Some(Note::doubt(NoteKind::Abi, fact, Some(advice.to_owned())))
    }

    /// Whether the program of a call is one of 32 bits, where the recording states it.
    pub fn is_of_32_bit_program(&self, event: &RecordedEvent<'_>) -> Option<bool> {
        event.is_of_32_bit_program().or_else(|| self.abis.of(event.task().tid))
    }

    /// The event, if it is of a system call.
    #[inline]
    pub fn decode(&mut self, event: &RecordedEvent<'_>) -> Option<SyscallEvent> {
        if self.plans.get(event.class.layout).is_none() {
            let plan = self.plan(event.class);
            self.plans.insert(event.class.layout, plan);
        }
        let plan = self.plans.get(event.class.layout)?.as_ref()?;
        let fields = event.fields();
        let decoded = match plan {
            EventPlan::RawEnter { id, args } => {
                self.has_raw = true;
                let mut arguments = CallArguments::default();
                if self.has_arguments {
                    fields.read_array(*args, arguments.words.len(), &mut arguments.words);
                }
                fields.read_integer(id).map(|number| {
                    let words = self.has_arguments.then_some(&arguments.words);
                    let is_32_bit = event
                        .is_of_32_bit_program()
                        .or_else(|| self.abis.enter(event.task().tid, number, words));
                    SyscallEvent::Enter(self.numbered(number_of(number, is_32_bit)), arguments)
                })
            }
            EventPlan::RawExit { id, ret } => {
                self.has_raw = true;
                let ends = fields.read_integer(id).zip(fields.read_integer(ret));
                ends.map(|(number, ret)| {
                    let is_32_bit = event
                        .is_of_32_bit_program()
                        .or_else(|| self.abis.exit(event.task().tid, number, ret));
                    SyscallEvent::Exit(self.numbered(number_of(number, is_32_bit)), ret)
                })
            }
            EventPlan::Enter { .. } | EventPlan::Exit { .. } if self.has_raw => return None,
            EventPlan::Enter { call, args } => {
                let args = if self.has_arguments { &**args } else { &[] };
                Some(SyscallEvent::Enter(*call, named_arguments(event, args)))
            }
            EventPlan::Exit { call, ret } => {
                fields.read_integer(ret).map(|ret| SyscallEvent::Exit(*call, ret))
            }
        };
        self.malformed += u64::from(decoded.is_none());
        decoded
    }

    fn numbered(&mut self, number: i64) -> CallId {
        if let Some(id) = self.by_number.get(&number) {
            return *id;
        }
        let unnamed = || {
            if number >= COMPAT_CALLS {
                format!("syscall_{} (32-bit)", number as i32)
            } else {
                format!("syscall_{number}")
            }
        };
        let name = (self.name_of)(number).map_or_else(unnamed, str::to_owned);
        let id = self.named(&name, Some(number));
        if self.by_number.len() < MOST_CALLS {
            self.by_number.insert(number, id);
        }
        id
    }

    /// Calls of one name are one, whatever their ABI.
    fn named(&mut self, name: &str, number: Option<i64>) -> CallId {
        if let Some(id) = self.by_name.get(name) {
            return *id;
        }
        let others = self.calls.len() >= MOST_CALLS;
        if others && let Some(id) = self.by_name.get("[others]") {
            return *id;
        }
        let (name, number) = if others { ("[others]", None) } else { (name, number) };
        let id = CallId(self.calls.len() as u32);
        self.calls.push(CallInfo { name: name.to_owned(), number, arguments: Vec::new() });
        self.by_name.insert(name.to_owned(), id);
        id
    }

    #[cold]
    fn plan(&mut self, class: &RecordedClass) -> Option<EventPlan> {
        let reader = |name: &str| class.field(name).map(|id| class.reader(id));
        match (class.system.as_str(), class.name.as_str()) {
            ("raw_syscalls", "sys_enter") => {
                return Some(EventPlan::RawEnter { id: reader("id")?, args: class.field("args")? });
            }
            ("raw_syscalls", "sys_exit") => {
                return Some(EventPlan::RawExit { id: reader("id")?, ret: reader("ret")? });
            }
            _ => {}
        }
        let of_lttng = class.system.is_empty();
        let prefixes = match of_lttng {
            true => ["syscall_entry_", "syscall_exit_"],
            false if class.system == "syscalls" => ["sys_enter_", "sys_exit_"],
            false => return None,
        };
        let name = |prefix: &str| class.name.strip_prefix(prefix);
        if let Some(call) = name(prefixes[1]) {
            return Some(EventPlan::Exit {
                call: self.named(bare_name(call), None),
                ret: reader("ret")?,
            });
        }
        let call = self.named(bare_name(name(prefixes[0])?), None);
        let own: Vec<(FieldId, String, bool, bool)> = (0u32..)
            .zip(&class.fields)
            .filter(|(_, f)| !f.common && f.part == kymo_events::FieldPart::Own)
            // The number, and in newer kernels what arguments point to (`__filename_val`).
            .filter(|(_, f)| !f.name.starts_with("__") && f.name != "nr")
            .map(|(n, f)| {
                let is_text = f.field_type == FieldType::Text;
                let is_address = f.field_type == FieldType::Address || f.type_name.contains('*');
                (FieldId(n), f.name.clone(), is_text, is_address)
            })
            .take(6)
            .collect();
        if let Some(info) = self.calls.get_mut(call.0 as usize) {
            info.arguments = own.iter().map(|(_, n, _, address)| (n.clone(), *address)).collect();
        }
        let args = own.into_iter().map(|(id, _, is_text, _)| (id, is_text)).collect();
        Some(EventPlan::Enter { call, args })
    }
}

/// The kernel's functions of some calls begin with `new`, and are named so in tracefs and LTTng.
fn bare_name(name: &str) -> &str {
    match name {
        "newfstat" | "newlstat" | "newstat" | "newuname" => {
            name.strip_prefix("new").unwrap_or(name)
        }
        "sendfile64" => "sendfile",
        "umount" => "umount2",
        _ => name,
    }
}

fn named_arguments(event: &RecordedEvent<'_>, args: &[(FieldId, bool)]) -> CallArguments {
    let mut arguments = CallArguments { count: Some(args.len()), ..CallArguments::default() };
    let fields = event.fields();
    for (n, (slot, (id, is_text))) in arguments.words.iter_mut().zip(args).enumerate() {
        if *is_text {
            let text = fields.text(*id);
            let text = String::from_utf8_lossy(text.get(..LONGEST).unwrap_or(&text)).into_owned();
            arguments.texts.push((n, text));
        } else {
            *slot = fields.integer(*id).unwrap_or(0) as u64;
        }
    }
    arguments
}
