//! The queue of log records that wait for the collector.
//!
//! In: encoded records. Out: batches, oldest first; a batch leaves the queue only when it is settled.
//! What can go wrong: it is full, by number or by bytes; the oldest that is not on the wire makes room, and is given
//! back to be counted.

use std::collections::VecDeque;

/// One record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// An OTLP `LogRecord`, encoded.
    pub bytes: Vec<u8>,
    /// Its number in the kernel log: it can be read again from there.
    pub seq: Option<u64>,
    /// It came from the previous run's spool.
    pub reloaded: bool,
    /// It tells of the gap before this run.
    pub gap: bool,
}

/// How much may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Records.
    pub records: usize,
    /// Encoded bytes.
    pub bytes: usize,
}

/// The queue.
#[derive(Debug)]
pub struct Queue {
    items: VecDeque<Item>,
    on_wire: usize,
    bytes: usize,
    bounds: Bounds,
}

impl Queue {
    /// An empty queue.
    pub fn new(bounds: Bounds) -> Self {
        Self { items: VecDeque::new(), on_wire: 0, bytes: 0, bounds }
    }

    /// Adds a record, and returns those that had to make room, which may be the record itself.
    pub fn push(&mut self, item: Item) -> Vec<Item> {
        self.bytes += item.bytes.len();
        self.items.push_back(item);
        let mut dropped = Vec::new();
        while self.items.len() > self.bounds.records || self.bytes > self.bounds.bytes {
            let Some(oldest) = self.items.remove(self.on_wire) else { break };
            self.bytes -= oldest.bytes.len();
            dropped.push(oldest);
        }
        dropped
    }

    /// The oldest records, as many as fit; they are on the wire until [`Self::settle`] or [`Self::give_back`].
    pub fn take(&mut self, most: Bounds) -> Vec<&[u8]> {
        let mut bytes = 0;
        let fits = |item: &&Item| {
            bytes += item.bytes.len();
            bytes <= most.bytes
        };
        // At most half the queue: what is on the wire cannot make room for what is new.
        let records = most.records.min(self.bounds.records / 2);
        let fitting = self.items.iter().take(records).take_while(fits).count();
        // One that is too big alone must still leave.
        self.on_wire = fitting.max(1).min(self.items.len());
        self.items.iter().take(self.on_wire).map(|item| item.bytes.as_slice()).collect()
    }

    /// What is on the wire has an answer for good: it leaves the queue.
    pub fn settle(&mut self) -> Vec<Item> {
        let settled: Vec<Item> = self.items.drain(..self.on_wire.min(self.items.len())).collect();
        self.bytes -= settled.iter().map(|item| item.bytes.len()).sum::<usize>();
        self.on_wire = 0;
        settled
    }

    /// What is on the wire has no answer: it is sent again.
    pub fn give_back(&mut self) {
        self.on_wire = 0;
    }

    /// Empties the queue.
    pub fn drain(&mut self) -> Vec<Item> {
        (self.on_wire, self.bytes) = (0, 0);
        self.items.drain(..).collect()
    }

    /// Records that wait, with those on the wire.
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Nothing waits.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(seq: u64, size: usize) -> Item {
        Item { bytes: vec![seq as u8; size], seq: Some(seq), reloaded: false, gap: false }
    }

    fn seqs(items: &[Item]) -> Vec<u64> {
        items.iter().filter_map(|item| item.seq).collect()
    }

    const MOST: Bounds = Bounds { records: 2, bytes: 100 };

    #[test]
    fn the_oldest_that_is_not_on_the_wire_makes_room() {
        let mut queue = Queue::new(Bounds { records: 4, bytes: 100 });
        for seq in 0..4 {
            assert_eq!(queue.push(item(seq, 10)), vec![]);
        }
        assert_eq!(queue.take(Bounds { records: 9, bytes: 100 }).len(), 2, "half of it");
        assert_eq!(seqs(&queue.push(item(4, 10))), [2]);
        assert_eq!(seqs(&queue.settle()), [0, 1]);
        assert_eq!(seqs(&queue.push(item(5, 85))), [3], "105 bytes are too many");
        assert_eq!(seqs(&queue.push(item(6, 101))), [4, 5, 6], "too big for the whole queue");
        assert!(queue.is_empty() && queue.bytes == 0);
    }

    #[test]
    fn batches_keep_the_order_until_they_are_settled() {
        let mut queue = Queue::new(Bounds { records: 9, bytes: 1_000 });
        for (seq, size) in [(0, 60), (1, 60), (2, 300), (3, 1)] {
            queue.push(item(seq, size));
        }
        assert_eq!(queue.take(MOST).len(), 1, "two would be 120 bytes");
        queue.give_back();
        assert_eq!(queue.take(MOST).len(), 1);
        assert_eq!(seqs(&queue.settle()), [0]);
        queue.take(MOST);
        assert_eq!(seqs(&queue.settle()), [1]);
        queue.take(MOST);
        assert_eq!(seqs(&queue.settle()), [2], "too big alone, and leaves alone");
        assert_eq!((queue.len(), seqs(&queue.drain())), (1, vec![3]));
        assert_eq!(queue.take(MOST), Vec::<&[u8]>::new());
    }
}
