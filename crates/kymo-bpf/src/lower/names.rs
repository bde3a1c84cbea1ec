//! Names without parentheses: builtins, macros, constants; positional parameters.

use super::builder::helper;
use super::types::{AddressSpace, I64, Type, U32, U64};
use super::{Lowered, Lowering, ServiceMap, Value, ValueHome};
use crate::ast::Expression;
use crate::code::{CompareOperation, ComputeOperation, Instruction, Operand, Register};
use crate::facts::{CType, NamedConstant};
use crate::object::{AttachTarget, ErrorKind, ProgramPosition, StackMode, StackSettings};
use crate::preprocess::MacroValue;

/// `BPF_F_USER_STACK`
const USER_STACK: i32 = 256;
const EEXIST: i32 = 17;
const ENOMEM: i32 = 12;
/// The deepest stack, as the kernel's limit is by default.
const MAX_STACK: u32 = 127;
/// Constants that programs take from the kernel's headers by `#include`, where they are
/// macros, which BTF does not have.
const HEADER_CONSTANTS: &[(&str, i64)] = &[
    ("AF_UNSPEC", 0),
    ("AF_UNIX", 1),
    ("AF_INET", 2),
    ("AF_INET6", 10),
    ("AF_NETLINK", 16),
    ("AF_PACKET", 17),
    ("TASK_RUNNING", 0),
    ("TASK_INTERRUPTIBLE", 1),
    ("TASK_UNINTERRUPTIBLE", 2),
    ("IPPROTO_TCP", 6),
    ("IPPROTO_UDP", 17),
    ("NULL", 0),
];
/// Bit of a stored stack from which on its number of frames stands, above id and map.
pub(super) const LENGTH_AT: i32 = 48;
/// Bytes of `comm`.
const COMM_SIZE: u32 = 16;

