//! Who has the driver: the worker, or nobody of ours, so that it can be unloaded.
//!
//! In: releases and takes by the control socket, the unload watch and DCGM's bind event. Out: a [`Hold`] that the worker
//! source follows; [`AutoTake`], which ends a release that nobody will end by hand. Both pure but for the clock.
//! A release by hand outlasts the agent: it is kept as a file. What can go wrong: somebody releases and never takes
//! again; the state says since when and why. The file cannot be written: it is said, and the release holds until the end.

use std::ffi::OsString;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tracing::{info, warn};

use crate::host::state_dir::{StateDir, StateDirError};
use crate::host::{HostRoot, mono_now};
use crate::model::MonoNs;

/// How long an automatic release lasts while the driver's module stays loaded.
const BY_ITSELF: Duration = Duration::from_secs(30);

/// How long the driver's devices stay the same after one was bound or unbound, before it is used again.
const SETTLED: Duration = Duration::from_secs(2);

/// Devices that are looked at; a node has a few dozen at most.
const BOUND_MAX: usize = 1024;

/// The file that is there while the driver is released by hand.
const FILE: &str = "released";
/// Bytes of it that are read; it is only looked at whether it is there.
const FILE_MAX: u64 = 64;

/// Why the driver was let go of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// `warpgauge driver release`. Ends by `driver take` only.
    Manual,
    /// Somebody tried to unload the module.
    Unload,
    /// DCGM's bind event: a GPU is being given to or taken from the driver.
    Bind,
}

impl Reason {
    /// The word in messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Manual => "manual",
            Self::Unload => "unload",
            Self::Bind => "bind",
        }
    }

    /// Whether it ends without anybody's doing.
    pub fn is_automatic(self) -> bool {
        matches!(self, Self::Unload | Self::Bind)
    }
}

/// Who has the driver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hold {
    /// Since when, and why, no worker may touch the driver.
    pub released: Option<(Reason, MonoNs)>,
    /// A worker process lives: it may have the driver open.
    pub worker: bool,
}

/// The state, shared. Cheap to clone; clones share.
#[derive(Clone, Debug)]
pub struct DriverHold {
    tx: Arc<watch::Sender<Hold>>,
    dir: Option<StateDir>,
}

impl Default for DriverHold {
    fn default() -> Self {
        Self { tx: Arc::new(watch::Sender::new(Hold::default())), dir: None }
    }
}

impl DriverHold {
    /// A state that is kept in `dir` over the agent's end; only a release by hand is.
    pub fn kept_in(dir: Option<&Path>) -> Self {
        let dir = dir.map(|dir| StateDir::new(dir.to_path_buf()));
        let kept = dir.as_ref().map(|dir| dir.read(FILE, FILE_MAX));
        let hold = Self { dir, ..Self::default() };
        match kept {
            Some(Ok(Some(_))) => {
                info!(
                    "The driver stays released, as an earlier agent was told; `warpgauge driver take` ends that."
                );
                hold.tx.send_modify(|hold| hold.released = Some((Reason::Manual, mono_now())));
            }
            // In a directory that is ours alone something stands for the release: to take the driver now could spoil
            // what an operator is about, and not to take it costs values, which is said.
            Some(Err(error @ StateDirError::File { .. })) => {
                warn!(
                    %error,
                    "The mark of a release by hand is not as this agent writes it: the driver stays released; \
                     `warpgauge driver take` ends that."
                );
                hold.tx.send_modify(|hold| hold.released = Some((Reason::Manual, mono_now())));
            }
            Some(Err(error)) => warn!(%error, "It is not known whether the driver was released by hand."),
            Some(Ok(None)) | None => {}
        }
        hold
    }

    fn keep(&self, what: impl FnOnce(&StateDir) -> Result<(), StateDirError>) {
        if let Some(Err(error)) = self.dir.as_ref().map(what) {
            warn!(%error, "Who has the driver is not kept for the next start of the agent.");
        }
    }

    /// The worker lets go of the driver, within 2 s or by force. A release by hand outlasts the automatic ones.
    pub fn release(&self, reason: Reason) {
        if reason == Reason::Manual {
            self.keep(|dir| dir.write(FILE, b"manual\n"));
        }
        let now = mono_now();
        self.tx.send_if_modified(|hold| {
            let released = match hold.released {
                None => (reason, now),
                // Somebody tries again: the time in which that may succeed begins anew.
                Some((before, _)) if before.is_automatic() && reason.is_automatic() => (before, now),
                Some((before, since)) if before.is_automatic() || !reason.is_automatic() => (reason, since),
                Some(stays) => stays,
            };
            hold.released.replace(released) != Some(released)
        });
    }

