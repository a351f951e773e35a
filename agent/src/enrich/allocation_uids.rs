//! The uids of pods that were given devices: whoever tells of allocations knows the pod's name only.
//!
//! In: allocations as they begin and end, and the names of pods as they become known. Out: the same allocations with the
//! uid; told again when it becomes known later, or when another pod has the name now; a count of
//! `warpgauge.mapping.failures` of the stage `names` for each pod whose uid has not come for 10 s. Pure.
//! What can go wrong: the pod has no folder of logs (yet); more allocations than are kept, whose uids do not come late.

use std::collections::BTreeMap;
use std::time::Duration;

use super::pod_names::{Pod, PodNames, PodUid};
use crate::model::MonoNs;
use crate::model::signal::{Allocation, AllocationSource};
use crate::telemetry::{Counter, Telemetry};

/// Allocations to pods that are in force.
#[derive(Debug)]
pub struct AllocationUids {
    rows: BTreeMap<Row, Allocation>,
    /// Pods (namespace, name) of which a row lacks the uid.
    lacking: BTreeMap<(String, String), Lacking>,
    /// When the latest of them came.
    latest: Option<MonoNs>,
    asked: Option<MonoNs>,
    no_log_link: Counter,
    unreadable: Counter,
}

/// Since when, and whether that counts as a failure already.
#[derive(Clone, Copy, Debug)]
struct Lacking {
    since: MonoNs,
    counted: bool,
}

/// Device, namespace, pod, container, and who says so.
type Row = (String, String, String, Option<String>, AllocationSource);

impl AllocationUids {
    /// Allocations kept: as many as the correlation keeps of the kubelet's.
    pub const MOST: usize = 16_384;
    /// A pod that has no folder now gets one at once, or it may be long in coming.
    const SOON: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(10));

    /// Nobody has anything; uids that never come are counted.
    pub fn new(telemetry: &Telemetry) -> Self {
        let counter = |reason| {
            telemetry.counter("warpgauge.mapping.failures", &[("stage", "names"), ("reason", reason)])
        };
        let (no_log_link, unreadable) = (counter("no_log_link"), counter("unreadable"));
        let (rows, lacking) = (BTreeMap::new(), BTreeMap::new());
        Self { rows, lacking, latest: None, asked: None, no_log_link, unreadable }
    }

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
                    names.learn_pod(key, Pod { uid, namespace, name, made_ns: 0, lives: false });
                }
                return;
            }
            Some(_) => {}
            None => allocation.pod_uid = names.uid(namespace, pod).map(str::to_owned),
        }
        let whose = (namespace.clone(), pod.clone());
        if allocation.end {
            self.rows.remove(&row);
            let is_of = |row: &Row| (&row.1, &row.2) == (&whose.0, &whose.1);
            if self.lacking.contains_key(&whose) && !self.rows.keys().any(is_of) {
                self.lacking.remove(&whose);
            }
            return;
        }
        if self.rows.len() < Self::MOST || self.rows.contains_key(&row) {
            if allocation.pod_uid.is_none() {
                self.latest = Some(at);
                self.lacking.entry(whose).or_insert(Lacking { since: at, counted: false });
            } else {
                self.lacking.remove(&whose);
            }
            self.rows.insert(row, allocation.clone());
        }
    }

    /// Whether it is time to look for uids that are lacking.
    pub fn due(&mut self, now: MonoNs) -> bool {
        let Some(latest) = self.latest.filter(|_| !self.lacking.is_empty()) else { return false };
        let older = |since: MonoNs, than: Duration| now.since(since).is_some_and(|age| than <= age);
        let again = if older(latest, Self::SOON.1) { Self::SOON.1 } else { Self::SOON.0 };
        if self.asked.is_some_and(|asked| !older(asked, again)) {
            return false;
        }
        self.asked = Some(now);
        true
    }

    /// They were looked for; `readable`: where they should be could be read. What is still lacking counts, once a pod.
    pub fn in_vain(&mut self, now: MonoNs, readable: bool) {
        let counter = if readable { &self.no_log_link } else { &self.unreadable };
        for lacking in self.lacking.values_mut().filter(|lacking| !lacking.counted) {
            if now.since(lacking.since).is_some_and(|age| Self::SOON.1 <= age) {
                lacking.counted = true;
                counter.add(1);
            }
        }
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
        self.lacking.retain(|(namespace, pod), _| names.uid(namespace, pod).is_none());
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
            (PodUid::parse(uid).unwrap(), Pod { uid: text, namespace, name, made_ns, lives: false })
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
        let (mut uids, mut names) = (AllocationUids::new(&Telemetry::default()), PodNames::default());
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
        let (mut uids, mut names) = (AllocationUids::new(&Telemetry::default()), PodNames::default());
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
        let (mut uids, mut names) = (AllocationUids::new(&Telemetry::default()), PodNames::default());
        taken(&mut uids, &mut names, given("G0", "late")); // at 1 s
        let looks: Vec<u64> = (10..400).filter(|tenth| uids.due(MonoNs(tenth * 100_000_000))).collect();
        assert_eq!(looks, [10, 20, 30, 40, 50, 60, 70, 80, 90, 100, 200, 300]);
        names.replace(listing(&[(UID, "late", 1)]));
        told(&mut uids, &names);
        assert!(!uids.due(second(60)));
    }

    #[test]
    fn a_pod_without_a_folder_counts_once_whatever_it_was_given() {
        let telemetry = Telemetry::default();
        let (mut uids, mut names) = (AllocationUids::new(&telemetry), PodNames::default());
        for (hw_id, pod) in [("G0", "nameless"), ("G1", "nameless"), ("G2", "late"), ("G3", "gone")] {
            taken(&mut uids, &mut names, given(hw_id, pod)); // at 1 s
        }
        names.replace(listing(&[(UID, "late", 1)]));
        told(&mut uids, &names);
        for hw_id in ["G3", "G0"] {
            let pod = if hw_id == "G3" { "gone" } else { "nameless" };
            taken(&mut uids, &mut names, Allocation { end: true, ..given(hw_id, pod) });
        }
        let count = |reason| {
            let attributes = [("stage", "names"), ("reason", reason)];
            telemetry.counter("warpgauge.mapping.failures", &attributes).get()
        };
        let mut counts = Vec::new();
        for s in [10, 11, 30, 60] {
            uids.in_vain(second(s), true);
            counts.push(count("no_log_link"));
        }
        assert_eq!(counts, [0, 1, 1, 1]);
        taken(&mut uids, &mut names, given("G4", "other")); // at 1 s
        uids.in_vain(second(70), false);
        assert_eq!((count("no_log_link"), count("unreadable")), (1, 1));
    }

    #[test]
    fn an_allocation_with_its_uid_teaches_the_pods_name() {
        let (mut uids, mut names) = (AllocationUids::new(&Telemetry::default()), PodNames::default());
        let with = Allocation { pod_uid: Some(UID.into()), ..given("G0", "job-7") };
        assert_eq!(taken(&mut uids, &mut names, with).as_deref(), Some(UID));
        let pod = names.pod(PodUid::parse(UID).unwrap()).unwrap();
        assert_eq!((&*pod.namespace, &*pod.name, uids.rows.len()), ("ml", "job-7", 0));
    }
}
