//! Frames: four bytes of length (little-endian), then one protobuf message.
//!
//! In: messages, or bytes in any pieces. Out: bytes, or messages. A pure core; the sockets are elsewhere.
//! What can go wrong: a length beyond [`FRAME_MAX`], or bytes that are no message; both end the connection.

use prost::Message;

/// Longest message. The largest real one, an inventory of 8 GPUs with 56 MIG instances, has about 40 KiB.
pub const FRAME_MAX: usize = 1 << 20;
/// Bytes before each message.
const HEADER: usize = 4;

/// What is wrong with a frame.
#[derive(Debug, thiserror::Error, PartialEq)]
pub enum FrameError {
    /// Longer than allowed.
    #[error("a frame of {0} bytes; at most {FRAME_MAX} are allowed")]
    TooLong(usize),
    /// Not a message of the expected type.
    #[error("a frame that is no message: {0}")]
    NotAMessage(#[from] prost::DecodeError),
}

/// Appends `message` as a frame.
///
/// # Errors
/// [`FrameError::TooLong`]; nothing was appended.
pub fn encode(message: &impl Message, out: &mut Vec<u8>) -> Result<(), FrameError> {
    let length = message.encoded_len();
    let header = u32::try_from(length).ok().filter(|_| length <= FRAME_MAX);
    let header = header.ok_or(FrameError::TooLong(length))?;
    out.reserve(HEADER + length);
    out.extend_from_slice(&header.to_le_bytes());
    message.encode_raw(out);
    Ok(())
}

/// Takes frames out of a stream of bytes.
#[derive(Debug, Default)]
pub struct Decoder {
    buffer: Vec<u8>,
    /// Bytes at the front that were taken already.
    taken: usize,
}

impl Decoder {
    /// Adds what was read.
    pub fn push(&mut self, bytes: &[u8]) {
        if self.taken > 0 {
            self.buffer.drain(..self.taken);
            self.taken = 0;
        }
        self.buffer.extend_from_slice(bytes);
    }

    /// The next message, once all of it is here.
    ///
    /// # Errors
    /// [`FrameError`]: the stream is of no use any more.
    pub fn take<M: Message + Default>(&mut self) -> Result<Option<M>, FrameError> {
        let rest = self.buffer.get(self.taken..).unwrap_or_default();
        let Some((header, body)) = rest.split_first_chunk::<HEADER>() else { return Ok(None) };
        let length = usize::try_from(u32::from_le_bytes(*header)).unwrap_or(usize::MAX);
        if length > FRAME_MAX {
            return Err(FrameError::TooLong(length));
        }
        let Some(message) = body.get(..length) else { return Ok(None) };
        let message = M::decode(message)?;
        self.taken += HEADER + length;
        Ok(Some(message))
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Order, Report, order, report};
    use super::*;

    #[test]
    fn messages_come_out_as_they_went_in_whatever_the_pieces() {
        let orders = [
            Order { kind: Some(order::Kind::Pause(order::Request { id: 1, until_ns: 7 })) },
            Order { kind: Some(order::Kind::Fields(order::Request { id: u64::MAX, until_ns: u64::MAX })) },
            Order::default(),
        ];
        let mut bytes = Vec::new();
        orders.iter().for_each(|order| encode(order, &mut bytes).unwrap());
        for piece in 1..bytes.len() {
            let (mut decoder, mut got) = (Decoder::default(), Vec::new());
            for chunk in bytes.chunks(piece) {
                decoder.push(chunk);
                while let Some(order) = decoder.take::<Order>().unwrap() {
                    got.push(order);
                }
            }
            assert_eq!(got, orders, "pieces of {piece}");
        }
    }

    #[test]
    fn a_length_beyond_the_limit_is_refused_before_anything_is_kept() {
        let mut decoder = Decoder::default();
        decoder.push(&u32::MAX.to_le_bytes());
        assert_eq!(decoder.take::<Report>(), Err(FrameError::TooLong(u32::MAX as usize)));
        let text = "x".repeat(FRAME_MAX + 1);
        let hello = report::Hello { version: text, ..report::Hello::default() };
        let mut out = Vec::new();
        let big = Report { kind: Some(report::Kind::Hello(hello)) };
        assert!(matches!(encode(&big, &mut out), Err(FrameError::TooLong(_))));
        assert!(out.is_empty());
    }

    #[test]
    fn garbage_is_no_message() {
        let mut decoder = Decoder::default();
        decoder.push(&[3, 0, 0, 0, 0xff, 0xff, 0xff]);
        assert!(matches!(decoder.take::<Report>(), Err(FrameError::NotAMessage(_))));
    }
}
