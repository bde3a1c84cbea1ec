//! Text about a trace.dat itself: the line that trace-cmd begins with, and the machine.

use kymo_files::tracedat::{Buffer, TraceDat};
use kymo_model::UntrustedText;

/// First line of `trace-cmd report`: the number of CPUs.
pub fn trace_cmd_cpus(data: &TraceDat) -> String {
    let most = data.buffers().iter().map(|b| b.cpus.len() as u32).max().unwrap_or(0);
    format!("cpus={}\n", data.options().cpu_count.unwrap_or(most))
}

/// Lines about the recording and the machine it was made on.
pub fn trace_cmd_header(data: &TraceDat) -> String {
    let mut out = String::new();
    let mut line = |name: &str, value: &str| {
        for (i, value) in value.trim_end().lines().enumerate() {
            let name = if i == 0 { name } else { "" };
            let colon = if i == 0 { ':' } else { ' ' };
            let value = UntrustedText::new(value).to_text();
            out.push_str(&format!("# {name:<14}{colon} {value}\n"));
        }
    };
    let o = data.options();
    line("version", &data.version().to_string());
    line("byte order", if data.endian() == kymo_model::Endian::Big { "big" } else { "little" });
    line("page size", &data.page_size().to_string());
    line("compression", data.compression().name());
    for (name, value) in [("uname", &o.uname), ("recorded by", &o.version), ("date", &o.date)] {
        line(name, value.as_deref().unwrap_or(""));
    }
    if let Some(id) = o.trace_id {
        line("trace id", &format!("{id:#x}"));
    }
    data.buffers().iter().for_each(|b| line("instance", &instance(b)));
    for stat in &o.cpustat {
        line("statistics", stat);
    }
    out
}

fn instance(b: &Buffer) -> String {
    let bytes: u64 = b.cpus.iter().map(|c| c.size).sum();
    let name = if b.name.is_empty() { "(top)" } else { &b.name };
    format!("{name}, clock {}, {} CPUs, {bytes} bytes", b.clock, b.cpus.len())
}
