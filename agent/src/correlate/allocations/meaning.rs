//! What the ids of a grant mean, one by one: the decision itself, for the stage and for a person who asks why.
//!
//! In: a grant, the devices of the node. Out: for each id the devices, or why there are none. Pure, and remembers nothing.
//! What can go wrong: see [`Meaning`].

use std::sync::Arc;

use super::device_ids::{self, Board, DeviceId, Named, Refusal};
use super::devices::Devices;
use super::misses::Why;
use crate::model::{Grant, JobGrant};

/// What an id comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// Devices were found; of each it is this share, or all of it.
    Found(Option<u32>),
    /// It is no device of this driver, and nothing is missing.
    NotADevice,
    /// It should be one, and none was found.
    Missing(Why),
}

/// An id of a grant, explained.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explained<'a> {
    /// As it was told.
    pub id: &'a str,
    /// What it names, by its form alone.
    pub named: Option<Named<'a>>,
    /// What it comes to.
    pub meaning: Meaning,
    /// The devices.
    pub hw_ids: Vec<Arc<str>>,
}

/// What one id comes to; its devices are put into `found`.
pub fn of_id(devices: &Devices, id: &str, found: &mut Vec<Arc<str>>) -> Meaning {
    found.clear();
    match device_ids::parse(id) {
        Ok(DeviceId { named, share }) => {
            devices.find(named, found);
            if found.is_empty() { Meaning::Missing(Why::UnknownDevice) } else { Meaning::Found(share) }
        }
        Err(Refusal::NotADevice) => Meaning::NotADevice,
        Err(Refusal::Malformed) => Meaning::Missing(Why::MalformedId),
    }
}

/// Whether an id is looked at: under a foreign resource a number means nothing.
pub fn is_looked_at(is_nvidias: bool, id: &str) -> bool {
    is_nvidias || device_ids::is_telling(id)
}

/// Whether a number as an id means a GPU. The claims of a compute domain are of channels between nodes.
pub fn is_nvidias(grant: &Grant) -> bool {
    let vendor = grant.resource.split('/').next().unwrap_or_default();
    (vendor == "nvidia.com" || vendor.ends_with(".nvidia.com")) && vendor != "compute-domain.nvidia.com"
}

/// The id that stands for a claim of which no name was found: its device has several names, of which one is enough.
pub fn of_claim(ids: &[String]) -> Option<&str> {
    let is_device = |id: &&String| device_ids::parse(id) != Err(Refusal::NotADevice);
    ids.iter().find(is_device).map(String::as_str)
}

/// What the number of a job mapping file names.
pub fn of_job(grant: &JobGrant) -> Named<'static> {
    let board = Board::Index(grant.gpu);
    match grant.instance {
        None => Named::Board(board),
        Some(instance) => Named::Instance { board, instance, compute: None },
    }
}

/// All ids of a grant.
pub fn explain<'a>(devices: &Devices, grant: &'a Grant) -> Vec<Explained<'a>> {
    let (ours, is_claim) = (is_nvidias(grant), grant.claim.is_some());
    let mut all: Vec<Explained<'a>> = Vec::with_capacity(grant.device_ids.len());
    for id in &grant.device_ids {
        let mut hw_ids = Vec::new();
        let meaning = match is_looked_at(ours, id) {
            true => of_id(devices, id, &mut hw_ids),
            false => Meaning::NotADevice,
        };
        let meaning = match meaning {
            Meaning::Missing(_) if is_claim => Meaning::NotADevice,
            meaning => meaning,
        };
        let named = device_ids::parse(id).ok().map(|id| id.named);
        all.push(Explained { id, named, meaning, hw_ids });
    }
    let mapped = all.iter().any(|one| matches!(one.meaning, Meaning::Found(_)));
    if let (true, true, false, Some(id)) = (is_claim, ours, mapped, of_claim(&grant.device_ids))
        && let Some(one) = all.iter_mut().find(|one| one.id == id)
    {
        one.meaning = Meaning::Missing(Why::UnknownDevice);
    }
    all
}
