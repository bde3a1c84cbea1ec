//! The first sentence of the page: the largest part of the critical path, in words.

use std::time::Duration;

use kymo_analysis::offcpu::OffCpuCause;

use super::waits::PathShares;
use super::{ProfilePage, UNSURE, ratio};
use crate::units::visible;

/// Samples from which a function is named, and shares that nothing else shows.
const FEW: u64 = 20;
/// CPU time from which the kernel's part of it is stated: the kernel splits it by clock ticks, of
/// which there are 100 to 1,000 a second.
const MANY_TICKS: Duration = Duration::from_millis(100);
/// Shares of fewer samples are rough, which is said first where the sentence depends on them.
const ROUGH: u64 = 100;
/// A second cause is named if it has this part of the first one's time.
const CLOSE: f64 = 0.5;
/// Part of the time that may be unknown without a word.
const UNCERTAIN: f64 = 0.1;

/// More threads can run than there are CPUs for them.
const CROWDED: &str = "its threads wait for CPUs longer than they run: there are too few CPUs for them and other tasks";
const STARVED: &str = "it waits for a CPU: other tasks keep the machine busy";

fn percent(share: f64) -> String {
    format!("{:.0}%", 100.0 * share)
}

impl ProfilePage {
    /// Verdict in one sentence; none for a run that is too short.
    pub(super) fn in_short(&self) -> Option<String> {
        // How long it ran is not known.
        if self.attached && self.on_cpu.is_none() || self.elapsed < UNSURE {
            return None;
        }
        if let Some(why) = &self.unseen {
            return Some(format!("its activity is unknown: {why}"));
        }
        let (cpu, unsplit) = self.cpu();
        let busy = ratio(cpu.as_secs_f64(), self.elapsed.as_secs_f64());
        let path = self.waits.as_ref().and_then(|w| w.path.as_ref()).filter(|_| !self.is_machine);
        let mut said = match path {
            Some(path) => self.verdict_of_path(path, busy),
            None => self.verdict_of_sums(busy, cpu, self.is_thin(path)),
        };
        let accounted = self.user + self.system;
        let kernel = ratio(self.system.as_secs_f64(), accounted.as_secs_f64());
        if !unsplit && kernel >= 0.5 && cpu >= MANY_TICKS && !self.is_thin(path) {
            said.push_str(&format!("; {} of its CPU time is in the kernel", percent(kernel)));
        }
        Some(self.caveats(path) + &said)
    }

    /// Whether there are too few samples for shares, and no path that has them.
    fn is_thin(&self, path: Option<&PathShares>) -> bool {
        path.is_none() && !self.event.is_empty() && self.samples < FEW
    }

    /// Reasons why the evidence is thin, which come before all else.
    fn caveats(&self, path: Option<&PathShares>) -> String {
        if let Some(program) = &self.hidden {
            let program = visible(program);
            return format!("{program} is not recorded, since it runs as another user: ");
        }
        let uncertain = path.map_or(0.0, |path| path.uncertain);
        if uncertain >= UNCERTAIN {
            let share = percent(uncertain);
            return format!("events were lost, and {share} of the time is unknown: ");
        }
        if let Some(what) = self.lost {
            return format!("{what} were lost, so this may be wrong: ");
        }
        // Waits follow from switches, which are all there.
        let names_function = path.is_some_and(PathShares::is_busy) && self.hottest().is_some();
        if names_function && self.samples < ROUGH || self.is_thin(path) {
            return match self.samples {
                0 => "without a sample: ".to_owned(),
                1 => "by only one sample: ".to_owned(),
                n => format!("by only {n} samples: "),
            };
        }
        String::new()
    }

    /// By the critical path: what helper threads and wrappers do meanwhile does not count.
    fn verdict_of_path(&self, path: &PathShares, busy: f64) -> String {
        let most = path.blocked.first().map_or(0.0, |(_, share, _)| *share);
        let mut said = if path.without_cpu >= path.running && path.without_cpu >= most {
            self.starved(path, busy)
        } else if most > path.running {
            self.waiting(path)
        } else {
            self.busy(path, busy)
        };
        if let Some((share, what)) = path.lock.as_ref().filter(|(share, _)| *share >= 0.25) {
            let share = percent(*share);
            said.push_str(&format!("; for {share} of the time threads hold each other up, {what}"));
        }
        said
    }

    /// Most of the time it could run and had no CPU.
    fn starved(&self, path: &PathShares, busy: f64) -> String {
        let mut said = match busy {
            b if b >= 1.5 => format!("it keeps {b:.1} CPUs busy, and {CROWDED}"),
            b if b >= 0.5 && self.threads.len() > 1 => CROWDED.to_owned(),
            _ => STARVED.to_owned(),
        };
        if let Some((_, share, what)) = path.blocked.first()
            && *share >= path.without_cpu * CLOSE
        {
            let part = percent(path.without_cpu);
            said.push_str(&format!(" ({part} of the time); {} is {what}", percent(*share)));
        } else if let Some(place) = self.hottest().filter(|_| path.running >= UNCERTAIN) {
            said.push_str(&format!("; when it runs, it is in {place}"));
        }
        said
    }

