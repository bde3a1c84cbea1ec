//! `kymo io record`: events of block requests into a perf.data, or into a trace.dat.

use std::process::ExitCode;

use kymo_analysis::block_io::{BLOCK_EVENTS, BLOCK_FILE_EVENTS, BLOCK_MORE_EVENTS};

use super::super::event_recording::{EventRecordingArgs, RecordedEvents, record_events};

/// Flags of `kymo io record`.
#[derive(clap::Args)]
#[command(after_help = "\
Records block_rq_{insert,issue,requeue,merge,complete} and block_getrq of all devices.
sched_switch, sched_waking and sched_wakeup_new identify waiting tasks.
The file of a request is derived from block_bio_{queue,remap}, iomap_iter_dstmap,
mm_filemap_add_to_page_cache, writeback_dirty_folio, ext4_free_inode,
ext4_{writepages,writepages_result}, jbd2 commits and memory reclaim.

EXAMPLES
  kymo io record -- ./program
  kymo io record -o x.dat --timeout 5000")]
pub(super) struct Args {
    /// Do not record scheduler events (waiting tasks will be unknown)
    #[arg(long)]
    no_waits: bool,
    /// Do not record the file of each request (one event per page read or written)
    #[arg(long)]
    no_files: bool,
    #[command(flatten)]
    recording: EventRecordingArgs,
}

/// Events of block requests; those that tell who waited, and which file a request is for.
pub(super) fn events(waits: bool, files: bool) -> RecordedEvents {
    let more = BLOCK_MORE_EVENTS.iter().filter(|e| waits || e.starts_with("block:"));
    let of_files = BLOCK_FILE_EVENTS.iter().filter(|_| files);
    let events = RecordedEvents::of("kymo io record").require(BLOCK_EVENTS);
    events.prefer(more.chain(of_files).copied())
}

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    record_events(&args.recording, &events(!args.no_waits, !args.no_files))
}
