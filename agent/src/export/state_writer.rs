//! The thread that writes to the state directory: a disk that hangs holds up nobody else.
//!
//! In: writes, as closures. Out: they are done one after the other, in the order they were asked for.
//! Neither asking nor the end of the process waits for the thread. What can go wrong: the disk does not answer; then
//! what is asked for beyond a few writes is refused, and an answer is waited for until a deadline only.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};

use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

/// Writes that may wait: at the end of a run there are three.
const QUEUE: usize = 8;

type Write = Box<dyn FnOnce() + Send>;

/// Asks the thread. Cloning shares it.
#[derive(Clone, Debug)]
pub struct StateWriter {
    writes: SyncSender<Write>,
    pending: Arc<AtomicUsize>,
}

impl StateWriter {
    /// Starts the thread, which ends with the last clone.
    ///
    /// # Errors
    /// The system's, when it refuses a thread.
    pub fn start() -> io::Result<Self> {
        let (writes, queue) = sync_channel::<Write>(QUEUE);
        let pending = Arc::new(AtomicUsize::new(0));
        let done = Arc::clone(&pending);
        std::thread::Builder::new().name("state".into()).spawn(move || {
            while let Ok(write) = queue.recv() {
                write();
                done.fetch_sub(1, Ordering::Release);
            }
        })?;
        Ok(Self { writes, pending })
    }

    /// Nothing is being written, and nothing waits.
    pub fn idle(&self) -> bool {
        self.pending.load(Ordering::Acquire) == 0
    }

    /// Asks for a write; never waits. Returns whether it will be done.
    pub fn ask(&self, write: impl FnOnce() + Send + 'static) -> bool {
        self.pending.fetch_add(1, Ordering::AcqRel);
        let asked = self.writes.try_send(Box::new(write)).is_ok();
        if !asked {
            self.pending.fetch_sub(1, Ordering::AcqRel);
        }
        asked
    }

    /// Asks for a write and waits for it; `None` when it was not done by the deadline. It may still be done later.
    pub async fn answer<T: Send + 'static>(
        &self,
        deadline: Instant,
        write: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let (answer, answered) = oneshot::channel();
        // Whoever asked may have stopped waiting.
        let asked = self.ask(move || drop(answer.send(write())));
        if !asked {
            return None;
        }
        timeout_at(deadline, answered).await.ok()?.ok()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::mpsc::{Sender, channel};
    use std::time::Duration;

    use super::*;

    pub(crate) fn soon() -> Instant {
        Instant::now() + Duration::from_secs(20)
    }

    impl StateWriter {
        /// Everything that was asked for so far is done.
        pub(crate) async fn settled(&self) {
            self.answer(soon(), || ()).await.expect("the writes end");
            while !self.idle() {
                tokio::task::yield_now().await;
            }
        }

        /// A disk that does not answer until the sender is dropped.
        pub(crate) async fn freeze(&self) -> Sender<()> {
            let (thaw, frozen) = channel::<()>();
            let (begins, begun) = oneshot::channel();
            let write = move || {
                begins.send(()).unwrap();
                let _ = frozen.recv();
            };
            assert!(self.ask(write));
            begun.await.unwrap();
            thaw
        }
    }

    #[tokio::test]
    async fn writes_keep_their_order_and_a_frozen_disk_is_waited_for_until_the_deadline_only() {
        let writer = StateWriter::start().unwrap();
        let (note, notes) = channel();
        let write = |n: usize| {
            let note = note.clone();
            move || note.send(n).unwrap()
        };
        let thaw = writer.freeze().await;
        assert!(!writer.idle());
        let asked: Vec<bool> = (0..=QUEUE).map(|n| writer.ask(write(n))).collect();
        assert_eq!(asked, [[true; QUEUE].as_slice(), &[false]].concat(), "no room for the last");
        assert_eq!(writer.answer(Instant::now(), write(99)).await, None);
        drop(thaw);
        assert_eq!(
            (0..QUEUE).map(|_| notes.recv().unwrap()).collect::<Vec<_>>(),
            (0..QUEUE).collect::<Vec<_>>()
        );
        assert_eq!(writer.answer(soon(), || 7).await, Some(7));
        let thaw = writer.freeze().await;
        assert_eq!(writer.answer(Instant::now() + Duration::from_millis(20), || 7).await, None);
        drop(thaw);
        assert!(notes.try_recv().is_err(), "the refused ones are not done");
    }
}
