//! Any answers, in any order, with devices that come and go.
//!
//! In: steps made up at random. Out: properties that hold after all of them. What can go wrong is what is tested.

use std::time::Duration;

use proptest::prelude::{Just, Strategy, any, prop_assert_eq, prop_oneof, proptest};

use super::super::fixtures::{gpu, grant, mig};
use super::*;

/// What may happen to a node.
#[derive(Clone, Debug)]
enum Step {
    Pods(Vec<Grant>),
    Come(usize),
    Go(usize),
    Wait(u64),
}

fn devices() -> [Gpu; 4] {
    [
        gpu("GPU-0", 0, Some(1)),
        gpu("GPU-1", 1, Some(0)),
        mig("MIG-0", "GPU-1", (0, 7, 0), Some(0), "1g.10gb"),
        mig("MIG-1", "GPU-1", (1, 8, 0), Some(1), "1g.10gb"),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let id =
        prop_oneof!["GPU-[012](::[0-3])?", "nvidia[01](/gi[789])?", "MIG-[012]", "[01](:[01])?", "\\PC{0,9}"];
    let grant = ("[ab]/[pqr]", proptest::collection::vec(id, 0..4))
        .prop_map(|(pod, ids)| grant(&pod, GPU, &ids.iter().map(String::as_str).collect::<Vec<_>>()));
    prop_oneof![
        3 => proptest::collection::vec(grant, 0..6).prop_map(Step::Pods),
        1 => (0..4_usize).prop_map(Step::Come),
        1 => (0..4_usize).prop_map(Step::Go),
        1 => (0..100_u64).prop_map(Step::Wait),
    ]
}

proptest! {
    /// Begins and ends add up: whatever happened before, what is believed is what the last answer says of the devices
    /// that are there, as a node that never saw anything else has it.
    #[test]
    fn what_happened_before_leaves_nothing_behind(
        steps in proptest::collection::vec(step(), 1..24),
        last in step().prop_filter("an answer", |step| matches!(step, Step::Pods(_))),
        seed in any::<u8>(),
    ) {
        let all = devices();
        let mut node = Node::of(&all);
        let mut there = [true; 4];
        for step in steps.into_iter().chain([last.clone()]) {
            match step {
                Step::Pods(grants) => node.pods(&grants),
                Step::Come(n) => {
                    there[n] = true;
                    node.push(Signal::Gpu { at: node.now, gpu: all[n].clone() });
                }
                Step::Go(n) => {
                    there[n] = false;
                    node.gone(&all[n].hw_id);
                }
                Step::Wait(seconds) => node.tick(Duration::from_secs(seconds)),
            }
        }
        node.tick(Duration::ZERO);
        let present: Vec<Gpu> = all.iter().zip(there).filter(|(_, there)| *there).map(|(d, _)| d.clone()).collect();
        let mut fresh = Node::of(&present);
        let Step::Pods(mut grants) = last else { unreachable!() };
        let turn = usize::from(seed) % grants.len().max(1);
        grants.rotate_left(turn);
        fresh.pods(&grants);
        prop_assert_eq!(node.believed, fresh.believed);
    }

    /// Whoever asks why is told what the stage does.
    #[test]
    fn an_explanation_agrees_with_the_stage(
        last in step().prop_filter("an answer", |step| matches!(step, Step::Pods(_))),
        are_claims in any::<bool>(), // both in one answer are two allocations of one name to this test's consumer
        foreign in any::<[bool; 6]>(),
        there in any::<[bool; 4]>(),
    ) {
        let Step::Pods(mut grants) = last else { unreachable!() };
        for (n, grant) in grants.iter_mut().enumerate() {
            grant.claim = are_claims.then(|| "a/claim".to_owned());
            if foreign[n] {
                grant.resource = "example.com/gpu".to_owned();
            }
        }
        let present: Vec<Gpu> = devices().into_iter().zip(there).filter_map(|(d, there)| there.then_some(d)).collect();
        let mut node = Node::of(&present);
        node.pods(&grants);
        let mut told: BTreeMap<String, Vec<u32>> = BTreeMap::new();
        let mut missing = std::collections::BTreeSet::new();
        for grant in &grants {
            for one in meaning::explain(&node.stage.devices, grant) {
                match one.meaning {
                    Meaning::Found(share) => for hw_id in one.hw_ids {
                        let key = format!("{hw_id} {}/{}", grant.namespace, grant.pod);
                        let shares = told.entry(key).or_default();
                        shares.extend(share);
                        shares.sort_unstable();
                        shares.dedup();
                    },
                    Meaning::Missing(why) => drop(missing.insert((one.id.to_owned(), why))),
                    Meaning::NotADevice => {}
                }
            }
        }
        let of_stage = node.stage.pods.misses.present().map(|(id, why)| (id.to_owned(), why)).collect();
        prop_assert_eq!(missing, of_stage);
        prop_assert_eq!(told, node.believed);
    }

    /// However an answer looks, it is taken; what it says is about devices that are there.
    #[test]
    fn any_answer_is_taken(
        grants in proptest::collection::vec(
            ("\\PC{0,9}", "\\PC{0,9}", "\\PC{0,30}", proptest::collection::vec("\\PC{0,30}", 0..5),
             prop_oneof![Just(None), "\\PC{0,9}".prop_map(Some)]),
            0..8,
        ),
    ) {
        let grants = grants.into_iter().map(|(namespace, pod, resource, device_ids, claim)| {
            Grant { namespace, pod, container: String::new(), resource, device_ids, claim }
        });
        let telemetry = Telemetry::default();
        let (mut stage, mut out) = (Allocations::new(&telemetry), Vec::new());
        stage.push(&Signal::Gpu { at: MonoNs(1), gpu: devices()[0].clone() }, &mut out);
        let devices = Arc::new(PodDevices { grants: grants.collect() });
        stage.push(&Signal::PodDevices { at: MonoNs(1), devices }, &mut out);
        for fact in out {
            let Fact::Reading(Signal::Allocation { allocation, .. }) = fact else { panic!("{fact:?}") };
            prop_assert_eq!((allocation.hw_id.as_str(), allocation.end), ("GPU-0", false));
        }
    }
}
