//! The little of Protocol Buffers that writing needs: fields of numbers, texts and
//! messages. Zeros and empty texts are left out, as the format says.

/// A message being written.
#[derive(Debug, Default)]
pub(super) struct Message(pub(super) Vec<u8>);

impl Message {
    fn varint(&mut self, mut n: u64) {
        while n >= 0x80 {
            self.0.push(n as u8 | 0x80);
            n >>= 7;
        }
        self.0.push(n as u8);
    }

    fn key(&mut self, field: u32, wire: u32) {
        self.varint(u64::from(field << 3 | wire));
    }

    /// A number, unless it is zero.
    pub(super) fn number(&mut self, field: u32, n: u64) {
        if n != 0 {
            self.key(field, 0);
            self.varint(n);
        }
    }

    /// Bytes, also empty ones.
    pub(super) fn bytes(&mut self, field: u32, bytes: &[u8]) {
        self.key(field, 2);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    /// A message within.
    pub(super) fn message(&mut self, field: u32, fill: impl FnOnce(&mut Message)) {
        let mut inner = Message::default();
        fill(&mut inner);
        self.bytes(field, &inner.0);
    }

    /// Several numbers in one piece.
    pub(super) fn packed(&mut self, field: u32, numbers: impl Iterator<Item = u64>) {
        let mut inner = Message::default();
        numbers.for_each(|n| inner.varint(n));
        self.bytes(field, &inner.0);
    }
}

#[cfg(test)]
mod tests {
    use super::Message;

    #[test]
    fn bytes_are_as_the_formats_documentation_shows() {
        let mut m = Message::default();
        m.number(1, 150);
        m.bytes(2, b"testing");
        m.message(3, |m| m.number(1, 150));
        m.packed(6, [3, 270, 86942].into_iter());
        m.number(4, 0);
        let expected = [
            0x08, 0x96, 0x01, 0x12, 0x07, b't', b'e', b's', b't', b'i', b'n', b'g', 0x1a, 0x03,
            0x08, 0x96, 0x01, 0x32, 0x06, 0x03, 0x8e, 0x02, 0x9e, 0xa7, 0x05,
        ];
        assert_eq!(m.0, expected);
    }
}
