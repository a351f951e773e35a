//! Whether the kubelet's folders of logs are there, from which pods and containers have their names.
//!
//! In: where the host's /var/log is, and whether this is a Kubernetes node. Out: a check, by reading names only.
//! What can go wrong: nothing that is not a check's answer.

use std::fs;
use std::io::ErrorKind;

use super::{Check, Verdict};
use crate::enrich::log_links::{LogLinks, Look};
use crate::host::{HostRoot, mono_now};

const NAME: &str = "log folders";
/// Where they are not.
pub const REMEDY: &str =
    "mount the host's /var/log/pods and /var/log/containers, and name /var/log by --host-var-log";

/// Looks; `of_kubernetes`: there is a kubelet on this node, so there should be such folders.
pub fn check(host: &HostRoot, of_kubernetes: bool) -> Check {
    let mut missing = 0;
    for folder in ["pods", "containers"].map(|name| host.var_log(name)) {
        match fs::read_dir(&folder) {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::NotFound => missing += 1,
            Err(error) => {
                let remedy = match error.kind() {
                    ErrorKind::PermissionDenied => "run as root: the kubelet's folders are root's",
                    _ => REMEDY,
                };
                return Check::no(NAME, format!("{}: {error}", folder.display()), remedy);
            }
        }
    }
    let below = host.var_log("").display().to_string();
    match (missing, of_kubernetes) {
        (2, false) => return Check::off(NAME, format!("{below}: no folder of pods: no Kubernetes node")),
        (1 | 2, _) => return Check::no(NAME, format!("{below} lacks pods or containers"), REMEDY),
        _ => {}
    }
    let Look::New(listing) = LogLinks::new(host).look(mono_now()) else {
        return Check::unknown(NAME, format!("{below} was not read"), REMEDY);
    };
    let pods = listing.pods.map_or(0, |pods| pods.len());
    let containers = listing.containers.map_or(0, |containers| containers.len());
    let what = format!("{below}: {pods} pods, {containers} containers");
    let verdict = match (pods, of_kubernetes) {
        (0, true) => Verdict::Unknown,
        _ => Verdict::Yes,
    };
    let remedy = if verdict == Verdict::Yes {
        String::new()
    } else {
        format!("no pod has a folder: none ran yet, or it is not the host's; {REMEDY}")
    };
    Check { name: NAME.into(), verdict, what, remedy }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_dir::TestDir;

    #[test]
    fn there_empty_missing_and_unreadable_are_told_apart() {
        let dir = TestDir::new();
        let host = HostRoot { var_log: dir.path().to_owned(), ..HostRoot::default() };
        let look = |of_kubernetes| {
            let Check { verdict, what, remedy, .. } = check(&host, of_kubernetes);
            assert_eq!(remedy.is_empty(), matches!(verdict, Verdict::Yes | Verdict::Off), "{what}");
            (verdict, what)
        };
        assert_eq!((look(false).0, look(true).0), (Verdict::Off, Verdict::No));
        fs::create_dir(dir.path().join("pods")).unwrap();
        assert_eq!(look(true).0, Verdict::No, "one of two");
        fs::create_dir(dir.path().join("containers")).unwrap();
        assert_eq!((look(true).0, look(false).0), (Verdict::Unknown, Verdict::Yes), "empty");
        let pod = "ml_train-0_0a1b2c3d-1111-2222-3333-444455556666";
        fs::create_dir(dir.path().join("pods").join(pod)).unwrap();
        fs::create_dir(dir.path().join("pods/lost+found")).unwrap();
        let (verdict, what) = look(true);
        assert!(verdict == Verdict::Yes && what.ends_with("1 pods, 0 containers"), "{what}");
        fs::remove_dir(dir.path().join("containers")).unwrap();
        fs::write(dir.path().join("containers"), "").unwrap();
        let (verdict, what) = look(true);
        assert!(verdict == Verdict::No && what.contains("Not a directory"), "{what}");
    }
}
