//! Which file a number and a name of the kernel mean.

use super::node::{Name, Node};
use super::numbers::{Numbers, ROOT};
use super::place::Key;
use super::stat::kind_in;
use crate::lock::locked;
use rustix::fs::Stat;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// The nodes by their numbers, each with the references that the kernel has to it, and by their names.
pub(super) struct Table {
    pub(super) nodes: HashMap<u64, (Arc<Node>, u64)>,
    /// The node of each known name.
    pub(super) entries: HashMap<Name, u64>,
    pub(super) numbers: Numbers,
}

impl Table {
    /// The kernel looks up a file: adds a reference to its node. Returns whether the node has just got its descriptor, too.
    pub(super) fn know(
        &mut self,
        place: OwnedFd,
        stat: &Stat,
        parent: u64,
        name: &OsStr,
    ) -> (Arc<Node>, bool) {
        let (key, kind) = (Key::of(stat), kind_in(stat));
        let mut id = self.numbers.of(key);
        if self.nodes.get(&id).is_some_and(|(node, _)| node.key != key) {
            let nodes = &self.nodes;
            id = self.numbers.choose(key, |id| nodes.contains_key(&id));
        }
        let mut references = 1;
        if let Some((node, known)) = self.nodes.get_mut(&id) {
            *known += 1;
            let known = *known;
            let node = Arc::clone(node);
            if node.kind == kind {
                let was_given_up = locked(&node.place).is_none();
                if was_given_up {
                    node.is_at(&Arc::new(place));
                }
                self.name(id, parent, name);
                return (node, was_given_up);
            }
            // Another program has removed the file that the kernel knows, and this one has its inode number. The kernel tells
            // them apart by their kinds, and still forgets each of its references to the first one, by the same number.
            references = known;
            self.unname_all(&node);
            node.give_up_place();
        }
        let node = Arc::new(Node::new(id, key, kind, place));
        self.nodes.insert(id, (Arc::clone(&node), references));
        self.name(id, parent, name);
        (node, true)
    }

    pub(super) fn name(&mut self, id: u64, parent: u64, name: &OsStr) {
        let entry = (parent, Arc::from(name));
        if id == ROOT || self.entries.get(&entry) == Some(&id) {
            return;
        }
        self.unname(parent, name);
        if let Some((node, _)) = self.nodes.get(&id) {
            let mut names = locked(&node.names);
            // Most files have one name only.
            names.reserve_exact(1);
            names.push(entry.clone());
            drop(names);
            self.entries.insert(entry, id);
        }
    }

    pub(super) fn unname(&mut self, parent: u64, name: &OsStr) {
        let entry = (parent, Arc::from(name));
        let Some(id) = self.entries.remove(&entry) else {
            return;
        };
        if let Some((node, _)) = self.nodes.get(&id) {
            locked(&node.names).retain(|name| *name != entry);
        }
    }

    /// None of its names leads to a node any more.
    pub(super) fn unname_all(&mut self, node: &Node) {
        for name in node.names() {
            if self.entries.get(&name) == Some(&node.id) {
                self.entries.remove(&name);
            }
        }
    }
}
