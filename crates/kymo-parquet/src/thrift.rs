//! Thrift's compact protocol: structures as values by field number.

/// Levels of nested structures and lists.
const DEEPEST: u32 = 16;

/// Value of a field.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Thrift<'a> {
    Bool(bool),
    Int(i64),
    /// Real number; none of the fields that are read is one.
    Double,
    Bytes(&'a [u8]),
    List(Vec<Thrift<'a>>),
    Struct(Vec<(i16, Thrift<'a>)>),
}

impl<'a> Thrift<'a> {
    /// Field of a structure.
    pub(crate) fn field(&self, number: i16) -> Option<&Thrift<'a>> {
        let Thrift::Struct(fields) = self else { return None };
        fields.iter().find(|(n, _)| *n == number).map(|(_, value)| value)
    }

    /// Integer of a field.
    pub(crate) fn int(&self, number: i16) -> Option<i64> {
        match self.field(number)? {
            Thrift::Int(n) => Some(*n),
            _ => None,
        }
    }

    /// Size or offset of a field.
    pub(crate) fn size(&self, number: i16) -> Option<usize> {
        usize::try_from(self.int(number)?).ok()
    }

    /// Text of a field.
    pub(crate) fn text(&self, number: i16) -> Option<&'a str> {
        match self.field(number)? {
            Thrift::Bytes(bytes) => std::str::from_utf8(bytes).ok(),
            _ => None,
        }
    }

    /// Elements of a field.
    pub(crate) fn list(&self, number: i16) -> &[Thrift<'a>] {
        match self.field(number) {
            Some(Thrift::List(all)) => all,
            _ => &[],
        }
    }
}

/// Bytes that are read from the front.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ThriftReader<'a> {
    pub(crate) rest: &'a [u8],
}

impl<'a> ThriftReader<'a> {
    /// Reads a structure; `None` if the bytes are not one.
    pub(crate) fn structure(&mut self) -> Option<Thrift<'a>> {
        self.fields(DEEPEST)
    }

    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(*first)
    }

    fn bytes(&mut self, length: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.rest.split_at_checked(length)?;
        self.rest = rest;
        Some(bytes)
    }

    pub(crate) fn varint(&mut self) -> Option<u64> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f).checked_shl(shift)?;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    fn zigzag(&mut self) -> Option<i64> {
        let value = self.varint()?;
        Some((value >> 1).cast_signed() ^ -(value & 1).cast_signed())
    }

    fn fields(&mut self, depth: u32) -> Option<Thrift<'a>> {
        let mut fields = Vec::new();
        let mut number = 0i16;
        loop {
            let head = self.byte()?;
            let of = head & 0xf;
            if of == 0 {
                return Some(Thrift::Struct(fields));
            }
            number = match head >> 4 {
                0 => i16::try_from(self.zigzag()?).ok()?,
                step => number.checked_add(i16::from(step))?,
            };
            let value = match of {
                1 => Thrift::Bool(true),
                2 => Thrift::Bool(false),
                _ => self.value(of, depth)?,
            };
            fields.push((number, value));
        }
    }

    fn value(&mut self, of: u8, depth: u32) -> Option<Thrift<'a>> {
        let within = depth.checked_sub(1)?;
        Some(match of {
            1 | 2 => Thrift::Bool(self.byte()? == 1),
            3 => Thrift::Int(i64::from(self.byte()?.cast_signed())),
            4..=6 => Thrift::Int(self.zigzag()?),
            7 => {
                self.bytes(8)?;
                Thrift::Double
            }
            8 => {
                let length = usize::try_from(self.varint()?).ok()?;
                Thrift::Bytes(self.bytes(length)?)
            }
            9 | 10 => {
                let head = self.byte()?;
                let count = match head >> 4 {
                    15 => usize::try_from(self.varint()?).ok()?,
                    few => usize::from(few),
                };
                // Each element takes a byte at least.
                if count > self.rest.len() {
                    return None;
                }
                let mut all = Vec::new();
                for _ in 0..count {
                    all.push(self.value(head & 0xf, within)?);
                }
                Thrift::List(all)
            }
            12 => self.fields(within)?,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structures_are_read_by_field_number() {
        // 1: i32 150; 4 (by its number): "ab"; 5: list of i32 1, -1; 6: {1: true}; stop.
        let bytes =
            [0x15, 0xac, 0x02, 0x08, 0x08, 2, b'a', b'b', 0x19, 0x25, 2, 1, 0x1c, 0x11, 0, 0];
        let mut reader = ThriftReader { rest: &bytes };
        let value = reader.structure().unwrap();
        assert!(reader.rest.is_empty());
        assert_eq!((value.int(1), value.text(4)), (Some(150), Some("ab")));
        assert_eq!(value.list(5), [Thrift::Int(1), Thrift::Int(-1)]);
        assert_eq!(value.field(6).unwrap().field(1), Some(&Thrift::Bool(true)));
        for end in 0..bytes.len() {
            assert_eq!(ThriftReader { rest: &bytes[..end] }.structure(), None, "{end}");
        }
    }

    #[test]
    fn lying_sizes_and_depths_are_refused() {
        let list = [0x19, 0xf5, 0xff, 0xff, 0xff, 0xff, 0x7f, 0];
        assert_eq!(ThriftReader { rest: &list }.structure(), None);
        let deep = [0x1c; 4096];
        assert_eq!(ThriftReader { rest: &deep }.structure(), None);
    }
}
