//! Blocks of pages that are alive. A block may be freed in parts: the kernel splits large
//! folios, and frees what `alloc_pages_exact` leaves over.

use rustc_hash::FxHashMap;

use super::decode::MOST_ORDER;

/// Blocks that are alive at a time and known.
const MOST_BLOCKS: usize = 900_000;

/// A block that is alive, and what its allocation was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PageBlock {
    /// Row of the allocation.
    pub(super) row: u32,
    /// Row of its call chain.
    pub(super) chain: u32,
    /// Row of the process that asked for it.
    pub(super) process: u32,
    /// Number of the allocation.
    pub(super) number: u32,
    /// Power of two of the pages that are left.
    pub(super) order: u8,
    /// Whether it begins where the allocation did.
    pub(super) is_head: bool,
    /// Losses met before, or `NOT_CHOSEN`.
    pub(super) losses: u16,
}

/// Row of an allocation that the selection leaves out.
pub(super) const NOT_CHOSEN: u16 = u16::MAX;

/// Blocks by their first page.
#[derive(Debug, Default)]
pub(super) struct PageBlocks {
    blocks: FxHashMap<u64, PageBlock>,
    /// Blocks that there was no room for.
    pub(super) crowded: u64,
}

impl PageBlocks {
    /// A block is allocated; what was known of its first page before was freed unseen.
    #[inline]
    pub(super) fn insert(&mut self, page: u64, block: PageBlock) -> Option<PageBlock> {
        if self.blocks.len() >= MOST_BLOCKS && !self.blocks.contains_key(&page) {
            self.crowded += u64::from(block.losses != NOT_CHOSEN);
            return None;
        }
        self.blocks.insert(page, block)
    }

    /// Whether it is not known to be alive for lack of room.
    pub(super) fn is_full(&self) -> bool {
        self.blocks.len() >= MOST_BLOCKS
    }

    /// A block is freed. `splits`: pages are numbered, so that parts of blocks are known.
    /// Gives the block of the allocation that it was a part of; the rest stays.
    #[inline]
    pub(super) fn remove(&mut self, page: u64, order: u8, splits: bool) -> Option<PageBlock> {
        match self.blocks.remove(&page) {
            Some(block) if block.order <= order || !splits => Some(block),
            Some(block) => {
                self.keep_rest(page, page, order, block);
                Some(block)
            }
            None if splits => self.remove_part(page, order),
            None => None,
        }
    }

    /// Finds the larger block that a page is in.
    #[cold]
    fn remove_part(&mut self, page: u64, order: u8) -> Option<PageBlock> {
        for up in order + 1..=MOST_ORDER {
            let start = page & !((1u64 << up) - 1);
            let Some(block) = self.blocks.get(&start).copied() else { continue };
            if page - start >= 1u64 << block.order || block.order <= order {
                continue;
            }
            self.blocks.remove(&start);
            self.keep_rest(start, page, order, block);
            return Some(PageBlock { is_head: false, ..block });
        }
        None
    }

    /// Keeps what is left of a block after a part of it was freed, as blocks.
    #[cold]
    fn keep_rest(&mut self, mut start: u64, page: u64, order: u8, block: PageBlock) {
        let mut is_head = block.is_head;
        for half in (order..block.order).rev() {
            let upper = start + (1u64 << half);
            let part = PageBlock { order: half, ..block };
            if page >= upper {
                self.insert(start, PageBlock { is_head, ..part });
                (start, is_head) = (upper, false);
            } else {
                self.insert(upper, PageBlock { is_head: false, ..part });
            }
        }
    }

    /// The block of an allocation, if it is alive and not split.
    pub(super) fn of_allocation(&mut self, page: u64, number: u32) -> Option<&mut PageBlock> {
        self.blocks.get_mut(&page).filter(|b| b.number == number && b.losses != NOT_CHOSEN)
    }

    /// All that are alive.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = PageBlock> {
        std::mem::take(&mut self.blocks).into_values()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_freed_in_parts() {
        let block = PageBlock {
            row: 7,
            chain: 0,
            process: 0,
            number: 0,
            order: 3,
            is_head: true,
            losses: 0,
        };
        let mut blocks = PageBlocks::default();
        assert_eq!(blocks.insert(8, block), None);
        // Page 13, of 8 to 15: 8-11, 12 and 14-15 are left.
        let part = blocks.remove(13, 0, true).unwrap();
        assert_eq!((part.row, part.order, part.is_head), (7, 3, false));
        assert_eq!(blocks.remove(13, 0, true), None);
        assert_eq!(blocks.remove(14, 1, true).map(|b| (b.order, b.is_head)), Some((1, false)));
        assert_eq!(blocks.remove(8, 0, true).map(|b| (b.order, b.is_head)), Some((2, true)));
        let mut left: Vec<u8> = blocks.drain().map(|b| b.order).collect();
        left.sort_unstable();
        assert_eq!(left, [0, 0, 1]);
        // Without numbers of pages only the first one is found.
        assert_eq!(blocks.insert(8, block), None);
        assert_eq!(blocks.remove(9, 0, false), None);
        assert_eq!(blocks.remove(8, 0, false), Some(block));
    }
}
