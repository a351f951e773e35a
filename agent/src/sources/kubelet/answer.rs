//! The kubelet's answers, from bytes: what is NVIDIA's is kept, and bounded.
//!
//! In: the bytes of one answer. Out: [`Answer`] or [`Allocatable`], sorted, so that two equal answers compare equal
//! (the kubelet walks maps and gives another order each time).
//! What can go wrong: bytes that are no such message ([`Garbage`], and nothing of it is used); single entries that no
//! kubelet would send (a name that is too long, with control characters, more devices than a node can have) are left
//! out and counted: one pod must not take the others' data. Pods are read one at a time, so that an answer of small
//! pieces cannot become memory many times its size.

use std::collections::BTreeSet;

use bytes::{Buf, Bytes};
use prost::Message;
use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field};

use super::message::{ClaimResource, ContainerDevices, DEVICES, DynamicResource, PODS, PodResources};
use super::ours::Ours;
use crate::model::plain::is_plain;
use crate::model::{Grant, PodDevices};

/// Longest answer read; the kubelet's own limit. Unit: bytes.
pub const ANSWER_MAX: usize = 16 << 20;
/// Longest message of one pod or one resource: a real one has some kilobytes. Unit: bytes.
const PART_MAX: usize = 256 << 10;
/// Longest name: those of pods and claims have 253 bytes at most, resources 317.
const NAME_MAX: usize = 320;
/// Longest device id; a CDI name is `vendor/class=device`. Unit: bytes.
const ID_MAX: usize = 512;
/// Most device ids kept in all: 16 GPUs of 7 instances with 128 shares each.
const IDS_MAX: usize = 16_384;
/// Most text kept in all; 5,000 pods have about 1 MB. Unit: bytes.
const TEXT_MAX: usize = 4 << 20;
/// Most names of other resources that are remembered for a person.
const OTHERS_MAX: usize = 16;

/// The bytes are no answer of a kubelet.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the kubelet's answer cannot be read: {0}")]
pub struct Garbage(String);

/// What `List` says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// What of NVIDIA's was given to whom.
    pub devices: PodDevices,
    /// Pods in the answer, with and without devices.
    pub pods: u64,
    /// Names of resources that are not NVIDIA's, some of them.
    pub others: BTreeSet<String>,
    /// Entries that were left out.
    pub left_out: LeftOut,
}

/// Entries of an answer that were left out, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeftOut {
    /// A pod whose message is longer than any real one.
    pub too_long: u64,
    /// A name that is empty, too long or has control characters.
    pub bad_name: u64,
    /// Device ids above the limits of number and text.
    pub too_many: u64,
}

impl LeftOut {
    /// Numbers with their words for `warpgauge.kubelet.left_out{reason}`.
    pub fn by_reason(self) -> [(&'static str, u64); 3] {
        [("too_long", self.too_long), ("bad_name", self.bad_name), ("too_many", self.too_many)]
    }
}

/// What `GetAllocatableResources` says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Allocatable {
    /// Device ids of NVIDIA's resources that can be given, whether or not they are.
    pub ids: u64,
    /// Those resources, some of them.
    pub resources: BTreeSet<String>,
}

impl Answer {
    /// Device ids in all grants.
    pub fn ids(&self) -> u64 {
        self.devices.grants.iter().map(|grant| grant.device_ids.len() as u64).sum()
    }
}

/// Reads an answer to `List`.
///
/// # Errors
/// [`Garbage`] when the bytes are not the message.
pub fn list(bytes: Bytes, ours: &Ours) -> Result<Answer, Garbage> {
    let mut reading = Reading { ours, answer: Answer::default(), ids: 0, text: 0, is_counted: false };
    let too_long = parts(bytes, PODS, |pod| {
        reading.pod(PodResources::decode(pod).map_err(|error| Garbage(error.to_string()))?);
        Ok(())
    })?;
    let mut answer = reading.answer;
    answer.left_out.too_long = too_long;
    answer.pods += too_long;
    answer.devices.grants.sort();
    Ok(answer)
}

/// Reads an answer to `GetAllocatableResources`.
///
/// # Errors
/// [`Garbage`] when the bytes are not the message.
pub fn allocatable(bytes: Bytes, ours: &Ours) -> Result<Allocatable, Garbage> {
    let mut all = Allocatable::default();
    parts(bytes, DEVICES, |devices| {
        let devices = ContainerDevices::decode(devices).map_err(|error| Garbage(error.to_string()))?;
        let ids = devices.device_ids.len();
        if ours.is_resource(&devices.resource_name, &devices.device_ids) {
            all.ids = all.ids.saturating_add(ids as u64);
            remember(&mut all.resources, devices.resource_name);
        }
        Ok(())
    })?;
    Ok(all)
}

/// Hands over each message in `field`; returns how many were too long to be looked at.
fn parts(
    mut bytes: Bytes,
    field: u32,
    mut take: impl FnMut(Bytes) -> Result<(), Garbage>,
) -> Result<u64, Garbage> {
    let garbage = |error: prost::DecodeError| Garbage(error.to_string());
    let mut too_long = 0;
    while bytes.has_remaining() {
        let (tag, kind) = decode_key(&mut bytes).map_err(garbage)?;
        if tag != field {
            skip_field(kind, tag, &mut bytes, DecodeContext::default()).map_err(garbage)?;
            continue;
        }
        if kind != WireType::LengthDelimited {
            return Err(Garbage(format!("field {field} is not a message")));
        }
        let length = usize::try_from(decode_varint(&mut bytes).map_err(garbage)?).unwrap_or(usize::MAX);
        if bytes.remaining() < length {
            return Err(Garbage(format!("a message of {length} bytes ends after {}", bytes.remaining())));
        }
        let part = bytes.split_to(length);
        if PART_MAX < length {
            too_long += 1;
        } else {
            take(part)?;
        }
    }
    Ok(too_long)
}

