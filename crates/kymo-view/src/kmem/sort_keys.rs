//! Keys that tables of `kymo kmem stat` are sorted by: perf's, and `live`.

use std::str::FromStr;

/// A key; rows are sorted by the largest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KmemKey {
    /// Address of an object.
    Ptr,
    /// Number of a page.
    Page,
    /// Address of code.
    Callsite,
    /// Number of allocations.
    Hit,
    /// Bytes allocated.
    Bytes,
    /// Share that internal fragmentation wastes.
    Frag,
    /// Objects freed on another CPU.
    Pingpong,
    /// Bytes alive at the end.
    Live,
    /// Order of an allocation of pages.
    Order,
    /// Its mobility.
    Migtype,
    /// Its flags.
    Gfp,
}

impl KmemKey {
    /// Whether tables of the slab allocator have it.
    pub fn is_of_slab(self) -> bool {
        use KmemKey::{Bytes, Callsite, Frag, Hit, Live, Pingpong, Ptr};
        matches!(self, Ptr | Callsite | Hit | Bytes | Frag | Pingpong | Live)
    }

    /// Whether tables of the page allocator have it.
    pub fn is_of_pages(self) -> bool {
        use KmemKey::{Frag, Pingpong, Ptr};
        !matches!(self, Ptr | Frag | Pingpong)
    }
}

impl FromStr for KmemKey {
    type Err = String;

    fn from_str(text: &str) -> Result<KmemKey, String> {
        Ok(match text {
            "ptr" => KmemKey::Ptr,
            "page" => KmemKey::Page,
            "callsite" => KmemKey::Callsite,
            "hit" => KmemKey::Hit,
            "bytes" => KmemKey::Bytes,
            "frag" => KmemKey::Frag,
            "pingpong" => KmemKey::Pingpong,
            "live" => KmemKey::Live,
            "order" => KmemKey::Order,
            "migtype" => KmemKey::Migtype,
            "gfp" => KmemKey::Gfp,
            _ => {
                let all = "ptr, callsite, bytes, hit, pingpong, frag and live for the slab \
                           allocator; page, callsite, bytes, hit, order, migtype, gfp and live for \
                           pages";
                return Err(format!("there is no key {text:?}; there are {all}"));
            }
        })
    }
}
