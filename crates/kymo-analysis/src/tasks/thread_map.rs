//! Slots of threads by their numbers: a table in pages, as numbers of threads are small and
//! close together.

use rustc_hash::FxHashMap;

use super::task::TaskId;

/// Threads of a page.
const PAGE: usize = 1 << 10;
/// Numbers below have a place in a page: the kernel's `PID_MAX_LIMIT`. Damaged recordings state
/// others.
const MOST: u32 = 1 << 22;

type Page = [Option<TaskId>; PAGE];

/// Slots by number of the thread.
#[derive(Debug, Default)]
pub(super) struct ThreadMap {
    pages: Vec<Option<Box<Page>>>,
    others: FxHashMap<u32, TaskId>,
}

fn place(tid: u32) -> (usize, usize) {
    (tid as usize / PAGE, tid as usize % PAGE)
}

impl ThreadMap {
    /// The slot of a thread.
    #[inline]
    pub(super) fn get(&self, tid: u32) -> Option<TaskId> {
        let (page, at) = place(tid);
        match self.pages.get(page) {
            Some(page) => *page.as_ref()?.get(at)?,
            None if tid < MOST => None,
            None => self.others.get(&tid).copied(),
        }
    }

    /// Gives a thread a slot.
    pub(super) fn insert(&mut self, tid: u32, id: TaskId) {
        let (page, at) = place(tid);
        if tid >= MOST {
            self.others.insert(tid, id);
            return;
        }
        if self.pages.len() <= page {
            self.pages.resize_with(page + 1, || None);
        }
        if let Some(page) = self.pages.get_mut(page) {
            let page = page.get_or_insert_with(|| Box::new([None; PAGE]));
            if let Some(slot) = page.get_mut(at) {
                *slot = Some(id);
            }
        }
    }

    /// Takes a thread out.
    pub(super) fn remove(&mut self, tid: u32) {
        let (page, at) = place(tid);
        match self.pages.get_mut(page) {
            Some(Some(page)) => page.get_mut(at).into_iter().for_each(|slot| *slot = None),
            Some(None) => {}
            None => _ = self.others.remove(&tid),
        }
    }

    /// All slots.
    pub(super) fn values(&self) -> impl Iterator<Item = TaskId> + '_ {
        let pages = self.pages.iter().flatten().flat_map(|page| page.iter().flatten());
        pages.chain(self.others.values()).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_are_found_until_they_are_taken_out() {
        let tids = [1, 2, 1023, 1024, 77_777, MOST - 1, MOST, u32::MAX];
        let mut map = ThreadMap::default();
        for (n, tid) in tids.into_iter().enumerate() {
            assert_eq!(map.get(tid), None);
            map.insert(tid, TaskId(n as u32));
        }
        for (n, tid) in tids.into_iter().enumerate() {
            assert_eq!(map.get(tid), Some(TaskId(n as u32)));
        }
        assert_eq!(map.values().count(), tids.len());
        for tid in tids {
            map.remove(tid);
            assert_eq!((map.get(tid), map.get(tid ^ 1)), (None, None));
            map.insert(tid, TaskId(9));
            map.insert(tid, TaskId(10));
            assert_eq!(map.get(tid), Some(TaskId(10)));
            map.remove(tid);
        }
        assert_eq!(map.values().count(), 0);
    }
}
