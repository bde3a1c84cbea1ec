//! Events of the kernel, shown until the end of a run.

use std::process::ExitCode;

use kymo_events::live::LiveEvents;
use kymo_record::ftrace::{LiveCapture, LiveEnd, LiveOptions, LivePace, TraceEvent};
use kymo_view::Ledger;

use super::live_output::{LiveKinds, LiveOutput};
use super::{Args, close};
use crate::args::targets::note_kernel_numbers;
use crate::commands::tracing;

/// Opens the rings that the flags mean.
pub(super) fn open(
    args: &Args,
    events: &[TraceEvent],
    pace: LivePace,
) -> anyhow::Result<LiveCapture> {
    let options =
        LiveOptions { setup: args.setup(events.to_vec())?, instance: args.instance.clone(), pace };
    Ok(LiveCapture::open(&tracing::open()?, &options)?)
}

pub(super) fn run(args: &Args, events: &[TraceEvent]) -> anyhow::Result<ExitCode> {
    let selection = args.selection()?;
    let mut capture = open(args, events, LivePace::Tick)?;
    let mut ledger = Ledger::from_notes(capture.notes().to_vec());
    note_kernel_numbers().into_iter().for_each(|note| ledger.push(note));
    let live = LiveEvents::new(&selection, Some(capture.dir()));
    let mut live = if args.instance.is_some() { live.of_filled_ring() } else { live };
    live.check_filter()?;
    let clock = capture.dir().clocks()?.current;
    let mut output = LiveOutput::new(args, LiveKinds::Kernel(&clock), Some(&capture))?;
    capture.start()?;
    let result = until_the_end(&mut capture, &mut live, &mut output);
    let (lost, code) = capture.end(result)?;
    output.note(&lost, &mut ledger);
    Ok(close(args, &ledger, code))
}

/// `None`: as many events as were asked for.
fn until_the_end(
    capture: &mut LiveCapture,
    live: &mut LiveEvents<'_>,
    output: &mut LiveOutput,
) -> anyhow::Result<Option<LiveEnd>> {
    let mut end = None;
    loop {
        live.begin_round();
        let more = capture.round(end.is_some(), &mut |item| output.ring_item(live, item))?;
        output.flush()?;
        if output.is_full() {
            return output.finish().map(|()| None);
        }
        if end.is_none() {
            end = capture.wait(more)?;
            if end.is_some() {
                capture.stop()?;
            }
        } else if !more {
            return output.finish().map(|()| end);
        }
    }
}
