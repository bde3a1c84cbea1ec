//! The C types that print formats name: sizes, signedness, and the arithmetic
//! conversions between integers.

/// An integer type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct IntTy {
    /// 1, 2, 4 or 8.
    pub(crate) size: u8,
    /// Whether it is signed.
    pub(crate) signed: bool,
}

impl IntTy {
    pub(crate) const INT: IntTy = IntTy { size: 4, signed: true };
    pub(crate) const UINT: IntTy = IntTy { size: 4, signed: false };
    pub(crate) const CHAR: IntTy = IntTy { size: 1, signed: true };
    pub(crate) const U8: IntTy = IntTy { size: 1, signed: false };
    pub(crate) const U64: IntTy = IntTy { size: 8, signed: false };

    /// Cuts `v` to this type and extends it to 64 bits again.
    #[inline]
    pub(crate) fn wrap(self, v: u64) -> u64 {
        match (self.size, self.signed) {
            (1, false) => u64::from(v as u8),
            (1, true) => i64::from(v as i8) as u64,
            (2, false) => u64::from(v as u16),
            (2, true) => i64::from(v as i16) as u64,
            (4, false) => u64::from(v as u32),
            (4, true) => i64::from(v as i32) as u64,
            _ => v,
        }
    }

    /// Integer promotion: whatever is smaller than an int becomes one.
    pub(crate) fn promote(self) -> IntTy {
        if self.size < 4 { IntTy::INT } else { self }
    }

    /// The usual arithmetic conversions.
    pub(crate) fn common(self, other: IntTy) -> IntTy {
        let (a, b) = (self.promote(), other.promote());
        match a.size.cmp(&b.size) {
            std::cmp::Ordering::Greater => a,
            std::cmp::Ordering::Less => b,
            std::cmp::Ordering::Equal => IntTy { size: a.size, signed: a.signed && b.signed },
        }
    }
}

/// The type of an expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ty {
    /// An integer.
    Int(IntTy),
    /// An address; `size` and `elem` tell what it points to (`elem` is `None`
    /// for structures, further pointers and void).
    Ptr { size: u32, elem: Option<IntTy> },
    /// A structure or union.
    Struct,
}

impl Ty {
    /// Integer type to which a value of this type is converted.
    pub(crate) fn int(self, long: u8) -> IntTy {
        match self {
            Ty::Int(i) => i,
            Ty::Ptr { .. } | Ty::Struct => IntTy { size: long, signed: false },
        }
    }

    /// `sizeof`.
    pub(crate) fn size(self, long: u8) -> u64 {
        match self {
            Ty::Int(i) => u64::from(i.size),
            Ty::Ptr { .. } => u64::from(long),
            Ty::Struct => 0,
        }
    }
}

/// A typedef or keyword that names an integer type by itself; sizes of kernel
/// typedefs are those of every 64-bit port.
pub(crate) fn named(name: &str, long: u8) -> Option<Ty> {
    let int = |size, signed| Some(Ty::Int(IntTy { size, signed }));
    match name {
        "u8" | "__u8" | "uint8_t" | "bool" | "_Bool" | "unchar" | "u_char" => int(1, false),
        "s8" | "__s8" | "int8_t" => int(1, true),
        "u16" | "__u16" | "uint16_t" | "__le16" | "__be16" | "umode_t" | "ushort" | "u_short"
        | "__sum16" | "sa_family_t" => int(2, false),
        "s16" | "__s16" | "int16_t" => int(2, true),
        "u32" | "__u32" | "uint32_t" | "__le32" | "__be32" | "gfp_t" | "dev_t" | "uint"
        | "u_int" | "uid_t" | "gid_t" | "fmode_t" | "blk_opf_t" | "slab_flags_t" | "vm_fault_t"
        | "isolate_mode_t" | "__wsum" | "qid_t" | "projid_t" | "__poll_t" | "blk_mode_t"
        | "ext4_lblk_t" | "blk_status_t" | "req_flags_t" => int(4, false),
        "s32" | "__s32" | "int32_t" | "pid_t" | "clockid_t" | "key_t" | "__kernel_rwf_t"
        | "rwf_t" | "mqd_t" | "timer_t" | "key_serial_t" => int(4, true),
        "u64" | "__u64" | "uint64_t" | "__le64" | "__be64" | "sector_t" | "dma_addr_t"
        | "phys_addr_t" | "resource_size_t" | "blkcnt_t" | "gfn_t" | "gpa_t" | "hpa_t"
        | "ext4_fsblk_t" | "netdev_features_t" => int(8, false),
        "s64" | "__s64" | "int64_t" | "loff_t" | "ktime_t" | "time64_t" => int(8, true),
        "size_t" | "uintptr_t" | "ino_t" | "pgoff_t" | "ulong" | "u_long" | "vm_flags_t"
        | "kernel_ulong_t" | "__kernel_size_t" | "cycles_t" | "gva_t" => int(long, false),
        "ssize_t" | "intptr_t" | "ptrdiff_t" | "off_t" | "time_t" => int(long, true),
        "cpumask_t" => Some(Ty::Struct),
        _ => None,
    }
}

/// Reads the words of a declaration such as `unsigned long long` or
/// `const struct page` (without stars and arrays). `None`: not a type we know.
pub(crate) fn from_words<'a>(words: impl Iterator<Item = &'a str>, long: u8) -> Option<Ty> {
    let (mut longs, mut short, mut unsigned, mut signed) = (0u8, false, false, false);
    let (mut char_, mut int, mut other) = (false, false, None);
    let mut tag = None;
    for w in words {
        if tag.is_some_and(|t| t != "done") {
            other = match tag {
                Some("enum") => Some(Ty::Int(IntTy::UINT)),
                _ => Some(Ty::Struct),
            };
            tag = Some("done");
            continue;
        }
        match w {
            "const" | "volatile" | "__user" | "__kernel" | "__iomem" | "__rcu" | "__percpu"
            | "static" | "register" | "__seg_gs" | "restrict" | "__force" | "__bitwise" => {}
            "long" => longs = longs.saturating_add(1),
            "short" => short = true,
            "unsigned" => unsigned = true,
            "signed" => signed = true,
            "char" => char_ = true,
            "int" => int = true,
            "void" => other = Some(Ty::Struct),
            "struct" | "union" => tag = Some("struct"),
            "enum" => tag = Some("enum"),
            name => other = Some(named(name, long)?),
        }
    }
    if let Some(t) = other {
        return Some(t);
    }
    let size = match (longs, short, char_) {
        (_, _, true) => 1,
        (_, true, _) => 2,
        (1, ..) => long,
        (2.., ..) => 8,
        (0, ..) if int || unsigned || signed => 4,
        _ => return None,
    };
    Some(Ty::Int(IntTy { size, signed: !unsigned }))
}

/// Bytes of structures whose pointers do arithmetic in print formats.
pub(crate) fn struct_size(name: &str) -> u32 {
    match name {
        // 64 on every 64-bit kernel that does not debug its page structures.
        "page" | "folio" => 64,
        _ => 1,
    }
}
