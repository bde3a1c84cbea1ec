//! Any bytes as a baseline in Parquet: sums that are read are finite and not below 0.
#![no_main]

use kymo_compare::read_baseline;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Ok((_, quantities)) = read_baseline(data, "fuzzed") else { return };
    for (.., runs) in quantities {
        for run in runs {
            assert!(run.work > 0.0 && run.whole >= 0.0 && run.whole.is_finite());
            assert!(run.functions().all(|(_, sum)| sum.own.is_finite() && sum.total.is_finite()));
        }
    }
});
