//! As much of the wire format of protocol buffers as a profile needs: varints, and fields with a length.

/// A message that is being written.
#[derive(Debug, Default)]
pub(super) struct Message(Vec<u8>);

impl Message {
    /// A number; 0 is what a field has that is not there.
    pub(super) fn number(&mut self, field: u32, value: u64) -> &mut Message {
        if value != 0 {
            varint(&mut self.0, u64::from(field) << 3);
            varint(&mut self.0, value);
        }
        self
    }

    /// Numbers, one after the other.
    pub(super) fn packed(&mut self, field: u32, values: impl IntoIterator<Item = u64>) -> &mut Message {
        let mut all = Vec::new();
        values.into_iter().for_each(|v| varint(&mut all, v));
        if all.is_empty() { self } else { self.bytes(field, &all) }
    }

    /// A text.
    pub(super) fn text(&mut self, field: u32, text: &str) -> &mut Message {
        self.bytes(field, text.as_bytes())
    }

    /// A message within this one.
    pub(super) fn message(&mut self, field: u32, inner: &Message) -> &mut Message {
        self.bytes(field, &inner.0)
    }

    /// All of it.
    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.0
    }

    fn bytes(&mut self, field: u32, bytes: &[u8]) -> &mut Message {
        varint(&mut self.0, u64::from(field) << 3 | 2);
        varint(&mut self.0, bytes.len() as u64);
        self.0.extend_from_slice(bytes);
        self
    }
}

fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The examples of the format's own description.
    #[test]
    fn numbers_texts_and_messages_are_written_as_others_read_them() {
        let mut m = Message::default();
        m.number(1, 150).number(9, 0);
        assert_eq!(m.0, [0x08, 0x96, 0x01]);
        let mut outer = Message::default();
        outer.text(2, "testing").message(3, &m);
        assert_eq!(outer.0, b"\x12\x07testing\x1a\x03\x08\x96\x01");
        let mut packed = Message::default();
        packed.packed(6, [3, 270, 86942]).packed(7, []);
        assert_eq!(packed.into_bytes(), [0x32, 0x06, 0x03, 0x8e, 0x02, 0x9e, 0xa7, 0x05]);
    }
}
