//! The payloads in the pages of `trace_pipe_raw`.

use std::fs::File;
use std::io::Read as _;

use kymo_format::ring::PageLayout;
use kymo_model::Endian;

const HEADER_PAGE: &str = "/sys/kernel/tracing/events/header_page";

/// The payloads in `pages` with their times, in order.
pub(crate) fn payloads(pages: &[Vec<u8>]) -> Vec<(u64, Vec<u8>)> {
    // This file answers one read only.
    let mut header = [0; 4096];
    let n = File::open(HEADER_PAGE).unwrap().read(&mut header).unwrap();
    let header = std::str::from_utf8(&header[..n]).unwrap();
    let layout = PageLayout::parse(header, Endian::NATIVE).unwrap();
    let mut out = Vec::new();
    for bytes in pages {
        let page = layout.page(bytes).unwrap();
        assert_eq!(page.missed, None, "the ring was large enough");
        out.extend(page.events().map(|e| {
            let e = e.unwrap();
            (e.time, e.payload.to_vec())
        }));
    }
    out
}
