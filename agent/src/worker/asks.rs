//! What a collecting thread is asked, and until when somebody waits for it.
//!
//! In: asks, from the io thread. Out: the same, one after the other, in the collecting thread.
//! What can go wrong: the thread hangs in a call. Its queue is bounded, and what nobody waits for any more when it
//! comes back is left out: a pause that was refused must not begin a minute later.

use std::sync::mpsc::{Receiver, RecvError, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use crate::host::mono_now;
use crate::model::MonoNs;

/// What the agent may have asked of a thread that has not taken it yet.
const ASKS_MAX: usize = 64;

/// What a collecting thread is asked to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    /// Pause profiling, and answer with this id.
    Pause(u64),
    /// Resume profiling, and answer with this id.
    Resume(u64),
    /// Say which fields there are and what they give, under this id.
    Fields(u64),
    /// Let go of the library and return.
    End,
}

/// Where a collecting thread hears what it is asked.
#[derive(Debug)]
pub struct Asks(Receiver<(Ask, Option<MonoNs>)>);

/// Where it is asked.
#[derive(Clone, Debug)]
pub struct Asker(SyncSender<(Ask, Option<MonoNs>)>);

/// Both ends.
pub fn asks() -> (Asker, Asks) {
    let (tx, rx) = sync_channel(ASKS_MAX);
    (Asker(tx), Asks(rx))
}

impl Asker {
    /// Asks, never waiting; after `until` it is withdrawn. False: the thread takes nothing.
    pub fn ask(&self, ask: Ask, until: Option<MonoNs>) -> bool {
        self.0.try_send((ask, until)).is_ok()
    }
}

impl Asks {
    /// The next one, for at most a time.
    ///
    /// # Errors
    /// As of the channel.
    pub fn recv_timeout(&self, time: Duration) -> Result<Ask, RecvTimeoutError> {
        let end = Instant::now() + time;
        loop {
            let asked = self.0.recv_timeout(end.saturating_duration_since(Instant::now()))?;
            if let Some(ask) = waited_for(asked) {
                return Ok(ask);
            }
        }
    }

    /// The next one.
    ///
    /// # Errors
    /// Nobody can ask any more.
    pub fn recv(&self) -> Result<Ask, RecvError> {
        loop {
            if let Some(ask) = waited_for(self.0.recv()?) {
                return Ok(ask);
            }
        }
    }
}

fn waited_for((ask, until): (Ask, Option<MonoNs>)) -> Option<Ask> {
    until.is_none_or(|until| mono_now() < until).then_some(ask)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_waits_for_any_more_is_left_out() {
        let (asker, asks) = asks();
        let past = Some(MonoNs(1));
        let later = Some(mono_now().after(Duration::from_secs(60)));
        for (ask, until) in [
            (Ask::Pause(1), past),
            (Ask::Fields(2), later),
            (Ask::Resume(3), past),
            (Ask::End, None),
            (Ask::Pause(4), past),
        ] {
            assert!(asker.ask(ask, until));
        }
        assert_eq!(asks.recv_timeout(Duration::ZERO), Ok(Ask::Fields(2)));
        assert_eq!(asks.recv(), Ok(Ask::End));
        assert_eq!(asks.recv_timeout(Duration::ZERO), Err(RecvTimeoutError::Timeout));
        (0..ASKS_MAX).for_each(|_| assert!(asker.ask(Ask::End, None)));
        assert!(!asker.ask(Ask::End, None), "bounded");
    }
}