impl Lowering<'_> {
    /// A name.
    pub(crate) fn name(&mut self, name: &str) -> Lowered<Value> {
        if let Some(value) = self.bound(name)? {
            return Ok(value);
        }
        if self.tree.macros.contains_key(name) {
            return self.call_macro(name, &[]);
        }
        if let Some(value) = self.builtin(name)? {
            return Ok(value);
        }
        if let Some(NamedConstant { value, ctype }) = self.types.constant(name) {
            let ty = match ctype {
                Some(CType::Enumeration { size, signed, id }) => {
                    Type::Enumeration { size, signed, id }
                }
                _ => I64,
            };
            return Ok(Value { ty, home: ValueHome::Constant(value) });
        }
        if let Some((_, value)) = HEADER_CONSTANTS.iter().find(|(n, _)| *n == name) {
            return Ok(Value::constant(*value));
        }
        match self.tree.header_macros.value(name) {
            Some(MacroValue::Integer(value)) => return Ok(Value::constant(value)),
            Some(MacroValue::Text(text)) => return Ok(Value::literal(&text)),
            None => {}
        }
        let mut message = crate::lexer::error_at(self.position, format!("unknown name {name:?}"));
        let missing = self.tree.missing_header.clone();
        let usual = "variables are written `$name`, maps `@name`";
        message.hint = Some(missing.unwrap_or_else(|| usual.into()));
        Err(message)
    }

    pub(crate) fn call_macro(&mut self, name: &str, arguments: &[Expression]) -> Lowered<Value> {
        self.in_macro(name, arguments, |lowering, tree| {
            for statement in &tree.body.statements {
                lowering.statement_in_place(statement)?;
            }
            match &tree.body.value {
                Some(value) => lowering.value(value),
                None => Ok(Value::none()),
            }
        })
    }

    /// The result of a helper without arguments.
    pub(super) fn asked(&mut self, helper: i32, ty: Type) -> Value {
        let register = self.call(helper, Vec::new());
        Value::register(ty, register)
    }

    /// Process in the upper half, thread in the lower one, as the compiling process's namespace
    /// numbers them; 0 for tasks that are in another one.
    fn pid_and_tid(&mut self) -> Value {
        let namespace = self.options.pid_namespace.filter(|_| !self.options.in_user_space);
        let Some((device, inode)) = namespace else { return self.asked(helper::PID_TGID, U64) };
        let place = self.room(8);
        self.store(place, 8, Operand::Immediate(0));
        let (device, inode) = (self.constant(device as i64), self.constant(inode as i64));
        let to = self.address(place);
        let arguments = vec![device, inode, to, Operand::Immediate(8)];
        self.call(helper::NAMESPACE_PID_TGID, arguments);
        Value::register(U64, self.load(place, 8))
    }

    pub(super) fn low_half(&mut self, value: &Value) -> Lowered<Value> {
        let operand = self.operand(value)?;
        let register = self.copy_of(operand);
        self.extend(register, 32, false);
        Ok(Value::register(U32, register))
    }

    fn high_half(&mut self, value: &Value) -> Lowered<Value> {
        let operand = self.operand(value)?;
        let shift = Operand::Immediate(32);
        let register = self.computed(ComputeOperation::ShiftRight, operand, shift);
        Ok(Value::register(U32, register))
    }

    /// A builtin; `None` if there is none of that name.
    pub(crate) fn builtin(&mut self, name: &str) -> Lowered<Option<Value>> {
        let name = name.strip_prefix("__builtin_").unwrap_or(name);
        Ok(Some(match name {
            "pid" => {
                let both = self.pid_and_tid();
                self.high_half(&both)?
            }
            "tid" => {
                let both = self.pid_and_tid();
                self.low_half(&both)?
            }
            "uid" => {
                let both = self.asked(helper::UID_GID, U64);
                self.low_half(&both)?
            }
            "gid" => {
                let both = self.asked(helper::UID_GID, U64);
                self.high_half(&both)?
            }
            "nsecs" => self.asked(helper::KTIME_BOOT, U64),
            "elapsed" => {
                let now = self.call(helper::KTIME_BOOT, Vec::new());
                let start = self.constant(self.options.start_ns as i64);
                self.compute(ComputeOperation::Subtract, now, start);
                Value::register(U64, now)
            }
            "cpu" => self.asked(helper::CPU, U32),
            "ncpus" => Value::constant(i64::from(self.options.cpus)),
            "numaid" => self.asked(helper::NUMA_NODE, U32),
            "rand" => self.asked(helper::RANDOM, U32),
            "cgroup" => self.asked(helper::CGROUP, U64),
            "jiffies" => self.asked(helper::JIFFIES, U64),
            "comm" => {
                let place = self.room(COMM_SIZE);
                // Before Linux 6.2 the kernel leaves what is behind the name as it was, and keys
                // of the same name would differ.
                self.zero_memory(place, COMM_SIZE);
                let address = self.address(place);
                let size = Operand::Immediate(COMM_SIZE as i32);
                self.emit(Instruction::Call(helper::COMM, vec![address, size], None));
                Value::memory(Type::Text(COMM_SIZE), place)
            }
            "curtask" => self.current_task(),
            "ppid" | "pcomm" | "leader_comm" | "leader_tid" => {
                let task = self.current_task();
                self.of_task(name, task)?
            }
            "kstack" => self.stack(false, MAX_STACK, None)?,
            "ustack" => self.stack(true, MAX_STACK, None)?,
            "ctx" => {
                self.program.uses_context = true;
                let context = self.context();
                let target = match &self.point.target {
                    AttachTarget::Iter { object, .. } => {
                        self.types.find(&format!("struct bpf_iter__{object}"))
                    }
                    AttachTarget::Kprobe { .. } | AttachTarget::Uprobe { .. } => {
                        self.types.find("struct pt_regs")
                    }
                    _ => None,
                };
                if matches!(self.point.target, AttachTarget::Iter { .. }) {
                    return Ok(Some(Value { ty: Type::Arguments, home: ValueHome::None }));
                }
                let target = target.unwrap_or(CType::Void);
                Value::register(Type::Pointer { target, space: AddressSpace::Kernel }, context)
            }
            "args" => Value { ty: Type::Arguments, home: ValueHome::None },
            "retval" => self.return_value()?,
            "func" => self.function_name()?,
            "probe" => {
                self.program.specific = true;
                let name = match self.point.target {
                    AttachTarget::Begin if self.is_old() => "BEGIN".to_owned(),
                    AttachTarget::Begin => "begin".to_owned(),
                    AttachTarget::End if self.is_old() => "END".to_owned(),
                    AttachTarget::End => "end".to_owned(),
                    _ => self.point.name.clone(),
                };
                let known = self.probe_names.iter().position(|n| *n == name);
                let index = known.unwrap_or_else(|| {
                    self.probe_names.push(name);
                    self.probe_names.len() - 1
                });
                Value { ty: Type::ProbeName, home: ValueHome::Constant(index as i64) }
            }
            "probetype" => {
                self.program.specific = true;
                let kind = self.point.name.split(':').next().unwrap_or("").to_owned();
                let special = ["BEGIN", "END", "begin", "end", "self"].contains(&kind.as_str());
                Value::literal(if special { "special" } else { &kind })
            }
            "username" => {
                let both = self.asked(helper::UID_GID, U64);
                let uid = self.low_half(&both)?;
                Value { ty: Type::UserName, home: uid.home }
            }
            // They are run by this process itself.
            "usermode" if super::is_special(&self.point) => {
                let ty = Type::Integer { size: 1, signed: false };
                Value { ty, home: ValueHome::Constant(1) }
            }
            "usermode" => {
                let segment = self.register_named("cs")?;
                self.compute(ComputeOperation::And, segment, Operand::Immediate(3));
                self.compute(ComputeOperation::ShiftRight, segment, Operand::Immediate(1));
                Value::register(Type::Integer { size: 1, signed: false }, segment)
            }
            "cpid" => match self.options.child_pid {
                Some(pid) => Value::constant(i64::from(pid)),
                None => return self.error("cpid needs a child process (-c COMMAND)"),
            },
            "has_cpid" => Value::boolean(self.options.child_pid.is_some()),
            _ => {
                // Markers of programs have up to 12.
                if let Some(n) = name.strip_prefix("arg").and_then(|n| n.parse::<u32>().ok())
                    && (n < 10 || matches!(self.point.target, AttachTarget::Usdt { .. }))
                {
                    if let AttachTarget::Usdt { .. } = self.point.target {
                        return self.marker_argument(n).map(Some);
                    }
                    let register = self.argument_word(n)?;
                    return Ok(Some(Value::register(U64, register)));
                }
                if let Some(n) = name.strip_prefix("sarg").and_then(|n| n.parse::<i32>().ok()) {
                    return self.stack_argument(n).map(Some);
                }
                return Ok(None);
            }
        }))
    }

    /// `sarg0`: an argument on the stack, above the return address.
    fn stack_argument(&mut self, n: i32) -> Lowered<Value> {
        let arm = self.options.arch == "aarch64";
        let stack = self.register_named("sp")?;
        let offset = n.clamp(0, 64) * 8 + if arm { 0 } else { 8 };
        let from = self.computed(
            ComputeOperation::Add,
            Operand::Register(stack),
            Operand::Immediate(offset),
        );
        let place = self.room(8);
        let space = self.default_space();
        self.probe_read(place, 8, Operand::Register(from), space);
        Ok(Value::register(U64, self.load(place, 8)))
    }

    fn current_task(&mut self) -> Value {
        let register = self.call(helper::TASK, Vec::new());
        match self.types.find("struct task_struct") {
            Some(target) => {
                Value::register(Type::Pointer { target, space: AddressSpace::Kernel }, register)
            }
            None => Value::register(U64, register),
        }
    }

    /// Follows members by name.
    pub(crate) fn path_of(&mut self, value: Value, path: &[&str]) -> Lowered<Value> {
        let mut value = value;
        for name in path {
            value = self.named_member(value, name)?;
        }
        Ok(value)
    }

    /// `func`: the symbol of the probed function.
    fn function_name(&mut self) -> Lowered<Value> {
        match self.point.target.clone() {
            AttachTarget::Kprobe { .. } | AttachTarget::Fentry { .. } => {
                let context = Operand::Register(self.context());
                let address = self.call(helper::FUNCTION_ADDRESS, vec![context]);
                Ok(Value::register(Type::KernelSymbol, address))
            }
            AttachTarget::Uprobe { .. } | AttachTarget::Usdt { .. } => {
                let address = self.probed_address()?;
                self.user_symbol(Operand::Register(address))
            }
            _ => {
                let point = self.point.name.clone();
                self.error(format!("func is not available in {point}"))
            }
        }
    }

    /// Address of the probe in the process, also where a function returns.
    pub(crate) fn probed_address(&mut self) -> Lowered<Register> {
        // Linux 6.7 gives it to programs of user space's probes.
        if self.options.kernel >= (6, 7) && !self.options.in_user_space {
            let context = Operand::Register(self.context());
            return Ok(self.call(helper::FUNCTION_ADDRESS, vec![context]));
        }
        let name = if self.options.arch == "aarch64" { "pc" } else { "ip" };
        self.register_named(name)
    }

    /// `pid(init)`, `tid(init)`: as the first pid namespace numbers them.
    pub(crate) fn first_namespace_id(&mut self, name: &str) -> Lowered<Value> {
        let both = self.asked(helper::PID_TGID, U64);
        match name {
            "pid" => self.high_half(&both),
            _ => self.low_half(&both),
        }
    }

    pub(crate) fn user_symbol(&mut self, address: Operand) -> Lowered<Value> {
        let place = self.room(16);
        self.store(place, 8, address);
        let both = self.pid_and_tid();
        let pid = self.high_half(&both)?;
        let pid = self.operand(&pid)?;
        self.store(place.at(8), 8, pid);
        Ok(Value::memory(Type::UserSymbol, place))
    }

    /// `kstack(mode, depth)`, `ustack(…)`
    /// What a task, its parent or its first thread has, by the name that the language gives it.
    pub(crate) fn of_task(&mut self, name: &str, task: Value) -> Lowered<Value> {
        let path: &[&str] = match name {
            "ppid" => &["real_parent", "tgid"],
            "pcomm" => &["real_parent", "comm"],
            "leader_tid" => &["group_leader", "pid"],
            "leader_comm" => &["group_leader", "comm"],
            _ => &["comm"],
        };
        let value = self.path_of(task, path)?;
        self.settle(value)
    }

    pub(crate) fn stack(
        &mut self,
        user: bool,
        depth: u32,
        mode: Option<StackMode>,
    ) -> Lowered<Value> {
        let mode = mode.unwrap_or(match self.config.get("stack_mode").map(String::as_str) {
            Some("perf") => StackMode::Perf,
            Some("raw") => StackMode::Raw,
            Some("build_id") => StackMode::BuildId,
            _ => StackMode::Bpftrace,
        });
        let depth = depth.clamp(1, MAX_STACK);
        let settings = StackSettings { depth, mode };
        let number = self.service_map(ServiceMap::Stacks(depth));
        let index = self.maps[..number as usize]
            .iter()
            .filter(|m| matches!(m, super::MapSlot::Service(ServiceMap::Stacks(_))))
            .count();
        let context = Operand::Register(self.context());
        let map = self.map_reference(number);
        let flags = Operand::Immediate(if user { USER_STACK } else { 0 });
        let id = self.call(helper::STACK_ID, vec![context, map, flags]);
        // Another stack has the id, or there is no room. Other errors mean that there is no
        // such stack here: a kernel thread has no user stack, a program in user mode no kernel
        // stack.
        let (lost, kept) = (self.label(), self.label());
        self.branch(CompareOperation::Equal, id, Operand::Immediate(-EEXIST), lost);
        self.branch(CompareOperation::NotEqual, id, Operand::Immediate(-ENOMEM), kept);
        self.place_label(lost);
        self.count_error(ErrorKind::StackLost);
        self.place_label(kept);
        self.extend(id, 32, false);
        if self.stack_lengths {
            let length = self.stack_length(user, depth);
            self.compute(ComputeOperation::ShiftLeft, length, Operand::Immediate(LENGTH_AT));
            self.compute(ComputeOperation::Or, id, Operand::Register(length));
        }
        if index > 0 {
            let high = self.register();
            self.emit(Instruction::LoadImmediate(high, (index as u64) << 32));
            self.compute(ComputeOperation::Or, id, Operand::Register(high));
        }
        if !user {
            // The stack of a raw tracepoint begins with the program itself and with the functions
            // that call it, how many of them is the kernel's matter; that of a perf event begins
            // with the tracepoint.
            self.program.uses_context = true;
            return Ok(Value::register(Type::KernelStack(settings), id));
        }
        let place = self.room(16);
        self.store(place, 8, Operand::Register(id));
        let both = self.pid_and_tid();
        let pid = self.high_half(&both)?;
        let pid = self.operand(&pid)?;
        self.store(place.at(8), 8, pid);
        Ok(Value::memory(Type::UserStack(settings), place))
    }

    /// Frames of the stack here, the number that is stored; 0 where there is none.
    pub(crate) fn stack_length(&mut self, user: bool, depth: u32) -> Register {
        let mark = self.mark();
        let place = self.room(depth * 8);
        let (context, room) = (self.context(), self.address(place));
        let size = Operand::Immediate((depth * 8) as i32);
        let flags = Operand::Immediate(if user { USER_STACK } else { 0 });
        let arguments = vec![Operand::Register(context), room, size, flags];
        let read = self.call(helper::STACK, arguments);
        self.release(mark);
        let (count, end) = (self.copy_of(Operand::Immediate(0)), self.label());
        self.branch(CompareOperation::SignedLess, read, Operand::Immediate(0), end);
        self.emit(Instruction::Move(count, Operand::Register(read)));
        self.compute(ComputeOperation::ShiftRight, count, Operand::Immediate(3));
        self.place_label(end);
        count
    }

    /// Positional parameters: those that are no options.
    pub(crate) fn positional(&self) -> Vec<&String> {
        self.options.parameters.iter().filter(|p| !p.starts_with("--")).collect()
    }

    /// `str($1)`.
    pub(crate) fn parameter_text(&self, n: u32) -> Value {
        let at = (n as usize).checked_sub(1);
        Value::literal(at.and_then(|at| self.positional().get(at).copied()).map_or("", |t| t))
    }

    /// `$1`: a number if it is one, else a string; 0 with a warning where it is missing or empty.
    pub(crate) fn parameter(&mut self, n: u32, position: ProgramPosition) -> Value {
        let at = (n as usize).checked_sub(1);
        let text = at.and_then(|at| self.positional().get(at).map(|t| t.to_string()));
        match text.filter(|text| !text.is_empty()) {
            None => {
                let what = format!("Positional parameter ${n} is empty or not provided.");
                let warning = crate::lexer::error_at(position, what);
                // Code that is repeated is lowered several times.
                if !self.warnings.contains(&warning) {
                    self.warnings.push(warning);
                }
                Value::constant(0)
            }
            Some(text) => {
                let (sign, digits) = match text.strip_prefix('-') {
                    Some(digits) => (-1, digits),
                    None => (1, text.as_str()),
                };
                match crate::lexer::integer_value(digits) {
                    Some(value) if digits.starts_with(|c: char| c.is_ascii_digit()) => {
                        Value::constant((value as i64).wrapping_mul(sign))
                    }
                    _ => Value::literal(&text),
                }
            }
        }
    }
}
