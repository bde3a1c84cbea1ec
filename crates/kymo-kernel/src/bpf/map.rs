//! BPF maps: creating them, and reading and writing their entries.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use super::{BpfCommand, BpfError, bpf, bpf_fd, object_name};

/// A map to create.
#[derive(Clone, Debug)]
pub struct MapSpec<'a> {
    /// Name; what the kernel does not take in names is left out.
    pub name: &'a str,
    /// `BPF_MAP_TYPE_*`.
    pub map_type: u32,
    /// Bytes of a key.
    pub key_size: u32,
    /// Bytes of a value (on one CPU).
    pub value_size: u32,
    /// Entries, or bytes of a ring buffer.
    pub max_entries: u32,
    /// `BPF_F_*`.
    pub flags: u32,
    /// Number of values per entry: the possible CPUs, for per-CPU maps; else 1.
    pub values: u32,
    /// Template of the inner maps of a map of maps.
    pub inner: Option<&'a BpfMap>,
}

/// A map of the kernel.
#[derive(Debug)]
pub struct BpfMap {
    fd: OwnedFd,
    key_size: usize,
    value_size: usize,
    max_entries: u32,
    attribute: CreateAttribute,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct CreateAttribute {
    map_type: u32,
    key_size: u32,
    value_size: u32,
    max_entries: u32,
    map_flags: u32,
    inner_map_fd: u32,
    numa_node: u32,
    map_name: [u8; 16],
}

#[repr(C)]
#[derive(Default)]
struct ElementAttribute {
    map_fd: u32,
    pad: u32,
    key: u64,
    value: u64,
    flags: u64,
}

#[repr(C)]
#[derive(Default)]
struct BatchAttribute {
    in_batch: u64,
    out_batch: u64,
    keys: u64,
    values: u64,
    count: u32,
    map_fd: u32,
    elem_flags: u64,
    flags: u64,
}

/// The kernel's own number for an operation that a map type lacks.
pub(super) const ENOTSUPP: i32 = 524;

/// Entries read by one call.
const BATCH: usize = 1024;

impl BpfMap {
    /// Creates a map.
    pub fn create(spec: &MapSpec<'_>) -> Result<BpfMap, BpfError> {
        let mut attribute = CreateAttribute {
            map_type: spec.map_type,
            key_size: spec.key_size,
            value_size: spec.value_size,
            max_entries: spec.max_entries,
            map_flags: spec.flags,
            inner_map_fd: spec.inner.map_or(0, |map| map.fd.as_raw_fd() as u32),
            map_name: object_name(spec.name),
            ..CreateAttribute::default()
        };
        // SAFETY: the attribute is of `BPF_MAP_CREATE`, four-byte fields without padding, and
        // holds no address.
        let fd = unsafe { bpf_fd(BpfCommand::MapCreate, &mut attribute) }
            .map_err(|error| BpfError::new(format!("create map {}", spec.name), error))?;
        // The kernel lays values of several CPUs out at multiples of 8 bytes.
        let value_size = match spec.values {
            0 | 1 => spec.value_size as usize,
            cpus => (spec.value_size as usize).next_multiple_of(8) * cpus as usize,
        };
        Ok(BpfMap {
            fd,
            key_size: spec.key_size as usize,
            value_size,
            max_entries: spec.max_entries,
            attribute,
        })
    }

    /// A map like this one, without entries.
    pub fn create_alike(&self) -> io::Result<BpfMap> {
        let mut attribute = self.attribute;
        // SAFETY: the attribute is of `BPF_MAP_CREATE`, as in `create`, and holds no address.
        let fd = unsafe { bpf_fd(BpfCommand::MapCreate, &mut attribute) }?;
        Ok(BpfMap { fd, ..*self })
    }

    /// Sets the only entry of an array of maps. When this returns, no program uses the map any
    /// more that was there (Linux waits for those that run).
    pub fn hold(&self, map: &BpfMap) -> Result<(), BpfError> {
        let fd = map.fd.as_raw_fd() as u32;
        self.update(&0u32.to_ne_bytes(), &fd.to_ne_bytes())
            .map_err(|error| BpfError::new("exchange a map", error))
    }

    /// Bytes of an entry's value: of all CPUs, one after the other at multiples of 8 bytes.
    pub fn value_size(&self) -> usize {
        self.value_size
    }

    /// Value of a key; `None` if it has none.
    pub fn lookup(&self, key: &[u8]) -> io::Result<Option<Vec<u8>>> {
        let mut value = vec![0u8; self.value_size];
        Ok(self.lookup_into(key, &mut value)?.then_some(value))
    }

    fn lookup_into(&self, key: &[u8], value: &mut [u8]) -> io::Result<bool> {
        self.check(key, value.len())?;
        let mut attribute = self.element(key, value.as_mut_ptr() as u64, 0);
        // SAFETY: key and value have the sizes of the map's (checked), and outlive the call.
        match unsafe { bpf(BpfCommand::MapLookup, &mut attribute) } {
            Ok(_) => Ok(true),
            Err(e) if e.raw_os_error() == Some(libc::ENOENT) => Ok(false),
            Err(e) => Err(e),
        }
    }

    /// Sets the value of a key.
    pub fn update(&self, key: &[u8], value: &[u8]) -> io::Result<()> {
        self.update_with(key, value, 0)
    }

    /// Sets the value of a key that is not there; one that is keeps its value.
    pub fn insert(&self, key: &[u8], value: &[u8]) -> io::Result<()> {
        /// `BPF_NOEXIST`
        const NO_EXIST: u64 = 1;
        match self.update_with(key, value, NO_EXIST) {
            Err(e) if e.raw_os_error() == Some(libc::EEXIST) => Ok(()),
            done => done,
        }
    }

