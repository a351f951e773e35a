//! Reading the shared types out of bytes: for aya's maps, and for events of the ring buffer.
//!
//! In: bytes the kernel programs wrote. Out: the types of this crate.
//! What can go wrong: an event of another length than expected; it is refused.

use crate::calls::{InFlight, InFlightKey, SlowCall};
use crate::event::{Event, KnownProcess};
use crate::histogram::{Histogram, HistogramKey};
use crate::ioctl_type::TypeSet;
use crate::lock::{Held, HeldKey};
use crate::prefix::Prefix;
use crate::rm::{RmKey, RmSum};
use crate::schedule::{Off, OffKey, OffSum};
use crate::unload::Unload;

macro_rules! pods {
    ($($name:ty),+) => {
        $(
            // SAFETY: `repr(C)`, built of integers and byte arrays only, and without padding (their sizes are
            // asserted to be the sums of their members): every bit pattern is a value, and every byte is one too.
            unsafe impl aya::Pod for $name {}
        )+
    };
}

pods!(InFlightKey, InFlight, HistogramKey, Histogram, Prefix, SlowCall, TypeSet, Unload);
pods!(Event, KnownProcess, Held, HeldKey, RmKey, RmSum, Off, OffKey, OffSum);

macro_rules! events {
    ($($name:ty),+) => {
        $(impl $name {
            /// An event as the ring buffer gives it; `None` if it has another length.
            pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
                if bytes.len() != size_of::<Self>() {
                    return None;
                }
                // SAFETY: the length was checked, the read does not need alignment, and every bit pattern is a value
                // (see `Pod` above).
                Some(unsafe { bytes.as_ptr().cast::<Self>().read_unaligned() })
            }
        })+
    };
}

events!(SlowCall, Unload, Event);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_of_another_length_are_refused() {
        let mut bytes = [0u8; size_of::<SlowCall>()];
        bytes[..4].copy_from_slice(&77u32.to_ne_bytes());
        assert_eq!(SlowCall::from_bytes(&bytes).map(|event| event.key.tid), Some(77));
        assert_eq!(SlowCall::from_bytes(&bytes[1..]), None);
        assert_eq!(SlowCall::from_bytes(&[]), None);
        assert_eq!(Unload::from_bytes(&bytes), None);
        let mut bytes = [0u8; size_of::<Unload>()];
        bytes[8..12].copy_from_slice(&78u32.to_ne_bytes());
        assert_eq!(Unload::from_bytes(&bytes).map(|event| event.tgid), Some(78));
    }
}
