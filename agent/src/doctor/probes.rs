//! The driver probes: how each would be attached here, and what speaks against better ways.
//!
//! In: the configuration. Out: one check for each probe, by attaching all of them for a moment; or what keeps all of
//! them off. What can go wrong: nothing that is not a check's answer.

use super::Check;
use crate::config::Config;
use crate::sources::probes;
use crate::sources::probes::refusal::Refusal;
use crate::sources::probes::tactics::{Choice, Probe};

/// Loads and attaches everything, and takes it out again.
pub async fn checks(config: &Config) -> Vec<Check> {
    const NAME: &str = "probes";
    let (settings, host) = (config.probes.clone(), config.host.clone());
    let looked = tokio::task::spawn_blocking(move || probes::look(&settings, &host)).await;
    match looked {
        Ok(Ok(choices)) => choices.iter().map(check).collect(),
        Ok(Err(lacks)) => lacks.iter().map(|lack| Check::lack(NAME, lack)).collect(),
        Err(e) => vec![Check::unknown(NAME, e.to_string(), "try again; if it stays, report it")],
    }
}

fn check(choice: &Choice) -> Check {
    let name = format!("probe {}", choice.probe.name());
    let refused: Vec<String> = choice.refused.iter().map(words).collect();
    let refused = refused.join("; ");
    let Some(tactic) = choice.tactic else {
        // the last way is the one that asks for least
        let remedy = choice.refused.last().map_or("report it", Refusal::remedy);
        let instead = choice.probe.instead().map(|what| format!("; {what}")).unwrap_or_default();
        return Check::no(name, format!("not attached; refused: {refused}{instead}"), remedy);
    };
    let how = if choice.probe == Probe::Scheduler { "can be attached, on demand," } else { "attached" };
    let mut what = format!("{how} as {}", tactic.name());
    if !choice.without.is_empty() {
        what = format!("{what}; this driver has no {}", choice.without.join(", "));
    }
    if !refused.is_empty() {
        what = format!("{what}; refused: {refused}");
    }
    Check::yes(name, what)
}

/// `row (reason: the system's words; what to do)`.
fn words(refusal: &Refusal) -> String {
    let Refusal { tactic, reason, text } = refusal;
    let (tactic, remedy) = (tactic.name(), refusal.remedy());
    if text.is_empty() {
        format!("{tactic} ({reason}: {remedy})")
    } else {
        format!("{tactic} ({reason}: {text}; {remedy})")
    }
}

#[cfg(test)]
mod tests {
    use super::super::Verdict;
    use super::*;
    use crate::sources::probes::load_error::LoadError;
    use crate::sources::probes::tactics::Tactic;

    #[test]
    fn a_probe_says_its_row_and_why_not_a_better_one() {
        let mut choice = Choice {
            probe: Probe::Ioctl,
            tactic: Some(Tactic::TracefsKprobe),
            refused: Vec::new(),
            without: vec!["uvm_unlocked_ioctl_entry"],
        };
        let said = check(&choice);
        let want = "attached as tracefs_kprobe; this driver has no uvm_unlocked_ioctl_entry";
        assert_eq!(
            (said.name.as_ref(), said.verdict, said.what.as_str()),
            ("probe ioctl", Verdict::Yes, want)
        );
        choice.without.clear();
        choice.refused = vec![
            Refusal::by_facts(Tactic::TracefsKprobe, "no_kprobes"),
            Refusal::by_kernel(Tactic::PerfKprobe, &LoadError::Missing("kp_ioctl")),
        ];
        choice.tactic = Some(Tactic::SyscallTracepoint);
        let what = check(&choice).what;
        let first = "attached as syscall_tracepoint; refused: tracefs_kprobe (no_kprobes: run a kernel built with \
                     CONFIG_KPROBE_EVENTS); perf_kprobe (not_built: ";
        assert!(what.starts_with(first) && what.contains("no kp_ioctl"), "{what}");
        choice.tactic = None;
        choice.refused.push(Refusal::by_facts(Tactic::SyscallTracepoint, "release_after_close"));
        let said = check(&choice);
        assert_eq!((said.verdict, said.remedy.contains("6.6")), (Verdict::No, true), "{said:?}");
        choice.probe = Probe::InitAdapter;
        let what = check(&choice).what;
        assert!(what.ends_with("; the time it takes is seen in that of `open`"), "{what}");
    }
}
