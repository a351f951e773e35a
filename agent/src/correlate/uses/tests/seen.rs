//! What environments say of devices.

use super::*;

fn index(list: &[u32]) -> Option<VisibleList> {
    Some(VisibleList::Listed(list.iter().map(|index| VisibleDevice::Index(*index)).collect()))
}

fn uuids(list: &[&str]) -> Option<VisibleList> {
    Some(VisibleList::Listed(list.iter().map(|uuid| VisibleDevice::Uuid((*uuid).to_owned())).collect()))
}

#[track_caller]
fn check_seen(runtime: Option<VisibleList>, cuda: Option<VisibleList>, want: &[&str]) {
    let want: Vec<String> = want.iter().map(|hw_id| format!("{hw_id} env")).collect();
    let visible = Some(Visible { runtime, cuda });
    check(&[open(START, &[], visible)], &want.iter().map(String::as_str).collect::<Vec<_>>());
}

#[test]
fn cudas_numbers_count_within_what_the_runtime_made_visible() {
    let (all, elsewhere) = (|| Some(VisibleList::All), || Some(VisibleList::Elsewhere));
    check_seen(index(&[1, 2]), None, &["GPU-1", "GPU-2"]);
    check_seen(index(&[1, 2]), index(&[1]), &["GPU-2"]);
    check_seen(index(&[2, 1]), index(&[1]), &["GPU-2"]); // that list has no order of its own
    check_seen(uuids(&["GPU-2", "GPU-0"]), index(&[0]), &["GPU-0"]);
    check_seen(all(), index(&[2, 0]), &["GPU-0", "GPU-2"]);
    check_seen(None, index(&[1]), &["GPU-1"]);
    check_seen(all(), None, &["GPU-0", "GPU-1", "GPU-2"]);
    check_seen(None, uuids(&["GPU-2", "MIG-2"]), &["GPU-2", "MIG-2"]);
    check_seen(None, uuids(&["MIG-GPU-1/3/1"]), &["MIG-3"]);
    let mig = Some(VisibleList::Listed(vec![VisibleDevice::MigIndex(1, 1)]));
    check_seen(mig.clone(), None, &["MIG-2"]);
    check_seen(mig, index(&[0]), &["MIG-2"]);
    // nothing is said, or nothing that can be known
    check_seen(None, None, &[]);
    check_seen(elsewhere(), None, &[]);
    check_seen(elsewhere(), index(&[0]), &[]);
    check_seen(index(&[9, 0]), index(&[0]), &[]);
    check_seen(all(), index(&[]), &[]);
    check_seen(all(), index(&[0, 9, 1]), &["GPU-0"]); // up to the first one that is not there
    check_seen(None, uuids(&["GPU-"]), &[]); // may be any
}

#[test]
fn an_environment_does_not_blur_better_evidence() {
    let visible = || Some(Visible { runtime: Some(VisibleList::All), cuda: None });
    check(&[open(START, &[minor(1)], visible())], &["GPU-0 open_fd"]);
    let uvm = uses(UseEvidence::UvmChannel, "GPU-2", false);
    check(&[open(START, &[], visible()), uvm.clone()], &["GPU-2 uvm_channel"]);
    check(&[uvm, open(START, &[], visible())], &["GPU-2 uvm_channel"]);
}
