//! Events of the slab and the page allocator, of all formats and kernels, as one enumeration. Which
//! fields an event class has is resolved once for each layout.

use kymo_events::{EventFields, FieldId, LayoutMemo, RecordedClass, RecordedEvent};

use kymo_format::print_argument::constant_argument;

/// Events of the slab allocator; those with `_node` are of kernels before 6.2.
pub const SLAB_EVENTS: [&str; 6] = [
    "kmem:kmalloc",
    "kmem:kmalloc_node",
    "kmem:kfree",
    "kmem:kmem_cache_alloc",
    "kmem:kmem_cache_alloc_node",
    "kmem:kmem_cache_free",
];

/// Allocations and frees of pages.
pub const PAGE_EVENTS: [&str; 2] = ["kmem:mm_page_alloc", "kmem:mm_page_free"];

/// Steps within the page allocator.
pub const PAGE_STEP_EVENTS: [&str; 4] = [
    "kmem:mm_page_free_batched",
    "kmem:mm_page_pcpu_drain",
    "kmem:mm_page_alloc_zone_locked",
    "kmem:mm_page_alloc_extfrag",
];

/// An event of an allocator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KmemEvent {
    /// An object is allocated.
    SlabAlloc {
        /// Address of the code that asked for it.
        site: u64,
        /// Its address; 0: there was no memory.
        ptr: u64,
        /// Bytes asked for.
        requested: u64,
        /// Bytes taken.
        allocated: u64,
        /// NUMA node asked for; `None`: any, or the kernel does not tell.
        node: Option<u32>,
    },
    /// An object is freed.
    SlabFree {
        /// Its address.
        ptr: u64,
    },
    /// Pages are allocated.
    PageAlloc {
        /// Number of the first page frame; address of its `struct page` in old kernels.
        page: Option<u64>,
        /// Power of two of the number of pages.
        order: u8,
        /// Flags of the request.
        gfp: u64,
        /// Mobility of the pages.
        migrate_type: u8,
    },
    /// Pages are freed.
    PageFree {
        /// The first one.
        page: u64,
        /// Power of two of their number.
        order: u8,
    },
    /// A page is freed together with others.
    PageFreeBatched,
    /// A page goes from the list of a CPU back to its zone.
    PcpuDrain,
    /// A page is taken from its zone, with the zone's lock held.
    ZoneLocked,
    /// Pages of another mobility are taken than asked for.
    ExtFrag {
        /// Order of the block they are taken from.
        fallback_order: i64,
        /// Whether they are of a block smaller than a pageblock, where the recording has it.
        fragmenting: Option<bool>,
        /// Whether the whole pageblock changes its mobility.
        change_ownership: bool,
    },
}

/// Largest order that a block of pages may have; a larger one is no order.
pub(super) const MOST_ORDER: u8 = 20;

/// Fields of a class that is decoded.
#[derive(Clone, Copy, Debug)]
enum EventPlan {
    SlabAlloc {
        site: FieldId,
        ptr: FieldId,
        requested: FieldId,
        allocated: FieldId,
        node: Option<FieldId>,
    },
    SlabFree {
        ptr: FieldId,
    },
    PageAlloc {
        page: FieldId,
        is_pfn: bool,
        order: FieldId,
        gfp: Option<FieldId>,
        migrate_type: Option<FieldId>,
    },
    PageFree {
        page: FieldId,
        order: FieldId,
    },
    PageFreeBatched,
    PcpuDrain,
    ZoneLocked,
    ExtFrag {
        order: FieldId,
        pageblock_order: Option<i64>,
        change: Option<FieldId>,
    },
}