    /// Most of the time it waits.
    fn waiting(&self, path: &PathShares) -> String {
        let Some((cause, share, what)) = path.blocked.first() else { return String::new() };
        // A poll of a process that was there may be idleness, and may be a wait for an answer:
        // which of them is not known. The wait that was there before has no stack.
        let least = share * CLOSE;
        if let Some((share, what)) =
            path.idle.as_ref().filter(|idle| self.attached && idle.0 >= least)
        {
            let mut said = format!(
                "it is idle, or waits for others, {} of the time, mostly {what}",
                percent(*share)
            );
            let (busy, place) = (percent(path.running), self.hottest());
            if let Some(place) = place {
                said.push_str(&format!("; the busy {busy} is in {place}"));
            }
            return said;
        }
        let mut said = match cause {
            OffCpuCause::Throttled => format!(
                "it is throttled for {} of the time: the CPU quota of its cgroup is used up",
                percent(*share)
            ),
            OffCpuCause::Stopped => format!(
                "it is stopped for {} of the time, by a signal or a tracer",
                percent(*share)
            ),
            _ => format!("it waits for {} of the time, mostly {what}", percent(1.0 - path.running)),
        };
        let second = path.blocked.get(1).map(|(_, share, what)| (*share, what.as_str()));
        let cpu = (path.without_cpu, "for a CPU");
        let second = second.filter(|(share, _)| *share >= cpu.0).unwrap_or(cpu);
        if second.0 >= share * CLOSE {
            let parts = (percent(*share), percent(second.0));
            said.push_str(&format!(" ({}), and {} ({})", parts.0, second.1, parts.1));
        }
        said
    }

    /// Most of the time it runs.
    fn busy(&self, path: &PathShares, busy: f64) -> String {
        let place = self.hottest().map_or_else(String::new, |f| format!(", in {f}"));
        let mut said = match busy {
            b if b >= 1.5 => format!("it keeps {b:.1} CPUs busy{place}"),
            _ if path.running >= 0.75 => {
                format!("it is busy{place}: a faster CPU or less work would help")
            }
            _ => format!("it is busy {} of the time{place}", percent(path.running)),
        };
        match path.blocked.first().filter(|(_, share, _)| *share >= path.without_cpu) {
            Some((_, share, what)) if *share >= path.running * CLOSE => {
                said.push_str(&format!(", and waits for {}, {what}", percent(*share)));
            }
            None if path.without_cpu >= path.running * CLOSE => {
                let part = percent(path.without_cpu);
                said.push_str(&format!(", and waits for a CPU for {part}"));
            }
            _ => {}
        }
        said
    }

    /// The function that has a fifth of the samples at least; nothing of few samples.
    fn hottest(&self) -> Option<String> {
        let first = self.functions.iter().find(|f| !f.name.starts_with('('))?;
        (self.samples >= FEW && first.own >= 20.0).then(|| visible(&first.name).into_owned())
    }

