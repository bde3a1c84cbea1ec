//! Commands of SCSI devices, and requests of block devices: when each was under way, and how many
//! of a host at a time.

use std::collections::BTreeMap;
use std::fmt;

use kymo_events::RecordedEvent;
use rustc_hash::FxHashMap;

use crate::block_io::{BlockDecoder, BlockDevice, BlockMachine};

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
    /// Host that its commands share.
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

/// Adapter that devices share.
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

/// Load of a host.
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
}

impl DeviceLoad {
    /// Commands under way at a time, on average while there was any.
    pub fn at_a_time(&self) -> f64 {
        if self.busy == 0 { 0.0 } else { self.total as f64 / self.busy as f64 }
    }

    /// That of commands: begin, end, device.
    fn of(commands: &[(u64, u64, BootDevice)]) -> DeviceLoad {
        let mut load = DeviceLoad { commands: commands.len() as u64, ..DeviceLoad::default() };
        // Of a moment the ends first: who follows another is not there with it.
        let mut changes: Vec<(u64, i64)> = Vec::new();
        for (from, to, device) in commands {
            changes.extend([(*from, 1), (*to, -1)]);
            load.total = load.total.saturating_add(to.saturating_sub(*from));
            let (first, last) = load.span.unwrap_or((*from, *to));
            load.span = Some((first.min(*from), last.max(*to)));
            if !load.devices.contains(device) && load.devices.len() < MAX_QUEUE {
                load.devices.push(*device);
            }
        }
        changes.sort_unstable();
        let (mut under_way, mut before) = (0_i64, 0);
        for (time, change) in changes {
            if under_way > 0 {
                load.busy = load.busy.saturating_add(time - before);
            }
            (under_way, before) = (under_way + change, time);
            load.most = load.most.max(u64::try_from(under_way).unwrap_or(0));
        }
        load.devices.sort_unstable();
        load
    }
}

/// Commands as events tell them.
#[derive(Debug, Default)]
pub(super) struct DeviceWatch {
    open: FxHashMap<BootDevice, Vec<u64>>,
    /// Disks whose driver said what they are called: by number, with their addresses.
    disks: FxHashMap<BlockDevice, Vec<BootDevice>>,
    /// Names of disks.
    pub(super) names: FxHashMap<BootDevice, String>,
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
            "console" => {
                let text = class.field("msg").map(|f| event.fields().text(f).into_owned());
                self.message(&String::from_utf8_lossy(&text.unwrap_or_default()));
            }
            _ => {
                let Some(block) = self.blocks.decode(event) else { return };
                // Its commands tell more of a SCSI disk.
                if let Some(request) = self.machine.apply(&block, event)
                    && !self.has_scsi
                    && request.device.0 != 0
                {
                    let device = BootDevice::Block(request.device);
                    self.push(time, request.issued, device);
                }
            }
        }
    }

    /// Reads the name of a SCSI disk from a message of its driver: `sd 0:0:1:0: [sdb] …`.
    fn message(&mut self, text: &str) {
        let parse = || {
            let (address, rest) = text.strip_prefix("sd ")?.split_once(": [")?;
            let numbers: Vec<u32> = address.split(':').map_while(|n| n.parse().ok()).collect();
            let &[host, channel, target, unit] = numbers.as_slice() else { return None };
            let (name, _) = rest.split_once(']')?;
            Some((BootDevice::Scsi(host, channel, target, unit), name, disk_number(name)?))
        };
        let Some((device, name, number)) = parse() else { return };
        if self.names.len() >= MAX_DEVICES {
            self.crowded += 1;
            return;
        }
        self.names.entry(device).or_insert_with(|| name.to_owned());
        let addresses = self.disks.entry(number).or_default();
        if !addresses.contains(&device) && addresses.len() < 2 {
            addresses.push(device);
        }
    }

    fn begin(&mut self, device: BootDevice, time: u64) {
        let open = self.open.entry(device).or_default();
        if open.len() >= MAX_QUEUE {
            self.crowded += 1;
            return;
        }
        open.push(time);
    }

    fn end(&mut self, device: BootDevice, time: u64) {
        let open = self.open.get_mut(&device).filter(|open| !open.is_empty());
        let Some(from) = open.map(|open| open.remove(0)) else { return };
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
        let mut hosts: BTreeMap<BootHost, Vec<(u64, u64, BootDevice)>> = BTreeMap::new();
        for (to, from, device) in &mut self.ended {
            // A number that several disks had identifies none.
            if let BootDevice::Block(number) = device
                && let Some([address]) = self.disks.get(number).map(Vec::as_slice)
            {
                *device = *address;
            }
            hosts.entry(device.host()).or_default().push((*from, *to, *device));
        }
        hosts.into_iter().map(|(host, commands)| (host, DeviceLoad::of(&commands))).collect()
    }

    /// The device whose command ended last before a wait did, and within it, if that was its
    /// end.
    pub(super) fn waited_for(&self, from: u64, to: u64) -> Option<BootDevice> {
        let behind = self.ended.partition_point(|(time, ..)| *time <= to);
        let (time, _, device) = self.ended.get(behind.checked_sub(1)?)?;
        // A command's end wakes the waiter immediately, or by a softirq and a worker.
        let near = (1_000_000).max((to - from) / 20);
        (*time >= from && to - time <= near).then_some(*device)
    }
}