impl EventPlan {
    fn of(class: &RecordedClass) -> Option<EventPlan> {
        let all = SLAB_EVENTS.iter().chain(&PAGE_EVENTS).chain(&PAGE_STEP_EVENTS);
        let name = all.copied().find(|name| class.is_named(name))?;
        let field = |name: &str| class.field(name);
        let page = || field("pfn").map(|f| (f, true)).or(field("page").map(|f| (f, false)));
        Some(match name {
            "kmem:kfree" | "kmem:kmem_cache_free" => EventPlan::SlabFree { ptr: field("ptr")? },
            "kmem:mm_page_alloc" => EventPlan::PageAlloc {
                page: page()?.0,
                is_pfn: page()?.1,
                order: field("order")?,
                gfp: field("gfp_flags"),
                migrate_type: field("migratetype"),
            },
            "kmem:mm_page_free" => EventPlan::PageFree { page: page()?.0, order: field("order")? },
            "kmem:mm_page_free_batched" => EventPlan::PageFreeBatched,
            "kmem:mm_page_pcpu_drain" => EventPlan::PcpuDrain,
            "kmem:mm_page_alloc_zone_locked" => EventPlan::ZoneLocked,
            "kmem:mm_page_alloc_extfrag" => EventPlan::ExtFrag {
                order: field("fallback_order")?,
                pageblock_order: class
                    .print_format
                    .as_deref()
                    .and_then(|p| constant_argument(p, "pageblock_order=")),
                change: field("change_ownership"),
            },
            _ => EventPlan::SlabAlloc {
                site: field("call_site")?,
                ptr: field("ptr")?,
                requested: field("bytes_req")?,
                allocated: field("bytes_alloc")?,
                node: field("node"),
            },
        })
    }

    #[inline]
    fn decode(&self, fields: &EventFields<'_, '_>) -> Option<KmemEvent> {
        let number = |id: FieldId| fields.integer(id).map(|n| n as u64);
        let order = |id: FieldId| {
            u8::try_from(fields.integer(id)?).ok().filter(|order| *order <= MOST_ORDER)
        };
        Some(match *self {
            EventPlan::SlabAlloc { site, ptr, requested, allocated, node } => {
                KmemEvent::SlabAlloc {
                    site: number(site)?,
                    ptr: number(ptr)?,
                    requested: number(requested)?,
                    allocated: number(allocated)?,
                    node: match node {
                        Some(node) => u32::try_from(fields.integer(node)?).ok(),
                        None => None,
                    },
                }
            }
            EventPlan::SlabFree { ptr } => KmemEvent::SlabFree { ptr: number(ptr)? },
            EventPlan::PageAlloc { page, is_pfn, order: o, gfp, migrate_type } => {
                let none = if is_pfn { u64::MAX } else { 0 };
                KmemEvent::PageAlloc {
                    page: Some(number(page)?).filter(|page| *page != none),
                    order: order(o)?,
                    gfp: gfp.map_or(Some(0), number)?,
                    migrate_type: match migrate_type {
                        Some(id) => u8::try_from(fields.integer(id)?).unwrap_or(u8::MAX),
                        None => u8::MAX,
                    },
                }
            }
            EventPlan::PageFree { page, order: o } => {
                KmemEvent::PageFree { page: number(page)?, order: order(o)? }
            }
            EventPlan::PageFreeBatched => KmemEvent::PageFreeBatched,
            EventPlan::PcpuDrain => KmemEvent::PcpuDrain,
            EventPlan::ZoneLocked => KmemEvent::ZoneLocked,
            EventPlan::ExtFrag { order, pageblock_order, change } => {
                let fallback_order = fields.integer(order)?;
                KmemEvent::ExtFrag {
                    fallback_order,
                    fragmenting: pageblock_order.map(|block| fallback_order < block),
                    change_ownership: change.is_some_and(|c| fields.integer(c) != Some(0)),
                }
            }
        })
    }
}

/// Decodes events, class by class.
#[derive(Debug, Default)]
pub struct KmemDecoder {
    plans: LayoutMemo<Option<EventPlan>>,
    /// Whether a class states page frame numbers.
    pub has_pfns: bool,
    /// Events that lack a field, or end before it.
    pub malformed: u64,
}

impl KmemDecoder {
    /// The event, if it is one of an allocator.
    #[inline]
    pub fn decode(&mut self, event: &RecordedEvent<'_>) -> Option<KmemEvent> {
        let plan = match self.plans.get(event.class.layout) {
            Some(plan) => *plan,
            None => self.learn(event.class),
        };
        let decoded = plan?.decode(&event.fields());
        self.malformed += u64::from(decoded.is_none());
        decoded
    }

    #[cold]
    fn learn(&mut self, class: &RecordedClass) -> Option<EventPlan> {
        let plan = EventPlan::of(class);
        if let Some(EventPlan::PageAlloc { is_pfn: true, .. }) = plan {
            self.has_pfns = true;
        }
        self.plans.insert(class.layout, plan);
        plan
    }
}
