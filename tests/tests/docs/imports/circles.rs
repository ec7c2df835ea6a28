//! Cycles of a graph: its strongly connected components of more than one node (Tarjan, 1972).

use std::collections::{BTreeMap, BTreeSet};

/// Returns the import cycles, each sorted.
pub(super) fn circles<T: Ord + Clone>(imports: &BTreeMap<T, BTreeSet<T>>) -> Vec<Vec<T>> {
    let mut walk = CycleSearch {
        imports,
        numbers: BTreeMap::new(),
        lowest: BTreeMap::new(),
        open: Vec::new(),
        found: Vec::new(),
    };
    for node in imports.keys() {
        if !walk.numbers.contains_key(node) {
            walk.visit(node);
        }
    }
    walk.found.retain(|component| component.len() > 1);
    walk.found
}

struct CycleSearch<'g, T> {
    imports: &'g BTreeMap<T, BTreeSet<T>>,
    /// Order in which nodes were visited.
    numbers: BTreeMap<T, usize>,
    /// The first of the open nodes that each node can reach.
    lowest: BTreeMap<T, usize>,
    /// Nodes whose component is unknown so far.
    open: Vec<T>,
    found: Vec<Vec<T>>,
}

impl<T: Ord + Clone> CycleSearch<'_, T> {
    fn visit(&mut self, node: &T) -> usize {
        let number = self.numbers.len();
        self.numbers.insert(node.clone(), number);
        self.open.push(node.clone());
        let mut lowest = number;
        for next in self.imports.get(node).into_iter().flatten() {
            let reached = match self.numbers.get(next) {
                None => self.visit(next),
                Some(_) if self.open.contains(next) => {
                    self.lowest.get(next).copied().unwrap_or(self.numbers[next])
                }
                Some(_) => continue,
            };
            lowest = lowest.min(reached);
            self.lowest.insert(node.clone(), lowest);
        }
        self.lowest.insert(node.clone(), lowest);
        if lowest == number {
            let at = self.open.iter().position(|open| open == node).unwrap();
            let mut component = self.open.split_off(at);
            component.sort();
            self.found.push(component);
        }
        lowest
    }
}

#[test]
fn cyclic_imports_are_detected() {
    let graph = |arrows: &[(u8, u8)]| {
        let mut graph: BTreeMap<u8, BTreeSet<u8>> = BTreeMap::new();
        for (from, to) in arrows {
            graph.entry(*to).or_default();
            graph.entry(*from).or_default().insert(*to);
        }
        graph
    };
    assert!(circles(&graph(&[(1, 2), (2, 3), (1, 3), (4, 3)])).is_empty());
    assert_eq!(circles(&graph(&[(1, 2), (2, 1), (2, 3)])), [[1, 2]]);
    let two = graph(&[(1, 2), (2, 3), (3, 1), (3, 4), (4, 5), (5, 4), (6, 1)]);
    assert_eq!(circles(&two), [vec![4, 5], vec![1, 2, 3]]);
}
