//! `kymo io record`: events of block requests into a perf.data, or into a trace.dat.

use std::process::ExitCode;

use kymo_analysis::block_io::{BLOCK_EVENTS, BLOCK_FILE_EVENTS, BLOCK_MORE_EVENTS};

use super::super::event_recording::{EventRecordingArgs, RecordedEvents, record_events};

/// Flags of `kymo io record`.
#[derive(clap::Args)]
#[command(after_help = "\
Records, of all devices, block_rq_{insert,issue,requeue,merge,complete} and block_getrq.
Waiters come from sched_switch, sched_waking and sched_wakeup_new.
The file of a request comes from block_bio_{queue,remap}, iomap_iter_dstmap,
mm_filemap_add_to_page_cache, writeback_dirty_folio, ext4_free_inode,
ext4_{writepages,writepages_result}, commits of jbd2 and reclaim of memory.

EXAMPLES
  kymo io record -- ./program
  kymo io record -o x.dat --timeout 5000")]
pub(super) struct Args {
    /// Leave out the events of the scheduler: who waited is not known then
    #[arg(long)]
    no_waits: bool,
    /// Leave out the events that tell which file a request is for, of which there is one for each
    /// page that is read or written
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
