//! Findings → one JSON object per line, as `run --replay --findings FILE` writes them.
//!
//! In: attributed findings, in any order. Out: lines ordered by time, device and event; times to a millisecond.
//! Deterministic: the same replay gives the same bytes. What can go wrong: the file cannot be written.

use std::io::{self, Write};

use serde::Serialize;

use crate::model::{
    Attributed, Fact, Finding, FindingKind, Holder, Known, Pid, Process, Severity, Stall, StallState, Status,
    Xid,
};

/// Collects findings until they are written.
#[derive(Debug, Default)]
pub struct Findings {
    lines: Vec<Line>,
}

impl Findings {
    /// Keeps the fact when it is a finding with a place in the file.
    pub fn push(&mut self, fact: &Attributed<Fact>) {
        if let Fact::Finding(finding) = &fact.item {
            self.lines.extend(line(finding, &fact.processes));
        }
    }

    /// Writes all lines.
    ///
    /// # Errors
    /// When `out` cannot be written.
    pub fn write(mut self, mut out: impl Write) -> io::Result<()> {
        self.lines.sort_by(|a, b| {
            a.t.total_cmp(&b.t).then_with(|| a.hw_id.cmp(&b.hw_id)).then_with(|| a.event.cmp(b.event))
        });
        for line in &self.lines {
            serde_json::to_writer(&mut out, line)?;
            out.write_all(b"\n")?;
        }
        out.flush()
    }
}

#[derive(Debug, Serialize)]
struct Line {
    t: f64,
    event: &'static str,
    id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    hw_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pci: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    begin: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    end: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cause: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<&'static str>,
    severity: &'static str,
    victims: Vec<VictimOut>,
    #[serde(skip_serializing_if = "Option::is_none")]
    holder: Option<VictimOut>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lock: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    evidence: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    confidence: Option<&'static str>,
}

#[derive(Debug, Serialize)]
struct VictimOut {
    pid: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    tid: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    comm: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    container_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pod_uid: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pod: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    namespace: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    unknown: Option<&'static str>,
}

fn line(finding: &Finding, processes: &[(Pid, Known<Process>)]) -> Option<Line> {
    match &finding.kind {
        FindingKind::Stall(stall) => stall_line(finding, stall, processes),
        FindingKind::Xid(xid) => Some(xid_line(finding, xid, processes)),
        FindingKind::Status(status) => Some(status_line(finding, status)),
    }
}

fn stall_line(finding: &Finding, stall: &Stall, processes: &[(Pid, Known<Process>)]) -> Option<Line> {
    let (event, end, state) = match stall.state {
        StallState::Begin => ("stall.begin", None, None),
        StallState::Update => return None,
        StallState::End => ("stall.end", Some(stall.begin.after(stall.duration)), None),
        StallState::Unobserved => ("stall.end", Some(stall.begin.after(stall.duration)), Some("unobserved")),
    };
    let tids = stall.victims.iter().map(|v| Some(v.tid.0));
    Some(Line {
        t: finding.at.replay_seconds(),
        event,
        id: finding.id.clone(),
        hw_id: stall.hw_id.clone(),
        pci: None,
        begin: Some(stall.begin.replay_seconds()),
        end: end.map(|end| end.replay_seconds()),
        cause: Some(stall.cause.name()),
        code: None,
        state,
        severity: severity(finding.severity),
        victims: processes.iter().zip(tids).map(|((pid, known), tid)| victim(*pid, tid, known)).collect(),
        holder: stall.holder.as_ref().map(|who| holder(who, processes)),
        lock: stall.lock.as_ref().map(|wait| wait.lock.clone()),
        evidence: stall.evidence.clone(),
        confidence: Some(stall.confidence.name()),
    })
}

fn xid_line(finding: &Finding, xid: &Xid, processes: &[(Pid, Known<Process>)]) -> Line {
    Line {
        t: finding.at.replay_seconds(),
        event: "xid",
        id: finding.id.clone(),
        hw_id: xid.hw_id.clone(),
        pci: xid.pci.map(|pci| pci.to_string()),
        begin: None,
        end: None,
        cause: None,
        code: Some(xid.code),
        state: None,
        severity: severity(finding.severity),
        victims: processes.iter().map(|(pid, known)| victim(*pid, None, known)).collect(),
        holder: None,
        lock: None,
        evidence: vec![xid.line.raw.clone()],
        confidence: None,
    }
}

fn status_line(finding: &Finding, status: &Status) -> Line {
    let source = status.source.map(|source| format!("source {source}"));
    let reason = status.reason.as_ref().map(|reason| format!("reason {reason}"));
    let call = status.call.as_ref().map(|call| format!("call {call}"));
    Line {
        t: finding.at.replay_seconds(),
        event: "status",
        id: finding.id.clone(),
        hw_id: status.hw_id.clone(),
        pci: None,
        begin: Some(status.since.replay_seconds()),
        end: status.end.map(|end| end.replay_seconds()),
        cause: None,
        code: None,
        state: Some(status.state.name()),
        severity: severity(finding.severity),
        victims: Vec::new(),
        holder: None,
        lock: None,
        evidence: [source, reason, call].into_iter().flatten().collect(),
        confidence: None,
    }
}

fn severity(severity: Severity) -> &'static str {
    match severity {
        Severity::Info => "info",
        Severity::Warn => "warning",
        Severity::Error => "error",
        Severity::Fatal => "critical",
    }
}

fn holder(holder: &Holder, processes: &[(Pid, Known<Process>)]) -> VictimOut {
    // behind the victims, so that its own thread's answer is found even where it is of a victim's process
    let known = processes.iter().rfind(|(pid, _)| *pid == holder.pid).map(|(_, known)| known);
    victim(holder.pid, Some(holder.tid.0), known.unwrap_or(&Known::NotAsked))
}

fn victim(pid: Pid, tid: Option<u32>, known: &Known<Process>) -> VictimOut {
    let process = known.is();
    VictimOut {
        pid: pid.0,
        tid,
        comm: process.and_then(|p| p.comm.clone()),
        container_id: process.and_then(|p| p.workload.container_id.clone()),
        pod_uid: process.and_then(|p| p.workload.pod_uid.clone()),
        pod: process.and_then(|p| p.workload.pod.clone()),
        namespace: process.and_then(|p| p.workload.namespace.clone()),
        unknown: known.reason(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::export::samples;

    #[test]
    fn victims_and_holders_have_their_pod() {
        let named = samples::named(samples::lock_stall());
        let processes = named.processes;
        let mut findings = Findings::default();
        findings.push(&Attributed { item: Fact::Finding(Box::new(named.item)), processes });
        let mut out = Vec::new();
        findings.write(&mut out).unwrap();
        let line: serde_json::Value = serde_json::from_slice(&out).unwrap();
        let who = |who: &serde_json::Value| {
            let get = |name: &str| who[name].as_str().unwrap_or("-").to_owned();
            format!("{} {} {}", get("pod_uid"), get("namespace"), get("pod"))
        };
        assert_eq!(who(&line["victims"][0]), "6f1c ml train-0");
        assert_eq!(who(&line["holder"]), "7a2d ml probe-7");
    }
}
