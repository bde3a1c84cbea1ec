//! Any print format over a fixed set of fields, rendered with any payload: the
//! input up to the first NUL is the format, the rest the payload.
#![no_main]

use kymo_format::{EventFormat, RenderContext};
use kymo_model::Endian;
use libfuzzer_sys::fuzz_target;

const FIELDS: &str = "name: x
ID: 1
format:
\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;
\tfield:int a;\toffset:8;\tsize:4;\tsigned:1;
\tfield:u64 b;\toffset:16;\tsize:8;\tsigned:0;
\tfield:char c[16];\toffset:24;\tsize:16;\tsigned:0;
\tfield:__data_loc char[] d;\toffset:40;\tsize:4;\tsigned:0;
\tfield:__rel_loc u32[] e;\toffset:44;\tsize:4;\tsigned:0;
\tfield:u8 f[28];\toffset:48;\tsize:28;\tsigned:0;
\tfield:__data_loc cpumask_t g;\toffset:76;\tsize:4;\tsigned:0;

print fmt: ";

fuzz_target!(|data: &[u8]| {
    let cut = data.iter().position(|b| *b == 0).unwrap_or(data.len());
    let (print, payload) = data.split_at(cut);
    let text = format!("{FIELDS}{}", String::from_utf8_lossy(print));
    let Ok(format) = EventFormat::parse(&text) else { return };
    for endian in [Endian::Little, Endian::Big] {
        let mut out = Vec::new();
        format.render(&mut out, payload, &RenderContext { endian, ..Default::default() });
        assert!(out.len() <= 64 << 10);
    }
});
