//! Under the name perf: lines are perf trace's. Standard output leads to standard error then, or to
//! the file of `-o` (`shared_options`).

use std::sync::OnceLock;

use kymo_debuginfo::{BtfKind, BtfTypes};
use kymo_kernel::system::SystemRoot;
use kymo_render::{EnumNames, PerfTraceOptions};

use super::Args;
use crate::called_name::CalledName;

/// The layout of lines, if they are perf's.
pub(super) fn perf_trace_options(args: &Args) -> Option<PerfTraceOptions> {
    let no_comm = args.no_comm;
    (CalledName::get() == CalledName::Perf)
        .then(|| PerfTraceOptions { no_comm, enums: kernel_enums() })
}

/// Enumerations of the running kernel, whose types are read when one is met.
pub(super) fn kernel_enums() -> EnumNames {
    let bytes: OnceLock<Vec<u8>> = OnceLock::new();
    EnumNames::new(move |name| {
        let bytes = bytes.get_or_init(|| SystemRoot::machine().kernel_btf().unwrap_or_default());
        let Ok(types) = BtfTypes::parse(&bytes[..], None) else { return Vec::new() };
        let id = types.find(name, &[BtfKind::ENUM, BtfKind::ENUM64]);
        let Some(found) = id.and_then(|id| types.get(id)) else { return Vec::new() };
        let values = types.enumerators(&found).into_iter();
        values.map(|(value, name)| (value, name.to_owned())).collect()
    })
}