/// An answer while it is read.
struct Reading<'a> {
    ours: &'a Ours,
    answer: Answer,
    ids: usize,
    text: usize,
    /// That a name of this pod cannot be was counted.
    is_counted: bool,
}

impl Reading<'_> {
    fn pod(&mut self, pod: PodResources) {
        self.answer.pods += 1;
        self.is_counted = false;
        for container in pod.containers {
            let whose = Grant {
                namespace: pod.namespace.clone(),
                pod: pod.name.clone(),
                container: container.name,
                ..Grant::default()
            };
            for devices in container.devices {
                self.devices(&whose, devices);
            }
            for claim in container.dynamic_resources {
                self.claim(&whose, claim);
            }
        }
    }

    fn devices(&mut self, whose: &Grant, devices: ContainerDevices) {
        let ContainerDevices { resource_name: resource, mut device_ids } = devices;
        let is_clean = clean(&mut device_ids);
        if !self.ours.is_resource(&resource, &device_ids) {
            return remember(&mut self.answer.others, resource);
        }
        self.keep(Grant { resource, device_ids, ..whose.clone() }, is_clean);
    }

    /// A grant for each driver of the claim.
    fn claim(&mut self, whose: &Grant, claim: DynamicResource) {
        let are_names = is_name(&claim.claim_namespace) && is_name(&claim.claim_name);
        let name = format!("{}/{}", claim.claim_namespace, claim.claim_name);
        let mut grants: Vec<Grant> = Vec::new();
        for device in claim.claim_resources {
            let (driver, ids) = driver_and_ids(device);
            if !self.ours.is_driver(&driver) {
                remember(&mut self.answer.others, driver);
                continue;
            }
            match grants.iter_mut().find(|grant| grant.resource == driver) {
                Some(grant) => grant.device_ids.extend(ids),
                None => grants.push(Grant {
                    resource: driver,
                    device_ids: ids,
                    claim: Some(name.clone()),
                    ..whose.clone()
                }),
            }
        }
        for mut grant in grants {
            let is_clean = clean(&mut grant.device_ids);
            if are_names {
                self.keep(grant, is_clean);
            } else {
                self.count_bad_name();
            }
        }
    }

    /// Keeps what is right of a grant; `is_clean`: none of its ids was wrong.
    fn keep(&mut self, mut grant: Grant, is_clean: bool) {
        let names = [&grant.namespace, &grant.pod, &grant.container, &grant.resource];
        let are_names = names.into_iter().all(|name| is_name(name));
        if !are_names || !is_clean {
            self.count_bad_name();
        }
        if !are_names {
            return;
        }
        grant.device_ids.sort();
        grant.device_ids.dedup();
        let before = grant.device_ids.len();
        grant.device_ids.truncate(IDS_MAX.saturating_sub(self.ids));
        let text = text_of(&grant);
        if TEXT_MAX < self.text + text {
            grant.device_ids.clear();
        }
        self.answer.left_out.too_many += before.saturating_sub(grant.device_ids.len()) as u64;
        if !grant.device_ids.is_empty() {
            self.ids += grant.device_ids.len();
            self.text += text;
            self.answer.devices.grants.push(grant);
        }
    }

    /// Once for a pod.
    fn count_bad_name(&mut self) {
        if !std::mem::replace(&mut self.is_counted, true) {
            self.answer.left_out.bad_name += 1;
        }
    }
}

/// Takes out ids that cannot be; whether there was none.
fn clean(ids: &mut Vec<String>) -> bool {
    let before = ids.len();
    ids.retain(|id| (1..=ID_MAX).contains(&id.len()) && id.chars().all(is_plain));
    ids.len() == before
}

/// Older kubelets name no driver and no device, only what the container runtime was given: `VENDOR/CLASS=DEVICE`.
fn driver_and_ids(device: ClaimResource) -> (String, Vec<String>) {
    let ClaimResource { cdi_devices, driver_name, device_name, .. } = device;
    if !driver_name.is_empty() && !device_name.is_empty() {
        return (driver_name, vec![device_name]);
    }
    let ids: Vec<String> = cdi_devices.into_iter().map(|device| device.name).collect();
    let vendor = || ids.first().and_then(|id| id.split('/').next()).unwrap_or_default().to_owned();
    (if driver_name.is_empty() { vendor() } else { driver_name }, ids)
}

/// Bytes of a grant's texts.
fn text_of(grant: &Grant) -> usize {
    let names = [&grant.namespace, &grant.pod, &grant.container, &grant.resource];
    let texts = names.into_iter().chain(&grant.device_ids).chain(&grant.claim);
    texts.map(String::len).sum()
}

fn is_name(name: &str) -> bool {
    !name.is_empty() && name.len() <= NAME_MAX && name.chars().all(is_plain)
}

fn remember(names: &mut BTreeSet<String>, name: String) {
    if names.len() < OTHERS_MAX && is_name(&name) {
        names.insert(name);
    }
}
