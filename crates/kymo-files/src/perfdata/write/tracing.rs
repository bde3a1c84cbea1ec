//! The tracing data section: the text formats of the tracepoints in a
//! recording, so that it can be read on a machine that has others. The layout
//! is trace-cmd's version 6 preamble, stated as version "0.6".

/// Contents of the tracing section.
#[derive(Clone, Debug, Default)]
pub struct TracingBlob {
    /// `events/header_page`.
    pub header_page: Vec<u8>,
    /// `events/header_event`.
    pub header_event: Vec<u8>,
    /// `(system, formats of its events)`.
    pub systems: Vec<(String, Vec<Vec<u8>>)>,
    /// Kernel symbols; may be empty.
    pub kallsyms: Vec<u8>,
    /// `printk_formats`.
    pub printk_formats: Vec<u8>,
    /// `saved_cmdlines`.
    pub cmdlines: Vec<u8>,
    /// The page size.
    pub page_size: u32,
}

impl TracingBlob {
    /// The section's bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut b = b"\x17\x08\x44tracing0.6\0".to_vec();
        b.push(u8::from(cfg!(target_endian = "big")));
        b.push(size_of::<usize>() as u8);
        b.extend(self.page_size.to_ne_bytes());
        for (name, text) in
            [(&b"header_page\0"[..], &self.header_page), (b"header_event\0", &self.header_event)]
        {
            b.extend_from_slice(name);
            b.extend((text.len() as u64).to_ne_bytes());
            b.extend_from_slice(text);
        }
        // No formats of ftrace's own entries: perf records none.
        b.extend(0u32.to_ne_bytes());
        b.extend((self.systems.len() as u32).to_ne_bytes());
        for (system, formats) in &self.systems {
            b.extend_from_slice(system.as_bytes());
            b.push(0);
            b.extend((formats.len() as u32).to_ne_bytes());
            for format in formats {
                b.extend((format.len() as u64).to_ne_bytes());
                b.extend_from_slice(format);
            }
        }
        for text in [&self.kallsyms, &self.printk_formats] {
            b.extend((text.len() as u32).to_ne_bytes());
            b.extend_from_slice(text);
        }
        b.extend((self.cmdlines.len() as u64).to_ne_bytes());
        b.extend_from_slice(&self.cmdlines);
        b
    }
}
