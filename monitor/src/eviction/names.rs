//! Looks up things by name, without an index if they are few and with one if they are many.

use std::collections::HashMap;

/// Up to this many things are searched one by one, because building an index would cost more.
const FEW: usize = 16;

/// Things by name. Names need not be unique.
#[derive(Debug)]
pub(super) struct Names<'a, T> {
    all: &'a [T],
    name: fn(&T) -> &str,
    places: Option<HashMap<&'a str, Vec<usize>>>,
}

impl<'a, T> Names<'a, T> {
    pub(super) fn new(all: &'a [T], name: fn(&T) -> &str) -> Self {
        let places = (all.len() > FEW).then(|| {
            let mut places: HashMap<&str, Vec<usize>> = HashMap::with_capacity(all.len());
            for (place, it) in all.iter().enumerate() {
                places.entry(name(it)).or_default().push(place);
            }
            places
        });
        Self { all, name, places }
    }

    pub(super) fn first(&self, name: &str) -> Option<&'a T> {
        match &self.places {
            Some(places) => self.all.get(*places.get(name)?.first()?),
            None => self.all.iter().find(|it| (self.name)(it) == name),
        }
    }

    /// Applies `give` to the things of that name, last one first, and returns the first value that it gives.
    pub(super) fn last<V>(&self, name: &str, give: impl Fn(&'a T) -> Option<V>) -> Option<V> {
        match &self.places {
            Some(places) => places.get(name)?.iter().rev().find_map(|place| give(self.all.get(*place)?)),
            None => self.all.iter().rev().filter(|it| (self.name)(it) == name).find_map(give),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lookups_agree_with_and_without_an_index() {
        for extra in [0, 100] {
            let mut all = vec![("a", Some(1)), ("b", Some(2)), ("a", Some(3)), ("a", None)];
            all.extend((0..extra).map(|_| ("other", None)));
            let names = Names::new(&all, |it| it.0);
            assert_eq!(names.first("a"), Some(&("a", Some(1))));
            assert_eq!(names.last("a", |it| it.1), Some(3));
            assert_eq!((names.first("c"), names.last("c", |it| it.1)), (None, None));
        }
    }
}
