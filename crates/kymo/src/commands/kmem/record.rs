//! `kymo kmem record`: events of the allocators into a perf.data, or into a trace.dat.

use std::process::ExitCode;

use kymo_analysis::kmem::{PAGE_EVENTS, PAGE_STEP_EVENTS, SLAB_EVENTS};

use super::super::event_recording::{EventRecordingArgs, RecordedEvents, record_events};

/// Flags of `kymo kmem record`.
#[derive(clap::Args)]
#[command(after_help = "\
Records, system-wide, kmalloc, kfree, kmem_cache_alloc and kmem_cache_free (before Linux 6.2 also
their _node variants), and mm_page_alloc, mm_page_free and other page allocator events with call
chains; --slab or --page selects one of the two.

EXAMPLES
  kymo kmem record -- ./program
  kymo kmem record --page --timeout 5000       five seconds of pages
  kymo kmem record --slab -o x.dat -- ./program")]
pub(super) struct Args {
    /// Record the slab allocator [default: both allocators]
    #[arg(long)]
    slab: bool,
    /// Record the page allocator, with call chains
    #[arg(long)]
    page: bool,
    #[command(flatten)]
    recording: EventRecordingArgs,
}

pub(super) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let both = !args.slab && !args.page;
    let (slab, page) = (args.slab || both, args.page || both);
    record(args.recording, slab, page)
}

/// Records one allocator or both.
pub(super) fn record(
    mut recording: EventRecordingArgs,
    slab: bool,
    page: bool,
) -> anyhow::Result<ExitCode> {
    // Who called the page allocator is known by the call chain alone.
    recording.graph |= page && recording.call_graph.is_none();
    record_events(&recording, &events(slab, page))
}

/// Events of the slab and of the page allocator.
pub(super) fn events(slab: bool, page: bool) -> RecordedEvents {
    let mut events = RecordedEvents::of("kymo kmem record");
    if slab {
        let required = ["kmem:kmalloc", "kmem:kfree"];
        let others = SLAB_EVENTS.into_iter().filter(|name| !required.contains(name));
        events = events.require(required).prefer(others);
    }
    if page {
        events = events.require(PAGE_EVENTS).prefer(PAGE_STEP_EVENTS);
        // A fork names its child after its parent; programs that are executed change that.
        events = events.prefer(["sched:sched_process_fork", "task:task_rename"]);
    }
    events
}
