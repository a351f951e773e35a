//! The uids of pods that were given devices: whoever tells of allocations knows the pod's name only.
//!
//! In: allocations as they begin and end, and the names of pods as they become known. Out: the same allocations with the
//! uid; told again when it becomes known later, or when another pod has the name now. Pure.
//! What can go wrong: the pod has no folder of logs (yet); more allocations than are kept, whose uids do not come late.

use std::collections::BTreeMap;
use std::time::Duration;

use super::pod_names::{Pod, PodNames, PodUid};
use crate::model::MonoNs;
use crate::model::signal::{Allocation, AllocationSource};

/// Allocations to pods that are in force.
#[derive(Debug, Default)]
pub struct AllocationUids {
    rows: BTreeMap<Row, Allocation>,
    /// When somebody without a uid came latest.
    lacking: Option<MonoNs>,
    asked: Option<MonoNs>,
}

/// Device, namespace, pod, container, and who says so.
type Row = (String, String, String, Option<String>, AllocationSource);

impl AllocationUids {
    /// Allocations kept: as many as the correlation keeps of the kubelet's.
    pub const MOST: usize = 16_384;
    /// A pod that has no folder now gets one at once, or it may be long in coming.
    const SOON: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(10));

    /// Fills in the uid where it is known; an allocation that has one already teaches the pod's name.
    pub fn take(&mut self, allocation: &mut Allocation, at: MonoNs, names: &mut PodNames) {
        let (Some(namespace), Some(pod)) = (&allocation.namespace, &allocation.pod) else { return };
        let how = allocation.how;
        let row =
            (allocation.hw_id.clone(), namespace.clone(), pod.clone(), allocation.container.clone(), how);
        match &allocation.pod_uid {
            Some(uid) if !self.rows.contains_key(&row) => {
                if let Some(key) = PodUid::parse(uid) {
                    let (uid, namespace, name) = (uid.clone(), namespace.clone(), pod.clone());
                    names.learn_pod(key, Pod { uid, namespace, name, made_ns: 0 });
                }
                return;
            }
            Some(_) => {}
            None => allocation.pod_uid = names.uid(namespace, pod).map(str::to_owned),
        }
        if allocation.end {
            self.rows.remove(&row);
            return;
        }
        if allocation.pod_uid.is_none() {
            self.lacking = Some(at);
        }
        if self.rows.len() < Self::MOST || self.rows.contains_key(&row) {
            self.rows.insert(row, allocation.clone());
        }
    }

    /// Whether it is time to look for uids that are lacking.
    pub fn due(&mut self, now: MonoNs) -> bool {
        let Some(lacking) = self.lacking else { return false };
        let older = |since: MonoNs, than: Duration| now.since(since).is_some_and(|age| than <= age);
        let again = if older(lacking, Self::SOON.1) { Self::SOON.1 } else { Self::SOON.0 };
        if self.asked.is_some_and(|asked| !older(asked, again)) {
            return false;
        }
        if self.rows.values().all(|row| row.pod_uid.is_some()) {
            self.lacking = None;
            return false;
        }
        self.asked = Some(now);
        true
    }

    /// Other pods are known by name now: what that changes is appended to `out`.
    pub fn learn(&mut self, names: &PodNames, out: &mut Vec<Allocation>) {
        for ((_, namespace, pod, ..), allocation) in &mut self.rows {
            let uid = names.uid(namespace, pod);
            // A pod whose folder went was deleted; its teller will say so.
            if uid.is_some() && allocation.pod_uid.as_deref() != uid {
                allocation.pod_uid = uid.map(str::to_owned);
                out.push(allocation.clone());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::enrich::pod_names::Listing;

    const UID: &str = "0a1b2c3d-1111-2222-3333-444455556666";
    const NEWER: &str = "00000000-1111-2222-3333-444455556666";

    fn second(s: u64) -> MonoNs {
        MonoNs(s * 1_000_000_000)
    }

    fn given(hw_id: &str, pod: &str) -> Allocation {
        Allocation {
            hw_id: hw_id.into(),
            pod_uid: None,
            pod: Some(pod.into()),
            namespace: Some("ml".into()),
            container: Some("main".into()),
            job: None,
            how: AllocationSource::PodResources,
            shares: vec![3],
            end: false,
        }
    }

    fn listing(pods: &[(&str, &str, u64)]) -> Listing {
        let pod = |&(uid, name, made_ns): &(&str, &str, u64)| {
            let (text, namespace, name) = (uid.to_owned(), "ml".to_owned(), name.to_owned());
            (PodUid::parse(uid).unwrap(), Pod { uid: text, namespace, name, made_ns })
        };
        Listing { pods: Some(pods.iter().map(pod).collect()), containers: None }
    }

    fn taken(uids: &mut AllocationUids, names: &mut PodNames, mut allocation: Allocation) -> Option<String> {
        uids.take(&mut allocation, second(1), names);
        allocation.pod_uid
    }

    /// What is told again, as `device uid`.
    fn told(uids: &mut AllocationUids, names: &PodNames) -> Vec<String> {
        let mut out = Vec::new();
        uids.learn(names, &mut out);
        out.iter().map(|told| format!("{} {}", told.hw_id, told.pod_uid.as_deref().unwrap_or("-"))).collect()
    }

    #[test]
    fn a_uid_is_filled_in_at_once_or_later() {
        let (mut uids, mut names) = (AllocationUids::default(), PodNames::default());
        names.replace(listing(&[(UID, "db-0", 1)]));
        assert_eq!(taken(&mut uids, &mut names, given("G0", "db-0")).as_deref(), Some(UID));
        assert!(!uids.due(second(1)), "nothing is lacking");
        assert_eq!(taken(&mut uids, &mut names, given("G1", "late")), None);
        assert_eq!(told(&mut uids, &names), [] as [&str; 0]);
        names.replace(listing(&[(UID, "db-0", 1), (NEWER, "late", 1)]));
        assert_eq!(told(&mut uids, &names), [format!("G1 {NEWER}")]);
        assert_eq!(told(&mut uids, &names), [] as [&str; 0], "once");
    }

    #[test]
    fn a_pod_made_anew_under_its_name_has_the_allocation() {
        let (mut uids, mut names) = (AllocationUids::default(), PodNames::default());
        names.replace(listing(&[(UID, "db-0", 1)]));
        taken(&mut uids, &mut names, given("G0", "db-0"));
        names.replace(listing(&[(UID, "db-0", 1), (NEWER, "db-0", 2)]));
        assert_eq!(told(&mut uids, &names), [format!("G0 {NEWER}")]);
        names.replace(listing(&[]));
        assert_eq!(told(&mut uids, &names), [] as [&str; 0], "its teller says when it is over");
        let end = Allocation { end: true, ..given("G0", "db-0") };
        taken(&mut uids, &mut names, end);
        names.replace(listing(&[(UID, "db-0", 1)]));
        assert_eq!((told(&mut uids, &names), uids.rows.len()), (vec![], 0), "over");
    }

    #[test]
    fn what_is_lacking_is_looked_for_often_at_first() {
        let (mut uids, mut names) = (AllocationUids::default(), PodNames::default());
        taken(&mut uids, &mut names, given("G0", "late")); // at 1 s
        let looks: Vec<u64> = (10..400).filter(|tenth| uids.due(MonoNs(tenth * 100_000_000))).collect();
        assert_eq!(looks, [10, 20, 30, 40, 50, 60, 70, 80, 90, 100, 200, 300]);
        names.replace(listing(&[(UID, "late", 1)]));
        told(&mut uids, &names);
        assert!(!uids.due(second(60)));
    }

    #[test]
    fn an_allocation_with_its_uid_teaches_the_pods_name() {
        let (mut uids, mut names) = (AllocationUids::default(), PodNames::default());
        let with = Allocation { pod_uid: Some(UID.into()), ..given("G0", "job-7") };
        assert_eq!(taken(&mut uids, &mut names, with).as_deref(), Some(UID));
        let pod = names.pod(PodUid::parse(UID).unwrap()).unwrap();
        assert_eq!((&*pod.namespace, &*pod.name, uids.rows.len()), ("ml", "job-7", 0));
    }
}
