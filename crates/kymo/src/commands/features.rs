//! Optional parts that perf may be built with, and whether kymo does what they are for. Scripts
//! look for them by perf's names: `version --build-options`, `check feature`.

/// A part by perf's name.
pub(super) struct Feature {
    pub(super) name: &'static str,
    /// The macro of perf's build, by which it may be requested, too.
    macro_name: &'static str,
    pub(super) is_on: bool,
    /// The reason, or the replacement, where kymo does not have it.
    tip: &'static str,
}

const fn on(name: &'static str, macro_name: &'static str) -> Feature {
    Feature { name, macro_name, is_on: true, tip: "" }
}

const fn off(name: &'static str, macro_name: &'static str, tip: &'static str) -> Feature {
    Feature { name, macro_name, is_on: false, tip }
}

const FEATURES: &[Feature] = &[
    off("aio", "HAVE_AIO_SUPPORT", "one thread writes the rings as they are"),
    on("babeltrace2-ctf-writer", "HAVE_BABELTRACE2_CTF_WRITER_SUPPORT"),
    on("bpf", "HAVE_LIBBPF_SUPPORT"),
    off("bpf_skeletons", "HAVE_BPF_SKEL", "`kymo run` compiles programs itself"),
    on("debuginfod", "HAVE_DEBUGINFOD_SUPPORT"),
    on("disassembly", ""),
    on("dwarf", "HAVE_LIBDW_SUPPORT"),
    on("dwarf-unwind", "HAVE_DWARF_UNWIND_SUPPORT"),
    on("dwarf_getlocations", "HAVE_LIBDW_SUPPORT"),
    off("libLLVM", "HAVE_LIBLLVM_SUPPORT", "code is read by kymo itself"),
    off("libbfd", "HAVE_LIBBFD_SUPPORT", "code is read by kymo itself"),
    off("libbpf-strings", "HAVE_LIBBPF_STRINGS_SUPPORT", ""),
    off("libcapstone", "HAVE_LIBCAPSTONE_SUPPORT", "code is read by kymo itself"),
    on("libdw-dwarf-unwind", "HAVE_LIBDW_SUPPORT"),
    on("libelf", "HAVE_LIBELF_SUPPORT"),
    off("libnuma", "HAVE_LIBNUMA_SUPPORT", ""),
    off("libopencsd", "HAVE_CSTRACE_SUPPORT", "hardware traces are not decoded"),
    off("libperl", "HAVE_LIBPERL_SUPPORT", "`kymo script --json` prints lines for scripts"),
    off("libpfm4", "HAVE_LIBPFM", "event names are those of sysfs"),
    off("libpython", "HAVE_LIBPYTHON_SUPPORT", "`kymo script --json` prints lines for scripts"),
    off("libslang", "HAVE_SLANG_SUPPORT", "`kymo view` shows recordings in a browser"),
    on("libtraceevent", "HAVE_LIBTRACEEVENT"),
    off("libunwind", "HAVE_LIBUNWIND_SUPPORT", "stacks are unwound by kymo itself"),
    on("lzma", "HAVE_LZMA_SUPPORT"),
    off("numa_num_possible_cpus", "HAVE_LIBNUMA_SUPPORT", ""),
    on("rust", "HAVE_RUST_SUPPORT"),
    on("syscall_table", "HAVE_SYSCALL_TABLE_SUPPORT"),
    on("zlib", "HAVE_ZLIB_SUPPORT"),
    on("zstd", "HAVE_ZSTD_SUPPORT"),
];

impl Feature {
    /// The line of perf's list.
    pub(super) fn line(&self) -> String {
        let state = if self.is_on { "on " } else { "OFF" };
        let mut line = format!("{:>22}: [ {state} ]", self.name);
        if !self.macro_name.is_empty() {
            line.push_str("  # ");
            line.push_str(self.macro_name);
        }
        if !self.tip.is_empty() {
            line.push_str(&format!(" ( tip: {} )", self.tip));
        }
        line.push('\n');
        line
    }
}

/// All of them, by name.
pub(super) fn all() -> impl Iterator<Item = &'static Feature> {
    FEATURES.iter()
}

/// One by its name or its macro, in any case, as perf compares them.
pub(super) fn named(name: &str) -> Option<&'static Feature> {
    let is_named = |own: &str| !own.is_empty() && own.eq_ignore_ascii_case(name);
    FEATURES.iter().find(|f| is_named(f.name) || is_named(f.macro_name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn features_are_found_by_name_and_by_macro() {
        assert!(named("ZSTD").unwrap().is_on);
        assert_eq!(named("HAVE_LIBPYTHON_SUPPORT").unwrap().name, "libpython");
        assert!(named("").is_none());
        assert!(named("no-such-feature").is_none());
        assert_eq!(
            named("zlib").unwrap().line(),
            "                  zlib: [ on  ]  # HAVE_ZLIB_SUPPORT\n"
        );
    }
}
