//! `kymo boot`: what makes a boot slow. `prepare` says what the kernel must trace, `record` saves
//! it after the boot, `report` shows the critical path.

mod prepare;
mod record;
mod report;

use std::process::ExitCode;

use clap::Subcommand;

/// Flags of `kymo boot`.
#[derive(clap::Args)]
#[command(after_long_help = "\
The kernel traces its own boot if its command line says so: initcalls, modules, switches and wake-ups
of tasks, work items, program starts, requests of disks. The report is one critical path from the first
event to the first process (--until: to another program), each part named by what its task did and by
the device it waited for, and says how far disks and their hosts worked at the same time.

EXAMPLES
  kymo boot prepare                    the parameters; --apply adds them to GRUB's
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
    /// Say or set the kernel parameters that trace a boot
    Prepare(prepare::Args),
    /// Save what the kernel traced of its boot, its messages, and systemd's times of units
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
