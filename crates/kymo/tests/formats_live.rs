//! Number of formats of the running kernel that are rendered otherwise than by the kernel, with its
//! BTF for names that it left in them.
#![allow(clippy::unwrap_used, reason = "a failed test is a panic")]

use std::collections::BTreeMap;

use kymo_debuginfo::Enumerators;
use kymo_format::{Builtin, Constants, EventFormat, ParseOptions};
use kymo_testkit::{Need, require};

struct Values(Enumerators);

impl Constants for Values {
    fn value(&self, name: &str) -> Option<i64> {
        Builtin.value(name).or_else(|| self.0.value(name))
    }
}

#[test]
fn few_formats_are_not_rendered_as_by_the_kernel() {
    if !require(&[Need::Root, Need::Tracefs]) {
        return;
    }
    let Ok(btf) = std::fs::read("/sys/kernel/btf/vmlinux") else { return };
    let values = Values(Enumerators::parse(&btf).unwrap());
    let options = ParseOptions { long_size: 8, constants: &values };
    let tracefs = kymo_kernel::tracefs::Tracefs::open().unwrap();
    let (mut all, mut inexact) = (0usize, BTreeMap::new());
    for system in tracefs.systems().unwrap() {
        // Other tests' probes come and go.
        let Ok(names) = tracefs.events(&system) else { continue };
        for name in names {
            let Ok(text) = tracefs.event_format(&system, &name) else { continue };
            all += 1;
            let format = EventFormat::parse_with(&text, &options).unwrap();
            if !format.fallbacks().is_empty() {
                inexact.insert(format!("{system}:{name}"), format.fallbacks().join("; "));
            }
        }
    }
    println!("{} of {all} formats are not exact:", inexact.len());
    for (name, why) in &inexact {
        println!("  {name}: {why}");
    }
    // Text at addresses of the kernel (`printk_formats` has what is listed there), and
    // functions that only the kernel has. The one name without a value is the time at
    // which the kernel prints.
    assert!(all > 500, "{all}");
    assert!(inexact.len() * 50 < all, "{} of {all}: {inexact:#?}", inexact.len());
    let unknown: Vec<_> = inexact
        .iter()
        .filter(|(_, why)| why.contains("values not known") && *why != "values not known: jiffies")
        .collect();
    assert!(unknown.is_empty(), "{unknown:#?}");
}
