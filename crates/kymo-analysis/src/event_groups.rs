//! Groups of events that a report shows side by side.

use std::collections::HashMap;

use kymo_files::perfdata::GroupDesc;

use crate::profile::EventProfile;

/// Grouping of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventGrouping {
    /// None: one event after another.
    Apart,
    /// That of the recording.
    Recorded,
    /// That of the recording, and all events as one group where it has none.
    Forced,
}

/// Events that are shown together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventGroup {
    /// Their names as in headings, with the word `event` or `events` before them.
    pub title: String,
    /// Their numbers.
    pub events: Vec<usize>,
}

/// Most events beside each other: groups of more are shown one after another.
const MOST: usize = 64;

/// The groups that have samples, in the order of their first events. Of a group all events are
/// `alike`, two by their numbers: what is not is shown one after another.
pub fn event_groups(
    events: &[EventProfile],
    recorded: &[GroupDesc],
    grouping: EventGrouping,
    alike: &dyn Fn(usize, usize) -> bool,
) -> Vec<EventGroup> {
    let range_of = |group: &GroupDesc| {
        let leader = group.leader as usize;
        leader..leader.saturating_add(group.members as usize).min(events.len())
    };
    let is_alone = |e: &EventProfile| events.len() == 1 && e.desc.name != "dummy:HG";
    let is_shown = |n: &usize| events.get(*n).is_some_and(|e| e.samples > 0 || is_alone(e));
    let name = |n: usize| events.get(n).map_or("", |e| e.desc.name.as_str());
    let one = |n| EventGroup { title: format!("event '{}'", name(n)), events: vec![n] };
    let mut led: HashMap<usize, &GroupDesc> = HashMap::new();
    for group in recorded.iter().filter(|group| group.members > 1) {
        led.entry(group.leader as usize).or_insert(group);
    }
    let mut groups = Vec::new();
    let mut next = 0;
    while next < events.len() {
        let group = led.get(&next).copied();
        let (group_name, mut members): (_, Vec<usize>) = match (grouping, group) {
            (EventGrouping::Apart, _) => (None, vec![next]),
            (_, Some(group)) => (Some(group.name.as_str()), range_of(group).collect()),
            (EventGrouping::Forced, None) if led.is_empty() => {
                (None, (next..events.len()).collect())
            }
            (_, None) => (None, vec![next]),
        };
        next += members.len().max(1);
        members.retain(is_shown);
        let apart = |pair: &[usize]| matches!(pair, [a, b] if !alike(*a, *b));
        if !(2..=MOST).contains(&members.len()) || members.windows(2).any(apart) {
            groups.extend(members.into_iter().map(one));
            continue;
        }
        let names = members.iter().map(|n| name(*n)).collect::<Vec<_>>().join(", ");
        let title = match group_name {
            None => format!("events '{names}'"),
            Some("" | "{anon_group}") => format!("events 'anon group {{ {names} }}'"),
            Some(name) => format!("events '{name} {{ {names} }}'"),
        };
        groups.push(EventGroup { title, events: members });
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_without_samples_and_wrong_groups_are_left_out() {
        let event = |(name, samples): &(&str, u64)| {
            let mut event = EventProfile::default();
            (event.desc.name, event.samples) = ((*name).to_owned(), *samples);
            event
        };
        let events = [("a", 1), ("b", 0), ("c", 2), ("d", 3)];
        let events: Vec<EventProfile> = events.iter().map(event).collect();
        let group = |leader, members| GroupDesc { name: String::new(), leader, members };
        let told = |recorded: &[GroupDesc], grouping| -> Vec<String> {
            let groups = event_groups(&events, recorded, grouping, &|_, _| true);
            groups.into_iter().map(|g| g.title).collect()
        };
        let apart = ["event 'a'", "event 'c'", "event 'd'"];
        assert_eq!(told(&[group(0, 3)], EventGrouping::Apart), apart);
        for grouping in [EventGrouping::Recorded, EventGrouping::Forced] {
            let titles = told(&[group(0, 3)], grouping);
            assert_eq!(titles, ["events 'anon group { a, c }'", "event 'd'"]);
        }
        assert_eq!(told(&[group(0, 2)], EventGrouping::Recorded), apart);
        assert_eq!(told(&[], EventGrouping::Recorded), apart);
        assert_eq!(told(&[], EventGrouping::Forced), ["events 'a, c, d'"]);
        // Numbers of a damaged file.
        let titles = told(&[group(2, u32::MAX), group(u32::MAX, 9)], EventGrouping::Recorded);
        assert_eq!(titles, ["event 'a'", "events 'anon group { c, d }'"]);
        let many: Vec<EventProfile> = (0..MOST + 1).map(|_| event(&("e", 1))).collect();
        let of = |n| {
            event_groups(&many[..n], &[group(0, n as u32)], EventGrouping::Recorded, &|_, _| true)
                .len()
        };
        assert_eq!((of(MOST), of(MOST + 1)), (1, MOST + 1));
        let unlike = event_groups(&events, &[], EventGrouping::Forced, &|_, b| b != 3);
        assert_eq!(unlike.into_iter().map(|g| g.title).collect::<Vec<_>>(), apart);
    }
}
