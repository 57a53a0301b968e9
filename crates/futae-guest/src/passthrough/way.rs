//! Finds nodes again whose descriptors were given up: by their names, downwards from an ancestor that has one.
//!
//! This does not call itself: a tree may be deeper than a thread's stack allows, and names that other programs have made stale
//! may form a circle.

use super::node::{Name, Node};
use super::nodes::Nodes;
use rustix::io::Errno;
use std::collections::HashSet;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// A node to be found, and its names that have not been tried. The last one is being tried.
struct Step {
    node: Arc<Node>,
    names: Vec<Name>,
}

impl Step {
    fn to(node: &Arc<Node>) -> Self {
        let mut names = node.names();
        names.reverse();
        let node = Arc::clone(node);
        Self { node, names }
    }
}

impl Nodes {
    /// Opens a node without a descriptor. On the way, each node's parent comes after it.
    pub(super) fn find_again(&self, node: &Arc<Node>) -> Result<Arc<OwnedFd>, Errno> {
        let mut way = vec![Step::to(node)];
        // Nodes that are on the way, and those to which there is none.
        let mut closed = HashSet::from([node.id]);
        // The parent that was just found.
        let mut found = None;
        while let Some(step) = way.last_mut() {
            let Some((parent, name)) = step.names.last() else {
                way.pop();
                if let Some(below) = way.last_mut() {
                    below.names.pop();
                }
                continue;
            };
            let mut at = found.take();
            if at.is_none()
                && let Ok(parent) = self.get(*parent)
            {
                at = parent.known_place();
                if at.is_none() && closed.insert(parent.id) {
                    way.push(Step::to(&parent));
                    continue;
                }
            }
            let place = match at {
                Some(at) => self.open_again(&step.node, &at, name)?,
                None => None,
            };
            let Some(place) = place else {
                step.names.pop();
                continue;
            };
            // Its descriptor may be given up before another name leads to it.
            closed.remove(&step.node.id);
            way.pop();
            if way.is_empty() {
                return Ok(place);
            }
            found = Some(place);
        }
        Err(Errno::STALE)
    }
}