    /// The driver may be used again, whoever had it released.
    pub fn take(&self) {
        self.keep(|dir| dir.remove(FILE));
        self.tx.send_if_modified(|hold| hold.released.take().is_some());
    }

    /// The same, unless somebody released it for another reason meanwhile.
    pub fn take_after(&self, reason: Reason) {
        self.tx.send_if_modified(|hold| {
            let same = hold.released.is_some_and(|(why, _)| why == reason);
            if same {
                hold.released = None;
            }
            same
        });
    }

    /// A worker process was started, or the last one is gone.
    pub(crate) fn set_worker(&self, lives: bool) {
        self.tx.send_if_modified(|hold| std::mem::replace(&mut hold.worker, lives) != lives);
    }

    /// The state now.
    pub fn now(&self) -> Hold {
        *self.tx.borrow()
    }

    /// Follows the state.
    pub fn subscribe(&self) -> watch::Receiver<Hold> {
        self.tx.subscribe()
    }
}

/// What is seen of the driver while it is released.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Its module is loaded.
    pub module: bool,
    /// PCI addresses of the devices it has, in order; looked at only for [`Reason::Bind`].
    pub bound: Option<Vec<OsString>>,
}

impl Seen {
    /// Looks below /sys.
    pub fn look(host: &HostRoot, reason: Reason) -> Self {
        let bound = || {
            let devices = std::fs::read_dir(host.sys("bus/pci/drivers/nvidia")).ok()?;
            let names = devices.take(BOUND_MAX).filter_map(|entry| Some(entry.ok()?.file_name()));
            let mut bound: Vec<_> = names.filter(|name| name.as_encoded_bytes().contains(&b':')).collect();
            bound.sort_unstable();
            Some(bound)
        };
        let bound = (reason == Reason::Bind).then(bound).flatten();
        Self { module: host.sys("module/nvidia").exists(), bound }
    }
}

/// When an automatic release ends: the module was gone and is there again, a device was bound or unbound and that is
/// over, or none of it happened.
#[derive(Debug)]
pub struct AutoTake {
    began: MonoNs,
    was_gone: bool,
    /// The devices at first, those at the last look, and since when they are these.
    bound: Option<(Vec<OsString>, Vec<OsString>, MonoNs)>,
}

impl AutoTake {
    /// A release that began at `now`.
    pub fn new(now: MonoNs) -> Self {
        Self { began: now, was_gone: false, bound: None }
    }

    /// The release began anew, or did not.
    pub fn began_at(&mut self, began: MonoNs) {
        self.began = self.began.max(began);
    }

    /// Whether the driver is to be taken, given what is seen of it.
    pub fn look(&mut self, now: MonoNs, seen: Seen) -> bool {
        if !seen.module {
            self.was_gone = true;
            return false;
        }
        let over = seen.bound.is_some_and(|bound| self.is_bound_anew(now, bound));
        over || self.was_gone || now.since(self.began).is_some_and(|waited| waited >= BY_ITSELF)
    }

