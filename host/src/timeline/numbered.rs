//! Lists whose items are reached by a number of their own kind, so that a lane's number finds no outlet.

use std::marker::PhantomData;
use std::ops::{Index, IndexMut};

/// The number of an item in a list, counted from 0.
pub(super) trait Number: Copy {
    fn of_position(position: usize) -> Self;
    fn position(self) -> usize;
}

/// A list whose items have numbers of type `N`, in order.
#[derive(Debug)]
pub(super) struct Numbered<N, T> {
    items: Vec<T>,
    numbers: PhantomData<N>,
}

impl<N: Number, T> Numbered<N, T> {
    pub(super) const fn new() -> Self {
        Self { items: Vec::new(), numbers: PhantomData }
    }

    pub(super) fn len(&self) -> usize {
        self.items.len()
    }

    /// The number of the item that is pushed next.
    pub(super) fn next_number(&self) -> N {
        N::of_position(self.items.len())
    }

    /// Appends an item and returns its number.
    pub(super) fn push(&mut self, item: T) -> N {
        let number = self.next_number();
        self.items.push(item);
        number
    }

    pub(super) fn get(&self, number: N) -> Option<&T> {
        self.items.get(number.position())
    }

    pub(super) fn get_mut(&mut self, number: N) -> Option<&mut T> {
        self.items.get_mut(number.position())
    }

    pub(super) fn as_slice(&self) -> &[T] {
        &self.items
    }

    /// The numbers from `from` on.
    pub(super) fn numbers_from(&self, from: N) -> impl Iterator<Item = N> + use<N, T> {
        (from.position()..self.items.len()).map(N::of_position)
    }

    /// The items from number `from` on, with their numbers.
    pub(super) fn iter_mut_from(&mut self, from: N) -> impl Iterator<Item = (N, &mut T)> {
        self.items.iter_mut().enumerate().skip(from.position()).map(|(position, item)| (N::of_position(position), item))
    }
}

impl<N, T> FromIterator<T> for Numbered<N, T> {
    fn from_iter<I: IntoIterator<Item = T>>(items: I) -> Self {
        Self { items: items.into_iter().collect(), numbers: PhantomData }
    }
}

impl<N: Number, T> Index<N> for Numbered<N, T> {
    type Output = T;

    fn index(&self, number: N) -> &T {
        &self.items[number.position()]
    }
}

impl<N: Number, T> IndexMut<N> for Numbered<N, T> {
    fn index_mut(&mut self, number: N) -> &mut T {
        &mut self.items[number.position()]
    }
}
