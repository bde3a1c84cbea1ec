//! Kernel modules as distributions ship them: packed (`.ko.xz`, `.ko.zst`, `.ko.gz`). Binaries are
//! opened here; a packed module opens as the unpacked bytes, in memory of its own that is a file to
//! all callers (read by offset: later callers share the position). The last ones are kept for
//! further callers, by the identity of the packed file, so that one that was replaced is unpacked
//! again.

use std::fs::{File, Metadata};
use std::io::{self, BufReader, Error, ErrorKind, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use kymo_kernel::mapped::MappedFile;
use kymo_kernel::{descriptors, regular_file};

/// A module with its debugging information is at most this large.
const LARGEST: u64 = 1 << 30;
/// Modules shrink to a third or a fifth; what shrinks more than this is no module.
const RATIO: u64 = 64;
/// Small files may shrink more.
const ANYWAY: u64 = 1 << 20;
/// Unpacked bytes that are kept for the next who asks.
const KEPT: u64 = 256 << 20;
/// Memory for unpacking xz, in KiB: what `xz -9` needs.
const XZ_KIB: u32 = 80 << 10;

/// Compression of a module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Packing {
    Xz,
    Zstd,
    Gzip,
}

const PACKINGS: [(&str, Packing); 3] =
    [(".xz", Packing::Xz), (".zst", Packing::Zstd), (".gz", Packing::Gzip)];

/// A file's name without its packing, and the packing. Only modules are packed.
fn split(name: &str) -> Option<(&str, Packing)> {
    let packed = |(end, packing): (&str, Packing)| Some((name.strip_suffix(end)?, packing));
    let (plain, packing) = PACKINGS.into_iter().find_map(packed)?;
    let module = plain.ends_with(".ko") || plain.ends_with(".ko.debug");
    module.then_some((plain, packing))
}

/// The name of a module's file without its packing.
pub(crate) fn plain_name(name: &str) -> &str {
    split(name).map_or(name, |s| s.0)
}

/// Whether an error says that what was packed cannot be unpacked.
pub(crate) fn is_damage(error: &Error) -> bool {
    error.kind() == ErrorKind::InvalidData
}

/// Opens a regular file; anything else (a device, a FIFO) is not touched. Of a packed
/// module the unpacked bytes.
pub(crate) fn open(path: &Path) -> io::Result<File> {
    let name = path.file_name().and_then(|n| n.to_str());
    match name.and_then(split) {
        Some((_, packing)) => KEPT_FILES.open(path, packing),
        None => regular_file::open(path),
    }
}

/// Maps a regular file; of a packed module the unpacked bytes.
pub(crate) fn map(path: &Path) -> io::Result<MappedFile> {
    MappedFile::of(&open(path)?)
}

static KEPT_FILES: Kept = Kept(Mutex::new(Vec::new()));

/// The last unpacked files, the newest last.
struct Kept(Mutex<Vec<(Identity, File)>>);

/// Identity of a file's contents, which changes whenever the file does.
#[derive(PartialEq, Eq)]
struct Identity {
    file: (u64, u64),
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Identity {
    fn of(meta: &Metadata) -> Identity {
        Identity {
            file: (meta.dev(), meta.ino()),
            size: meta.size(),
            modified: (meta.mtime(), meta.mtime_nsec()),
            changed: (meta.ctime(), meta.ctime_nsec()),
        }
    }
}

impl Kept {
    fn open(&self, path: &Path, packing: Packing) -> io::Result<File> {
        let (packed, meta) = regular_file::open_with_metadata(path)?;
        let identity = Identity::of(&meta);
        // Held while it is unpacked: two at a time would do the work twice.
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, file)) = kept.iter().find(|(known, _)| *known == identity) {
            return file.try_clone();
        }
        let file = unpack(packed, identity.size, packing)?;
        kept.push((identity, file.try_clone()?));
        let mut sum = 0;
        let from_the_newest = kept.iter().rev();
        let fit = from_the_newest.take_while(|(_, file)| {
            sum += file.metadata().map_or(KEPT, |m| m.len());
            sum <= KEPT
        });
        let gone = kept.len() - fit.count();
        kept.drain(..gone);
        Ok(file)
    }
}

/// Unpacks a file of `size` bytes into memory.
fn unpack(packed: File, size: u64, packing: Packing) -> io::Result<File> {
    let limit = size.saturating_mul(RATIO).clamp(ANYWAY, LARGEST);
    let packed = BufReader::with_capacity(64 << 10, packed);
    let plain: Box<dyn Read> = match packing {
        Packing::Xz => Box::new(lzma_rust2::XzReader::new_mem_limit(packed, true, XZ_KIB)),
        Packing::Zstd => Box::new(zstd::stream::read::Decoder::with_buffer(packed)?),
        Packing::Gzip => Box::new(flate2::bufread::MultiGzDecoder::new(packed)),
    };
    let mut file = descriptors::memory_file("kymo-module")?;
    let damaged = |e: Error| Error::new(ErrorKind::InvalidData, format!("cannot be unpacked: {e}"));
    let unpacked = io::copy(&mut plain.take(limit + 1), &mut file).map_err(damaged)?;
    if unpacked > limit {
        let why = format!("cannot be unpacked: {size} bytes become more than {limit}");
        return Err(Error::new(ErrorKind::InvalidData, why));
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut to = GzEncoder::new(Vec::new(), Compression::fast());
        to.write_all(bytes).unwrap();
        to.finish().unwrap()
    }

    fn noise(size: usize, mut state: u32) -> Vec<u8> {
        let next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        };
        std::iter::repeat_with(next).take(size).collect()
    }

    #[test]
    fn names_tell_what_is_packed() {
        let check = |name: &str, plain: &str| assert_eq!(plain_name(name), plain);
        check("xfs.ko.xz", "xfs.ko");
        check("xfs.ko.zst", "xfs.ko");
        check("xfs.ko.gz", "xfs.ko");
        check("xfs.ko.debug.xz", "xfs.ko.debug");
        check("xfs.ko", "xfs.ko");
        check("data.xz", "data.xz");
        check(".xz", ".xz");
    }

    #[test]
    fn a_replaced_file_is_unpacked_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("some.ko.gz");
        let [first, second] = [noise(300_000, 1), noise(300_000, 2)];
        std::fs::write(&path, gzip(&first)).unwrap();
        let map = map(&path).unwrap();
        assert!(map.bytes() == first);
        std::fs::write(dir.path().join("new"), gzip(&second)).unwrap();
        std::fs::rename(dir.path().join("new"), &path).unwrap();
        assert!(super::map(&path).unwrap().bytes() == second && map.bytes() == first);
    }

    #[test]
    fn damage_and_bombs_are_errors() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("some.ko.gz");
        let mut packed = gzip(&noise(300_000, 1));
        std::fs::write(&path, &packed[..packed.len() / 2]).unwrap();
        assert!(map(&path).is_err());
        packed[100_000] ^= 1;
        std::fs::write(&path, &packed).unwrap();
        assert!(map(&path).unwrap_err().to_string().starts_with("cannot be unpacked"));
        for (name, tool) in [("some.ko.xz", "xz"), ("some.ko.zst", "zstd")] {
            std::fs::write(dir.path().join(name), tool).unwrap();
            assert!(map(&dir.path().join(name)).is_err(), "{name}");
        }
        std::fs::write(&path, gzip(&vec![0; 200 << 20])).unwrap();
        let size = std::fs::metadata(&path).unwrap().len();
        let why = map(&path).unwrap_err().to_string();
        assert_eq!(why, format!("cannot be unpacked: {size} bytes become more than {}", 64 * size));
    }
}
