//! The driver's locks: who has one, and how a thread may want it.
//!
//! In: what the probes saw at the acquire and release functions. Out: [`LockHolders`] inside [`super::Signal`].
//! What can go wrong: a lock taken before the probes were there has no known holder; then there is none in the list.

use super::{Caller, MonoNs, Pid, Tid};

/// How a lock is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(missing_docs, reason = "the driver's functions")]
pub enum LockMode {
    Read,
    Write,
    Mutex,
    Semaphore,
}

impl LockMode {
    /// The word on the wire.
    pub fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Mutex => "mutex",
            Self::Semaphore => "semaphore",
        }
    }

    /// Whether nobody else may have it meanwhile.
    pub fn is_exclusive(self) -> bool {
        self != Self::Read
    }
}

/// Everybody who has a lock at one moment; replaces what was said of the lock before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockHolders {
    /// The lock's name, as in [`super::call::LockWait::lock`].
    pub lock: String,
    /// Its holders, the earliest first; empty where none is known.
    pub holders: Vec<Holder>,
}

/// A thread that has a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// Its process.
    pub pid: Pid,
    /// The thread.
    pub tid: Tid,
    /// What the probe knew of it.
    pub caller: Option<Caller>,
    /// When it took the lock.
    pub since: MonoNs,
    /// Nobody else can have it meanwhile.
    pub exclusive: bool,
}
