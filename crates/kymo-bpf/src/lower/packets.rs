//! `skboutput()`: packets into the perf rings of the CPUs; and in which probes the verifier knows the
//! types of what arguments point to, as the helpers for packets and sockets ask.

use super::builder::helper;
use super::types::Type;
use super::{Lowered, Lowering, ServiceMap, Value, ValueHome};
use crate::ast::Expression;
use crate::code::{CompareOperation, ComputeOperation, Instruction, Operand};
use crate::facts::CType;
use crate::object::{
    ActionKind, AttachTarget, ErrorKind, PACKET_HEADER, RingAction, SourceMessage,
};

/// Bytes of a packet that fit a perf record, whose size has 16 bits, behind the record's header, the
/// size of the raw data and [`PACKET_HEADER`]. The kernel does not look whether they do.
const MOST_BYTES: i32 = 65_480;
/// `BPF_F_CURRENT_CPU`.
const CURRENT_CPU: i64 = 0xffff_ffff;
const EFAULT: i32 = 14;
const ENOSPC: i32 = 28;

impl Lowering<'_> {
    /// Notes that a call takes a pointer as the kernel handed it over.
    pub(super) fn need_typed_arguments(&mut self, name: &str) -> Lowered<()> {
        match self.point.target {
            AttachTarget::Fentry { .. } | AttachTarget::Iter { .. } => Ok(()),
            AttachTarget::RawTracepoint { .. } => {
                self.program.typed_arguments = true;
                Ok(())
            }
            _ => {
                let kind = self.point.name.split(':').next().unwrap_or_default().to_owned();
                Err(SourceMessage {
                    position: self.position,
                    text: format!("{name}() can not be used with {kind:?} probes"),
                    hint: Some("it works in fentry, fexit and rawtracepoint probes".into()),
                    needs_kernel: false,
                    warnings: Vec::new(),
                })
            }
        }
    }

    /// `skboutput(path, packet, length, offset)`: 0, or a negative error number.
    pub(super) fn output_packet(&mut self, arguments: &[Expression]) -> Lowered<Value> {
        let [path, packet, length, offset] = arguments else { return Ok(Value::none()) };
        self.need_typed_arguments("skboutput")?;
        let call = self.position;
        let text = self.literal_of(path, "path of skboutput()")?;
        if text.is_empty() || text.contains('\0') {
            self.position = path.position;
            return self.error("path of skboutput() is the name of a file");
        }
        let skipped = self.constant_of(offset, "offset of skboutput()")?;
        let Ok(skipped) = u32::try_from(skipped) else {
            self.position = offset.position;
            return self.error("offset of skboutput() is a number of bytes");
        };
        let value = self.value(packet)?;
        if !self.is_packet(&value.ty) {
            self.position = packet.position;
            let found = value.ty.name();
            return self.error(format!("skboutput() takes a struct sk_buff *, found {found}"));
        }
        let asked = self.scalar(length)?;
        let asked = self.operand(&asked)?;
        let asked = self.in_register(asked);
        self.position = call;
        let action = RingAction {
            kind: ActionKind::WritePacket { path: text, offset: skipped },
            size: PACKET_HEADER as u32,
            fields: Vec::new(),
            position: call,
        };
        let number = self.action_number(action);
        let packet = self.operand(&value)?;
        let packet = self.in_register(packet);
        let result = self.copy_of(Operand::Immediate(-EFAULT));
        let taken = self.copy_of(Operand::Register(asked));
        let (fits, full, end) = (self.label(), self.label(), self.label());
        self.branch(CompareOperation::LessEqual, taken, Operand::Immediate(MOST_BYTES), fits);
        if value.ty != Type::Unknown {
            // The helper refuses to read beyond a packet's end.
            let home = ValueHome::Register(packet);
            let has = self.named_member(Value { ty: value.ty, home }, "len")?;
            let has = self.operand(&has)?;
            self.branch(CompareOperation::Greater, taken, has, end);
        }
        self.count_error(ErrorKind::PacketCut);
        self.emit(Instruction::Move(taken, Operand::Immediate(MOST_BYTES)));
        self.place_label(fits);
        let header = self.room(PACKET_HEADER as u32);
        let time = self.call(helper::KTIME_BOOT, Vec::new());
        self.store(header, 8, Operand::Immediate(number as i32));
        self.store(header.at(8), 8, Operand::Register(time));
        self.store(header.at(16), 8, Operand::Register(asked));
        self.store(header.at(24), 8, Operand::Register(taken));
        self.compute(ComputeOperation::ShiftLeft, taken, Operand::Immediate(32));
        let cpu = self.constant(CURRENT_CPU);
        self.compute(ComputeOperation::Or, taken, cpu);
        let map = self.service_map(ServiceMap::PacketRings);
        let map = self.map_reference(map);
        let data = self.address(header);
        let size = Operand::Immediate(PACKET_HEADER as i32);
        let arguments = vec![Operand::Register(packet), map, Operand::Register(taken), data, size];
        let done = self.call(helper::PACKET_OUTPUT, arguments);
        self.emit(Instruction::Move(result, Operand::Register(done)));
        self.branch(CompareOperation::SignedGreaterEqual, result, Operand::Immediate(0), end);
        self.branch(CompareOperation::Equal, result, Operand::Immediate(-ENOSPC), full);
        self.count_error(ErrorKind::HelperFailed("skb_output"));
        self.jump(end);
        self.place_label(full);
        self.count_error(ErrorKind::PacketRingFull);
        self.place_label(end);
        Ok(Value::register(Type::Integer { size: 4, signed: true }, result))
    }

    /// Whether a value may be a packet: types of the first pass are not known yet.
    fn is_packet(&self, ty: &Type) -> bool {
        match ty {
            Type::Pointer { target: CType::Record { id }, .. } => {
                self.types.layout(*id).is_some_and(|layout| layout.name == "sk_buff")
            }
            Type::Unknown => true,
            _ => false,
        }
    }
}
