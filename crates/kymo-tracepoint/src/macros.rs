//! The macros that programs use, and what they expand to.

/// Declares a tracepoint, with the five parts of the kernel's `TRACE_EVENT`: who provides it and
/// what it takes, and below the stored fields, how they come from the arguments, and how they are
/// printed. Becomes a module of that name; [`emit!`](crate::emit) hits it.
///
/// ```
/// use kymo_tracepoint::{emit, tracepoint};
///
/// tracepoint! {
///     /// A sale has been made.
///     pub shop: sale(id: u64, customer: &str, cents: i64) {
///         fields { id: u64 = id, customer: str = customer, euros: f64 = cents as f64 / 100.0 }
///         print "sale {id} to {customer}: {euros} EUR"
///         level kymo_tracepoint::Level::Info
///         when cents != 0
///     }
/// }
///
/// emit!(sale(1, "alice", 995));
/// ```
///
/// `level` and `when` may be left out. Arguments are evaluated only while the tracepoint is
/// enabled; their types are `Copy`. In a module `M` of its own: `emit!(M::sale(…))`. Closures are
/// registered with `sale::register(|id, customer, cents| …)`.
#[macro_export]
macro_rules! tracepoint {
    (
        $(#[doc = $doc:expr])*
        $vis:vis $provider:ident : $name:ident ( $($arg:ident : $arg_type:ty),* $(,)? ) {
            fields { $($field:ident : $field_type:ty = $value:expr),* $(,)? }
            print $format:expr
            $(, level $level:expr)?
            $(, when $when:expr)?
            $(,)?
        }
    ) => {
        $(#[doc = $doc])*
        #[allow(
            non_camel_case_types,
            unused_imports,
            dead_code,
            unreachable_pub,
            clippy::all,
            reason = "made by a macro, which offers more than each program uses"
        )]
        $vis mod $name {
            use super::*;

            $crate::__fields! { $provider, $name, $($field: $field_type),* }
            $crate::__site! {
                stringify!($provider), stringify!($name), $format, concat!($($doc, "\n",)* ""),
                $crate::__or!($($level)?; $crate::Level::Debug), false
            }

            /// Type of a callback.
            pub type Callback = dyn Fn($($arg_type),*) + Send + Sync;

            /// Whether anybody listens.
            #[inline(always)]
            pub fn enabled() -> bool {
                SITE.is_enabled()
            }

            /// Calls `callback` with the arguments whenever the tracepoint is hit, until
            /// the result is dropped.
            #[must_use]
            pub fn register(
                callback: impl Fn($($arg_type),*) + Send + Sync + 'static,
            ) -> $crate::Registration<Callback> {
                // SAFETY: all callbacks of this site are of this type.
                unsafe { $crate::Registration::new(&SITE, ::std::sync::Arc::new(callback)) }
            }

            /// Hands the event to the listeners. Cold, so that its call stands apart from the code
            /// that runs while it is disabled.
            #[cold]
            #[inline(never)]
            pub fn emit($($arg: $arg_type),*) {
                let listeners = SITE.listeners();
                if listeners.are_there() {
                    return emit_to_all(listeners, $($arg),*);
                }
                if $crate::__or!($($when)?; true) {
                    write(&Fields {
                        $($field: $value,)*
                        _life: ::core::marker::PhantomData,
                    });
                }
            }

            /// [`emit`] with listeners other than sessions.
            #[cold]
            #[inline(never)]
            fn emit_to_all(listeners: $crate::private::Listeners, $($arg: $arg_type),*) {
                if !$crate::__or!($($when)?; true) {
                    return;
                }
                if listeners.has_callback() {
                    // SAFETY: all callbacks of this site are of this type.
                    unsafe {
                        $crate::private::call::<Callback>(&SITE, |callback| callback($($arg),*));
                    }
                }
                let fields = Fields { $($field: $value,)* _life: ::core::marker::PhantomData };
                if listeners.has_tracer() {
                    tell_tracers(&fields);
                }
                write(&fields);
            }
        }
    };
    // The parts below `fields`, separated by nothing but their words.
    (
        $(#[doc = $doc:expr])*
        $vis:vis $provider:ident : $name:ident $args:tt {
            fields $fields:tt print $format:literal $($rest:tt)*
        }
    ) => {
        $crate::__parts! { [$(#[doc = $doc])* $vis $provider : $name $args] $fields $format; $($rest)* }
    };
}

/// Puts commas between the parts.
#[doc(hidden)]
#[macro_export]
macro_rules! __parts {
    (
        [$($head:tt)*] $fields:tt $format:literal;
        level $level:ident $(:: $more:ident)* when $when:expr
    ) => {
        $crate::tracepoint! {
            $($head)* { fields $fields print $format, level $level $(:: $more)*, when $when }
        }
    };
    ([$($head:tt)*] $fields:tt $format:literal; level $level:ident $(:: $more:ident)*) => {
        $crate::tracepoint! {
            $($head)* { fields $fields print $format, level $level $(:: $more)* }
        }
    };
    ([$($head:tt)*] $fields:tt $format:literal; when $when:expr) => {
        $crate::tracepoint! { $($head)* { fields $fields print $format, when $when } }
    };
    ([$($head:tt)*] $fields:tt $format:literal;) => {
        $crate::tracepoint! { $($head)* { fields $fields print $format, } }
    };
}

/// Declares several tracepoints that take and store the same: an event class.
///
/// ```
/// use kymo_tracepoint::{emit, tracepoint_class};
///
/// tracepoint_class! {
///     pub shop: door(who: u32) {
///         fields { who: u32 = who }
///         print "by {who}"
///     }
///     events {
///         /// Customer entered.
///         door_opened;
///         /// Customer left.
///         door_closed;
///     }
/// }
///
/// emit!(door_opened(7));
/// emit!(door_closed(7));
/// ```
#[macro_export]
macro_rules! tracepoint_class {
    (
        $vis:vis $provider:ident : $class:ident $args:tt $body:tt
        events { $($(#[doc = $doc:expr])* $name:ident;)* }
    ) => {
        $($crate::__of_class! { [$(#[doc = $doc])* $vis $provider : $name] $args $body })*
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __of_class {
    ([$($head:tt)*] $args:tt $body:tt) => {
        $crate::tracepoint! { $($head)* $args $body }
    };
}

/// Hits a tracepoint: `emit!(sale(1, "alice", 995))`. The arguments are evaluated only if it is
/// enabled.
#[macro_export]
macro_rules! emit {
    ($($name:ident)::+ ( $($arg:expr),* $(,)? )) => {
        if $($name)::+::enabled() {
            $($name)::+::emit($($arg),*);
        }
    };
}

/// A marker in the midst of a function, like the kernel's of old: a name, a text, and typed values
/// that are evaluated only if it is enabled.
///
/// ```
/// # let (prev, next_task) = (1u32, 2u32);
/// kymo_tracepoint::mark!(sched: switch, "prev {prev} next {next}", prev: u32, next: u32 = next_task);
/// ```
#[macro_export]
macro_rules! mark {
    (
        $provider:ident : $name:ident, $format:literal
        $(, $field:ident : $field_type:ty $(= $value:expr)?)* $(,)?
    ) => {{
        $crate::__fields! { $provider, $name, $($field: $field_type),* }
        $crate::__site! {
            stringify!($provider), stringify!($name), $format, "", $crate::Level::Debug, true
        }
        if SITE.is_enabled() {
            $(
                let $field: <$field_type as $crate::FieldType>::Given<'_> =
                    $crate::__or!($($value)?; $field);
            )*
            write_apart(&Fields { $($field,)* _life: ::core::marker::PhantomData });
        }
    }};
}

/// Counts: adds one, or what is said, to a counter of the program, which `kymo count -u` shows.
/// It always counts, whether anybody looks or not.
///
/// ```
/// use kymo_tracepoint::counter;
///
/// # let (bytes, payment) = (7u32, "card");
/// counter!(shop: sales);
/// counter!(shop: bytes, bytes);
/// counter!(shop: payments, by payment);
/// counter!(shop: paid_bytes, bytes, by payment);
/// ```
///
/// Steps are integers of any type; a negative one adds nothing. Keys are texts (of long ones the
/// first 40 bytes), integers, `bool` or `char`. A counter holds 256 keys; what comes under more of them is counted together, as the other keys. The same
/// counter may be hit in several places.
#[macro_export]
macro_rules! counter {
    ($(#[doc = $doc:expr])* $provider:ident : $name:ident $(,)?) => {
        $crate::counter!($(#[doc = $doc])* $provider: $name, 1u64)
    };
    ($(#[doc = $doc:expr])* $provider:ident : $name:ident, by $key:expr $(,)?) => {
        $crate::counter!($(#[doc = $doc])* $provider: $name, 1u64, by $key)
    };
    ($(#[doc = $doc:expr])* $provider:ident : $name:ident, $n:expr, by $key:expr $(,)?) => {
        // Outside of the block whose statics have names.
        match ($crate::private::step($n), $crate::CounterKey::key(&$key)) {
            (n, key) => {
                $crate::__counter! { $provider, $name, concat!($($doc, "\n",)* ""), false, true }
                SITE.add_keyed(n, &key)
            }
        }
    };
    ($(#[doc = $doc:expr])* $provider:ident : $name:ident, $n:expr $(,)?) => {
        match $crate::private::step($n) {
            n => {
                $crate::__counter! { $provider, $name, concat!($($doc, "\n",)* ""), false, false }
                SITE.add(n)
            }
        }
    };
}

/// Puts a value into a histogram of the program, which `kymo count -u` draws by powers of two.
///
/// ```
/// use kymo_tracepoint::histogram;
///
/// # let (bytes, payment) = (7u32, "card");
/// histogram!(shop: parcel_bytes, bytes);
/// histogram!(shop: basket, bytes, by payment);
/// ```
///
/// Values are integers of any type, keys as those of [`counter!`](crate::counter); a histogram
/// holds 64 keys.
#[macro_export]
macro_rules! histogram {
    ($(#[doc = $doc:expr])* $provider:ident : $name:ident, $value:expr, by $key:expr $(,)?) => {
        match ($crate::SampleValue::sample($value), $crate::CounterKey::key(&$key)) {
            (value, key) => {
                $crate::__counter! { $provider, $name, concat!($($doc, "\n",)* ""), true, true }
                SITE.record_keyed(value, &key)
            }
        }
    };
    ($(#[doc = $doc:expr])* $provider:ident : $name:ident, $value:expr $(,)?) => {
        match $crate::SampleValue::sample($value) {
            value => {
                $crate::__counter! { $provider, $name, concat!($($doc, "\n",)* ""), true, false }
                SITE.record(value)
            }
        }
    };
}

/// The statics of a counter: its description, its site, and its place in the linker's list.
#[doc(hidden)]
#[macro_export]
macro_rules! __counter {
    ($provider:ident, $name:ident, $doc:expr, $is_histogram:expr, $keyed:expr) => {
        static INFO: $crate::private::CounterInfo = $crate::private::CounterInfo::new(
            [stringify!($provider), stringify!($name), $doc, file!()],
            line!(),
            $is_histogram,
            $keyed,
        );
        static SITE: $crate::private::CounterSite = $crate::private::CounterSite::new(&INFO);
        #[used]
        #[unsafe(link_section = "kymo_counters")]
        static ENTRY: $crate::private::CounterRef = $crate::private::CounterRef::new(&SITE);
    };
}

/// Declares an enum whose values have names in the trace.
///
/// ```
/// kymo_tracepoint::tracepoint_enum! {
///     /// How something is paid for.
///     pub enum Payment: u8 { Cash = 1, Card = 2 }
/// }
/// ```
#[macro_export]
macro_rules! tracepoint_enum {
    (
        $(#[$attr:meta])*
        $vis:vis enum $name:ident : $number:ty {
            $($(#[$value_attr:meta])* $variant:ident = $value:expr),* $(,)?
        }
    ) => {
        $(#[$attr])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr($number)]
        #[allow(missing_docs, reason = "names of values may speak for themselves")]
        $vis enum $name { $($(#[$value_attr])* $variant = $value),* }

        // SAFETY: `put` writes the number.
        unsafe impl $crate::FieldType for $name {
            type Given<'a> = $name;
            const SHAPE: $crate::private::Shape =
                $crate::private::enum_shape(<$number as $crate::FieldType>::SHAPE);
            const ENTRIES: &'static [$crate::private::EnumEntry] = &[$($crate::private::EnumEntry {
                low: $value as i64,
                high: $value as i64,
                name: $crate::private::StaticText::new(stringify!($variant)),
            }),*];
            const SDT: i32 = <$number as $crate::FieldType>::SDT;

            fn size(given: &$name) -> usize {
                <$number as $crate::FieldType>::size(&(*given as $number))
            }

            unsafe fn put(given: &$name, at: *mut u8) -> *mut u8 {
                // SAFETY: the caller's promise.
                unsafe { <$number as $crate::FieldType>::put(&(*given as $number), at) }
            }

            fn word(given: &$name, room: &mut &mut [u8]) -> u64 {
                <$number as $crate::FieldType>::word(&(*given as $number), room)
            }
        }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __or {
    (; $otherwise:expr) => {
        $otherwise
    };
    ($value:expr; $otherwise:expr) => {
        $value
    };
}

/// Stored fields of an event and their serialization; for the static `SITE` beside it.
#[doc(hidden)]
#[macro_export]
macro_rules! __fields {
    ($provider:ident, $name:ident, $($field:ident : $field_type:ty),*) => {
        static FIELDS: &[$crate::private::SiteField] = &[$(
            $crate::private::SiteField::new(
                stringify!($field),
                <$field_type as $crate::FieldType>::SHAPE,
                <$field_type as $crate::FieldType>::ENTRIES,
            ),
        )*];

        /// Stored fields.
        struct Fields<'a> {
            $($field: <$field_type as $crate::FieldType>::Given<'a>,)*
            _life: ::core::marker::PhantomData<&'a ()>,
        }

        /// As arguments of an SDT marker.
        #[repr(C)]
        struct Words {
            $($field: u64,)*
            _none: u64,
        }

        /// Hands the event to the sessions that listen.
        #[inline(always)]
        fn write(fields: &Fields<'_>) {
            let len = 0usize $(+ <$field_type as $crate::FieldType>::size(&fields.$field))*;
            if len > $crate::private::SMALL {
                write_large(fields);
                return;
            }
            let mut scratch = $crate::private::Scratch::new();
            let start = scratch.payload();
            // SAFETY: the sizes add up to no more than `len`, which is no more than SMALL.
            unsafe {
                let at = start;
                $(let at = <$field_type as $crate::FieldType>::put(&fields.$field, at);)*
                SITE.record(&mut scratch, at.addr() - start.addr());
            }
        }

        /// From where it stands in the midst of a function, whose registers are its own.
        #[inline(never)]
        #[cold]
        #[allow(dead_code, reason = "for marks")]
        fn write_apart(fields: &Fields<'_>) {
            if SITE.listeners().has_tracer() {
                tell_tracers(fields);
            }
            write(fields);
        }

        #[cold]
        #[inline(never)]
        fn write_large(fields: &Fields<'_>) {
            let len = 0usize $(+ <$field_type as $crate::FieldType>::exact_size(&fields.$field))*;
            SITE.record_large(len, &mut |at| {
                // SAFETY: called with room for `len` bytes.
                unsafe {
                    $(let at = <$field_type as $crate::FieldType>::put(&fields.$field, at);)*
                    let _ = at;
                }
            });
        }

        /// The SDT marker. Apart, as it is where a thread is stopped: its caller has no idea.
        #[cold]
        #[inline(never)]
        fn tell_tracers(fields: &Fields<'_>) {
            let mut texts = [0; $crate::private::SMALL];
            let mut room = &mut texts[..];
            let _ = (fields, &mut room);
            $(
                let $field =
                    <$field_type as $crate::FieldType>::word(&fields.$field, &mut room);
            )*
            let words = Words { $($field,)* _none: 0 };
            $crate::__sdt!($provider, $name, words, $($field: $field_type),*);
        }
    };
}

/// The statics of a site: its description, itself, and its place in the linker's list.
#[doc(hidden)]
#[macro_export]
macro_rules! __site {
    ($provider:expr, $name:expr, $format:expr, $doc:expr, $level:expr, $mark:expr) => {
        static EVENT: $crate::private::EventInfo = $crate::private::EventInfo::new(
            &$crate::private::Declared {
                provider: $provider,
                name: $name,
                format: $format,
                doc: $doc,
                file: file!(),
                line: line!(),
                level: $level,
                mark: $mark,
            },
            FIELDS,
        );
        // Of its own section, see `abi`.
        #[unsafe(link_section = ".probes")]
        static SITE: $crate::private::Site = $crate::private::Site::new(&EVENT);
        #[used]
        #[unsafe(link_section = "kymo_events")]
        static ENTRY: $crate::private::SiteRef = $crate::private::SiteRef::new(&SITE);
    };
}

/// An SDT marker whose arguments are the members of `words`; the assembly may use the stack, so
/// that the compiler keeps nothing below the stack pointer meanwhile. On x86-64 it is a one-byte
/// nop, which kernels trap, and behind it the long nop that newer ones can turn into a call.
#[doc(hidden)]
#[macro_export]
macro_rules! __sdt {
    ($($event:tt)*) => {
        #[cfg(target_arch = "x86_64")]
        $crate::__sdt_note!(
            ("990: nop", ".byte 0x66, 0x2e, 0x0f, 0x1f, 0x84, 0x00, 0x00, 0x00, 0x00, 0x00"),
            "{}@{}({words}) ",
            options(att_syntax, readonly),
            $($event)*
        );
        #[cfg(target_arch = "aarch64")]
        $crate::__sdt_note!(
            ("990: nop"), "{}@[{words}, {}] ", options(readonly), $($event)*
        );
    };
}

/// The marker with these instructions and operands.
#[doc(hidden)]
#[macro_export]
macro_rules! __sdt_note {
    (($($instruction:literal),+), $operand:literal, options($($option:ident),+),
     $provider:ident, $name:ident, $words:ident, $($field:ident : $field_type:ty),*) => {
        // SAFETY: nops, and notes for the linker.
        unsafe {
            ::core::arch::asm!(
                $($instruction,)+
                ".pushsection .note.stapsdt, \"?\", \"note\"",
                ".balign 4",
                ".4byte 992f-991f, 994f-993f, 3",
                "991: .asciz \"stapsdt\"",
                "992: .balign 4",
                "993: .8byte 990b",
                ".8byte _.stapsdt.base",
                ".8byte {site} + {semaphore}",
                concat!(".asciz \"", stringify!($provider), "\""),
                concat!(".asciz \"", stringify!($name), "\""),
                concat!(".asciz \"", $($crate::__sdt_argument!($operand, $field),)* "\""),
                "994: .balign 4",
                ".popsection",
                ".ifndef _.stapsdt.base",
                ".pushsection .stapsdt.base, \"aG\", \"progbits\", .stapsdt.base, comdat",
                ".weak _.stapsdt.base",
                ".hidden _.stapsdt.base",
                "_.stapsdt.base: .space 1",
                ".size _.stapsdt.base, 1",
                ".popsection",
                ".endif",
                $(
                    const <$field_type as $crate::FieldType>::SDT,
                    const ::core::mem::offset_of!(Words, $field),
                )*
                site = sym SITE,
                semaphore = const $crate::private::Site::SEMAPHORE,
                words = in(reg) &raw const $words,
                options($($option),+),
            );
        }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __sdt_argument {
    ($operand:literal, $field:ident) => {
        $operand
    };
}
