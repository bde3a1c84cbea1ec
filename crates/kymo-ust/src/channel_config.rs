//! Channel configurations: what a channel is to be, and which events go into it.

use crate::bytes::{Take, u32_at, until_nul};
use crate::error::UstFormatError;
use crate::glob::matches;

/// Most bytes of a channel configuration.
pub const MAX_CHANNEL_CONFIG: usize = 64 << 10;
const MAGIC: &[u8; 8] = b"KYMOORD\0";
const VERSION: u32 = 1;
const RULES_AT: usize = 192;
const EXCLUDE: u8 = 1;

/// A rule, as the tool makes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventRule {
    /// Pattern of `provider:name`.
    pub pattern: String,
    /// Events of a higher level (less important) do not match.
    pub max_level: u8,
    /// Whether matching events stay disabled.
    pub exclude: bool,
    /// A compiled filter; empty: none.
    pub filter: Vec<u8>,
}

/// Processes that an order is for; a 0 stands for none.
pub type Pids = [u32; 4];

/// Whether a channel configuration for `pids` is for all, or for this process.
pub fn is_for(pids: &Pids, pid: u32) -> bool {
    *pids == [0; 4] || (pid != 0 && pids.contains(&pid))
}

/// A channel configuration, as the tool makes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChannelConfig {
    /// Overwrite the oldest packet instead of discarding new events.
    pub overwrite: bool,
    /// Bytes of a sub-buffer: a power of two.
    pub sub_buffer: u32,
    /// Sub-buffers: a power of two.
    pub sub_buffers: u32,
    /// UUID of the session.
    pub uuid: [u8; 16],
    /// Only for these processes and their descendants; zeroes alone: for all.
    pub pids: Pids,
    /// Name of the session, at most 63 bytes.
    pub session: String,
    /// Name of the channel, at most 63 bytes.
    pub channel: String,
    /// The first that matches decides.
    pub rules: Vec<EventRule>,
}

impl ChannelConfig {
    /// The bytes of the file.
    ///
    /// # Errors
    /// A name, a rule or all of it is too long.
    pub fn encode(&self) -> Result<Vec<u8>, UstFormatError> {
        let mut out = vec![0; RULES_AT];
        let long = |name, len: usize, limit: usize| {
            let value = len as u64;
            if len <= limit { Ok(()) } else { Err(UstFormatError::Field { name, value }) }
        };
        long("session name", self.session.len(), 63)?;
        long("channel name", self.channel.len(), 63)?;
        out[0..8].copy_from_slice(MAGIC);
        out[8..12].copy_from_slice(&VERSION.to_le_bytes());
        let count = self.rules.len() as u32;
        let halves = [self.overwrite.into(), self.sub_buffer, self.sub_buffers, count];
        for (i, half) in halves.iter().enumerate() {
            out[16 + 4 * i..20 + 4 * i].copy_from_slice(&half.to_le_bytes());
        }
        out[32..48].copy_from_slice(&self.uuid);
        for (i, pid) in self.pids.iter().enumerate() {
            out[48 + 4 * i..52 + 4 * i].copy_from_slice(&pid.to_le_bytes());
        }
        out[64..64 + self.session.len()].copy_from_slice(self.session.as_bytes());
        out[128..128 + self.channel.len()].copy_from_slice(self.channel.as_bytes());
        for rule in &self.rules {
            long("pattern", rule.pattern.len(), 1024)?;
            long("filter", rule.filter.len(), 8192)?;
            let size = (8 + rule.pattern.len() + rule.filter.len()).next_multiple_of(8);
            let start = out.len();
            out.extend_from_slice(&(size as u16).to_le_bytes());
            out.extend_from_slice(&[rule.max_level, if rule.exclude { EXCLUDE } else { 0 }]);
            out.extend_from_slice(&(rule.pattern.len() as u16).to_le_bytes());
            out.extend_from_slice(&(rule.filter.len() as u16).to_le_bytes());
            out.extend_from_slice(rule.pattern.as_bytes());
            out.extend_from_slice(&rule.filter);
            out.resize(start + size, 0);
        }
        long("order", out.len(), MAX_CHANNEL_CONFIG)?;
        let size = out.len() as u32;
        out[12..16].copy_from_slice(&size.to_le_bytes());
        Ok(out)
    }
}

/// A channel configuration as a program reads it, without copying.
#[derive(Clone, Copy, Debug)]
pub struct ChannelConfigView<'a> {
    bytes: &'a [u8],
    /// Overwrite the oldest packet instead of discarding new events.
    pub overwrite: bool,
    /// Bytes of a sub-buffer.
    pub sub_buffer: u32,
    /// Sub-buffers.
    pub sub_buffers: u32,
    /// Only for these processes and their descendants; zeroes alone: for all.
    pub pids: Pids,
    /// UUID of the session.
    pub uuid: [u8; 16],
}

/// A rule as a program reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RuleView<'a> {
    /// Pattern of `provider:name`.
    pub pattern: &'a [u8],
    /// Events of a higher level do not match.
    pub max_level: u8,
    /// Whether matching events stay disabled.
    pub exclude: bool,
    /// A compiled filter; empty: none.
    pub filter: &'a [u8],
}

