//! Open nodes and environments → the devices that they are of.
//!
//! In: [`OpenNodes`], and the devices of this node. Out: evidence of use, by `hw.id`.
//! What can go wrong: a device is not known (yet): its node says nothing until it is. A number in an environment counts
//! among what the process can see; where that is not known, it says nothing.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::super::allocations::device_ids::{Board, Named};
use super::super::allocations::devices::Devices;
use crate::model::UseEvidence;
use crate::model::open_nodes::{OpenNode, OpenNodes, Visible, VisibleDevice, VisibleList};

/// What is known from nodes.
pub(super) type Rows = BTreeSet<(UseEvidence, Arc<str>)>;

/// What the process's nodes and environment say of devices.
pub(super) fn rows(open: &OpenNodes, devices: &Devices) -> Rows {
    let (mut rows, mut found) = (Rows::new(), Vec::new());
    for node in &open.nodes {
        let (evidence, named) = match *node {
            OpenNode::Gpu { minor } => (UseEvidence::OpenFd, Named::Board(Board::Minor(minor))),
            // A compute instance is opened together with the GPU instance that it is in.
            OpenNode::Instance { gpu, instance, compute: None } if has_part(open, gpu, instance) => continue,
            OpenNode::Instance { gpu, instance, compute } => {
                (UseEvidence::CapFd, Named::Instance { board: Board::Minor(gpu), instance, compute })
            }
        };
        devices.find(named, &mut found);
        rows.extend(found.drain(..).map(|hw_id| (evidence, hw_id)));
    }
    if let (Some(visible), true) = (&open.visible, open.nodes.is_empty()) {
        rows.extend(seen(visible, devices).into_iter().map(|hw_id| (UseEvidence::Env, hw_id)));
    }
    rows
}

fn has_part(open: &OpenNodes, of: u32, within: u32) -> bool {
    open.nodes.iter().any(|node| {
        matches!(node, OpenNode::Instance { gpu, instance, compute: Some(_) } if (*gpu, *instance) == (of, within))
    })
}

/// The devices that an environment names.
fn seen(visible: &Visible, devices: &Devices) -> Vec<Arc<str>> {
    let of_node = within(visible.runtime.as_ref(), devices);
    let cuda = match &visible.cuda {
        None if visible.runtime.is_none() => return Vec::new(), // nothing is named
        None | Some(VisibleList::All | VisibleList::Elsewhere) => return of_node.unwrap_or_default(),
        Some(VisibleList::Listed(cuda)) => cuda,
    };
    // CUDA takes the devices up to the first one that is not there.
    let one = |device: &VisibleDevice| match device {
        VisibleDevice::Index(index) => of_node.as_ref()?.get(usize::try_from(*index).ok()?).cloned(),
        VisibleDevice::Uuid(uuid) => by_uuid(uuid, devices),
        VisibleDevice::MigIndex(..) => None, // a form of the runtime's only
    };
    cuda.iter().map_while(one).collect()
}

/// What the container runtime made visible, in the order of its numbers; `None` where that is not known.
fn within(runtime: Option<&VisibleList>, devices: &Devices) -> Option<Vec<Arc<str>>> {
    let mut all: Vec<Arc<str>> = match runtime {
        None | Some(VisibleList::All) => devices.boards().cloned().collect(),
        Some(VisibleList::Elsewhere) => return None,
        Some(VisibleList::Listed(listed)) => {
            let mut found = Vec::new();
            let mut one = |device: &VisibleDevice| match device {
                VisibleDevice::Uuid(uuid) => by_uuid(uuid, devices),
                VisibleDevice::Index(index) => {
                    devices.find(Named::Board(Board::Index(*index)), &mut found);
                    found.pop()
                }
                VisibleDevice::MigIndex(gpu, mig) => {
                    devices.find(Named::MigIndex(Board::Index(*gpu), *mig), &mut found);
                    found.pop()
                }
            };
            // one that is missing would shift the others' numbers
            listed.iter().map(&mut one).collect::<Option<_>>()?
        }
    };
    // The runtime's list has no order of its own: inside, devices are numbered as on the node.
    all.sort_by(|a, b| devices.place(a).cmp(&devices.place(b)).then_with(|| a.cmp(b)));
    all.dedup();
    Some(all)
}

/// `GPU-…`, `MIG-…`, the older `MIG-GPU-…/gi/ci`, or the beginning of one of the first two.
fn by_uuid(uuid: &str, devices: &Devices) -> Option<Arc<str>> {
    let mut found = Vec::new();
    if let Ok(id) = super::super::allocations::device_ids::parse(uuid) {
        devices.find(id.named, &mut found);
    }
    found.pop().or_else(|| devices.by_beginning(uuid).cloned())
}
