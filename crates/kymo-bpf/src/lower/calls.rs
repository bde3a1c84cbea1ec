//! Calls by name, but for those of texts and of output.

use super::builder::{MemoryPlace, helper};
use super::names::LENGTH_AT;
use super::records::value_of_ctype;
use super::types::{AddressSpace, I64, Type, U64};
use super::{Lowered, Lowering, Value, ValueHome};
use crate::ast::{Expression, ExpressionKind};
use crate::code::{AddressBase, CompareOperation, ComputeOperation, Instruction, Operand};
use crate::facts::CType;
use crate::object::{AttachPoint, AttachTarget, BpfClock, ErrorKind, ProgramOption, StackMode};

/// `AF_INET` and `AF_INET6`.
const FAMILY_4: i64 = 2;
const FAMILY_6: i64 = 10;

const NEEDS_KEYS: &str = "call to {}() expects a map with explicit keys (non-scalar map)";

/// Error of the command line, without a position in the program.
fn wrong_option(name: &str, kind: &str, given: &str) -> Lowered<Value> {
    let what = format!("program command line option --{name} invalid {kind} (value: {given})");
    Err(crate::lexer::error_at(crate::object::ProgramPosition::default(), what))
}

fn is_name(argument: &Expression, wanted: &str) -> bool {
    matches!(&*argument.kind, ExpressionKind::Name(name) if name == wanted)
}

