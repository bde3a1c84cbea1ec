//! Vectors that are indexed by numbers of their own type, so that the number of a
//! frame cannot be taken for that of a chain. A number that leads nowhere is an error
//! of ours: it is counted ([`internal_error`]), never a silent default.

use std::marker::PhantomData;

use crate::internal_error;

/// Number of an element of an [`IndexVec`].
pub trait VecIndex: Copy {
    /// Name of the elements, for the note on a number that leads nowhere.
    const ELEMENT: &'static str;

    /// Number of the element at a position.
    fn from_position(position: usize) -> Self;

    /// Position of the element.
    fn position(self) -> usize;
}

/// Makes a tuple struct of one `u32` the index of vectors.
#[macro_export]
macro_rules! impl_vec_index {
    ($index:ty, $element:literal) => {
        impl $crate::VecIndex for $index {
            const ELEMENT: &'static str = $element;

            #[inline]
            fn from_position(position: usize) -> Self {
                Self($crate::index_number::<Self>(position))
            }

            #[inline]
            fn position(self) -> usize {
                self.0 as usize
            }
        }
    };
}

/// Position as a number of 32 bits. More elements than that do not fit into memory.
#[inline]
pub fn index_number<I: VecIndex>(position: usize) -> u32 {
    u32::try_from(position).unwrap_or_else(|_| {
        internal_error(I::ELEMENT);
        u32::MAX
    })
}

/// Vector whose elements have numbers of type `I`.
#[derive(Clone, Debug)]
pub struct IndexVec<I, T> {
    elements: Vec<T>,
    index: PhantomData<fn(I)>,
}

impl<I, T> Default for IndexVec<I, T> {
    fn default() -> IndexVec<I, T> {
        IndexVec { elements: Vec::new(), index: PhantomData }
    }
}

impl<I, T> From<Vec<T>> for IndexVec<I, T> {
    fn from(elements: Vec<T>) -> IndexVec<I, T> {
        IndexVec { elements, index: PhantomData }
    }
}

impl<I: VecIndex, T> IndexVec<I, T> {
    /// Adds an element; answers its number.
    #[inline]
    pub fn push(&mut self, element: T) -> I {
        let index = I::from_position(self.elements.len());
        self.elements.push(element);
        index
    }

    /// Element of a number that must have one. Where it has none, that is counted as an
    /// internal error.
    #[inline]
    pub fn get(&self, index: I) -> Option<&T> {
        let element = self.elements.get(index.position());
        if element.is_none() {
            internal_error(I::ELEMENT);
        }
        element
    }

    /// Element of a number that must have one, likewise.
    #[inline]
    pub fn get_mut(&mut self, index: I) -> Option<&mut T> {
        let element = self.elements.get_mut(index.position());
        if element.is_none() {
            internal_error(I::ELEMENT);
        }
        element
    }

    /// Element of a number that may have none, as one that stands for nothing.
    #[inline]
    pub fn try_get(&self, index: I) -> Option<&T> {
        self.elements.get(index.position())
    }

    /// Element of a number that may have none.
    #[inline]
    pub fn try_get_mut(&mut self, index: I) -> Option<&mut T> {
        self.elements.get_mut(index.position())
    }

    /// Number of the next element.
    #[inline]
    pub fn next_index(&self) -> I {
        I::from_position(self.elements.len())
    }

    /// Numbers of all elements.
    pub fn indices(&self) -> impl Iterator<Item = I> + use<I, T> {
        (0..self.elements.len()).map(I::from_position)
    }

    /// Numbers of the elements from a position on, found without passing those before.
    pub fn indices_from(&self, position: usize) -> impl Iterator<Item = I> + use<I, T> {
        (position..self.elements.len()).map(I::from_position)
    }

    /// Elements with their numbers.
    pub fn iter_enumerated(&self) -> impl Iterator<Item = (I, &T)> {
        self.elements.iter().enumerate().map(|(n, e)| (I::from_position(n), e))
    }
}

impl<I, T> IndexVec<I, T> {
    /// Count of elements.
    pub fn len(&self) -> usize {
        self.elements.len()
    }

    /// Whether there is no element.
    pub fn is_empty(&self) -> bool {
        self.elements.is_empty()
    }

    /// Elements in the order of their numbers.
    pub fn iter(&self) -> std::slice::Iter<'_, T> {
        self.elements.iter()
    }

    /// Elements in the order of their numbers.
    pub fn iter_mut(&mut self) -> std::slice::IterMut<'_, T> {
        self.elements.iter_mut()
    }

    /// The elements in the order of their numbers, for parts of them.
    pub fn as_slice(&self) -> &[T] {
        &self.elements
    }

    /// The elements without their numbers.
    pub fn into_vec(self) -> Vec<T> {
        self.elements
    }
}

impl<I, T> Extend<T> for IndexVec<I, T> {
    fn extend<It: IntoIterator<Item = T>>(&mut self, elements: It) {
        self.elements.extend(elements);
    }
}

impl<I, T> FromIterator<T> for IndexVec<I, T> {
    fn from_iter<It: IntoIterator<Item = T>>(elements: It) -> IndexVec<I, T> {
        IndexVec::from(Vec::from_iter(elements))
    }
}

impl<'a, I, T> IntoIterator for &'a IndexVec<I, T> {
    type Item = &'a T;
    type IntoIter = std::slice::Iter<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl<'a, I, T> IntoIterator for &'a mut IndexVec<I, T> {
    type Item = &'a mut T;
    type IntoIter = std::slice::IterMut<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter_mut()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    struct LetterId(u32);
    impl_vec_index!(LetterId, "letter");

    #[test]
    fn elements_have_the_numbers_they_were_given() {
        let mut letters: IndexVec<LetterId, char> = IndexVec::default();
        let (a, b) = (letters.push('a'), letters.push('b'));
        assert_eq!((a, b, letters.next_index()), (LetterId(0), LetterId(1), LetterId(2)));
        assert_eq!((letters.get(a), letters.get(b)), (Some(&'a'), Some(&'b')));
        assert_eq!(letters.try_get(LetterId(2)), None);
        assert!(letters.iter_enumerated().eq([(a, &'a'), (b, &'b')]));
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "letter")]
    fn a_number_that_leads_nowhere_is_an_error_of_ours() {
        let letters: IndexVec<LetterId, char> = IndexVec::default();
        letters.get(LetterId(0));
    }
}
