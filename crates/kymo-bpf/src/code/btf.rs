//! BTF of a program: its functions and the text of its lines, for the verifier's messages
//! and for callbacks, which the kernel takes only with a function's type.

use std::collections::HashMap;

/// Writer of a BTF blob (little-endian machines).
pub(crate) struct BtfWriter {
    types: Vec<u8>,
    count: u32,
    strings: Vec<u8>,
    known: HashMap<String, u32>,
}

const KIND_INT: u32 = 1;
const KIND_FUNC: u32 = 12;
const KIND_FUNC_PROTO: u32 = 13;

impl BtfWriter {
    /// With the types that all functions share: 1 is `int`.
    pub(crate) fn new() -> BtfWriter {
        let mut writer =
            BtfWriter { types: Vec::new(), count: 0, strings: vec![0], known: HashMap::new() };
        let name = writer.text("int");
        writer.header(name, KIND_INT, 0, 8);
        // Signed, 64 bits.
        writer.types.extend((1u32 << 24 | 64).to_le_bytes());
        writer
    }

    /// Offset of a string.
    pub(crate) fn text(&mut self, text: &str) -> u32 {
        if let Some(at) = self.known.get(text) {
            return *at;
        }
        let at = self.strings.len() as u32;
        self.strings.extend(text.bytes().filter(|b| *b != 0));
        self.strings.push(0);
        self.known.insert(text.to_owned(), at);
        at
    }

    fn header(&mut self, name: u32, kind: u32, info: u32, size_or_type: u32) -> u32 {
        self.types.extend(name.to_le_bytes());
        self.types.extend((kind << 24 | info).to_le_bytes());
        self.types.extend(size_or_type.to_le_bytes());
        self.count += 1;
        self.count
    }

    /// A static function of integers; its type id.
    pub(crate) fn function(&mut self, name: &str, parameters: u32) -> u32 {
        let proto = self.header(0, KIND_FUNC_PROTO, parameters, 1);
        for n in 0..parameters {
            let name = self.text(&format!("a{n}"));
            self.types.extend(name.to_le_bytes());
            self.types.extend(1u32.to_le_bytes());
        }
        let name = self.text(name);
        self.header(name, KIND_FUNC, 0, proto)
    }

    /// The blob.
    pub(crate) fn finish(&self) -> Vec<u8> {
        let mut out = Vec::new();
        out.extend(0xeb9fu16.to_le_bytes());
        out.extend([1, 0]);
        let (types, strings) = (self.types.len() as u32, self.strings.len() as u32);
        for word in [24, 0, types, types, strings] {
            out.extend(word.to_le_bytes());
        }
        out.extend(&self.types);
        out.extend(&self.strings);
        out
    }
}
