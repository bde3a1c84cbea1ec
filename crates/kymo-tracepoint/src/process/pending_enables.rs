//! Applies channel configurations to events of this program: those that wait for programs to start,
//! and those in use when a library is loaded.

use std::sync::atomic::Ordering;

use kymo_ust::{
    ChannelConfigView, MAX_CHANNEL_CONFIG, Pids, SLOT_PATH, SLOTS, Slot, SlotState, is_for, slot_at,
};

use super::{ProgramDirectory, counting, enable, events, page, place, sites};
use crate::channel;
use crate::site::Site;
use crate::sys::{self, Path};

fn full_name(site: &Site) -> Path {
    let event = site.event();
    Path::new().add(event.provider.bytes()).add(b":").add(event.name.bytes())
}

/// Switches on what channel configurations for programs that start later ask for.
pub(super) fn apply_pending() {
    let Some(ProgramDirectory { user, .. }) = place() else { return };
    let Ok(wanted) = std::str::from_utf8(user.bytes()) else { return };
    let Ok(entries) = std::fs::read_dir(format!("{wanted}/wanted")) else { return };
    // A name that begins with a dot is a channel configuration that is still being written.
    let whole = |name: &std::ffi::OsString| !name.as_encoded_bytes().starts_with(b".");
    let names = entries.flatten().map(|entry| entry.file_name()).filter(whole);
    let mut names: Vec<_> = names.take(64).collect();
    names.sort();
    let mut buffer = vec![0; MAX_CHANNEL_CONFIG];
    let mut slot = 0;
    for name in names {
        let path = Path::new().add(b"wanted/").add(name.as_encoded_bytes());
        let whole = Path::new().add(user.bytes()).add(b"/").add(path.bytes());
        let Ok(bytes) = sys::read_file(whole.c(), &mut buffer) else { continue };
        let Ok(config) = ChannelConfigView::parse(bytes) else { continue };
        if slot == SLOTS || path.bytes().len() >= SLOT_PATH || !is_for_us(&config.pids) {
            continue;
        }
        let mut any = false;
        for (id, site) in sites() {
            if config.rule_for(full_name(site).bytes(), site.event().level as u8).is_some() {
                enable(id, slot);
                any = true;
            }
        }
        if any {
            page().write(slot_at(slot) + Slot::PATH_AT, path.bytes());
            page().write(slot_at(slot), &[1, SlotState::Active as u8]);
            slot += 1;
        }
    }
}

/// Whether an order is for all, or for this process or one it descends from.
fn is_for_us(wanted: &Pids) -> bool {
    let mut pid = sys::pid();
    for _ in 0..64 {
        if is_for(wanted, pid) {
            return true;
        }
        match counting::parent(pid) {
            Some(parent) if parent > 1 => pid = parent,
            _ => return false,
        }
    }
    false
}

/// Switches on what the channel configurations of active slots ask for among the events of a library.
pub(super) fn apply_active(fresh: &[&Site]) {
    let Some(ProgramDirectory { user, .. }) = place() else { return };
    let mut buffer = vec![0; MAX_CHANNEL_CONFIG];
    for slot in (0..SLOTS).filter(|slot| page().slot(*slot).is_active()) {
        let path = page().slot(slot).path();
        let whole = Path::new().add(user.bytes()).add(b"/").add(channel::until_nul(&path));
        let Ok(bytes) = sys::read_file(whole.c(), &mut buffer) else { continue };
        let Ok(config) = ChannelConfigView::parse(bytes) else { continue };
        for site in fresh {
            let name = full_name(site);
            if let Some(rule) = config.rule_for(name.bytes(), site.event().level as u8) {
                let id = site.id.load(Ordering::Relaxed);
                if id < events() {
                    channel::link_late(slot, id, site, rule);
                    enable(id, slot);
                }
            }
        }
    }
}