impl<'a> ChannelConfigView<'a> {
    /// Parses the bytes of a channel configuration.
    ///
    /// # Errors
    /// If they are invalid; the creator of the ring checks its sizes.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, UstFormatError> {
        let short = UstFormatError::Short { what: "order", found: bytes.len() };
        if bytes.len() < RULES_AT {
            return Err(short);
        }
        if &bytes[..8] != MAGIC {
            return Err(UstFormatError::Magic { what: "order" });
        }
        let half = |at| u32_at(bytes, at).unwrap_or(0);
        if half(8) != VERSION {
            return Err(UstFormatError::Version { found: half(8) });
        }
        let size = half(12) as usize;
        if !(RULES_AT..=MAX_CHANNEL_CONFIG.min(bytes.len())).contains(&size) {
            return Err(UstFormatError::Field { name: "order size", value: size as u64 });
        }
        let mode = half(16);
        if mode > 1 {
            return Err(UstFormatError::Field { name: "mode", value: mode.into() });
        }
        let mut uuid = [0; 16];
        uuid.copy_from_slice(&bytes[32..48]);
        let config = Self {
            bytes: &bytes[..size],
            overwrite: mode == 1,
            sub_buffer: half(20),
            sub_buffers: half(24),
            pids: std::array::from_fn(|i| half(48 + 4 * i)),
            uuid,
        };
        let told = half(28) as usize;
        if config.rules().count() != told {
            return Err(UstFormatError::Field { name: "number of rules", value: told as u64 });
        }
        Ok(config)
    }

    /// Name of the session.
    pub fn session(&self) -> &'a [u8] {
        until_nul(&self.bytes[64..128])
    }

    /// Name of the channel.
    pub fn channel(&self) -> &'a [u8] {
        until_nul(&self.bytes[128..192])
    }

    /// The configuration as the tool makes it, to make another of it.
    pub fn to_config(&self) -> ChannelConfig {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let rule = |rule: RuleView<'_>| EventRule {
            pattern: text(rule.pattern),
            max_level: rule.max_level,
            exclude: rule.exclude,
            filter: rule.filter.to_vec(),
        };
        ChannelConfig {
            overwrite: self.overwrite,
            sub_buffer: self.sub_buffer,
            sub_buffers: self.sub_buffers,
            uuid: self.uuid,
            pids: self.pids,
            session: text(self.session()),
            channel: text(self.channel()),
            rules: self.rules().map(rule).collect(),
        }
    }

    /// The rules, up to the first that is damaged.
    pub fn rules(&self) -> impl Iterator<Item = RuleView<'a>> + use<'a> {
        let mut rest = &self.bytes[RULES_AT..];
        std::iter::from_fn(move || {
            let size = Take(rest).u16()?;
            let (rule, behind) = rest.split_at_checked(size.into())?;
            rest = behind;
            let mut take = Take(rule.get(2..)?);
            let (max_level, flags) = (take.u8()?, take.u8()?);
            let (pattern, filter) = (take.u16()?, take.u16()?);
            let pattern = take.bytes(pattern.into())?;
            let filter = take.bytes(filter.into())?;
            Some(RuleView { pattern, max_level, exclude: flags & EXCLUDE != 0, filter })
        })
    }

    /// The rule that switches on the event of this `provider:name` and level, if one does.
    pub fn rule_for(&self, event: &[u8], level: u8) -> Option<RuleView<'a>> {
        self.rules()
            .find(|rule| level <= rule.max_level && matches(rule.pattern, event))
            .filter(|rule| !rule.exclude)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn config() -> ChannelConfig {
        let rule = |pattern: &str, max_level, exclude, filter: &[u8]| EventRule {
            pattern: pattern.into(),
            max_level,
            exclude,
            filter: filter.to_vec(),
        };
        ChannelConfig {
            overwrite: true,
            sub_buffer: 65536,
            sub_buffers: 4,
            uuid: [3; 16],
            pids: [0, 7, 0, 9],
            session: "s".into(),
            channel: "c".into(),
            rules: vec![rule("shop:secret", 14, true, &[]), rule("shop:*", 6, false, b"code")],
        }
    }

    #[test]
    fn an_order_survives_its_bytes() {
        let bytes = config().encode().unwrap();
        let view = ChannelConfigView::parse(&bytes).unwrap();
        assert_eq!(view.to_config(), config());
        assert_eq!((view.session(), view.channel()), (&b"s"[..], &b"c"[..]));
        assert_eq!(view.rule_for(b"shop:sale", 6).unwrap().filter, b"code");
        assert_eq!(view.rule_for(b"shop:sale", 7), None);
        assert_eq!(view.rule_for(b"shop:secret", 0), None);
        assert_eq!(view.rule_for(b"other:sale", 0), None);
    }

    #[test]
    fn no_bytes_lead_out_of_the_order() {
        let bytes = config().encode().unwrap();
        for at in 0..bytes.len() {
            for value in [0, 1, 0x7f, 0xff] {
                let mut lie = bytes.clone();
                lie[at] = value;
                if let Ok(view) = ChannelConfigView::parse(&lie) {
                    assert!(view.rules().count() <= 2);
                }
            }
            assert!(ChannelConfigView::parse(&bytes[..at]).is_err());
        }
    }
}
