//! Commands of SCSI devices, and requests of block devices: when each was under way, and how many
//! of a host at a time.

use std::fmt;

use kymo_events::RecordedEvent;
use rustc_hash::FxHashMap;

use crate::block_io::{BlockDecoder, BlockDevice, BlockMachine};
use kymo_model::CompactSort as _;

/// Commands that are kept; of more, what they were is not known.
const MAX_COMMANDS: usize = 1 << 20;
/// Commands of a device at a time.
const MAX_QUEUE: usize = 4096;
/// Devices and hosts.
const MAX_DEVICES: usize = 1 << 16;

/// A device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum BootDevice {
    /// A SCSI device: host, channel, target, unit.
    Scsi(u32, u32, u32, u32),
    /// A block device whose driver has no events.
    Block(BlockDevice),
}

impl BootDevice {
    /// What its commands share.
    fn host(self) -> BootHost {
        match self {
            BootDevice::Scsi(host, ..) => BootHost::Scsi(host),
            BootDevice::Block(device) => BootHost::Block(device),
        }
    }
}

impl fmt::Display for BootDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BootDevice::Scsi(h, c, t, l) => f.pad(&format!("scsi {h}:{c}:{t}:{l}")),
            BootDevice::Block(device) => f.pad(&format!("disk {device}")),
        }
    }
}

/// What devices have in common: an adapter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum BootHost {
    /// A SCSI host.
    Scsi(u32),
    /// A block device alone.
    Block(BlockDevice),
}

impl fmt::Display for BootHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BootHost::Scsi(host) => f.pad(&format!("scsi host {host}")),
            BootHost::Block(device) => f.pad(&format!("disk {device}")),
        }
    }
}

/// What a host did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceLoad {
    /// Its devices.
    pub devices: Vec<BootDevice>,
    /// Commands that ended.
    pub commands: u64,
    /// The first and the last moment of them.
    pub span: Option<(u64, u64)>,
    /// Nanoseconds of all commands.
    pub total: u64,
    /// Nanoseconds in which at least one was under way.
    pub busy: u64,
    /// Most at a time.
    pub most: u64,
    under_way: u64,
    busy_since: u64,
}

impl DeviceLoad {
    /// Commands under way at a time, on average while there was any.
    pub fn at_a_time(&self) -> f64 {
        if self.busy == 0 { 0.0 } else { self.total as f64 / self.busy as f64 }
    }

    fn begin(&mut self, time: u64) {
        if self.under_way == 0 {
            self.busy_since = time;
        }
        self.under_way += 1;
        self.most = self.most.max(self.under_way);
        let (first, last) = self.span.unwrap_or((time, time));
        self.span = Some((first.min(time), last.max(time)));
    }

    fn end(&mut self, from: u64, time: u64) {
        self.commands += 1;
        self.total = self.total.saturating_add(time.saturating_sub(from));
        self.under_way = self.under_way.saturating_sub(1);
        if self.under_way == 0 {
            self.busy = self.busy.saturating_add(time.saturating_sub(self.busy_since));
        }
        if let Some((_, last)) = &mut self.span {
            *last = (*last).max(time);
        }
    }
}

/// Commands as events tell them.
#[derive(Debug, Default)]
pub(super) struct DeviceWatch {
    open: FxHashMap<BootDevice, Vec<u64>>,
    loads: FxHashMap<BootHost, DeviceLoad>,
    /// Ends of commands: time, begin, device.
    ended: Vec<(u64, u64, BootDevice)>,
    blocks: BlockDecoder,
    machine: BlockMachine,
    has_scsi: bool,
    pub(super) crowded: u64,
}

