//! Who has which lock, in a recording that tells when each thread gets one and lets it go.
//!
//! In: the edges of lock waits. Out: the list of holders that a live agent reads from the kernel: before a wait begins, and
//! whenever the holders change.
//! What can go wrong: a recording that leaves out a release: the thread has the lock until another one gets it.

use std::collections::BTreeMap;

use crate::model::{Call, CallKind, Edge, Holder, LockHolders, MonoNs, Signal};

/// Holders by the name of the lock.
#[derive(Debug, Default)]
pub(super) struct LockEdges {
    locks: BTreeMap<String, Vec<Holder>>,
}

impl LockEdges {
    /// Most locks that have holders at once, and most holders of one; more are left out.
    const LOCKS_MAX: usize = 4_096;
    const HOLDERS_MAX: usize = 64;

    /// Hands the signal on, with the list that it calls for.
    pub(super) fn push(&mut self, signal: Signal, push: &mut impl FnMut(Signal)) {
        let list = match &signal {
            Signal::Call { at, call } if call.kind == CallKind::Lock => self.edge(*at, call),
            _ => None,
        };
        let begins = matches!(&signal, Signal::Call { call, .. } if call.edge == Edge::Enter);
        // a victim's holder is known when the wait begins; who comes out of one has the lock from then on
        let (before, after) = if begins { (list, None) } else { (None, list) };
        before.into_iter().chain([signal]).chain(after).for_each(push);
    }

    fn edge(&mut self, at: MonoNs, call: &Call) -> Option<Signal> {
        let wait = call.lock.as_ref()?;
        match call.edge {
            Edge::Exit { lost: true, .. } => return None,
            Edge::Enter => {}
            Edge::Release => {
                if let Some(holders) = self.locks.get_mut(&wait.lock) {
                    holders.retain(|holder| holder.tid != call.tid);
                }
            }
            Edge::Exit { lost: false, .. } => {
                if self.locks.len() >= Self::LOCKS_MAX && !self.locks.contains_key(&wait.lock) {
                    return None;
                }
                let holders = self.locks.entry(wait.lock.clone()).or_default();
                // whoever had it otherwise has let it go: that was not seen
                holders.retain(|other| !wait.exclusive && !other.exclusive && other.tid != call.tid);
                if holders.len() < Self::HOLDERS_MAX {
                    let (caller, exclusive) = (call.caller.clone(), wait.exclusive);
                    holders.push(Holder { pid: call.pid, tid: call.tid, caller, since: at, exclusive });
                }
            }
        }
        let holders = self.locks.get(&wait.lock).cloned().unwrap_or_default();
        if holders.is_empty() {
            self.locks.remove(&wait.lock);
        }
        let holders = LockHolders { lock: wait.lock.clone(), holders };
        Some(Signal::LockHolders { at, holders: Box::new(holders) })
    }
}

#[cfg(test)]
mod tests {
    use super::super::line;
    use super::*;

    /// What is handed on for lines of thread, mode and edge, one a second: `call`, or the threads of a list.
    #[track_caller]
    fn check(lines: &[(u32, &str, &str)], want: &[&str]) {
        let (mut edges, mut told) = (LockEdges::default(), Vec::new());
        for (t, (tid, mode, edge)) in lines.iter().enumerate() {
            let text = format!(
                r#"{{"t":{t},"call":{{"pid":1,"tid":{tid},"layer":"lock","edge":"{edge}","lock":"L","mode":"{mode}"}}}}"#
            );
            edges.push(line::parse(&text).unwrap().unwrap(), &mut |signal| {
                told.push(match signal {
                    Signal::LockHolders { at, holders } => {
                        let tids: Vec<String> = holders.holders.iter().map(|h| h.tid.0.to_string()).collect();
                        assert_eq!((holders.lock.as_str(), at.replay_seconds()), ("L", t as f64));
                        tids.join(" ")
                    }
                    _ => "call".to_owned(),
                });
            });
        }
        assert_eq!(told, want, "{lines:?}");
        assert!(edges.locks.values().all(|holders| !holders.is_empty()), "{edges:?}");
    }

    #[test]
    fn who_came_out_of_the_wait_has_it_until_it_lets_go() {
        let (read, write) = ("read", "write");
        check(&[(11, write, "enter")], &["", "call"]);
        check(&[(11, write, "exit")], &["call", "11"]);
        check(&[(11, write, "exit"), (12, write, "enter")], &["call", "11", "11", "call"]);
        check(&[(11, write, "exit"), (11, write, "release")], &["call", "11", "call", ""]);
        check(&[(11, write, "exit"), (12, write, "release")], &["call", "11", "call", "11"]);
        check(&[(11, write, "exit"), (12, write, "exit")], &["call", "11", "call", "12"]);
        check(&[(11, read, "exit"), (12, read, "exit")], &["call", "11", "call", "11 12"]);
        check(&[(11, read, "exit"), (12, write, "exit")], &["call", "11", "call", "12"]);
        check(&[(11, write, "exit"), (12, read, "exit")], &["call", "11", "call", "12"]);
    }

    #[test]
    fn other_signals_pass() {
        let mut told = Vec::new();
        let exit = line::parse(r#"{"t":0,"exit":{"pid":7}}"#).unwrap().unwrap();
        LockEdges::default().push(exit, &mut |signal| told.push(signal));
        assert!(matches!(told[..], [Signal::Exit { .. }]), "{told:?}");
    }

    #[test]
    fn there_is_an_end_to_what_is_kept() {
        let mut edges = LockEdges::default();
        let text = r#"{"t":0,"call":{"pid":1,"layer":"lock","edge":"exit","lock":"L","mode":"write"}}"#;
        for n in 0..LockEdges::LOCKS_MAX + 3 {
            let line = text.replace("\"L\"", &format!("\"L{n}\""));
            edges.push(line::parse(&line).unwrap().unwrap(), &mut drop);
        }
        assert_eq!(edges.locks.len(), LockEdges::LOCKS_MAX);
        let read = text.replace("\"L\"", "\"L0\"").replace("write", "read");
        for tid in 0..LockEdges::HOLDERS_MAX + 3 {
            let line = read.replace("\"pid\":1", &format!("\"pid\":1,\"tid\":{tid}"));
            edges.push(line::parse(&line).unwrap().unwrap(), &mut drop);
        }
        assert_eq!(edges.locks["L0"].len(), LockEdges::HOLDERS_MAX);
    }
}