    /// By sums over threads, where there is no path: of the machine, and of recordings without
    /// the records of switches.
    fn verdict_of_sums(&self, busy: f64, cpu: Duration, is_thin: bool) -> String {
        let ready = self.ready.unwrap_or_default();
        let blocked = self.blocked.unwrap_or(ready);
        // Those of several who sleep may wait for the others.
        let is_crowded = self.threads.len() > 1 && ready > cpu && (busy >= 0.5 || ready > blocked);
        match busy {
            b if b >= 1.5 && is_crowded => format!("it keeps {b:.1} CPUs busy, and {CROWDED}"),
            b if b >= 1.5 => format!("it keeps {b:.1} CPUs busy"),
            _ if is_crowded => CROWDED.to_owned(),
            _ if self.threads.len() <= 1 && ready > blocked.max(cpu) => STARVED.to_owned(),
            b if b >= 0.75 => "it is busy: a faster CPU or less work would help".to_owned(),
            b => {
                let waits = self.waits.as_ref();
                let largest = waits.and_then(|w| w.largest.as_ref());
                let largest = largest.map(|what| format!(", mostly {what}"));
                let share = match (is_thin, b < 0.5) {
                    (false, _) => format!("{} of the time", percent(1.0 - b)),
                    (true, true) => "most of the time".to_owned(),
                    (true, false) => "part of the time".to_owned(),
                };
                let may_be_idle = waits.and_then(|w| w.cause).is_some_and(OffCpuCause::may_be_idle);
                let verdict = match (may_be_idle && self.attached, is_thin) {
                    (true, _) => "it is idle, or waits for others,",
                    (false, false) => "it waits for",
                    (false, true) => "it waits",
                };
                format!("{verdict} {share}{}", largest.unwrap_or_default())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::WaitSection;
    use super::*;

    fn page(path: PathShares, samples: u64) -> ProfilePage {
        let ms = Duration::from_millis;
        let cpu = ms(1000).mul_f64(path.running);
        let function = super::super::FunctionShare {
            own: 60.0,
            total: 60.0,
            name: "work".into(),
            object: "a".into(),
        };
        ProfilePage {
            elapsed: ms(1000),
            on_cpu: Some(cpu),
            user: cpu,
            samples,
            functions: vec![function],
            waits: Some(WaitSection::of_path(path)),
            ..ProfilePage::default()
        }
    }

    fn waits(cause: OffCpuCause, share: f64) -> PathShares {
        let running = 1.0 - share;
        let blocked = vec![(cause, share, "blocked on X, in f".to_owned())];
        PathShares { running, blocked, ..PathShares::default() }
    }

    fn said(page: &ProfilePage) -> String {
        page.in_short().unwrap()
    }

    #[test]
    fn thin_evidence_is_said_first() {
        let busy = || PathShares { running: 1.0, ..PathShares::default() };
        assert_eq!(
            said(&page(busy(), 400)),
            "it is busy, in work: a faster CPU or less work would help"
        );
        assert!(said(&page(busy(), 40)).starts_with("by only 40 samples: it is busy, in work"));
        // An ordinary user has no path: of 2 samples, and of a few ticks of the kernel's clock, no
        // share follows.
        let ordinary = |samples, ms| {
            let (system, elapsed) = (Duration::from_millis(ms), Duration::from_millis(ms * 10));
            let event = "cpu-clock:u".to_owned();
            let times = ProfilePage { elapsed, system, on_cpu: Some(system), ..Default::default() };
            said(&ProfilePage { event, samples, ..times })
        };
        assert_eq!(ordinary(2, 12), "by only 2 samples: it waits most of the time");
        assert_eq!(ordinary(1, 300), "by only one sample: it waits most of the time");
        assert_eq!(ordinary(40, 40), "it waits for 90% of the time");
        let kernel = "; 100% of its CPU time is in the kernel";
        assert_eq!(ordinary(40, 300), format!("it waits for 90% of the time{kernel}"));
        // Without a function's name the switches tell it.
        assert!(said(&page(busy(), 4)).starts_with("it is busy: "));
        assert!(said(&page(waits(OffCpuCause::Disk, 0.9), 40)).starts_with("it waits for 90%"));
        let lossy = |lost| said(&ProfilePage { lost: Some(lost), ..page(busy(), 400) });
        assert!(lossy("samples").starts_with("samples were lost, so this may be wrong: it"));
        let unknown = PathShares { uncertain: 0.4, running: 0.6, ..PathShares::default() };
        let unknown = said(&page(unknown, 400));
        assert!(unknown.starts_with("events were lost, and 40% of the time is"), "{unknown}");
        let unseen = Some("its program runs as another user".to_owned());
        let unseen = ProfilePage { unseen, ..page(waits(OffCpuCause::Blocked, 1.0), 3) };
        assert_eq!(said(&unseen), "its activity is unknown: its program runs as another user");
        let hidden = Some("/usr/bin/su".to_owned());
        let hidden = ProfilePage { hidden, ..page(waits(OffCpuCause::Blocked, 0.9), 3) };
        let want = "/usr/bin/su is not recorded, since it runs as another user: it waits for 90%";
        assert!(said(&hidden).starts_with(want), "{}", said(&hidden));
    }

    #[test]
    fn a_starved_program_says_so_and_where_it_runs() {
        let starved = |running| {
            let path = PathShares { running, without_cpu: 1.0 - running, ..PathShares::default() };
            said(&page(path, 200))
        };
        let want = "it waits for a CPU: other tasks keep the machine busy";
        assert_eq!(starved(0.3), format!("{want}; when it runs, it is in work"));
        assert_eq!(starved(0.05), want);
        let mut both = waits(OffCpuCause::Disk, 0.3);
        (both.running, both.without_cpu) = (0.2, 0.5);
        assert_eq!(
            said(&page(both, 200)),
            format!("{want} (50% of the time); 30% is blocked on X, in f")
        );
    }

    #[test]
    fn a_server_without_requests_is_idle() {
        let idle = |attached| {
            let idle = Some((0.94, "blocked on poll, in serve".to_owned()));
            let path = PathShares { idle, ..waits(OffCpuCause::Poll, 0.94) };
            said(&ProfilePage { attached, ..page(path, 200) })
        };
        assert_eq!(
            idle(true),
            "it is idle, or waits for others, 94% of the time, mostly blocked on poll, in serve; the \
             busy 6% is in work"
        );
        assert_eq!(idle(false), "it waits for 94% of the time, mostly blocked on X, in f");
    }

    #[test]
    fn quotas_and_stops_have_words_of_their_own() {
        let of = |cause| said(&page(waits(cause, 0.8), 200));
        assert_eq!(
            of(OffCpuCause::Throttled),
            "it is throttled for 80% of the time: the CPU quota of its cgroup is used up"
        );
        assert_eq!(
            of(OffCpuCause::Stopped),
            "it is stopped for 80% of the time, by a signal or a tracer"
        );
        // Two causes that are close are both named.
        let mut two = waits(OffCpuCause::Throttled, 0.5);
        two.blocked.push((OffCpuCause::Disk, 0.4, "blocked on disk".to_owned()));
        two.running = 0.1;
        assert!(said(&page(two, 200)).ends_with("used up (50%), and blocked on disk (40%)"));
    }
}
