//! Graphs: what a capture leaves behind, and what is launched.

use crate::code::Outcome;
use crate::handle::Handles;

/// A graph, or one made ready to launch: how many operations, and how long they take.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Graph {
    /// Operations.
    pub nodes: usize,
    /// Nanoseconds from its start to its end.
    pub duration: u64,
    /// Events that a launch records, with the time from the start.
    pub external: Vec<(usize, u64)>,
}

/// All graphs, made ready or not.
pub struct Graphs {
    live: Handles<Graph>,
}

impl Default for Graphs {
    fn default() -> Self {
        Graphs { live: Handles::new(2) }
    }
}

impl Graphs {
    /// An empty graph.
    pub fn create(&mut self) -> usize {
        self.live.insert(Graph::default())
    }

    /// A graph.
    pub fn get(&self, handle: usize) -> Outcome<&Graph> {
        self.live.get(handle)
    }

    /// Gives a graph its content.
    pub fn complete(&mut self, handle: usize, graph: Graph) -> Outcome {
        *self.live.get_mut(handle)? = graph;
        Ok(())
    }

    /// A copy, which launches are made of.
    pub fn instantiate(&mut self, handle: usize) -> Outcome<usize> {
        let copy = self.live.get(handle)?.clone();
        Ok(self.live.insert(copy))
    }

    /// Destroys a graph.
    pub fn destroy(&mut self, handle: usize) -> Outcome {
        self.live.remove(handle).map(drop)
    }
}
