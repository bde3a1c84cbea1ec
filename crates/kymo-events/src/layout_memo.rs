//! Plans of a consumer: what it needs of each event class, made when the first event of the class
//! comes.

use crate::schema::{LayoutId, RecordedClass};

/// Plans by layout. A plan may be `Option`al: `None` for classes the consumer does not use.
#[derive(Clone, Debug)]
pub struct LayoutMemo<P>(Vec<Option<P>>);

impl<P> Default for LayoutMemo<P> {
    fn default() -> Self {
        LayoutMemo(Vec::new())
    }
}

impl<P> LayoutMemo<P> {
    /// The plan of a layout, if one was made.
    #[inline]
    pub fn get(&self, layout: LayoutId) -> Option<&P> {
        self.0.get(layout.index())?.as_ref()
    }

    /// The plan of a class, which `make` makes at its first event.
    #[inline]
    pub fn get_or_make(
        &mut self,
        class: &RecordedClass,
        make: impl FnOnce(&RecordedClass) -> P,
    ) -> Option<&P> {
        if self.get(class.layout).is_none() {
            self.insert(class.layout, make(class));
        }
        self.get(class.layout)
    }

    /// Sets the plan of a layout.
    #[cold]
    pub fn insert(&mut self, layout: LayoutId, plan: P) {
        let index = layout.index();
        if self.0.len() <= index {
            self.0.resize_with(index + 1, || None);
        }
        if let Some(slot) = self.0.get_mut(index) {
            *slot = Some(plan);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plans_are_made_once_for_each_layout() {
        let mut memo = LayoutMemo::default();
        assert_eq!(memo.get(LayoutId(2)), None);
        memo.insert(LayoutId(2), "two");
        memo.insert(LayoutId(0), "zero");
        assert_eq!(
            [0, 1, 2].map(|n| memo.get(LayoutId(n)).copied()),
            [Some("zero"), None, Some("two")]
        );
    }
}
