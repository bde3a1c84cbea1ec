//! Types that only CTF 2 has, compiled: integers of any length, selections, and fields that
//! are found by their location.

use super::super::types::{CtfRole, TypeSelection, VarInt};
use super::compile::{CompileError, Compiler, FieldTarget, MAX_STEPS, Scope};
use super::walk::{Choice, Choices, NO_SLOT, Role, Step};

impl Scope {
    /// Role that a number declares.
    pub(super) fn role_stated(self, role: CtfRole) -> Role {
        match (self, role) {
            (Scope::PacketHeader, CtfRole::PacketMagicNumber) => Role::Magic,
            (Scope::PacketHeader, CtfRole::DataStreamClassId) => Role::StreamId,
            (Scope::PacketHeader, CtfRole::DataStreamId) => Role::StreamInstance,
            (Scope::PacketContext, CtfRole::DefaultClockTimestamp) => Role::Begin,
            (Scope::PacketContext, CtfRole::PacketEndDefaultClockTimestamp) => Role::End,
            (Scope::PacketContext, CtfRole::PacketContentLength) => Role::ContentSize,
            (Scope::PacketContext, CtfRole::PacketTotalLength) => Role::PacketSize,
            (Scope::PacketContext, CtfRole::PacketSequenceNumber) => Role::Sequence,
            (Scope::PacketContext, CtfRole::DiscardedEventRecordCounterSnapshot) => Role::Discarded,
            (Scope::EventHeader, CtfRole::EventRecordClassId) => Role::EventId,
            (Scope::EventHeader, CtfRole::DefaultClockTimestamp) => Role::Time,
            _ => Role::None,
        }
    }
}

impl Compiler<'_> {
    /// Compiles an integer in LEB128.
    pub(super) fn var_int(
        &mut self,
        int: &VarInt,
        name: &str,
        top: bool,
    ) -> Result<FieldTarget, CompileError> {
        let sign = if int.signed { "int" } else { "uint" };
        let named = if int.labels.is_some() { "enum " } else { "" };
        let field = self.info(name, top, format!("{named}var{sign}"));
        let (role, more_roles) = self.roles(false, &int.roles, name);
        if let Some(info) = self.out.fields.last_mut() {
            (info.size, info.signed, info.base) = (64, int.signed, int.base);
            (info.labels, info.role) = (int.labels.clone(), role);
            info.more_roles = more_roles;
        }
        let step = self.push(Step::VarInt { field, save: NO_SLOT })?;
        Ok(FieldTarget::Int { step, signed: int.signed, labels: None })
    }

    /// Compiles types of which one, or perhaps none, is chosen.
    pub(super) fn selection(
        &mut self,
        of: &TypeSelection,
        name: &str,
        top: bool,
    ) -> Result<FieldTarget, CompileError> {
        let found = self.look_up(&of.selector)?;
        let Some((tag, signed)) = self.slot_of(found.as_ref())? else {
            return self.fail(format!("`{}` does not select for `{name}`", of.selector));
        };
        // What is optional stands for itself.
        let field = if of.optional { 0 } else { self.info(name, top, "variant".to_owned()) };
        let number = self.out.choices.len();
        let optional = of.optional;
        self.out.choices.push(Choices { signed, optional, of: Vec::new() });
        let choose = Step::Choose { field, tag, choices: number as u32, end: 0 };
        let at = self.push(choose)?;
        let (mut choices, mut places) = (Vec::new(), Vec::new());
        for option in &of.options {
            let from = self.out.steps.len() as u32;
            places.push(if optional {
                self.of(&option.of, name, top)?
            } else {
                self.of(&option.of, &option.name, false)?
            });
            let steps = (from, self.out.steps.len() as u32);
            let choice = |(from, to): &(i128, i128)| Choice { from: *from, to: *to, steps };
            choices.extend(option.ranges.iter().map(choice));
            if choices.len() > MAX_STEPS {
                return self.fail(format!("more than {MAX_STEPS} ranges select for `{name}`"));
            }
        }
        if let Some(of) = self.out.choices.get_mut(number) {
            of.of = choices;
        }
        self.close(at);
        Ok(FieldTarget::Options(places))
    }
}
