//! `kymo boot`: analysis of a slow boot. `prepare` prints what the kernel must trace, `record`
//! saves it after the boot, `report` shows the critical path.

mod prepare;
mod record;
mod report;

use std::process::ExitCode;

use clap::Subcommand;

/// Flags of `kymo boot`.
#[derive(clap::Args)]
#[command(after_long_help = "\
With the right parameters the kernel traces its own boot: initcalls, modules, task switches and
wake-ups, work items, program starts and disk requests. The report shows the critical path from the
first event to the first process (or, with --until, to another program or unit): what each task did,
which device it waited for, and to what extent disks and their hosts were probed in parallel.

EXAMPLES
  kymo boot prepare                    print the parameters; --apply adds them to GRUB
  kymo boot record -o boot             after the reboot: boot/trace.dat, dmesg, units
  kymo boot report boot
  kymo boot report boot --until sshd
  kymo boot report --compare boot boot-async")]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Print or set the kernel parameters that trace a boot
    Prepare(prepare::Args),
    /// Save the trace of the boot, kernel messages, and unit times of systemd
    Record(record::Args),
    /// Show the critical path of a boot, or compare two
    Report(Box<report::Args>),
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    match args.action {
        Action::Prepare(args) => prepare::run(&args),
        Action::Record(args) => record::run(&args),
        Action::Report(args) => report::run(&args),
    }
}