    /// Other devices than at first, and the same ones for a while: several may be moved one after the other.
    fn is_bound_anew(&mut self, now: MonoNs, bound: Vec<OsString>) -> bool {
        let (first, last, since) = self.bound.get_or_insert_with(|| (bound.clone(), bound.clone(), now));
        if *last != bound {
            (*last, *since) = (bound, now);
        }
        last != first && now.since(*since).is_some_and(|stable| stable >= SETTLED)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_dir::TestDir;

    #[test]
    fn a_release_by_hand_outlasts_the_automatic_ones() {
        let hold = DriverHold::default();
        let reason = || hold.now().released.map(|(reason, _)| reason);
        hold.release(Reason::Unload);
        hold.release(Reason::Bind);
        assert_eq!(reason(), Some(Reason::Unload), "the first automatic one stands");
        let mut follower = hold.subscribe();
        hold.release(Reason::Manual);
        assert!(follower.has_changed().unwrap());
        follower.mark_unchanged();
        hold.release(Reason::Unload);
        hold.take_after(Reason::Unload);
        assert_eq!((reason(), follower.has_changed().unwrap()), (Some(Reason::Manual), false));
        hold.take();
        assert_eq!(reason(), None);
        hold.set_worker(true);
        assert!(hold.now().worker);
    }

    #[test]
    fn only_a_release_by_hand_outlasts_the_agent() {
        let dir = TestDir::new();
        let run_dir = dir.path().join("run");
        let start = || DriverHold::kept_in(Some(&run_dir));
        let reason = || start().now().released.map(|(reason, _)| reason);
        assert_eq!(reason(), None, "no directory yet");
        for (release, want) in
            [(Reason::Unload, None), (Reason::Bind, None), (Reason::Manual, Some(Reason::Manual))]
        {
            start().release(release);
            assert_eq!(reason(), want, "{release:?}");
        }
        start().take();
        assert_eq!(reason(), None);
    }

    #[test]
    fn a_mark_that_is_odd_holds_and_can_be_taken_back() {
        let dir = TestDir::new();
        let run_dir = dir.path().join("run");
        let start = || DriverHold::kept_in(Some(&run_dir));
        let reason = || start().now().released.map(|(reason, _)| reason);
        start().release(Reason::Manual);
        start().take();
        let mark = run_dir.join(FILE);
        std::os::unix::fs::symlink("/etc/hostname", &mark).unwrap();
        assert_eq!(reason(), Some(Reason::Manual), "a link");
        start().take();
        assert_eq!(reason(), None);
        std::fs::create_dir(&mark).unwrap();
        assert_eq!(reason(), Some(Reason::Manual), "a directory");
        start().take();
        assert_eq!(reason(), None);
        std::fs::write(&mark, "x").unwrap();
        let open = |mode| std::os::unix::fs::PermissionsExt::from_mode(mode);
        std::fs::set_permissions(&run_dir, open(0o777)).unwrap();
        assert_eq!(reason(), None, "anybody could have put it there");
    }

    #[test]
    fn a_repeated_attempt_gets_all_of_its_time() {
        let hold = DriverHold::default();
        let since = || hold.now().released.map(|(_, since)| since).unwrap();
        hold.release(Reason::Unload);
        let first = since();
        hold.release(Reason::Unload);
        let second = since();
        assert!(first < second);
        hold.release(Reason::Manual);
        hold.release(Reason::Unload);
        assert_eq!(hold.now().released, Some((Reason::Manual, second)), "not by an automatic one");
        let s = |s: u64| MonoNs(s * 1_000_000_000);
        let mut auto = AutoTake::new(s(0));
        auto.began_at(s(20));
        let loaded = || Seen { module: true, bound: None };
        assert_eq!((auto.look(s(30), loaded()), auto.look(s(50), loaded())), (false, true));
    }

    #[test]
    fn an_automatic_release_ends_by_itself() {
        type Looks<'a> = &'a [(u64, bool)];
        let taken_at = |seen: Looks<'_>| {
            let mut auto = AutoTake::new(MonoNs(0));
            let s = |s: u64| MonoNs(s * 1_000_000_000);
            let look = |there: bool| Seen { module: there, bound: None };
            seen.iter().find(|(at, there)| auto.look(s(*at), look(*there))).map(|(at, _)| *at)
        };
        assert_eq!(taken_at(&[(1, true), (2, false), (3, false), (4, true)]), Some(4), "unloaded and loaded");
        assert_eq!(taken_at(&[(1, true), (29, true), (30, true)]), Some(30), "the unload did not happen");
        assert_eq!(taken_at(&[(1, false), (600, false)]), None, "nothing to take");
    }

    #[test]
    fn a_device_that_was_bound_ends_the_wait() {
        let taken_at = |seen: &[(u64, &str)]| {
            let mut auto = AutoTake::new(MonoNs(0));
            let look = |devices: &str| Seen {
                module: true,
                bound: Some(devices.split_terminator(' ').map(OsString::from).collect()),
            };
            let s = |s: u64| MonoNs(s * 1_000_000_000);
            seen.iter().find(|(at, devices)| auto.look(s(*at), look(devices))).map(|(at, _)| *at)
        };
        let (one, two, three) = ("0:1", "0:1 0:2", "0:1 0:2 0:3");
        assert_eq!(taken_at(&[(1, two), (2, one), (3, one), (4, one)]), Some(4), "unbound, and settled");
        assert_eq!(taken_at(&[(1, one), (2, two), (3, two), (4, three), (5, three), (6, three)]), Some(6));
        assert_eq!(taken_at(&[(1, two), (2, one), (3, two), (9, two)]), None, "as it was: it may go on");
        assert_eq!(taken_at(&[(1, two), (29, two), (30, two)]), Some(30), "nothing happened");
    }
}
