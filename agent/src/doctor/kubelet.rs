//! Whether the kubelet tells who was given which devices.
//!
//! In: the configuration, and whether this runs in a pod. Out: a check, by asking once.
//! What can go wrong: nothing that is not a check's answer.

use std::path::Path;
use std::time::Duration;

use super::{Check, Verdict};
use crate::config::KubeletConfig;
use crate::sources::kubelet::answer::{Allocatable, Answer};
use crate::sources::kubelet::failure::{Failure, Reason};
use crate::sources::kubelet::{self, ask_once};

const NAME: &str = "kubelet";
/// With two calls the look still ends in time.
const LIMIT: Duration = Duration::from_secs(4);

/// Asks it once; `in_pod`: this process runs in a Kubernetes pod.
pub async fn check(config: &KubeletConfig, in_pod: bool) -> Check {
    ask(config, in_pod).await.0
}

/// The check, and what it answered, or why it did not.
pub async fn ask(config: &KubeletConfig, in_pod: bool) -> (Check, Result<Answer, Reason>) {
    let Some(socket) = &config.socket else {
        return (Check::off(NAME, "it is not asked, as configured"), Err(Reason::NoSocket));
    };
    match ask_once(config, socket, config.timeout.min(LIMIT)).await {
        Ok((answer, allocatable)) => (Check::yes(NAME, words(socket, &answer, allocatable)), Ok(answer)),
        Err(Failure { reason: reason @ Reason::NoSocket, what }) if !is_here(config, in_pod) => {
            let what = format!("{}: {what}: this is no Kubernetes node", socket.display());
            (Check::off(NAME, what), Err(reason))
        }
        Err(Failure { reason, what }) => {
            let what = format!("{}: {}: {what}", socket.display(), reason.name());
            let verdict = if reason == Reason::Slow { Verdict::Unknown } else { Verdict::No };
            (Check { name: NAME.into(), verdict, what, remedy: reason.remedy().to_owned() }, Err(reason))
        }
    }
}

/// The same of one pod alone.
pub async fn ask_pod(
    config: &KubeletConfig,
    in_pod: bool,
    (namespace, pod): (&str, &str),
) -> (Check, Result<Answer, Reason>) {
    let Some(socket) = &config.socket else { return ask(config, in_pod).await };
    match kubelet::ask_pod(config, socket, config.timeout.min(LIMIT), (namespace, pod)).await {
        Ok(answer) => {
            let what =
                format!("{}: {} device ids given to {namespace}/{pod}", socket.display(), answer.ids());
            (Check::yes(NAME, what), Ok(answer))
        }
        // with all its words
        Err(_) => ask(config, in_pod).await,
    }
}

/// Whether this is a Kubernetes node, as far as can be seen.
pub fn is_here(config: &KubeletConfig, in_pod: bool) -> bool {
    in_pod || config.socket.as_deref().is_some_and(|socket| socket.exists() || has_kubelet(socket))
}

/// A kubelet's folder of pods beside that of the socket: it is there, and its socket is not seen.
fn has_kubelet(socket: &Path) -> bool {
    socket.parent().and_then(Path::parent).is_some_and(|folder| folder.join("pods").is_dir())
}

fn words(socket: &Path, answer: &Answer, allocatable: Result<Allocatable, Failure>) -> String {
    let pods_with: std::collections::BTreeSet<_> =
        answer.devices.grants.iter().map(|grant| (&grant.namespace, &grant.pod)).collect();
    let mut text = format!(
        "{}: {} device ids given to {} of {} pods",
        socket.display(),
        answer.ids(),
        pods_with.len(),
        answer.pods
    );
    match allocatable {
        Ok(all) if all.resources.is_empty() => text.push_str("; no device plugin of NVIDIA's has any"),
        Ok(all) => {
            let resources: Vec<_> = all.resources.into_iter().collect();
            text.push_str(&format!("; {} can be given: {}", all.ids, resources.join(", ")));
        }
        Err(failure) => text.push_str(&format!("; what can be given is not told: {}", failure.reason.name())),
    }
    if !answer.others.is_empty() {
        let others: Vec<_> = answer.others.iter().map(String::as_str).collect();
        text.push_str(&format!(
            "; not NVIDIA's: {} (kubelet.resource_names can say otherwise)",
            others.join(", ")
        ));
    }
    for (reason, number) in answer.left_out.by_reason().into_iter().filter(|(_, number)| 0 < *number) {
        text.push_str(&format!("; left out, {reason}: {number}"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Grant, PodDevices};
    use crate::test_dir::TestDir;

    fn config(socket: &Path) -> KubeletConfig {
        let timeout = Duration::from_millis(300);
        KubeletConfig { socket: Some(socket.to_path_buf()), timeout, ..KubeletConfig::default() }
    }

    #[tokio::test]
    async fn a_missing_socket_is_a_problem_only_where_there_is_a_kubelet() {
        let dir = TestDir::new();
        let socket = dir.path().join("kubelet/pod-resources/kubelet.sock");
        for (in_pod, folder, want) in
            [(false, false, Verdict::Off), (true, false, Verdict::No), (false, true, Verdict::No)]
        {
            if folder {
                std::fs::create_dir_all(dir.path().join("kubelet/pods")).unwrap();
            }
            let check = check(&config(&socket), in_pod).await;
            assert_eq!(check.verdict, want, "{check:?}");
            assert!(want == Verdict::Off || check.remedy.contains("mount"), "{check:?}");
        }
        let off = check(&KubeletConfig { socket: None, ..KubeletConfig::default() }, true).await;
        assert_eq!(off.verdict, Verdict::Off);
    }

    #[tokio::test]
    async fn nobody_who_listens_and_nobody_who_answers_are_told_apart() {
        let dir = TestDir::new();
        let socket = dir.path().join("kubelet.sock");
        let listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        let hung = check(&config(&socket), false).await;
        assert!(hung.verdict == Verdict::Unknown && hung.what.contains("slow"), "{hung:?}");
        drop(listener);
        let gone = check(&config(&socket), false).await;
        assert!(gone.verdict == Verdict::No && gone.what.contains("refused"), "{gone:?}");
    }

    #[test]
    fn the_answer_says_which_link_of_the_chain_is_missing() {
        let grant = |pod: &str, id: &str| Grant {
            pod: pod.to_owned(),
            device_ids: vec![id.to_owned()],
            ..Grant::default()
        };
        let mut answer = Answer {
            devices: PodDevices { grants: vec![grant("a", "0"), grant("a", "1"), grant("b", "2")] },
            pods: 7,
            ..Answer::default()
        };
        answer.others.insert("amd.com/gpu".to_owned());
        answer.left_out.bad_name = 1;
        let none = Failure::new(Reason::NotServed, "");
        let said = words(Path::new("/k"), &answer, Err(none));
        let want = "/k: 3 device ids given to 2 of 7 pods; what can be given is not told: not_served; \
                    not NVIDIA's: amd.com/gpu (kubelet.resource_names can say otherwise); left out, bad_name: 1";
        assert_eq!(said, want);
        let said = words(Path::new("/k"), &Answer::default(), Ok(Allocatable::default()));
        assert_eq!(said, "/k: 0 device ids given to 0 of 0 pods; no device plugin of NVIDIA's has any");
    }
}
