//! Options of `kymo top` from the command line.

use std::time::Duration;

use anyhow::{Context as _, bail};
use kymo_analysis::live_profile::{LiveKey, LiveQuery};
use kymo_kernel::cpus;
use kymo_kernel::events::Catalog;
use kymo_model::{SampleType, counted};
use kymo_record::{CallGraph, RecordOptions, SampleContents, Target};

use super::Args;
use crate::args::targets::named_target;

/// Bytes of samples that are kept to be saved, compressed.
pub(super) const HISTORY_BYTES: usize = 8 << 20;

/// Pages of a ring: samples wait there for a quarter of a second.
const PAGES: usize = 128;

/// A time in seconds, which may have a fraction.
pub(super) fn seconds(text: &str) -> Result<Duration, String> {
    let number: Option<f64> = text.parse().ok();
    number
        .filter(|n| (0.01..=86_400.0).contains(n))
        .map(Duration::from_secs_f64)
        .ok_or_else(|| "a time is a number of seconds from 0.01 to 86400".into())
}

impl Args {
    /// Returns the options of the capture.
    pub(super) fn record_options(&self) -> anyhow::Result<RecordOptions> {
        let (pid, tid, uid) = (self.pid.as_deref(), self.tid.as_deref(), self.uid.as_deref());
        let target = named_target(pid, tid, uid, &self.cgroup)?.unwrap_or(Target::System);
        let cpus = self.cpu.as_deref().map(cpus::parse_list).transpose().context("-C")?;
        let mut command_line = vec!["kymo".to_owned()];
        command_line.extend(std::env::args_os().skip(1).map(|a| a.to_string_lossy().into_owned()));
        let catalog = Catalog::open();
        let mut more_events = if self.off_cpu {
            catalog.parse("context-switches").context("--off-cpu")?
        } else {
            Vec::new()
        };
        more_events.iter_mut().for_each(|event| event.terms.period = Some(1));
        Ok(RecordOptions {
            events: self.events.specs(&catalog)?,
            more_events,
            switch_events: self.off_cpu,
            target,
            cpus: cpus.unwrap_or_default(),
            freq: self.freq.map(|r| r.0),
            period: self.count,
            call_graph: self.chains(),
            contents: SampleContents { fields: SampleType::CPU, ..SampleContents::default() },
            inherit: !self.no_inherit,
            skip_gone: self.uid.is_some(),
            timeout: self.timeout,
            pages: Some(self.mmap_pages.map_or(PAGES, |r| r.0)),
            map_timeout: self.proc_map_timeout,
            command_line,
            version: format!("kymo {}", env!("CARGO_PKG_VERSION")),
            ..RecordOptions::default()
        })
    }

    /// Time between two pages.
    pub(super) fn delay(&self) -> Duration {
        self.delay.unwrap_or(Duration::from_secs(if self.tasks { 1 } else { 2 }))
    }

    pub(super) fn chains(&self) -> Option<CallGraph> {
        self.call_graph.or((self.graph || self.off_cpu).then_some(CallGraph::FramePointers))
    }

    /// Whether rows are weighed with what they call.
    pub(super) fn weighs_children(&self) -> bool {
        self.children || (self.chains().is_some() && !self.no_children)
    }

    /// Selection of the shown samples, without their time.
    pub(super) fn query(&self) -> anyhow::Result<LiveQuery> {
        let names = |list: &[String]| (!list.is_empty()).then(|| list.to_vec());
        let mut keys = Vec::new();
        for word in self.sort.as_deref().unwrap_or("dso,symbol").split(',') {
            match LiveKey::parse(word.trim()) {
                Some(key) => keys.push(key),
                None => bail!("-s {word}: there are {}", LiveKey::NAMES),
            }
        }
        Ok(LiveQuery {
            keys,
            comms: names(&self.comms),
            dsos: names(&self.dsos),
            symbols: names(&self.symbols),
            hide_kernel: self.hide_kernel,
            hide_user: self.hide_user,
            ..LiveQuery::default()
        })
    }

    /// Target of the samples, as shown in the first line.
    pub(super) fn target_text(&self) -> String {
        let whose = match (&self.pid, &self.tid, &self.uid, self.cgroup.is_empty()) {
            (Some(pid), ..) => format!("target_pid: {pid}"),
            (_, Some(tid), ..) => format!("target_tid: {tid}"),
            (_, _, Some(uid), _) => format!("uid: {uid}"),
            (_, _, _, false) => format!("cgroup: {}", self.cgroup.join(",")),
            _ => "all".to_owned(),
        };
        match &self.cpu {
            Some(list) => format!("{whose}, CPU: {list}"),
            None if self.tid.is_some() => whose,
            None => {
                format!("{whose}, {}", counted(cpus::online().len() as u64, "CPU", "CPUs"))
            }
        }
    }
}