    fn update_with(&self, key: &[u8], value: &[u8], flags: u64) -> io::Result<()> {
        self.check(key, value.len())?;
        let mut attribute = self.element(key, value.as_ptr() as u64, flags);
        // SAFETY: key and value have the sizes of the map's (checked), are only read, and
        // outlive the call.
        unsafe { bpf(BpfCommand::MapUpdate, &mut attribute) }.map(drop)
    }

    /// Deletes a key; one that is not there is no error.
    pub fn delete(&self, key: &[u8]) -> io::Result<()> {
        self.check(key, self.value_size)?;
        let mut attribute = self.element(key, 0, 0);
        // SAFETY: the key has the size of the map's (checked) and outlives the call.
        match unsafe { bpf(BpfCommand::MapDelete, &mut attribute) } {
            Err(e) if e.raw_os_error() != Some(libc::ENOENT) => Err(e),
            _ => Ok(()),
        }
    }

    /// All entries: keys and values one after the other. Entries that come or go meanwhile may be
    /// among them or not; none is duplicate.
    pub fn entries(&self) -> io::Result<Vec<(Vec<u8>, Vec<u8>)>> {
        match self.entries_by_batch() {
            Err(e) if matches!(e.raw_os_error(), Some(libc::EINVAL | ENOTSUPP)) => {
                self.entries_one_by_one()
            }
            read => read,
        }
    }

    fn entries_by_batch(&self) -> io::Result<Vec<(Vec<u8>, Vec<u8>)>> {
        let mut room = BATCH.min(self.max_entries as usize).max(1);
        let mut found = Vec::new();
        // Start of the next call: a bucket's number in hashes, a key in arrays.
        let mut position = vec![0u8; self.key_size.max(8)];
        let mut is_first = true;
        loop {
            let mut keys = vec![0u8; self.key_size * room];
            let mut values = vec![0u8; self.value_size * room];
            let mut next = vec![0u8; position.len()];
            let mut attribute = BatchAttribute {
                in_batch: if is_first { 0 } else { position.as_ptr() as u64 },
                out_batch: next.as_mut_ptr() as u64,
                keys: keys.as_mut_ptr() as u64,
                values: values.as_mut_ptr() as u64,
                count: room as u32,
                map_fd: self.fd.as_raw_fd() as u32,
                ..BatchAttribute::default()
            };
            // SAFETY: there is room for `count` keys and values, and for a position: the kernel
            // writes a key or four bytes. All of it outlives the call.
            let done = unsafe { bpf(BpfCommand::MapLookupBatch, &mut attribute) };
            let is_end = match done {
                Ok(_) => false,
                Err(e) if e.raw_os_error() == Some(libc::ENOENT) => true,
                // A bucket with more entries than there is room for.
                Err(e) if e.raw_os_error() == Some(libc::ENOSPC) && room < 1 << 20 => {
                    room *= 4;
                    continue;
                }
                Err(e) => return Err(e),
            };
            let count = (attribute.count as usize).min(room);
            let keys = keys.chunks_exact(self.key_size.max(1));
            let values = values.chunks_exact(self.value_size.max(1));
            found.extend(keys.zip(values).take(count).map(|(k, v)| (k.to_vec(), v.to_vec())));
            if is_end || count == 0 {
                return Ok(found);
            }
            position = next;
            is_first = false;
        }
    }

    fn entries_one_by_one(&self) -> io::Result<Vec<(Vec<u8>, Vec<u8>)>> {
        let mut found = Vec::new();
        let mut last: Option<Vec<u8>> = None;
        // A key that was deleted meanwhile makes the kernel begin again: bounded.
        for _ in 0..u64::from(self.max_entries) * 2 + 16 {
            let Some(key) = self.next_key(last.as_deref())? else { break };
            if let Some(value) = self.lookup(&key)? {
                found.push((key.clone(), value));
            }
            last = Some(key);
        }
        found.sort();
        found.dedup_by(|a, b| a.0 == b.0);
        Ok(found)
    }

    fn next_key(&self, key: Option<&[u8]>) -> io::Result<Option<Vec<u8>>> {
        let mut next = vec![0u8; self.key_size];
        let mut attribute = ElementAttribute {
            map_fd: self.fd.as_raw_fd() as u32,
            key: key.map_or(0, |key| key.as_ptr() as u64),
            value: next.as_mut_ptr() as u64,
            ..ElementAttribute::default()
        };
        // SAFETY: both keys have the map's size (the first came from here) and outlive the call.
        match unsafe { bpf(BpfCommand::MapNextKey, &mut attribute) } {
            Ok(_) => Ok(Some(next)),
            Err(e) if e.raw_os_error() == Some(libc::ENOENT) => Ok(None),
            Err(e) => Err(e),
        }
    }

    fn element(&self, key: &[u8], value: u64, flags: u64) -> ElementAttribute {
        let map_fd = self.fd.as_raw_fd() as u32;
        ElementAttribute { map_fd, pad: 0, key: key.as_ptr() as u64, value, flags }
    }

    fn check(&self, key: &[u8], value: usize) -> io::Result<()> {
        if key.len() == self.key_size && value == self.value_size {
            return Ok(());
        }
        let message = format!(
            "key of {} and value of {value} bytes for a map of {} and {}",
            key.len(),
            self.key_size,
            self.value_size
        );
        Err(io::Error::new(io::ErrorKind::InvalidInput, message))
    }
}

impl AsFd for BpfMap {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
