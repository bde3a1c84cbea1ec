//! Flags of `kymo record` that choose what samples carry.

use kymo_model::{AttrFlags, BranchType, RegisterNames, SampleType};
use kymo_record::SampleContents;

/// Optional contents of samples.
#[derive(clap::Args)]
pub(crate) struct ContentArgs {
    /// Record data addresses in samples
    #[arg(short = 'd', long)]
    data: bool,
    /// Timestamps in samples (always on; accepted for compatibility)
    #[arg(short = 'T', long)]
    timestamp: bool,
    /// Record the period in samples
    #[arg(short = 'P', long)]
    period: bool,
    /// Record raw data in samples (always on for tracepoints)
    #[arg(short = 'R', long)]
    raw_samples: bool,
    /// Record the CPU in samples
    #[arg(long)]
    sample_cpu: bool,
    /// Record the event ID in samples (always on with several events)
    #[arg(long)]
    sample_identifier: bool,
    /// Record weights (costs, latencies) in samples, where events have them
    #[arg(short = 'W', long)]
    weight: bool,
    /// Record transaction flags in samples, where events have them
    #[arg(long)]
    transaction: bool,
    /// Record physical data addresses in samples
    #[arg(long)]
    phys_data: bool,
    /// Record page sizes of data addresses in samples
    #[arg(long)]
    data_page_size: bool,
    /// Record page sizes of code addresses in samples
    #[arg(long)]
    code_page_size: bool,
    /// Record user-space registers in samples: all, or the given ones (`?` lists them)
    #[arg(long, value_name = "REG,…", num_args = 0..=1, require_equals = true,
          default_missing_value = "", value_parser = registers)]
    user_regs: Option<u64>,
    /// Record registers at the interrupt in samples: all, or the given ones (`?` lists them)
    #[arg(short = 'I', long, value_name = "REG,…", num_args = 0..=1, require_equals = true,
          default_missing_value = "", value_parser = registers)]
    intr_regs: Option<u64>,
    /// Record branch stacks of all taken branches
    #[arg(short = 'b', long, conflicts_with = "branch_filter")]
    branch_any: bool,
    /// Record branch stacks of these kinds: any, any_call, any_ret, ind_call, cond, u, k, …
    #[arg(short = 'j', long, value_name = "FILTER,…", value_parser = branches)]
    branch_filter: Option<BranchType>,
    /// Exclude the kernel from all events
    #[arg(long, conflicts_with = "all_kernel")]
    all_user: bool,
    /// Exclude user space from all events
    #[arg(long)]
    all_kernel: bool,
    /// Record only the user-space part of call chains
    #[arg(long, conflicts_with = "kernel_callchains")]
    user_callchains: bool,
    /// Record only the kernel part of call chains
    #[arg(long)]
    kernel_callchains: bool,
}

impl ContentArgs {
    /// Returns the requested contents of samples.
    pub(crate) fn contents(&self) -> SampleContents {
        let asked = [
            (self.data, SampleType::ADDR),
            (self.period, SampleType::PERIOD),
            (self.raw_samples, SampleType::RAW),
            (self.sample_cpu, SampleType::CPU),
            (self.sample_identifier, SampleType::IDENTIFIER),
            (self.weight, SampleType::WEIGHT_STRUCT),
            (self.transaction, SampleType::TRANSACTION),
            (self.phys_data, SampleType::PHYS_ADDR),
            (self.data_page_size, SampleType::DATA_PAGE_SIZE),
            (self.code_page_size, SampleType::CODE_PAGE_SIZE),
        ];
        let any = if self.branch_any { BranchType::ANY } else { BranchType::empty() };
        SampleContents {
            fields: asked.iter().filter(|(on, _)| *on).map(|(_, field)| *field).collect(),
            branches: self.branch_filter.unwrap_or(any),
            user_registers: self.user_regs.unwrap_or(0),
            interrupt_registers: self.intr_regs.unwrap_or(0),
        }
    }

    /// The sides that are left out.
    pub(crate) fn exclude(&self) -> AttrFlags {
        let asked = [
            (self.all_user, AttrFlags::EXCLUDE_KERNEL),
            (self.all_kernel, AttrFlags::EXCLUDE_USER),
            (self.user_callchains, AttrFlags::EXCLUDE_CALLCHAIN_KERNEL),
            (self.kernel_callchains, AttrFlags::EXCLUDE_CALLCHAIN_USER),
        ];
        asked.iter().filter(|(on, _)| *on).map(|(_, flag)| *flag).collect()
    }
}

fn registers(text: &str) -> Result<u64, String> {
    let names = RegisterNames::NATIVE;
    if text.is_empty() {
        return Ok(names.general());
    }
    names.mask(&text.split(',').map(str::trim).collect::<Vec<_>>()).map_err(|unknown| {
        let known = (0..64).filter(|n| names.general() & (1 << n) != 0).map(|n| names.name(n));
        let known = known.collect::<Vec<_>>().join(" ");
        match unknown {
            "?" => format!("there are {known}"),
            _ => format!("unknown register {unknown:?}; known are {known}"),
        }
    })
}

fn branches(text: &str) -> Result<BranchType, String> {
    BranchType::parse(text).map_err(|unknown| {
        let known = BranchType::NAMES.map(|(name, _)| name).join(" ");
        format!("unknown branch filter {unknown:?}; known are {known}")
    })
}
