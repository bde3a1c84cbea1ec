//! `kymo io record`: events of block requests into a perf.data, or into a trace.dat.

use std::process::ExitCode;

use kymo_analysis::block_io::{BLOCK_EVENTS, BLOCK_FILE_EVENTS, BLOCK_MORE_EVENTS};

use super::super::event_recording::{EventRecordingArgs, RecordedEvents, record_events};

/// Flags of `kymo io record`.
#[derive(clap::Args)]
#[command(after_help = "\
Records, of all devices, block_rq_{insert,issue,requeue,merge,complete} and block_getrq.
Who waited is told by sched_switch, sched_waking and sched_wakeup_new.
Which file a request is for is told by block_bio_{queue,remap}, iomap_iter_dstmap,
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

/// Hands over all that is recorded.
pub(super) fn with_events<T>(use_them: impl FnOnce(&RecordedEvents<'_>) -> T) -> T {
    use_them_of(true, true, use_them)
}

fn use_them_of<T>(waits: bool, files: bool, use_them: impl FnOnce(&RecordedEvents<'_>) -> T) -> T {
    let more = BLOCK_MORE_EVENTS.iter().filter(|e| waits || e.starts_with("block:"));
    let of_files = BLOCK_FILE_EVENTS.iter().filter(|_| files);
    let optional: Vec<&str> = more.chain(of_files).copied().collect();
    use_them(&RecordedEvents {
        command: "kymo io record",
        required: &BLOCK_EVENTS,
        optional: &optional,
    })
}

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    use_them_of(!args.no_waits, !args.no_files, |events| record_events(&args.recording, events))
}