/// Number of the disk with this name of the driver `sd`: its majors have 16 disks of 16 numbers
/// each, and the next ones continue in the same order.
fn disk_number(name: &str) -> Option<BlockDevice> {
    const MAJORS: [u32; 16] =
        [8, 65, 66, 67, 68, 69, 70, 71, 128, 129, 130, 131, 132, 133, 134, 135];
    let letters = name.strip_prefix("sd").filter(|l| (1..=4).contains(&l.len()))?;
    let mut count = 0_u32;
    for letter in letters.bytes() {
        count = count * 26 + u32::from(letter.is_ascii_lowercase().then(|| letter - b'a' + 1)?);
    }
    let index = count - 1;
    let major = MAJORS[(index as usize >> 4) & 15];
    Some(BlockDevice(major << 20 | (index & 15) << 4 | index & 0xf_ff00))
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

    #[test]
    fn requests_of_numbered_disks_are_those_of_their_scsi_devices() {
        let number = |name| disk_number(name).map(|d| d.numbers());
        let numbers = ["sda", "sdp", "sdq", "sdaa"].map(number);
        assert_eq!(numbers, [Some((8, 0)), Some((8, 240)), Some((65, 0)), Some((65, 160))]);
        assert_eq!(["sd", "sd1", "nvme0n1", "sdA"].map(number), [None; 4]);
        let mut watch = DeviceWatch::default();
        let disk = |minor: u32| BootDevice::Block(BlockDevice(8 << 20 | minor));
        watch.message("sd 3:0:1:0: [sda] 16384 512-byte logical blocks");
        watch.message("sd 3:0:2:0: [sdb] Write Protect is off");
        // Two that had one number.
        watch.message("sd 3:0:4:0: [sdc] Attached SCSI disk");
        watch.message("sd 4:0:0:0: [sdc] Attached SCSI disk");
        watch.message("sd 4:0:0:0: [sda");
        watch.push(100, 50, disk(0));
        watch.push(170, 90, disk(16));
        watch.push(170, 160, disk(32));
        let loads = watch.finish();
        let [(host, load), (other, _)] = loads.as_slice() else { panic!("{loads:?}") };
        assert_eq!((*host, *other), (BootHost::Scsi(3), disk(32).host()));
        assert_eq!((load.commands, load.total, load.busy, load.most), (2, 130, 120, 2));
        assert_eq!(load.devices, [BootDevice::Scsi(3, 0, 1, 0), BootDevice::Scsi(3, 0, 2, 0)]);
        assert_eq!(watch.names[&BootDevice::Scsi(3, 0, 1, 0)], "sda");
    }
}