impl DeviceWatch {
    /// Takes an event.
    pub(super) fn event(&mut self, event: &RecordedEvent<'_>) {
        let Some(time) = event.time else { return };
        let class = event.class;
        let number = |name: &str| {
            let value = class.field(name).and_then(|f| event.fields().integer(f));
            value.and_then(|v| u32::try_from(v).ok())
        };
        let scsi = || {
            let (host, channel) = (number("host_no")?, number("channel")?);
            Some(BootDevice::Scsi(host, channel, number("id")?, number("lun")?))
        };
        match class.name.as_str() {
            "scsi_dispatch_cmd_start" => {
                if let Some(device) = scsi() {
                    self.has_scsi = true;
                    self.begin(device, time);
                }
            }
            "scsi_dispatch_cmd_done" => {
                if let Some(device) = scsi() {
                    self.end(device, time);
                }
            }
            _ => {
                let Some(block) = self.blocks.decode(event) else { return };
                // Its commands tell more of a SCSI disk.
                if let Some(request) = self.machine.apply(&block, event)
                    && !self.has_scsi
                    && request.device.0 != 0
                {
                    let device = BootDevice::Block(request.device);
                    if let Some(load) = self.load(device) {
                        load.begin(request.issued);
                        load.end(request.issued, time);
                    }
                    self.push(time, request.issued, device);
                }
            }
        }
    }

    fn load(&mut self, device: BootDevice) -> Option<&mut DeviceLoad> {
        let host = device.host();
        if self.loads.len() >= MAX_DEVICES && !self.loads.contains_key(&host) {
            self.crowded += 1;
            return None;
        }
        let load = self.loads.entry(host).or_default();
        if !load.devices.contains(&device) && load.devices.len() < MAX_QUEUE {
            load.devices.push(device);
        }
        Some(load)
    }

    fn begin(&mut self, device: BootDevice, time: u64) {
        if self.load(device).is_none() {
            return;
        }
        let open = self.open.entry(device).or_default();
        if open.len() >= MAX_QUEUE {
            self.crowded += 1;
            return;
        }
        open.push(time);
        if let Some(load) = self.load(device) {
            load.begin(time);
        }
    }

    fn end(&mut self, device: BootDevice, time: u64) {
        let open = self.open.get_mut(&device).filter(|open| !open.is_empty());
        let Some(from) = open.map(|open| open.remove(0)) else { return };
        if let Some(load) = self.load(device) {
            load.end(from, time);
        }
        self.push(time, from, device);
    }

    fn push(&mut self, time: u64, from: u64, device: BootDevice) {
        if self.ended.len() < MAX_COMMANDS {
            self.ended.push((time, from, device));
        } else {
            self.crowded += 1;
        }
    }

    /// Nothing more comes.
    pub(super) fn finish(&mut self) -> Vec<(BootHost, DeviceLoad)> {
        self.ended.sort_unstable();
        let mut loads: Vec<_> = std::mem::take(&mut self.loads).into_iter().collect();
        loads.iter_mut().for_each(|(_, load)| load.devices.sort_unstable());
        loads.compact_sort_by_key(|(host, _)| *host);
        loads
    }

    /// The device whose command ended last before a wait did, and within it, if that was its
    /// end.
    pub(super) fn waited_for(&self, from: u64, to: u64) -> Option<BootDevice> {
        let behind = self.ended.partition_point(|(time, ..)| *time <= to);
        let (time, _, device) = self.ended.get(behind.checked_sub(1)?)?;
        // A command's end wakes who waits for it at once, or by a softirq and a worker.
        let near = (1_000_000).max((to - from) / 20);
        (*time >= from && to - time <= near).then_some(*device)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_at_a_time_are_counted_while_there_are_any() {
        let mut watch = DeviceWatch::default();
        let (a, b) = (BootDevice::Scsi(0, 0, 0, 0), BootDevice::Scsi(0, 0, 1, 0));
        watch.begin(a, 100);
        watch.begin(b, 150);
        watch.end(a, 200);
        watch.end(b, 250);
        watch.begin(a, 1000);
        watch.end(a, 1050);
        // Never begun.
        watch.end(b, 2000);
        let loads = watch.finish();
        let load = &loads[0].1;
        assert_eq!((load.commands, load.total, load.busy, load.most), (3, 250, 200, 2));
        assert_eq!((load.span, load.devices.len()), (Some((100, 1050)), 2));
        assert!((load.at_a_time() - 1.25).abs() < 1e-9);
        assert_eq!(watch.waited_for(900, 1051), Some(a));
        assert_eq!(watch.waited_for(300, 900), None);
        assert_eq!(loads[0].0.to_string(), "scsi host 0");
    }
}