impl Lowering<'_> {
    /// Lowers a call.
    pub(crate) fn call_named(&mut self, name: &str, arguments: &[Expression]) -> Lowered<Value> {
        if let Some(tree) = self.tree.macros.get(name) {
            // One of another number of arguments leaves what the language has of that name.
            let fits = tree.parameters.len() == arguments.len();
            if fits || !(arguments.is_empty() && self.builtin(name)?.is_some()) {
                return self.call_macro(name, arguments);
            }
            if let Some(value) = self.builtin(name)? {
                return Ok(value);
            }
        }
        if let Some(value) = self.call_output(name, arguments)? {
            return Ok(value);
        }
        if let Some(value) = self.call_text(name, arguments)? {
            return Ok(value);
        }
        if let Some(value) = self.call_map(name, arguments)? {
            return Ok(value);
        }
        if let Some(value) = self.call_time_or_name(name, arguments)? {
            return Ok(value);
        }
        if let Some(value) = self.call_other(name, arguments)? {
            return Ok(value);
        }
        if arguments.is_empty()
            && let Some(value) = self.builtin(name)?
        {
            return Ok(value);
        }
        if ["count", "sum", "min", "max", "avg", "stats", "hist", "lhist", "tseries"]
            .contains(&name)
        {
            let what = format!("{name}() must be assigned to a map: `@ = {name}(…)`");
            return self.error(what);
        }
        self.error(format!("unknown function {name}()"))
    }

    pub(crate) fn takes(
        &self,
        name: &str,
        arguments: &[Expression],
        from: usize,
        to: usize,
    ) -> Lowered<()> {
        if (from..=to).contains(&arguments.len()) {
            return Ok(());
        }
        let has = arguments.len();
        let wanted = if from == to { from.to_string() } else { format!("{from} to {to}") };
        self.error(format!("{name}() takes {wanted} arguments, {has} are given"))
    }

    fn call_map(&mut self, name: &str, arguments: &[Expression]) -> Lowered<Option<Value>> {
        let map = |e: &Expression| match &*e.kind {
            ExpressionKind::Map(name, key) => Some((name.clone(), key.clone())),
            _ => None,
        };
        Ok(Some(match name {
            "delete" | "has_key" => {
                self.takes(name, arguments, 1, 2)?;
                let Some((map_name, key)) = arguments.first().and_then(map) else {
                    return self.error(format!("first argument of {name}() must be a map"));
                };
                // `delete(@x, (a, b))`, and `delete(@x[a, b])` as it was written before.
                let key = match arguments.get(1) {
                    Some(key) => match &*key.kind {
                        ExpressionKind::Tuple(parts) => parts.clone(),
                        _ => vec![key.clone()],
                    },
                    None => key,
                };
                if name == "has_key" {
                    let number = self.map_number(&self.map_name(&map_name));
                    if key.is_empty() || self.user_map(number).has_key == Some(false) {
                        return self.error(NEEDS_KEYS.replacen("{}", "has_key", 1));
                    }
                    self.has_key(&map_name, &key)?
                } else if arguments.len() > 2 {
                    return self.error("delete() takes a map and a key");
                } else {
                    self.delete(&map_name, &key)?
                }
            }
            "find" => {
                self.takes(name, arguments, 3, 3)?;
                let Some((map_name, _)) = map(&arguments[0]) else {
                    return self.error("first argument of find() must be a map");
                };
                let ExpressionKind::Variable(variable) = &*arguments[2].kind else {
                    return self.error("third argument of find() must be a variable");
                };
                let key = match &*arguments[1].kind {
                    ExpressionKind::Tuple(parts) => parts.clone(),
                    _ => vec![arguments[1].clone()],
                };
                let has = self.has_key(&map_name, &key)?;
                let operand = self.operand(&has)?;
                let (register, end) = (self.in_register(operand), self.label());
                self.branch(CompareOperation::Equal, register, Operand::Immediate(0), end);
                let value = self.read_map(&map_name, &key)?;
                self.assign_variable(variable, value)?;
                self.place_label(end);
                has
            }
            "len" => {
                self.takes(name, arguments, 1, 1)?;
                match map(&arguments[0]) {
                    Some((map_name, key)) if key.is_empty() => self.map_length(&map_name)?,
                    _ => self.stack_or_text_length(&arguments[0])?,
                }
            }
            _ => return Ok(None),
        }))
    }

    /// Entries of a map, counted by a callback.
    fn map_length(&mut self, name: &str) -> Lowered<Value> {
        let name = self.map_name(name);
        let number = self.map_number(&name);
        if self.user_map(number).has_key == Some(false) {
            return self.error(NEEDS_KEYS.replacen("{}", "len", 1));
        }
        let function = self.begin_callback();
        self.emit(Instruction::Exit(Operand::Immediate(0)));
        self.end_callback();
        let map = self.map_reference(number);
        let callback = self.register();
        self.emit(Instruction::LoadFunction(callback, function as u32));
        let (callback, zero) = (Operand::Register(callback), Operand::Immediate(0));
        let context = self.main_frame_address();
        let count = self.call(helper::FOR_EACH, vec![map, callback, context, zero]);
        Ok(Value::register(I64, count))
    }

    fn stack_or_text_length(&mut self, argument: &Expression) -> Lowered<Value> {
        let is_taken_here = match &*argument.kind {
            ExpressionKind::Name(name) | ExpressionKind::Call(name, _) => {
                matches!(name.as_str(), "kstack" | "ustack")
            }
            _ => false,
        };
        let value = self.value(argument)?;
        let value = self.settle(value)?;
        match &value.ty {
            Type::KernelStack(settings) | Type::UserStack(settings) if is_taken_here => {
                let is_user = matches!(value.ty, Type::UserStack(_));
                Ok(Value::register(I64, self.stack_length(is_user, settings.depth)))
            }
            // A program cannot read stacks that were stored: their length is stored with them.
            Type::KernelStack(_) | Type::UserStack(_) => {
                if !std::mem::replace(&mut self.stack_lengths, true) {
                    self.changed = true;
                }
                let word = match value.home {
                    ValueHome::Memory(place) => Operand::Register(self.load(place, 8)),
                    _ => self.operand(&value)?,
                };
                let at = Operand::Immediate(LENGTH_AT);
                Ok(Value::register(I64, self.computed(ComputeOperation::ShiftRight, word, at)))
            }
            Type::Text(_) => self.text_length(value),
            Type::Unknown => Ok(Value { ty: Type::Unknown, home: ValueHome::Constant(0) }),
            other => self.error(format!("{} has no length", other.name())),
        }
    }

    fn word(expression: &Expression) -> Option<&str> {
        match &*expression.kind {
            ExpressionKind::Name(name) => Some(name),
            _ => None,
        }
    }

    fn call_time_or_name(
        &mut self,
        name: &str,
        arguments: &[Expression],
    ) -> Lowered<Option<Value>> {
        Ok(Some(match name {
            "nsecs" if arguments.len() == 1 => {
                let helper = match Self::word(&arguments[0]) {
                    Some("monotonic") => helper::KTIME,
                    Some("boot") => helper::KTIME_BOOT,
                    Some("tai") | Some("sw_tai") => helper::KTIME_TAI,
                    _ => return self.error("nsecs() takes monotonic, boot, tai or sw_tai"),
                };
                Value::register(U64, self.call(helper, Vec::new()))
            }
            "strftime" => {
                self.takes(name, arguments, 2, 2)?;
                let format = self.literal_of(&arguments[0], "format of strftime()")?;
                let value = self.number(&arguments[1])?;
                let clock = match &*arguments[1].kind {
                    ExpressionKind::Call(n, list) if n == "nsecs" => {
                        match list.first().and_then(Self::word) {
                            Some("monotonic") => BpfClock::Monotonic,
                            Some("tai") | Some("sw_tai") => BpfClock::Tai,
                            _ => BpfClock::BootTime,
                        }
                    }
                    _ => BpfClock::BootTime,
                };
                let register = self.in_register(value);
                Value::register(Type::Timestamp { format, clock }, register)
            }
            "ksym" => {
                self.takes(name, arguments, 1, 1)?;
                let address = self.number(&arguments[0])?;
                let register = self.in_register(address);
                Value::register(Type::KernelSymbol, register)
            }
            "usym" => {
                self.takes(name, arguments, 1, 1)?;
                let address = self.number(&arguments[0])?;
                self.user_symbol(address)?
            }
            "strerror" | "syscall_name" | "signal_name" => {
                self.takes(name, arguments, 1, 1)?;
                let number = self.number(&arguments[0])?;
                let ty = match name {
                    "strerror" => Type::ErrorText,
                    "syscall_name" => Type::SyscallName,
                    _ => Type::SignalName,
                };
                let register = self.in_register(number);
                Value::register(ty, register)
            }
            "cgroup_path" => {
                self.takes(name, arguments, 1, 2)?;
                let hierarchy = match arguments.get(1) {
                    Some(h) => self.literal_of(h, "second argument of cgroup_path()")?,
                    None => String::new(),
                };
                let id = self.number(&arguments[0])?;
                let register = self.in_register(id);
                Value::register(Type::CgroupPath(hierarchy), register)
            }
            "pid" | "tid" if arguments.len() == 1 && is_name(&arguments[0], "init") => {
                self.first_namespace_id(name)?
            }
            "pid" | "tid" if arguments.len() == 1 => match self.builtin(name)? {
                Some(value) => value,
                None => return Ok(None),
            },
            "ppid" | "pcomm" | "comm" | "leader_comm" | "leader_tid" if arguments.len() == 1 => {
                let task = self.value(&arguments[0])?;
                if name == "comm" && task.ty.is_integer() && task.ty != Type::Unknown {
                    let what = "comm() takes a task, as in `comm(curtask)`: programs cannot find \
                                a task by its ID";
                    return self.error(what);
                }
                self.of_task(name, task)?
            }
            "kstack" | "ustack" => {
                self.takes(name, arguments, 0, 2)?;
                let (mut depth, mut mode) = (127, None);
                for argument in arguments {
                    mode = match Self::word(argument) {
                        Some("perf") => Some(StackMode::Perf),
                        Some("bpftrace") => Some(StackMode::Bpftrace),
                        Some("raw") => Some(StackMode::Raw),
                        Some("build_id") => Some(StackMode::BuildId),
                        _ => {
                            depth = self.constant_of(argument, "number of frames")?;
                            if !(1..=127).contains(&depth) {
                                return self.error("number of frames must be 1 to 127");
                            }
                            mode
                        }
                    };
                }
                self.stack(name == "ustack", depth as u32, mode)?
            }
            _ => return Ok(None),
        }))
    }

    fn call_other(&mut self, name: &str, arguments: &[Expression]) -> Lowered<Option<Value>> {
        Ok(Some(match name {
            "ntop" => {
                self.takes(name, arguments, 1, 2)?;
                self.internet_address(arguments)?
            }
            "macaddr" => {
                self.takes(name, arguments, 1, 1)?;
                let value = self.value(&arguments[0])?;
                self.hardware_address(value)?
            }
            "pton" => {
                self.takes(name, arguments, 1, 1)?;
                let text = self.literal_of(&arguments[0], "argument of pton()")?;
                self.parsed_address(&text)?
            }
            "bswap" => {
                self.takes(name, arguments, 1, 1)?;
                let value = self.scalar(&arguments[0])?;
                let size = match value.ty {
                    Type::Integer { size, .. } => size,
                    _ => 8,
                };
                let operand = self.operand(&value)?;
                let register = self.copy_of(operand);
                if size > 1 {
                    self.emit(Instruction::SwapBytes(register, i32::from(size) * 8));
                }
                let ty = match value.ty {
                    // Of `$x = bswap($x)` the next pass knows it; 8 bytes would stay.
                    Type::Unknown => Type::Unknown,
                    _ => Type::Integer { size, signed: false },
                };
                Value::register(ty, register)
            }
            "kaddr" => {
                self.takes(name, arguments, 1, 1)?;
                let symbol = self.literal_of(&arguments[0], "argument of kaddr()")?;
                match self.facts.kernel_symbol(&symbol) {
                    Some(address) => Value { ty: U64, home: ValueHome::Constant(address as i64) },
                    None => {
                        return self.error(format!("Failed to resolve kernel symbol: {symbol}"));
                    }
                }
            }
            "uaddr" => {
                self.takes(name, arguments, 1, 1)?;
                let symbol = self.literal_of(&arguments[0], "argument of uaddr()")?;
                self.user_address(&symbol)?
            }
            "reg" => {
                self.takes(name, arguments, 1, 1)?;
                let register = self.literal_of(&arguments[0], "argument of reg()")?;
                Value::register(U64, self.register_named(&register)?)
            }
            "cgroupid" => {
                self.takes(name, arguments, 1, 1)?;
                let path = self.literal_of(&arguments[0], "argument of cgroupid()")?;
                match self.facts.cgroup_id(&path) {
                    Some(id) => Value { ty: U64, home: ValueHome::Constant(id as i64) },
                    None => return self.error(format!("no such cgroup: {path}")),
                }
            }
            "kptr" | "uptr" => {
                self.takes(name, arguments, 1, 1)?;
                let value = self.value(&arguments[0])?;
                let space = if name == "kptr" { AddressSpace::Kernel } else { AddressSpace::User };
                let target = match value.ty {
                    Type::Pointer { ref target, .. } => target.clone(),
                    _ => CType::Void,
                };
                Value { ty: Type::Pointer { target, space }, home: value.home }
            }
            "socket_cookie" => {
                self.takes(name, arguments, 1, 1)?;
                self.need_typed_arguments(name)?;
                let socket = self.number(&arguments[0])?;
                Value::register(U64, self.call(helper::SOCKET_COOKIE, vec![socket]))
            }
            "signal" | "signal_thread" => {
                self.takes(name, arguments, 1, 1)?;
                self.need_unsafe(name);
                self.send_signal(name, &arguments[0])?
            }
            "override" => {
                self.takes(name, arguments, 1, 1)?;
                self.need_unsafe(name);
                let value = self.number(&arguments[0])?;
                let context = Operand::Register(self.context());
                self.refuse_helper(helper::OVERRIDE);
                self.emit(Instruction::Call(helper::OVERRIDE, vec![context, value], None));
                Value::none()
            }
            "getopt" => self.option(arguments)?,
            "is_literal"
            | "is_str"
            | "is_integer"
            | "is_ptr"
            | "is_array"
            | "is_unsigned_integer" => {
                self.takes(name, arguments, 1, 1)?;
                let value = self.value(&arguments[0])?;
                Value::boolean(match name {
                    "is_literal" => {
                        matches!(value.home, ValueHome::Literal(_) | ValueHome::Constant(_))
                    }
                    "is_str" => matches!(value.ty, Type::Text(_)),
                    "is_integer" => matches!(value.ty, Type::Integer { .. }),
                    "is_ptr" => matches!(value.ty, Type::Pointer { .. }),
                    "is_array" => matches!(value.ty, Type::Array { .. }),
                    _ => matches!(value.ty, Type::Integer { signed: false, .. }),
                })
            }
            "is_err" => {
                self.takes(name, arguments, 1, 1)?;
                let value = self.value(&arguments[0])?;
                let operand = self.operand(&value)?;
                let pointer = self.in_register(operand);
                let (result, end) = (self.copy_of(Operand::Immediate(1)), self.label());
                // The last numbers there are, MAX_ERRNO of them.
                let first = Operand::Immediate(-4095);
                self.branch(CompareOperation::GreaterEqual, pointer, first, end);
                self.emit(Instruction::Move(result, Operand::Immediate(0)));
                self.place_label(end);
                Value::register(Type::Boolean, result)
            }
            "default_str_length" => {
                self.takes(name, arguments, 0, 0)?;
                Value::constant(i64::from(self.text_limit()))
            }
            "static_assert" => {
                self.takes(name, arguments, 1, 2)?;
                if !self.constant_condition(&arguments[0], "condition of static_assert()")? {
                    let text = match arguments.get(1) {
                        Some(text) => self.literal_of(text, "message")?,
                        None => "assertion failed".into(),
                    };
                    return self.error(text);
                }
                Value::none()
            }
            "percpu_kaddr" => {
                self.takes(name, arguments, 1, 2)?;
                self.per_cpu_address(arguments)?
            }
            "write_user" => {
                self.takes(name, arguments, 3, 3)?;
                self.need_unsafe(name);
                self.write_to_user(arguments)?
            }
            "skboutput" => {
                self.takes(name, arguments, 4, 4)?;
                self.output_packet(arguments)?
            }
            "container_of" => {
                self.takes(name, arguments, 3, 3)?;
                self.container_of(&arguments[0], &arguments[1], &arguments[2])?
            }
            "dw_ustack" => {
                let what = "dw_ustack() is not supported; use `kymo record --call-graph dwarf`";
                return self.error(what);
            }
            "assert_str" => {
                self.takes(name, arguments, 1, 1)?;
                match self.value(&arguments[0])?.ty {
                    Type::Text(_) | Type::Unknown => Value::none(),
                    other => {
                        return self.error(format!("expected a string, found {}", other.name()));
                    }
                }
            }
            "kfunc_exist" => {
                self.takes(name, arguments, 1, 1)?;
                let function = self.literal_of(&arguments[0], "argument of kfunc_exist()")?;
                let module = String::new();
                let target = AttachTarget::Fentry { module, function, at_exit: false };
                let point = AttachPoint { name: String::new(), target };
                Value::boolean(self.facts.function(&point).is_ok())
            }
            // Programs of this compiler call none.
            "kfunc_allowed" => {
                self.takes(name, arguments, 1, 1)?;
                Value::boolean(false)
            }
            "globmatch" => return self.error("globmatch() is not supported"),
            _ => return Ok(None),
        }))
    }

    /// `container_of(pointer, typeof(struct x), member)`: a pointer to the structure.
    fn container_of(
        &mut self,
        pointer: &Expression,
        of: &Expression,
        member: &Expression,
    ) -> Lowered<Value> {
        let Some(target) = self.type_argument(of)? else {
            return self.error("second argument of container_of() must be a type");
        };
        let mut path = Vec::new();
        let mut rest = member;
        while let ExpressionKind::Field(inner, name) = &*rest.kind {
            path.insert(0, name.clone());
            rest = inner;
        }
        match &*rest.kind {
            ExpressionKind::Name(name) => path.insert(0, name.clone()),
            _ => return self.error("third argument of container_of() must be a member"),
        }
        let offset = self.offset_of(target.clone(), &path)?;
        let value = self.scalar(pointer)?;
        let space = match &value.ty {
            Type::Pointer { space, .. } => *space,
            _ => self.default_space(),
        };
        let (value, offset) = (self.operand(&value)?, self.operand(&offset)?);
        let register = self.computed(ComputeOperation::Subtract, value, offset);
        Ok(Value::register(Type::Pointer { target, space }, register))
    }

    /// `percpu_kaddr("symbol"[, cpu])`: the symbol's address plus the offset of the CPU.
    fn per_cpu_address(&mut self, arguments: &[Expression]) -> Lowered<Value> {
        let symbol = self.literal_of(&arguments[0], "first argument of percpu_kaddr()")?;
        let offsets = self.facts.kernel_symbol("__per_cpu_offset").filter(|address| *address != 0);
        let (Some(address), Some(offsets)) = (self.facts.per_cpu_symbol(&symbol), offsets) else {
            return self.error(format!("Failed to resolve kernel symbol: {symbol}"));
        };
        let cpu = match arguments.get(1) {
            Some(cpu) => self.number(cpu)?,
            None => Operand::Register(self.call(helper::CPU, Vec::new())),
        };
        let (at, cpu) = (self.constant(offsets as i64), self.copy_of(cpu));
        let inside = self.label();
        let most = Operand::Immediate(self.options.cpus.max(1) as i32 - 1);
        // Of a CPU that there is not: the address of nothing.
        let result = self.copy_of(Operand::Immediate(0));
        let end = self.label();
        self.branch(CompareOperation::LessEqual, cpu, most, inside);
        self.jump(end);
        self.place_label(inside);
        self.compute(ComputeOperation::ShiftLeft, cpu, Operand::Immediate(3));
        self.compute(ComputeOperation::Add, cpu, at);
        let room = self.room(8);
        self.probe_read(room, 8, Operand::Register(cpu), AddressSpace::Kernel);
        let offset = self.load(room, 8);
        let address = self.constant(address as i64);
        self.compute(ComputeOperation::Add, offset, address);
        self.emit(Instruction::Move(result, Operand::Register(offset)));
        self.place_label(end);
        let target = CType::Integer { size: 8, signed: false, is_char: false };
        Ok(Value::register(Type::Pointer { target, space: AddressSpace::Kernel }, result))
    }

    /// Notes that the program may harm others.
    pub(crate) fn need_unsafe(&mut self, name: &str) {
        self.unsafe_call.get_or_insert((name.to_owned(), self.position));
    }

    /// `write_user(to, what, bytes)`: whether they were written.
    fn write_to_user(&mut self, arguments: &[Expression]) -> Lowered<Value> {
        let [to, what, bytes] = arguments else { return Ok(Value::none()) };
        let to = self.number(to)?;
        let value = self.value(what)?;
        let value = self.settle(value)?;
        let bytes = self.constant_of(bytes, "third argument of write_user()")?;
        let has = match &value.home {
            // With the NUL.
            ValueHome::Literal(text) => text.len() as u32 + 1,
            ValueHome::Memory(_) => self.size_of(&value.ty),
            _ => 8,
        };
        let is_less = u32::try_from(bytes).is_ok_and(|bytes| (1..=has).contains(&bytes));
        if !is_less && value.ty != Type::Unknown {
            return self.error(format!("write_user() writes 1 to {has} bytes of this value"));
        }
        let place = self.room(self.types.storage(&value.ty).max(8));
        let ty = value.ty.clone();
        self.store_value(&value, place, &ty)?;
        let from = self.address(place);
        let arguments = vec![to, from, Operand::Immediate(bytes as i32)];
        let failed = self.call(helper::WRITE_USER, arguments);
        let (result, end) = (self.copy_of(Operand::Immediate(0)), self.label());
        self.branch(CompareOperation::NotEqual, failed, Operand::Immediate(0), end);
        self.emit(Instruction::Move(result, Operand::Immediate(1)));
        self.place_label(end);
        Ok(Value::register(Type::Boolean, result))
    }

    fn send_signal(&mut self, name: &str, argument: &Expression) -> Lowered<Value> {
        let value = self.value(argument)?;
        let number = match &value.home {
            ValueHome::Literal(text) => {
                const NAMES: [&str; 31] = [
                    "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1",
                    "SEGV", "USR2", "PIPE", "ALRM", "TERM", "STKFLT", "CHLD", "CONT", "STOP",
                    "TSTP", "TTIN", "TTOU", "URG", "XCPU", "XFSZ", "VTALRM", "PROF", "WINCH", "IO",
                    "PWR", "SYS",
                ];
                let short = text.strip_prefix("SIG").unwrap_or(text);
                match NAMES.iter().position(|n| *n == short) {
                    Some(n) => Operand::Immediate(n as i32 + 1),
                    None => return self.error(format!("no such signal: {text:?}")),
                }
            }
            _ => {
                let value = self.as_scalar(value)?;
                self.operand(&value)?
            }
        };
        let helper = match name {
            "signal" => helper::SEND_SIGNAL,
            _ => helper::SEND_SIGNAL_THREAD,
        };
        let result = self.call(helper, vec![number]);
        self.count_if_negative(result, ErrorKind::HelperFailed("send_signal"));
        Ok(Value::none())
    }

    fn user_address(&mut self, symbol: &str) -> Lowered<Value> {
        use crate::object::AttachTarget as T;
        self.program.specific = true;
        let path = match &self.point.target {
            T::Uprobe { path, .. } | T::Usdt { path, .. } => path.clone(),
            _ => return self.error("uaddr() works in uprobe and usdt probes"),
        };
        let Some((address, size)) = self.facts.user_symbol(&path, symbol) else {
            return self.error(format!("{path} has no symbol {symbol:?}"));
        };
        let moved = self.facts.moved_place(&self.point);
        let size = if [1, 2, 4].contains(&size) { size as u8 } else { 8 };
        let target = CType::Integer { size, signed: false, is_char: false };
        let ty = Type::Pointer { target, space: AddressSpace::User };
        // Where the program is in memory, the probe's own address says.
        let Some(probed) = moved.map(|entry| self.program.moved.unwrap_or(entry)) else {
            return Ok(Value { ty, home: ValueHome::Constant(address as i64) });
        };
        self.program.probed = Some((probed, self.position));
        let register = self.probed_address()?;
        let distance = self.constant(address.wrapping_sub(probed) as i64);
        self.compute(ComputeOperation::Add, register, distance);
        Ok(Value::register(ty, register))
    }

    /// `getopt("name", default, "description")`: known before the program runs.
    fn option(&mut self, arguments: &[Expression]) -> Lowered<Value> {
        self.takes("getopt", arguments, 1, 3)?;
        let name = self.literal_of(&arguments[0], "name of getopt()")?;
        let default = match arguments.get(1) {
            Some(default) => self.value(default)?,
            None => Value::boolean(false),
        };
        let description = match arguments.get(2) {
            Some(text) => self.literal_of(text, "description of getopt()")?,
            None => String::new(),
        };
        let default_text = match (&default.home, &default.ty) {
            (ValueHome::Constant(c), Type::Boolean) => (*c != 0).to_string(),
            (ValueHome::Constant(c), _) => c.to_string(),
            (ValueHome::Literal(text), _) => text.clone(),
            _ => return self.error("default of getopt() must be a literal"),
        };
        if !self.program_options.iter().any(|o| o.name == name) {
            let option = ProgramOption { name: name.clone(), default: default_text, description };
            self.program_options.push(option);
        }
        let given = self.options.parameters.iter().find_map(|p| {
            let rest = p.strip_prefix("--")?.strip_prefix(name.as_str())?;
            if rest.is_empty() { Some("") } else { rest.strip_prefix('=') }
        });
        let Some(given) = given.map(str::to_owned) else { return Ok(default) };
        match default.ty {
            Type::Boolean => match given.to_ascii_lowercase().as_str() {
                "" | "true" | "1" => Ok(Value::boolean(true)),
                "false" | "0" => Ok(Value::boolean(false)),
                text if text.eq_ignore_ascii_case("true") => Ok(Value::boolean(true)),
                text if text.eq_ignore_ascii_case("false") => Ok(Value::boolean(false)),
                _ => wrong_option(&name, "boolean", &given),
            },
            Type::Text(_) => Ok(Value::literal(&given)),
            _ => {
                let negative = given.starts_with('-');
                match crate::lexer::integer_value(given.trim_start_matches('-')) {
                    Some(n) if negative => Ok(Value::constant((n as i64).wrapping_neg())),
                    Some(n) if n > i64::MAX as u64 => {
                        Ok(Value { ty: U64, home: ValueHome::Constant(n as i64) })
                    }
                    Some(n) => Ok(Value::constant(n as i64)),
                    None => wrong_option(&name, "integer", &given),
                }
            }
        }
    }

    fn internet_address(&mut self, arguments: &[Expression]) -> Lowered<Value> {
        let family = match arguments {
            [family, _] => Some(self.scalar(family)?),
            _ => None,
        };
        let Some(address) = arguments.last() else { return Ok(Value::none()) };
        let address = self.value(address)?;
        let place = self.room(24);
        let (guessed, size) = match &address.ty {
            Type::Array { element, count } => {
                let size = self.types.size(element).saturating_mul(*count);
                (if size >= 16 { FAMILY_6 } else { FAMILY_4 }, size)
            }
            Type::Record(id) => {
                let size = self.types.size(&CType::Record { id: *id });
                (if size >= 16 { FAMILY_6 } else { FAMILY_4 }, size)
            }
            Type::Text(size) | Type::Buffer(size) => {
                (if *size >= 16 { FAMILY_6 } else { FAMILY_4 }, *size)
            }
            _ => (FAMILY_4, 0),
        };
        let family = match family {
            Some(value) => self.operand(&value)?,
            None => Operand::Immediate(guessed as i32),
        };
        self.store(place, 8, family);
        self.zero_memory(place.at(8), 16);
        if size == 0 {
            let address = self.as_scalar(address)?;
            let operand = self.operand(&address)?;
            self.store(place.at(8), 4, operand);
        } else {
            let size = size.min(16);
            self.read_into(address, place.at(8), size)?;
        }
        Ok(Value::memory(Type::Internet, place))
    }

    /// Reads or copies bytes that a value stands for.
    pub(crate) fn read_into(&mut self, value: Value, to: MemoryPlace, size: u32) -> Lowered<()> {
        match value.home {
            ValueHome::Remote(address, offset, space) => {
                let from =
                    MemoryPlace { base: AddressBase::Register(address), offset: offset as i32 };
                let from = self.address(from);
                self.probe_read(to, size, from, space);
            }
            ValueHome::Memory(from) => self.copy_memory(from, to, size),
            _ => return self.error(format!("{} has no bytes", value.ty.name())),
        }
        Ok(())
    }

    fn hardware_address(&mut self, value: Value) -> Lowered<Value> {
        let place = self.room(8);
        self.store(place, 8, Operand::Immediate(0));
        match value.ty {
            Type::Pointer { space, .. } => {
                let address = self.operand(&value)?;
                self.probe_read(place, 6, address, space);
            }
            Type::Array { .. } | Type::Text(_) => self.read_into(value, place, 6)?,
            _ => {
                let value = self.as_scalar(value)?;
                let address = self.operand(&value)?;
                let space = self.default_space();
                self.probe_read(place, 6, address, space);
            }
        }
        Ok(Value::memory(Type::Mac, place))
    }

    fn parsed_address(&mut self, text: &str) -> Lowered<Value> {
        let bytes = match text.parse::<std::net::IpAddr>() {
            Ok(std::net::IpAddr::V4(v4)) => v4.octets().to_vec(),
            Ok(std::net::IpAddr::V6(v6)) => v6.octets().to_vec(),
            Err(_) => return self.error(format!("not an address: {text:?}")),
        };
        let place = self.room(16);
        for (n, chunk) in bytes.chunks_exact(4).enumerate() {
            let word = chunk.first_chunk().map_or(0, |w| i32::from_le_bytes(*w));
            self.store(place.at(n as u32 * 4), 4, Operand::Immediate(word));
        }
        if bytes.len() == 4 {
            self.store(place.at(4), 4, Operand::Immediate(0));
        }
        let element = CType::Integer { size: 1, signed: false, is_char: false };
        Ok(Value::memory(Type::Array { element, count: bytes.len() as u32 }, place))
    }

    /// A member by name, for paths of our own.
    pub(crate) fn named_member(&mut self, value: Value, name: &str) -> Lowered<Value> {
        let Type::Pointer { target: CType::Record { id }, space } = value.ty else {
            return self.error("the kernel's types are unknown (no BTF)");
        };
        let Some(member) = self.types.member(id, name) else { return self.no_member(id, name) };
        let operand = self.operand(&value)?;
        let ty = value_of_ctype(&member.ctype, space);
        let address = self.in_register(operand);
        if !ty.is_scalar() {
            return Ok(Value { ty, home: ValueHome::Remote(address, member.offset, space) });
        }
        let size = self.types.size(&member.ctype).clamp(1, 8);
        let place = self.room(8);
        let from =
            MemoryPlace { base: AddressBase::Register(address), offset: member.offset as i32 };
        let from = self.address(from);
        self.probe_read(place, size, from, space);
        let register = self.load(place, size as u8);
        if ty.is_signed() {
            self.extend(register, size * 8, true);
        }
        Ok(Value::register(ty, register))
    }
}
