//! How far the kernel log has been delivered: the bridge between a collector's acknowledgement and the state file.
//!
//! In: sequence numbers that the kernel-log source reads, and those whose record is settled. Out: the number up to
//! which nothing is owed any more. Settled means acknowledged, printed, refused for good, or dropped and counted.
//! Nothing can go wrong; memory is bounded by the bound of the record queue, since only owed numbers are kept.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

/// Shared by the source that reads and the exporter that settles.
#[derive(Debug, Default)]
pub struct Delivery {
    inner: Mutex<Ledger>,
}

#[derive(Debug, Default)]
struct Ledger {
    /// Read, and a record of it is on its way.
    owed: BTreeSet<u64>,
    /// Highest number read.
    read: Option<u64>,
}

impl Delivery {
    /// The source read `seq`; with `owed`, a record of it will be settled later.
    pub fn read(&self, seq: u64, owed: bool) {
        let mut ledger = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        ledger.read = Some(ledger.read.map_or(seq, |before| before.max(seq)));
        if owed {
            ledger.owed.insert(seq);
        }
    }

    /// The record of `seq` needs no more sending.
    pub fn settle(&self, seq: u64) {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner).owed.remove(&seq);
    }

    /// The first number that must be read again after a restart; `None` before anything was read.
    pub fn resume_at(&self) -> Option<u64> {
        let ledger = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        ledger.owed.first().copied().or(ledger.read.map(|seq| seq.saturating_add(1)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resumes_at_the_first_record_that_is_still_owed() {
        let delivery = Delivery::default();
        assert_eq!(delivery.resume_at(), None);
        for (seq, owed) in [(10, false), (11, true), (12, false), (13, true)] {
            delivery.read(seq, owed);
        }
        assert_eq!(delivery.resume_at(), Some(11));
        delivery.settle(13);
        assert_eq!(delivery.resume_at(), Some(11), "settled out of order");
        delivery.settle(11);
        assert_eq!(delivery.resume_at(), Some(14));
    }
}
