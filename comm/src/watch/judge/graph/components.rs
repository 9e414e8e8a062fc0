//! Reachability and strongly connected components of a directed graph, in time linear in its edges.
//!
//! A graph is the list of successors of each node. Knows nothing of ranks and calls.

/// All nodes that can be reached from these, themselves included, ascending.
pub(super) fn reachable(successors: &[Vec<usize>], from: &[usize]) -> Vec<usize> {
    let mut is_seen = vec![false; successors.len()];
    let mut open = Vec::new();
    for start in from {
        if !std::mem::replace(&mut is_seen[*start], true) {
            open.push(*start);
        }
    }
    while let Some(at) = open.pop() {
        for next in &successors[at] {
            if !std::mem::replace(&mut is_seen[*next], true) {
                open.push(*next);
            }
        }
    }
    (0..is_seen.len()).filter(|at| is_seen[*at]).collect()
}

/// The strongly connected components (Tarjan, 1972, with a stack of its own instead of recursion: a chain of waits is as
/// long as the world is large). The members of each ascend.
pub(super) fn strongly_connected(successors: &[Vec<usize>]) -> Vec<Vec<usize>> {
    let mut search = Search {
        successors,
        order: vec![None; successors.len()],
        low: vec![0; successors.len()],
        is_open: vec![false; successors.len()],
        open: Vec::new(),
        visited: 0,
        components: Vec::new(),
    };
    for start in 0..successors.len() {
        if search.order[start].is_none() {
            search.explore(start);
        }
    }
    search.components
}

struct Search<'a> {
    successors: &'a [Vec<usize>],
    /// When each node was visited first.
    order: Vec<Option<usize>>,
    /// The earliest visited node that is reached from each within the open ones.
    low: Vec<usize>,
    is_open: Vec<bool>,
    /// Nodes whose component is not complete, in the order of their visit.
    open: Vec<usize>,
    visited: usize,
    components: Vec<Vec<usize>>,
}

impl Search<'_> {
    fn explore(&mut self, start: usize) {
        // Each node on the path, and which of its successors comes next.
        let mut path = vec![(start, 0)];
        self.visit(start);
        while let Some((at, next)) = path.last_mut() {
            let at = *at;
            let Some(to) = self.successors[at].get(*next).copied() else {
                path.pop();
                if let Some((parent, _)) = path.last() {
                    self.low[*parent] = self.low[*parent].min(self.low[at]);
                }
                self.close(at);
                continue;
            };
            *next += 1;
            match self.order[to] {
                None => {
                    self.visit(to);
                    path.push((to, 0));
                }
                Some(order) if self.is_open[to] => self.low[at] = self.low[at].min(order),
                Some(_) => {}
            }
        }
    }

    fn visit(&mut self, at: usize) {
        self.order[at] = Some(self.visited);
        self.low[at] = self.visited;
        self.visited += 1;
        self.is_open[at] = true;
        self.open.push(at);
    }

    /// Completes the component whose first node this is, if it is one.
    fn close(&mut self, at: usize) {
        if self.order[at] != Some(self.low[at]) {
            return;
        }
        let first = self.open.iter().rposition(|node| *node == at).unwrap_or(0);
        let mut component = self.open.split_off(first);
        for node in &component {
            self.is_open[*node] = false;
        }
        component.sort_unstable();
        self.components.push(component);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By definition: two nodes are in one component where each reaches the other.
    fn by_definition(successors: &[Vec<usize>]) -> Vec<Vec<usize>> {
        let nodes = 0..successors.len();
        let reach: Vec<Vec<usize>> = nodes
            .clone()
            .map(|at| reachable(successors, &[at]))
            .collect();
        let mut components: Vec<Vec<usize>> = nodes
            .clone()
            .map(|at| {
                let is_mutual =
                    |other: &usize| reach[at].contains(other) && reach[*other].contains(&at);
                nodes.clone().filter(is_mutual).collect()
            })
            .collect();
        components.sort();
        components.dedup();
        components
    }

    #[test]
    fn components_are_those_of_the_definition_on_random_graphs() {
        let mut state = 1_u64;
        let mut below = |end: usize| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            crate::types::index((state >> 33) % end as u64)
        };
        for _ in 0..300 {
            let nodes = 1 + below(12);
            let mut successors = vec![Vec::new(); nodes];
            for _ in 0..below(3 * nodes) {
                let (from, to) = (below(nodes), below(nodes));
                successors[from].push(to);
            }
            let mut found = strongly_connected(&successors);
            found.sort();
            assert_eq!(found, by_definition(&successors), "{successors:?}");
        }
    }

    #[test]
    fn a_circle_of_a_hundred_thousand_is_one_component() {
        let nodes = 100_000;
        let successors: Vec<Vec<usize>> = (0..nodes).map(|at| vec![(at + 1) % nodes]).collect();
        let components = strongly_connected(&successors);
        assert_eq!((components.len(), components[0].len()), (1, nodes));
    }
}
