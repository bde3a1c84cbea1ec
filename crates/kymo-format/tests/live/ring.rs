//! A walk over the pages of `trace_pipe_raw`, after the layout tracefs states
//! in `header_page` and `header_event`.

/// The payloads in `pages`, in order.
pub(crate) fn payloads(pages: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let mut out = Vec::new();
    for page in pages {
        let commit = u64::from_le_bytes(page[8..16].try_into().unwrap()) & 0xf_ffff;
        let data = &page[16..16 + commit as usize];
        let word = |at: usize| u32::from_le_bytes(data[at..at + 4].try_into().unwrap());
        let mut at = 0;
        while at + 4 <= data.len() {
            let head = word(at);
            let (kind, delta) = (head & 31, head >> 5);
            let (start, len) = match kind {
                29 if delta == 0 => break,
                29 => {
                    at += 4 + word(at + 4) as usize;
                    continue;
                }
                30 | 31 => {
                    at += 8;
                    continue;
                }
                0 => (at + 8, word(at + 4) as usize - 4),
                n => (at + 4, n as usize * 4),
            };
            out.push(data[start..start + len].to_vec());
            at = start + len;
        }
    }
    out
}
