//! Any bytes as a page of the ftrace ring, in both byte orders and word sizes.
#![no_main]

use kymo_format::ring::PageLayout;
use kymo_model::Endian;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    for endian in [Endian::Little, Endian::Big] {
        for long in [4, 8] {
            let layout = PageLayout::new(endian, long, 4096).expect("a usual layout");
            let whole = layout.page(data).ok();
            for page in whole.into_iter().chain(layout.damaged_page(data)) {
                let events = page.events().map(|e| std::hint::black_box(e)).count();
                assert!(events <= data.len() / 4 + 1, "{events} events in {} bytes", data.len());
            }
        }
    }
});
