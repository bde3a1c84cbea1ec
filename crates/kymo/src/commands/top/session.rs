//! Samples on their way from the rings to the shown profile.

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use kymo_analysis::live_profile::{LiveKey, LiveProfile, LiveProfileOptions, LiveQuery};
use kymo_kernel::clock::monotonic_ns;
use kymo_kernel::system::release_freed_memory;
use kymo_model::{Note, NoteKind};
use kymo_record::{CaptureEnd, PerfCapture};
use kymo_symbols::ResolverOptions;
use kymo_view::top::{ScreenHead, TopHeader};

use super::Args;
use super::options::HISTORY_BYTES;

/// Rings are read so often: what is shown is no older.
const TICK: Duration = Duration::from_millis(200);
/// While the first samples or names are waited for.
const SHORT_TICK: Duration = Duration::from_millis(20);
/// Time from the start after which names come with the next tick: on a machine that builds there
/// are always some that have just come.
const START: Duration = Duration::from_secs(5);

/// Freed memory is given back so often.
const RELEASE: Duration = Duration::from_secs(5);

/// Samples while they come.
pub(super) struct TopSession {
    pub(super) capture: PerfCapture,
    pub(super) profile: LiveProfile,
    began: Instant,
    /// Time at which freed memory was given back last.
    released: Instant,
    /// Records that were lost when the page before was made.
    lost_before: u64,
    target: String,
    event: String,
}

impl TopSession {
    /// Opens the events and starts them.
    pub(super) fn start(args: &Args, query: &LiveQuery) -> anyhow::Result<TopSession> {
        let options = args.record_options()?;
        let mut capture = PerfCapture::open(&options)?;
        capture.keep_history(HISTORY_BYTES)?;
        let (events, features) = capture.described();
        // It stands behind all that were asked for.
        let off_cpu = events.len().checked_sub(1).filter(|_| args.off_cpu);
        let symbols =
            ResolverOptions { debuginfod: args.servers.quiet_client(), ..Default::default() };
        let live = LiveProfileOptions {
            symbols,
            by_cpu: query.keys.contains(&LiveKey::Cpu),
            span: nanoseconds(args.history),
            page: nanoseconds(args.window),
            off_cpu,
            max_stack: args.max_stack.map(usize::from),
        };
        let event = event_text(events.get(..off_cpu.unwrap_or(events.len())).unwrap_or_default());
        let mut profile = LiveProfile::new((events, features), live);
        // What happens meanwhile waits in the rings.
        capture.start()?;
        let mut existing = Vec::new();
        capture.tell_existing(true, &mut |record| existing.extend_from_slice(record))?;
        profile.push(&existing, &[]);
        if query.keys.contains(&LiveKey::Srcline) {
            profile.want_lines();
        }
        Ok(TopSession {
            capture,
            profile,
            began: Instant::now(),
            released: Instant::now(),
            lost_before: 0,
            target: args.target_text(),
            event,
        })
    }

    /// Waits for a moment, or until one of `more` can be read, and takes what came; returns whether
    /// it is over, after taking the rest.
    pub(super) fn step(
        &mut self,
        most: Duration,
        more: &[BorrowedFd<'_>],
    ) -> anyhow::Result<Option<CaptureEnd>> {
        let pending = self.profile.pending_names();
        let is_start = self.began.elapsed() < START;
        let has_names = pending.functions == 0 && pending.lines == 0 || !is_start;
        // The first samples are shown as soon as they are in order.
        let is_settled = has_names && self.profile.span().is_some();
        let tick = if is_settled { TICK } else { SHORT_TICK };
        let end = self.capture.wait_with(most.min(tick), more)?;
        if end.is_some() {
            // What was switched on is switched off.
            self.capture.stop()?;
        }
        // Whatever happened before is in the rings.
        let began = monotonic_ns();
        let profile = &mut self.profile;
        self.capture.round(&mut |first, second| profile.push(first, second));
        profile.end_round();
        if profile.off_cpu().is_some() && profile.span().is_some() {
            profile.advance(began);
        }
        if end.is_some() {
            profile.finish();
            if let Some(record) = self.capture.unreported_losses(profile.lost()) {
                profile.push(&record, &[]);
                profile.finish();
            }
        }
        if self.profile.span().is_some() {
            self.capture.forget_before(self.profile.kept_from())?;
        }
        if self.released.elapsed() >= RELEASE {
            release_freed_memory();
            self.released = Instant::now();
        }
        Ok(end)
    }

    /// The last seconds that there are samples of.
    pub(super) fn last(&self, span: Duration) -> (u64, u64) {
        let (first, end) = self.profile.span().unwrap_or((0, 0));
        (first.max(end.saturating_sub(nanoseconds(span))), end)
    }

    /// Returns the first line for the samples of a time.
    pub(super) fn header(&mut self, samples: u64, times: (u64, u64)) -> TopHeader {
        let lost = self.profile.lost();
        let before = std::mem::replace(&mut self.lost_before, lost);
        let seconds = (times.1.saturating_sub(times.0)) as f64 / 1e9;
        TopHeader {
            rate: if seconds > 0.0 { samples as f64 / seconds } else { 0.0 },
            lost: (lost - before, lost),
            event: self.event.clone(),
            target: self.target.clone(),
        }
    }

    /// Returns the constant parts of the first line of a screen.
    pub(super) fn screen_head(&self) -> ScreenHead {
        ScreenHead { event: self.event.clone(), target: self.target.clone() }
    }

    /// Ends it; gives what the ledger is to say of the capture.
    pub(super) fn finish(self) -> (LiveProfile, Vec<Note>) {
        let mut notes = self.capture.notes().to_vec();
        let finished = self.capture.finish();
        let (used, elapsed) = (finished.used.as_secs_f64(), self.began.elapsed().as_secs_f64());
        let share = if elapsed > 0.0 { used * 100.0 / elapsed } else { 0.0 };
        let fact =
            format!("kymo itself used {share:.1}% of one CPU: {used:.3} s in {elapsed:.3} s");
        notes.push(Note::choice(NoteKind::Overhead, fact, None));
        (self.profile, notes)
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Events with the frequency that they share.
fn event_text(events: &[kymo_files::perfdata::EventDesc]) -> String {
    use kymo_model::AttrFlags;
    let names: Vec<&str> = events.iter().map(|e| e.name.as_str()).collect();
    let names = names.join(",");
    match events.first().map(|e| &e.attr) {
        Some(attr) if attr.flags.contains(AttrFlags::FREQ) => {
            format!("{}Hz {names}", attr.sample_period)
        }
        Some(attr) if events.len() == 1 => format!("{} {names}", attr.sample_period),
        _ => names,
    }
}
