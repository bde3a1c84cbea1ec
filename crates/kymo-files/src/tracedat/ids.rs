//! The numbers of trace.dat's sections and options, under the names of
//! `trace-cmd.dat.v7(5)`.

macro_rules! numbers {
    ($(#[$doc:meta])* $type:ident: $($name:ident = $value:literal),* $(,)?) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $type(pub u16);

        #[allow(missing_docs, reason = "the names are the specification's")]
        impl $type {
            $(pub const $name: $type = $type($value);)*

            /// The specification's name.
            pub fn name(self) -> Option<&'static str> {
                match self.0 {
                    $($value => Some(stringify!($name)),)*
                    _ => None,
                }
            }
        }
    };
}

numbers! {
    /// An option's number. Up to `BUFFER_TEXT` a version 7 section has the
    /// number of the option that points to it.
    OptionId:
    DONE = 0, DATE = 1, CPUSTAT = 2, BUFFER = 3, TRACECLOCK = 4, UNAME = 5, HOOK = 6, OFFSET = 7,
    CPUCOUNT = 8, VERSION = 9, PROCMAPS = 10, TRACEID = 11, TIME_SHIFT = 12, GUEST = 13,
    TSC2NSEC = 14, HEADER_INFO = 16, FTRACE_EVENTS = 17, EVENT_FORMATS = 18, KALLSYMS = 19,
    PRINTK = 20, CMDLINES = 21, BUFFER_TEXT = 22,
}

numbers! {
    /// A version 7 section's number.
    SectionId:
    OPTIONS = 0, BUFFER = 3, STRINGS = 15, HEADER_INFO = 16, FTRACE_EVENTS = 17,
    EVENT_FORMATS = 18, KALLSYMS = 19, PRINTK = 20, CMDLINES = 21, BUFFER_TEXT = 22,
}

/// Bit of a section's flags: its content is compressed.
pub(crate) const SECTION_COMPRESSED: u16 = 1;
/// Bytes of a version 7 section header: id, flags, description, size.
pub(crate) const SECTION_HEADER: u64 = 16;
