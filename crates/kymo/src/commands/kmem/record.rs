//! `kymo kmem record`: events of the allocators into a perf.data, or into a trace.dat.

use std::process::ExitCode;

use kymo_analysis::kmem::{PAGE_EVENTS, PAGE_STEP_EVENTS, SLAB_EVENTS};

use super::super::event_recording::{EventRecordingArgs, RecordedEvents, record_events};

/// Flags of `kymo kmem record`.
#[derive(clap::Args)]
#[command(after_help = "\
Records kmalloc, kfree, kmem_cache_alloc, kmem_cache_free (and, of kernels before 6.2, their _node
variants) of everybody on all CPUs, and mm_page_alloc, mm_page_free and the steps of the page
allocator with call chains; --slab or --page one of the two.

EXAMPLES
  kymo kmem record -- ./program
  kymo kmem record --page --timeout 5000       five seconds of pages
  kymo kmem record --slab -o x.dat -- ./program")]
pub(super) struct Args {
    /// The slab allocator (both without --slab and --page)
    #[arg(long)]
    slab: bool,
    /// The page allocator, with call chains
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
    with_events((slab, page), |events| record_events(&recording, events))
}

/// Hands over what is recorded of the slab and the page allocator.
pub(super) fn with_events<T>(
    (slab, page): (bool, bool),
    use_them: impl FnOnce(&RecordedEvents<'_>) -> T,
) -> T {
    let mut required: Vec<&str> = Vec::new();
    let mut optional: Vec<&str> = Vec::new();
    if slab {
        required.extend(["kmem:kmalloc", "kmem:kfree"]);
        let others = SLAB_EVENTS.into_iter().filter(|name| !required.contains(name));
        optional.extend(others);
    }
    if page {
        required.extend(PAGE_EVENTS);
        optional.extend(PAGE_STEP_EVENTS);
        // Who the parents are.
        optional.push("sched:sched_process_fork");
        // A fork names its child after its parent; programs that are executed change that.
        optional.push("task:task_rename");
    }
    use_them(&RecordedEvents {
        command: "kymo kmem record",
        required: &required,
        optional: &optional,
    })
}
